"""The checks by hand of the systems' cards."""

from __future__ import annotations

import pytest

from ganger.core.serving.world import Lane, Store
from ganger.recipes.registry import make_router
from serving.rig import Asked, affine, lanes, model, placed, play, table


def test_clippers_sizes_are_a_saw_tooth() -> None:
    """10 + 2b ms and 50 ms: sizes grow to 21, whose 52 ms are too many, and go on from 18."""
    asked = [Asked(0, within=50)] * 600
    seen = play(make_router("clipper"), [model("m", affine(10, 2, 64))], lanes(1), asked)
    sizes = [len(batch.tasks) for batch in seen.batches]
    assert sizes[:26] == [*range(1, 22), 18, 19, 20, 21, 18]


def test_nanily_takes_what_the_tightest_request_can_still_wait_for() -> None:
    """60 ms of slack, a lane that is free in 10 ms, 10 + 5b ms: a batch of 8 takes all of it."""
    first, rest = Asked(0, within=1000), [Asked(5, within=60)] * 12
    models = [model("first", table(15)), model("m", affine(10, 5))]
    asked = [first, *(one._replace(model=1) for one in rest)]
    seen = play(make_router("nanily"), models, lanes(1), asked)
    assert [(len(each.tasks), each.began, each.ended) for each in seen.batches[:2]] == [
        (1, 0, 15),
        (8, 15, 65),
    ]
    assert seen.outcomes.count("it could not be answered in time") == 4


A = model("a", table(5, 8, 10, 12))
B = model("b", table(9, 18, 27, 36))


def test_clockwork_tries_the_largest_batch_first_and_takes_the_next_that_there_are_enough_for() -> (
    None
):
    """Three requests: four are too few, two go at 0, one at 8."""
    seen = play(make_router("clockwork(margin=0)"), [A, B], lanes(1), [Asked(0, 0, 25)] * 3)
    assert [(len(each.tasks), each.began, each.ended) for each in seen.batches] == [
        (2, 0, 8),
        (1, 8, 13),
    ]


def test_clockwork_refuses_at_once_what_cannot_be_in_time() -> None:
    """The lane is busy until 8, and 9 ms more are past the deadline at 12."""
    asked = [*[Asked(0, 0, 25)] * 3, Asked(1, 1, 11)]
    seen = play(make_router("clockwork(margin=0)"), [A, B], lanes(1), asked)
    assert seen.outcomes[3] == "it could not be answered in time"
    assert seen.ended[3] == 1
    assert all(each.model == 0 for each in seen.batches)


def test_clockwork_answers_all_that_it_admits_in_time_where_nothing_takes_longer_than_planned() -> (
    None
):
    asked = [Asked(0.9 * at, at % 2, 10 + at % 7) for at in range(400)]
    seen = play(make_router("clockwork(margin=0)"), [A, B], lanes(2), asked)
    for one, outcome, ended in zip(asked, seen.outcomes, seen.ended, strict=True):
        assert outcome != "answered" or ended <= one.at + one.within
    assert 0 < seen.outcomes.count("answered") < 400


def test_clockworks_estimate_is_the_largest_of_the_last_ten() -> None:
    """It plans with what it measured, once it has, and forgets what is ten batches ago."""
    slow = table(5, p99=4.0)
    asked = [Asked(100.0 * at, 0, 19) for at in range(3)]
    seen = play(make_router("clockwork(margin=0)"), [model("m", slow)], lanes(1), asked)
    assert seen.outcomes == ["it could not be answered in time"] * 3  # the profile says 20 ms
    asked = [Asked(0, 0, 21), *(Asked(100.0 + at, 0, 6) for at in range(0, 50, 10))]
    seen = play(make_router("clockwork(margin=0)"), [model("m", slow)], lanes(1), asked)
    assert seen.outcomes == ["answered"] * 6  # the first was measured: 5 ms


@pytest.mark.parametrize(
    ("recipe", "large", "small"),
    [
        ("serve.no-batch", 1, 17),
        ("dybatch", 68 / 64, 3),
        ("dybatch(slice=4)", 68 / 64, 2),
        ("dybatch(slice=64)", 1, 17),
    ],
)
def test_dybatchs_slices_make_the_slow_down_alike(recipe: str, large: float, small: float) -> None:
    """64 inputs and 4, a millisecond each, the large request first."""
    asked = [Asked(0, items=64), Asked(0, items=4)]
    seen = play(make_router(recipe), [model("m", affine(0, 1, 64))], lanes(1), asked)
    assert seen.ended == [large * 64, small * 4]


def test_dybatch_takes_requests_larger_than_a_batch() -> None:
    seen = play(
        make_router("dybatch"), [model("m", affine(0, 1, 5))], lanes(2), [Asked(0, items=12)]
    )
    assert [(batch.began, batch.lane) for batch in seen.batches] == [(0, 0), (5, 0), (10, 0)]
    assert seen.ended == [12]


