"""What several mechanisms say in the evidence of a `Reason`."""

from __future__ import annotations

from ganger.core.units import NEVER, SECOND


def decides_at(time: int) -> dict[str, float]:
    """When the mechanism next decides by itself, as evidence; empty for NEVER."""
    return {"decides_at_s": time / SECOND} if time < NEVER else {}
