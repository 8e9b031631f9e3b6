"""The lab: what is asked, what is replayed, what is drawn."""

from __future__ import annotations

import re
from typing import Any

import pytest

import ganger
from ganger.core.errors import BadInput
from ganger.web.background import lab
from ganger.web.background.playing import Asked, Played
from ganger.web.pages.lab import asked_in, command
from ganger.web.shown.gantt import blocks, gantt
from ganger.workloads.synthetic import synthesize

FORM = {
    "kind": "poisson",
    "jobs": "12",
    "seed": "3",
    "cluster": "2x2xV100",
    "recipes": "fifo, srtf",
}


@pytest.fixture(scope="module")
def played() -> Played:
    return lab.play(Asked(**asked_in(FORM)), lambda **said: None)


def test_figures_are_those_of_the_command_line(played: Played) -> None:
    """`ganger simulate poisson:12:3 --cluster 2x2xV100 --recipe 'fifo,srtf'`, to the last digit."""
    assert command(asked_in(FORM)) == (
        "ganger simulate poisson:12:3 --cluster 2x2xV100 --recipe 'fifo,srtf'"
    )
    trace = synthesize("poisson", 12, 3, gpus=4)
    for run in played.runs:
        metrics = ganger.simulate(trace, "2x2xV100", run.recipe).metrics
        assert run.figures == {name: metrics[name] for name in lab.FIGURES}


def test_charts_show_every_gpu_second_that_was_held(played: Played) -> None:
    drawn = gantt(played)
    assert [one.run.recipe for one in drawn] == ["fifo", "srtf"]
    for one in drawn:
        area = sum(
            float(width) * (float(height) + 1)
            for width, height in re.findall(
                r'<rect class="c\d+" x="[0-9.]+" y="[0-9.]+" width="([0-9.]+)" height="([0-9.]+)"',
                one.picture,
            )
        )
        held = sum((end - start) * mask.bit_count() for _, start, end, _, mask in one.run.segments)
        scale = (600 - 30) / played.end * 14
        assert area == pytest.approx(held * scale, rel=0.02)
        assert one.picture.count("<svg") == one.picture.count("</svg>") == 1


def test_neighbouring_gpus_are_one_bar() -> None:
    assert blocks(0b1) == [(0, 1)]
    assert blocks(0b11011) == [(0, 2), (3, 2)]
    assert blocks(0) == []


@pytest.mark.parametrize("wrong", [
    {"kind": "/etc/passwd"}, {"jobs": "0"}, {"jobs": "1e3"}, {"jobs": "201"}, {"seed": "-1"},
    {"cluster": "x.toml"}, {"cluster": "../x"}, {"cluster": "2x2"}, {"recipes": ""},
    {"recipes": "a/b.py:C"}, {"recipes": "x.py:C"}, {"recipes": "a,b,c,d,e,f,g"},
])  # fmt: skip
def test_a_set_up_has_names_and_numbers_and_no_file(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        asked_in({**FORM, **wrong})


def test_what_is_too_large_or_unknown_is_refused() -> None:
    def refused(**more: Any) -> str:
        with pytest.raises(BadInput) as error:
            lab.play(Asked(**{**asked_in(FORM), **more}), lambda **said: None)
        return str(error.value)

    assert "12 jobs on 144 GPUs" in refused(cluster="18x8xV100")
    assert "no recipe" in refused(recipes=["nonsense"])
    assert "not a cluster" in refused(cluster="cluster.toml")
