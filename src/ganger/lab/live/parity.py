"""Does the simulator foretell what happens? The same jobs, live and simulated, side by side.

A run is live first: real processes whose steps are paced by timers, on the local engine. What
starting, saving, restoring and finishing cost is measured in it, and the simulator gets those costs
and the same submissions. Beside it stands what the simulator says with the costs of the *other*
runs of the recipe, which it could have known before.

Jobs that really train take as long as the machine lets them, so the simulator also gets how long
each computed, in that run, or on average in the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, JobSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.units import SECOND
from ganger.engines.gpus import find_nodes
from ganger.lab.figures import completion_times, finished
from ganger.lab.live.run import STEP, Training, run_live
from ganger.lab.log import Divergence, replay
from ganger.lab.result import JobTable
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import load_policy
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.workloads.trace import Trace

RECIPES: Final = (
    "fifo",
    "sjf",
    "backfill",
    "srtf",
    "las(quantum=1s)",
    "tiresias(thresholds=1s;4s)",
    "max-min(every=1s)",
    "optimus(interval=2s)",
)
"""What is compared unless said otherwise; quanta and thresholds as short as the jobs."""
TRAINING_RECIPES: Final = ("fifo", "srtf", "las(quantum=5s)")
"""The same for jobs that train. A quantum must be longer than importing PyTorch: a job that is
preempted before it has taken a step will never be over."""
GOAL: Final = 0.05
"""Error of the mean JCT that the median of several runs must not exceed."""
SPEEDUP: Final = (1.0, 1.8, 2.5, 3.1, 3.6, 4.0, 4.3, 4.5)
"""Throughput of a job by its GPUs, relative to one."""
_PROFILES: Final = Profiles(default=Profile(scaling=SPEEDUP))
SIZES: Final = ((1, 0.6), (2, 0.25), (4, 0.15))
_SECONDS: Final = (0.3, 3.0)
_TRAINING: Final = (1.0, 10.0)
"""Run times of jobs that train, seconds: an import of PyTorch takes about two."""
_FACTORS: Final = tuple(0.95 + 0.0125 * i for i in range(9))
_TRAINING_SECONDS: Final = 600
"""So much longer for jobs that train: to import PyTorch, and beside what else the cores do."""
_PATIENCE: Final = 10
"""A live run is given up after so many times the time that all work would take on all GPUs."""


def workload(
    jobs: int,
    gpus: int,
    seed: int = 0,
    load: float = 0.8,
    sizes: Sequence[tuple[int, float]] = SIZES,
    seconds: tuple[float, float] = _SECONDS,
) -> Trace:
    """Short jobs for `gpus` GPUs: Poisson arrivals, run times log-uniform in `seconds` in whole
    steps, gangs of `sizes` (1, 2 and 4 GPUs for 60, 25 and 15 %), elastic from one GPU to twice as
    many.

    Run times and gangs are evenly spread over their distributions, so that every seed has the same
    jobs, in another order and paired otherwise."""
    rng = np.random.default_rng(seed)
    even = (np.arange(jobs) + 0.5) / jobs
    low, high = np.log(seconds)
    lasts = np.exp(low + (high - low) * rng.permutation(even))
    took = np.rint(lasts * SECOND / STEP).astype(np.int64) * STEP
    counts, shares = np.array([pair for pair in sizes if pair[0] <= gpus]).T
    edges = np.cumsum(shares) / shares.sum()
    size = counts[np.searchsorted(edges, rng.permutation(even))].astype(np.int64)
    span = float((took * size).sum()) / (gpus * load)
    arrival = np.cumsum(rng.exponential(span / jobs, jobs)).astype(np.int64)
    specs = [
        JobSpec(
            name=f"job{job}",
            submitted=int(arrival[job]),
            estimate=int(took[job]),
            shape=Shape((Role(size=int(size[job]), least=1, most=min(2 * int(size[job]), gpus)),)),
        )
        for job in range(jobs)
    ]
    return Trace(declare(specs), took, "paced", f"paced jobs, seed {seed}, load {load:g}")


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs. `finish`: seconds per job, NaN where it did not finish."""

    jct_mean_seconds: float
    makespan_seconds: float
    finish: tuple[float, ...]

    @classmethod
    def of(cls, jobs: JobTable) -> Outcome:
        """Of a run's jobs."""
        finish = np.where(finished(jobs), jobs.finish, np.nan)
        return cls(
            float(np.nanmean(completion_times(jobs))),
            float(np.nanmax(finish) - jobs.arrival.min()),
            tuple(finish.tolist()),
        )


