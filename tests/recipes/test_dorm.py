"""Dorm's programme: merged by classes it is worth as much as job by job."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from ganger.recipes.training.programmes import dorm
from ganger.recipes.training.programmes.dorm import (
    Applications,
    _each_cell,
    _fairer,
    by_class,
    by_job,
    containers,
)
from ganger.solve.division.programme import Floats, Ints
from ganger.solve.dominant import dominant_shares
from ganger.solve.highs import Model, Solution, maximise_whole
from soaking import first


def some(seed: int, jobs: int = 40) -> tuple[Applications, Floats]:
    """Jobs of two kinds in two cells, of which some run, some wait and not all find room."""
    rng = np.random.default_rng(seed)
    kind, cell = rng.integers(2, size=jobs), rng.integers(2, size=jobs)
    needs = np.array([[1.0, 0.5, 0.2], [1.0, 1.5, 0.1]])[kind] / (3.0 * jobs)
    least = np.array([1, 2])[kind]
    now = np.where(rng.random(jobs) < 0.7, rng.integers(2, 4, size=jobs), 0)
    used = np.zeros((2, 3))
    np.add.at(used, cell, np.maximum(now, least)[:, None] * needs)
    room = used * rng.uniform(1.0, 1.6)
    return Applications(needs, least, np.full(jobs, 4), now, cell, np.ones(jobs)), room


def worth(apps: Applications, room: Floats, fair: Floats, loss: float, got: Ints) -> float:
    """The objective as the docstrings have it; all bounds hold."""
    runs = apps.now > 0
    used = np.zeros_like(room)
    np.add.at(used, apps.cell, got[:, None] * apps.needs)
    assert (used <= room + 1e-9).all()
    assert ((got >= apps.least) | ((got == 0) & ~runs)).all()
    assert (got <= apps.most).all()
    unfair = np.abs(got * apps.needs.max(axis=1) - fair).sum()
    changed = np.count_nonzero(runs & (got != apps.now))
    admitted = np.count_nonzero(~runs & (got > 0))
    use = float((got[:, None] * apps.needs).sum())
    return use - 1e-3 * changed + 100.0 * admitted - 10.0 * max(float(unfair) - loss, 0.0)


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_classes_are_worth_as_much_as_jobs(seed: int) -> None:
    """Equal to the tolerance of the search, with bounds that bind and with bounds that do not."""
    apps, room = some(seed)
    fair = dominant_shares(apps.needs, apps.weight, apps.most.astype(np.float64))
    for loss, share in ((0.05, 0.2), (0.2, 0.2), (1.0, 1.0)):
        allowed = float(ceil(share * np.count_nonzero(apps.now)))
        merged = by_class(apps, room, fair, loss, allowed)
        assert merged is not None
        single = by_job(apps, room, fair, loss, allowed)
        values = [worth(apps, room, fair, loss, got) for got in (merged, single)]
        assert values[0] == pytest.approx(values[1], rel=1e-8, abs=1e-7)
        assert np.count_nonzero((apps.now > 0) & (merged != apps.now)) <= allowed


@pytest.mark.parametrize("seed", range(12))
def test_where_there_is_room_for_all_nothing_is_solved(seed: int) -> None:
    """What each is best off with alone is the programme's answer, too."""
    apps, room = some(seed)
    fair = dominant_shares(apps.needs, apps.weight, apps.most.astype(np.float64))
    room = room + 4.0
    got = containers(apps, room, 10.0, 1.0)
    single = by_job(apps, room, fair, 10.0, float(len(apps.now)))
    assert got.tolist() == single.tolist()
    assert (got[apps.now == 0] == 4).all()


@pytest.mark.parametrize("seed", first(13, range(40)))
def test_where_containers_of_a_cell_are_alike_nothing_is_solved(seed: int) -> None:
    """Worth as much as the programme's answer without the two bounds, whether there is room for
    more, for the least of those who wait, or only if some who run give up theirs."""
    apps, room = some(seed)
    needs = np.array([[1.0, 0.5, 0.2], [0.7, 1.5, 0.1]])[apps.cell] / (3.0 * len(apps.now))
    used = np.zeros((2, 3))
    held = np.where(apps.now > 0, apps.now, (seed % 3) * apps.least)
    np.add.at(used, apps.cell, held[:, None] * needs)
    apps, room = apps._replace(needs=needs), used * (1.0 if seed % 2 else 1.15) + 1e-12
    fair = dominant_shares(apps.needs, apps.weight, apps.most.astype(np.float64))
    got = _each_cell(apps, room, fair)
    floor = np.zeros((2, 3))
    np.add.at(floor, apps.cell, apps.least[:, None] * needs)
    assert (got is None) == bool((floor > room).any())
    if got is None:
        return
    single = by_job(apps, room, fair, 1e3, float(len(apps.now)))
    values = [worth(apps, room, fair, 1e3, each) for each in (got, single)]
    assert values[0] == pytest.approx(values[1], rel=1e-8, abs=1e-7)


@pytest.mark.parametrize("seed", first(6, range(20)))
def test_what_is_made_fairer_is_nearly_the_best_within_the_bound(seed: int) -> None:
    """Worth what the programme's answer is but for a few changes."""
    rng = np.random.default_rng(seed)
    most = rng.choice([8, 16, 32], 60, p=[0.8, 0.1, 0.1])
    now = np.where(np.arange(60) < 57, np.minimum(most, rng.choice([1, 4, 8, 32], 60)), 0)
    apps = Applications(
        np.tile([1.0 / 480, 0.0, 0.0], (60, 1)),
        np.ones(60, np.int64),
        most,
        now,
        np.zeros(60, np.int64),
        np.ones(60),
    )
    room = np.tile([float(now.sum() + seed % 8) / 480, 1.0, 1.0], (1, 1))
    fair = dominant_shares(apps.needs / room[0, 0], apps.weight, most * 1.0) * room[0, 0]
    cell = _each_cell(apps, room, fair)
    assert cell is not None
    loss = 0.9 * float(np.abs(cell / 480 - fair).sum())
    got = _fairer(apps, cell, fair, loss)
    assert np.abs(got / 480 - fair).sum() <= loss
    single = by_job(apps, room, fair, loss, 57.0)
    best, ours = (worth(apps, room, fair, loss, each) for each in (single, got))
    assert best - 3e-3 <= ours <= best + 1e-6


def test_the_programme_begins_with_what_runs_and_is_searched_to_200_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs breaks the bound on unfairness: that is priced once, and counts as no change."""
    apps, room = some(1)
    apps = apps._replace(now=np.maximum(apps.now, apps.least))
    fair = dominant_shares(apps.needs, apps.weight, apps.most.astype(np.float64))
    begun: list[tuple[float, int]] = []

    def search(posed: Model, start: Floats, *, nodes: int, gap: float) -> Solution:
        assert (posed.rows @ start <= posed.most + 1e-9)[room.size :].all()
        begun.append((float(posed.gain @ start), nodes))
        return maximise_whole(posed, start, nodes=nodes, gap=gap)

    monkeypatch.setattr(dorm, "maximise_whole", search)
    by_job(apps, room, fair, 0.05, 3.0)
    unfair = float(np.abs(apps.now * apps.needs.max(axis=1) - fair).sum())
    assert unfair > 0.05
    use = float((apps.now[:, None] * apps.needs).sum())
    ((value, nodes),) = begun
    assert value == pytest.approx(use - 10.0 * (unfair - 0.05))
    assert nodes == 200
