"""Batches on lanes, as the pages of requests and of jobs draw them."""

from __future__ import annotations

from typing import Any, Final

from ganger.lab.serving.watching import Box, Watched

_MOST_LANES: Final = 64


def drawn_lanes(watched: Watched) -> dict[str, Any] | None:
    """Boxes as numbers; None where there are none, or too many lanes to draw."""
    used = {box.lane for boxes in watched.stretches.values() for box in boxes}
    if not used or len(used) > _MOST_LANES:
        return None
    reasons: dict[str, int] = {}

    def numbers(box: Box) -> list[int | str]:
        reason = reasons.setdefault(box.reason, len(reasons))
        return [
            box.lane,
            box.began,
            box.ended - box.began,
            box.model,
            box.size,
            reason,
            box.outcome,
        ]

    stretches = [
        {"name": name, "boxes": [numbers(box) for box in boxes]}
        for name, boxes in watched.stretches.items()
    ]
    return {
        "stretches": stretches,
        "reasons": list(reasons),
        "models": watched.models,
        "types": [f"{name} copy" if copies else name for name, copies in watched.lanes],
    }
