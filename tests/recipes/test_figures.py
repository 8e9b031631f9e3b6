"""Rows of the pages of figures are those that the code makes now: of each page the cheap ones."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRACES = os.environ.get("GANGER_TRACES", "")
REAL = [
    pytest.mark.traces,
    pytest.mark.skipif(not TRACES, reason="GANGER_TRACES is not set"),
]


def printed(script: str, *arguments: str) -> list[str]:
    """What a benchmark prints, line by line."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip


@pytest.mark.parametrize(("page", "command"), [
    pytest.param("sia.md", ["sia.py", TRACES, "--workload", "1"], marks=REAL),
    pytest.param("pollux.md", ["pollux.py", TRACES, "--rows", "--workload", "3"], marks=REAL),
])  # fmt: skip
def test_a_row_of_a_page_is_what_its_command_prints(page: str, command: list[str]) -> None:
    made = printed(*command)
    assert made
    stated = (ROOT / "benchmarks" / page).read_text().splitlines()
    assert [line for line in made if line not in stated] == []


def test_cheap_rows_of_the_effects_are_what_they_were() -> None:
    """All cells but the last, which says by which code the row was made."""
    stated = (ROOT / "docs" / "effects.md").read_text().splitlines()
    rows = {line.split(" | ")[0]: line.split(" | ")[:-1] for line in stated}
    made = printed("effects", "--only", "dragon,ffdl,gandiva-fair", "--no-write")
    assert len(made) == 3
    for line in made:
        cells = line.partition(" <!--")[0].split(" | ")[:-1]
        assert cells == rows[cells[0]]


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rule of the table."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("effects.common").verdict


def test_an_effect_holds_if_half_of_it_is_there_at_least(verdict: Any) -> None:
    assert verdict((1.8, 3.0)) == "yes"
    assert verdict((1.7, 3.0)) == "direction only"
    assert verdict((1.8, 3.0), (1.02, 2.0)) == "direction only"
    assert verdict((1.8, 3.0), (1.01, 2.0)) == "**no**"
    assert verdict((0.5, 3.0)) == "**no**"
