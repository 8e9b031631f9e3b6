"""Which model of a family answers: drawn, voted, expected best; or nobody, where it is known."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Known, World
from ganger.mechanisms.serving.choice import Exp4, Weights
from ganger.mechanisms.serving.on_time import OnTime
from ganger.recipes.registry import make_router
from serving.rig import MS, Asked, OneByOne, Seen, affine, lanes, model, play, table
from soaking import examples

TRIO = [model("a", table(2)), model("b", table(2)), model("c", table(2))]
FAMILY = [("abc", (0, 1, 2))]
ABC = 3
"""The code of the family."""


def recorded(count: int, *rates: float, seed: int = 5) -> list[list[int]]:
    """What models say of inputs whose class is 1: right (1) so often, else 0."""
    rng = np.random.default_rng(seed)
    return [(rng.random(count) < rate).astype(int).tolist() for rate in rates]


def errors(seen: Seen, says: list[list[int]]) -> int:
    """Of requests whose class is 1, in order of their input."""
    said = [
        each if each >= 0 else says[by][at]
        for at, (by, each) in enumerate(zip(seen.by, seen.said, strict=True))
    ]
    return sum(each != 1 for each in said)


COUNT = 3000


@pytest.fixture(scope="module")
def corrupted() -> list[list[int]]:
    """The best of three models goes bad in the middle of the run."""
    good = recorded(COUNT // 2, 0.95, 0.85, 0.7)
    bad = recorded(COUNT // 2, 0.1, 0.85, 0.7, seed=6)
    return [one + other for one, other in zip(good, bad, strict=True)]


def ask(recipe: str, says: list[list[int]], tenants: int = 1) -> Seen:
    asked = [
        Asked(3.0 * at, ABC, 100, input=at, label=1, tenant=at % tenants) for at in range(COUNT)
    ]
    return play(make_router(recipe), TRIO, lanes(3), asked, families=FAMILY, says=says)


def test_clipper_moves_away_from_a_model_that_goes_bad(corrupted: list[list[int]]) -> None:
    """Both end with fewer errors than staying with the model that was best, Exp4 with no more than
    Exp3, and Exp3 within its bound of the best single model."""
    alone = [said.count(0) for said in corrupted]
    drawn = ask("clipper(rate=0.03)", corrupted)
    voted = ask("clipper(rate=0.03,selection=exp4)", corrupted)
    assert errors(drawn, corrupted) < alone[0]
    assert errors(voted, corrupted) <= errors(drawn, corrupted)
    bound = log(3) / 0.03 + 0.03 * 3 * COUNT / 2
    assert errors(drawn, corrupted) <= min(alone) + bound
    last = drawn.by[-300:]
    assert last.count(1) > last.count(0) + last.count(2)
    assert drawn.by[1200:1500].count(0) > 150  # it was the best until then


def test_a_request_without_a_label_teaches_nothing() -> None:
    says = recorded(COUNT, 1.0, 0.0, 0.0)
    asked = [Asked(3.0 * at, ABC, 100, input=at) for at in range(900)]
    seen = play(make_router("clipper"), TRIO, lanes(1), asked, families=FAMILY, says=says)
    for which in range(3):
        assert 240 < seen.by.count(which) < 360


def test_tenants_have_weights_of_their_own() -> None:
    """What is right for one tenant is wrong for the other."""
    says = [[at % 2 for at in range(COUNT)], [1 - at % 2 for at in range(COUNT)], [0] * COUNT]
    seen = ask("clipper(by_tenant=yes)", says, tenants=2)
    assert seen.by[-100::2].count(1) > 40
    assert seen.by[-99::2].count(0) > 40
    one_for_all = ask("clipper", says, tenants=2)
    both = one_for_all.by[-100:]
    assert 25 < both.count(0) < 75  # no weight tells them apart


def test_the_weight_of_a_model_that_errs_shrinks_by_its_chance() -> None:
    """One of two models, at rate 0.1: exp(-0.1 / 0.5) after the first error."""
    pair = TRIO[:2]
    says = [[0] * 2000, [1] * 2000]
    asked = [Asked(10.0 * at, 2, 100, input=at, label=1) for at in range(2000)]
    seen = play(
        make_router("clipper(rate=0.1)"),
        pair,
        lanes(1),
        asked,
        families=[("pair", (0, 1))],
        says=says,
    )
    first = seen.by.index(0)
    assert first < 10
    weight, chance = 1.0, 0.0
    for by in seen.by:
        chance += weight / (1 + weight)
        if not by:
            weight *= np.exp(-0.1 * (1 + weight) / weight)
    assert seen.by.count(0) == pytest.approx(chance, abs=4 * chance**0.5)


def voted(weights: dict[int, float], said: dict[int, int], **given_: float) -> tuple[int, int]:
    world = World(TRIO, lanes(1), families=FAMILY)
    world.requests.add({"arrival": [0], "model": [ABC]})
    memory = Weights({(ABC, -1): weights})
    return Exp4(0.1, agree=given_.get("agree", 0), otherwise=9).combine(world, memory, 0, said)


def test_votes_count_by_weight() -> None:
    weights = {0: 1.0, 1: 0.6, 2: 0.5}
    assert voted(weights, {0: 4, 1: 7, 2: 7}) == (1, 7)
    assert voted(weights, {0: 4, 1: 7, 2: 5}) == (0, 4)
    assert voted({0: 1, 1: 0.5, 2: 0.5}, {0: 8, 1: 3, 2: 3}) == (1, 3)  # equal: the lower class
    assert voted(weights, {1: 7}, agree=0.3) == (1, 9)  # 0.6 of 2.1 agree
    assert voted(weights, {1: 7}, agree=0.28) == (1, 7)


def test_a_vote_is_counted_at_the_deadline_with_what_has_come() -> None:
    """The slow model would make the others right; it comes 30 ms too late."""
    models = [model("a", table(2)), model("b", table(4)), model("slow", table(50))]
    says = [[3] * 9, [3] * 9, [1] * 9]
    asked = [Asked(0, ABC, 20, input=0, label=1), Asked(100, ABC, 60, input=1, label=1)]
    seen = play(
        make_router("clipper(selection=exp4,agree=0.7,otherwise=8)"),
        models,
        lanes(3),
        asked,
        families=FAMILY,
        says=says,
    )
    assert seen.ended == [20, 150]
    assert seen.said == [8, 8]  # two of three agreed; then they had erred, and the third had not
    short = play(
        make_router("clipper(selection=exp4)"), models, lanes(3), asked, families=FAMILY, says=says
    )
    assert (short.by[0], short.said[0]) == (0, -1)  # what `by` says: 3


def test_a_vote_to_which_nobody_came_is_no_answer() -> None:
    slow = [model(name, table(30)) for name in "abc"]
    seen = play(
        make_router("clipper(selection=exp4)"), slow, lanes(3), [Asked(0, ABC, 20)], families=FAMILY
    )
    assert seen.outcomes == ["no model answered in time"]
    assert seen.ended == [20]


def test_tasks_of_a_vote_that_is_over_are_not_run() -> None:
    """One lane is busy with the first vote until both others are over."""
    models = [model("a", table(30)), model("b", table(30)), model("c", table(30))]
    asked = [Asked(0, ABC, 35), Asked(1, ABC, 35), Asked(80, ABC, 200)]
    seen = play(make_router("clipper(selection=exp4)"), models, lanes(1), asked, families=FAMILY)
    assert seen.outcomes == ["answered", "no model answered in time", "answered"]
    assert seen.ended == [35, 36, 170]
    assert [batch.model for batch in seen.batches] == [0, 1, 0, 1, 2]


def test_what_is_known_is_answered_at_once_and_the_least_recently_used_is_forgotten() -> None:
    inputs = [1, 2, 1, 3, 1, 2]
    asked = [Asked(10.0 * at, 0, input=each) for at, each in enumerate(inputs)]
    seen = play(make_router("clipper(keeps=2)"), TRIO, lanes(1), asked)
    took = [ended - one.at for ended, one in zip(seen.ended, asked, strict=True)]
    assert took == [2, 2, 0, 2, 0, 2]  # 3 took the place of 2, since 1 was used after it
    assert seen.by == [0] * 6
    blind = [Asked(10.0 * at, 0) for at in range(3)]  # nobody knows what their inputs are
    assert play(make_router("clipper(keeps=2)"), TRIO, lanes(1), blind).ended == [2, 12, 22]


def test_a_vote_asks_only_those_of_which_it_is_not_known_what_they_say() -> None:
    says = [[1], [1], [0]]
    asked = [
        Asked(0, 0, input=0),
        Asked(10, ABC, 100, input=0, label=1),
        Asked(20, ABC, 100, input=0, label=1),
    ]
    seen = play(
        make_router("clipper(selection=exp4,keeps=9)"),
        TRIO,
        lanes(1),
        asked,
        families=FAMILY,
        says=says,
    )
    assert [batch.model for batch in seen.batches] == [0, 1, 2]
    assert seen.ended == [2, 14, 20]


# ---------------------------------------------------------------------- model-switching


def test_half_of_the_requests_find_a_lane_at_half_load_idle() -> None:
    """M/D/1: a request that must not wait at all is in time with chance 1 - load."""
    table_ = OnTime.of([[0, 10 * MS]], 10 * MS)
    for load in (0.2, 0.5, 0.8):
        assert table_.at(100 * load) == pytest.approx(1 - load, abs=0.04)
    assert table_.at(0) == pytest.approx(0.95, abs=0.02)
    assert table_.at(1000) == pytest.approx(table_.at(250) / 4)


def test_more_lanes_and_batches_help() -> None:
    one = OnTime.of([[0, 10 * MS]], 30 * MS)
    two = OnTime.of([[0, 10 * MS]] * 2, 30 * MS)
    batched = OnTime.of([[0, 10 * MS, 12 * MS, 14 * MS]], 30 * MS)
    for rate in (60, 90, 120):
        assert one.at(rate) < two.at(rate)
        assert one.at(rate) < batched.at(rate)


BIG = Known("big", {("gpu", 1.0): affine(30, 10, 8)}, accuracy=0.78)
SMALL = Known("small", {("gpu", 1.0): affine(4, 1, 8)}, accuracy=0.70)
PAIR = [("pair", (0, 1))]


def spike() -> list[Asked]:
    """3 requests a second for 8 seconds, which rise to 130 until 30 seconds, and fall again."""
    rng = np.random.default_rng(3)
    at, found = 0.0, []
    while at < 60_000:
        at += rng.exponential(1000 / max(130 - 6 * abs(at / 1000 - 30), 3))
        found.append(Asked(at, 2, 100))
    return found


def test_the_small_model_answers_while_there_is_no_time_for_the_large_one() -> None:
    asked = spike()
    seen = play(make_router("model-switching"), [BIG, SMALL], lanes(1), asked, families=PAIR)
    by = [(one.at, which) for one, which in zip(asked, seen.by, strict=True)]
    assert {which for at, which in by if at < 8000 or at > 54_000} == {0}
    assert {which for at, which in by if 18_000 <= at < 42_000} == {1}


def test_more_answers_are_right_and_in_time_than_with_either_model_alone() -> None:
    asked = spike()

    def worth(recipe: str, which: int) -> float:
        seen = play(
            make_router(recipe),
            [BIG, SMALL],
            lanes(1),
            [one._replace(model=which) for one in asked],
            families=PAIR,
        )
        return sum(
            (0.78, 0.70)[by]
            for one, by, ended in zip(asked, seen.by, seen.ended, strict=True)
            if ended <= one.at + one.within
        )

    both = worth("model-switching", 2)
    assert both > worth("serve.triton", 0)
    assert both > worth("serve.triton", 1)


def test_a_change_wants_to_be_worth_it() -> None:
    asked = spike()
    seen = play(
        make_router("model-switching(better=1)"), [BIG, SMALL], lanes(1), asked, families=PAIR
    )
    changes = sum(one != other for one, other in zip(seen.by, seen.by[1:], strict=False))
    usual = play(make_router("model-switching"), [BIG, SMALL], lanes(1), asked, families=PAIR)
    assert changes < sum(one != other for one, other in zip(usual.by, usual.by[1:], strict=False))


# ---------------------------------------------------------------------- any of them


@pytest.mark.parametrize(
    "recipe",
    [
        "clipper",
        "clipper(selection=exp4)",
        "clipper(selection=exp4,keeps=3)",
        "clipper(keeps=4)",
        "clipper(selection=exp4,agree=0.6,by_tenant=yes,sizes=latency_regression)",
        "model-switching",
    ],
)
@examples(10)
@given(
    asked=st.lists(
        st.builds(
            Asked,
            st.integers(0, 80).map(lambda at: at / 2),
            st.integers(0, 3),
            st.sampled_from([4.0, 12.0, 30.0, 200.0, 1e9]),
            st.sampled_from([1, 1, 2]),
            st.integers(-1, 5),
            st.integers(-1, 1),
            st.integers(0, 1),
            st.just(0),
            st.just(0),
        ),
        min_size=1,
        max_size=30,
    ),
    count=st.integers(1, 3),
)
def test_every_request_is_answered_once_and_a_range_as_its_rows(
    recipe: str, asked: list[Asked], count: int
) -> None:
    """The watch holds the rules (see `Seen`); in chunks, one by one, and twice: the same."""
    models = [
        Known(name, {("gpu", 1.0): table(*took, p99=1.3)}, accuracy=0.8)
        for name, took in (("a", (5, 7, 8)), ("b", (9, 9.5)), ("c", (1, 2)))
    ]
    says = [[0, 1, 1, 0, 1], [1, 1, 0], [0]]

    def once(one_by_one: bool, chunk: int) -> tuple[object, ...]:
        router = make_router(recipe)
        seen = play(
            OneByOne(router) if one_by_one else router,
            models,
            lanes(count),
            asked,
            families=FAMILY,
            says=says,
            noise=1.0,
            chunk=chunk,
        )
        for one, by in zip(sorted(asked, key=lambda one: one.at), seen.by, strict=True):
            assert by in ((-1, 0, 1, 2) if one.model == ABC else (one.model,))
        return seen.batches, seen.outcomes, seen.ended, seen.by, seen.said

    seen = once(one_by_one=False, chunk=1 << 30)
    assert once(one_by_one=True, chunk=1 << 30) == seen
    assert once(one_by_one=False, chunk=3) == seen
