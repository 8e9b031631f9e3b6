"""One run of a policy over real processes: the kernel, the local engine and an agent, nothing else.

The jobs are `lab/live/paced_worker.py`, one process each, however many GPUs it holds, or
`lab/live/torch_worker.py`, real training on one core.
Their stamps beside the journal's times say what starting, saving, restoring
and finishing cost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import (
    AnyEvent,
    Batch,
    Failed,
    Finished,
    Refused,
    Released,
    Started,
    Submitted,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Resize, Start, Stop
from ganger.core.protocols import Engine
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent.detached import start_agent
from ganger.engines.clock import Clock
from ganger.engines.launch import Launch
from ganger.engines.local import CANCELLED, AgentAt, LocalEngine
from ganger.lab.live import paced_worker as paced
from ganger.lab.log import LogWriter
from ganger.lab.result import JobTable
from ganger.lab.simulating.job_table import job_table
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import load_policy
from ganger.lab.simulating.refusals import refuse_impossible
from ganger.lab.simulating.setup import Setup
from ganger.sim.physics import Costs, Physics
from ganger.workloads.trace import Trace

STEP: Final = 10_000
"""A step of a job at the size that it asks for, microseconds."""
_AGENT_SECONDS: Final = 30
_TRAINED: Final = Path(__file__).with_name("torch_worker.py")
_Key = tuple[int, int]


class Training(NamedTuple):
    """Jobs train with this Python's PyTorch; a step takes `step` microseconds of CPU time, and it
    takes `load` microseconds from a cold start to the first of them."""

    python: str
    step: float
    load: int

    @classmethod
    def measured(cls, python: str, steps: int = 200) -> Training:
        """Training with what a step and a start take on this machine. Raises BadInput."""
        began = time.monotonic()
        root = Path(__file__).parents[3]
        done = subprocess.run(
            [python, str(_TRAINED), "", str(steps)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        if done.returncode:
            raise BadInput("it does not run PyTorch", where=python, mend=done.stderr[-300:].strip())
        lasted, step = (time.monotonic() - began) * 1e6, float(done.stdout) * 1e6
        return cls(python, step, max(round(lasted - steps * step), 0))


class Lived(NamedTuple):
    """A live run: its jobs, and what was measured of it."""

    jobs: JobTable
    costs: Costs
    """Means over all attempts, weighted by GPUs."""
    preemptions: int
    """Stops and resizes."""
    computed: tuple[int, ...]
    """For how long each job's process computed, in all its attempts, microseconds."""


class Stopwatch(Clock):
    """A clock that stands at 0 until it is started."""

    def __init__(self) -> None:
        self._zero: int | None = None

    def start(self) -> None:
        """Now is 0."""
        self._zero = time.monotonic_ns()

    def now(self) -> int:
        """The time, microseconds."""
        return 0 if self._zero is None else self.at(time.monotonic_ns())

    def at(self, monotonic_ns: int) -> int:
        """The time of a reading of the machine's monotonic clock, microseconds."""
        return (monotonic_ns - (self._zero or 0)) // 1000


