"""How much of the large counts `make soak` runs: all, or the part that GANGER_SOAK says."""

from __future__ import annotations

import os

PART = float(os.environ.get("GANGER_SOAK", "1"))


def many(count: int) -> int:
    """`count`, or that part of it; at least one."""
    return max(1, round(count * PART))
