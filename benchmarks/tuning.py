"""How many reports of trials a CPU second simulates, by recipe: 250 trials, 8 at once.

Figures are medians of five seeds.
"""

from __future__ import annotations

import argparse
import os
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


def main() -> None:
    """Print a row for each recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "curves",
        nargs="?",
        type=Path,
        help="LCBench's surrogate; by default that in the folder that GANGER_TRACES names",
    )
    parser.add_argument("--task", default="3945", help="an OpenML task of the table")
    args = parser.parse_args()
    if args.curves is None and "GANGER_TRACES" not in os.environ:
        parser.error("name the curves, or set GANGER_TRACES")
    path = args.curves or Path(os.environ["GANGER_TRACES"]) / LCBENCH
    document = Document(FORMAT, "val_accuracy", mode="max", parallelism=8)
    experiment, table = checked(document, "benchmark"), read_curves(path, args.task)
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
    main()