def test_clockwork_forgets_a_measurement_after_ten_others() -> None:
    """One batch took 50 ms; until ten others have been measured, 20 ms are not enough."""
    asked = [Asked(100.0 * at, 0, 60) for at in range(11)]
    late = [Asked(950.5, 0, 20), Asked(1050.5, 0, 20)]
    seen = play(
        make_router("clockwork(margin=0)"),
        [model("m", table(5))],
        lanes(1),
        sorted([*asked, *late]),
        takes=[50, *[5] * 11],
    )
    assert seen.outcomes[10] == "it could not be answered in time"
    assert seen.outcomes[12] == "answered"


def test_clockwork_admits_what_any_lane_can_answer_in_time() -> None:
    asked = [Asked(0, 0, 100), Asked(0, 0, 100), Asked(0.5, 1, 12)]
    models = [model("long", table(50)), model("short", table(9))]
    seen = play(make_router("clockwork(margin=0)"), models, lanes(3), asked)
    assert seen.outcomes == ["answered"] * 3
    assert seen.ended == [50, 50, 9.5]


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1] * 8), (2, [2] * 4), (4, [4, 4]), (7, [4, 4]), (8, [8])]
)
def test_clockworks_sizes_are_powers_of_two_up_to_the_largest(
    largest: int, sizes: list[int]
) -> None:
    router = make_router(f"clockwork(margin=0,largest={largest})")
    seen = play(router, [model("m", affine(1, 0.5))], lanes(1), [Asked(0, 0, 1000)] * 8)
    assert [len(batch.tasks) for batch in seen.batches] == sizes


def test_clockwork_has_no_batch_that_takes_too_long() -> None:
    router = make_router("clockwork(margin=0,longest=5ms)")
    seen = play(router, [model("m", affine(1, 1))], lanes(1), [Asked(0, 0, 1000)] * 8)
    assert [len(batch.tasks) for batch in seen.batches] == [4, 4]


def test_clockwork_loads_what_is_served_least_and_evicts_what_was_used_longest_ago() -> None:
    """Room for two of three models. The third is loaded, in place of the first."""
    models = [model(name, table(5), bytes_=10, load=10) for name in "abc"]
    asked = [Asked(0, 0, 500), Asked(1, 1, 500), *[Asked(100, 2, 500)] * 2, Asked(101, 0, 500),
             Asked(300, 1, 500)]  # fmt: skip
    seen = play(make_router("clockwork"), models, placed(1), asked, stores=[Store(0, 20)])
    assert seen.loads == [(0, 0, 10), (1, 10, 20), (2, 100, 110), (0, 110, 120), (1, 300, 310)]
    assert seen.outcomes == ["answered"] * 6


def test_a_busy_model_is_loaded_on_a_second_device() -> None:
    """What one device cannot serve within the window is demand that is not served."""
    models = [model("a", table(20), bytes_=10, load=5)]
    few, many = (
        play(
            make_router("clockwork"),
            models,
            placed(2),
            [Asked(0, 0, 400)] * count,
            stores=[Store(0, 10), Store(1, 10)],
        )
        for count in (2, 30)
    )
    assert len(few.loads) == 1
    assert len(many.loads) == 2
    assert many.outcomes == ["answered"] * 30


@pytest.mark.parametrize(("timeout", "ends"), [(20, 32), (3, 15)])
def test_a_fixed_batch_waits_until_it_is_full_or_the_oldest_has_waited(
    timeout: int, ends: float
) -> None:
    router = make_router(f"serve.fixed-batch(size=4,timeout={timeout}ms)")
    seen = play(router, [model("m", affine(10, 2))], lanes(1), [Asked(0)])
    assert seen.ended == [ends]
    asked = [Asked(0), Asked(1), Asked(2), Asked(2.5)]
    full = play(router, [model("m", affine(10, 2))], lanes(1), asked)
    assert full.batches[0].began == 2.5
    assert len(full.batches[0].tasks) == 4


def test_triton_sends_a_preferred_size_at_once_and_lets_the_rest_wait() -> None:
    router = make_router("serve.triton(size=8,delay=20ms,preferred=2;4)")
    asked = [Asked(at / 10) for at in range(5)]
    seen = play(router, [model("m", affine(10, 2))], lanes(1), asked)
    assert [(each.began, len(each.tasks)) for each in seen.batches] == [
        (0.1, 2),
        (14.1, 2),
        (28.1, 1),
    ]
    seen = play(router, [model("m", affine(10, 2))], lanes(1), asked[:1])
    assert seen.batches[0].began == 20


def test_a_full_queue_refuses_the_next() -> None:
    router = make_router("serve.triton(size=1,longest=2)")
    seen = play(router, [model("m", table(10))], lanes(1), [Asked(at / 10) for at in range(5)])
    assert seen.outcomes == ["answered"] * 3 + ["the queue was full"] * 2


