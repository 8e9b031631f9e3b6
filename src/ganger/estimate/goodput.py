"""Pollux's goodput (OSDI 2021, section 3): throughput x statistical efficiency, as functions of
where a job runs and of its batch size; the best batch; and the fit that a job's agent makes.

All arrays broadcast. Units: seconds, examples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.profiles import Goodput, StepModel

Floats = NDArray[np.float64]
Numbers = Any
"""A number or an array of them."""
CANDIDATES = 48
"""Batch sizes tried, in geometric steps."""


def computing_time(model: StepModel, local: Numbers) -> Floats:
    """Seconds to compute the gradient of `local` examples."""
    return np.asarray(model.alpha_c + model.beta_c * np.asarray(local, np.float64))


def sync_time(model: StepModel, nodes: Numbers, replicas: Numbers) -> Floats:
    """Seconds to synchronise `replicas` over `nodes`; nothing for one replica."""
    more = np.maximum(np.asarray(replicas, np.float64) - 2.0, 0.0)
    inside = model.alpha_r + model.beta_r * more
    across = model.alpha_n + model.beta_n * more
    apart = np.where(np.asarray(nodes) > 1, across, inside)
    return np.where(np.asarray(replicas) > 1, apart, 0.0)


def step_time(model: StepModel, nodes: Numbers, replicas: Numbers, local: Numbers) -> Floats:
    """Seconds of one step without accumulation."""
    return _overlap(
        computing_time(model, local), sync_time(model, nodes, replicas), np.float64(model.gamma)
    )


def _overlap(computing: Floats, sync: Floats, gamma: Numbers) -> Floats:
    """(computing^gamma + sync^gamma)^(1/gamma), scaled so that no power underflows."""
    longer, shorter = np.maximum(computing, sync), np.minimum(computing, sync)
    ratio = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    return np.asarray(longer * (1.0 + ratio**gamma) ** (1.0 / gamma))


def efficiency(noise: Numbers, batch: float, at: Numbers) -> Floats:
    """Progress per example at batch size `at`, relative to M0 = `batch`: (phi + M0)/(phi + M)."""
    phi = np.asarray(noise, np.float64)
    return np.asarray((phi + batch) / (phi + np.asarray(at, np.float64)))


class Batches(NamedTuple):
    """Ways to run: global batch, examples per GPU at a time, and passes that accumulate before the
    one that synchronises."""

    total: Floats
    local: Floats
    extra: Floats


def batches(goodput: Goodput, replicas: Numbers, candidates: int = CANDIDATES) -> Batches:
    """The batch sizes worth trying on `replicas` GPUs, along a new last axis, geometric from M0
    to the largest allowed. A GPU never gets more than its most examples at a time; where its
    least would make the batch too large, it gets fewer."""
    n = np.asarray(replicas, np.float64)[..., None]
    least, most = goodput.local
    if goodput.only:
        total = np.full((*n.shape[:-1], candidates), goodput.only)
    else:
        wanted = np.geomspace(goodput.batch, goodput.most, candidates)
        total = np.clip(np.maximum(wanted, n * least), goodput.batch, goodput.most)
    extra = np.ceil(total / (n * most) - 1e-9) - 1.0
    return Batches(total, total / (n * (extra + 1.0)), np.broadcast_to(extra, total.shape))


def throughput(model: StepModel, nodes: Numbers, replicas: Numbers, ways: Batches) -> Floats:
    """Examples per second for each of the `ways` (last axis)."""
    n, k = np.asarray(replicas)[..., None], np.asarray(nodes)[..., None]
    took = step_time(model, k, n, ways.local)
    return np.asarray(ways.total / (took + ways.extra * computing_time(model, ways.local)))


class Best(NamedTuple):
    """The best batch sizes and the goodput (useful examples per second) that they give."""

    goodput: Floats
    batch: Floats


def best(
    goodput: Goodput,
    noise: Numbers,
    nodes: Numbers,
    replicas: Numbers,
    candidates: int = CANDIDATES,
) -> Best:
    """The batch size of the largest goodput under `goodput.model` for every (nodes, replicas)."""
    assert goodput.model is not None, "this goodput has measured times only: fit a model first"
    nodes, replicas = np.broadcast_arrays(np.asarray(nodes), np.asarray(replicas))
    ways = batches(goodput, replicas, candidates)
    phi = np.asarray(noise, np.float64)[..., None]
    value = throughput(goodput.model, nodes, replicas, ways)
    value = value * efficiency(phi, goodput.batch, ways.total)
    where = value.argmax(axis=-1)[..., None]
    return Best(
        np.take_along_axis(value, where, -1)[..., 0],
        np.take_along_axis(np.broadcast_to(ways.total, value.shape), where, -1)[..., 0],
    )


_LOWEST = 1e-8


def fit(
    nodes: Numbers, replicas: Numbers, local: Numbers, step: Numbers, computing: Numbers
) -> StepModel:
    """The model nearest to the observed seconds per `step` and of `computing` (NaN where that was
    not measured): the least root mean squared logarithmic error over both, gamma in 1..10 (and
    small rather than large), all else above zero.

    Priors for what was not seen, as Pollux' agent has them (section 4.1): one replica only:
    synchronising is free; never more than two replicas: it does not grow with them; one node only:
    across nodes it costs what it costs inside. Deterministic. Raises BadInput for no points.
    """
    from scipy.optimize import least_squares  # slow to import, and only fitting needs it

    nodes, replicas, local, step, computing = (
        np.atleast_1d(np.asarray(x, np.float64)) for x in (nodes, replicas, local, step, computing)
    )
    if not len(step):
        raise BadInput("no step times", mend="a step model needs one point or more")
    free = _free(nodes, replicas)
    timed = ~np.isnan(computing)
    guess = np.where(timed, computing, step)
    slope = max(float(np.median(guess / local)), _LOWEST)
    sync = max(float(np.mean(np.maximum(step - guess, 0))), _LOWEST)
    start = np.log(np.array([slope, slope, sync, sync / 10, sync, sync / 10]))
    start = np.append(start, 1.5)

    def errors(x: Floats) -> Floats:
        model = _model(x, free)
        told = _log(step_time(model, nodes, replicas, local)) - _log(step)
        alone = _log(computing_time(model, local[timed])) - _log(computing[timed])
        return np.concatenate([told, alone, [1e-3 * (model.gamma - 1.0)]])

    low, high = np.full(7, np.log(_LOWEST)), np.full(7, np.log(1e4))
    low[6], high[6] = 1.0, 10.0
    start = np.clip(start, low + 1e-6, high - 1e-6)
    found = least_squares(errors, start, bounds=(low, high), max_nfev=500)
    return _model(found.x, free)


def _free(nodes: Floats, replicas: Floats) -> tuple[bool, bool, bool, bool]:
    """Which of alpha_n, beta_n, alpha_r, beta_r the observations say anything about."""
    across, inside = nodes > 1, (nodes == 1) & (replicas > 1)
    more = replicas > 2
    return (
        bool(across.any()), bool((across & more).any()),
        bool(inside.any()), bool((inside & more).any()),
    )  # fmt: skip


def _model(x: Floats, free: tuple[bool, bool, bool, bool]) -> StepModel:
    """Parameters from the search's coordinates, with priors for what is not `free`."""
    alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r = np.exp(x[:6]).tolist()
    across, across_more, inside, inside_more = free
    alpha_r = alpha_r if inside else 0.0
    beta_r = beta_r if inside_more else 0.0
    if not across:
        alpha_n, beta_n = alpha_r, beta_r
    elif not across_more:
        beta_n = beta_r
    return StepModel(alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, float(x[6]))


def _log(values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(values, _LOWEST)))
