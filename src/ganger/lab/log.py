"""The log of a run: written step by step, read back, and replayed to the same plans.

JSON Lines. The first line is the header (`format: ganger.log/1`, versions, policy, seed, cluster,
what the policy knew), then one line per declared job, then one line per step: the batch, the plan
decided on it (null where the policy was not asked) and a hash of the policy's memory.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from ganger import __version__
from ganger.client.strangers import refuse_others_file
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import Accepted, AnyEvent, Batch, Served
from ganger.core.kernel import Kernel
from ganger.core.plan import AnyAction, Plan
from ganger.core.profiles import Profiles
from ganger.core.protocols import Journal
from ganger.core.serving.memory import restored
from ganger.core.spec import ClusterSpec, JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.core.state.snapshot import Snapshot, restore
from ganger.lab.simulating.answering import profiles_of
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import (
    composed,
    families,
    has_services,
    load_policy,
    needs_of,
    resolved,
    with_budgets,
)
from ganger.lab.simulating.setup import Setup
from ganger.recipes.registry import make_router
from ganger.sim.physics import Costs, Physics
from ganger.sim.truth import Truth
from ganger.workloads.trace import Trace

FORMAT = "ganger.log/1"


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """What a log must say for its plans to be decided again."""

    format: str
    version: str
    policy: str
    seed: int
    knows: str
    noise: float
    cluster: ClusterSpec
    profiles: Profiles
    costs: dict[str, Any]
    trace: str
    jobs: int
    libraries: dict[str, str] = {}
    speed_noise: float = 0.0
    inner: str = ""
    """The recipe inside grants, if the trace has any."""
    serving: str = ""
    """The recipe for services, if the trace has any and they have one of their own."""
    router: str = ""
    """The recipe for their requests, where those are answered one by one."""
    sharing: str = ""
    """The rule by which they share the cluster with other jobs, if it is not the plain one."""


class LoggedJob(msgspec.Struct, forbid_unknown_fields=True):
    """A declared job, and the duration that an oracle of truth would tell (microseconds)."""

    spec: JobSpec
    duration: int


class Step(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One step. `actions` is None where the policy was not asked."""

    revision: int
    at: int
    events: list[AnyEvent]
    actions: list[AnyAction] | None
    wake: int = 0
    until: int = 0
    memory: str = ""
    late: list[int] = []
    """The durations of the jobs that a policy asked for and that come in this step, where an
    oracle knows them."""


def memory_hash(memory: Any) -> str:
    """A short hash of a policy's memory; "" for none."""
    if memory is None:
        return ""
    return hashlib.sha256(msgspec.msgpack.encode(memory)).hexdigest()[:16]


def _open(path: Path, mode: str) -> IO[bytes]:
    return gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode)  # type: ignore[return-value]


def _is_spawned(event: AnyEvent) -> bool:
    return isinstance(event, Accepted) and event.spawned


