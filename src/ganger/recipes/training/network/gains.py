"""What belongs to JPAS and Parrot alone: which job's transfers go first on links."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ganger.core.books.links import sent_between_nodes
from ganger.core.view import View
from ganger.estimate.fits import fit_loss
from ganger.mechanisms.network.terms import Knobs, Rule

POINTS_LEAST = 3
"""A curve has three coefficients."""
POINTS_MAX = 32
"""To so many of the last reports a curve is fitted."""


def by_gain(levels: int, every: int) -> Rule:
    """JPAS: jobs in order of the gain of accuracy that is predicted for the next interval, in as
    many priorities as `levels`, the largest gain with the highest one. Jobs of which no curve is
    known yet come first."""

    def rule(view: View, jobs: Sequence[int]) -> list[Knobs]:
        order = sorted(jobs, key=lambda job: (-predicted_gain(view, job, every), job))
        rank = {job: at for at, job in enumerate(order)}
        return [{"link_priority": levels - 1 - rank[job] * levels // len(jobs)} for job in jobs]

    return rule


def predicted_gain(view: View, job: int, every: int) -> float:
    """By how much the loss (or error rate) falls in the next `every` microseconds at the pace that
    the job had so far, as a part of its first one; infinite before there are three reports."""
    curve = view.trials.get(job)
    if curve is None or len(curve.epochs) < POINTS_LEAST:
        return math.inf
    convergence = view.oracle.profile(view.jobs.models[view.jobs.model[job]]).convergence
    epochs, values = np.array(curve.epochs), np.array(curve.values)
    if convergence is not None:
        values = convergence.falling(values)
    kept = np.isfinite(values)
    if kept.sum() < POINTS_LEAST:
        return math.inf
    fitted = fit_loss(epochs[kept][-POINTS_MAX:], values[kept][-POINTS_MAX:])
    more = curve.last / max(view.ran(job), 1) * every
    fall = float(fitted.at(curve.last) - fitted.at(curve.last + more))
    return fall / max(abs(float(values[kept][0])), 1e-9)


def by_coflow(share: float) -> Rule:
    """Parrot: the job with the least bytes in a coflow (the push and the pull of a step), which is
    taken for the one that ends first, has weight for `share` of a link that all share; the others
    divide the rest evenly, so that nobody starves. The flows of a coflow go in proportion to their
    bytes and end together: that is how a job's transfers are flows here."""

    def rule(view: View, jobs: Sequence[int]) -> list[Knobs]:
        first = min(jobs, key=lambda job: (coflow(view, job), job), default=-1)
        heavy = share / (1.0 - share) * max(len(jobs) - 1, 1)
        return [{"link_weight": heavy if job == first else 1.0} for job in jobs]

    return rule


def coflow(view: View, job: int) -> float:
    """GB that the job was seen to send in a step; infinite where nothing is known of that."""
    steps = view.oracle.profile(view.jobs.models[view.jobs.model[job]]).steps
    if steps is None:
        return math.inf
    return sent_between_nodes(steps, max(int(view.jobs.size[job]) or int(view.jobs.gpus[job]), 1))
