"""What every recipe said on a day of why jobs wait, and what the tables hold at its end, is on
record.

A line of `said.txt` is a recipe, how many reasons its plans gave, and three fingerprints: of the
reasons in full with their evidence, of when the plans wanted to be asked again and after what, and
of the jobs table at the end. To change what is said, run
`PYTHONPATH=tests python tests/recipes/test_said.py` and commit `said.txt` with the reason.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ganger.recipes.registry import CATALOGUE
from recipes.days import storm
from recipes.test_decided import SMALL, fingerprint
from worlds import play

RECORD = Path(__file__).with_name("said.txt")
VARIANTS = [
    "fifo(walk=easy)",
    "fifo(walk=conservative)",
    "fifo(walk=skip)",
    "fifo(walk=tenant)",
    "srtf(min_run=10m)",
    "priority(walk=strict)",
    "philly(node_wait=10m,rack_wait=1m,full=0.5,min_run=20m)",
    "gavel(whole_steps=yes,barrier=yes,patience=2m,counters=yes,by_type=yes)",
]
"""Other walks down the queue, and rounds that wait for each other."""
RECIPES = [*(SMALL.get(name, name) for name in sorted(CATALOGUE)), *VARIANTS]


def said(recipe: str) -> str:
    """What a recipe said in a storm."""
    day = storm()
    run = play(recipe, day.works, day.cluster, day.setup, validate=False)
    plans = [plan for _, plan in run.diary.steps if plan is not None]
    reasons = [plan.reasons for plan in plans]
    jobs = run.jobs
    table = {name: getattr(jobs, name)[: jobs.n].tolist() for name in jobs.columns()}
    prints = [
        fingerprint(msgspec.json.encode(each))
        for each in (reasons, [(plan.wake, plan.until) for plan in plans], table)
    ]
    return " ".join([str(sum(map(len, reasons))), *prints])


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_says_what_is_on_record(recipe: str) -> None:
    lines = dict(line.split(maxsplit=1) for line in RECORD.read_text().splitlines())
    assert said(recipe) == lines[recipe]
    assert list(lines) == RECIPES


if __name__ == "__main__":
    RECORD.write_text("".join(f"{recipe} {said(recipe)}\n" for recipe in RECIPES))
