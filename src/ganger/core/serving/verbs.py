"""What a router orders, and what it hears of it. Times in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

OK: Final = "ok"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
INTERRUPTED: Final = "interrupted"


class Part(Struct, frozen=True, gc=False):
    """The tasks of one model in a batch.

    `tasks`: a request's own number, or a negative number of `world.tasks`; `items`: their inputs
    together; `first` and `last`: the operators that run, `last` 0 for all that follow. `tokens`: of
    a token model, how many tokens of each task are computed; none: the requests as a whole, all
    prompts and then as many steps as the longest output takes.
    """

    model: int
    tasks: Sequence[int]
    items: int
    first: int = 0
    last: int = 0
    tokens: Sequence[int] = ()


class Batch(Struct, frozen=True, gc=False):
    """Run the parts together on a lane; `reason`: why now and why so many. A lane that is still
    busy runs it next.

    Of a token model with `tokens`: a step, and up to `steps` - 1 more in which each task gets one
    token. It ends early with the step in which an output ends, before one for which the cache has
    no room, and at an `Interrupt`. `drops`: tasks whose cache is given up before (preemption by
    recomputation).
    """

    lane: int
    parts: tuple[Part, ...]
    reason: str
    steps: int = 1
    drops: tuple[int, ...] = ()


class Load(Struct, frozen=True, gc=False):
    """Copy a model's parameters into the store of this lane, which is one that copies."""

    lane: int
    model: int


class Evict(Struct, frozen=True, gc=False):
    """Drop a model's parameters from a store."""

    store: int
    model: int


class Cancel(Struct, frozen=True, gc=False):
    """End what runs on a lane at once: nothing of it is kept."""

    lane: int


class Interrupt(Struct, frozen=True, gc=False):
    """End what runs on a lane at the next border between two segments of its model, or two steps
    of a token model."""

    lane: int


class Retire(Struct, frozen=True, gc=False):
    """The router asks the control half to take this lane away."""

    lane: int


class Wait(Struct, frozen=True, gc=False):
    """Ask again at `until`, whether lanes are idle then or not; while some are, also as soon as
    `rows` more requests have come. An end of a batch or any other news is always a reason to ask,
    and an earlier Wait is then forgotten."""

    until: int
    rows: int = 1


class Stay(Struct, frozen=True, gc=False):
    """The answer to an end after which the router need not be asked, since no lane that is idle now
    has anything to do. An earlier Wait still holds."""


Do: TypeAlias = Batch | Load | Evict | Cancel | Interrupt | Retire | Wait | Stay
STAY: Final = (Stay(),)


class Ended(Struct, frozen=True, gc=False):
    """A batch or a load is over. `outcome`: OK, FAILED, CANCELLED or INTERRUPTED; `took`:
    microseconds on the lane; `operator`: where an interrupted batch stopped; `outputs`: by part,
    the class that each task was given (-1: not known), where the router `chooses` among models.
    Of a token model, `order.steps` are those that were done, and `over` the tasks whose output
    ended with the last. `scores`: by part, what each task was given for every class (none: not
    known), where the router `weighs` answers."""

    order: Batch | Load
    outcome: str
    took: int
    operator: int = 0
    outputs: tuple[Sequence[int], ...] = ()
    over: tuple[int, ...] = ()
    scores: tuple[Sequence[Sequence[float]], ...] = ()


class Truth(Struct, frozen=True):
    """What the right answer to a request is. `asked`: what it asked for, as a code; `label`: the
    class that is right, -1 where not known."""

    asked: int
    tenant: int
    said: Mapping[int, int]
    """By model, the class that it gave; -1 where not known."""
    label: int


class News(Struct, frozen=True):
    """What else a router is informed of: lanes that came or went, and the truth about requests
    that are over, which nobody knew when they came."""

    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    truths: tuple[Truth, ...] = ()
