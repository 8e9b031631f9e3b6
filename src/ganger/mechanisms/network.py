"""How long moving data takes: the named models behind every placement argument."""

from __future__ import annotations


def one_way(size: float, bandwidth: float) -> float:
    """Seconds to send `size` GB once over `bandwidth` GB/s (bytes, not bits)."""
    return size / bandwidth


def ring_all_reduce(size: float, bandwidth: float, workers: int) -> float:
    """Seconds to sum `size` GB over a ring of `workers`: 2 (n - 1) / n times the size moves."""
    return 2 * (workers - 1) / workers * size / bandwidth
