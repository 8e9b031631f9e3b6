"""How a running job gets other GPUs, and what that costs: five published protocols."""

from __future__ import annotations

from typing import NamedTuple

from ganger.core.errors import BadInput
from ganger.core.units import SECOND


class Protocol(NamedTuple):
    """A way to rescale. `pause`: microseconds in which nobody computes; None for the job's own
    checkpoint and restore. `ready`: before it grows, new workers get ready for so long while the
    old ones go on as before. `overhead`: share of the speed that it costs all the time.
    `splicing`: on fewer GPUs than it asks for a job keeps all its workers, which take turns, and
    each change from one to another takes so much of a step (see `estimate.sharing.splicing`); None:
    it has fewer workers."""

    pause: int | None = None
    ready: int = 0
    overhead: float = 0.0
    splicing: float | None = None
    source: str = ""


PROTOCOLS: dict[str, Protocol] = {
    "stop-restart": Protocol(source="save, stop, start again, load: the job's own costs"),
    "side-car": Protocol(
        5 * SECOND, source="Wang et al., SC 2020: restart from memory beside a prepared process;"
        " 5 s assumed, against 60 s for a new pod"
    ),
    "stop-free": Protocol(
        1 * SECOND, 20 * SECOND, source="EDL, TPDS 2022: below 1 s for workers that train, 20 s for"
        " newcomers to build their context beside them"
    ),
    "io-free": Protocol(
        1 * SECOND, source="Elan, ICDCS 2020: about 1 s, state copied from GPU to GPU"
    ),
    "device-proxy": Protocol(
        30 * SECOND, 0, 0.03, 0.03, "Singularity, 2022: tens of seconds, about 3 % all the time;"
        " 3 % of a step for each change of replicas assumed"
    ),
}  # fmt: skip
"""By name. Where a source gives a range or an order of magnitude, the figure is ours."""


def protocol(name: str) -> Protocol:
    """The protocol of that name, "" for stop and restart. Raises BadInput."""
    found = PROTOCOLS.get(name or "stop-restart")
    if found is None:
        raise BadInput(f"no rescale protocol {name!r}", mend=f"use {', '.join(PROTOCOLS)}")
    return found
