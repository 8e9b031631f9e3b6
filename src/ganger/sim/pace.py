"""The speed of a job that chooses its batch size: measured step times x statistical efficiency.

Its speed changes with progress, because the gradient noise does: it is constant between the
starts of `Goodput.starts`. At each of them the job picks the best batch size anew.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Goodput, StepTimes
from ganger.estimate.goodput import batches, computing_time, efficiency, step_time

Floats = NDArray[np.float64]
_GRID = 24
"""Local batch sizes, in geometric steps, at which step times are taken beside the measured ones."""


class Pace:
    """Speeds of one application on one GPU type by placement, relative to one GPU of the reference
    type at the batch size M0. `gpu_type`: one of `Goodput.by_type`, "" for the reference type."""

    def __init__(self, goodput: Goodput, gpu_type: str = "") -> None:
        self._reference = goodput.batch / goodput.alone()
        if gpu_type:
            own = goodput.by_type[gpu_type]
            goodput = msgspec.structs.replace(goodput, local=own.local, times=own.times)
        self.goodput = goodput
        self.starts = np.array(goodput.starts)
        seen = [local for measured in goodput.times.values() for local in measured.local]
        self._local = np.unique([*np.geomspace(*goodput.local, _GRID), *seen])
        self._speeds: dict[tuple[int, ...], Floats] = {}
        self._even: dict[tuple[int, int], Floats] = {}
        self._noise = np.array(goodput.noise)
        if goodput.times:
            self._fill_gaps(goodput.times)

    def _fill_gaps(self, times: dict[str, StepTimes]) -> None:
        """Step times over (nodes, GPUs), linear between what was measured, else the nearest."""
        from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator  # slow to import

        by_scale: dict[tuple[int, int], list[Floats]] = {}
        for key, measured in times.items():
            by_scale.setdefault(_scale_of(key), []).append(self._on_grid(measured))
        points = np.array(list(by_scale), np.float64)
        values = np.array([np.mean(tables, axis=0) for tables in by_scale.values()])
        flat = len(points) < 3 or np.linalg.matrix_rank(points - points[0]) < 2
        self._between = None if flat else LinearNDInterpolator(points, values, rescale=True)
        self._nearest = NearestNDInterpolator(points, values, rescale=not flat)

    def _on_grid(self, measured: StepTimes) -> Floats:
        """Rows: seconds per step, and of those computing, over the grid of local batches."""
        step = np.interp(self._local, measured.local, measured.step)
        sync = np.interp(self._local, measured.local, measured.sync)
        return np.stack([step, np.maximum(step - sync, 1e-9)])

    def _times(self, counts: tuple[int, ...]) -> Floats:
        """Rows of `_on_grid` for `counts`, GPUs per node ascending."""
        goodput, nodes, gpus = self.goodput, len(counts), sum(counts)
        if goodput.times:
            for key in ("-".join(map(str, counts)), f"{nodes}/{gpus}"):
                if key in goodput.times:
                    return self._on_grid(goodput.times[key])
            if self._between is not None:
                found: Floats = self._between(np.array([[nodes, gpus]], np.float64))
                if np.isfinite(found).all():
                    return found.reshape(2, -1)
            nearest: Floats = self._nearest(np.array([[nodes, gpus]], np.float64))
            return nearest.reshape(2, -1)
        assert goodput.model is not None
        step = step_time(goodput.model, nodes, gpus, self._local)
        return np.stack([step, computing_time(goodput.model, self._local)])

    def speeds(self, counts: tuple[int, ...]) -> Floats:
        """The speed on `counts` GPUs per node, from each of `starts` on, at the best batch."""
        counts = tuple(sorted(counts))
        found = self._speeds.get(counts)
        if found is None:
            found = self._speeds[counts] = self._best(counts)
        return found

    def even(self, nodes: int, gpus: int) -> Floats:
        """`speeds` of `gpus` GPUs spread as evenly as can be over `nodes`."""
        nodes = max(min(nodes, gpus), 1)
        found = self._even.get((nodes, gpus))
        if found is None:
            share, more = divmod(gpus, nodes)
            found = self.speeds((share,) * (nodes - more) + (share + 1,) * more)
            self._even[nodes, gpus] = found
        return found

    def _best(self, counts: tuple[int, ...]) -> Floats:
        goodput = self.goodput
        step, computing = self._times(counts)
        ways = batches(goodput, sum(counts))
        took = np.interp(ways.local, self._local, step)
        took = took + ways.extra * np.interp(ways.local, self._local, computing)
        value = ways.total / took * efficiency(self._phi(ways.total), goodput.batch, ways.total)
        out: Floats = value.max(axis=1) / self._reference
        return out

    def _phi(self, batch: Floats) -> Floats:
        """The noise scale at each start (rows) and batch size (columns), log-linear between."""
        measured = np.log(self.goodput.batches)
        return np.array([np.interp(np.log(batch), measured, column) for column in self._noise.T])

    def at(self, share: float) -> int:
        """Which of `starts` holds once `share` of the work is done."""
        return int(np.searchsorted(self.starts, share + 1e-9, "right")) - 1


def _scale_of(key: str) -> tuple[int, int]:
    """Nodes and GPUs of a key of `Goodput.times`."""
    if "/" in key:
        nodes, gpus = key.split("/")
        return int(nodes), int(gpus)
    counts = [int(part) for part in key.split("-")]
    return len(counts), sum(counts)


def counts_of(placement: Any) -> tuple[int, ...]:
    """GPUs per node of a placement."""
    by_node: dict[int, int] = {}
    for slot in placement:
        by_node[slot.node] = by_node.get(slot.node, 0) + slot.devices.bit_count()
    return tuple(sorted(count for count in by_node.values() if count))
