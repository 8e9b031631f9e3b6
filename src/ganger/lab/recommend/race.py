"""Which recipe to take: plausible ones race over parts of a trace, and pairs of them are compared.

All recipes see the same parts of the trace, so that they are compared part by part, which takes
out how the parts differ. After each part clear losers drop out. The interval of a comparison is
Student's over parts (over seeds where there is one part): of the logarithm of the ratio of two
figures, or of their difference where the figure may be 0. It does not correct for having chosen the
best of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.lab.api import Task, as_cluster, as_trace, try_all
from ganger.lab.metrics import comparable, confidence, metrics_of
from ganger.lab.recommend.recipe_filter import Objective, objective_of, offers, plausible
from ganger.lab.result import Run
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import needs_of
from ganger.lab.simulating.refusals import refuse_impossible
from ganger.lab.simulating.setup import Setup
from ganger.lab.words import left_out as rows_left_out
from ganger.recipes.registry import find, recipes
from ganger.sim.physics import Physics
from ganger.workloads.measured.profiles import where_it_runs
from ganger.workloads.trace import Trace
from ganger.workloads.transform import head, parts

QUICK_JOBS = 200
"""Jobs of the first, quick heat."""
LEAST_JOBS = 50
"""A part has at least so many, if the trace has."""
CLEARLY = 1.5
"""Who is so many times worse than the best in all that was run so far is out; by difference, who is
worse by the half of that less 1."""
Progress = Callable[[int, int], None]


class Gap(NamedTuple):
    """How much worse one recipe is than another: the ratio of their figures, or the difference,
    with the ends of its 95 % interval (NaN where one run alone was compared)."""

    value: float
    low: float
    high: float
    neutral: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out that they are equal."""
        return self.low > self.neutral or self.high < self.neutral

    @property
    def compared(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low)


@dataclass
class Entrant:
    """A recipe in the race: its figure in each part and seed, and why it dropped out, or ""."""

    recipe: str
    needs: str
    figures: dict[tuple[int, int], float] = field(default_factory=dict)
    dropped: str = ""

    @property
    def mean(self) -> float:
        """Over all that it ran; NaN before that."""
        return float(np.mean(list(self.figures.values()))) if self.figures else math.nan


