"""A policy that does all that the core allows to searches and their trials, at random: every
invariant holds after every step, and every trial that was asked for comes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ganger.core.events import Accepted
from ganger.core.plan import Plan, Retire, Spawn, Stop
from ganger.core.spec import JobSpec, Kind, OnPreempt, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.lab.simulation import Setup
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from soaking import first
from worlds import Played, cluster, job, play

MOST = 30
"""So many trials are asked for in all."""
RUNS = (Phase.STARTING, Phase.RUNNING)


class Wild:
    """Starts, stops, sets aside, retires, resizes and asks for more, by chance."""

    name = "wild"
    orders = (Spawn,)

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """Inside every grant first; `memory` is how many trials were asked for."""
        rng, asked = random.Random(f"{self.seed}-{view.revision}"), memory or 0
        for parent in view.parents:
            inside = view.inside(parent)
            assert inside is not None
            self._stir(inside, rng)
            if asked < MOST and rng.random() < 0.3:
                number = rng.randint(1, 3)
                asked += number
                view.draft.act(Spawn(parent, self._trial(view.jobs.name(parent), rng), number))
        self._stir(view, rng)
        soon = view.now < 100 * SECOND
        return view.draft.plan(wake=view.now + rng.randint(1, 3) * SECOND if soon else NEVER), asked

    def _stir(self, view: View, rng: random.Random) -> None:
        draft, phases, trials = view.draft, view.at.phase, view.within >= 0
        for row in view.active.tolist():
            if draft.holds(row) is None or phases[row] not in RUNS:
                continue
            chance = rng.random()
            if trials and chance < 0.05:
                draft.retire(row)
            elif trials and chance < 0.15 and phases[row] == Phase.RUNNING:
                draft.pause(row)
            elif chance < 0.2:
                draft.stop(row)
            elif view.at.kind[row] == Kind.TUNE and chance < 0.3:
                draft.stop(row)
                other = view.ledger.find(draft.shape(row), (rng.randint(1, 4),))
                if other is not None:
                    draft.start(row, other)
        for row in [*view.pending.tolist(), *view.paused.tolist()]:
            if trials and rng.random() < 0.1:
                draft.retire(row)
            elif rng.random() < 0.7:
                placement = view.ledger.find(draft.shape(row))
                if placement is not None:
                    draft.start(row, placement)

    def _trial(self, parent: str, rng: random.Random) -> JobSpec:
        return JobSpec(
            name="more",
            parent=parent,
            estimate=rng.randint(1, 20) * SECOND,
            checkpoint=rng.choice((-1, 0, 2 * SECOND)),
            limit=rng.choice((NEVER, 5 * SECOND)),
            on_preempt=rng.choice((OnPreempt.CHECKPOINT, OnPreempt.KILL)),
        )


def run(seed: int) -> Played:
    """A search that may have trials already, and jobs beside it; a node may go and come back."""
    rng = random.Random(seed)
    search = Shape((Role(size=2, least=1, most=4),))
    works = [job("search", lasts=None, kind=Kind.TUNE, shape=search, checkpoint=rng.choice((0, 1)))]
    works += [
        job(f"t{at}", at=rng.randint(0, 9), lasts=rng.randint(1, 20), parent="search")
        for at in range(rng.randint(0, 4))
    ]
    works += [
        job(f"j{at}", at=rng.randint(0, 30), lasts=rng.randint(1, 20), size=rng.randint(1, 3))
        for at in range(4)
    ]
    costs = Costs(checkpoint=rng.choice((0, SECOND)), start=rng.choice((0, SECOND)))
    outages = (Outage(1, 20 * SECOND, 25 * SECOND),) if rng.random() < 0.5 else ()
    setup = Setup(outages=outages, until=300 * SECOND, costs=costs)
    return play(Wild(seed), works, cluster(2, 4), setup)


@pytest.mark.parametrize("seeds", first(2, [range(at, at + 8) for at in range(0, 64, 8)]))
def test_whatever_a_policy_does_to_trials_the_books_agree_and_all_of_them_come(
    seeds: range,
) -> None:
    did: Counter[str] = Counter()
    for seed in seeds:
        played = run(seed)
        jobs, steps = played.kernel.jobs, played.diary.steps
        asked = sum(
            action.n
            for _, plan in steps
            if plan
            for action in plan.actions
            if isinstance(action, Spawn)
        )
        came = [
            event for batch, _ in steps for event in batch.events if isinstance(event, Accepted)
        ]
        assert len(came) == asked
        assert all(event.spawned for event in came)
        assert played.kernel.view.spawning == {}
        assert [jobs.name(event.job) for event in came] == [event.spec.name for event in came]
        for _, plan in steps:
            for action in plan.actions if plan else ():
                did[action.why if isinstance(action, Stop) else type(action).__name__] += 1
                if isinstance(action, Retire):
                    assert jobs.phase[action.job] in (Phase.FINISHED, Phase.CANCELLED)
    assert min(did[each] for each in ("preempted", "parent", "paused", "retired")) > 10
    assert min(did[each] for each in ("Start", "Resize", "Retire", "Spawn")) > 30
