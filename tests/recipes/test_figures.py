"""Every page of figures says how it was made, and its cheap rows are what the code makes now."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engines.site import missing
from soaking import rarely

ROOT = Path(__file__).parents[2]
TRACES = os.environ.get("GANGER_TRACES", "")
REAL = [
    pytest.mark.traces,
    pytest.mark.skipif(not TRACES, reason="GANGER_TRACES is not set"),
]
DEAR = [*REAL, pytest.mark.soak]
"""Rows that take ten seconds or more: `make soak` makes them again."""
SLURM = [pytest.mark.skipif(bool(missing()), reason=missing())]


def printed(script: str, *arguments: str) -> list[str]:
    """What a benchmark prints, line by line."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.splitlines()


SAMPLES = [
    "allocate",
    "calibration",
    "environments",
    "links",
    "live",
    "pages",
    "parity",
    "reading",
    "reports",
    "routers",
    "scale",
    "searches_live",
    "serving_live",
    "slices",
    "speed",
    "versus",
    pytest.param("openb", marks=REAL),
    pytest.param("placement", marks=REAL),
    pytest.param("searches", marks=REAL),
    pytest.param("traces", marks=REAL),
    pytest.param("pilots", marks=SLURM),
    pytest.param("slurm", marks=SLURM),
]
ELSEWHERE = {
    "effects": "test_cheap_rows_of_the_effects_are_what_they_were",
    "gavel": "tests/recipes/test_gavel_page.py",
    "interference": "test_a_row_of_a_page_is_what_its_command_prints",
    "muri": "test_a_row_of_a_page_is_what_its_command_prints",
    "peers": "tests/serving/test_cork.py, tests/mechanisms/test_scaling.py: the rules by hand",
    "pollux": "test_a_row_of_a_page_is_what_its_command_prints",
    "sia": "test_a_row_of_a_page_is_what_its_command_prints",
    "soak": "the same tests, in small counts",
}
"""Pages whose figures are held to the code by something else."""


def like(row: str) -> str:
    """The pattern of a row in which `*` stands for a time."""
    return r"[^|]+".join(re.escape(part) for part in row.split("*"))


@pytest.mark.parametrize("page", SAMPLES)
def test_a_sample_of_a_page_is_what_the_code_makes_now(page: str) -> None:
    made = printed("samples.py", page)
    assert made
    stated = (ROOT / f"benchmarks/{page}.md").read_text().splitlines()
    other = [row for row in made if not any(re.fullmatch(like(row), line) for line in stated)]
    assert other == [], f"run python benchmarks/samples.py {page} --write, or make the page again"


def test_every_page_of_figures_has_a_sample_and_says_how_it_was_made() -> None:
    sampled = {str(getattr(page, "values", (page,))[0]) for page in SAMPLES}
    pages = [ROOT / "docs/effects.md", ROOT / "docs/gavel.md", *(ROOT / "benchmarks").glob("*.md")]
    assert {page.stem for page in pages} - {"README", "mutants"} == sampled | set(ELSEWHERE)
    for page in pages:
        if page.stem not in ("README", "effects"):  # the effects say it row by row
            text = page.read_text().partition("## A sample")[0]
            assert re.search(r"Made by `[^`]+`[^|]*\d{4}-\d\d-\d\d", text), page
            assert re.search(r"\bcommit [0-9a-f]{7,10}\b", text), page
        for name in re.findall(r"\b(?:tests|benchmarks)/[\w/]+\.\w+", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name} names {name}, which has moved"


POLLUX = ["pollux.py", TRACES, "--rows", "--workload", "3"]
TIRESIAS = "tiresias(thresholds=16h,consolidate=no,fit=worst,index=arrival,interval=60s)"


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(
            "sia.md",
            ["sia.py", TRACES, "--workload", "1", "--recipe", "sia(restart=50s)"],
            marks=REAL,
        ),
        pytest.param(
            "muri.md",
            ["muri.py", TRACES, "--trace", "trace3", "--recipe", "muri-s(group=1)"],
            marks=REAL,
        ),
        pytest.param("interference.md", ["interference.py", TRACES], marks=REAL),
        pytest.param("pollux.md", [*POLLUX, "--recipe", TIRESIAS], marks=REAL),
        pytest.param("sia.md", ["sia.py", TRACES, "--workload", "1"], marks=DEAR),
        pytest.param("pollux.md", POLLUX, marks=DEAR),
        pytest.param(
            "muri.md", ["muri.py", TRACES, "--trace", "trace3", "--recipe", "muri-s"], marks=DEAR
        ),
        pytest.param("openb.md", ["openb.py", "--list", "multigpu40", "--rule", "fgd"], marks=DEAR),
    ],
)
def test_a_row_of_a_page_is_what_its_command_prints(page: str, command: list[str]) -> None:
    made = printed(*command)
    assert made
    stated = (ROOT / "benchmarks" / page).read_text().splitlines()
    assert [line for line in made if line not in stated] == []


@pytest.mark.parametrize(
    "cheap",
    [
        ["ffdl", "ebird"],
        rarely(["dragon", "gandiva-fair", "nanily", "clockwork", "andreas", "jahani"]),
    ],
    ids=",".join,
)
def test_cheap_rows_of_the_effects_are_what_they_were(cheap: list[str]) -> None:
    """All cells but the last, which says by which code the row was made."""
    stated = (ROOT / "docs" / "effects.md").read_text().splitlines()
    rows = {line.split(" | ")[0]: line.split(" | ")[:-1] for line in stated}
    made = printed("effects", "--only", ",".join(cheap), "--no-write")
    assert len(made) == len(cheap)
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