class LogWriter:
    """A journal that appends to a file. Use as a context manager."""

    def __init__(
        self,
        path: Path,
        kernel: Kernel,
        trace: Trace,
        cluster: ClusterSpec,
        policy: str,
        setup: Setup,
    ) -> None:
        self._file = _open(path, "wb")
        self._encode = msgspec.json.Encoder().encode
        self._late: list[int] = getattr(kernel.oracle, "late", [])
        self._logged = 0
        profiles = profiles_of(setup, trace)
        costs = {key: getattr(setup.costs, key) for key in Costs.__dataclass_fields__}
        self._line(
            Header(
                FORMAT,
                __version__,
                resolved(policy),
                setup.seed,
                setup.knows,
                setup.noise,
                cluster,
                profiles,
                costs,
                trace.name,
                trace.jobs,
                {"python": platform.python_version(), "numpy": np.__version__},
                setup.speed_noise,
                setup.inner if families(trace, setup.inner) else "",
                setup.serving if has_services(trace) else "",
                "" if setup.traffic is None else setup.traffic.router,
                setup.sharing if has_services(trace) else "",
            )
        )
        for job in range(trace.jobs):
            self._line(LoggedJob(kernel.jobs.spec(job), int(trace.duration[job])))

    def _line(self, value: Any) -> None:
        self._file.write(self._encode(value) + b"\n")

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Write one step."""
        late = self._late[self._logged :][: sum(map(_is_spawned, batch.events))]
        self._logged += len(late)
        if plan is None:
            self._line(Step(revision, batch.at, batch.events, None, late=late))
        else:
            self._line(
                Step(
                    revision,
                    batch.at,
                    batch.events,
                    plan.actions,
                    plan.wake,
                    plan.until,
                    memory_hash(memory),
                    late,
                )
            )

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


class Log:
    """A log, read back: its header, its trace, and its steps one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._read()
        self.header = self._header()
        declared, durations = Declared(), array("q")  # as long as the log is, not as it says
        rows: dict[str, int] = {}
        decoder = msgspec.json.Decoder(LoggedJob)
        for row in range(self.header.jobs):
            job: LoggedJob = self._decode(decoder, "a job")
            rows[job.spec.name] = row
            try:
                declared.append(job.spec, rows)
                durations.append(job.duration)
            except OverflowError as error:
                raise BadInput(f"job {job.spec.name!r}: {error}", where=str(path)) from None
        self.trace = Trace(declared, np.array(durations, np.int64), self.header.trace, str(path))

    def _read(self) -> Iterator[tuple[int, bytes]]:
        try:
            with _open(self.path, "rb") as file:
                yield from enumerate(file, 1)
        except (OSError, EOFError) as error:
            raise BadInput(f"cannot read it: {error}", where=str(self.path)) from error

    def _header(self) -> Header:
        first = next(self._lines, (1, b""))[1]
        try:
            name = msgspec.json.decode(first, type=dict[str, Any]).get("format", "")
        except (msgspec.MsgspecError, RecursionError):
            name = ""
        if name != FORMAT:
            mend = "give a log written by `ganger simulate --log`"
            if str(name).startswith("ganger.log/"):
                mend = f"this version reads {FORMAT}"
            raise BadInput(f"format {name!r} is not {FORMAT}", where=f"{self.path}:1", mend=mend)
        header: Header = self._checked(msgspec.json.Decoder(Header), 1, first)
        header.cluster.check(f"{self.path}:1: cluster")
        return header

    def _decode(self, decoder: msgspec.json.Decoder[Any], what: str) -> Any:
        line = next(self._lines, None)
        if line is None:
            raise BadInput(f"it ends before {what}", where=str(self.path), mend="it was cut short")
        return self._checked(decoder, *line)

    def _checked(self, decoder: msgspec.json.Decoder[Any], number: int, line: bytes) -> Any:
        try:
            return decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadInput(str(error), where=f"{self.path}:{number}") from error

    def steps(self) -> Iterator[Step]:
        """The steps, oldest first. Can be walked once."""
        decoder = msgspec.json.Decoder(Step)
        for number, line in self._lines:
            yield self._checked(decoder, number, line)


class Divergence(Exception):  # noqa: N818 - what happened, not an error of ours
    """The first step at which a replay decided otherwise than its log."""


