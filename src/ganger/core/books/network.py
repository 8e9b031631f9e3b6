"""How long moving gradients takes: the named models behind every placement argument."""

from __future__ import annotations

from typing import Any

import numpy as np


def one_way(size: float, bandwidth: Any) -> Any:
    """Seconds to send `size` GB once over `bandwidth` GB/s (bytes, not bits)."""
    return size / bandwidth


def ring_all_reduce(size: float, bandwidth: Any, workers: Any) -> Any:
    """Seconds to sum `size` GB over a ring of `workers`: 2 (n - 1) / n times the size moves."""
    return 2 * (workers - 1) / workers * one_way(size, bandwidth)


def parameter_servers(size: float, bandwidth: Any, workers: Any, servers: int) -> Any:
    """Seconds for each of `workers` to push `size` GB to `servers`, which share them out, and to
    pull the sum: 2 n / p times the size passes each server's link."""
    return 2 * workers / servers * one_way(size, bandwidth)


def hierarchical(size: float, inner: Any, outer: Any, workers: Any, per_node: int) -> Any:
    """Seconds to sum `size` GB in each node over a ring of its workers at `inner` GB/s, then over a
    ring of nodes at `outer`."""
    inside = np.minimum(workers, per_node)
    nodes = np.ceil(workers / per_node)
    return ring_all_reduce(size, inner, inside) + ring_all_reduce(size, outer, nodes)
