"""The attained-service family: what a job has had decides, not what it will want."""

from __future__ import annotations

from enum import Enum

from ganger.core.books.ledger import Fit
from ganger.core.protocols import Policy
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import (
    By,
    Gittins,
    Levels,
    Lines,
    Order,
    Quanta,
    Then,
    attained_service,
    attained_time,
    first_start,
)
from ganger.mechanisms.ordering.periodic import every
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.place import ConsolidateIf, Place, sensitive_model, skewed_model
from ganger.recipes.registry import Count, Duration, Paper, Period, Positive, recipe
from ganger.recipes.training.attained.e_las import ByProgress, discounted, remaining_estimate
from ganger.recipes.training.attained.tiresias import Promoting

TIRESIAS = Paper(
    "Tiresias: A GPU Cluster Manager for Distributed Deep Learning",
    "Gu et al.",
    "NSDI",
    2019,
    "JCT",
)


class Attained(Enum):
    """What counts as attained."""

    SERVICE = "service"
    TIME = "time"


@recipe(TIRESIAS)
def las(
    attained: Attained = Attained.SERVICE, quantum: Period = 10 * MINUTE, walk: Walk = Walk.SKIP
) -> Policy:
    """Least attained service first, in its pure form: executed time x GPUs (2-D) or time (1-D).

    Compared in whole quanta (GPU-time for 2-D), so that equals take turns instead of thrashing.
    """
    formula = attained_service if attained is Attained.SERVICE else attained_time
    return QueuePolicy("las", Quanta(quantum, formula), walk, preempt=True)


@recipe(Paper("Multi-level feedback queue", "Corbato et al.", "AFIPS", 1962, "JCT"))
def mlfq(
    thresholds: tuple[Duration, ...] = (1 * HOUR, 10 * HOUR),
    starvation: Positive | None = None,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """A multi-level feedback queue on executed time; first come, first served inside a queue.

    A job falls to the end of the next queue once it has run for as long as the threshold says. A
    running job is preempted for higher queues only. `starvation`: a job that has waited so many
    times its executed time goes back to the top queue as if it were new.
    """
    lines = Lines(thresholds, attained_time, (), starvation)
    return Promoting(QueuePolicy("mlfq", lines, walk, preempt=True), lines)


class Index(Enum):
    """What ranks jobs inside a queue."""

    LEAST = "least"
    """Running jobs before waiting ones: Tiresias-L, for when nothing is known."""
    STARTED = "started"
    """First start: a job that comes back preempts a running equal that first started later."""
    ARRIVAL = "arrival"
    """Submission, as in the simulators of later papers; a job is then preempted by its equals."""
    GITTINS = "gittins"
    """The Gittins index: Tiresias-G, for when the distribution of service is known."""


@recipe(
    Paper("Bandit processes and dynamic allocation indices", "Gittins", "JRSS-B", 1979, "JCT"),
    reconstructed="service counts in whole quanta; the distribution is that of the finished jobs",
)
def gittins(
    sizes: tuple[Duration, ...] = (),
    step: Period | None = None,
    quantum: Period = 10 * MINUTE,
    refresh: Period = HOUR,
    attained: Attained = Attained.SERVICE,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """Highest Gittins index first: the likeliest to finish soon for what it will still cost.

    The index of attained service a is sup_D P(S - a <= D | S > a) / E[min(S - a, D) | S > a].
    `sizes` is the distribution of service S (GPU-time for 2-D); without it, that of the jobs
    finished so far, renewed every `refresh`. `step`: one fixed D, as the public Tiresias
    simulator has it (3250s). Equals go by first start, then by submission.
    """
    formula = attained_service if attained is Attained.SERVICE else attained_time
    index = Gittins(sizes, step, quantum, refresh, attained=formula)
    return QueuePolicy("gittins", Then(index, By((first_start,))), walk, preempt=True)


@recipe(TIRESIAS, reconstructed="Tiresias-G learns the distribution from the jobs finished so far")
def tiresias(
    thresholds: tuple[Duration, ...] = (3250 * SECOND, 7200 * SECOND, 18000 * SECOND),
    starvation: Positive | None = None,
    consolidate: bool = True,
    walk: Walk = Walk.SKIP,
    min_run: Duration = 0,
    index: Index = Index.LEAST,
    attained: Attained = Attained.SERVICE,
    step: Period = 3250 * SECOND,
    fit: Fit = Fit.BEST,
    interval: Period | None = None,
) -> Policy:
    """Tiresias-L: discretised two-dimensional least attained service.

    Attained service is GPUs x executed time (`attained=time`: executed time alone); the queues'
    thresholds are the public simulator's. A running job is preempted for higher queues only; as it
    falls to a lower one it stands behind all that wait there. `starvation` is the paper's
    PROMOTEKNOB: a job that has waited so many times its executed time starts over with nothing
    attained. With `consolidate`, models whose tensor sizes are skewed insist on the fewest nodes;
    others take any free GPUs; without, all are placed by `fit`. With `index=gittins` (Tiresias-G)
    jobs of one queue go by their Gittins index for the fixed `step` first; with `index=started` by
    their first start, and with `index=arrival` by submission, so that running jobs are preempted by
    their equals. With an `interval` it decides that often; without, whenever something changes.
    """
    formula = attained_service if attained is Attained.SERVICE else attained_time
    levels = Levels(
        thresholds, formula, (first_start,) if index is Index.STARTED else (), starvation
    )
    order: Order = levels
    if index is Index.GITTINS:
        order = Then(levels, Gittins(step=step, attained=formula), (first_start,))
    elif index is Index.LEAST:
        order = levels = Lines(thresholds, formula, (), starvation)
    queue = QueuePolicy(
        "tiresias",
        order,
        walk,
        preempt=True,
        place=ConsolidateIf(wants=skewed_model) if consolidate else Place(fit),
        min_run=min_run,
    )
    return every(interval, Promoting(queue, levels))


class Remaining(Enum):
    """How attained service and progress make an index."""

    ESTIMATE = "estimate"
    """Estimated remaining service, A (1 - r) / r."""
    DISCOUNT = "discount"
    """A (1 - r)."""


@recipe(
    Paper(
        "E-LAS: Design and Analysis of Completion-Time Agnostic Scheduling for Distributed Deep"
        " Learning Cluster",
        "Sultana et al.",
        "ICPP",
        2020,
        "JCT",
    ),
    needs="durations",
    reconstructed="how attained service and the epoch progress rate combine (the public text does"
    " not say); epochs are hundredths of the duration that the oracle expects",
)
def e_las(
    index: Remaining = Remaining.ESTIMATE,
    epochs: Count = 100,
    walk: Walk = Walk.SKIP,
    min_run: Duration = 0,
) -> Policy:
    """Epoch-based least attained service: of two jobs with equal service the one nearer to its end
    goes first.

    Progress r is the share of its epochs that a job has done, as of the last whole one, and
    `index` says how it weighs attained service A. Fresh jobs go first. Models that are slower over
    several nodes insist on the fewest nodes.
    """
    weigh = remaining_estimate if index is Remaining.ESTIMATE else discounted
    return QueuePolicy(
        "e-las",
        ByProgress(weigh, epochs),
        walk,
        preempt=True,
        place=ConsolidateIf(wants=sensitive_model),
        min_run=min_run,
    )
