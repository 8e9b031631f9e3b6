"""Live runs beside what the simulator says of them: `ganger parity`, written to `parity.md`.

    python benchmarks/parity.py --runs 5

The page is written after every round of all recipes, so that it can be watched. With `--torch
PYTHON` (one that has PyTorch) the section on jobs that train is measured instead of the rest.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from provenance import NOTES, SAMPLE, made, write

from ganger.lab.live.parity import (
    RECIPES,
    TRAINING_RECIPES,
    Parity,
    Study,
    columns,
    cores,
    told,
)
from ganger.lab.live.run import Training

SECTION = "## Jobs that train"
TRAINING_NOTES = """
{jobs} jobs that train a small network with PyTorch, one core each and never more at once than
cores ({cores}), for as many steps as take 0.3 to 3 s of CPU time. How long a step takes is for the
machine to say, and what else it does: a run can be foretold no better than the live runs agree
(*live spread*). *error*: the simulator gets how long each job computed in that very run; *with
other runs' costs*: the mean of the other runs.
"""

MEANING = """
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
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--torch", default="", metavar="PYTHON")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "parity.md")
    given: Any = parser.parse_args()
    training = Training.measured(given.torch) if given.torch else None
    recipes = TRAINING_RECIPES if training else RECIPES
    jobs = given.jobs or (20 if training else 100)
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), jobs, cores() if training else 8, training=training)
        for run in range(given.runs):
            found = study.run(recipes, 1, lambda *one: print(told(*one), flush=True))
            loads.append(os.getloadavg()[2])
            how = f"beside other work (load average {sum(loads) / len(loads):.1f})"
            text = markdown(found, jobs, run + 1, how, training is not None)
            write(given.output, joined(given.output, text, training is not None))
    print(text)


def _text(page: Path) -> str:
    """What the page says now, without notes and sample."""
    return (page.read_text() if page.exists() else "").partition(NOTES)[0].partition(SAMPLE)[0]


def joined(page: Path, text: str, training: bool) -> str:
    """The page with this part of it replaced."""
    paced, _, trained = _text(page).partition(SECTION)
    if training:
        return f"{paced.rstrip()}\n\n{text}"
    return f"{text}\n{SECTION}{trained}" if trained else text


def markdown(found: list[Parity], jobs: int, runs: int, how: str, training: bool) -> str:
    """The page, or the section on jobs that train."""
    rows = [dict(columns(one)) for one in found]
    titles = list(rows[0])
    notes = TRAINING_NOTES.format(jobs=jobs, cores=cores()) if training else MEANING
    lines = [
        SECTION if training else "# Live equals simulated",
        "",
        f"Made by {made()}, {how}: Python"
        f" {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}."
        f" {jobs} jobs, {cores() if training else 8} GPUs, {runs} runs of each recipe.",
        notes,
        "| | " + " | ".join(row[titles[0]] for row in rows) + " |",
        "|:---|" + "---:|" * len(rows),
    ]
    lines += [f"| {title} | {' | '.join(row[title] for row in rows)} |" for title in titles[1:]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
