"""The genetic search: what repair promises, and that the best is never lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.recipes.training.goodput.genetic import (
    Genetic,
    People,
    Population,
    Scores,
    Space,
    compact,
    repair,
)
from ganger.recipes.training.goodput.pollux import FLOOR, Offer


def space(data: st.DataObject, jobs: int, nodes: int) -> Space:
    room = np.array(data.draw(st.lists(st.integers(0, 8), min_size=nodes, max_size=nodes)))
    least = np.array(data.draw(st.lists(st.integers(1, 3), min_size=jobs, max_size=jobs)))
    more = np.array(data.draw(st.lists(st.integers(0, 9), min_size=jobs, max_size=jobs)))
    may = np.random.default_rng(data.draw(st.integers(0, 9))).random((jobs, nodes)) < 0.8
    small = np.int16
    return Space(room.astype(small), least.astype(small), (least + more).astype(small), may)


def check(found: People, where: Space) -> None:
    people = found.dense()
    totals = people.sum(axis=2)
    assert (people >= 0).all()
    assert (people.sum(axis=1) <= where.room).all()
    assert ((totals == 0) | ((totals >= where.least) & (totals <= where.most))).all()
    assert not people[:, ~where.may].any()
    spans = (people > 0) & ((people > 0).sum(axis=2) > 1)[:, :, None]
    assert (spans.sum(axis=1) <= 1).all()


@given(st.data(), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_repair_always_gives_what_is_allowed(
    data: st.DataObject, jobs: int, nodes: int, seed: int
) -> None:
    where, rng = space(data, jobs, nodes), np.random.default_rng(seed)
    people = rng.integers(0, 9, (20, jobs, nodes)).astype(np.int16)
    first = rng.integers(-1, jobs, 20)
    check(repair(People.of(people), where, rng, first), where)


@given(st.data(), st.integers(0, 99))
def test_what_is_allowed_is_left_alone(data: st.DataObject, seed: int) -> None:
    where, rng = space(data, 4, 3), np.random.default_rng(seed)
    once = repair(People.of(rng.integers(0, 9, (10, 4, 3)).astype(np.int16)), where, rng)
    assert (repair(once, where, rng).dense() == once.dense()).all()


def total(found: People) -> Scores:
    """Concave in every job's GPUs, with a penalty for spanning."""
    people = found.dense()
    gpus, nodes = people.sum(axis=2), (people > 0).sum(axis=2)
    return np.asarray((np.sqrt(gpus) / np.maximum(nodes, 1) ** 0.3).sum(axis=1))


@settings(max_examples=25)
@given(st.data(), st.integers(0, 99))
def test_never_worse_than_its_seeds_and_repeatable(data: st.DataObject, seed: int) -> None:
    where, rng = space(data, 4, 3), np.random.default_rng(seed)
    seeds = repair(People.of(rng.integers(0, 9, (5, 4, 3)).astype(np.int16)), where, rng)
    search = Genetic(population=12, generations=6)
    people, scores = search.run(seeds, total, where, np.random.default_rng(seed))
    check(people, where)
    assert scores[0] >= total(seeds).max()
    assert (scores == total(people)).all()
    assert (np.diff(scores) <= 0).all()
    again, _ = search.run(seeds, total, where, np.random.default_rng(seed))
    assert (again.dense() == people.dense()).all()


@settings(max_examples=25)
@given(st.data(), st.integers(0, 99), st.sampled_from([-1.0, -0.5, 0.0]))
def test_fitness_is_the_power_mean_of_speedups(
    data: st.DataObject, seed: int, power: float
) -> None:
    where, rng = space(data, 4, 3), np.random.default_rng(seed)
    people = repair(People.of(rng.integers(0, 4, (6, 4, 3)).astype(np.int16)), where, rng)
    now, speedup = people.dense()[0], rng.random((4, 4, 25))
    offer = Offer(np.arange(4), where, now, speedup, np.arange(4), np.ones(4), np.full(4, 0.5))
    for person, score in zip(people.dense(), offer.fitness(people, power), strict=True):
        values = []
        for job, row in enumerate(person):
            value = speedup[job, int((row > 0).sum()), int(row.sum())]
            values.append(max(value * (1.0 if (row == now[job]).all() else 0.5), FLOOR))
        mean = np.mean(np.power(values, power)) ** (1 / power) if power else None
        assert np.isclose(score, np.exp(np.mean(np.log(values))) if mean is None else mean)