@dataclass(frozen=True)
class Recommendation:
    """What came of it.

    `entrants`: the pick, those that ran to the end, then the others, each in order of how much
    worse than the pick they are. `baseline`: what the pick is compared with; `over_next`,
    `over_baseline`: how much worse those are; `told_less`: how much worse the baseline is where the
    pick knows only the durations of similar jobs, if it knew more and needs durations; `left_out`:
    recipes not tried, and why.
    """

    objective: Objective
    pick: Entrant
    baseline: Entrant
    next: Entrant | None
    over_next: Gap | None
    over_baseline: Gap | None
    told_less: Gap | None
    entrants: list[Entrant]
    left_out: dict[str, str]
    knows: str
    parts: int
    jobs_per_part: int
    seeds: int
    notes: list[str]

    def gap(self, other: Entrant) -> Gap:
        """How much worse `other` is than the pick."""
        return gap(self.objective, self.pick, other)

    @property
    def better(self) -> bool:
        """Whether the pick is surely better than the baseline."""
        return self.over_baseline is not None and self.over_baseline.sure

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; what is not known is null."""
        return {
            "objective": self.objective.name,
            "metric": self.objective.metric,
            "pick": self.pick.recipe,
            "needs": self.pick.needs,
            "knows": self.knows,
            "baseline": self.baseline.recipe,
            "next": self.next.recipe if self.next else None,
            "over_next": _plain(self.over_next),
            "over_baseline": _plain(self.over_baseline),
            "told_less": _plain(self.told_less),
            "better_than_baseline": self.better,
            "parts": self.parts,
            "jobs_per_part": self.jobs_per_part,
            "seeds": self.seeds,
            "notes": self.notes,
            "recipes": [
                {
                    "recipe": each.recipe,
                    "needs": each.needs,
                    "mean": _number(each.mean),
                    "runs": len(each.figures),
                    "behind_pick": _plain(self.gap(each)),
                    "dropped": each.dropped or None,
                }
                for each in self.entrants
            ],
            "left_out": self.left_out,
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(gap: Gap | None) -> dict[str, Any] | None:
    if gap is None:
        return None
    return {
        "value": _number(gap.value),
        "low": _number(gap.low),
        "high": _number(gap.high),
        "sure": gap.sure,
    }


def gap(objective: Objective, better: Entrant, worse: Entrant) -> Gap:
    """How much worse the second is than the first, over what both ran."""
    cells = sorted(better.figures.keys() & worse.figures.keys())
    ends = [(better.figures[cell], worse.figures[cell]) for cell in cells]
    if objective.ratios:
        gaps = [math.log(max(two, 1e-12) / max(one, 1e-12)) for one, two in ends]
    else:
        gaps = [two - one for one, two in ends]
    number = [part for part, _ in cells]
    single = len(set(number)) == 1
    means = (
        gaps
        if single
        else [
            float(np.mean([each for each, at in zip(gaps, number, strict=True) if at == part]))
            for part in sorted(set(number))
        ]
    )
    middle, half = confidence(means)
    back = math.exp if objective.ratios else float
    return Gap(back(middle), back(middle - half), back(middle + half), back(0.0))


def recommend(
    trace: Trace | str | Path,
    cluster: ClusterSpec | str,
    objective: str = "jct",
    *,
    among: Sequence[str] | None = None,
    current: str | None = None,
    windows: int = 5,
    jobs: int = 500,
    seeds: Sequence[int] = (0,),
    setup: Setup | None = None,
    limit_seconds: float = 120.0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Recommendation:
    """Run the plausible recipes over `windows` parts of up to `jobs` jobs each and say which to
    take.

    `trace`, `cluster`: as for `simulate`. `objective`: jct, fairness, makespan or deadline.
    `among`: recipes to try instead of the plausible ones; `current`: the one in use, else fifo,
    which the pick must surely beat. `setup`: what may be known, and costs. A run of more than
    `limit_seconds` of CPU time drops its recipe. `progress(done, total)` tells how far it is; the
    total falls as recipes drop out. Raises BadInput.
    """
    wanted, loaded, spec = objective_of(objective), as_trace(trace), as_cluster(cluster)
    setup = setup or Setup()
    _check(wanted, loaded, spec, setup, windows, jobs, seeds)
    base = current or "fifo"
    if among is None:
        there = offers(loaded, spec)
        names, left_out = plausible(map(find, recipes()), wanted, there, setup.knows)
    else:
        names, left_out = list(among), {}
    names = list(dict.fromkeys([base, *names]))
    left_out.pop(base, None)
    count = max(1, min(windows, loaded.jobs // LEAST_JOBS))
    race = _Race(
        wanted,
        spec,
        setup,
        tuple(seeds),
        parts(loaded, count, jobs),
        limit_seconds,
        workers,
        [Entrant(name, needs_of(name)) for name in names],
        base,
        progress or (lambda a, b: None),
    )
    race.run()
    found = race.result(left_out)
    rows = rows_left_out(loaded.name, loaded.rows, loaded.left_out)
    found.notes.extend(([rows] if rows else []) + [f"{note}." for note in loaded.notes])
    return found


def _check(
    objective: Objective,
    trace: Trace,
    cluster: ClusterSpec,
    setup: Setup,
    windows: int,
    jobs: int,
    seeds: Sequence[int],
) -> None:
    """Raises BadInput for what cannot be raced."""
    if windows < 1 or jobs < 1 or not seeds:
        raise BadInput(
            f"{windows} windows of {jobs} jobs, {len(seeds)} seeds",
            where="recommend",
            mend="give 1 or more of each",
        )
    nodes = Nodes(cluster.check())
    types = [kind for kind in nodes.type_specs if kind.name]
    refuse_impossible(where_it_runs(trace, trace.profiles, types), nodes)
    physics = Physics(nodes, setup.profiles or trace.profiles, setup.costs)
    make_oracle(trace, physics, setup)  # raises for what nobody can know
    if objective.name == "deadline" and "deadlines" not in offers(trace, cluster):
        raise BadInput(
            "no job has a deadline",
            where=trace.name,
            mend="use another objective, or a trace with deadlines",
        )


@dataclass
class _Race:
    """Heats over the parts; `done` of `total` runs are over."""

    objective: Objective
    cluster: ClusterSpec
    setup: Setup
    seeds: tuple[int, ...]
    parts: list[Trace]
    limit_seconds: float
    workers: int
    entrants: list[Entrant]
    base: str
    tell: Progress
    done: int = 0
    doubts: dict[str, None] = field(default_factory=dict)
    """What recipes need and do not know, in order of appearance."""

    @property
    def running(self) -> list[Entrant]:
        """The recipes that have not dropped out."""
        return [each for each in self.entrants if not each.dropped]

    def run(self) -> None:
        """The quick heat, then one for each part."""
        self._heat(-1, head(self.parts[0], QUICK_JOBS), self.seeds[:1])
        for each in self.entrants:
            each.figures.clear()  # the quick heat is a part of the first part
        for number, part in enumerate(self.parts):
            self._heat(number, part, self.seeds)

    def _heat(self, number: int, part: Trace, seeds: tuple[int, ...]) -> None:
        """Everybody who still runs, on one part; then clear losers drop out."""
        here = [(each, seed) for each in self.running for seed in seeds]
        later = len(self.parts) - number - 1
        total = self.done + len(here) + later * len(self.running) * len(self.seeds)
        tasks = [Task(each.recipe, part, replace(self.setup, seed=seed)) for each, seed in here]
        shares = [0.0] * len(tasks)

        def progress(task: int, share: float) -> None:
            shares[task] = share
            self.tell(self.done + int(sum(shares)), total)

        found = try_all(
            tasks,
            self.cluster,
            limit_seconds=self.limit_seconds,
            workers=self.workers,
            progress=progress,
        )
        self.done += len(tasks)
        ended = []
        for (entrant, seed), run in zip(here, found, strict=True):
            if isinstance(run, str):
                entrant.dropped = run
            else:
                self._note(entrant, number, seed, run)
                self.doubts.update(dict.fromkeys(_doubts(entrant, run, part)))
                ended += [(entrant, seed, run)] if not entrant.dropped else []
        fair = comparable([run for _, _, run in ended])  # on the jobs that finished under all
        for (entrant, seed, _), beside in zip(ended, fair, strict=True):
            if not math.isnan(beside.figures[self.objective.metric]):
                entrant.figures[number, seed] = beside.figures[self.objective.metric]
        self._drop_losers()

    def _note(self, entrant: Entrant, number: int, seed: int, run: Run) -> None:
        """What its run says of it alone, which counts where it drops out."""
        figures = metrics_of(run)
        if figures["jobs_unfinished"]:
            entrant.dropped = f"leaves {figures['jobs_unfinished']:.0f} jobs waiting for ever"
            entrant.figures[number, seed] = figures[self.objective.metric]

    def _drop_losers(self) -> None:
        """Who is surely or clearly worse than the best does not go on; the baseline does."""
        ran = [each for each in self.running if each.figures]
        if not ran:
            return
        best = min(ran, key=lambda each: each.mean)
        for each in ran:
            behind = gap(self.objective, best, each)
            clearly = CLEARLY if self.objective.ratios else (CLEARLY - 1) / 2
            surely = behind.compared and behind.low > behind.neutral and len(each.figures) > 1
            if each.recipe != self.base and (behind.value > clearly or surely):
                each.dropped = "clearly worse" if behind.value > clearly else "surely worse"

    def result(self, left_out: dict[str, str]) -> Recommendation:
        """The best recipe, and how sure that is."""
        baseline = next(each for each in self.entrants if each.recipe == self.base)
        ran = sorted((each for each in self.running if each.figures), key=lambda each: each.mean)
        if not ran:
            reasons = f"{baseline.recipe} {baseline.dropped}" if baseline.dropped else "no figure"
            raise BadInput(
                f"no recipe ran to its end: {reasons}",
                where="recommend",
                mend="give a longer time limit, or smaller windows",
            )
        pick = next(each for each in ran if baseline not in ran or self._worth(each, baseline))
        others = [each for each in ran if each is not pick]
        nearby = others[0] if others else None
        slow = [each for each in self.entrants if each not in ran]
        order = sorted(others, key=lambda e: gap(self.objective, pick, e).value) + sorted(
            slow, key=lambda e: (not e.figures, gap(self.objective, pick, e).value)
        )
        found = Recommendation(
            objective=self.objective,
            pick=pick,
            baseline=baseline,
            next=nearby,
            over_next=gap(self.objective, pick, nearby) if nearby else None,
            over_baseline=gap(self.objective, pick, baseline)
            if baseline in ran and pick is not baseline
            else None,
            told_less=self._told_less(pick, baseline),
            entrants=[pick, *order],
            left_out=left_out,
            knows=self.setup.knows,
            parts=len(self.parts),
            jobs_per_part=max(part.jobs for part in self.parts),
            seeds=len(self.seeds),
            notes=[],
        )
        found.notes.extend([*_notes(found, ran), *self.doubts])
        return found

    def _worth(self, one: Entrant, baseline: Entrant) -> bool:
        """Whether taking it is no leap in the dark: it is what is in use, or surely better."""
        ahead = gap(self.objective, one, baseline)
        return one is baseline or ahead.low > ahead.neutral or not ahead.compared

    def _told_less(self, pick: Entrant, baseline: Entrant) -> Gap | None:
        """The pick again on all parts, told what like jobs took before, against the baseline."""
        if pick is baseline or pick.needs != "durations" or baseline.dropped:
            return None
        if self.setup.knows not in ("truth", "noisy"):
            return None
        again = _Race(
            self.objective,
            self.cluster,
            replace(self.setup, knows="rolling"),
            self.seeds,
            self.parts,
            self.limit_seconds,
            self.workers,
            [Entrant(pick.recipe, pick.needs)],
            pick.recipe,
            lambda done, total: None,
        )
        for number, part in enumerate(again.parts):
            again._heat(number, part, again.seeds)
        less = again.entrants[0]
        return None if less.dropped else gap(self.objective, less, baseline)


def _notes(found: Recommendation, ran: list[Entrant]) -> list[str]:
    """What a reader must know before trusting the pick."""
    notes: list[str] = []
    pick, single = found.pick, found.over_next is not None and not found.over_next.compared
    if single:
        notes.append("One part and one seed: noise cannot be measured. Give more jobs or seeds.")
    if found.pick is found.baseline and len(ran) > 1 and not single:
        notes.append(f"No recipe is surely better than {pick.recipe}: the rest is within noise.")
    tied = [each for each in ran if each is not pick and not found.gap(each).sure and not single]
    if tied and pick is not found.baseline:
        names = ", ".join(each.recipe for each in tied)
        notes.append(f"Within noise of {pick.recipe}: {names}.")
    easier = [each.recipe for each in tied if _knowledge(each) < _knowledge(pick)]
    if easier and pick is not found.baseline:
        notes.append(f"Of these {', '.join(easier)} need less information.")
    if found.told_less is not None and not found.told_less.sure:
        notes.append(
            f"With only the durations of similar jobs, {pick.recipe} is not "
            "surely better than"
            f" {found.baseline.recipe}."
        )
    return notes


def _doubts(entrant: Entrant, run: Run, part: Trace) -> list[str]:
    """What a run says of its recipe, and not of the trace."""
    return [f"{entrant.recipe}: {note}." for note in run.notes if note not in part.notes]


def _knowledge(entrant: Entrant) -> frozenset[str]:
    words = (word.strip() for word in entrant.needs.split(","))
    return frozenset(words) - {"nothing"}