def run_live(
    trace: Trace,
    cluster: ClusterSpec,
    recipe: str,
    setup: Setup,
    folder: Path,
    log: Path,
    patience_seconds: float,
    training: Training | None = None,
) -> Lived:
    """Run the jobs of `trace` under `recipe`, submitted when it says, each for its `duration` at
    the size that it asks for, at other sizes by `setup.profiles`. `cluster` is this machine with
    simulated GPUs, one node. With `training` jobs train for as many steps as would take that long.
    The agent's state goes into `folder`, the log to `log`.

    Raises BadInput if the agent does not come up, or if it takes longer than `patience_seconds`.
    """
    nodes = Nodes(cluster.check())
    refuse_impossible(trace, nodes)
    physics = Physics(nodes, setup.profiles, setup.costs)
    kernel = Kernel(
        nodes,
        trace.declared,
        load_policy(recipe),
        oracle=make_oracle(trace, physics, setup),
        seed=setup.seed,
    )
    stamps = folder / "stamps"
    stamps.mkdir(parents=True)
    agents: list[subprocess.Popen[bytes]] = []

    def spawn() -> subprocess.Popen[bytes]:
        agents.append(start_agent(folder, "--gpus", str(cluster.gpus), "--name", "here"))
        return agents[-1]

    clock = Stopwatch()
    engine = LocalEngine(
        _launcher(kernel, trace, physics, stamps, training),
        lambda hello: range(len(hello.nodes)),
        agents=[AgentAt(folder / "agent", spawn)],
        clock=clock,
    )
    over = threading.Event()
    try:
        _settle(engine, folder)
        with LogWriter(log, kernel, trace, cluster, recipe, setup) as writer:
            kernel.journal = writer
            probe = Probe(engine, kernel)
            clock.start()
            times = trace.declared.submitted[: trace.jobs].tolist()
            threading.Thread(target=_submit, args=(engine, clock, times, over), daemon=True).start()
            kernel.run(probe, round(patience_seconds * SECOND))
        if not probe.is_over():
            raise BadInput(f"not over after {patience_seconds:g} s", where=recipe)
        seen = read_stamps(stamps, clock)
        computed = [0] * trace.jobs
        for (job, _), one in seen.items():
            computed[job] += one.alone - one.began
        table = job_table(kernel, trace, None)
        return Lived(table, probe.costs(seen), len(probe.stopped), tuple(computed))
    finally:
        over.set()
        _stop_all(engine, kernel)
        engine.close()
        for agent in agents:
            agent.terminate()
            agent.wait()