@dataclass(frozen=True)
class Trial:
    """One live run and what the simulator made of it. Costs in seconds."""

    live: Outcome
    simulated: Outcome
    """With the costs of this run."""
    start_seconds: float
    checkpoint_seconds: float
    restore_seconds: float
    load_seconds: float
    finish_seconds: float
    preemptions: int
    steps: int
    """Steps of the log that were decided again to the same plans."""
    divergence: str
    """The first that was not; "" for none."""
    computed: tuple[int, ...]
    """How long each job computed, microseconds."""

    @property
    def costs(self) -> Costs:
        """As the simulator takes them."""
        return _costs([self])


@dataclass(frozen=True)
class Parity:
    """All trials of one recipe, in figures. Errors are |simulated / live - 1| of one run; medians
    and the worst over the runs. Order: share of all pairs of jobs that finish in the same order."""

    recipe: str
    runs: int
    jct_live_seconds: float
    jct_simulated_seconds: float
    jct_error: float
    jct_error_worst: float
    jct_error_other_costs: float
    """With the mean costs of the other runs; NaN for one run."""
    jct_spread: float
    """Of the live runs: (largest - smallest) / median; NaN for one run."""
    sensitivity: float
    """The same of the simulator's mean JCTs with costs up to 5 % lower and higher."""
    makespan_live_seconds: float
    makespan_error: float
    order: float
    order_live: float
    """The same between live runs; NaN for one run."""
    unfinished: int
    start_seconds: float
    checkpoint_seconds: float
    restore_seconds: float
    load_seconds: float
    finish_seconds: float
    preemptions: float
    steps: int
    divergence: str

    @property
    def good(self) -> bool:
        """Whether the goal is met, all jobs finished, and every log is decided the same again."""
        return self.jct_error <= GOAL and not self.unfinished and not self.divergence


