"""Published systems by which several models share a device."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.serving.router import Router
from ganger.recipes.registry import Count, Duration, Paper, Part, Within, recipe
from ganger.recipes.serving.sharing.gslice import GSlice
from ganger.recipes.serving.sharing.irina import Irina

Streams: TypeAlias = Annotated[int, Within(1, 64)]
"""Batches beside each other on a device."""
IRINA = Paper(
    "Irina: Accelerating DNN Inference with Efficient Online Scheduling",
    "Wu et al.",
    "APNet",
    2020,
    "latency, utilisation",
)


@recipe(
    IRINA,
    needs="latencies",
    reconstructed="a request takes its way when it comes, and keeps it; the borders between"
    " segments of a model stand for exit nodes; what a stop costs is a belief (`suspend`) that the"
    " simulator does not charge; a batch that cannot stop is never begun anew",
)
def irina(
    streams: Streams = 2,
    suspend: Duration = 0,
    batches: bool = True,
    stacks: bool = True,
    preempts: bool = True,
) -> Router:
    """A request joins a batch that waits, runs beside what runs, or before it, whichever lets all
    requests end soonest.

    When a request comes, each way on each device has a cost: the time until the request ends, and
    how much later all that wait or run there end. It may join a waiting batch of its model
    (`batches`); run at once beside at most `streams` - 1 others, if the most that each uses of the
    device's compute fits (`stacks`; `utilisation` in the models file, all of it where that is not
    stated; no slow-down is expected, and what company truly costs is `beside` of the models file,
    which has to state it); stop what runs at the next border between segments of its
    model, which goes on later (`preempts`; a stop is believed to cost both sides `suspend`); or
    wait at the place in the queue where it delays least.
    """
    return Irina(streams, suspend, batches, stacks, preempts)


GSLICE = Paper(
    "GSLICE: Controlled Spatial Sharing of GPUs for a Scalable Inference Platform",
    "Dhakal et al.",
    "SoCC",
    2020,
    "throughput, utilisation",
)


@recipe(
    GSLICE,
    needs="latencies",
    reconstructed="what shares do is what was measured before, not what is learned while it runs;"
    " a stand-by has to fit beside what it stands in for, and where it does not, that ends first;"
    " which services shrink and which grow is ours; how large batches get is the router's",
)
def gslice(gain: Part = 0.1, spare: Part = 0.1, calm: Count = 3, standby: bool = True) -> Policy:
    """Every model has the part of a device beyond which a larger one answers little more.

    A service whose model was measured on several shares of a device (`share` in the models file)
    has replicas on the share from which the next one adds less than `gain` to what it answers
    within its SLO, as many as its load needs: the most of the last `calm` windows, and `spare` of
    that. Where those of all services do not fit together, those with most to spare shrink, first;
    what is left over goes to services that missed their SLO in 1 of 100 requests. A replica gets
    another share by a stand-by: a new one loads beside it and takes its place. `standby` false ends
    the old one first. Services share the devices of the type that has most of them.
    """
    return GSlice(gain, spare, calm, standby)
