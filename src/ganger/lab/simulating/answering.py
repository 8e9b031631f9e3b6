"""What a run knows of its models: the profiles that were given, and of models that answer requests
what answering takes."""

from __future__ import annotations

from math import isnan

import msgspec
import numpy as np

from ganger.core.profiles import Profiles
from ganger.core.serving.answering import Answering, BatchTimes, Step
from ganger.lab.simulating.setup import Setup
from ganger.workloads.models.pipelines import pipelines_of
from ganger.workloads.models.profiles import Latency, Model
from ganger.workloads.trace import Trace

_LARGEST = 256
"""Larger batches are not told of."""


def profiles_of(setup: Setup, trace: Trace) -> Profiles:
    """The profiles of the set-up, else those of the trace, and in them what the models file of the
    run's requests says."""
    given = setup.profiles or trace.profiles
    if setup.traffic is None:
        return given
    known = {
        name: msgspec.structs.replace(given.of(name), answering=answering_of(model))
        for name, model in setup.traffic.models.models.items()
    }
    for pipeline in pipelines_of(setup.traffic.models):
        names = list(setup.traffic.models.models)
        steps = tuple(Step(names[each.model], each.feeds) for each in pipeline.stages)
        answering = Answering(stages=steps)
        known[pipeline.name] = msgspec.structs.replace(given.of(pipeline.name), answering=answering)
    return Profiles({**given.models, **known}, given.default)


def answering_of(model: Model) -> Answering:
    """What a models file says of one model."""
    times: dict[str, tuple[BatchTimes, ...]] = {}
    for each in model.latency:
        times[each.device] = (*times.get(each.device, ()), _times(each))
    return Answering(times, model.load_seconds, None if isnan(model.accuracy) else model.accuracy)


def _times(latency: Latency) -> BatchTimes:
    sizes = np.arange(1, min(latency.largest, _LARGEST) + 1)
    mean, p99 = (some(sizes).tolist() for some in (latency.mean_seconds, latency.p99_seconds))
    return BatchTimes(tuple(mean), tuple(p99), latency.share)
