"""A router whose slots are named one by one: kept answers, models, admission, lanes, order and
batches."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.mechanisms.serving.asking import Asking
from ganger.mechanisms.serving.batching import (
    Aimd,
    Batching,
    FittedLatency,
    Preferred,
    Single,
    SizeOrTimeout,
    WithinSlack,
)
from ganger.mechanisms.serving.choice import Choice, Exp3, Exp4, Switching
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.dispatch import Dispatch, LeastLoaded, PowerOfTwo, RoundRobin
from ganger.mechanisms.serving.queues import Earliest, Fifo
from ganger.recipes.registry import Count, Duration, Many, Paper, recipe
from ganger.recipes.serving.caches import Cache, cached

SLOTS = Paper("A router of chosen slots", "a baseline", objective="accuracy, SLO")


class Models(Enum):
    """Which model of a family answers."""

    NONE = "none"
    EXP3 = "exp3"
    EXP4 = "exp4"
    SWITCHING = "switching"


class Lanes(Enum):
    """For which lane a request waits."""

    SHARED = "shared"
    APART = "apart"
    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    POWER_OF_TWO = "power-of-two"


class Order(Enum):
    """Which request goes first."""

    ARRIVAL = "arrival"
    DEADLINE = "deadline"


class Batches(Enum):
    """How large a batch is."""

    SINGLE = "single"
    WAITING = "waiting"
    FULL = "full"
    AIMD = "aimd"
    REGRESSION = "regression"
    SLACK = "slack"


_CHOICES: Final[dict[Models, Choice | None]] = {
    Models.NONE: None,
    Models.EXP3: Exp3(0.1, by_tenant=False),
    Models.EXP4: Exp4(0.1, by_tenant=False, agree=0.0, otherwise=0),
    Models.SWITCHING: Switching(SECOND, 0.0),
}
_DISPATCH: Final[dict[Lanes, Dispatch | None]] = {
    Lanes.SHARED: None,
    Lanes.APART: None,
    Lanes.ROUND_ROBIN: RoundRobin(),
    Lanes.LEAST_LOADED: LeastLoaded(),
    Lanes.POWER_OF_TWO: PowerOfTwo(),
}


@recipe(SLOTS, name="serve.composed", needs="latencies")
def composed(
    keeps: Many = 1000,
    select: Models = Models.EXP3,
    longest: Many = 1000,
    lanes: Lanes = Lanes.LEAST_LOADED,
    order: Order = Order.DEADLINE,
    batch: Batches = Batches.SLACK,
    size: Count = 64,
    delay: Duration = SECOND // 100,
    cache: Cache | None = None,
) -> Router:
    """Every slot of a router at work, and a parameter for each.

    The last `keeps` answers are given to requests with the same input (0: none is kept). Of a
    family one model answers by `select`: drawn by weights (`exp3`), all by vote (`exp4`), the best
    for the load (`switching`), or families are refused (`none`). A queue of `longest` requests
    refuses the next (0: no limit). Requests wait for a lane of their own, chosen at arrival
    (`least_loaded`, `round_robin`, `power_of_two`), for any (`shared`), or for those of their model
    (`apart`), and go by `arrival` or by `deadline`. A batch is one request (`single`), what waits
    up to `size` (`waiting`), a full `size` or what is there after `delay` (`full`), as large as
    Clipper finds (`aimd`, `regression`), or the largest that ends in time (`slack`), which refuses
    what cannot be in time even alone. `cache` says which models stay in memory where not all fit.
    """
    sizes: dict[Batches, Batching] = {
        Batches.SINGLE: Single(),
        Batches.WAITING: Preferred(size, 0),
        Batches.FULL: SizeOrTimeout(size, delay),
        Batches.AIMD: Aimd(1, 0.9),
        Batches.REGRESSION: FittedLatency(),
        Batches.SLACK: WithinSlack(),
    }
    choice = _CHOICES[select]
    return Composed(
        "serve.composed",
        sizes[batch],
        _DISPATCH[lanes],
        Earliest if order is Order.DEADLINE else Fifo,
        longest,
        apart=lanes is Lanes.APART,
        asking=Asking(choice, keeps) if choice is not None or keeps else None,
        residency=cached(cache),
    )
