"""Published systems that decide over requests."""

from __future__ import annotations

from enum import Enum

from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.mechanisms.serving.asking import Asking
from ganger.mechanisms.serving.batching import Aimd, FittedLatency, Preferred, WithinSlack
from ganger.mechanisms.serving.choice import Exp3, Exp4, Switching
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.pipeline import Staging
from ganger.mechanisms.serving.queues import Earliest
from ganger.recipes.registry import (
    Count,
    Duration,
    Many,
    Paper,
    Part,
    Period,
    Positive,
    Tick,
    recipe,
)
from ganger.recipes.serving.caches import Cache, cached
from ganger.recipes.serving.clockwork import Clockwork
from ganger.recipes.serving.dybatch import DyBatch
from ganger.recipes.serving.ebird import Ebird
from ganger.recipes.serving.scaling import SWAYAM
from ganger.recipes.serving.swayam import Swayam

_MS = SECOND // 1000
CLIPPER = Paper(
    "Clipper: A Low-Latency Online Prediction Serving System",
    "Crankshaw et al.",
    "NSDI",
    2017,
    "accuracy, latency, throughput",
)
NANILY = Paper(
    "Nanily: A QoS-Aware Scheduling for DNN Inference Workload in Clouds",
    "Tang et al.",
    "HPCC",
    2019,
    "SLO, throughput",
)
EBIRD = Paper(
    "Ebird: Elastic Batch for Improving Responsiveness and Throughput of Deep Learning Services",
    "Cui et al.",
    "ICCD",
    2019,
    "latency, throughput",
)
SWITCHING = Paper(
    "Model-Switching: Dealing with Fluctuating Workloads in MLaaS Systems",
    "Zhang et al.",
    "HotCloud",
    2020,
    "accuracy, latency",
)
DYBATCH = Paper(
    "DyBatch: Efficient Batching and Fair Scheduling for Deep Learning Inference on"
    " Time-sharing Devices",
    "Zhang et al.",
    "CCGrid",
    2020,
    "fairness, throughput",
)
CLOCKWORK = Paper(
    "Serving DNNs like Clockwork: Performance Predictability from the Bottom Up",
    "Gujarati et al.",
    "OSDI",
    2020,
    "SLO",
)


class Sizes(Enum):
    """How Clipper finds the size of batches."""

    AIMD = "aimd"
    LATENCY_REGRESSION = "latency_regression"


class Selection(Enum):
    """How Clipper chooses among the models of a family."""

    EXP3 = "exp3"
    EXP4 = "exp4"


@recipe(
    CLIPPER,
    reconstructed="the cut of a tenth and the rate of learning are from memory; the cache is off"
    " unless `keeps` says how large it is; the regression is of the mean and of deviations, not of"
    " quantiles",
)
def clipper(
    sizes: Sizes = Sizes.AIMD,
    step: Count = 1,
    back: Part = 0.9,
    selection: Selection = Selection.EXP3,
    rate: Positive = 0.1,
    by_tenant: bool = False,
    agree: Part = 0.0,
    otherwise: Many = 0,
    keeps: Many = 0,
    cache: Cache | None = None,
) -> Router:
    """A batch size for every model that grows while batches keep the SLO; the model of a family by
    what its answers were worth.

    The size grows by `step` with each full batch that takes no longer than the SLO, and is cut to
    `back` of itself by one that does; or (`sizes=latency_regression`) a line is fitted to the
    latencies and the size is what the head can wait for. A lane never waits for requests. A request
    that names a family is asked of one model, drawn by weights (`exp3`), or of all, which vote by
    weights (`exp4`); models that err lose weight by `rate`, for each tenant apart with `by_tenant`.
    At its deadline a vote is counted with what has come; where less than `agree` of the weight is
    behind the class that wins, the class `otherwise` is answered. The last `keeps` answers are kept
    and given to requests with the same input. `cache` is another thing: it says which models stay
    in memory.
    """
    batching = Aimd(step, back) if sizes is Sizes.AIMD else FittedLatency()
    choice = (
        Exp3(rate, by_tenant)
        if selection is Selection.EXP3
        else (Exp4(rate, by_tenant, agree, otherwise))
    )
    return Composed("clipper", batching, asking=Asking(choice, keeps), residency=cached(cache))


