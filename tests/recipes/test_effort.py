"""No recipe does more than is on record: caches, quick paths and what is known to be in vain spare
work, and change nothing else.

A line of `effort.txt` is a recipe, a day, and how often each of `COUNTED` was called on it. Who
calls one of them less often need not write it down; to allow more, run
`PYTHONPATH=tests python tests/recipes/test_effort.py`, read what that changed, and commit both.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.recipes import registry
from ganger.recipes.registry import CATALOGUE
from recipes.days import DAYS, Day
from recipes.test_decided import SMALL, TURNING
from recipes.test_ties import TIES
from soaking import rarely
from worlds import play

pytestmark = pytest.mark.long

RECORD = Path(__file__).with_name("effort.txt")

COUNTED = {
    "ganger.core.books.fit": "Capacity.find Capacity._find_plain Capacity._one_node",
    "ganger.core.books.roles": "RoleSearch._find_roles RoleSearch._roles_on",
    "ganger.core.books.stock": "Stock._learn Stock._refresh Stock._could_take",
    "ganger.core.books.empty": "EmptyCluster.fits",
    "ganger.core.books.draft": "Draft.start Draft._vacate",
    "ganger.core.view": "View.rng",
    "ganger.mechanisms.common.reconcile": "placed _make_way _with_room sharable",
    "ganger.mechanisms.common.speed_cache": "answers",
    "ganger.mechanisms.fairness.fair": "_asked FairPolicy._hopeless FairPolicy._start",
    "ganger.mechanisms.fairness.lease": "LeasePolicy._start Room.take",
    "ganger.mechanisms.fairness.virtual_clusters": "_Filling._start _Filling._reclaim",
    "ganger.mechanisms.ordering.backfill": "Reservations.__init__ Reservations.reserve",
    "ganger.mechanisms.ordering.blocked_classes": "Blocked.file Blocked.keeps Blocked.crossed",
    "ganger.mechanisms.ordering.order": "By.key Quanta.key Gittins.key Gittins._value"
    " Gittins._distribution Levels._climbs Quanta._fills Gittins._ages",
    "ganger.mechanisms.ordering.queue": "_Pass._start _Pass._evict_for _Pass._block _Pass._backfill"
    " _Pass._look_again _Pass._over_quota _Pass._may_fit",
    "ganger.mechanisms.ordering.queue_index": "QueueIndex.__init__ QueueIndex.file Pending.add"
    " QueueIndex.next_jump QueueIndex.catch_up QueueIndex._speak_up QueueIndex._silence"
    " QueueIndex._counts QueueIndex._is_current Pending.head Pending.first Running.pop_last",
    "ganger.mechanisms.placement.place": "Place.find",
    "ganger.mechanisms.rounds.program": "pose",
    "ganger.mechanisms.rounds.round_priority": "Rows.__init__ Rows.ranked served",
    "ganger.mechanisms.rounds.rounds": "RoundPolicy._select RoundPolicy._fill RoundPolicy._ranked"
    " RoundPolicy._allocate RoundPolicy._wants",
    "ganger.mechanisms.sizing.elastic": "market _offer _told _speeds _apart",
    "ganger.recipes.training.gavel.simulator_rounds": "_Course.__init__ BarrierRounds._begin"
    " BarrierRounds._allocate _goes_on BarrierRounds._turn",
    "ganger.recipes.training.placement.hived": "_Binding.__init__ _Binding._spots _Binding._bind"
    " _Binding._start _Binding._start_anywhere _Binding._claims _Binding._used",
    "ganger.recipes.training.placement.spin": "TimeIndexed._solve _ways _speeds _place",
    "ganger.recipes.training.placement.topology": "ByUtility.utility ByUtility._distance",
    "ganger.recipes.training.programmes.dorm": "_unit containers by_job by_class _programme",
}
"""By module, the functions that take the time."""

_NAMES = """
afs allox astraea backfill chronus delay-scheduling dorm drf drf(walk=strict) e-las edl
elastic-scaling fifo fifo(walk=easy) fifo(walk=skip) fifo(walk=tenant) gandiva-fair
gavel(compatible=yes) gavel(space_sharing=yes) gavel(whole_steps=yes) gittins(quantum=2m) hived
hived(cells=lab:1x4;ann:2x2;bob:1x1;cid:1x1) las(quantum=2m) max-min max-min(fill=no) ones philly
pollux priority sia spin(window=4) srsf(min_run=10m) srtf synergy themis tiresias(thresholds=10m;1h)
tiresias(thresholds=10m,starvation=2,consolidate=no) topology-aware yarn-cs
"""
RECIPES = _NAMES.split()
PLACES: dict[str, Callable[[], Day]] = {
    **{day: DAYS[day] for day in ("gangs", "crowd", "parts")},
    "ties": TIES["one-type"],
}


def counting(counts: Counter[str], name: str, asked: Any) -> Any:
    """The function, which is counted when it is called."""

    @wraps(asked)
    def counted(*args: Any, **more: Any) -> Any:
        counts[name] += 1
        return asked(*args, **more)

    return counted


def places(module: str, name: str) -> Iterator[tuple[Any, str]]:
    """Where a function is looked up: its class, or all modules that have imported it."""
    holder, _, last = name.rpartition(".")
    owner: Any = import_module(module)
    if holder:
        yield getattr(owner, holder), last
        return
    asked = getattr(owner, last)
    for each in [each for at, each in sys.modules.items() if at.startswith("ganger.")]:
        if vars(each).get(last) is asked:
            yield each, last


def effort(recipe: str, day: str) -> dict[str, int]:
    """How often each of `COUNTED` was called."""
    counts: Counter[str] = Counter()
    for name in CATALOGUE:
        registry.find(name)  # all modules that could call one of them are there
    with pytest.MonkeyPatch.context() as patch:
        for module, names in COUNTED.items():
            for name in names.split():
                for owner, last in list(places(module, name)):
                    patch.setattr(owner, last, counting(counts, name, getattr(owner, last)))
        world = PLACES[day]()
        with suppress(BadInput):  # who is refused does nothing more
            play(SMALL.get(recipe, recipe), world.works, world.cluster, world.setup, validate=False)
    return dict(sorted(counts.items()))


def cases() -> list[tuple[str, str]]:
    """Each recipe on each day."""
    return [case for case in product(RECIPES, PLACES) if case not in TURNING]


def record() -> dict[tuple[str, str], dict[str, int]]:
    """What is on record."""
    rows = (line.split(maxsplit=2) for line in RECORD.read_text().splitlines())
    return {(recipe, day): json.loads(counts) for recipe, day, counts in rows}


LONG = {"pollux", "sia"}
"""Which search: one day of theirs is in `make test`, all are in `make soak`."""


@pytest.mark.parametrize(
    ("recipe", "day"),
    [rarely(case) if case[0] in LONG and case[1] != "crowd" else case for case in cases()],
)
def test_it_takes_no_more_than_is_on_record(recipe: str, day: str) -> None:
    known = record()[recipe, day]
    more = {
        name: (count, known.get(name, 0))
        for name, count in effort(recipe, day).items()
        if count > known.get(name, 0)
    }
    assert not more, "calls now, and on record"


if __name__ == "__main__":
    lines = (f"{recipe} {day} {json.dumps(effort(recipe, day))}\n" for recipe, day in cases())
    RECORD.write_text("".join(lines))