def _stop_all(engine: LocalEngine, kernel: Kernel) -> None:
    """End what still runs, if the run was broken off."""
    jobs = kernel.jobs
    phase = jobs.phase[: jobs.n]
    alive = np.flatnonzero((phase >= Phase.STARTING) & (phase < Phase.FINISHED)).tolist()
    left = {(job, int(jobs.attempt[job])) for job in alive}
    if left:
        engine.apply(Plan([Stop(*key, why=CANCELLED) for key in sorted(left)]), kernel.now)
    late = time.monotonic() + _AGENT_SECONDS
    while left and time.monotonic() < late:
        batch = engine.poll(engine.clock.now() + SECOND // 10)
        for event in batch.events if batch is not None else ():
            if isinstance(event, Finished | Failed | Released | Refused):
                left.discard((event.job, event.attempt))


def _launcher(
    kernel: Kernel, trace: Trace, physics: Physics, stamps: Path, training: Training | None
) -> Callable[[int], Launch]:
    """How each job is launched."""
    jobs = kernel.jobs

    def launch_of(job: int) -> Launch:
        if training is not None:
            steps = max(round(trace.duration[job] / training.step), 1)
            return Launch(
                command=(training.python, str(_TRAINED), str(stamps), str(steps)),
                per="job",
                shape=jobs.shapes[jobs.shape[job]],
                step_micros=training.step,
                warm=("torch", "torch._dynamo"),
            )
        shape, asked = jobs.shapes[jobs.shape[job]], int(jobs.gpus[job])
        profile = physics.profiles.of(jobs.models[jobs.model[job]])
        speeds = (profile.speedup(gpus, asked) for gpus in range(1, shape.most + 1))
        words = stamps, round(trace.duration[job] / STEP), STEP, ",".join(map(repr, speeds))
        command = sys.executable, "-S", "-P", paced.__file__, *map(str, words)
        return Launch(command=command, shape=shape, per="job", step_micros=float(STEP))

    return launch_of


def _settle(engine: LocalEngine, folder: Path) -> None:
    """Wait until the agent is there."""
    late = time.monotonic() + _AGENT_SECONDS
    while not any(box.up for box in engine.boxes.values()):
        if time.monotonic() > late:
            raise BadInput("the agent does not come up", where=str(folder / "agent.log"))
        engine.poll(0)
        time.sleep(0.01)


def _submit(
    engine: LocalEngine, clock: Stopwatch, times: Sequence[int], over: threading.Event
) -> None:
    """Submit each job at its time (microseconds)."""
    for job, at in enumerate(times):
        if over.wait(clock.seconds_until(at)):
            return
        engine.post(Submitted(job))


class Stamps(NamedTuple):
    """When one attempt began to compute and stopped, as its process says, microseconds."""

    began: int
    stopped: int
    alone: int
    """When it would have stopped, had no timer been late; if none paced it, when it did."""


def read_stamps(folder: Path, clock: Stopwatch) -> dict[_Key, Stamps]:
    """The stamps of each attempt (job, attempt) that computed and stopped in order."""
    found = {}
    for path in folder.iterdir():
        lines = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        if len(lines) == 2:
            (began, first, took), (stopped, last, _) = lines
            job, _, attempt = path.name.partition(".")
            alone = clock.at(began + (last - first) * took if took else stopped)
            found[int(job), int(attempt)] = Stamps(clock.at(began), clock.at(stopped), alone)
    return found


class Probe:
    """An engine whose conversation with the kernel is noted; it is at its end when all jobs
    are over."""

    def __init__(self, engine: Engine, kernel: Kernel) -> None:
        self._engine, self._phase = engine, kernel.jobs.phase[: kernel.jobs.n]
        self.decided: dict[_Key, tuple[int, tuple[int, ...]]] = {}
        """When each attempt was decided, and which jobs it had to wait for."""
        self._gpus: dict[_Key, int] = {}
        self._launched: dict[_Key, int] = {}
        self.stopped: dict[_Key, int] = {}
        self._released: dict[_Key, int] = {}
        self._finished: dict[_Key, int] = {}

    def is_over(self) -> bool:
        """Whether every job is."""
        return bool((self._phase >= Phase.FINISHED).all())

    def poll(self, until: int) -> Batch | None:
        """What the engine tells."""
        if self.is_over():
            return None
        batch = self._engine.poll(until)
        if batch is not None:
            self._note(batch.at, batch.events)
        return batch

    def _note(self, at: int, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self._finished[event.job, event.attempt] = at
            elif isinstance(event, Started):
                self._launched[event.job, event.attempt] = at
            elif isinstance(event, Released | Failed):
                self._released[event.job, event.attempt] = at

    def apply(self, plan: Plan, now: int) -> None:
        """Pass on."""
        for action in plan.actions:
            if isinstance(action, Start | Resize):
                gpus = sum(slot.devices.bit_count() for slot in action.placement)
                self._gpus[action.job, action.attempt] = gpus
            if isinstance(action, Start):
                self.decided[action.job, action.attempt] = now, action.waits
            elif isinstance(action, Stop):
                self.stopped[action.job, action.attempt] = now
            elif isinstance(action, Resize):
                self.decided[action.job, action.attempt] = now, (*action.waits, action.job)
                self.stopped[action.job, action.attempt - 1] = now
        self._engine.apply(plan, now)

    def costs(self, stamps: dict[_Key, Stamps]) -> Costs:
        """Mean costs of the run, weighted by GPUs, so that they take the GPU time that they took.

        Steps that a stopped attempt still took are kept: that time is off the restore after it."""
        waited = {key: seen.began - self._ready(key) for key, seen in stamps.items()}
        loaded = {
            key: stamps[key].began - at for key, at in self._launched.items() if key in stamps
        }
        done = {key: at - stamps[key].alone for key, at in self._finished.items() if key in stamps}
        stops = [key for key in self.stopped if key in self._released]
        saved = {key: self._released[key] - self.stopped[key] for key in stops}
        more = {
            key: max(stamps[key].stopped - self.stopped[key], 0) for key in stops if key in stamps
        }
        restored = self._mean({key: time for key, time in waited.items() if key[1] > 1})
        return Costs(
            start=self._mean({key: time for key, time in waited.items() if key[1] == 1}),
            checkpoint=self._mean(saved),
            restore=max(restored - self._mean(more), 0),
            load=self._mean(loaded),
            finish=self._mean(done),
        )

    def _mean(self, times: Mapping[_Key, int]) -> int:
        weights = [self._gpus[key] for key in times]
        return max(round(fmean(times.values(), weights)), 0) if times else 0

    def _ready(self, key: _Key) -> int:
        """When an attempt was decided and those that it had to wait for were gone."""
        at, waits = self.decided[key]
        others = (
            self._released.get(other, at)
            for other, stopped in self.stopped.items()
            if other[0] in waits and stopped <= at and other != key
        )
        return max(at, *others, at)