@recipe(
    SWITCHING,
    name="model-switching",
    needs="latencies",
    reconstructed="what the load allows is found by a queue of our own before, and a change wants"
    " nothing more than a better value unless `better` says so",
)
def model_switching(every: Duration = SECOND, better: Part = 0.0, size: Count = 64) -> Router:
    """A large model while there is time for it, a small one when there is not.

    Of the models of a family that one answers of which accuracy x P(in time) is greatest at the
    load of the last `every`; a change wants a value that is greater by the part `better`. All stay
    loaded, and a lane takes whatever waits, up to `size`. What counts is the part of answers that
    are right and in time.
    """
    return Composed("model-switching", Preferred(size, 0), asking=Asking(Switching(every, better)))


@recipe(
    EBIRD,
    needs="latencies",
    reconstructed="sizes of workers and the tick are those of the public code; that inputs are"
    " copied while others are computed is not modelled",
)
def ebird(sizes: tuple[Count, ...] = (8, 4, 2, 1), most: Many = 0, tick: Tick = _MS) -> Router:
    """A burst is covered by several batches that run beside each other.

    Every device has a worker for each of the `sizes`. At each `tick`, from the largest idle worker
    down, each is started that the waiting requests can fill, and the smallest with what there is;
    no more than `most` inputs run on a device (0: no limit). No batch waits for others, and none is
    padded. What runs beside others takes longer, as the models file says (`beside`).
    """
    return Ebird(tuple(sorted(sizes, reverse=True)), most, tick)


@recipe(
    NANILY,
    needs="latencies",
    reconstructed="the bound of a batch is what its tightest request can still spend; scaling of"
    " instances is not part of it",
)
def nanily(cache: Cache | None = None) -> Router:
    """The largest batch that ends before the deadline of its tightest request.

    Requests go in the order of their deadlines. One that could not be answered in time even alone
    is refused.
    """
    return Composed(
        "nanily",
        WithinSlack(),
        queue=Earliest,
        staging=Staging(drops=True),
        residency=cached(cache),
    )


@recipe(
    CLOCKWORK,
    needs="latencies",
    reconstructed="actions are never late at a worker, since the simulator has no delay between the"
    " two; clock rates are not modelled",
)
def clockwork(
    largest: Count = 16, longest: Duration = 25 * _MS, margin: Duration = 5 * _MS
) -> Router:
    """Everything is planned from estimates; a request that cannot be in time is refused at once.

    A model may run in batches of 1, 2, 4, ... up to `largest`, those of several at most `longest`
    each. The model and size goes first whose first request has to start soonest; then the largest
    size that keeps every deadline is taken. `margin` before each deadline is aimed at. Where memory
    is watched, the model is loaded whose demand is served least, and the least recently used go.
    """
    sizes, size = [], 1
    while size <= largest:
        sizes.append(size)
        size *= 2
    return Clockwork(tuple(sizes), longest, margin)


@recipe(
    DYBATCH,
    reconstructed="a workload is a request with several inputs; the size of slices is ours",
)
def dybatch(slice: Count = 8) -> Router:  # noqa: A002 - the paper's word
    """A large request is cut into slices; the request that had the device least so far goes next.

    A slice has at most `slice` inputs. Small requests do not wait for large ones, and the slow-down
    of all is alike. Requests are not batched with each other.
    """
    return DyBatch(slice)


@recipe(
    SWAYAM,
    needs="latencies",
    reconstructed="windows and idle time are ours; to ask a busy backend costs nothing, and a"
    " request that finds all of them busy waits at its frontend; that late ones are dropped is from"
    " memory; backends at the front of the list do not go away; one that goes while its device"
    " stays (a fleet) counts as not used",
)
def swayam(
    frontends: Count = 2,
    window: Period = 5 * SECOND,
    windows: Count = 4,
    horizon: Duration = 10 * SECOND,
    idle: Duration = 20 * SECOND,
    part: Part = 0.99,
    prunes: bool = True,
) -> Router:
    """Frontends that do not talk with each other use as many backends as all requests need.

    Each has its share of the requests, follows the trend of the last `windows` counts to the
    `horizon` (at least the time that a backend needs to load), and multiplies by the number of
    frontends. Of one list of backends it uses the fewest first ones with which the part `part` is
    in time; each runs one request at a time, drawn among those that are not busy. Requests that
    would be late are dropped if it `prunes`. A backend behind those goes away by itself once it was
    idle for `idle`. With the services of a trace, `--serving scale.asked` gives the backends that
    are wanted, and takes those that go.
    """
    return Swayam(frontends, window, windows, horizon, idle, part, prunes)
