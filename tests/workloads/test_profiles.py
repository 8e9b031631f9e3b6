"""Goodput profiles from files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.jobs import declare
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.workloads.profiles import load_profiles, with_goodput
from ganger.workloads.trace import Trace

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,50,0.5,0.0
1,100,1.0,0.0
12,50,0.6,0.2
21,50,0.8,0.4
"""
SCALES = """num_nodes,num_replicas,local_bsz,step_time,sync_time
6,24,50,0.9,0.4
"""
RUN = "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.1,1.0,{0}\n40,40,0.2,0.0,{0}\n"


def written(folder: Path) -> Path:
    """One small application, `toy`."""
    toy = folder / "toy"
    toy.mkdir()
    (toy / "placements.csv").write_text(PLACEMENTS)
    (toy / "scalability.csv.gz").write_bytes(gzip.compress(SCALES.encode()))
    for batch, variance in ((100, 3.0), (400, 5.0)):
        (toy / f"validation-{batch}.csv").write_text(RUN.format(variance))
    return folder


def test_a_folder_is_read(tmp_path: Path) -> None:
    goodput = load_profiles(written(tmp_path)).of("toy").goodput
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


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        load_profiles(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="no placements"):
        load_profiles(tmp_path)
    written(tmp_path)
    (tmp_path / "toy" / "scalability.csv.gz").unlink()
    with pytest.raises(BadInput, match=r"no scalability\.csv"):
        load_profiles(tmp_path)


def test_durations_and_sizes_follow_the_profile(tmp_path: Path) -> None:
    known = load_profiles(written(tmp_path))
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
    hours = {name: profile.goodput.seconds() / 3600 for name, profile in known.models.items()
             if profile.goodput}  # fmt: skip
    assert hours["cifar10"] == pytest.approx(1.12, abs=0.01)
    assert hours["imagenet"] == pytest.approx(147.9, abs=0.1)
