"""Rounds give every job its fraction of the time in the long run, and nobody runs far ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from bench import Bench
from ganger.core.allocation import Allocation
from ganger.core.books.fit import Fit
from ganger.core.events import Accepted, Submitted
from ganger.core.plan import Start
from ganger.core.spec import JobSpec
from ganger.core.state.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.placement.delay_scheduling import Relaxing
from ganger.mechanisms.rounds.rounds import RoundPolicy
from ganger.recipes import registry
from ganger.sim.rows import Outage
from worlds import cluster, job, play

ROUNDS = 60


@dataclass(frozen=True)
class Given:
    """An allocator that always gives these fractions of these gangs."""

    fractions: tuple[float, ...]
    gangs: tuple[int, ...]

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        allocation = Allocation()
        for row in ids.tolist():
            allocation.add((row,), "V100", self.gangs[row], self.fractions[row])
        return allocation


def rounds_of(
    fractions: list[float], gangs: list[int], gpus: int, rounds: int = ROUNDS
) -> np.ndarray:
    """Rounds that each job has had after so many."""
    policy = RoundPolicy("given", Given(tuple(fractions), tuple(gangs)), 10 * SECOND, fill=False)
    works = [job(f"j{i}", lasts=1e5, size=gang) for i, gang in enumerate(gangs)]
    run = play(policy, works, cluster(1, gpus), until=rounds * 10 * SECOND, validate=False)
    return run.kernel.view.ran(np.arange(len(works))) / (10 * SECOND)


@pytest.mark.parametrize("seed", range(8))
def test_single_gpus_are_never_a_round_ahead_and_converge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, n = int(rng.integers(1, 5)), int(rng.integers(5, 9))
    share = rng.uniform(0.1, 1, n)
    for _ in range(50):  # fractions of at most 1 that use all GPUs
        share = np.minimum(share * gpus / share.sum(), 1.0)
    had = rounds_of(share.tolist(), [1] * n, gpus)
    assert had.sum() == pytest.approx(gpus * ROUNDS)
    ahead = had - share * ROUNDS
    assert ahead.max() < 1 + 1e-6
    assert ahead.min() > -n
    assert np.abs(had / ROUNDS - share).max() < n / ROUNDS


@pytest.mark.parametrize("whole", [0.25, 0.5, 0.8])
def test_gangs_of_a_whole_node_take_turns_by_their_fractions(whole: float) -> None:
    had = rounds_of([whole, 1 - whole], [8, 8], 8)
    assert had == pytest.approx([whole * ROUNDS, (1 - whole) * ROUNDS], abs=1 + 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_gangs_have_at_least_what_is_promised(seed: int) -> None:
    """The bound of `RoundPolicy`, for sizes of any kind and for powers of two."""
    rng = np.random.default_rng(seed)
    gpus, n = int(rng.choice([3, 6, 8])), int(rng.integers(3, 9))
    sizes = [size for size in (1, 2, 4, 8) if size <= gpus] if seed % 2 else range(1, gpus + 1)
    gangs = rng.choice(list(sizes), n) * 1.0
    share = rng.uniform(0.1, 1, n)
    for _ in range(50):  # fractions of at most 1 that use all GPUs, or all jobs
        share = np.minimum(share * gpus / (gangs @ share), 1.0)
    had = rounds_of(share.tolist(), gangs.astype(int).tolist(), gpus)
    room = gpus - gangs + np.gcd.reduce([gpus, *gangs.astype(int)])
    least = (ROUNDS * room - (gangs.sum() - gangs)) / (room + gpus / share - gangs)
    assert (had >= least - 1e-6).all()
    assert gangs @ had <= gpus * ROUNDS + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_gangs_of_all_gpus_converge(seed: int) -> None:
    """What is promised is then the fraction itself, but for a constant number of rounds."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(4))
    for rounds in (ROUNDS, 4 * ROUNDS):
        had = rounds_of(share.tolist(), [4] * 4, 4, rounds)
        assert (had >= share * (rounds - 3) - 1e-6).all()
        assert np.abs(had / rounds - share).max() < 4 / rounds


def test_who_waited_long_enough_for_a_node_is_not_alike_to_who_has_to_wait() -> None:
    """Either of `early` and `late` would fit on two nodes; `early` lost its node at 5 s, so that it
    still insists on one when the patience of `late` is over."""
    place = Relaxing(Fit.WORST, node_wait=10 * SECOND, rack_wait=0)
    policy = RoundPolicy("given", Given((1.0, 1.0), (1, 1)), 10_000 * SECOND, place)
    works = [
        job("x", 0, 100), job("y", 0, 100), job("early", 0.5, 9, size=2),
        job("late", 1, 9, size=2), job("knocks", 12, 9, size=2),
    ]  # fmt: skip
    outages = (Outage(2, 5 * SECOND, 10_000 * SECOND),)
    run = play(policy, works, cluster(3, 2), outages=outages, until=90 * SECOND, validate=False)
    assert (run.started("early"), run.started("late")) == (0.5, 12)


@pytest.mark.parametrize("recipe", ["gavel(every=10s)", "las", "heterogeneity-agnostic"])
def test_jobs_that_come_when_the_table_has_no_row_left_are_decided_as_others(recipe: str) -> None:
    """Forty jobs come one after the other to a table made for two, as they do to a daemon; each
    asks for one of forty GPUs, and starts at once."""
    bench = Bench(job("a"), job("b"), on=cluster(5, 8), policy=registry.make(recipe))
    bench.feed(0, Submitted(0), Submitted(1))
    started = list[int]()
    for row in range(2, 40):
        plan = bench.feed(row, Accepted(row, JobSpec(name=f"late {row}", submitted=row * SECOND)))
        assert plan is not None
        started += [action.job for action in plan.actions if isinstance(action, Start)]
    assert started == list(range(2, 40))