def test_finds_the_plain_optimum() -> None:
    """Four like jobs on four nodes of two: two GPUs each, each on one node."""
    two, eight = np.full(4, 2, np.int16), np.full(4, 8, np.int16)
    where = Space(two, np.ones(4, np.int16), eight, np.ones((4, 4), np.bool_))
    seeds = np.zeros((1, 4, 4), np.int16)
    start = People.of(seeds)
    people, scores = Genetic(40, 60).run(start, total, where, np.random.default_rng(0))
    assert scores[0] == 4 * np.sqrt(2)
    assert sorted(people.dense()[0].max(axis=1).tolist()) == [2, 2, 2, 2]


def test_it_ends_once_enough_places_were_tried_in_vain() -> None:
    """Two jobs of at most one GPU each, placed at once: 10 x 2 places a generation."""
    one, asked = np.ones(2, np.int16), list[int]()
    where = Space(np.full(3, 4, np.int16), one, one, np.ones((2, 3), np.bool_))
    seeds = People.of(np.array([[[1, 0, 0], [1, 0, 0]]], np.int16))

    def counting(found: People) -> Scores:
        asked.append(found.size)
        return total(found)

    for patience, generations in ((0, 30), (1, 1), (65, 3), (9999, 30)):
        asked.clear()
        search = Genetic(10, 30, patience=patience)
        search.run(seeds, counting, where, np.random.default_rng(0))
        assert len(asked) == 1 + generations


def test_compact_uses_few_nodes() -> None:
    room, rng = np.full(4, 4, np.int16), np.random.default_rng(0)
    where = Space(room, np.array([6], np.int16), np.array([8], np.int16), np.ones((1, 4), np.bool_))
    rows = compact(np.zeros(50, np.int64), where, rng)
    assert ((rows > 0).sum(axis=1) == 2).all()
    assert set(rows.sum(axis=1).tolist()) == {6, 7, 8}


def test_a_population_survives_as_plain_data() -> None:
    people = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    kept = Population.of([7, 8, 9], People.of(people))
    assert (kept.rows([7, 8, 9], 4).dense() == people).all()
    assert (kept.rows([9, 7], 4).dense() == people[:, [2, 0]]).all()
    later = kept.rows([8, 10], 4).dense()
    assert (later[:, 0] == people[:, 1]).all()
    assert not later[:, 1].any()
    assert kept.rows([7], 5).dense().shape == (0, 1, 5)


def test_no_jobs() -> None:
    empty = People.of(np.zeros((1, 0, 2), np.int16))
    where = Space(np.ones(2, np.int16), *(np.zeros(0, np.int16),) * 2, np.ones((0, 2), np.bool_))
    people, _ = Genetic(4, 2).run(empty, total, where, np.random.default_rng(0))
    assert people.jobs == 0


def test_what_is_cut_by_chance_is_the_same_for_a_seed() -> None:
    """Published figures rest on it: three jobs have eight GPUs or more, and may have 3, 4 and 5."""
    small = np.int16
    most, room = np.array([3, 4, 5], small), np.full(3, 16, small)
    where = Space(room, np.ones(3, small), most, np.ones((3, 3), np.bool_), apart=False)
    people = np.array([[[4, 4, 2], [2, 4, 4], [4, 2, 4]]] * 2, small)
    found = repair(People.of(people), where, np.random.default_rng(3), np.array([-1, 1]))
    assert found.dense().sum(axis=2).tolist() == [[3, 4, 5]] * 2
    assert found.dense().tolist() == [
        [[3, 0, 0], [0, 0, 4], [4, 1, 0]],
        [[0, 3, 0], [2, 0, 2], [0, 1, 4]],
    ]
