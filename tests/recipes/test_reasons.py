"""What recipes say of jobs that wait: each reason names a class that exists, has numbers, and says
in words what could change it; without one of these changes no job of which it was said starts."""

from __future__ import annotations

import contextlib
import importlib
import math
import pkgutil
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

import ganger.mechanisms
import ganger.recipes
from ganger.core.errors import BadInput
from ganger.core.events import ANYTHING, Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Reason, Start
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import with_inner
from ganger.lab.simulation import Setup
from ganger.mechanisms.common.waiting import changes_in, reason_behind
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from mechanisms.test_decided_planes import beside
from recipes.days import DAYS, Day
from recipes.test_decided import SMALL, TURNING
from worlds import cluster, job, trace_of

UNITS = (
    "_bound",
    "_gpus",
    "_jobs",
    "_trials",
    "_epochs",
    "_chances",
    "_s",
    "_part",
    "_usd",
    "may_pass",
)


def classes() -> set[str]:
    """The names of all classes of mechanisms and recipes."""
    found = set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # a few modules have moved
        for room in (ganger.mechanisms, ganger.recipes):
            for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
                held = vars(importlib.import_module(module.name)).values()
                found |= {each.__name__ for each in held if isinstance(each, type)}
    return found


CLASSES = classes()


class Witness:
    """A journal that holds every start against what was said of the job before."""

    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.changes = 0
        self.said = list[Reason]()
        self.waiting = set[int]()
        self.seen = set[tuple[str, str]]()
        self.every = list[Reason]()

    def watch(self, kernel: Kernel) -> None:
        """Note each change that a handler reports."""
        self.kernel = kernel
        for kind, handle in list(kernel._on.items()):

            def noted(event: Any, handle: Any = handle) -> int:
                change: int = handle(event)
                self.changes |= change
                return change

            kernel._on[kind] = noted

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Judge one decision."""
        kernel = self.kernel
        if plan is None or kernel is None or plan.basis != revision:
            return
        for action in plan.actions:
            if isinstance(action, Start) and action.job in self.waiting:
                within = int(kernel.view.at.within[action.job])
                own = (one for one in self.said if matches(kernel, one, action.job))
                one = next(own, None) or reason_behind(self.said, within)
                if one is not None:
                    assert self.changes & one.until, (batch, action, one, self.changes)
        for one in plan.reasons:
            self.judge(one)
        self.said, self.changes = plan.reasons, 0
        self.every += plan.reasons
        phase = kernel.jobs.phase[: kernel.jobs.n]
        self.waiting = {row for row, each in enumerate(phase.tolist()) if each == Phase.PENDING}
        alone = [row for row in self.waiting if kernel.view.at.within[row] < 0]
        assert plan.reasons or not alone, (batch, alone)

    def judge(self, one: Reason) -> None:
        """Whether it is what a reason should be."""
        assert one.by in CLASSES, one
        assert 0 < one.until <= ANYTHING, one
        assert len(changes_in(one.until)) == one.until.bit_count(), one
        assert one.evidence, one
        for key, value in one.evidence.items():
            assert key.endswith(UNITS), one
            assert isinstance(value, float), one
            assert math.isfinite(value), one
        self.seen.add((one.code, one.by))


def matches(kernel: Kernel, reason: Reason, job: int) -> bool:
    """Whether the reason was said of the job."""
    at = kernel.view.at
    return (
        reason.shape in (-1, at.shape[job])
        and reason.tenant in (-1, at.tenant[job])
        and reason.within == at.within[job]
    )


def witness(recipe: str, world: Day, inner: str = "") -> Witness:
    """A day under a recipe, and in grants under another one."""
    seen = Witness()
    trace, nodes = trace_of(world.works), Nodes(world.cluster)
    physics = Physics(nodes, world.setup.profiles, world.setup.costs)
    policy = registry.make(recipe)
    kernel = Kernel(
        nodes,
        trace.declared,
        with_inner(policy, inner) if inner else policy,
        journal=seen,
        seed=world.setup.seed,
        oracle=make_oracle(trace, physics, world.setup),
    )
    seen.watch(kernel)
    engine: Any = Simulator(trace.declared, trace.duration, physics, world.setup.outages)
    kernel.run(engine, world.setup.until)
    return seen


RECIPES = [
    *(SMALL.get(name, name) for name in registry.CATALOGUE),
    "backfill(interval=5m)",
    "fifo(walk=skip)",
    "srtf(walk=easy)",
    "srtf(min_run=10m)",
    "drf(walk=strict)",
    "delay-scheduling(node_skips=2,rack_skips=1)",
    "placement(within=island,walk=skip)",
    "gavel(whole_steps=yes,barrier=yes,patience=2m,counters=yes,by_type=yes)",
]
"""Every recipe, and what only some parameters bring about."""


OFTEN = ("gangs", "crowd")
"""The days of `make test`: gangs in racks with nodes that fail; elastic jobs of two types, cores,
labels, trials. `make soak` has all."""


def reasons_of(recipe: str, days: Iterable[str]) -> set[tuple[str, str]]:
    """What was said on these days, and by which class."""
    seen = set[tuple[str, str]]()
    for day in days:
        if (recipe, day) in TURNING:
            continue
        with contextlib.suppress(BadInput):  # no recipe is for every cluster
            seen |= witness(recipe, DAYS[day]()).seen
    return seen


@pytest.mark.parametrize("recipe", RECIPES)
def test_reasons_name_a_class_with_numbers_and_changes_that_matter(recipe: str) -> None:
    assert reasons_of(recipe, OFTEN)


@pytest.mark.soak
@pytest.mark.parametrize("recipe", RECIPES)
def test_reasons_name_a_class_on_every_day(recipe: str) -> None:
    assert reasons_of(recipe, DAYS)


def test_who_waits_in_a_grant_is_told_of_that_grant() -> None:
    works = [
        job("search", size=2, lasts=None, kind=Kind.TUNE),
        job("other", size=2),
        *(job(f"trial {i}", i, 5, parent="search") for i in range(4)),
    ]
    found = witness("fifo", Day(cluster(1, 2), works, Setup(until=100 * SECOND)), inner="srtf")
    assert {reason.within for reason in found.every} == {-1, 0}


PLAIN = {"tune.pbt": "tune.pbt(every=1000)", "fluid": "fluid(packed=1)"}
"""What simulates where profiles state neither copies of trials nor what sharing a GPU costs."""


@pytest.mark.parametrize("inner", sorted(registry.PLANES["tuning"]))
def test_reasons_of_trials_and_replicas_are_like_those_of_jobs(inner: str) -> None:
    seen = Witness()

    def begin(kernel: Kernel) -> Witness:
        seen.watch(kernel)
        return seen

    beside("fifo", PLAIN.get(inner, inner), "scale.threshold", begin)
    assert ("Resources", "Scaling") in seen.seen
    assert {by for _, by in seen.seen} - {"QueuePolicy", "Scaling"}


def test_an_allocator_says_how_many_it_chose_and_on_what() -> None:
    works = [job(f"j{at}", size=2) for at in range(3)]
    day = Day(cluster(1, 5), works, Setup(until=100 * SECOND))
    assert witness("afs", day).every[0].evidence == {
        "competing_jobs": 3.0,
        "chosen_jobs": 2.0,
        "wanted_gpus": 4.0,
    }


def test_turns_say_how_long_they_are() -> None:
    works = [job(f"j{at}", lasts=90) for at in range(3)]
    day = Day(cluster(1, 1), works, Setup(until=100 * SECOND))
    first, second = witness("gandiva(quantum=40s,pack=no)", day).every[:2]
    assert first.evidence == {"turn_s": 40.0}  # the job of the first turn has not begun to compute
    assert second.evidence == {"turn_s": 40.0, "decides_at_s": 40.0}
