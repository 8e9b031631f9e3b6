"""Goodput profiles from files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.workloads.measured.profiles import load_profiles, with_goodput
from ganger.workloads.trace import Trace
from workloads.measured import pollux


def test_a_folder_is_read(tmp_path: Path) -> None:
    goodput = load_profiles(pollux(tmp_path)).of("toy").goodput
    assert goodput is not None
    assert [goodput.batch, goodput.most, *goodput.local] == [100, 400, 50, 100]
    assert list(goodput.starts) == [0.0, 0.25]
    assert list(goodput.batches) == [100, 400]
    assert goodput.noise[0][0] == pytest.approx(300)
    assert goodput.noise[1][0] == pytest.approx(500)
    assert goodput.noise[0][1] == pytest.approx(1e11), "no signal measured: all noise"
    assert goodput.times["1-2"].step[0] == pytest.approx(0.7), "both orders, averaged"
    assert list(goodput.times["6/24"].sync) == [0.4]
    assert goodput.seconds() == pytest.approx(40.0)


def test_other_hardware_is_read_as_another_gpu_type(tmp_path: Path) -> None:
    pollux(tmp_path)
    for kind in ("placements", "scalability"):
        there = tmp_path / "toy"
        data = next(there.glob(f"{kind}.csv*")).read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        (there / f"{kind}-rtx.csv").write_text(text.replace("0.8", "0.4"))
        (there / f"{kind}-unheard.csv").write_text(text)
    goodput = load_profiles(tmp_path).of("toy").goodput
    assert goodput is not None
    assert list(goodput.by_type) == ["RTX2080Ti"]
    there_too = goodput.by_type["RTX2080Ti"]
    assert there_too.local == goodput.local
    assert there_too.times["6/24"] == goodput.times["6/24"]
    assert there_too.times["1-2"] != goodput.times["1-2"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        load_profiles(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="no placements"):
        load_profiles(tmp_path)
    pollux(tmp_path)
    (tmp_path / "toy" / "scalability.csv.gz").unlink()
    with pytest.raises(BadInput, match=r"no scalability\.csv"):
        load_profiles(tmp_path)


def test_durations_and_sizes_follow_the_profile(tmp_path: Path) -> None:
    known = load_profiles(pollux(tmp_path))
    shape = Shape(roles=(Role(size=2),))
    specs = [JobSpec(name="a", model="toy", shape=shape), JobSpec(name="b", shape=shape)]
    before = Trace(declare(specs), np.array([SECOND, SECOND]))
    after = with_goodput(before, known, elastic=64)
    assert after.duration.tolist() == [40 * SECOND, SECOND]
    ranges = [after.declared.shapes[code].roles[0].range for code in after.declared.shape.tolist()]
    assert ranges == [(1, 8), (2, 2)]
    assert before.duration.tolist() == [SECOND, SECOND]
    assert len(before.declared.shapes) == 1


@pytest.mark.traces
@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="GANGER_TRACES is not set")
def test_the_real_profiles() -> None:
    known = load_profiles(Path(os.environ["GANGER_TRACES"]) / "pollux-sia" / "profiles")
    hours = {
        name: profile.goodput.seconds() / 3600
        for name, profile in known.models.items()
        if profile.goodput
    }
    assert hours["cifar10"] == pytest.approx(1.12, abs=0.01)
    assert hours["imagenet"] == pytest.approx(147.9, abs=0.1)
