"""The marginal-gain rules against hand calculations, brute force, and each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product, zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.mechanisms.sizing import marginal_gain as gain
from ganger.mechanisms.sizing.marginal_gain import Curves

Curve = NDArray[np.float64]

OPTIMUS = [np.array([1, 1.8, 2.4, 2.4]), np.array([1, 1.5, 1.7, 1.7])]
WORK = [100.0, 60.0]
LINEAR = [np.array([1.0, 2, 3, 4]), np.array([1, 1.1, 1.15, 1.2])]


def greedy(
    curves: list[Curve], work: list[float], gpus: int, least: list[int], units: Sequence[int] = ()
) -> list[int]:
    sizes = gain.greedy(Curves.of(curves, least, units), np.array(work), gpus)
    return [int(each) for each in sizes]


def afs(
    curves: list[Curve],
    work: list[float],
    gpus: int,
    least: list[int],
    units: Sequence[int] = (),
    *,
    shrinking: bool = True,
) -> list[int]:
    asked = Curves.of(curves, least, units)
    return [int(each) for each in gain.afs(asked, np.array(work), gpus, shrinking=shrinking)]


def exact(
    curves: list[Curve], gpus: int, least: list[int], units: Sequence[int] = ()
) -> tuple[list[int], float]:
    sizes, value = gain.exact(Curves.of(curves, least, units), gpus)
    return [int(each) for each in sizes], value


def test_optimus_card() -> None:
    assert greedy(OPTIMUS, WORK, 4, [1, 1]) == [2, 2]


def test_afs_on_the_optimus_card() -> None:
    assert afs(OPTIMUS, WORK, 4, [1, 1]) == [2, 2]


def mean_jct(sizes: list[int]) -> float:
    """Of two jobs on `LINEAR`; the survivor grows to all four GPUs."""
    left, now, finish = list(WORK), 0.0, dict[int, float]()
    while len(finish) < 2:
        alive = [i for i in (0, 1) if i not in finish]
        size = sizes if len(alive) == 2 else [4, 4]
        rate = [LINEAR[i][size[i] - 1] if size[i] else 0.0 for i in alive]
        took = min(left[i] / r for i, r in zip(alive, rate, strict=True) if r)
        now += took
        for i, r in zip(alive, rate, strict=True):
            left[i] -= took * r
            if left[i] < 1e-9:
                finish[i] = now
    return sum(finish.values()) / 2


def test_afs_gives_the_efficient_job_more_and_that_is_better() -> None:
    assert afs(LINEAR, WORK, 4, [1, 1]) == [3, 1]
    assert mean_jct([3, 1]) == pytest.approx(44.44, abs=0.01)
    assert mean_jct([2, 2]) == pytest.approx(52.08, abs=0.01)
    assert mean_jct([0, 4]) == pytest.approx(62.5)


def afs_in_words(curves: list[Curve], work: list[float], gpus: int, slip: bool) -> list[int]:
    """The rule as published, job by job; with the public slip that takes the first job's worker
    count for the second job's length."""
    sizes = [0] * len(curves)

    def speed(job: int, size: int) -> float:
        return float(curves[job][size - 1]) if size else 0.0

    def length(job: int, size: int) -> float:
        return work[job] / speed(job, size) if size else float("inf")

    def winner(i: int, j: int) -> int:
        if sizes[i] == sizes[j] == 0:
            return i if length(i, 1) <= length(j, 1) else j
        swapped = length(i, sizes[i]) > length(j, sizes[i] if slip else sizes[j])
        a, b = (j, i) if swapped else (i, j)
        gain_a = speed(a, sizes[a] + 1) - speed(a, sizes[a])
        gain_b = speed(b, sizes[b] + 1) - speed(b, sizes[b])
        base = speed(a, sizes[a])
        return b if base and gain_b / speed(b, sizes[b] + 1) > gain_a / base else a

    order = sorted(range(len(curves)), key=lambda i: -length(i, 1))
    for _ in range(gpus):
        able = [i if sizes[i] < len(curves[i]) else None for i in order]
        while len(able) > 1:
            pairs = zip_longest(able[::2], able[1::2])
            able = [j if i is None else i if j is None else winner(i, j) for i, j in pairs]
        if able[0] is None:
            break
        sizes[able[0]] += 1
    return sizes


def test_afs_reads_each_jobs_own_size() -> None:
    curves = [np.array([1.0, 1.4, 2.0, 2.6]), np.array([1.0, 1.9, 2.7, 3.4])]
    assert afs(curves, [40.0, 70.0], 4, [1, 1]) == [1, 3]
    assert afs_in_words(curves, [40.0, 70.0], 4, slip=True) == [2, 2]


@given(st.data(), st.integers(0, 9))
def test_afs_is_the_rule_in_words(data: st.DataObject, gpus: int) -> None:
    gains = st.lists(st.floats(0.1, 3.0), min_size=4, max_size=4)
    curves = [np.cumsum(data.draw(gains)) for _ in range(data.draw(st.integers(1, 4)))]
    work = [data.draw(st.floats(1, 100)) for _ in curves]
    ours = afs(curves, work, gpus, [1] * len(curves))
    assert ours == afs_in_words(curves, work, gpus, slip=False)


