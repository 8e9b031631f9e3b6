"""`ganger parity --serving`: the same requests, live and simulated."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.cli.lab.parity import parity
from ganger.core.errors import BadInput
from ganger.lab.serving.parity import COMPARED, Pair, Study, goodput_off
from serving.live.nets import models_file, times

pytestmark = pytest.mark.long

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it needs two cores")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    times(tmp_path / "a.onnx", 1)
    times(tmp_path / "b.onnx", -1)
    return models_file(tmp_path, ["a", "b"], base=0.004, family="both", accuracy=0.9)


@two_cores
@pytest.mark.parametrize("late", [math.inf, -1.0])
def test_both_sides_play_the_same_requests_and_a_late_client_voids_a_run(
    file: Path, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """On a machine that is busy no figure is near another; that there are both is what is seen."""
    monkeypatch.setattr("ganger.lab.serving.parity.LATE_SECONDS", late)
    before = os.sched_getaffinity(0)
    options = ["--serving", str(file), "--recipe", "model-switching", "--runs", "1"]
    done = CliRunner().invoke(parity, [*options, "--seconds", "1", "--slo", "1s", "--json"])
    (pair,) = json.loads(done.stdout)["pairs"]
    assert os.sched_getaffinity(0) == before
    if late < 0:
        assert (pair["counted"], pair["void"], pair["good"]) == (0, 3, False)
        assert done.exit_code == 1
        return
    assert (pair["counted"], pair["void"]) == (1, 0)
    assert pair["rate"] == pytest.approx(0.8 / 0.0042)
    for side in ("live", "simulated"):
        assert set(pair[side]) == set(COMPARED)
        assert pair[side]["batch_mean"] >= 1
        assert pair[side]["goodput_per_second"] > 10


def test_what_is_off_is_measured_against_the_live_side() -> None:
    live = dict(zip(COMPARED, (4.0, 0.010, 0.95, 100.0), strict=True))
    pair = Pair("x", 110.0, live, live, 5, 0)
    assert pair.good
    assert goodput_off([pair]) == 0
    for name, near, far in [
        ("batch_mean", 4.39, 4.41),
        ("latency_p50_seconds", 0.0086, 0.0084),
        ("attainment", 0.921, 0.919),
    ]:
        assert replace(pair, simulated={**live, name: near}).good
        assert not replace(pair, simulated={**live, name: far}).good
    off = replace(pair, simulated={**live, "goodput_per_second": 97.8})
    assert goodput_off([pair, off]) == pytest.approx(0.01)
    assert not replace(pair, counted=0).good


def test_what_cannot_be_compared_is_refused(file: Path) -> None:
    file.write_text(file.read_text().replace('family = "both"\n', ""))
    with pytest.raises(BadInput, match="it has 0 families"):
        Study(file).run(["model-switching"], 1, print)
    file.write_text(file.read_text().replace('device = "cpu"\n', 'device = "cpu"\nshare = 0.5\n'))
    with pytest.raises(BadInput, match="not every model was measured on a whole device"):
        Study(file).run(["nexus"], 1, print)
