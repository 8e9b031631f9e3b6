"""How many reports of trials a second of processor time simulates, by recipe.

    python benchmarks/tuning.py [CURVES [TASK]]

CURVES: LCBench's surrogate (TASK: an OpenML task), by default that in the folder that GANGER_TRACES
names. 250 trials, 8 at once; the median of five seeds, of each recipe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from ganger.lab.tuning.run import run_experiment
from ganger.workloads.curves.reading import read_curves
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.experiment.reading import checked

LCBENCH = Path("lcbench-surrogate", "lcbench_surrogate_curves.csv.gz")
RECIPES = (
    "tune.random",
    "tune.median",
    "tune.sha",
    "tune.hyperband",
    "tune.bohb",
    "tune.asha",
    "tune.asha(variant=promote)",
    "tune.pbt(trials=50)",
)


def main(path: Path, task: str) -> None:
    """Print a row for each recipe."""
    document = Document(FORMAT, "val_accuracy", mode="max", parallelism=8)
    experiment, table = checked(document, "benchmark"), read_curves(path, task)
    print("| recipe | trials | reports | decisions | reports a CPU second |")
    print("|:---|---:|---:|---:|---:|")
    for recipe in RECIPES:
        runs = [run_experiment(experiment, table, recipe, seed).metrics for seed in range(5)]
        speed = median(run["simulation"]["reports_per_cpu_second"] for run in runs)
        counts = [median(run[name] for run in runs) for name in ("trials", "reports")] + [
            median(run["simulation"]["decisions"] for run in runs)
        ]
        print(f"| `{recipe}` | {' | '.join(f'{count:,}' for count in counts)} | {speed:,.0f} |")


if __name__ == "__main__":
    named = sys.argv[1:] or [str(Path(os.environ["GANGER_TRACES"]) / LCBENCH)]
    main(Path(named[0]), named[1] if len(named) > 1 else "3945")
