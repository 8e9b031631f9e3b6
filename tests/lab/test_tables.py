"""Tables must be readable in 80 columns and in a pipe."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from ganger.lab import tables

from .builders import NAN, RECIPES, by_hand, nothing, run_of, simulated, table


def text(what: RenderableType, width: int = 80) -> str:
    """What a pipe gets."""
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_run_in_words() -> None:
    found = text(tables.comparison([by_hand()]))
    assert "fifo     nothing 35.0 s 32.0 s 1m 05s    8.8 s   1m 10s  75%      0" in found
    assert "\x1b" not in found
    assert "±" not in found


def test_eight_recipes_over_seeds_fit_in_80_columns() -> None:
    runs = [simulated(recipe, seed, jobs=40) for recipe in RECIPES for seed in range(3)]
    found = text(tables.comparison(runs))
    lines = found.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line[:1].isalpha()][1:9] == list(RECIPES)
    assert "…" not in found
    assert "±" in lines[3]
    assert "Means over 3 seeds" in found


def test_best_of_a_column_is_marked() -> None:
    slow = by_hand()
    slow.recipe, slow.jobs.finish = "slow", slow.jobs.finish + 10
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(tables.comparison([by_hand(), slow]))
    assert isinstance(console.file, io.StringIO)
    found = console.file.getvalue()
    assert "\x1b[1;32m35.0 s" in found
    assert "\x1b[1;32m45.0 s" not in found


def test_loads_are_tables_of_their_own() -> None:
    heavy = by_hand()
    heavy.load = 1.5
    found = text(tables.comparison([by_hand(), heavy]))
    assert "load 1\n" in found.replace(" \n", "\n") or "load 1 " in found
    assert "load 1.5" in found


def test_who_has_no_jct_is_said() -> None:
    states = ["finished", "failed", "pending"]
    jobs = table([0.0] * 3, [0.0, 0.0, NAN], [5.0, 3.0, NAN], [5.0] * 3, state=states)
    found = text(tables.comparison([run_of(jobs)]))
    assert "fifo: no JCT counted for jobs that were 1 unfinished, 1 failed." in found


def test_no_jobs_is_a_row_of_dashes() -> None:
    assert text(tables.comparison([nothing()])).count(" -") >= 5


def test_names_cannot_steer_the_terminal() -> None:
    run = by_hand()
    run.recipe = "evil\x1b[31m[red]"
    run.jobs.tenant[0] = "[bold]\x1b]0;x\n"
    found = text(tables.comparison([run]), 120) + text(tables.breakdown_table(run), 120)
    assert "\x1b" not in found
    assert "[red]" in found
    assert "[bold]??" not in found
    assert "[bold]?]0;x?" in found


def test_breakdown() -> None:
    found = text(tables.breakdown_table(by_hand(), "tenant"))
    assert "fifo, by tenant" in found
    assert [line.split()[:2] for line in found.splitlines()[-2:]] == [["ann", "2"], ["bob", "2"]]
    assert "GPU type" in text(tables.breakdown_table(by_hand(), "gpu_type"))
