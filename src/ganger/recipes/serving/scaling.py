"""How many replicas services have."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.mechanisms.scaling.replicas import Scaling, Threshold
from ganger.recipes.registry import Duration, Paper, Part, recipe

CLOUD = Paper("Threshold-based scaling of replicas", "a baseline", objective="cost, SLO")


@recipe(CLOUD, name="scale.threshold")
def threshold(up: Part = 0.8, down: Part = 0.3, cooldown: Duration = MINUTE) -> Policy:
    """Replicas by how busy they are: one more above `up`, one less below `down`.

    A service begins with as many replicas as its first role has workers, and keeps between the
    fewest and the most of that role. It holds nothing itself. Replicas start first come, first
    served; what is left is for the other recipe. After a change nothing changes for `cooldown`.
    """
    return Scaling("scale.threshold", Threshold(up, down, cooldown))