def test_a_long_job_that_has_a_gpu_is_shorter_than_any_that_has_none() -> None:
    """The fourth gets its first GPU before the fifth, which is shorter, since the sixth stands
    between them. Then it is long beside the fifth's length on one GPU, and goes on being served:
    its next GPU gains it more than all."""
    curves = [
        np.array(each, float)
        for each in ([1, 1], [1, 1], [1, 1], [1, 2.2], [1, 1.1], [1, 2], [1, 1.6], [1, 1])
    ]
    work = [4e5, 3e5, 2e5, 1e5, 4, 3, 2, 1]
    assert afs_in_words(curves, work, 7, slip=False) == [0, 0, 0, 2, 0, 2, 2, 1]
    assert afs(curves, work, 7, [1] * 8) == [0, 0, 0, 2, 0, 2, 2, 1]


def test_exact_card() -> None:
    sizes, value = exact(OPTIMUS, 4, [1, 1])
    assert sizes == [3, 1]
    assert value == pytest.approx(3.4)


def test_three_rules_on_one_instance_are_three_rules() -> None:
    """Survey of the family: neither is a renamed copy of another."""
    assert greedy(OPTIMUS, WORK, 4, [1, 1]) != exact(OPTIMUS, 4, [1, 1])[0]
    assert greedy(LINEAR, [100.0, 2000.0], 4, [1, 1]) != afs(LINEAR, [100.0, 2000.0], 4, [1, 1])
    assert afs(OPTIMUS, WORK, 4, [1, 1]) != exact(OPTIMUS, 4, [1, 1])[0]


def test_attained_service_variant_ignores_remaining_work() -> None:
    curves = [np.array([1.0, 1.6]), np.array([1.0, 1.6]), np.array([1.0, 1.6])]
    assert afs(curves, [5.0, 1.0, 3.0], 2, [1, 1, 1], shrinking=False) == [0, 1, 1]


def test_greedy_gives_nothing_where_nothing_falls() -> None:
    assert greedy([np.array([1.0, 1.0, 3.0])], [10.0], 3, [1]) == [1]


def test_a_step_may_cost_several_gpus() -> None:
    curves = [np.array([1.0, 2.0, 3.0])] * 2
    assert greedy(curves, [10.0, 10.0], 5, [1, 1], [2, 1]) == [1, 3]
    assert afs(curves, [10.0, 10.0], 5, [1, 1], [2, 1])[0] <= 2
    assert exact(curves, 5, [1, 1], [2, 1])[0] == [1, 3]


def instances() -> st.SearchStrategy[tuple[list[Curve], list[float], int, list[int]]]:
    """Up to four jobs with any positive curves, at most eight GPUs."""
    curve = st.lists(st.floats(0.05, 5.0), min_size=1, max_size=4).map(
        lambda gains: np.cumsum(np.array(gains))
    )
    job = st.tuples(curve, st.floats(0.1, 1e6), st.integers(1, 4))
    return st.tuples(st.lists(job, max_size=4), st.integers(0, 8)).map(
        lambda drawn: (
            [c for c, _, _ in drawn[0]],
            [w for _, w, _ in drawn[0]],
            drawn[1],
            [min(n, len(c)) for c, _, n in drawn[0]],
        )
    )


@given(instances())
def test_sizes_hold_capacity_and_limits(
    case: tuple[list[Curve], list[float], int, list[int]],
) -> None:
    curves, work, capacity, least = case
    answers = [
        greedy(curves, work, capacity, least),
        afs(curves, work, capacity, least),
        afs(curves, work, capacity, least, shrinking=False),
        exact(curves, capacity, least)[0],
    ]
    for sizes in answers:
        assert sum(sizes) <= capacity
        for n, low, curve in zip(sizes, least, curves, strict=True):
            assert n == 0 or low <= n <= len(curve)


@given(instances())
def test_exact_is_exact(case: tuple[list[Curve], list[float], int, list[int]]) -> None:
    curves, _, capacity, least = case
    sizes, value = exact(curves, capacity, least)
    kept = int((np.cumsum(least) <= capacity).sum())
    choices = [range(n, len(c) + 1) for n, c in zip(least[:kept], curves, strict=False)]
    best = max(
        sum(float(c[n - 1]) for c, n in zip(curves, picked, strict=False))
        for picked in product(*choices)
        if sum(picked) <= capacity
    )
    assert value == pytest.approx(best)
    total = sum(float(c[n - 1]) for c, n in zip(curves, sizes, strict=True) if n)
    assert value == pytest.approx(total)