class Study:
    """The same jobs under several recipes, live and simulated; logs and agents' state in `folder`.

    With `training` the jobs train, one GPU and one core each, fixed in size. Raises BadInput for
    what cannot be run.
    """

    def __init__(
        self,
        folder: Path,
        jobs: int = 100,
        gpus: int = 8,
        seed: int = 0,
        load: float = 0.8,
        training: Training | None = None,
    ) -> None:
        if jobs < 2 or not 0 < load < 10:
            raise BadInput(f"{jobs} jobs at load {load:g}", mend="give 2 or more, load like 0.8")
        self.cluster = ClusterSpec(find_nodes(str(gpus), "here"))
        if training is not None and gpus > cores():
            raise BadInput(
                f"{gpus} jobs at once want as many cores", where="gpus", mend=f"there are {cores()}"
            )
        self._training = training
        kind = (SIZES, _SECONDS) if training is None else (((1, 1.0),), _TRAINING)
        self.trace = workload(jobs, gpus, seed, load, *kind)
        self.setup = Setup(seed=seed, profiles=_PROFILES)
        self._folder = folder
        work = self.trace.gpu_seconds() / gpus / min(load, 1)
        self._patience = (30 if training is None else _TRAINING_SECONDS) + _PATIENCE * work
        self.trials: dict[str, list[Trial]] = {}

    def run(
        self, recipes: Sequence[str], runs: int, tell: Callable[[str, Trial], None] | None = None
    ) -> list[Parity]:
        """Every recipe `runs` times in turns, so that what else the machine does hits all."""
        for recipe in recipes:
            self.refuse_endless(recipe)  # what cannot be run is refused before anything is
        for _ in range(runs):
            for recipe in recipes:
                trial = self.trial(recipe)
                if tell is not None:
                    tell(recipe, trial)
        return [self.parity(recipe) for recipe in recipes]

    def refuse_endless(self, recipe: str) -> None:
        """Raise BadInput for a recipe under which jobs that train would never be over, as the
        simulator has it, where each start costs an import of PyTorch, and for no recipe."""
        policy, training = load_policy(recipe), self._training
        if training is None:
            return
        load = training.load
        physics = Physics(Nodes(self.cluster), _PROFILES, Costs(load, restore=load, load=load))
        kernel = Kernel(
            Nodes(self.cluster),
            self.trace.declared,
            policy,
            oracle=make_oracle(self.trace, physics, self.setup),
        )
        engine = Simulator(self.trace.declared, self.trace.duration, physics)
        kernel.run(engine, round(self._patience * SECOND))
        if (kernel.jobs.phase[: kernel.jobs.n] < Phase.FINISHED).any():
            raise BadInput(
                f"not over after {self._patience:.0f} s, as a job needs {load / SECOND:.1f} s to"
                " import PyTorch at each start",
                where=recipe,
                mend="preempt less often",
            )

    def trial(self, recipe: str) -> Trial:
        """Run live, decide the log again, simulate."""
        done = self.trials.setdefault(recipe, [])
        number = sum(map(len, self.trials.values()))
        folder = self._folder / str(number)
        log = self._folder / f"{number}.log"
        lived = run_live(
            self.trace,
            self.cluster,
            recipe,
            self.setup,
            folder,
            log,
            self._patience,
            self._training,
        )
        steps, divergence = 0, ""
        try:
            steps = replay(log)
        except Divergence as error:
            divergence = str(error)
        costs = lived.costs
        trial = Trial(
            Outcome.of(lived.jobs),
            self.simulate(recipe, costs, lived.computed),
            costs.start / SECOND,
            costs.checkpoint / SECOND,
            costs.restore / SECOND,
            costs.load / SECOND,
            costs.finish / SECOND,
            lived.preemptions,
            steps,
            divergence,
            lived.computed,
        )
        done.append(trial)
        return trial

    def simulate(self, recipe: str, costs: Costs, computed: Sequence[int] = ()) -> Outcome:
        """What the simulator says with these costs, and of jobs that train with these times of
        computing."""
        setup, trace = Setup(self.setup.seed, costs=costs, profiles=_PROFILES), self.trace
        if self._training is not None:
            trace = replace(trace, duration=np.maximum(np.array(computed, np.int64), 1))
        return Outcome.of(run_one(trace, self.cluster, recipe, setup, record=False).jobs)

    def parity(self, recipe: str) -> Parity:
        """The figures of one recipe's trials."""
        trials = self.trials[recipe]
        live = [trial.live.jct_mean_seconds for trial in trials]
        errors = [_error(t.simulated.jct_mean_seconds, t.live.jct_mean_seconds) for t in trials]
        pairs = list(combinations(trials, 2))
        return Parity(
            recipe=recipe,
            runs=len(trials),
            jct_live_seconds=median(live),
            jct_simulated_seconds=median(t.simulated.jct_mean_seconds for t in trials),
            jct_error=median(errors),
            jct_error_worst=max(errors),
            jct_error_other_costs=_median(self._foretold(recipe)),
            jct_spread=(max(live) - min(live)) / median(live) if pairs else np.nan,
            sensitivity=self.sensitivity(recipe, _costs(trials), _computed(trials)),
            makespan_live_seconds=median(t.live.makespan_seconds for t in trials),
            makespan_error=median(
                _error(t.simulated.makespan_seconds, t.live.makespan_seconds) for t in trials
            ),
            order=median(agreement(t.live.finish, t.simulated.finish) for t in trials),
            order_live=_median([agreement(a.live.finish, b.live.finish) for a, b in pairs]),
            unfinished=sum(int(np.isnan(t.live.finish).sum()) for t in trials),
            start_seconds=fmean(t.start_seconds for t in trials),
            checkpoint_seconds=fmean(t.checkpoint_seconds for t in trials),
            restore_seconds=fmean(t.restore_seconds for t in trials),
            load_seconds=fmean(t.load_seconds for t in trials),
            finish_seconds=fmean(t.finish_seconds for t in trials),
            preemptions=median(t.preemptions for t in trials),
            steps=sum(t.steps for t in trials),
            divergence=next((t.divergence for t in trials if t.divergence), ""),
        )

    def sensitivity(self, recipe: str, costs: Costs, computed: Sequence[int] = ()) -> float:
        """(Largest - smallest) / median of the mean JCTs that the simulator says with all costs
        scaled alike, by nine factors from 0.95 to 1.05: what a small error in them may do."""
        found = [
            self.simulate(recipe, _scaled(costs, factor), computed).jct_mean_seconds
            for factor in _FACTORS
        ]
        return (max(found) - min(found)) / median(found)

    def _foretold(self, recipe: str) -> list[float]:
        """The error of each run with the mean costs of the others."""
        trials = self.trials[recipe]
        found = []
        for trial in trials if len(trials) > 1 else ():
            others = [other for other in trials if other is not trial]
            said = self.simulate(recipe, _costs(others), _computed(others)).jct_mean_seconds
            found.append(_error(said, trial.live.jct_mean_seconds))
        return found


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def agreement(one: Sequence[float], other: Sequence[float]) -> float:
    """The share of all pairs of jobs that finish in the same order in both (seconds per job);
    jobs without a finish agree with nobody."""
    a, b = _order(one), _order(other)
    n = len(one)
    return float(np.triu((a == b) & (a != 0), 1).sum()) / (n * (n - 1) / 2)


