"""What routers remember is plain: stored and restored in between, each decides what it would."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct

from ganger.core.errors import InvariantError
from ganger.core.serving.memory import restored, stored
from ganger.core.serving.verbs import Do
from ganger.core.serving.world import Lane, World
from serving import test_decided
from serving.days import DAYS
from serving.test_decided import VARIANTS, Noted, cases, decided, record
from soaking import rarely

pytestmark = pytest.mark.long


class Box(Struct):
    """Something that a router might remember."""

    content: Any = None


@pytest.mark.parametrize(
    "memory",
    [
        None, True, -1, 2.5, "word", 1 << 200, -(1 << 63) - 1, [], (1, "a", None), {1, 2}, {},
        deque([1, (2, 3)]), deque([1], 3), {(1, "a"): [Box(3)], 2: {}}, Box({3: Box((Box(),))}),
    ],
)  # fmt: skip
def test_plain_things_come_back(memory: Any) -> None:
    again = restored(stored(memory))
    assert again == memory
    assert type(again) is type(memory)
    assert getattr(again, "maxlen", 0) == getattr(memory, "maxlen", 0)


def test_what_was_one_object_is_one_again() -> None:
    one = [1]
    memory = {"a": one, "b": Box(one), "c": [1]}
    again = restored(stored(memory))
    again["a"].append(2)
    assert again["b"].content == [1, 2]
    assert again["c"] == [1]
    assert one == [1]


def test_what_is_not_plain_is_refused() -> None:
    for memory in (object(), [lambda: None], {1: range(3)}):
        with pytest.raises(InvariantError, match="not plain"):
            stored(memory)
    gone = stored(Box()).replace(b"test_memory.Box", b"test_memory.Bax")
    with pytest.raises(InvariantError, match="there is no struct"):
        restored(gone)


class Restoring(Noted):
    """What the router remembers goes through bytes when it is asked for the first, second, fourth,
    eighth, ... time."""

    asked = 0

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        self.asked += 1
        if self.asked & (self.asked - 1) == 0:
            world.memory = restored(stored(world.memory))
        return super().next(world, idle)


@pytest.mark.parametrize("variants", [False, rarely(True)])
@pytest.mark.parametrize("day", DAYS)
def test_every_router_goes_on_from_its_stored_memory_to_what_is_on_record(
    day: str, variants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make soak` has those with other parameters than the defaults."""
    monkeypatch.setattr(test_decided, "Noted", Restoring)
    differ = [
        recipe
        for recipe, when in cases()
        if when == day
        and (recipe in VARIANTS) == variants
        and decided(recipe, DAYS[day][0]()) != record()[recipe, day]
    ]
    assert differ == []
