"""The life of attempts: whatever happens, they and their parts move by the tables only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.lives import BROKEN_JOB, KINDS, PHASES, PLACEMENTS, Happening, World
from ganger.core.events import Failed, Finished, Refused, Released, Started
from ganger.engines import attempts
from ganger.engines.agent import protocol as wire
from ganger.engines.gang import Attempt, NodePart
from ganger.engines.life import COURSES, ORDERS, PARTS, Course, News, Order, Status
from ganger.lab.docs import life_page

TABLES = {"ORDERS": ORDERS, "COURSES": COURSES, "PARTS": PARTS}
EDGES = {key for table in TABLES.values() for key in table}  # type: ignore[attr-defined]
STATES = ("status", "want", "course")

happenings = st.builds(
    Happening,
    st.sampled_from(KINDS),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 59),
)

SEEDS = (
    18581, 7590, 1078, 749, 1467, 3020, 19931, 9776, 853, 2408, 116, 163, 354, 386, 1844, 2535,
    24382,
)  # fmt: skip
"""Lives by chance that take every edge between them, the fewest of the first 25,000."""


class Watched:
    """What was looked up in the tables, and what was written into attempts and parts."""

    def __init__(self) -> None:
        self.edges: list[tuple[Any, Any]] = []
        self.led: list[tuple[Any, Any]] = []
        self.written: list[tuple[Any, Any]] = []


class Book(dict[Any, Any]):
    """A table that writes down which of its edges are taken."""

    def __init__(self, table: Any, watched: Watched) -> None:
        super().__init__(table)
        self._watched = watched

    def get(self, key: Any, default: Any = None) -> Any:
        """The edge, noted."""
        edge = super().get(key)
        if edge is not None:
            self._watched.edges.append(key)
            self._watched.led.append((key[0], edge.to))
        return edge


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch the tables and every state that is written, by whomever."""
    found = Watched()

    def write(self: object, name: str, value: Any) -> None:
        if name in STATES and hasattr(self, name):
            found.written.append((getattr(self, name), value))
        object.__setattr__(self, name, value)

    with pytest.MonkeyPatch.context() as patch:
        for name, table in TABLES.items():
            patch.setattr(attempts, name, Book(table, found))
        for kind in (Attempt, NodePart):
            patch.setattr(kind, "__setattr__", write, raising=False)
        yield found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PHASES), max_size=3), st.lists(happenings, max_size=80))
def test_whatever_happens_only_edges_of_the_tables_are_taken(
    adopted: list[Any], story: list[Happening]
) -> None:
    world = World(adopted)
    with watched() as seen:
        for what in story:
            world.happen(what)
    assert seen.written == seen.led


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PHASES), max_size=3), st.lists(happenings, max_size=80))
def test_an_attempt_starts_once_at_most_and_ends_once_at_most(
    adopted: list[Any], story: list[Happening]
) -> None:
    world = World(adopted)
    for what in story:
        world.happen(what)
    ends: Counter[tuple[int, int]] = Counter()
    starts: Counter[tuple[int, int]] = Counter()
    for event in world.attempts.events:
        if isinstance(event, Started):
            starts[event.job, event.attempt] += 1
            assert not ends[event.job, event.attempt]
        elif isinstance(event, Finished | Failed | Released | Refused):
            ends[event.job, event.attempt] += 1
    assert max(starts.values(), default=0) <= 1
    assert max(ends.values(), default=0) <= 1
    assert not ends.keys() & {one.key for one in world.alive}


def lives(seed: int) -> tuple[World, list[Happening]]:
    """A life by chance."""
    luck = Random(seed)
    world = World([luck.choice(PHASES) for _ in range(luck.randrange(4))])
    return world, [
        Happening(luck.choice(KINDS), luck.randrange(60), luck.randrange(60), luck.randrange(60))
        for _ in range(100)
    ]


def test_every_edge_can_be_taken() -> None:
    taken = set()
    for seed in SEEDS:
        world, story = lives(seed)
        with watched() as seen:
            for what in story:
                world.happen(what)
        taken.update(seen.edges)
    assert EDGES - taken == set()


def test_an_attempt_that_is_over_goes_nowhere() -> None:
    assert all(course <= Course.FAILING for course, _ in COURSES)
    over = {edge.to for edge in COURSES.values()} - {course for course, _ in COURSES}
    assert over == {Course.FINISHED, Course.RELEASED, Course.REFUSED, Course.FAILED}


@settings(max_examples=150, deadline=None)
@given(st.lists(happenings, max_size=80))
def test_what_the_tables_do_not_have_changes_nothing(story: list[Happening]) -> None:
    world = World()
    for what in story:
        world.happen(what)
    for one in world.alive:
        for order in Order:
            if (one.want, order) not in ORDERS:
                unmoved(world, one, lambda key=one.key, order=order: obey(world, key, order))
        for node, seat in one.seats.items():
            if (seat.status, News.REFUSED) not in PARTS:
                box = next(box for box in world.boxes if node in box.nodes)
                message = wire.Refused(wire.Key(*one.key, box.nodes.index(node)), "no")
                unmoved(world, one, lambda box=box, say=message: world.attempts.told(box, say))


def obey(world: World, key: tuple[int, int], order: Order) -> None:
    """Order it as owners do."""
    if order in (Order.LEAVE, Order.TERMINATE):
        world.attempts.stop(key, order)
    else:
        world.attempts.suspend(key, order is Order.SUSPEND)


def unmoved(world: World, one: Attempt, does: Any) -> None:
    """Nothing is said, sent or otherwise than before."""

    def state() -> object:
        parts = [(seat.status, seat.why, seat.exit) for seat in one.seats.values()]
        return one.want, one.course, parts, len(world.attempts.events), len(world.fleet.sent)

    before = state()
    does()
    assert state() == before


def test_a_job_that_cannot_be_launched_has_failed_for_good_and_is_not_followed() -> None:
    world = World()
    world.attempts.start(BROKEN_JOB, 1, PLACEMENTS[0], (), {})
    (failed,) = world.attempts.events
    assert isinstance(failed, Failed)
    assert failed.final
    assert world.alive == []


def test_a_gang_goes_when_all_its_parts_are_prepared() -> None:
    world = World()
    for kind in ("connect", "ready"):
        for machine in range(2):
            world.happen(Happening(kind, 0, machine, 0))
    world.attempts.start(0, 1, PLACEMENTS[2], (), {})
    (one,) = world.alive
    states = []
    for kind, part in (("prepared", 0), ("prepared", 1), ("launched", 0), ("launched", 1)):
        world.happen(Happening(kind, part, 0, 0))
        states.append(tuple(seat.status.name for seat in one.seats.values()))
    assert states == [
        ("PREPARED", "PREPARING"),
        ("GOING", "GOING"),
        ("LAUNCHED", "GOING"),
        ("LAUNCHED", "LAUNCHED"),
    ]
    assert one.course == Course.RUNNING
    assert Started(0, 1) in world.attempts.events


def test_the_page_shows_the_tables_as_they_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    assert life_page.renewed(text) == text, "make pages"


def test_the_page_shows_every_edge() -> None:
    rows = [row.split(" | ") for row in life_page.page().splitlines() if row.startswith("| ")]
    shown = sum(
        len(Status) if states == "any" else len(states.split())
        for _, states, *_ in rows
        if states != "from"
    )
    assert shown == len(EDGES)
