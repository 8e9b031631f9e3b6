"""Live runs beside what the simulator says of them: `ganger parity`, written to `parity.md`.

    python benchmarks/parity.py --runs 5 --date 2026-01-31

The page is written after every round of all recipes, so that it can be watched.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from ganger.lab.parity import RECIPES, Parity, Study, columns, told

NOTES = """
Each run: the jobs as processes on the local engine (one agent, simulated GPUs), each of 0.3 to 3 s,
its steps paced by a timer, submitted by a Poisson process. What starting, saving, restoring and
finishing took is measured in the run; the simulator gets the means, weighted by GPUs, and the same
submissions.
Every run's log is decided again (`replayed`: steps whose plans are the same).

*error*: |simulated / live - 1| of the mean JCT, median of the runs; the goal is 5 %. *worst*: the
largest of the runs. *with other runs' costs*: the same error where the simulator gets the mean
costs of the recipe's other runs instead of this run's own. *live spread*: (largest - smallest) /
median of the live mean JCTs. *spread with costs +-5 %*: the same of what the simulator says when
all costs are scaled alike, by nine factors from 0.95 to 1.05: large where a small change makes
other decisions, and those make others. *same order*: share of all pairs of jobs that finish in the
same order live and simulated; *live to live*: the same between two live runs. Costs are means over
all runs.
"""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--date", default="undated")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "parity.md")
    given: Any = parser.parse_args()
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), given.jobs)
        for run in range(given.runs):
            found = study.run(RECIPES, 1, lambda *one: print(told(*one), flush=True))
            loads.append(os.getloadavg()[2])
            text = markdown(found, given.jobs, run + 1, given.date, sum(loads) / len(loads))
            given.output.write_text(text)
    print(text)


def markdown(found: list[Parity], jobs: int, runs: int, date: str, load: float) -> str:
    """The page."""
    rows = [dict(columns(one)) for one in found]
    titles = list(rows[0])
    lines = [
        "# Live equals simulated", "",
        f"`python benchmarks/parity.py --runs {runs}`, {date}, beside other work (load average"
        f" {load:.1f}): Python {platform.python_version()}, {os.cpu_count()} cores,"
        f" {platform.machine()}. {jobs} jobs, 8 GPUs, {runs} runs of each recipe.",
        NOTES, "| | " + " | ".join(row[titles[0]] for row in rows) + " |",
        "|:---|" + "---:|" * len(rows),
    ]  # fmt: skip
    lines += [f"| {title} | {' | '.join(row[title] for row in rows)} |" for title in titles[1:]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
