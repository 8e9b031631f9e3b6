"""How two recipes, one for services and one for all other jobs, become one policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ganger.core.protocols import Policy


@dataclass(frozen=True)
class Sharing:
    """A rule by which services and all other jobs share a cluster: `join(serving, training)` is the
    policy of both. `named`: the nodes that it has for services, by their pool or a label; "": it
    knows none. `notice`: within so many microseconds a node on loan is back; -1: none ever is."""

    name: str
    join: Callable[[Policy, Policy], Policy]
    named: str = ""
    notice: int = -1