def _costs(trials: Sequence[Trial]) -> Costs:
    """The mean costs of these."""
    return Costs(
        start=round(fmean(t.start_seconds for t in trials) * SECOND),
        checkpoint=round(fmean(t.checkpoint_seconds for t in trials) * SECOND),
        restore=round(fmean(t.restore_seconds for t in trials) * SECOND),
        load=round(fmean(t.load_seconds for t in trials) * SECOND),
        finish=round(fmean(t.finish_seconds for t in trials) * SECOND),
    )


def _computed(trials: Sequence[Trial]) -> list[int]:
    """How long each job computed, the mean over these."""
    return [round(fmean(times)) for times in zip(*(t.computed for t in trials), strict=True)]


def _scaled(costs: Costs, factor: float) -> Costs:
    return Costs(
        start=round(costs.start * factor),
        checkpoint=round(costs.checkpoint * factor),
        restore=round(costs.restore * factor),
        load=round(costs.load * factor),
        finish=round(costs.finish * factor),
    )


def _order(finish: Sequence[float]) -> NDArray[Any]:
    times = np.array(finish)
    order: NDArray[Any] = np.nan_to_num(np.sign(times[:, None] - times[None, :]))
    return order


def _error(said: float, was: float) -> float:
    return abs(said / was - 1)


def _median(values: Sequence[float]) -> float:
    return median(values) if values else np.nan


def told(recipe: str, trial: Trial) -> str:
    """A trial in a line."""
    live, said = trial.live.jct_mean_seconds, trial.simulated.jct_mean_seconds
    return (
        f"{recipe}: mean JCT {live:.3f} s live, {said:.3f} s simulated ({said / live - 1:+.1%}),"
        f" {trial.preemptions} preemptions"
    )


def columns(parity: Parity) -> Iterator[tuple[str, str]]:
    """Titles and texts of the table that people read."""
    known = asdict(parity)

    def percent(name: str) -> str:
        return "-" if np.isnan(known[name]) else f"{known[name]:.1%}"

    def milliseconds(name: str) -> str:
        return f"{1e3 * known[name]:.0f} ms" if known[name] else "-"

    yield "recipe", parity.recipe
    yield "mean JCT live", f"{parity.jct_live_seconds:.3f} s"
    yield "simulated", f"{parity.jct_simulated_seconds:.3f} s"
    yield "error", percent("jct_error")
    yield "worst", percent("jct_error_worst")
    yield "with other runs' costs", percent("jct_error_other_costs")
    yield "live spread", percent("jct_spread")
    yield "spread with costs +-5 %", percent("sensitivity")
    yield "makespan", f"{parity.makespan_live_seconds:.2f} s"
    yield "its error", percent("makespan_error")
    yield "same order", percent("order")
    yield "live to live", percent("order_live")
    yield "preemptions", f"{parity.preemptions:.0f}"
    yield "start", milliseconds("start_seconds")
    yield "checkpoint", milliseconds("checkpoint_seconds")
    yield "restore", milliseconds("restore_seconds")
    yield "of which after launch", milliseconds("load_seconds")
    yield "finish", milliseconds("finish_seconds")
    replayed = f"{parity.steps} steps" if not parity.divergence else "diverged"
    yield "replayed", replayed
