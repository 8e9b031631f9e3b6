"""Tables must be readable in 80 columns and in a pipe."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console, RenderableType

from ganger.lab import tables
from ganger.lab.metrics import aggregate
from ganger.lab.words import leaders, tied

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
    assert (
        "1 job failed (time limit), 1 job was not over at the end and are not in the JCT figures."
    ) in " ".join(found.split())


def test_what_holds_for_every_recipe_is_said_once() -> None:
    runs = [by_hand(), by_hand(), by_hand()]
    for run, name in zip(runs, ("fifo", "las", "srtf"), strict=True):
        run.recipe, run.rows, run.left_out = name, 40, {"the jobs never started": 36}
        run.notes = ["a note"] if name == "fifo" else []
        run.jobs.state = ["finished"] * 3 + ["failed"]
    found = " ".join(text(tables.comparison(runs)).split())
    assert (
        found.count("36 of 40 rows of by hand are not simulated: 36 (the jobs never started).") == 1
    )
    assert found.count("1 job failed (time limit) and is not in the JCT figures.") == 1
    assert "srtf: 1 job" not in found
    assert "fifo: a note." in found
    assert "compared on" not in found, "all have the same jobs"


def test_a_comparison_on_common_jobs_says_how_many_are_outside() -> None:
    runs = [by_hand(), by_hand()]
    runs[1].recipe, runs[1].jobs.state = "las", ["finished"] * 3 + ["failed"]
    found = " ".join(text(tables.comparison(runs)).split())
    assert (
        "Recipes are compared on the 3 jobs that finished under every one; 1 are outside." in found
    )
    assert "las: 1 job failed (time limit)" in found
    stuck = by_hand()
    stuck.recipe, stuck.jobs.state, stuck.jobs.finish = "stuck", ["running"] * 4, np.full(4, NAN)
    found = " ".join(text(tables.comparison([by_hand(), stuck])).split())
    assert "No job finished under every recipe" in found


def test_ties_are_marked_alike_and_what_all_share_is_not_marked() -> None:
    rows = []
    for seed in range(3):
        for recipe, later in (("fifo", 20.0), ("las", float(seed)), ("tiresias", 2.0 - seed)):
            run = by_hand()
            run.recipe, run.seed, run.jobs.finish = recipe, seed, run.jobs.finish + later
            rows.append(run)
    groups = aggregate(rows)
    best = leaders(groups, "jct_mean_seconds", "low")
    assert [group.recipe for group in best] == ["las", "tiresias"]
    assert leaders(groups, "queueing_delay_mean_seconds", "low") == [], "all are equal"
    assert leaders(groups[:1], "jct_mean_seconds", "low") == []


def test_who_varies_much_is_not_marked_before_somebody_better_who_is_surely_worse() -> None:
    """srtf's figures are worst and so far apart that they could be equal to anybody's."""
    rows = []
    for seed, wild in enumerate((90.0, -30.0, 70.0)):
        for recipe, later in (("las", 0.0), ("fifo", 5.0 + seed / 10), ("srtf", wild)):
            run = by_hand()
            run.recipe, run.seed, run.jobs.finish = recipe, seed, run.jobs.finish + later
            rows.append(run)
    groups = aggregate(rows)
    assert tied(groups[0], groups[2], "jct_mean_seconds")
    assert [group.recipe for group in leaders(groups, "jct_mean_seconds", "low")] == ["las"]


def test_seeds_that_change_nothing_have_no_interval() -> None:
    runs = [by_hand() for _ in range(5)]
    for seed, run in enumerate(runs):
        run.seed = seed
        run.jobs.finish = run.jobs.finish + 1e-13 * seed
    found = text(tables.comparison(runs))
    assert "±" not in found.splitlines()[3]
    equal = [by_hand() for _ in range(5)]
    for seed, run in enumerate(equal):
        run.seed = seed
    assert "All 5 seeds gave the same figures" in text(tables.comparison(equal))


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
