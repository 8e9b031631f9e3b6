"""Which jobs shared GPUs in a run, for how long and how fast: `ganger simulate --why`."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.lab.metrics import to_json
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.lab.tables import company_table
from worlds import Work, job, trace_of

USES = {"p6": 0.6, "p7": 0.7}
SETUP = Setup(
    why=True, profiles=Profiles({m: Profile(utilisation={"gpu": u}) for m, u in USES.items()})
)
PAIR = [job("a", 0, 900, model="p6"), job("b", 1, 900, model="p7")]


def played(recipe: str, works: list[Work] = PAIR, setup: Setup = SETUP) -> Run:
    """A run on one GPU."""
    cluster = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100", cpus=8000),)).check()
    return run_one(trace_of(works), cluster, recipe, setup)


def test_a_guaranteed_and_an_opportunistic_job_are_told_apart_with_their_speeds() -> None:
    company = played("antman").company
    assert company is not None
    loose, firm = sorted(company, key=lambda row: row.speed)
    hours = 899 / 3600
    assert firm[:4] == ("p6", "guaranteed", "p7", 1)
    assert [firm.gpu_hours, firm.speed] == pytest.approx([hours, 1.0])
    # 0.4 of the GPU is left to a job that uses 0.7 of it; half of that for the first 10 s
    speed = 0.4 / 0.7 * (889 + 10 / 2) / 899
    assert loose[:4] == ("p7", "opportunistic", "p6", 1)
    assert [loose.gpu_hours, loose.speed] == pytest.approx([hours, speed])


def test_without_terms_both_are_as_slow_as_their_sum_and_time_alone_does_not_count() -> None:
    run = played("horus(limit=1.3)")
    assert run.company is not None
    assert [row.standing for row in run.company] == ["", ""]
    assert [row.speed for row in run.company] == [pytest.approx(1 / 1.42)] * 2
    both = 899 * 1.42 / 3600  # from b's begin until a has done what it had left
    assert [row.gpu_hours for row in run.company] == [pytest.approx(both)] * 2


def test_who_shares_nothing_or_is_not_asked_has_none() -> None:
    assert played("fifo").company == []
    assert played("antman", setup=replace(SETUP, why=False)).company is None
    assert "company" not in to_json([played("fifo")])["runs"][0]


def test_it_is_shown_as_a_table_and_in_json() -> None:
    run = played("antman")
    (row, _) = sorted(to_json([run])["runs"][0]["company"], key=lambda each: each["speed"])
    assert (row["model"], row["standing"], row["beside"]) == ("p7", "opportunistic", "p6")
    console = Console(file=io.StringIO(), width=80)
    console.print(company_table([run]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "antman, seed 0, jobs on the same GPUs" in text
    words = [line.split() for line in text.splitlines()]
    assert ["p7", "opportunistic", "p6", "1", "0.25", "0.57"] in words
