"""What trials of a search are, and what becomes of one that changes its size."""

from __future__ import annotations

import pytest

from bench import Bench, on
from ganger.core.events import Started, Submitted
from ganger.core.plan import Start
from ganger.core.spec import Kind, Role, Shape
from ganger.mechanisms.placement.place import PACK
from ganger.mechanisms.tuning.trials import Portion, resize, trial_of
from worlds import job


@pytest.mark.parametrize(
    ("gpus", "widest", "role"),
    [
        (2, 0, Role(size=2)),
        (2, 2, Role(size=2)),
        (2, 4, Role(size=2, least=2, most=4)),
    ],
)
def test_a_trial_grows_only_where_it_may_hold_more_than_it_begins_with(
    gpus: int, widest: int, role: Role
) -> None:
    search = job("search", kind=Kind.TUNE, size=4, tenant="ann")
    trial = trial_of(Bench(search).kernel.view, 0, Portion(gpus), widest)
    assert (trial.name, trial.parent, trial.tenant) == ("search-trial", "search", "ann")
    assert trial.shape.roles == (role,)


def test_a_trial_that_grows_gets_what_room_there_is_though_it_be_one() -> None:
    """It has one of four GPUs, and another job the others."""
    grows = job("a", shape=Shape((Role(size=1, least=1, most=4),)))
    bench = Bench(grows, job("b", size=3))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b1)), Start(1, 1, on(0b1110))])
    bench.feed(0, Started(0, 1), Started(1, 1))
    assert not resize(bench.kernel.view, 0, 4, PACK)
    assert bench.kernel.view.draft.holds(0) == on(0b1)
