"""The lab: what is asked, what is replayed, what charts are drawn from, and why plans were made."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.web.background import lab
from ganger.web.background.playing import Asked, Played
from ganger.web.door import TRACE_BYTES_MAX
from ganger.web.pages.lab import asked_in, command, figures_as_csv

FORM = {
    "kind": "poisson",
    "jobs": "12",
    "seed": "3",
    "cluster": "2x2xV100",
    "recipes": "fifo, srtf",
}


@pytest.fixture(scope="module")
def played() -> Played:
    """As it comes out of the process that works: through JSON."""
    made = lab.play(Asked(**asked_in(FORM)), lambda **said: None)
    return msgspec.json.decode(msgspec.json.encode(made), type=Played)


def test_figures_are_those_of_the_command_line_to_the_last_digit(played: Played) -> None:
    """Those that the page shows, and those of its CSV."""
    line = command(asked_in(FORM), played.trace)
    assert line == "ganger simulate poisson:12:3:4 --cluster 2x2xV100 --recipe fifo,srtf"
    equals_command_line(played, line)


def equals_command_line(played: Played, line: str) -> None:
    """The figures, and those of the CSV, are what the command line prints."""
    words = shlex.split(line)[2:]
    printed = CliRunner().invoke(simulate, [*words, "--json"], catch_exceptions=False).stdout
    runs = json.loads(printed)["runs"]
    head, *rows = [row.split(",") for row in figures_as_csv(played).splitlines()]
    for run, row, ran in zip(runs, rows, played.runs, strict=True):
        wanted = {name: run["metrics"][name] for name in lab.FIGURES}
        assert ran.figures == wanted
        assert dict(zip(head[1:], map(float, row[1:]), strict=True)) == wanted


FILE = """submitted,duration,gpus,tenant
0,3600,1,a
7.25,30m,2,b
60,2h,1,a
60,10m,8,b
90.000001,5m,1,a
90.000001,5m,1,a
"""


def loaded(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: str) -> Played:
    """A trace that is not made up; its command line says the same in the folder of its file."""
    asked = asked_in({**FORM, **more})
    played = lab.play(Asked(**asked), lambda **said: None)
    monkeypatch.chdir(folder)
    (folder / more.get("name", "x")).write_text(more.get("text", ""))
    equals_command_line(played, command(asked, played.trace))
    return played


def test_a_file_that_was_chosen_is_replayed_as_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first four jobs, of which one is wider than the cluster; the next two come later."""
    name = "mine; reboot.csv"
    played = loaded(monkeypatch, tmp_path, kind="file", name=name, text=FILE, jobs="4")
    assert played.trace == "'./mine; reboot.csv' --to 90.000001 --max-gpus 4"
    assert (played.arrivals, played.without) == ([0.0, 7.25, 60.0], 3)


def test_the_bundled_workload_is_replayed_as_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played = loaded(monkeypatch, tmp_path, kind="demo", cluster="4x8xV100", jobs="20")
    assert (len(played.arrivals), played.without) == (20, 380)


@pytest.mark.parametrize(("text", "said"), [
    ("submitted,gpus\n0,1\n", "mine.csv: line 1: column 'duration' is missing"),
    ("submitted,duration,gpus\n0,x,1\n", "mine.csv: line 2"),
    ("submitted,duration,gpus\n" + "0,1,1\n" * 13, "more than 12 jobs come at once"),
    ("submitted,duration,gpus\n0,1,64\n", "jobs of at most 4 GPUs: no job is left"),
    ("/etc/passwd", "no known format begins with '/etc/passwd'"),
])  # fmt: skip
def test_a_file_that_holds_no_trace_is_one_sentence(text: str, said: str) -> None:
    asked = asked_in({**FORM, "kind": "file", "name": "mine.csv", "text": text})
    with pytest.raises(BadInput) as error:
        lab.play(Asked(**asked), lambda **said: None)
    assert said in str(error.value)
    assert "/tmp" not in str(error.value)


def test_charts_show_every_gpu_second_that_was_held(played: Played) -> None:
    """The Gantt chart, the strip below it and the text have one truth."""
    for run in played.runs:
        assert run.drawn is not None
        bars = sum((end - start) * rows for _, start, end, _, rows, *_ in run.drawn["bars"])
        ends = [*run.moments[1:], played.end]
        held = sum(
            gpus * (end - start)
            for gpus, start, end in zip(run.held, run.moments, ends, strict=True)
        )
        strip = sum(value or 0.0 for value in run.slices["held"]) * played.end / 160
        assert bars == pytest.approx(held, rel=1e-3)
        assert strip == pytest.approx(held, rel=1e-3)


def test_each_start_and_each_preemption_was_decided_on_some_news(played: Played) -> None:
    fifo, srtf = played.runs
    starts = [did for _, _, every, _ in fifo.decisions for did in every]
    assert len(starts) == 12
    assert all("starts on" in did for did in starts)
    at, news, did, _ = fifo.decisions[0]
    assert (at, news) == (0.0, "job 0 comes")
    assert did[0].startswith("job 0 starts on")
    stops = [did for _, _, every, _ in srtf.decisions for did in every if "is stopped" in did]
    assert len(stops) == srtf.figures["preemptions"]


@pytest.mark.parametrize("wrong", [
    {"kind": "/etc/passwd"}, {"jobs": "0"}, {"jobs": "1e3"}, {"jobs": "201"}, {"seed": "-1"},
    {"cluster": "x.toml"}, {"cluster": "../x"}, {"cluster": "2x2"}, {"cluster": "2x2xV100+"},
    {"cluster": "+".join(["1x1xT4"] * 9)}, {"recipes": ""}, {"recipes": "a/b.py:C"},
    {"recipes": "x.py:C"}, {"recipes": "a,b,c,d,e,f,g"}, {"kind": "file", "name": "/etc/passwd"},
    {"kind": "file", "name": "a", "text": "  "}, {"kind": "file", "name": "../a", "text": "x"},
    {"kind": "file", "name": "", "text": "x"}, {"kind": "file", "name": "a\nb", "text": "x"},
    {"kind": "file", "name": "a", "text": "x" * (TRACE_BYTES_MAX + 1)},
])  # fmt: skip
def test_a_set_up_has_names_and_numbers_and_no_file(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        asked_in({**FORM, **wrong})


def test_a_command_line_that_is_copied_is_one_command() -> None:
    """Also of recipes that somebody else put into an address."""
    form = {**FORM, "recipes": "las(x='; reboot; ')"}
    words = shlex.split(command(asked_in(form), "demo"))
    assert words[-2:] == ["--recipe", "las(x='; reboot; ')"]


def test_nodes_of_several_kinds_are_a_cluster() -> None:
    form = asked_in({**FORM, "cluster": "1x2xV100+2x4xK80", "jobs": "3", "recipes": "fifo"})
    assert lab.play(Asked(**form), lambda **said: None).nodes == [2, 4, 4]


def test_what_is_too_large_or_unknown_is_refused() -> None:
    def refused(**more: Any) -> str:
        with pytest.raises(BadInput) as error:
            lab.play(Asked(**{**asked_in(FORM), **more}), lambda **said: None)
        return str(error.value)

    assert "12 jobs on 144 GPUs" in refused(cluster="18x8xV100")
    assert "no recipe" in refused(recipes=["nonsense"])
    assert "not a cluster" in refused(cluster="cluster.toml")
