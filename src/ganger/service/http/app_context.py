"""What a server process holds together, for the endpoints."""

from __future__ import annotations

import asyncio
import hmac
import os
import pwd
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from ganger import __version__
from ganger.client.answers import Status
from ganger.core.errors import BadInput
from ganger.core.protocols import capabilities_of
from ganger.core.spec import Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND, WHOLE, format_duration
from ganger.engines.agent.meter import EVERY_SECONDS
from ganger.service.daemon import Daemon
from ganger.service.durable.recovery import guard_of
from ganger.service.http.bodies import Bodies
from ganger.service.http.looks import Looks
from ganger.service.idle import Idleness
from ganger.service.jobs.rights import Rights
from ganger.service.jobs.roles import Forbidden, Roles, digest
from ganger.service.jobs.submission import Fits, Who
from ganger.service.notices.outbox import Notifier
from ganger.service.reports.rows import node_answers


class AppContext:
    """The daemon, and how it is reached. `shared`: several users, distinguished by the socket;
    `whole_gpus`: the engine gives no parts of GPUs."""

    def __init__(
        self,
        daemon: Daemon,
        home: Path,
        *,
        shared: bool = False,
        listen: str = "",
        token_hash: str = "",
        logs: Path | None = None,
        engine: str = "local",
        meter_seconds: float = EVERY_SECONDS,
        whole_gpus: bool = False,
    ) -> None:
        self.daemon, self._whole_gpus = daemon, whole_gpus
        self.home = home
        self.shared = shared
        self.listen = listen
        self.engine = engine
        self.token_hash = token_hash
        self.logs = logs or home / "agent" / "logs"
        self.go_down: Callable[[], None] = lambda: None
        self.roles = Roles.kept(daemon.journal)
        self.rights = Rights.kept(daemon.journal)
        self.changing = asyncio.Lock()
        """For changing roles or rights: one change must not undo another."""
        self.notifier = Notifier(daemon, home)
        self.idleness = Idleness(daemon, self.notifier, meter_seconds)
        self.bodies, self.looks = Bodies(), Looks()
        self.following: Counter[str] = Counter()
        """How many outputs each user reads now."""
        self.leaving = False
        """The server ends: streams should."""
        self._fits: tuple[object, Fits] = (None, Fits(daemon.kernel.nodes))
        self._stepped: asyncio.Event | None = None

    def fits(self, shape: Shape) -> None:
        """Raise BadInput if `shape` could never run here."""
        nodes = self.daemon.kernel.nodes
        if self._fits[0] is not nodes:
            self._fits = nodes, Fits(nodes)
        self._fits[1].check(shape)
        if self._whole_gpus and any(role.needs.share < WHOLE for role in shape.roles):
            raise BadInput(
                "Slurm gives whole GPUs only",
                where="share",
                mend="ask for a whole one, or `ganger up --pilot`",
            )

    def known_types(self, names: list[str]) -> list[str]:
        """GPU types as the cluster spells them."""
        types = {name.lower(): name for name in self.daemon.kernel.nodes.types}
        return [types.get(name.lower(), name) for name in names]

    def listen_for_steps(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake requests that wait whenever a step was made."""
        self._stepped = stepped = asyncio.Event()

        def tell() -> None:
            stepped.set()
            stepped.clear()

        def stepped_on() -> None:
            self.notifier.wake()
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:  # the kernel's last steps come after the server's end
                if not loop.is_closed():
                    raise

        self.daemon.on_step = stepped_on

    async def next_step(self, timeout: float) -> None:
        """Wait for the next step, at most `timeout` seconds."""
        assert self._stepped is not None
        try:
            await asyncio.wait_for(self._stepped.wait(), max(min(timeout, 1.0), 0.001))
        except TimeoutError:
            return

    def refuse_others(self, who: Who, rows: Sequence[int]) -> None:
        """Raise Forbidden unless the user owns every job."""
        for row in rows:
            if not self.owns(who, row):
                raise Forbidden(f"job {row + 1} belongs to another user")

    def refuse_unfit_family(
        self, who: Who, kind: str, parents: Iterable[str], tasks: bool = False
    ) -> None:
        """Raise BadInput for a search that nothing here would divide and for an array (`tasks`) of
        services that a recipe would scale, Forbidden for a trial unless the user owns its parent:
        an administrator's trial would run in what another holds."""
        if kind == "tune" and not capabilities_of(self.daemon.engine).grants:
            raise BadInput(
                "Slurm gives devices to one job only, not to its trials",
                where="kind",
                mend="submit jobs of kind train, or `ganger up --pilot`",
            )
        if kind == "tune" and not self.daemon.header.inner:
            raise BadInput(
                "no recipe here decides over trials",
                where="kind",
                mend="have an administrator say: ganger policy set RECIPE --inner tune.sha",
            )
        if kind == "serve" and tasks and self.daemon.header.serving:
            raise BadInput(
                f"a service is one job, of which {self.daemon.header.serving} chooses the replicas",
                where="array",
                mend="submit each service by itself",
            )
        self.refuse_others(who, [int(parent) - 1 for parent in parents])

    def owns(self, who: Who, row: int) -> bool:
        """Whether the user owns the job."""
        jobs = self.daemon.kernel.jobs
        return jobs.users[jobs.user[row]] == who.user

    def refuse_users(self, who: Who) -> None:
        """Raise Forbidden unless the user is an administrator."""
        if not who.admin:
            raise Forbidden("only an administrator may do this")

    def refuse_beyond(self, who: Who, tenant: str, priority: float, weight: float) -> None:
        """Raise Forbidden unless the user may have jobs of this tenant with this priority and
        weight. In personal mode tenants are book-keeping."""
        if self.shared and not who.admin:
            self.rights.refuse_beyond(who, tenant, priority, weight)

    def someone(self, user: str, uid: int, gid: int) -> Who:
        """The user at the other end of the Unix socket."""
        admin = not self.shared or uid in (0, os.getuid()) or user in self.roles.admins
        return Who(user, uid, gid, admin)

    def bearer(self, token: bytes) -> Who | None:
        """The user that this token stands for: the daemon's own user for the first token, others
        for theirs. In shared mode a token is worth nothing when its user is gone. In personal mode
        one of the role user is worth nothing: its jobs would run as the daemon's user, who may do
        everything."""
        if self.token_hash and hmac.compare_digest(digest(token), self.token_hash):
            mine = pwd.getpwuid(os.getuid())
            return Who(mine.pw_name, mine.pw_uid, mine.pw_gid, admin=True)
        found = self.roles.bearer(token)
        if found is None:
            return None
        admin = found.role == "admin"
        if not self.shared:
            return Who(found.user, os.getuid(), os.getgid(), admin) if admin else None
        try:
            entry = pwd.getpwnam(found.user)
        except KeyError:
            return None
        return Who(found.user, entry.pw_uid, entry.pw_gid, admin)

    @staticmethod
    def refuse_unknown(user: str) -> None:
        """Raise BadInput unless this machine knows the user."""
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise BadInput(f"this machine has no user {user!r}", where="user") from None

    def status(self) -> Status:
        """How the daemon does."""
        daemon = self.daemon
        with daemon.lock:
            kernel = daemon.kernel
            jobs, nodes = kernel.jobs, kernel.nodes
            counts = np.bincount(jobs.phase[: jobs.n], minlength=len(Phase))
            every = node_answers(daemon)
            trouble = [
                f"{name}: {said}" for name, all_ in list(daemon.warnings.items()) for said in all_
            ]
            down = [node.name for node in every if node.state == "down"]
            if down and (self.engine == "local" or self._whole_gpus):  # pilots come and go
                trouble.append(f"down: {', '.join(down)}")
            if daemon.full:
                trouble.append(f"nothing can be written: {daemon.full}")
            if daemon.set_aside:
                last, number = daemon.set_aside[-1], daemon.reader.set_aside_ever()
                trouble.append(
                    f"{number} record{'s' if number > 1 else ''} set aside, the last:"
                    f" {last.what}: {last.why}"
                )
            if said := self.notifier.trouble:
                trouble.append(said)
            for job in self.idleness.jobs():
                if job.told:
                    lasts = format_duration(job.idle_seconds * SECOND)
                    trouble.append(f"job {job.label} has been idle for {lasts}")
            void = (
                [] if self.shared else [one.id for one in self.roles.tokens if one.role != "admin"]
            )
            if void:
                trouble.append(
                    f"tokens of the role user let nobody in without --shared: {', '.join(void)}"
                )
            guard = guard_of(kernel)
            if guard.error:
                trouble.append(f"the policy fails: {guard.error}")
            if guard.differed:
                trouble.append(
                    f"{guard.differed} recorded plans were kept that the present version "
                    "would not make"
                )
            return Status(
                version=__version__,
                mode="shared" if self.shared else "personal",
                engine=self.engine,
                home=str(self.home),
                pid=os.getpid(),
                listen=self.listen,
                recipe=daemon.header.policy,
                knows=daemon.header.knows,
                inner=daemon.header.inner,
                serving=daemon.header.serving,
                since=daemon.since,
                now=daemon.now() / SECOND,
                revision=kernel.revision,
                decisions=kernel.decisions,
                last_decision_seconds=daemon.tally.last_seconds,
                slowest_decision_seconds=daemon.tally.longest_seconds,
                jobs={phase.name.lower(): int(counts[phase]) for phase in Phase if counts[phase]},
                nodes=nodes.n,
                gpus=nodes.total_gpus,
                gpus_free=sum(node.gpus_free for node in every if node.state == "up"),
                gpus_out=sum(node.gpus_free for node in every if node.state != "up"),
                journal_bytes=daemon.journal.size_bytes(),
                trouble=trouble,
            )
