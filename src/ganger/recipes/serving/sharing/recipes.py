"""Published systems by which requests of several models share a device."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.serving.router import Router
from ganger.recipes.registry import Duration, Paper, Within, recipe
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
