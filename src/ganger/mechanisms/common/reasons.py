"""What several mechanisms say in the evidence of a `Reason`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ganger.core.plan import Reason
from ganger.core.units import NEVER, SECOND


def decides_at(time: int) -> dict[str, float]:
    """When the mechanism next decides by itself, as evidence; empty for NEVER."""
    return {"decides_at_s": time / SECOND} if time < NEVER else {}


def changed_by(reasons: Iterable[Reason], others: int) -> list[Reason]:
    """Reasons of jobs beside which another policy decides in the same plan, which may give GPUs
    back after the changes `others` (bits of `events`)."""
    return [
        msgspec.structs.replace(reason, until=reason.until | others)
        if others & ~reason.until
        else reason
        for reason in reasons
    ]
