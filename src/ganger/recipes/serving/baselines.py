"""How requests are batched and spread where nobody has thought about it much."""

from __future__ import annotations

from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.mechanisms.serving.asking import Asking
from ganger.mechanisms.serving.batching import Preferred, Single, SizeOrTimeout
from ganger.mechanisms.serving.choice import Quickest
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.dispatch import LeastLoaded, PowerOfTwo, RoundRobin
from ganger.mechanisms.serving.pipeline import Staging
from ganger.mechanisms.serving.queues import Fifo
from ganger.mechanisms.serving.residency import NextUse, Residency
from ganger.recipes.registry import Count, Duration, Many, Paper, Positive, recipe
from ganger.recipes.serving.caches import Cache, cached
from ganger.recipes.serving.clairvoyant import Clairvoyant
from ganger.recipes.serving.cork import Cork
from ganger.recipes.serving.foreseen_steps import ForeseenSteps, Order

_MS = SECOND // 1000
NAIVE = Paper("No batching", "a baseline", objective="latency")
FIXED = Paper(
    "TensorFlow-Serving: Flexible, High-Performance ML Serving",
    "Olston et al.",
    "ML Systems workshop at NIPS",
    2017,
    "throughput",
)
TRITON = Paper(
    "Triton Inference Server: dynamic batcher", "NVIDIA", "software", 2018, "latency, throughput"
)
SPREAD = Paper("Request balancing", "a baseline", objective="latency")
CHOICES = Paper(
    "The power of two choices in randomized load balancing", "Mitzenmacher", "TPDS", 2001, "latency"
)
BENTO = Paper("BentoML: adaptive batching", "BentoML", "software", 2026, "latency, throughput")
FORESEEN = Paper("All requests known before they come", "an oracle", objective="SLO")
APART = Paper("A fleet for each model", "a baseline", objective="SLO")


@recipe(NAIVE, name="serve.no-batch")
def no_batch(cache: Cache | None = None) -> Router:
    """One request at a time, first come, first served.

    All models share all lanes. Here and elsewhere a `cache` loads models where not all fit.
    """
    return Composed("serve.no-batch", Single(), residency=cached(cache))


@recipe(FIXED, name="serve.fixed-batch")
def fixed_batch(
    size: Count = 8, timeout: Duration = 10 * _MS, cache: Cache | None = None
) -> Router:
    """A full batch of `size`, or what is there once the oldest request has waited for `timeout`.

    This is how TensorFlow Serving, TorchServe and the MXNet Model Server batch.
    """
    return Composed("serve.fixed-batch", SizeOrTimeout(size, timeout), residency=cached(cache))


@recipe(TRITON, name="serve.triton")
def triton(
    size: Count = 64,
    delay: Duration = 0,
    preferred: tuple[Count, ...] = (),
    longest: Many = 0,
    cache: Cache | None = None,
) -> Router:
    """Whatever waits goes at once, up to `size`; with a `delay`, requests wait for others.

    With `preferred` sizes the largest that the waiting requests fill is sent at once, and the rest
    waits until the oldest has waited for `delay`. A queue of `longest` requests refuses the next
    (0: queues have no limit). Triton's priority levels are left out.
    """
    return Composed(
        "serve.triton", Preferred(size, delay, preferred), longest=longest, residency=cached(cache)
    )


@recipe(
    BENTO,
    name="serve.bentoml",
    reconstructed="a batch that ends is followed at once, not at the next look; the first 11 "
    "batches do not wait for a second and a third request; a request is not divided",
)
def bentoml(
    size: Count = 100, latency: Duration = 60 * SECOND, cache: Cache | None = None
) -> Router:
    """Requests wait for others while that shortens the mean latency, as in BentoML 1.4.

    The lanes take turns, and each has a queue of its own for every model. The time of a batch is a
    line of its requests, fitted to the last 50 batches every 5 s. With n requests, the last of
    which came w ago, another is waited for while n (w + 1 ms + the time of one more) is at most
    0.95 of what first requests wait on average; that is looked at every millisecond. The head is
    given up where all that wait together would take it past `latency`.
    """
    return Composed("serve.bentoml", Cork(size, latency), RoundRobin(), residency=cached(cache))


@recipe(SPREAD, name="serve.round-robin")
def round_robin(size: Count = 1, cache: Cache | None = None) -> Router:
    """The lanes take turns; each has a queue of its own, and runs what waits there up to `size`."""
    return Composed("serve.round-robin", Preferred(size, 0), RoundRobin(), residency=cached(cache))


@recipe(SPREAD, name="serve.least-loaded")
def least_loaded(size: Count = 1, cache: Cache | None = None) -> Router:
    """A request goes to the lane that has the fewest inputs waiting or running; up to `size` of
    them run together."""
    return Composed(
        "serve.least-loaded", Preferred(size, 0), LeastLoaded(), residency=cached(cache)
    )


@recipe(CHOICES, name="serve.power-of-two")
def power_of_two(size: Count = 1, cache: Cache | None = None) -> Router:
    """A request goes to the less loaded of two lanes that are drawn at random; up to `size` of them
    run together. Ray Serve spreads requests like this."""
    return Composed("serve.power-of-two", Preferred(size, 0), PowerOfTwo(), residency=cached(cache))


@recipe(APART, name="serve.dedicated")
def dedicated(size: Count = 64, cache: Cache | None = None) -> Router:
    """Every model has lanes of its own, as many as every other; whatever waits goes at once, up to
    `size`. Lanes that are left over go to the models that come first in the file."""
    return Composed(
        "serve.dedicated", Preferred(size, 0), queue=Fifo, apart=True, residency=cached(cache)
    )


@recipe(FORESEEN, name="serve.clairvoyant", needs="future")
def clairvoyant(
    full: Positive = 2.0, order: Order = Order.LEAST, size: Count = 128, steps: bool = True
) -> Router:
    """A plan by all requests before they come. It cannot be deployed.

    While lanes have time left until the deadlines of what waits, the earliest deadline goes first,
    with all that wait and can be in time. From a load of `full` on, the batch is run that serves
    most requests per time: it may wait for requests that are about to come, and gives up those that
    would keep it small. A request that is larger than any batch is cut into the fewest equal parts
    with which it could be in time, and a stage of a pipeline may take all the time that those
    behind it do not need; each counts as the part that it is of what its request still needs. What
    could not be in time even alone is given up. Where there are token models, and unless `steps` is
    off, steps are put together as in continuous batching, of up to `size` sequences, those first
    that are due first or take least (`order`); and what could not be in time with the output that
    it will have is given up; steps and other batches take turns. Where not all models fit in
    memory, what waits goes at once, and the model that is asked for latest goes for one that is
    missing. It is a plan that can be carried out, not the best one.
    """
    return Clairvoyant(
        full,
        ForeseenSteps.of(order, size) if steps else None,
        Composed(
            "serve.clairvoyant",
            Preferred(64, 0),
            asking=Asking(Quickest()),
            staging=Staging(cuts=True),
            residency=Residency(NextUse()),
        ),
    )
