"""The programs on docs/tuning.md and docs/coming-from-tuners.md run as they stand there."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.commands import ROOT, blocks
from ganger.client.connection import Client
from ganger.core.tuning.space import Parameter, Space

pytestmark = pytest.mark.long

PROGRAMS = blocks("docs/tuning.md", "python")
SAYS = {"optuna": "6 trials, the best {'rate': ", "sklearn": "'n_estimators': 27} 0.9"}


@pytest.mark.parametrize("library", SAYS)
def test_a_program_does_what_the_page_says(daemon: Client, tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    (program,) = (text for text in PROGRAMS if f"ganger.integrations.{library} " in text)
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert SAYS[library] in done.stdout, done.stderr


PEERS = runpy.run_path(str(ROOT / "benchmarks" / "peers" / "pages.py"))


@pytest.mark.parametrize("name", ["optuna", "ganger beside optuna"])
def test_who_comes_from_another_tool_finds_a_program_that_runs(
    daemon: Client, tmp_path: Path, name: str
) -> None:
    """Those of Ray Tune and Syne Tune themselves are run by `make peers`; what stands beside Ray's
    by tests/docs."""
    pytest.importorskip("optuna")
    file = tmp_path / "program.py"
    file.write_text(PEERS["scripts"]()[name])
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("best {'rate': 0.0"), done.stderr


def test_a_script_that_prints_is_searched_by_a_file(daemon: Client, tmp_path: Path) -> None:
    known = PEERS["scripts"]()
    (tmp_path / "script.py").write_text(known["ganger script"])
    (tmp_path / "small.toml").write_text(known["toml"].replace('"python"', f'"{sys.executable}"'))
    done = subprocess.run(
        [sys.executable, "-m", "ganger.cli", "tune", "small.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "search small" not in done.stderr
    assert ": completed, ran" in done.stdout, done.stdout + done.stderr
    assert set(PEERS["PEERS"]) <= set(known)


def test_a_function_is_searched_as_the_page_says(daemon: Client, tmp_path: Path) -> None:
    (program,) = (text for text in PROGRAMS if "ganger.tune(" in text)
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("best {'rate': 0.0"), done.stderr
    assert " of 6 on the front " in done.stdout


def test_the_searcher_on_the_page_goes_downhill() -> None:
    (program,) = (text for text in PROGRAMS if "class Downhill" in text)
    made: dict[str, type[Any]] = {}
    exec(program, made)
    searcher = made["Downhill"](Space({"x": Parameter(low=0.1, high=9.0)}), 1)
    for _ in range(40):
        point = searcher.ask()
        searcher.tell(point, 1.0, abs(point["x"] - 3.0))
    assert searcher.best[0] < 0.5
