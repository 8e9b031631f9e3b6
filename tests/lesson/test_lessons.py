"""Every number of the lecture's worked examples."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ganger.cli.lab.lesson import lesson as command
from ganger.core.errors import BadInput
from ganger.lab.lessons import worked_examples as lessons
from ganger.lab.lessons.four_jobs import RULES, four_jobs, non_preemptive, optimum_preemptive
from ganger.lab.lessons.parts import Cell, Chart
from ganger.lab.lessons.pieces import LESSONS
from ganger.recipes.registry import find


def numbers(name: str, table: int = 0) -> dict[Cell, tuple[Cell, ...]]:
    """A lesson's table by the first cell of each row."""
    return {row[0]: row[1:] for row in LESSONS[name].work({}).tables[table].rows}


FOUR_JOBS = {
    "FIFO": ("30, 10, 34, 66", 35.0, 70),
    "SJF, non-preemptive": ("30, 10, 34, 66", 35.0, 70),
    "SJF/SRTF, preemptive": ("39, 10, 25, 62", 34.0, 66),
    "Priority, preemptive, 1 = highest (as labelled)": ("39, 10, 25, 62", 34.0, 66),
    "Priority, preemptive, 4 = highest": ("30, 53, 51, 40", 43.5, 53),
    "Priority, non-preemptive, 1 = highest": ("30, 10, 34, 66", 35.0, 70),
    "Priority, non-preemptive, 4 = highest": ("30, 10, 54, 46", 35.0, 55),
    "Longest first, preemptive": ("30, 53, 51, 40", 43.5, 53),
    "LIFO, preemptive": ("52, 53, 25, 40", 42.5, 53),
    "LAS, unit quanta": ("47, 19, 41, 54", 40.25, 58),
    "MLFQ, 2 queues, threshold 10": ("40, 10, 34, 61", 36.25, 65),
    "Optimum, preemptive": ("-", 34.0, ">= 52.5"),
    "Optimum, non-preemptive": ("-", 34.25, "56 or 66"),
}


def test_four_jobs() -> None:
    got = {label: row[:3] for label, row in numbers("four-jobs").items()}
    assert got == FOUR_JOBS


def test_the_best_makespan_alone_is_55() -> None:
    assert min(makespan for _, makespan in non_preemptive()) == 55


def intervals(title: str) -> list[tuple[int, float, float]]:
    charts = {part.title: part for part in four_jobs().parts if isinstance(part, Chart)}
    segments = charts[title].run.segments
    assert segments is not None
    return sorted((s.job, s.start_seconds, s.end_seconds) for s in segments)


def test_who_runs_when_under_preemptive_sjf() -> None:
    """[0,1) 0,1; [1,10) 1,2; [10,26) 0,2; [26,39) 0,3; [39,66) 3."""
    assert intervals("SJF/SRTF, preemptive") == [
        (0, 0, 1),
        (0, 10, 39),
        (1, 0, 10),
        (2, 1, 26),
        (3, 26, 66),
    ]


def test_who_runs_when_in_the_printed_priority_run() -> None:
    """[0,1) 0,1; [1,4) 0,2; [4,30) 0,3; [30,44) 2,3; [44,52) 1,2; [52,53) 1."""
    assert intervals("Priority, preemptive, 4 = highest") == [
        (0, 0, 30),
        (1, 0, 1),
        (1, 44, 53),
        (2, 1, 4),
        (2, 30, 52),
        (3, 4, 44),
    ]


def test_assignment() -> None:
    best = lessons.assignment().tables[0].rows
    assert best[:2] == [(185, "V100", "K80", "P100"), (165, "V100", "P100", "K80")]
    got = {str(label).strip(): row[0] for label, row in numbers("assignment", 1).items()}
    assert got == {
        "by turns: A-K80, B-P100, C-V100": 135,
        "linear programme: largest sum": 185,
        "gain over turns, %": 37.04,
        "feasible assignments": 12,
        "max-min ratio to equal time on all GPUs": 1.13924,
        "throughput of A": 37.03,
        "throughput of B": 66.93,
        "throughput of C": 44.15,
        "total": 148.1,
        "warm-up, 1 V100 + 1 K80: best of the two": 130,
        "the other way round": 80,
    }


def test_assignment_runs_at_these_rates() -> None:
    """9,000 samples each: A alone on the V100 takes 112.5 s, blindly on a K80 900 s."""
    blind, aware = (part.run for part in lessons.assignment().parts if isinstance(part, Chart))
    assert blind.jobs.finish[0] == 900
    assert aware.jobs.finish[0] == 112.5