def test_lanes_take_turns_or_the_least_loaded_is_chosen() -> None:
    asked = [Asked(0), Asked(0.1), Asked(0.2, 1), Asked(0.3), Asked(0.4)]
    models = [model("m", table(10)), model("long", table(100))]
    turns = play(make_router("serve.round-robin"), models, lanes(2), asked)
    assert {batch.tasks[0]: batch.lane for batch in turns.batches} == {0: 0, 1: 1, 2: 0, 3: 0, 4: 1}
    least = play(make_router("serve.least-loaded"), models, lanes(2), asked)
    assert {batch.tasks[0]: batch.lane for batch in least.batches} == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_turns_go_round_all_lanes_and_of_two_the_less_loaded_is_chosen(count: int) -> None:
    asked = [Asked(at / 10) for at in range(2 * count)]
    turns = play(make_router("serve.round-robin"), [model("m", table(10))], lanes(count), asked)
    assert {batch.tasks[0]: batch.lane for batch in turns.batches} == {
        at: at % count for at in range(2 * count)
    }
    two = play(make_router("serve.power-of-two"), [model("m", table(10))], lanes(count), asked)
    if count < 3:  # the two that are drawn are all that there are
        assert [batch.lane for batch in two.batches] == [*range(count)] * 2


def test_a_lane_that_is_done_counts_as_empty() -> None:
    """Three go to lanes 0, 1 and 0; when all are over, lane 0 is the first of two that are free."""
    asked = [Asked(0), Asked(0), Asked(0), Asked(100)]
    seen = play(make_router("serve.least-loaded"), [model("m", table(10))], lanes(2), asked)
    assert [batch.lane for batch in seen.batches] == [0, 1, 0, 0]


def test_every_model_has_lanes_for_itself() -> None:
    asked = [Asked(at / 10, at % 2) for at in range(12)]
    models = [model("a", table(10)), model("b", table(10))]
    seen = play(make_router("serve.dedicated"), models, lanes(3), asked)
    assert {(batch.lane, batch.model) for batch in seen.batches} == {(0, 0), (2, 0), (1, 1)}
    assert [batch.began for batch in seen.batches[:3]] == [0, 0.1, 0.2]


def workers(devices: int = 1) -> list[Lane]:
    """Four lanes on each device."""
    return [Lane(at, "gpu", device=at // 4) for at in range(4 * devices)]


def test_ebird_covers_thirteen_requests_with_batches_of_eight_four_and_one() -> None:
    """All at the first tick after they came; the worker of two stays idle."""
    models = [model("m", affine(9, 1), beside=[1.5, 2.0, 2.5])]
    seen = play(make_router("ebird"), models, workers(), [Asked(0.3)] * 13)
    assert [(batch.lane, len(batch.tasks), batch.began) for batch in seen.batches] == [
        (0, 8, 1),
        (1, 4, 1),
        (3, 1, 1),
    ]
    assert [batch.ended for batch in seen.batches] == [1 + 17, 1 + 13 * 1.5, 1 + 10 * 2]


def test_no_more_run_on_a_device_than_fill_it() -> None:
    models = [model("m", affine(9, 1), beside=[1.0])]
    seen = play(make_router("ebird(most=10)"), models, workers(), [Asked(0)] * 13)
    assert [(len(batch.tasks), batch.began) for batch in seen.batches] == [
        (8, 0),
        (2, 0),
        (2, 11),
        (1, 17),
    ]
    two = play(make_router("ebird(most=10)"), models, workers(2), [Asked(0)] * 13)
    assert [(batch.lane, len(batch.tasks)) for batch in two.batches] == [(0, 8), (3, 1), (5, 4)]


def test_ebird_is_quicker_than_one_size_of_batch_when_a_burst_is_just_above_it() -> None:
    """Bursts of nine, again and again: the ninth does not wait for another round or a timeout."""
    models = [model("m", affine(4, 2), beside=[1.2, 1.4, 1.6])]
    asked = [Asked(60.0 * at) for at in range(50) for _ in range(9)]
    late = {}
    for recipe in ("ebird", "serve.fixed-batch(size=8)", "serve.triton(size=8)"):
        on = workers() if recipe == "ebird" else lanes(1)
        seen = play(make_router(recipe), models, on, asked)
        took = sorted(ended - one.at for ended, one in zip(seen.ended, asked, strict=True))
        late[recipe] = sum(took), took[-1]
    assert late["ebird"] < min(late["serve.fixed-batch(size=8)"], late["serve.triton(size=8)"])
    assert late["ebird"][1] == 20
    assert late["serve.triton(size=8)"][1] == late["serve.fixed-batch(size=8)"][1] == 26


def test_the_smallest_worker_of_ebird_takes_what_there_is() -> None:
    models = [model("m", affine(9, 1), beside=[1.0])]
    seen = play(make_router("ebird(sizes=2;4)"), models, workers()[:2], [Asked(0)] * 5)
    assert [(batch.lane, len(batch.tasks), batch.began) for batch in seen.batches] == [
        (0, 4, 0),
        (1, 1, 0),
    ]
