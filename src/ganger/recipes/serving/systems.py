"""Published systems that decide over requests."""

from __future__ import annotations

from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.mechanisms.serving.batching import Aimd, WithinSlack
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.queues import Earliest
from ganger.recipes.registry import Count, Duration, Paper, Part, recipe
from ganger.recipes.serving.clockwork import Clockwork
from ganger.recipes.serving.dybatch import DyBatch

_MS = SECOND // 1000
CLIPPER = Paper("Clipper: A Low-Latency Online Prediction Serving System", "Crankshaw et al.",
                "NSDI", 2017, "accuracy, latency, throughput")  # fmt: skip
NANILY = Paper("Nanily: A QoS-Aware Scheduling for DNN Inference Workload in Clouds",
               "Tang et al.", "HPCC", 2019, "SLO, throughput")  # fmt: skip
DYBATCH = Paper("DyBatch: Efficient Batching and Fair Scheduling for Deep Learning Inference on"
                " Time-sharing Devices", "Zhang et al.", "CCGrid", 2020,
                "fairness, throughput")  # fmt: skip
CLOCKWORK = Paper("Serving DNNs like Clockwork: Performance Predictability from the Bottom Up",
                  "Gujarati et al.", "OSDI", 2020, "SLO")  # fmt: skip


@recipe(
    CLIPPER,
    reconstructed="the cut of a tenth is from memory; the choice among models (Exp3, Exp4) and the"
    " cache of predictions are not part of it yet",
)
def clipper(step: Count = 1, back: Part = 0.9) -> Router:
    """A batch size for every model that grows while batches keep the SLO and shrinks when one does
    not.

    The size grows by `step` with each full batch that takes no longer than the SLO, and is cut to
    `back` of itself by one that does. A lane never waits for requests: it takes what is there.
    """
    return Composed("clipper", Aimd(step, back))


@recipe(
    NANILY,
    needs="latencies",
    reconstructed="the bound of a batch is what its tightest request can still spend; scaling of"
    " instances is not part of it",
)
def nanily() -> Router:
    """The largest batch that ends before the deadline of its tightest request.

    Requests go in the order of their deadlines. One that could not be answered in time even alone
    is refused.
    """
    return Composed("nanily", WithinSlack(), queue=Earliest)


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
