"""Workers and parameter servers: the fewest seconds per step within a budget."""

from __future__ import annotations

from math import ceil, floor, isqrt


def ps_step(compute: float, transfer: float, workers: int, servers: int) -> float:
    """Seconds per synchronous step: a batch that takes one worker `compute` seconds is split, and
    gradients that take one server `transfer` seconds per worker are pushed and pulled."""
    return compute / workers + transfer * workers / servers


def best_split(
    compute: float, transfer: float, worker: float, server: float, budget: float,
    epsilon: float = 0.0,
) -> tuple[int, int]:  # fmt: skip
    """(workers, servers) of the least `ps_step`, each at least one, whose cost (`worker`, `server`
    each) is within `budget`; (0, 0) if not even one of each is (SMD, INFOCOM 2021).

    A sum of two ratios: the number of servers, the denominator of the second, runs over a grid of
    steps 1 + `epsilon` (0: all integers), and for each the best number of workers is known. The
    result is within a factor 1 + `epsilon` of the least.
    """
    best: tuple[float, int, int] | None = None
    servers = 1
    while worker + server * servers <= budget + 1e-9:
        most = floor((budget - server * servers) / worker + 1e-9)
        ideal = isqrt(int(compute * servers / transfer)) if transfer > 0 else most
        for workers in {min(max(ideal + more, 1), most) for more in (0, 1)}:
            found = ps_step(compute, transfer, workers, servers), workers, servers
            best = found if best is None else min(best, found)
        servers = max(servers + 1, ceil(servers * (1.0 + epsilon)))
    return (best[1], best[2]) if best is not None else (0, 0)
