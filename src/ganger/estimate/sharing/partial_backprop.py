"""What a step costs whose workers back-propagate through a part of the layers (JigSaw,
DistributedML 2021).

In each step one worker, another one each time, back-propagates through all layers, and the others
through the same `fraction` of them, the last ones. So every layer is covered in each step. A step
still takes as long as that of the one that does all, but the GPUs of the others are free for the
rest of it.

The simulator takes what is true from here, and recipes what they believe.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganger.core.profiles import Passes


def part_of_step(passes: Passes, fraction: float) -> float:
    """The GPU time of a worker that back-propagates through a `fraction` of the layers, over that
    of one that does through all."""
    return (passes.forward + fraction * passes.backward) / (passes.forward + passes.backward)


def worth(passes: Passes, fraction: float, workers: int) -> float:
    """The steps that training needs where all workers do all layers, over those that it needs."""
    left_out = (1.0 - fraction) * (workers - 1) / workers
    return 1.0 / (1.0 + passes.loss * left_out)


def together(
    iterations: Sequence[float], passes: Sequence[Passes], fraction: float, workers: int
) -> float:
    """What several jobs do in the time in which one alone would do 1, if they take turns by the
    step on the same `workers` GPUs, and their full workers are spread over these: the i-th job's
    is on GPU i at first. `iterations`: seconds of a step of each alone."""
    partly = [
        seconds * part_of_step(each, fraction)
        for seconds, each in zip(iterations, passes, strict=True)
    ]
    extra = [0.0] * workers
    for at, (seconds, part) in enumerate(zip(iterations, partly, strict=True)):
        extra[at % workers] += seconds - part
    period = sum(partly) + max(extra)
    kept = (
        seconds * worth(each, fraction, workers)
        for seconds, each in zip(iterations, passes, strict=True)
    )
    return sum(kept) / period
