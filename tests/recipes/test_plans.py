"""The plans of the recipes are those that were recorded (`benchmarks/plans.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ganger.recipes.registry import CATALOGUE, parse

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "benchmarks/plans.py"
ELSEWHERE = {"allox", "dorm", "genie", "helios-ces", "ones", "optimus", "smd", "spin", "synergy"}
"""Recipes that solve, fit or draw in floating point: processors may differ in the last digit."""


def test_no_plan_is_another_one_than_was_recorded() -> None:
    names = {name for name in CATALOGUE if "throughputs" not in parse(name)[0].needs}
    recipes = sorted(names - ELSEWHERE)
    assert len(recipes) >= 20
    done = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            "--recipes",
            ",".join(recipes),
            "--worlds",
            "3,7",
            "--workers",
            "1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    differ = [line for line in done.stdout.splitlines() if "DIFFERS" in line]
    assert done.returncode == 0, f"{differ} {done.stderr}: `--write` records plans that may differ"
