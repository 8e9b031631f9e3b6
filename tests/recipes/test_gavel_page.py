"""docs/gavel.md says what the code does: a sample of its rows and its jobs, worked out again; a
larger one in `make soak`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from soaking import first

SCRIPT = Path(__file__).parents[2] / "benchmarks/gavel.py"
pytestmark = [
    pytest.mark.long,
    pytest.mark.traces,
    pytest.mark.skipif(
        not os.environ.get("GANGER_TRACES"), reason="GANGER_TRACES does not name a folder of traces"
    ),
]


def script() -> ModuleType:
    """The command that makes the page."""
    spec = importlib.util.spec_from_file_location("gavel_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(SCRIPT.parent) not in sys.path:
        sys.path.append(str(SCRIPT.parent))
    spec.loader.exec_module(module)
    return module


PAGE = script()
AGAIN = "run GANGER_TRACES=FOLDER python benchmarks/gavel.py --page"


@pytest.mark.parametrize("each", PAGE.SAME_ANYWHERE, ids=" ".join)
def test_every_job_ends_when_it_did(each: tuple[str, str, str]) -> None:
    known = json.loads(PAGE.JOBS.read_text())[" ".join(each)]
    found = PAGE.ends(*each)
    off = [job for job, times in enumerate(zip(known, found, strict=True)) if len({*times}) > 1]
    assert off == [], f"{len(off)} jobs end at another time; {AGAIN}"


@pytest.mark.parametrize("number", first(2, [0, 3, 4, 8]))
def test_published_figures(number: int) -> None:
    assert PAGE.figure_row(*PAGE.FIGURES[number]) in PAGE.part("figures"), AGAIN


@pytest.mark.parametrize("way", first(2, ["", "patience", "by_type", "shuffled"]))
def test_what_a_switch_is_worth(way: str) -> None:
    assert PAGE.way_row(way) in PAGE.part("ways"), AGAIN


@pytest.mark.parametrize("objective", first(1, ["fifo", "max-min"]))
def test_what_pairs_are_worth(objective: str) -> None:
    assert PAGE.pair_row(PAGE.FAIR, objective) in PAGE.part("pairs"), AGAIN


@pytest.mark.parametrize("table", PAGE.TABLES)
def test_every_table_says_when_and_how_it_was_made(table: str) -> None:
    how = r"Made by `python benchmarks/gavel.py --page.*`, \d{4}-\d\d-\d\d, commit [0-9a-f]{10}"
    assert re.match(how, PAGE.part(table)[-1])


def test_the_page_says_all_three_speeds() -> None:
    speed = "\n".join(PAGE.part("speed"))
    for what in ("bare loop", "alone, `gavel`", "`gavel(compatible=yes)`", "hardly any job waits"):
        assert what in speed