def test_fairness() -> None:
    assert numbers("fairness") == {
        "(i) gangs of 2, one type at a time": (260, 1.0, 90, 120, 210),
        "(ii) one GPU each": (150, 1.1667, 52.5, 70, 122.5),
        "(iii) elastic over any mix, time-shared": (260, 1.2075, 108.6792, 144.9057, 253.5849),
    }


def test_the_price_of_fairness() -> None:
    assert lessons.static_sharing() == (1.0, 210.0)
    first, third = lessons.fairness_figures(2.0, 1.0), lessons.fairness_figures(1.0, float("inf"))
    assert first["total"] / first["largest"] - 1 == pytest.approx(-0.192, abs=5e-4)
    assert third["total"] / third["largest"] - 1 == pytest.approx(-0.025, abs=5e-4)
    assert third["A"] == pytest.approx(1.3585 * 80, abs=0.01)
    assert third["B"] == pytest.approx(0.6415 * 70 + 2 * 50, abs=0.01)
    assert [round(x, 3) for x in (2 * 80 / 90, 2 * 50 / 120)] == [1.778, 0.833]


def test_placement() -> None:
    got = [row[1] for row in lessons.placement().tables[0].rows]
    assert got == [1.667, 40, 100, 6.67, 400, 45, 8.9, 200.83, 250, 24.5, 150]
    assert [round(ms / (1000 / 600), 9) for ms in (40, 100)] == [24, 60]


def test_chapter_0() -> None:
    assert numbers("chapter-0") == {
        "8 GPUs, fifo": (0, 0, 0, 0.5, 1),
        "8 GPUs, backfill": (0, 0, 0, 0.5, 0),
        "4 GPUs, fifo": (0, 6, 6, 6.5, 7),
        "4 GPUs, backfill": (0, 6, 6, 6.5, 6),
    }


def test_without_gangs_two_jobs_hold_three_gpus_each_for_ever() -> None:
    assert lessons.by_turns(6, (4, 4)) == [3, 3]
    assert lessons.by_turns(8, (4, 4)) == [4, 4]
    charts = [part for part in lessons.gang().parts if isinstance(part, Chart)]
    assert charts[0].run.jobs.finish.tolist() == [5 * 3600, 10 * 3600]


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_is_shown_in_80_columns_and_as_json(name: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(command, [name], catch_exceptions=False)
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    data = json.loads(CliRunner().invoke(command, [name, "--json"]).output)
    assert data["name"] == name
    assert data["parts"]


def test_the_list_and_a_wrong_name() -> None:
    listed = CliRunner().invoke(command, []).output.split()
    assert set(LESSONS) <= set(listed)
    with pytest.raises(BadInput, match="four-jobs"):
        CliRunner().invoke(command, ["five-jobs"], catch_exceptions=False)


def test_every_rule_is_explained_drawn_and_leads_to_a_recipe() -> None:
    charts = {part.title: part for part in four_jobs().parts if isinstance(part, Chart)}
    assert list(charts) == [rule.label for rule in RULES]
    assert len(charts) == 11
    for name, piece in LESSONS.items():
        for part in piece.work({}).parts:
            if isinstance(part, Chart):
                words, _, recipe = part.words.partition(" Read: ganger recipe ")
                assert words.endswith("."), name
                assert find(recipe).name == recipe, name


def test_the_lecture_is_named() -> None:
    for words in ([], ["gang"], ["four-jobs"]):
        said = " ".join(CliRunner().invoke(command, words).output.split())
        assert 'Stanford CS229s, Systems for Machine Learning, lecture "Cluster Scheduling"' in said


def test_durations_of_ones_own() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(
        command, ["four-jobs", "--durations", "30,10,5,60"], catch_exceptions=False
    )
    assert "Durations 30, 10, 5, 60" in shown.output
    assert "printed" not in shown.output, "the lecture says nothing of these"
    fifo = four_jobs((30, 10, 5, 60)).tables[0].rows[0]
    assert four_jobs((30, 10, 5, 60)).tables[0].rows[11][3] == ">= 64", "the last job's own time"
    assert fifo[1:4] == ("30, 10, 14, 71", 31.25, 75)
    best = min(float(row[2]) for row in four_jobs((30, 10, 5, 60)).tables[0].rows[:11])
    assert optimum_preemptive((30, 10, 5, 60)) <= best
    for wrong in ("1,2,3", "1,2,3,x", "0,1,2,3", "1,2,3,99999", "1,2,3,000000001" + "9" * 30):
        with pytest.raises(BadInput, match="write like 30,10,25,40"):
            CliRunner().invoke(command, ["four-jobs", "--durations", wrong], catch_exceptions=False)
    with pytest.raises(BadInput, match="only four-jobs"):
        CliRunner().invoke(command, ["gang", "--durations", "1,2,3,4"], catch_exceptions=False)
