"""Beside Syne Tune: do simulated searches find the same, and how fast are they simulated?

    make peers      # or: python benchmarks/searches.py

The same table of curves, the same scheduler, and as many trials at once on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from provenance import ROOT, made, write

from ganger.core.units import SECOND
from ganger.lab.tuning.run import run_experiment
from ganger.workloads.curves.reading import read_curves
from ganger.workloads.curves.table import CurveTable
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.experiment.reading import checked

PAGE: Final = Path(__file__).parent / "searches.md"
CURVES: Final = Path("lcbench-surrogate", "lcbench_surrogate_curves.csv.gz")
TRIALS, SPEED_SEEDS, SHUFFLES = 250, 5, 20_000


class Kind(NamedTuple):
    """A scheduler as both sides name it; `until`: how long searches are compared (seconds)."""

    name: str
    ours: str
    longest: int
    workers: int
    until: int


KINDS: Final = (
    Kind("asha stop", "tune.asha", 52, 8, 400),
    Kind("asha promote", "tune.asha(variant=promote,beyond=true)", 52, 8, 400),
    Kind("hyperband", "tune.hyperband(rounds=5)", 27, 1, 1200),
)


RANDOM: Final = Kind("random", "tune.random", 52, 8, 0)
"""Timed only: what is found is the table's."""


def theirs(peer: str, table: CurveTable, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What Syne Tune answers. Raises CalledProcessError where it does not run."""
    values = []
    for row in range(len(table)):
        curve = table.curve(row)
        ends = [end / SECOND for end in curve.ends]
        values.append(list(zip(curve.values["val_accuracy"], ends, strict=True)))
    python = ROOT / ".peers" / peer / "bin" / "python"
    done = subprocess.run(
        [python, Path(__file__).parent / "peers" / "runs_of_syne.py"],
        input=json.dumps({"values": values, "runs": runs}),
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def asked(kind: Kind, seed: int, *, timed: bool) -> dict[str, Any]:
    """A run of theirs; where it is `timed`, until all trials are over and with their default of 5 s
    between two looks, else with a tenth of a second."""
    return {
        "name": kind.name,
        "longest": kind.longest,
        "seed": seed,
        "eta": 3,
        "sleep": 0 if timed else 0.1,
        "until": 0 if timed else kind.until,
        "trials": TRIALS,
        "workers": kind.workers,
    }


def ours(kind: Kind, table: CurveTable, seed: int, *, timed: bool) -> Any:
    """The same run of ours."""
    document = Document(
        FORMAT,
        "val_accuracy",
        mode="max",
        parallelism=kind.workers,
        epochs=float(kind.longest),
        deadline=None if timed else f"{kind.until}s",
    )
    return run_experiment(checked(document, "searches"), table, kind.ours, seed)


def best_at(rows: list[tuple[float, float]], times: NDArray[np.float64]) -> list[float]:
    """The best value by each time; 0 where there is none yet."""
    return [max((value for at, value in rows if at <= time), default=0.0) for time in times]


def differs(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The probability that two means differ as much by chance: a permutation test."""
    both, count = np.concatenate([one, other]), len(one)
    draw = np.random.default_rng(0)
    seen = abs(one.mean() - other.mean())
    far = 0
    for _ in range(SHUFFLES):
        mixed = draw.permutation(both)
        far += abs(mixed[:count].mean() - mixed[count:].mean()) >= seen - 1e-12
    return (far + 1) / (SHUFFLES + 1)


def holm(values: list[float]) -> list[float]:
    """Probabilities, corrected by Holm for the number of tests."""
    order, largest = sorted(range(len(values)), key=values.__getitem__), 0.0
    corrected = [0.0] * len(values)
    for rank, at in enumerate(order):
        largest = max(largest, min(values[at] * (len(values) - rank), 1.0))
        corrected[at] = largest
    return corrected


def speeds(table: CurveTable) -> list[str]:
    """A row for each scheduler and release, timed one after the other."""
    rows = []
    for peer, kind in (("syne", KINDS[0]), *(("syne14", kind) for kind in (*KINDS, RANDOM))):
        seeds = range(SPEED_SEEDS)
        mine = [
            ours(kind, table, seed, timed=True).metrics["simulation"]["reports_per_cpu_second"]
            for seed in seeds
        ]
        answer = theirs(peer, table, [asked(kind, seed, timed=True) for seed in seeds])
        other = median(each["reports"] / each["cpu"] for each in answer["runs"])
        rows.append(
            f"| {kind.name} | {answer['version']} | {other:,.0f} | {median(mine):,.0f} |"
            f" {median(mine) / other:.1f} |"
        )
        print(rows[-1], flush=True)
    return rows


def equality(table: CurveTable, seeds: int) -> list[str]:
    """A row for each scheduler and time."""
    tests = list[tuple[Kind, float, float, float, float]]()
    for kind in KINDS:
        times = kind.until * np.arange(1, 11) / 10
        runs = [asked(kind, seed, timed=False) for seed in range(seeds)]
        answer = theirs("syne14", table, runs)
        other = np.array([best_at(each["rows"], times) for each in answer["runs"]])
        mine = np.array(
            [
                best_at(ours(kind, table, seed, timed=False).best_by_time, times)
                for seed in range(seeds)
            ]
        )
        for at, time in enumerate(times):
            p = differs(mine[:, at], other[:, at])
            tests.append((kind, float(time), other[:, at].mean(), mine[:, at].mean(), p))
    corrected = holm([p for *_, p in tests])
    return [
        f"| {kind.name} | {time:.0f} | {other:.3f} | {mine:.3f} | {p:.3f} | {by_holm:.3f} |"
        for (kind, time, other, mine, p), by_holm in zip(tests, corrected, strict=True)
    ]


HEAD = """# Simulated searches beside Syne Tune

Made by `make peers`: {made}.

The table is task 3945 of LCBench's surrogate, 250 configurations, which Syne Tune reads as a
blackbox of the user's. The last release with promotion and synchronous Hyperband is 0.14.2; 0.16
has the stopping variant only. Its promotion goes by rank alone, as ours with `beyond`. ASHA runs 8
trials at once, up to 52 epochs. Hyperband runs one at a time, up to 27 epochs: with more, Syne Tune
begins the next bracket where ours waits.

## Speed

Reports a CPU second, medians of {seeds_timed} seeds, until all 250 configurations were tried (of
hyperband 5 rounds of ours). Syne Tune looks every 5 simulated seconds, its default; reading the
table is not counted.

| scheduler | Syne Tune | its reports a CPU second | ours | ours / its |
|:---|:---|---:|---:|---:|
{speeds}

## What is found

The mean best accuracy of {seeds} seeds at ten times, a permutation test of the difference
({shuffles:,} shuffles), and Holm's correction over all rows. Syne Tune looks every 0.1 s here.

| scheduler | seconds | Syne Tune | ours | p | by Holm |
|:---|---:|---:|---:|---:|---:|
{equality}
"""


def main() -> None:
    """Print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    if "GANGER_TRACES" not in os.environ:
        sys.exit("searches.py: set GANGER_TRACES: the folder that has lcbench-surrogate")
    table = read_curves(Path(os.environ["GANGER_TRACES"]) / CURVES, "3945")
    timed, found = speeds(table), equality(table, args.seeds)
    print("\n".join(found))
    if not args.no_write:
        page = HEAD.format(
            made=made(),
            seeds_timed=SPEED_SEEDS,
            speeds="\n".join(timed),
            seeds=args.seeds,
            shuffles=SHUFFLES,
            equality="\n".join(found),
        )
        write(PAGE, page)


if __name__ == "__main__":
    main()