class Replay:
    """An engine that feeds a log's batches back, and a journal that compares what is decided."""

    def __init__(self, log: Log, truth: Truth) -> None:
        self._steps = log.steps()
        self._truth = truth
        self._present: Step | None = None
        self.compared = 0
        self.plan: Plan | None = None
        """The last that the policy made."""

    def poll(self, until: int) -> Batch | None:
        """The next recorded batch."""
        self._present = next(self._steps, None)
        if self._present is None:
            return None
        for duration in self._present.late:
            self._truth.add(duration)
        return Batch(self._present.at, self._present.events)

    def apply(self, plan: Plan, now: int) -> None:
        """Nothing is executed: the outcomes are in the log."""

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Compare one step with its record. Raises Divergence."""
        step = self._present
        assert step is not None
        actions = None if plan is None else plan.actions
        if actions != step.actions:
            raise Divergence(
                f"revision {revision} at {batch.at / 1e6:.6f} s: the log says {step.actions},"
                f" decided now {actions}"
            )
        if plan is not None and (plan.wake != step.wake or memory_hash(memory) != step.memory):
            raise Divergence(
                f"revision {revision} at {batch.at / 1e6:.6f} s: same actions, but another wake"
                " or memory"
            )
        for event in batch.events:
            for service, memory in event.routers.items() if isinstance(event, Served) else ():
                self._check_router(revision, service, memory)
        self.compared += 1
        self.plan = plan if plan is not None else self.plan

    def _check_router(self, revision: int, service: int, memory: bytes) -> None:
        """A router could go on from what it remembered. Raises Divergence."""
        try:
            restored(memory)
        except Exception as error:  # whatever is wrong with bytes of a file
            raise Divergence(
                f"revision {revision}: what the router of service {service} remembered cannot be"
                f" taken up again: {error}"
            ) from None


def replay(path: Path) -> int:
    """Decide a log again; the number of steps that agreed. Raises Divergence or BadInput, also
    where another user wrote a log that names a Python file."""
    log = Log(path)
    refuse_others_policy(log)
    world = world_of(log)
    if log.header.router:
        make_router(log.header.router)  # so that what it remembers can be read
    engine = Replay(log, world.truth)
    kernel = remade(log, world, engine)
    with contradictions(path):
        kernel.run(engine)
    return engine.compared


def refuse_others_policy(log: Log) -> None:
    """Raise BadInput if the log names a Python file and another user wrote it."""
    header = log.header
    named = [header.policy, header.inner, header.serving, header.router]
    named = [name for name in named if name]
    if any(needs_of(name) == "own" for name in named):
        refuse_others_file(log.path)


@contextmanager
def contradictions(path: Path) -> Iterator[None]:
    """Replaying events within it raises BadInput where they contradict each other."""
    try:
        yield
    except (InvariantError, ArithmeticError, LookupError, ValueError) as error:
        raise BadInput(f"its events contradict each other: {error}", where=str(path)) from error


class World(NamedTuple):
    """What the run of a log was simulated in: `truth` knows the durations."""

    nodes: Nodes
    setup: Setup
    physics: Physics
    truth: Truth


def world_of(log: Log, late: Sequence[int] = ()) -> World:
    """The world of a log. `late`: durations of jobs that came after those that it declares."""
    header = log.header
    setup = Setup(
        header.seed,
        header.knows,
        header.noise,
        Costs(**header.costs),
        header.profiles,
        speed_noise=header.speed_noise,
    )
    nodes = Nodes(header.cluster)
    physics = Physics(nodes, setup.profiles, setup.costs)
    truth = Truth(log.trace.duration, physics)
    for duration in late:
        truth.add(duration)
    return World(nodes, setup, physics, truth)


def remade(
    log: Log, world: World, journal: Journal | None = None, snapshot: Snapshot | None = None
) -> Kernel:
    """A kernel as that of the logged run: at its begin, or in the state of `snapshot`."""
    header, setup = log.header, world.setup
    policy = load_policy(header.policy, recorded=True, bounded=False)
    inner, sharing = header.inner or "fifo", header.sharing
    policy = composed(policy, log.trace, inner, header.serving, sharing, recorded=True)
    policy = with_budgets(policy, header.cluster)
    oracle = make_oracle(log.trace, world.physics, setup, world.truth)
    if snapshot is not None:
        return restore(
            snapshot, world.nodes, policy, oracle=oracle, journal=journal, seed=setup.seed
        )
    return Kernel(
        world.nodes, log.trace.declared, policy, oracle=oracle, journal=journal, seed=setup.seed
    )
