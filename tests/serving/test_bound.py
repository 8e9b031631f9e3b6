"""The bound on goodput: never below what is possible, and near it where it should be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Known, Lane, Latencies, World
from ganger.lab.serving.yardsticks.bound import Bound, bounded
from ganger.lab.serving.yardsticks.classes import ClassKey, bounded_by_class
from ganger.lab.serving.yardsticks.rates import Rates
from ganger.recipes.registry import make_router
from serving.rig import CODES, MS, Asked, affine, columns, lanes, model, play, table

pytestmark = pytest.mark.long


def bound(models: list[Known], count: int, asked: list[Asked], chunk: int = 10_000) -> Bound:
    rows = sorted(asked, key=lambda one: one.at)
    chunks = (columns(rows[at : at + chunk]) for at in range(0, len(rows), chunk))
    return bounded(chunks, Rates(models, [("gpu", count)], [(at,) for at in range(len(models))]))


def optimum(
    models: list[Known], count: int, asked: list[Asked], counts: Callable[[Asked], bool] = bool
) -> int:
    """The most in time (of those that count), by trying every batch on every lane that is free
    first."""
    rows = sorted(asked, key=lambda one: one.at)

    @cache
    def most(free: tuple[int, ...], left: frozenset[int]) -> int:
        at, *others = free
        found = 0
        for which in {rows[each].model for each in left}:
            mine = [each for each in left if rows[each].model == which]
            latencies = models[which].latencies["gpu", 1.0]
            for size in range(1, min(len(mine), latencies.largest) + 1):
                for batch in combinations(mine, size):
                    begins = max(at, *(round(rows[each].at * MS) for each in batch))
                    ends = begins + latencies.mean[size]
                    if all(
                        ends <= round((rows[each].at + rows[each].within) * MS) for each in batch
                    ):
                        after = most(tuple(sorted((ends, *others))), left.difference(batch))
                        found = max(found, sum(counts(rows[each]) for each in batch) + after)
        return found

    return most((0,) * count, frozenset(range(len(rows))))


ONE = [model("a", table(5, 6, 8))]
TWO = [*ONE, model("b", table(3, 5))]


@given(
    asked=st.lists(
        st.builds(Asked, st.integers(0, 20), st.just(0), st.integers(3, 25), st.just(1), **CODES),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(1, 2),
    chunk=st.integers(1, 8),
)
def test_it_is_never_below_the_optimum_of_one_model(
    asked: list[Asked], count: int, chunk: int
) -> None:
    found = bound(ONE, count, asked, chunk)
    assert found.in_time >= optimum(ONE, count, asked) - 1e-6
    assert found.in_time == pytest.approx(bound(ONE, count, asked).in_time)


@given(
    asked=st.lists(
        st.builds(
            Asked, st.integers(0, 20), st.integers(0, 1), st.integers(3, 25), st.just(1), **CODES
        ),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(1, 2),
)
def test_it_is_never_below_the_optimum_of_two_models(asked: list[Asked], count: int) -> None:
    assert bound(TWO, count, asked).in_time >= optimum(TWO, count, asked) - 1e-6


@pytest.mark.parametrize("rate", [0.5, 0.9, 1.1, 2.0])
def test_it_is_near_what_a_recipe_reaches_where_batches_fill(rate: float) -> None:
    """Requests come evenly, at a part of what full batches can do: within five in a hundred."""
    models = [model("m", affine(4, 1, 16))]
    each = (4 + 16) / 16 / rate
    asked = [Asked(at * each, 0, 100) for at in range(4000)]
    seen = play(make_router("clockwork(margin=0,largest=16)"), models, lanes(1), asked)
    found = bound(models, 1, asked)
    assert seen.outcomes.count("answered") <= found.in_time + 1e-6
    assert found.in_time <= 1.05 * seen.outcomes.count("answered")
    assert found.attainment == pytest.approx(min(1 / rate, 1), abs=0.03)


def test_the_programme_of_one_model_is_near_the_exact_bound() -> None:
    """A second model that nobody asks for in time sends all through the programme."""
    models = [model("m", affine(4, 1, 16)), model("slow", table(1000))]
    asked = [Asked(at * 0.7, 0, 60) for at in range(3000)]
    exact = bound(models, 1, asked).in_time
    mixed = bound(models, 1, [*asked, Asked(0, 1, 2000)]).in_time
    assert exact - 3 < mixed < 1.03 * exact


@pytest.mark.timeout(30)
def test_late_in_a_long_log_it_ends_with_the_same() -> None:
    """Ten days in, what is left of a request may take less time than the clock can tell apart."""
    gaps = np.random.default_rng(1).exponential(0.7, 5000).cumsum()
    early, late = (
        bound([model("m", affine(3, 0.43, 7))], 1, [Asked(since + at, 0, 9) for at in gaps])
        for since in (0, 10 * 24 * 3_600_000)
    )
    assert early.attainment is not None
    assert 0.5 < early.attainment < 0.95
    assert late.in_time == pytest.approx(early.in_time, abs=0.5)


def test_what_is_too_late_alone_counts_nothing_and_what_is_never_due_counts() -> None:
    assert bound(ONE, 4, [Asked(0, 0, 4.9)]).in_time == 0
    assert bound(ONE, 4, [Asked(0, 0, 5)]).in_time == 1
    assert bound(ONE, 1, [Asked(0)] * 50).attainment == 1
    assert bound(ONE, 1, [Asked(0, 0, 50, items=9)]).in_time == 1  # it may be cut
    assert bound(ONE, 1, [Asked(0)]).goodput_per_second is None
    assert bound(ONE, 1, [Asked(0), Asked(500)]).goodput_per_second == 4


def test_batches_that_take_longer_than_there_is_time_make_nothing_cheaper() -> None:
    """5 ms for one, 6 for two, 8 for three; 7 ms are enough for two at a time."""
    for within, each in ((8, 8 / 3), (7, 3), (6, 3), (5, 5)):
        asked = [Asked(at / 4, 0, within) for at in range(4000)]
        found = bound(ONE, 1, asked).in_time
        assert found == pytest.approx(1000 / each, rel=0.01), within
    rows = columns([Asked(at / 4, 0, (5, 6)[at % 2]) for at in range(4000)])
    rates = Rates(ONE, [("gpu", 1)], [(0,)])
    assert bounded(iter([rows]), rates).in_time == pytest.approx(1000 / 3, rel=0.02)
    whole = bounded(iter([columns([Asked(at, 0, 5) for at in range(99)])]), rates)
    cut = [model("a", table(5, 6, 8), borders=(0.5,))]  # half of it may be in another batch
    parts = bounded(
        iter([columns([Asked(at, 0, 5) for at in range(99)])]), Rates(cut, [("gpu", 1)], [(0,)])
    )
    assert whole.in_time < 0.6 * parts.in_time


def test_with_noise_it_counts_the_batches_that_are_in_time_by_chance() -> None:
    """Two take 6 ms on average, one 3.5: within 6 ms rather more than half of such pairs are in
    time, so that singles are better; within 7 ms nearly all."""
    known = [model("a", table(3.5, 6, p99=1.25))]
    for within, best in ((6, 3.5), (7.6, 3)):
        rows = columns([Asked(at / 4, 0, within) for at in range(4000)])
        sure, chance = (
            bounded(iter([rows]), Rates(known, [("gpu", 1)], [(0,)], noise=noise)).in_time
            for noise in (0.0, 1.0)
        )
        assert sure == pytest.approx(1000 / 3, rel=0.01)
        assert chance == pytest.approx(1000 / best, rel=0.01)


@pytest.mark.parametrize("within", [9, 13, 20])
def test_with_noise_no_recipe_has_more_but_by_luck(within: float) -> None:
    models = [model("m", affine(4, 1, 16, p99=1.3))]
    asked = [Asked(at * 0.7, 0, within) for at in range(4000)]
    rates = Rates(models, [("gpu", 1)], [(0,)], noise=1.0)
    found = bounded(iter([columns(asked)]), rates).in_time
    for recipe in ("clockwork", "nanily", "serve.clairvoyant"):
        seen = play(make_router(recipe), models, lanes(1), asked, noise=1.0)
        late = sum(ended > one.at + within for ended, one in zip(seen.ended, asked, strict=True))
        assert seen.outcomes.count("answered") - late <= 1.01 * found


STEEP = [model("a", table(5, 6, 40)), model("b", table(3, 30))]
"""Three inputs of the first take longer together than one after the other."""


@pytest.mark.parametrize("recipe", ["dybatch(slice=1)", "dybatch(slice=2)", "serve.clairvoyant"])
@given(
    asked=st.lists(
        st.builds(
            Asked, st.integers(0, 20), st.integers(0, 1), st.integers(3, 45), st.integers(1, 7),
            **CODES,
        ),
        min_size=1,
        max_size=9,
    ),
    count=st.integers(1, 3),
)  # fmt: skip
def test_what_cuts_requests_does_not_exceed_it(recipe: str, asked: list[Asked], count: int) -> None:
    router = make_router(recipe)
    rates = Rates(STEEP, [("gpu", count)], [(0,), (1,)], divides=recipe.startswith("dybatch"))
    seen = play(router, STEEP, lanes(count), asked)
    rows = sorted(asked, key=lambda one: one.at)
    in_time = sum(
        outcome == "answered" and ended <= one.at + one.within
        for one, outcome, ended in zip(rows, seen.outcomes, seen.ended, strict=True)
    )
    assert in_time <= bounded(iter([columns(rows)]), rates).in_time + 1e-6


@given(
    asked=st.lists(
        st.builds(
            Asked, st.integers(0, 15), st.integers(0, 1), st.sampled_from([6, 11, 19]),
            st.just(1), tenant=st.integers(0, 1), input=st.just(-1), label=st.just(-1),
            prompt=st.just(0), output=st.just(0),
        ),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(1, 2),
    chunk=st.integers(1, 8),
)  # fmt: skip
def test_of_a_class_no_more_can_be_in_time_than_if_it_were_alone(
    asked: list[Asked], count: int, chunk: int
) -> None:
    """Against the best plan for the class beside the others, which may share its batches."""
    rows = sorted(asked, key=lambda one: one.at)
    world = World(TWO, lanes(count), tenants=("x", "y"))
    keys = {ClassKey("ab"[one.model], "xy"[one.tenant], round(one.within * MS)) for one in rows}
    wide = {ClassKey("ab"[one.model], None, None) for one in rows}
    chunks = (columns(rows[at : at + chunk]) for at in range(0, len(rows), chunk))
    rates = Rates(TWO, [("gpu", count)], [(0,), (1,)])
    every, alone = bounded_by_class(chunks, rates, world, keys | wide)
    assert every.in_time == pytest.approx(bound(TWO, count, rows).in_time)
    for key, found in alone.items():

        def counts(one: Asked, key: ClassKey = key) -> bool:
            mine = ClassKey("ab"[one.model], "xy"[one.tenant], round(one.within * MS))
            return key in (mine, ClassKey(mine.asked, None, None))

        mine = [one for one in rows if counts(one)]
        assert found.requests == len(mine)
        assert found.in_time >= optimum(TWO, count, rows, counts) - 1e-6
        assert found.in_time == pytest.approx(bound(TWO, count, mine).in_time)


def test_batches_beside_each_other_do_more_than_one_alone() -> None:
    """With one beside it a batch takes 1.25 times as long: two do 1.8 times as much."""
    models = [model("m", affine(4, 1, 16), beside=[1.25])]
    asked = [Asked(at * 0.5, 0, 60) for at in range(2000)]
    rows = columns(asked)
    alone = bounded(iter([rows]), Rates(models, [("gpu", 1)], [(0,)]))
    two = bounded(iter([rows]), Rates(models, [("gpu", 1)], [(0,)], 2))
    assert two.in_time == pytest.approx(1.8 * alone.in_time, rel=0.03)
    pair = [Lane(0, "gpu"), Lane(1, "gpu")]
    seen = play(make_router("ebird(sizes=16;16)"), models, pair, asked)
    late = sum(ended > one.at + 60 for ended, one in zip(seen.ended, asked, strict=True))
    assert len(asked) - late <= two.in_time


def test_a_family_is_bounded_by_its_best_variant() -> None:
    asked = [Asked(at * 1.0, 0, 60) for at in range(500)]
    models = [model("slow", table(9)), model("quick", table(2))]
    both = bounded(iter([columns(asked)]), Rates(models, [("gpu", 1)], [(0, 1)]))
    assert both.in_time == pytest.approx(bound([models[1]], 1, asked).in_time)


def best_in_order(
    models: list[Known], types: tuple[str, ...], variants: list[tuple[int, ...]], asked: list[Asked]
) -> int:
    """The most in time on lanes of these types, where of those that ask for the same who comes
    first is due first: then some best plan gives up a few, and takes those that follow each other
    together."""
    queues = [
        sorted((one for one in asked if one.model == code), key=lambda one: one.at)
        for code in range(len(variants))
    ]
    arrivals = [[round(one.at * MS) for one in queue] for queue in queues]
    dues = [[round((one.at + one.within) * MS) for one in queue] for queue in queues]
    assert all(due == sorted(due) for due in dues)

    @cache
    def most(free: tuple[tuple[int, str], ...], firsts: tuple[int, ...]) -> int:
        found = 0
        for code, first in enumerate(firsts):
            if first == len(queues[code]):
                continue
            found = max(found, most(free, (*firsts[:code], first + 1, *firsts[code + 1 :])))
            for lane in set(free):
                others = list(free)
                others.remove(lane)
                for which in variants[code]:
                    latencies = models[which].latencies.get((lane[1], 1.0))
                    if latencies is None:
                        continue
                    for size in range(1, min(latencies.largest, len(queues[code]) - first) + 1):
                        begins = max(lane[0], arrivals[code][first + size - 1])
                        ends = begins + latencies.mean[size]
                        if ends > dues[code][first]:
                            continue
                        after = tuple(sorted([*others, (ends, lane[1])]))
                        left = (*firsts[:code], first + size, *firsts[code + 1 :])
                        found = max(found, size + most(after, left))
        return found

    return most(tuple(sorted((0, type_) for type_ in types)), (0,) * len(variants))


def optimum_in_order(count: int, asked: list[Asked]) -> int:
    """The same of one model."""
    return best_in_order(ONE, ("gpu",) * count, [(0,)], asked)


AGREEABLE = st.lists(st.integers(0, 40), min_size=1, max_size=12)


@given(
    arrivals=AGREEABLE.filter(lambda each: len(each) <= 6),
    slack=st.integers(5, 25),
    count=st.integers(1, 2),
)
def test_the_optimum_in_order_is_the_optimum(arrivals: list[int], slack: int, count: int) -> None:
    asked = [Asked(at, 0, slack) for at in arrivals]
    assert optimum_in_order(count, asked) == optimum(ONE, count, asked)


@given(
    arrivals=st.lists(st.integers(0, 40), min_size=12, max_size=12),
    slack=st.integers(5, 25),
    count=st.integers(1, 2),
)
def test_it_is_never_below_the_optimum_of_twelve_requests(
    arrivals: list[int], slack: int, count: int
) -> None:
    asked = [Asked(at, 0, slack) for at in arrivals]
    assert bound(ONE, count, asked).in_time >= optimum_in_order(count, asked) - 1e-6


def both_types(name: str, one: Latencies, other: Latencies) -> Known:
    return Known(name, {("gpu", 1.0): one, ("cpu", 1.0): other})


KINDS: dict[str, tuple[list[Known], tuple[str, ...], list[tuple[int, ...]], int]] = {
    "two models": (TWO, ("gpu",), [(0,), (1,)], 12),
    "three models": ([*TWO, model("c", table(2, 2, 2, 9))], ("gpu",), [(0,), (1,), (2,)], 12),
    "a family": (TWO, ("gpu",), [(), (), (0, 1)], 12),
    "two families": (
        [*TWO, model("c", table(4)), model("d", table(6, 6))],
        ("gpu",),
        [(), (), (), (), (0, 2), (1, 3)],
        12,
    ),
    "two types": (
        [both_types("a", table(5, 6, 8), table(9, 10)), both_types("b", table(6), table(3, 4))],
        ("cpu", "gpu"),
        [(0,), (1,)],
        6,
    ),
    "a family on two types": (
        [both_types("a", table(5, 6, 8), table(9, 10)), model("b", table(3, 6), type_="cpu")],
        ("cpu", "gpu"),
        [(), (), (0, 1)],
        6,
    ),
}
"""Models, lanes, who answers what, and how many requests."""


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), window=st.sampled_from([3, 10_000]))
def test_it_is_never_below_the_optimum_of_several(
    kind: str, data: st.DataObject, window: int
) -> None:
    """Several models, families and types of device, by one linear programme or by several."""
    models, types, variants, count = KINDS[kind]
    codes = [code for code, those in enumerate(variants) if those]
    slack = {code: data.draw(st.integers(4, 18)) for code in codes}
    coming = st.tuples(st.integers(0, 30), st.sampled_from(codes))
    drawn = data.draw(st.lists(coming, min_size=count, max_size=count))
    rows = sorted((Asked(at, code, slack[code]) for at, code in drawn), key=lambda one: one.at)
    devices = [(type_, types.count(type_)) for type_ in sorted(set(types))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ganger.lab.serving.yardsticks.bound.WINDOW", window)
        found = bounded(iter([columns(rows)]), Rates(models, devices, variants))
    assert found.in_time >= best_in_order(models, types, variants, rows) - 1e-6
    assert found.in_time <= count + 1e-6


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=6),
    slack=st.tuples(st.integers(4, 18), st.integers(4, 18)),
    count=st.integers(1, 2),
)
def test_the_optimum_in_order_of_two_models_is_the_optimum(
    arrivals: list[tuple[int, int]], slack: tuple[int, int], count: int
) -> None:
    asked = [Asked(at, code, slack[code]) for at, code in arrivals]
    best = best_in_order(TWO, ("gpu",) * count, [(0,), (1,)], asked)
    assert best == optimum(TWO, count, asked)


@pytest.mark.parametrize(("kind", "near"), [("two models", 1.05), ("a family", 1.05)])
def test_it_is_near_the_optimum_of_several_where_batches_fill(kind: str, near: float) -> None:
    """Six of each arrive together, again and again, twice as many as one lane can do in time."""
    models, types, variants, _ = KINDS[kind]
    codes = [code for code, those in enumerate(variants) if those]
    each, every = 6 // len(codes) * 2, 10 if kind == "a family" else 16
    asked = [Asked(every * (at // each), code, 24) for at in range(5 * each) for code in codes]
    rows = sorted(asked, key=lambda one: one.at)
    found = bounded(iter([columns(rows)]), Rates(models, [("gpu", 1)], variants)).in_time
    best = best_in_order(models, types, variants, rows)
    assert best < len(rows)
    assert best <= found <= near * best


@pytest.mark.parametrize(
    ("kind", "each", "waves"), [("two types", 6, 2), ("a family on two types", 12, 4)]
)
def test_it_is_near_the_optimum_of_two_types_of_device_where_batches_fill(
    kind: str, each: int, waves: int
) -> None:
    """So many of each arrive together every 8 ms: more than a lane of each type can do in 16."""
    models, types, variants, _ = KINDS[kind]
    codes = [code for code, those in enumerate(variants) if those]
    asked = [
        Asked(8 * wave, code, 16) for wave in range(waves) for _ in range(each) for code in codes
    ]
    rates = Rates(models, [(type_, 1) for type_ in types], variants)
    found = bounded(iter([columns(asked)]), rates).in_time
    best = best_in_order(models, types, variants, asked)
    assert best < len(asked)
    assert best - 1e-6 <= found <= 1.05 * best


def test_it_is_near_the_optimum_of_one_model_where_batches_fill() -> None:
    """Six arrive together, again and again, twice as many as one lane can do in time."""
    asked = [Asked(8 * (at // 6), 0, 24) for at in range(300)]
    best = optimum_in_order(1, asked)
    assert best <= bound(ONE, 1, asked).in_time <= 1.05 * best


def test_of_two_types_only_as_many_run_as_may_and_the_faster_are_best() -> None:
    """Three quick devices and three slow ones, of which two run: as two quick ones, however it is
    found."""
    models = [
        Known("m", {("quick", 1.0): table(2), ("slow", 1.0): table(8)}),
        Known("n", {("quick", 1.0): table(4), ("slow", 1.0): table(5)}),
    ]
    asked = [Asked(at * 0.1, 0, 40) for at in range(600)]
    alone = bounded(iter([columns(asked)]), Rates(models, [("quick", 2)], [(0,), (1,)]))
    types = [("slow", 3), ("quick", 3)]
    rates = Rates(models, types, [(0,), (1,)], at_once=2)
    assert bounded(iter([columns(asked)]), rates).in_time == pytest.approx(alone.in_time)
    coarse = bounded(iter([columns(asked)]), rates, coarse=True)
    assert alone.in_time - 1e-6 <= coarse.in_time < 1.05 * alone.in_time
    mixed = [*asked, *(Asked(at, 1, 40) for at in range(20))]
    few = bounded(iter([columns(mixed)]), rates).in_time
    every = bounded(iter([columns(mixed)]), Rates(models, types, [(0,), (1,)])).in_time
    assert alone.in_time - 1e-6 <= few < 0.6 * every


def test_no_device_runs_before_it_is_there() -> None:
    """Of 20 at once, 5 ms each, those in the last 40 of 100 ms."""
    models = [model("m", table(5))]
    rates = Rates(models, [("gpu", 1)], [(0,)])
    rows = columns([Asked(0, 0, 100)] * 20)
    assert bounded(iter([rows]), rates, begins=60 * MS).in_time == pytest.approx(8)
