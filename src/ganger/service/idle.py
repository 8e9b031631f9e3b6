"""Jobs that hold GPUs and do nothing with them: noticed, reported, and if so wanted made to
leave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ganger.client.answers import IdleJob
from ganger.core.errors import BadInput, GangerError
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND, WHOLE
from ganger.engines.agent.protocol import Used
from ganger.service.commands import Keep, Order
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Journal
from ganger.service.notices.notify import Message
from ganger.service.notices.outbox import Notifier
from ganger.service.reports import rows

RULE: Final = "idle"
SPENT: Final = "idle-gpu-seconds"
"""The settings that keep the rule, and what was idle so far by tenant."""
KEEP_EVERY: Final = 60.0
Action = Literal["off", "warn", "release", "cancel"]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job is idle when for `after` seconds its GPUs computed less than the part `gpu` of each
    look's moment; where GPUs are not measured, when its processes used fewer than `cores` cores.

    Then: `warn` reports it, `release` has it save and holds it until a person releases it, `cancel`
    ends it. A job that must not be preempted is not released, only reported.
    """

    action: Action = "warn"
    after: float = 1800.0
    gpu: float = 0.05
    cores: float = 0.05

    def check(self) -> Rule:
        """This, or BadInput."""
        for name, value, most in (
            ("after", self.after, 1e9),
            ("gpu", self.gpu, 1.0),
            ("cores", self.cores, 1e6),
        ):
            if not 0 < value <= most:
                raise BadInput(f"{value} is not above 0 and at most {most:g}", where=name)
        return self

    def holds(self, uses: list[Used]) -> bool:
        """Whether these looks at all parts of a job show nothing done."""
        if not uses:
            return False
        if any(use.gpu >= 0 for use in uses):
            return all(use.gpu < self.gpu for use in uses)
        return sum(use.cores for use in uses) < self.cores


class Idleness:
    """Looks at what agents report every few seconds."""

    def __init__(self, daemon: Daemon, notifier: Notifier, every: float) -> None:
        self._daemon, self._notifier, self._every = daemon, notifier, every
        self.rule = kept_rule(daemon.journal)
        self.gpu_seconds: dict[str, float] = msgspec.json.decode(
            daemon.journal.setting(SPENT) or "{}", type=dict[str, float]
        )
        """By tenant: GPU time in which nothing was done."""
        self._since: dict[tuple[int, int], float] = {}
        self._told: set[tuple[int, int]] = set()
        self._kept_at, self._dirty = 0.0, False

    def judge_by(self, rule: Rule) -> None:
        """Another rule: what was done by the old one is done again, if this one says so."""
        self.rule = rule
        self._told.clear()

    def uses(self, row: int) -> list[Used]:
        """The last looks at the parts of a job's present attempt."""
        found: Mapping[object, Used] = getattr(self._daemon.engine, "uses", {})
        attempt = int(self._daemon.kernel.jobs.attempt[row])
        return [
            use for use in list(found.values()) if (use.key.job, use.key.attempt) == (row, attempt)
        ]

    def jobs(self) -> list[IdleJob]:
        """Jobs that do nothing now, the longest first. Wants the daemon's lock."""
        now = self._daemon.now() / SECOND
        found = []
        for (row, attempt), since in sorted(self._since.items(), key=lambda item: item[1]):
            jobs = self._daemon.kernel.jobs
            if int(jobs.attempt[row]) == attempt and jobs.phase[row] == Phase.RUNNING:
                job = rows.job_answer(self._daemon, row)
                found.append(
                    IdleJob(
                        job=job.job,
                        label=job.label,
                        name=job.name,
                        user=job.user,
                        tenant=job.tenant,
                        gpus=job.gpus,
                        idle_seconds=max(now - since, 0.0),
                        told=(row, attempt) in self._told,
                    )
                )
        return found

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self._every)
            self.look()

    def look(self) -> None:
        """Find the jobs that do nothing, count for how long, and act."""
        daemon, rule = self._daemon, self.rule
        over: list[int] = []
        with daemon.lock:
            now = daemon.now() / SECOND
            by_job: dict[tuple[int, int], list[Used]] = {}
            for use in list(getattr(daemon.engine, "uses", {}).values()):
                by_job.setdefault((use.key.job, use.key.attempt), []).append(use)
            jobs = daemon.kernel.jobs
            idle = {
                key
                for key, uses in by_job.items()
                if rule.holds(uses)
                and jobs.phase[key[0]] == Phase.RUNNING
                and int(jobs.attempt[key[0]]) == key[1]
                and jobs.size[key[0]] > 0
            }
            self._since = {key: self._since.get(key, now) for key in idle}
            self._told &= idle
            for key in idle:
                tenant = jobs.tenants[jobs.tenant[key[0]]]
                share = jobs.shapes[jobs.shape[key[0]]].roles[0].needs.share / WHOLE
                spent = self._every * int(jobs.size[key[0]]) * share
                self.gpu_seconds[tenant] = self.gpu_seconds.get(tenant, 0.0) + spent
                self._dirty = True
                due = rule.action != "off" and now - self._since[key] >= rule.after
                if due and key not in self._told:
                    self._told.add(key)
                    over.append(key[0])
        for row in over:
            self._act(row, rule)
        if self._dirty and now - self._kept_at >= KEEP_EVERY:
            self.keep(now)

    def keep(self, now: float) -> None:
        """Have what was counted outlive this process."""
        self._kept_at, self._dirty = now, False
        spent = {tenant: round(seconds, 3) for tenant, seconds in self.gpu_seconds.items()}
        self._daemon.ask(Keep(SPENT, msgspec.json.encode(spent).decode()))

    def _act(self, row: int, rule: Rule) -> None:
        daemon = self._daemon
        with daemon.lock:
            job = rows.job_answer(daemon, row)
            never = daemon.kernel.jobs.on_preempt[row] == OnPreempt.NEVER
        action = "warn" if rule.action == "release" and never else rule.action
        said = {"warn": "warned", "release": "released", "cancel": "cancelled"}[action]
        self._notifier.tell(
            Message(
                event="idle",
                at=daemon.now() / SECOND,
                home=str(daemon.journal.path.parent),
                job=job,
                outcome=said,
            )
        )
        orders = {"release": {"requeue": 0.0, "hold": 0.0}, "cancel": {"cancel": 0.0}}
        if action in orders:
            ask = Order([row], orders[action])
            ask.done.add_done_callback(_forgive)
            daemon.ask(ask)


def _forgive(done: object) -> None:
    """The job may have ended meanwhile: then there is nothing to order."""
    error = done.exception()  # type: ignore[attr-defined]
    if error is not None and not isinstance(error, GangerError):
        raise error


def kept_rule(journal: Journal) -> Rule:
    """The rule that a journal keeps."""
    return msgspec.json.decode(journal.setting(RULE) or "{}", type=Rule)
