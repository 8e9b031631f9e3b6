"""Rifling: the hand check of its card, and what sets it apart from the queue that it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Start
from ganger.core.profiles import Profile, Profiles, Steps
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.recipes import registry
from ganger.recipes.training.learned.q_table import QTable, group_of, groups_of
from ganger.recipes.training.learned.rifling import SPLIT, WAIT, Lessons
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.sim.truth import Truth
from worlds import Work, cluster, job, trace_of

UNIT = 600
MODELS = {
    "computes": Profile(steps=Steps(1.0, 0.01, (1e9, 1e9, 1.0, 1.0))),
    "talks": Profile(steps=Steps(1.0, 2.0, (1e9, 1e9, 1.0, 1.0))),
}
"""Split over two nodes the first one keeps 0.99 of its speed, the other a third."""


class Ran:
    """Cycles of ten units of ten minutes on two nodes of two GPUs: four jobs fill them, of which
    one on each node ends after a unit; then a job of two GPUs comes, which could start split now or
    close together a unit later."""

    def __init__(self, recipe: str, cycles: int, models: dict[str, Profile] = MODELS) -> None:
        works, self.pairs = list[Work](), list[tuple[int, str]]()
        for cycle in range(cycles):
            at = 10 * UNIT * cycle
            lasts = (1, 2, 1, 2)
            works += [job(f"f{cycle}{i}", at, n * UNIT, 1) for i, n in enumerate(lasts)]
            model = ("computes", "talks")[cycle % 2]
            self.pairs.append((len(works), model))
            works.append(job(f"p{cycle}", at + UNIT + 1, UNIT, 2, model=model))
        trace, nodes = trace_of(works), Nodes(cluster(2, 2))
        physics = Physics(nodes, Profiles(models))
        self.lessons = Lessons(QTable([]))
        self.waits: dict[int, float] = {}
        self._submitted = trace.declared.submitted
        truth = Truth(trace.duration, physics)
        policy = registry.make(recipe)
        kernel = Kernel(nodes, trace.declared, policy, oracle=truth, journal=self, validate=True)
        kernel.run(Simulator(trace.declared, trace.duration, physics))

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """When jobs start, and what is remembered last."""
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start):
                self.waits[action.job] = (batch.at - int(self._submitted[action.job])) / SECOND
        if isinstance(memory, Lessons):
            self.lessons = memory


def test_after_training_it_splits_the_jobs_that_compute_and_makes_those_that_talk_wait() -> None:
    """A wait of one unit is worth 0.9. A split job that computes runs at 0.99, less 0.05 for its
    second node: 0.94. One that talks runs at a third, less as much."""
    ran = Ran("rifling(regroup=1h)", 40)
    last = {model: ran.waits[number] for number, model in ran.pairs[-8:]}
    assert last == {"computes": 0.0, "talks": pytest.approx(UNIT - 1, abs=1)}
    table = ran.lessons.table
    decided = [state for state, tried in table.trials.items() if sum(tried[:2]) >= 15]
    values = {state[0]: [table.value(state, each) for each in (SPLIT, WAIT)] for state in decided}
    assert values["1"][SPLIT] == pytest.approx(0.94, abs=0.01), "group 1 keeps most of its speed"
    assert values["0"][WAIT] == pytest.approx(0.9, abs=0.02)
    assert values["0"][SPLIT] < 0.4


def test_fifo_splits_both_and_rifling_that_sees_no_difference_learns_none() -> None:
    """Its neighbours: the queue without a table, and the same table where splitting costs
    nothing."""
    assert set(Ran("fifo", 8).waits.values()) == {0.0}
    alike = dict.fromkeys(MODELS, MODELS["computes"])
    ran = Ran("rifling(epsilon=0)", 12, alike)
    assert [ran.waits[number] for number, _ in ran.pairs] == [0.0] * 12


def test_what_was_seen_counts_by_how_often() -> None:
    """The first outcome is the value, two of them give their mean, later ones a tenth each."""
    table = QTable([1.0, 0.5])
    assert table.best("s", (0, 1)) == 0
    table.learn("s", 0, 0.2, 0.1)
    assert table.value("s", 0) == pytest.approx(0.2)
    assert table.best("s", (0, 1)) == 1
    table.learn("s", 0, 0.4, 0.1)
    assert table.value("s", 0) == pytest.approx(0.3)
    for _ in range(20):
        table.learn("s", 0, 0.3, 0.1)
    table.learn("s", 0, 1.3, 0.1)
    assert table.value("s", 0) == pytest.approx(0.4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 4))
def test_groups_are_of_the_nearest_centre(features: list[float], groups: int) -> None:
    """Centres are ascending, as many as wanted or as there are numbers, each the mean of what is
    nearest to it."""
    centres = groups_of(features, groups)
    assert centres == sorted(centres)
    assert len(centres) == min(groups, len(set(features)))
    own = [
        sorted({x for x in features if group_of(x, centres) == at}) for at in range(len(centres))
    ]
    for centre, members in zip(centres, own, strict=True):
        assert not members or centre == pytest.approx(sum(members) / len(members))
