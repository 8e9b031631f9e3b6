"""How many replicas services have."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE, SECOND
from ganger.mechanisms.scaling.replicas import Asked, Concurrency, Fixed, Scaling, Threshold
from ganger.recipes.registry import Duration, Many, Paper, Part, Positive, recipe

CLOUD = Paper("Threshold-based scaling of replicas", "a baseline", objective="cost, SLO")
PEAK = Paper("Enough for the peak", "a baseline", objective="SLO")
SWAYAM = Paper(
    "Swayam: Distributed Autoscaling to Meet SLAs of Machine Learning Inference Services"
    " with Resource Efficiency",
    "Gujarati et al.",
    "Middleware",
    2017,
    "cost, SLO",
)
RAY = Paper("Ray Serve: autoscaling", "Anyscale", "software", 2026, "latency, cost")


@recipe(PEAK, name="scale.static-peak")
def static_peak(replicas: Many = 0) -> Policy:
    """As many replicas all the time as the peak needs.

    `replicas` 0 stands for the most that a service allows. Every recipe
    that scales is measured against its cost.
    """
    return Scaling("scale.static-peak", Fixed(replicas))


@recipe(RAY, name="scale.reactive")
def reactive(
    target: Positive = 2.0,
    look_back: Duration = 30 * SECOND,
    up_delay: Duration = 30 * SECOND,
    down_delay: Duration = 10 * MINUTE,
    up: Positive = 1.0,
    down: Positive = 1.0,
) -> Policy:
    """As many replicas as give each of them `target` open requests, as in Ray Serve.

    The mean of the last `look_back` counts. More replicas are asked for once that was wanted for
    `up_delay` without a break, fewer after `down_delay`. `up` and `down` are the part of the
    difference that is made at once. A service goes to zero only where its least is none.
    """
    rule = Concurrency(target, look_back, up_delay, down_delay, up, down)
    return Scaling("scale.reactive", rule)


@recipe(CLOUD, name="scale.threshold")
def threshold(up: Part = 0.8, down: Part = 0.3, cooldown: Duration = MINUTE) -> Policy:
    """Replicas by how busy they are: one more above `up`, one less below `down`.

    A service begins with as many replicas as its first role has workers, and keeps between the
    fewest and the most of that role. It holds nothing itself. Replicas start first come, first
    served; what is left is for the other recipe. After a change nothing changes for `cooldown`.
    """
    return Scaling("scale.threshold", Threshold(up, down, cooldown))


@recipe(
    SWAYAM,
    name="scale.asked",
    reconstructed="replicas come and go when a window is reported, where Swayam's frontends set"
    " backends up themselves and backends end by themselves",
)
def asked() -> Policy:
    """As many replicas as a service's router asks for; those that it gives back go.

    It is the other half of routers that know how many lanes they want, as `--router swayam` does.
    Only replicas go that their router has given back, and no service has fewer than the fewest of
    its first role. Other routers say nothing, and keep what they have.
    """
    return Scaling("scale.asked", Asked(), grants=True)
