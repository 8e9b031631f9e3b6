"""BentoML's batching, by hand; `make peers` compares it with the package."""

from __future__ import annotations

import pytest

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import World
from ganger.core.units import SECOND
from ganger.mechanisms.serving.queues import Fifo
from ganger.recipes.registry import make_router
from ganger.recipes.serving.cork import Cork, Fit
from serving.rig import MS, Asked, affine, columns, lanes, model, play, table


def test_the_line_is_fitted_to_the_third_batch_on_and_again_after_five_seconds() -> None:
    """Batches of 1 and 3 that take 10 and 20 ms: 5 ms each and 5 ms for the batch."""
    fit = Fit(1.0, 1.0)
    for took in (9.0, 9.0):
        fit.note(1, took, 9.0, 0)
    assert (fit.each, fit.base, fit.wait) == (1.0, 1.0, 0.0)
    fit.note(1, 0.010, 0.04, SECOND)
    assert (fit.each, fit.base) == pytest.approx((0.005, 0.005))  # the shortest of many lines
    fit.note(3, 0.020, 0.02, 6 * SECOND - 1)
    assert fit.wait == 0.04
    fit.note(3, 0.020, 0.00, 6 * SECOND)
    assert (fit.each, fit.base, fit.wait) == pytest.approx((0.005, 0.005, 0.02))


def test_only_the_last_fifty_batches_count() -> None:
    fit = Fit(1.0, 1.0)
    for at in range(60):
        fit.note(1 + at % 2, 1.0 if at < 10 else 0.1, 0.0, at)
    fit.refresh()
    assert fit.each + fit.base == pytest.approx(0.1, abs=1e-5)


def test_another_request_is_waited_for_while_that_costs_less_than_the_mean_wait() -> None:
    """n (w + 1 ms + 5 ms) against 0.95 of 40 ms: 38."""
    fit = Fit(0.005, 0.005, 0.040)
    assert [fit.waits(2, last) for last in (0.0, 0.0129, 0.0131)] == [True, True, False]
    assert [fit.waits(count, 0.001) for count in (1, 5, 6)] == [True, True, False]


def test_the_head_is_given_up_that_all_who_wait_would_make_late() -> None:
    """5 n + 5 ms of 100: with ten, 45 ms of waiting are too many; alone, the whole 100."""
    fit = Fit(0.005, 0.005, 0.0)
    assert [fit.late(10, first, 0.1) for first in (0.044, 0.046)] == [False, True]
    assert [fit.late(1, first, 0.1) for first in (0.099, 0.1)] == [False, True]


def test_the_first_batches_go_at_once_and_later_ones_wait_for_more() -> None:
    """A request each 7 ms, 10 + n ms a batch: its batches are larger than those of a lane that
    sends what waits, though it is idle at times."""
    asked = [Asked(7.0 * at) for at in range(1000)]
    models = [model("m", affine(10, 1, 64))]
    cork, plain = (
        play(make_router(recipe), models, lanes(1), asked)
        for recipe in ("serve.bentoml", "serve.round-robin(size=100)")
    )
    assert cork.batches[:11] == plain.batches[:11]
    assert len(cork.batches) < len(plain.batches)
    idle = [
        after.began - before.ended
        for before, after in zip(cork.batches, cork.batches[1:], strict=False)
    ]
    assert max(idle) > 0
    assert all(gap == round(gap) for gap in idle)  # it looks each millisecond


def test_what_cannot_be_in_time_is_given_up_once_the_line_is_known() -> None:
    asked = [Asked(20.0 * at) for at in range(12)] + [Asked(300.0)] * 30
    seen = play(
        make_router("serve.bentoml(latency=30ms,size=8)"),
        [model("m", affine(5, 2, 8))],
        lanes(1),
        asked,
    )
    assert set(seen.outcomes[:12]) == {"answered"}
    lost = [
        end for end, outcome in zip(seen.ended, seen.outcomes, strict=True) if outcome != "answered"
    ]
    assert lost
    assert len(lost) < 30


def test_lanes_and_models_have_queues_and_lines_of_their_own() -> None:
    models = [model("a", table(5, 6)), model("b", table(7, 8))]
    asked = [Asked(0.0, at % 2) for at in range(8)]
    seen = play(make_router("serve.bentoml(size=2)"), models, lanes(2), asked)
    assert sorted((each.lane, each.model, each.tasks) for each in seen.batches) == [
        (0, 0, (0, 4)),
        (0, 1, (1, 5)),
        (1, 0, (2, 6)),
        (1, 1, (3, 7)),
    ]


def test_batches_of_the_training_count_as_if_they_had_not_waited() -> None:
    """Each takes 10 ms and has waited for 20. The line is fitted again by the last three of the
    eleven, though no five seconds have passed; the twelfth counts as it was."""
    world = World([model("m", table(10))], lanes(1))
    world.requests.add(columns([Asked(0.0)]))
    cork = Cork(8, SECOND)
    memory = cork.begin(world)
    part = Part(0, [0], 1)
    world.now = 30 * MS
    lines = []
    for at in range(12):
        took = (10 if at < 10 else 40) * MS
        world.now = took + 20 * MS
        cork.learn(world, memory, part, world.lanes[0], took)
        lines.append(round(memory[0, 0].each + memory[0, 0].base, 4))
    assert lines[2:10] == [0.01] * 8
    assert 0.01 < lines[10] < 0.04
    assert memory[0, 0].wait == 0.0
    memory[0, 0].refresh()
    assert memory[0, 0].wait == pytest.approx(0.02 / 10)


def test_it_looks_again_in_a_millisecond_and_not_when_a_request_comes() -> None:
    world = World([model("m", table(10, 11))], lanes(1))
    world.requests.add(columns([Asked(0.0)]))
    world.now = MS
    queue = Fifo(0, 0)
    queue.push(world, range(1))
    cork = Cork(8, SECOND)
    trained = {(0, 0): Fit(0.005, 0.005, 0.040, sent=11)}
    form = cork.form(world, trained, queue, world.lanes[0])
    assert (form.size, form.until) == (0, 2 * MS)
    assert form.missing > 1000
    assert cork.form(world, {}, queue, world.lanes[0]).size == 1  # nothing was learned yet