@pytest.mark.parametrize("jobs", [300])
def test_hundreds_of_jobs_decide_quickly(jobs: int) -> None:
    """Counts, not seconds: it must simply be feasible in a test."""
    rng = np.random.default_rng(7)
    curves = [np.cumsum(rng.uniform(0.2, 1, 64)) for _ in range(jobs)]
    work = rng.lognormal(8, 1, jobs).tolist()
    for sizes in (
        greedy(curves, work, 512, [1] * jobs),
        afs(curves, work, 512, [1] * jobs),
        exact(curves, 512, [1] * jobs)[0],
    ):
        assert sum(sizes) == 512


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([1.0, 1.5, 2.0]), min_size=1, max_size=4), st.integers(1, 2)
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 40),
)
def test_where_there_is_enough_exact_is_what_the_programme_says(
    drawn: list[tuple[list[float], int]], capacity: int
) -> None:
    """Ties included: flat curves, and several units."""
    units = [unit for _, unit in drawn]
    curves = Curves.of([curve for curve, _ in drawn], [1] * len(drawn), units)
    kept = int((np.cumsum(units) <= capacity).sum())
    (sizes, value), (others, total) = (
        gain.exact(curves, capacity),
        gain._weighed(curves, capacity, kept),
    )
    assert sizes.tolist() == others.tolist()
    assert value == total


@st.composite
def steps(draw: st.DrawFn) -> tuple[Curves, NDArray[np.int64], NDArray[np.float64], int]:
    """Jobs of several sizes, and of every step what it gains: few values, so that there are ties,
    and gains that grow and that are nothing."""
    tops = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    least = [draw(st.integers(1, top)) for top in tops]
    units = [draw(st.sampled_from([1, 1, 1, 2, 4])) for _ in tops]
    curves = Curves.of([np.ones(top) for top in tops], least, units)
    sizes = [
        draw(st.sampled_from([0, *range(low, top + 1)]))
        for low, top in zip(least, tops, strict=True)
    ]
    gain = st.sampled_from([-1.0, 0.0, 1.0, 2.0, 3.0])
    width = curves.speed.shape[1] - 1
    gains = [[draw(gain) for _ in range(width)] for _ in tops]
    shape = (len(tops), width)
    return curves, np.array(sizes), np.array(gains).reshape(shape), draw(st.integers(0, 20))


@given(steps())
def test_growing_is_one_step_after_the_other(
    case: tuple[Curves, NDArray[np.int64], NDArray[np.float64], int],
) -> None:
    curves, sizes, gains, left = case
    want, room, out = sizes.tolist(), left, set[int]()
    while room:
        able = [i for i, size in enumerate(want) if 0 < size < curves.most[i] and i not in out]
        best = max(able, key=lambda i: (gains[i, want[i] - 1], -i), default=-1)
        if best < 0 or gains[best, want[best] - 1] <= 0:
            break
        if curves.units[best] > room:
            out.add(best)
            continue
        want[best] += 1
        room -= int(curves.units[best])
    assert gain.grow(curves, sizes, gains, left).tolist() == want


@given(steps())
def test_shrinking_is_one_step_after_the_other(
    case: tuple[Curves, NDArray[np.int64], NDArray[np.float64], int],
) -> None:
    curves, sizes, losses, need = case
    want, missing = sizes.tolist(), need
    while missing > 0:
        able = [i for i, size in enumerate(want) if size > curves.least[i]]
        if not able:
            break
        best = min(able, key=lambda i: (losses[i, want[i] - 2], i))
        want[best] -= 1
        missing -= int(curves.units[best])
    found = gain.shrink(curves, sizes, losses, need)
    assert (found is None) == (missing > 0)
    assert found is None or found.tolist() == want


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 30))
def test_first_fit_passes_who_does_not_fit(costs: list[int], room: int) -> None:
    said = gain.first_fit(np.array(costs, np.int64), room).tolist()
    for cost, taken in zip(costs, said, strict=True):
        assert taken == (cost <= room)
        room -= cost * taken


@pytest.mark.parametrize("least", [[0], [3], [1, 1]])
def test_a_least_size_that_is_on_no_curve_is_refused(least: list[int]) -> None:
    with pytest.raises(BadInput, match="on no curve"):
        Curves.of([[1.0, 1.5]], least)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_many_steps_are_taken_wherever_they_stand(seed: int) -> None:
    """A thousand jobs could take a step, 300 GPUs are left: the 300 that gain most take them."""
    gains = np.random.default_rng(seed).permutation(1000).astype(np.float64) + np.float64(1)
    curves = Curves.of([np.array([1.0, 2.0])] * 1000, [1] * 1000)
    sizes = gain.grow(curves, np.ones(1000, np.int64), gains[:, None], 300)
    assert sorted(gains[sizes == 2].tolist()) == [float(each) for each in range(701, 1001)]


def test_curves_are_as_wide_as_the_longest_and_go_on_level() -> None:
    assert Curves.of([[1.0], [2.0]], [1, 1]).speed.shape == (2, 1)
    assert Curves.of([[1.0], [2.0, 3.0]], [1, 1]).speed.tolist() == [[1.0, 1.0], [2.0, 3.0]]
    assert Curves.of([], []).speed.shape == (0, 1)
