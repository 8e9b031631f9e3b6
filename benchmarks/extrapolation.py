"""How often what a trial reports last lies in the 80 % interval that was extrapolated before.

    python benchmarks/extrapolation.py [--curves N]

Needs the folder that GANGER_TRACES names. DRIFT was chosen on every other task of LCBench, from the
first on; the other tasks, and all of TaskSet, did not choose it, though
their figures were printed beside.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ganger.estimate.learning_curves import extrapolate
from ganger.workloads.curves.reading import read_curves
from ganger.workloads.curves.table import CurveTable

LCBENCH = Path("lcbench-surrogate", "lcbench_surrogate_curves.csv.gz")
TASKS = [
    3945, 7593, 34539, 126025, 126026, 126029, 146212, 167104, 167149, 167152, 167161, 167168,
    167181, 167184, 167185, 167190, 167200,
]  # fmt: skip
SEEN = (5, 10, 20, 35)
"""Reports that are known, of 52 and 50."""


def tables(traces: Path) -> Iterator[tuple[str, CurveTable, str]]:
    """By name of a set: a table, and its metric."""
    path = traces / LCBENCH
    for at, task in enumerate(TASKS):
        kind = "LCBench, not seen" if at % 2 else "LCBench, seen"
        yield kind, read_curves(path, str(task)), "val_accuracy"
    for file in sorted((traces / "taskset-curves").glob("*.csv.gz")):
        yield "TaskSet, not seen", read_curves(file), "valid_loss"


def covered(table: CurveTable, metric: str, most: int) -> NDArray[np.float64]:
    """A row a curve, a column for each of SEEN: 1 where the last report is inside."""
    rng, rows = np.random.default_rng(0), []
    for row in rng.permutation(len(table)).tolist():
        curve = table.curve(row)
        values = np.array(curve.values[metric])
        if len(values) < 50 or not np.isfinite(values).all():
            continue
        found = []
        for count in SEEN:
            told = extrapolate(curve.epochs[:count], values[:count])
            found.append(0.1 <= told.below(float(values[-1]), curve.epochs[-1]) <= 0.9)
        rows.append(found)
        if len(rows) == most:
            break
    return np.array(rows, float)


def main() -> None:
    """Print a row for each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--curves", type=int, default=100, help="the most of each table")
    args = parser.parse_args()
    if "GANGER_TRACES" not in os.environ:
        parser.error("set GANGER_TRACES")
    sets: dict[str, list[NDArray[np.float64]]] = {}
    for kind, table, metric in tables(Path(os.environ["GANGER_TRACES"])):
        sets.setdefault(kind, []).append(covered(table, metric, args.curves))
    heads = " | ".join(f"after {count}" for count in SEEN)
    print(f"| curves | tables | curves | {heads} | all | least and most of a table |")
    print(f"|:---|---:|---:|{'---:|' * (len(SEEN) + 2)}")
    for kind, found in sets.items():
        each = np.array([rows.mean() for rows in found])
        columns = " | ".join(f"{part:.0%}" for part in np.concatenate(found).mean(axis=0))
        count = sum(map(len, found))
        print(
            f"| {kind} | {len(found)} | {count} | {columns} | {np.concatenate(found).mean():.0%}"
            f" | {each.min():.0%} to {each.max():.0%} |"
        )


if __name__ == "__main__":
    sys.exit(main())
