"""Rows of the pages of figures are those that the code makes now: of each page the cheap ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACES = os.environ.get("GANGER_TRACES", "")
REAL = [
    pytest.mark.traces,
    pytest.mark.skipif(not TRACES, reason="GANGER_TRACES is not set"),
]


@pytest.mark.parametrize(("page", "command"), [
    pytest.param("sia.md", ["sia.py", TRACES, "--workload", "1"], marks=REAL),
    pytest.param("pollux.md", ["pollux.py", TRACES, "--rows", "--workload", "3"], marks=REAL),
])  # fmt: skip
def test_a_row_of_a_page_is_what_its_command_prints(page: str, command: list[str]) -> None:
    script, *arguments = command
    printed = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip
    assert printed
    stated = (ROOT / "benchmarks" / page).read_text().splitlines()
    assert [line for line in printed if line not in stated] == []
