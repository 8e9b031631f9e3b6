"""Small rules of the request plane: what is asked for once too often, or just not."""

from __future__ import annotations

from ganger.mechanisms.serving.on_time import OnTime
from ganger.recipes.registry import make_router
from serving.rig import Asked, affine, lanes, model, play
from serving.test_lanes_fail import played

MODELS = [model("a", affine(5, 1, 8)), model("b", affine(9, 2, 8))]


def test_a_refused_request_was_answered_by_no_model() -> None:
    asked = [Asked(0, within=2), Asked(0, model=1)]
    seen = play(make_router("clockwork"), MODELS, lanes(1), asked)
    assert (seen.outcomes[1], seen.by) == ("answered", [-1, 1])


def test_nothing_is_in_time_where_every_batch_takes_longer_than_there_is() -> None:
    assert set(OnTime.of([[0, 1000], [0, 1200]], slack=999).parts) == {0.0}
    assert OnTime.of([[0, 1000], [0, 1200]], slack=1000).parts[0] > 0.4


def test_a_lane_that_comes_back_has_nothing_to_do_yet() -> None:
    """Three requests each; lane 0 goes with two still waiting, which lane 1 does. When both are
    idle again, the first lane is as good as the other, and precedes it."""
    first = [Asked(0) for _ in range(6)]
    turns = [(1, 0, False), (2, 0, True)]
    seen = played("serve.least-loaded(size=1)", turns, [*first, Asked(200)], 2)
    assert [each.lane for each in seen.batches if each.tasks == (6,)] == [0]


def test_a_batch_that_took_longer_than_its_requests_have_makes_the_next_smaller() -> None:
    """Clipper's size grows by one with each full batch, until six take 11 ms of 10."""
    asked = [Asked(1000, within=10) for _ in range(40)]
    seen = play(make_router("clipper"), MODELS, lanes(1), asked)
    assert [len(each.tasks) for each in seen.batches] == [1, 2, 3, 4, 5, 6, 5, 6, 5, 3]


def test_a_request_for_a_model_that_no_lane_runs_is_dropped_at_once() -> None:
    both = [*MODELS, model("elsewhere", affine(1, 1), type_="tpu")]
    seen = play(make_router("serve.triton"), both, lanes(2), [Asked(3, model=2), Asked(3)])
    assert (seen.outcomes[0], seen.ended[0]) == ("no lane runs its model", 3)
    assert seen.outcomes[1] == "answered"
