"""The life of an attempt, as tables: state and what happens make the next state and what is done.

Three tables: what is wanted of an attempt (`ORDERS`), how it fares as a whole (`COURSES`), and how
far each node's part of it is (`PARTS`). What a table does not have changes nothing. `attempts`
finds out what happened and does what they say; `lab/docs/life_page` draws them for docs/live.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

# ---------------------------------------------------------------------- states


class Status(IntEnum):
    """How far a part is."""

    UNSENT = 0
    PREPARING = 1
    PREPARED = 2
    GOING = 3
    LAUNCHED = 4
    EXITED = 5
    REFUSED = 6
    LOST = 7


class Want(IntEnum):
    """What is wanted of an attempt."""

    RUN = 0
    SUSPEND = 1
    LEAVE = 2
    """Save and leave."""
    TERMINATE = 3
    """Leave without saving."""


class Course(IntEnum):
    """How an attempt fares as a whole."""

    STARTING = 0
    RUNNING = 1
    BREAKING = 2
    """A part broke before all had been launched, and the others were told to go."""
    FAILING = 3
    """A part broke after all had been launched, and the others were told to go."""
    FINISHED = 4
    RELEASED = 5
    REFUSED = 6
    FAILED = 7


# ---------------------------------------------------------------------- what happens


class Order(Enum):
    """What the owner orders of an attempt."""

    RESUME = "go on"
    SUSPEND = "suspend"
    LEAVE = "save and leave"
    TERMINATE = "leave without saving"


class Turn(Enum):
    """What happens to an attempt as a whole."""

    LAUNCHED = "every part is launched"
    BROKE = "a part broke or could not be sent"
    FINISHED = "over: all its work is done"
    FINISHED_BEFORE_RESIZE = "over: all is done, and a resize was ordered"
    REPLACED = "over: a resize replaced it"
    RELEASED = "over: it left as ordered"
    REFUSED = "over: nothing of it was started"
    FAILED = "over: it failed"
    JOB_DONE = "an earlier attempt finished the job; this is the last"
    JOB_DONE_BETWEEN = "an earlier attempt finished the job; another follows"


class News(Enum):
    """What happens to a part."""

    SENDABLE_ALONE = "its node is up; it is the only part"
    SENDABLE = "its node is up; there are other parts"
    NODE_DOWN = "its node is down before it is sent"
    DROPPED = "the attempt is to end before it is sent"
    PREPARED_ALONE = "prepared; nothing else to wait for"
    PREPARED = "prepared; other parts or attempts to wait for"
    PREPARED_TO_END = "prepared; the attempt is to end"
    GATHERED = "every part is prepared"
    LAUNCHED = "launched"
    EXITED = "exited"
    REFUSED = "refused by its agent"
    LOST = "lost with its node, or its agent does not know it"
    EXIT_NOTED = "lost, but its exit is noted elsewhere"
    GONE = "its agent does not know it; it was to leave"
    UNKNOWN = "its agent never had it"
    UNKNOWN_TO_END = "its agent never had it; it was to leave"
    END = "the order to stop is sent or repeated"
    SUSPEND = "the order to suspend is sent or repeated"
    RESUME = "the order to go on is sent or repeated"


# ---------------------------------------------------------------------- what is done


class Effect(Enum):
    """What the engine does as an attempt or a part takes an edge."""

    TELL_PARTS = "tell every part"
    END_PARTS = "end every part"
    DISMISS = "end the other parts"
    SAY_STARTED = "Started"
    SAY_FINISHED = "Finished"
    SAY_RELEASED = "Released"
    SAY_REFUSED = "Refused"
    SAY_FAILED = "Failed"
    FINISH_LATER = "the job's later attempts are done"
    PREPARE = "send Prepare"
    GO = "send Go"
    STOP = "send Stop"
    FREEZE = "send Suspend"
    THAW = "send Resume"
    REPEAT = "repeat orders but to run"
    COUNT = "is every part launched?"
    GATHER = "is every part prepared?"
    JUDGE = "did it break? is all over?"
    CONCLUDE = "is all over?"


State = TypeVar("State", Status, Want, Course)
Event = TypeVar("Event", Order, Turn, News)


class Edge(NamedTuple, Generic[State]):
    """Where something leads, and what is done then, in this order."""

    to: State
    effects: tuple[Effect, ...] = ()


Table: TypeAlias = Mapping[tuple[State, Event], Edge[State]]

# ---------------------------------------------------------------------- the tables

_R, _S, _L, _T = Want
ORDERS: Final[Table[Want, Order]] = {
    (_R, Order.RESUME): Edge(_R, (Effect.TELL_PARTS,)),
    (_S, Order.RESUME): Edge(_R, (Effect.TELL_PARTS,)),
    (_R, Order.SUSPEND): Edge(_S, (Effect.TELL_PARTS,)),
    (_S, Order.SUSPEND): Edge(_S, (Effect.TELL_PARTS,)),
    (_R, Order.LEAVE): Edge(_L, (Effect.END_PARTS,)),
    (_S, Order.LEAVE): Edge(_L, (Effect.END_PARTS,)),
    (_R, Order.TERMINATE): Edge(_T, (Effect.END_PARTS,)),
    (_S, Order.TERMINATE): Edge(_T, (Effect.END_PARTS,)),
    (_L, Order.TERMINATE): Edge(_T, (Effect.END_PARTS,)),
}


def _from(
    states: Iterable[State], event: Event, to: State, *effects: Effect
) -> dict[tuple[State, Event], Edge[State]]:
    """The same edge from each of some states."""
    return {(state, event): Edge(to, effects) for state in states}


def _stay(
    states: Iterable[State], event: Event, *effects: Effect
) -> dict[tuple[State, Event], Edge[State]]:
    """From each of some states an edge back to it."""
    return {(state, event): Edge(state, effects) for state in states}


_EARLY: Final = (Course.STARTING, Course.BREAKING)
_LIVE: Final = (Course.STARTING, Course.RUNNING, Course.BREAKING, Course.FAILING)
_LATE: Final = (Course.RUNNING, Course.FAILING)

COURSES: Final[Table[Course, Turn]] = {
    (Course.STARTING, Turn.LAUNCHED): Edge(Course.RUNNING, (Effect.SAY_STARTED,)),
    (Course.BREAKING, Turn.LAUNCHED): Edge(Course.FAILING, (Effect.SAY_STARTED,)),
    (Course.STARTING, Turn.BROKE): Edge(Course.BREAKING, (Effect.DISMISS,)),
    (Course.RUNNING, Turn.BROKE): Edge(Course.FAILING, (Effect.DISMISS,)),
    # That it started may not have been heard of.
    **_from(_EARLY, Turn.FINISHED, Course.FINISHED, Effect.SAY_STARTED, Effect.SAY_FINISHED),
    **_from(_LATE, Turn.FINISHED, Course.FINISHED, Effect.SAY_FINISHED),
    **_from(
        _EARLY, Turn.FINISHED_BEFORE_RESIZE, Course.RELEASED,
        Effect.SAY_STARTED, Effect.SAY_RELEASED, Effect.FINISH_LATER,
    ),
    **_from(
        _LATE, Turn.FINISHED_BEFORE_RESIZE, Course.RELEASED,
        Effect.SAY_RELEASED, Effect.FINISH_LATER,
    ),
    **_from(_LIVE, Turn.REPLACED, Course.RELEASED, Effect.SAY_RELEASED),
    **_from(_LIVE, Turn.RELEASED, Course.RELEASED, Effect.SAY_RELEASED),
    **_from(_EARLY, Turn.REFUSED, Course.REFUSED, Effect.SAY_REFUSED),
    **_from(_LIVE, Turn.FAILED, Course.FAILED, Effect.SAY_FAILED),
    **_from(_LIVE, Turn.JOB_DONE, Course.FINISHED, Effect.SAY_FINISHED),
    **_from(_LIVE, Turn.JOB_DONE_BETWEEN, Course.RELEASED, Effect.SAY_RELEASED),
}  # fmt: skip

_LIVES: Final = tuple(status for status in Status if status < Status.EXITED)
"""Parts that may still run."""
_SENT: Final = tuple(status for status in _LIVES if status > Status.UNSENT)
_HEARD: Final = tuple(status for status in _SENT if status >= Status.PREPARED)

PARTS: Final[Table[Status, News]] = {
    (Status.UNSENT, News.SENDABLE_ALONE): Edge(Status.GOING, (Effect.PREPARE,)),
    (Status.UNSENT, News.SENDABLE): Edge(Status.PREPARING, (Effect.PREPARE,)),
    (Status.UNSENT, News.NODE_DOWN): Edge(Status.REFUSED),
    (Status.UNSENT, News.DROPPED): Edge(Status.REFUSED),
    # Of a part that is going, the order to go was lost.
    **_from((Status.UNSENT, *_HEARD), News.PREPARED_ALONE, Status.GOING, Effect.GO),
    **_from((*_LIVES, Status.EXITED), News.PREPARED, Status.PREPARED, Effect.GATHER),
    (Status.GOING, News.PREPARED): Edge(Status.GOING, (Effect.GO,)),
    **_stay(_HEARD, News.PREPARED_TO_END, Effect.STOP),
    **_from(
        (Status.UNSENT, Status.PREPARING), News.PREPARED_TO_END, Status.PREPARED, Effect.STOP
    ),
    (Status.PREPARED, News.GATHERED): Edge(Status.GOING, (Effect.GO,)),
    **_from(Status, News.LAUNCHED, Status.LAUNCHED, Effect.REPEAT, Effect.COUNT),
    (Status.LAUNCHED, News.LAUNCHED): Edge(Status.LAUNCHED, (Effect.COUNT,)),
    **_from(Status, News.EXITED, Status.EXITED, Effect.JUDGE),
    **_from(_LIVES, News.REFUSED, Status.REFUSED, Effect.JUDGE),
    **_from(_LIVES, News.LOST, Status.LOST, Effect.JUDGE),
    **_from(_LIVES, News.EXIT_NOTED, Status.EXITED, Effect.JUDGE),
    **_from((Status.UNSENT, *_HEARD), News.GONE, Status.REFUSED, Effect.JUDGE),
    **_from((Status.UNSENT, Status.PREPARING), News.UNKNOWN, Status.UNSENT, Effect.CONCLUDE),
    **_from(
        (Status.UNSENT, Status.PREPARING), News.UNKNOWN_TO_END, Status.REFUSED, Effect.CONCLUDE
    ),
    **_stay(_SENT, News.END, Effect.STOP),
    **_stay(_SENT, News.SUSPEND, Effect.FREEZE),
    (Status.LAUNCHED, News.RESUME): Edge(Status.LAUNCHED, (Effect.THAW,)),
}  # fmt: skip
