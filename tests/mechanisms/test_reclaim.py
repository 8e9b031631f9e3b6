"""Which nodes on loan go back: the published examples, and never fewer preemptions than trying all
sets finds."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from ganger.mechanisms.hybrid.reclaim import EXACT_MOST, Tenancy, exact, greedy
from soaking import first, many

A, B, C = 0, 1, 2
SERVING = Tenancy({1: {A: 1, B: 1}, 2: {C: 2}, 3: {C: 2}}, {})
"""S1 holds a and b; S2 and S3 hold the two halves of c."""
TRAINING = Tenancy({1: {A: 2}, 2: {B: 1}, 3: {B: 1, C: 1}}, {C: 1})
"""s1 holds a; s2 and s3 hold b, and s3 what c has beyond its least."""


@pytest.mark.parametrize("choose", [greedy, exact])
def test_two_nodes_of_the_published_examples_cost_one_preemption(choose: object) -> None:
    two = dict.fromkeys((1, 2, 3), 2)
    assert choose(SERVING, two, 4) == [2, 3]  # type: ignore[operator]
    assert SERVING.preempted([2, 3]) == {C}
    assert len(SERVING.preempted([1, 2])) == 3, "S1 first would cost three"
    assert choose(TRAINING, two, 4) == [2, 3]  # type: ignore[operator]
    assert TRAINING.preempted([2, 3]) == {B}, "c goes on with what it needs"
    assert TRAINING.preempted([1, 2]) == {A, B}


def test_who_goes_for_one_node_costs_nothing_on_another() -> None:
    halves = Tenancy({0: {A: 1}, 1: {B: 1}, 2: {B: 1}, 3: {B: 1}}, {})
    one = dict.fromkeys(range(4), 1)
    assert greedy(halves, one, 1) == [1], "a third of b is less than all of a"
    assert greedy(halves, one, 3) == [1, 2, 3]
    assert greedy(halves, one, 4) == [1, 2, 3, 0], "all there are"
    assert greedy(halves, one, 9) == [1, 2, 3, 0]
    assert greedy(halves, one, 0) == []


def test_what_a_job_can_do_without_is_spent_once() -> None:
    shared = Tenancy({0: {A: 2}, 1: {A: 2}, 2: {B: 2}}, {A: 2})
    two = dict.fromkeys(range(3), 2)
    assert greedy(shared, two, 2) == [0]
    assert shared.preempted([0]) == set()
    assert shared.preempted([0, 1]) == {A}, "it can do without two GPUs, not four"
    assert greedy(shared, two, 4) == [0, 1]


def test_wider_nodes_are_enough_sooner() -> None:
    mixed = Tenancy({0: {A: 1}, 1: {B: 8}, 2: {}}, {})
    gpus = {0: 4, 1: 8, 2: 4}
    assert greedy(mixed, gpus, 4) == [2], "nobody is there"
    assert greedy(mixed, gpus, 5) == [2, 0]
    assert exact(mixed, gpus, 12) == [1, 2], "one job goes, not two"
    assert exact(mixed, gpus, 8) == [1], "one job either way, and one node instead of two"


def test_exact_where_greedy_is_misled_and_only_for_a_dozen_nodes() -> None:
    apart = Tenancy({0: {A: 1, B: 1}, 1: {9: 1}, 2: {A: 1, C: 1}, 3: {B: 1, C: 1}}, {9: 0})
    one = dict.fromkeys(apart.here, 1)
    assert greedy(apart, one, 3) == [1, 0, 2], "all cost 1 at first, and node 1 takes one job"
    assert len(apart.preempted([1, 0, 2])) == 4
    assert exact(apart, one, 3) == [0, 2, 3], "three jobs are on three nodes"
    many_nodes = Tenancy({node: {node: 1} for node in range(EXACT_MOST + 1)}, {})
    assert exact(many_nodes, dict.fromkeys(many_nodes.here, 1), 2) == [0, 1]


def drawn(seed: int) -> tuple[Tenancy, dict[int, int], int]:
    """Up to nine nodes with up to ten jobs, some of which can shrink."""
    rng = random.Random(seed)
    nodes, jobs = rng.randint(2, 9), rng.randint(1, 10)
    here: dict[int, dict[int, int]] = {node: {} for node in range(nodes)}
    for job in range(jobs):
        for node in rng.sample(range(nodes), min(rng.choice([1, 1, 1, 2, 2, 3, 4]), nodes)):
            here[node][job] = rng.randint(1, 4)
    spare = {job: rng.randint(1, 6) for job in range(jobs) if rng.random() < 0.4}
    gpus = {node: rng.choice([4, 8]) for node in here}
    return Tenancy(here, spare), gpus, rng.randint(1, sum(gpus.values()))


def fewest(tenancy: Tenancy, gpus: dict[int, int], wanted: int) -> int:
    """How few jobs any set of nodes with enough GPUs preempts."""
    nodes = list(tenancy.here)
    return min(
        len(tenancy.preempted(some))
        for count in range(len(nodes) + 1)
        for some in combinations(nodes, count)
        if sum(gpus[node] for node in some) >= wanted
    )


@pytest.mark.parametrize("count", first(1, (40, many(1000))))
def test_greedy_preempts_no_fewer_than_the_best_set_and_exact_as_few(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    more = best = worse = 0
    for seed in range(count):
        tenancy, gpus, wanted = drawn(seed)
        least = fewest(tenancy, gpus, wanted)
        chosen = greedy(tenancy, gpus, wanted)
        assert sum(gpus[node] for node in chosen) >= wanted
        assert len(set(chosen)) == len(chosen)
        above = len(tenancy.preempted(chosen)) - least
        assert above >= 0
        assert len(tenancy.preempted(exact(tenancy, gpus, wanted))) == least
        more, best, worse = more + above, best + least, worse + (above > 0)
    with capsys.disabled():
        print(f"\nreclaim: {count} cases, {best} preemptions at best, {more} more, in {worse}")
    assert more <= 0.2 * best, "far from the best"
