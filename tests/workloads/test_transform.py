"""Cutting, sampling, repeating and scaling keep everything else as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ganger
from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec
from ganger.core.state.jobs import declare
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.workloads.formats import load_trace, save_trace
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace
from ganger.workloads.transform import (
    anonymise,
    head,
    offered_load,
    repeat,
    sample,
    scale_load,
    window,
)


def chain() -> Trace:
    """Five jobs an hour apart; each waits for the one before, the last belongs to the first."""
    specs = [
        JobSpec(
            name=f"j{i}",
            submitted=i * HOUR,
            deadline=(i + 2) * HOUR,
            after=(f"j{i - 1}",) if i else (),
            parent="j0" if i == 4 else "",
        )
        for i in range(5)
    ]
    return Trace(declare(specs), np.arange(1, 6, dtype=np.int64) * HOUR)


def test_window_moves_the_origin_and_drops_references_outside() -> None:
    cut = window(chain(), 2 * HOUR, 5 * HOUR)
    specs = [cut.declared.spec(i) for i in range(cut.jobs)]
    assert [spec.name for spec in specs] == ["j2", "j3", "j4"]
    assert [spec.submitted for spec in specs] == [0, HOUR, 2 * HOUR]
    assert [spec.deadline - spec.submitted for spec in specs] == [2 * HOUR] * 3
    assert [spec.after for spec in specs] == [(), ("j2",), ("j3",)]
    assert specs[2].parent == ""
    assert cut.skipped == [
        "2 references to jobs outside were dropped: window from 2h 00m to 5h 00m"
    ]
    assert "window" in cut.source


def test_the_trace_itself_is_left_as_it_was() -> None:
    trace = chain()
    before = [trace.declared.spec(i) for i in range(5)]
    for change in (window(trace, HOUR), scale_load(trace, 2.0, 4), repeat(trace, 2)):
        change.declared.submitted += 1
        change.declared.after.clear()
    assert [trace.declared.spec(i) for i in range(5)] == before
    assert trace.skipped == []


def test_head_and_empty_cuts() -> None:
    assert head(chain(), 2).jobs == 2
    assert head(chain(), 99).jobs == 5
    with pytest.raises(BadInput, match="no job is left"):
        head(chain(), 0)
    with pytest.raises(BadInput, match="no job is left"):
        window(chain(), 99 * HOUR)


def test_numbered_jobs_keep_their_names_when_cut() -> None:
    trace = synthesize("poisson", 50, 1)
    assert head(trace, 10).declared.names is None
    cut = window(trace, int(trace.declared.submitted[20]))
    assert cut.declared.name(0) == "job-20"


@given(st.floats(0.05, 1), st.integers(0, 99))
def test_sample_is_a_seeded_subset(fraction: float, seed: int) -> None:
    trace = synthesize("poisson", 300, 3)
    try:
        one, two = sample(trace, fraction, seed), sample(trace, fraction, seed)
    except BadInput:
        return
    names = [one.declared.name(i) for i in range(one.jobs)]
    assert names == [two.declared.name(i) for i in range(two.jobs)]
    assert abs(one.jobs - 300 * fraction) < 60
    assert set(one.duration.tolist()) <= set(trace.duration.tolist())


@pytest.mark.parametrize("fraction", [0, -1, 1.01, float("nan")])
def test_sample_refuses_what_is_no_fraction(fraction: float) -> None:
    with pytest.raises(BadInput, match="sample"):
        sample(chain(), fraction)


@given(st.floats(0.01, 50), st.integers(1, 5000))
def test_scale_load_hits_the_load_and_keeps_distances_to_deadlines(load: float, gpus: int) -> None:
    scaled = scale_load(chain(), load, gpus)
    assert offered_load(scaled, gpus) == pytest.approx(load, rel=1e-5)
    slack = scaled.declared.deadline[:5] - scaled.declared.submitted[:5]
    assert slack.tolist() == [2 * HOUR] * 5


def test_scale_load_refuses_what_cannot_be() -> None:
    together = Trace(declare([JobSpec(name="a"), JobSpec(name="b")]), np.ones(2, np.int64))
    with pytest.raises(BadInput, match="arrive at once"):
        scale_load(together, 1.0, 8)
    for load in (0.0, -1.0, float("inf"), float("nan"), 1e-12):
        with pytest.raises(BadInput, match="load"):
            scale_load(chain(), load, 8)
    with pytest.raises(BadInput, match="GPUs"):
        scale_load(chain(), 1.0, 0)


def test_repeat_shifts_everything_by_one_period() -> None:
    twice = repeat(chain(), 2)
    specs = [twice.declared.spec(i) for i in range(10)]
    assert [spec.submitted for spec in specs] == [i * HOUR for i in range(10)]
    assert specs[7].name == "j2.1"
    assert specs[7].after == ("j1.1",)
    assert specs[9].parent == "j0.1"
    assert specs[6].deadline == 8 * HOUR
    assert twice.gpu_seconds() == 2 * chain().gpu_seconds()
    with pytest.raises(BadInput, match="repeat"):
        repeat(chain(), 0)


def test_no_deadline_stays_no_deadline() -> None:
    trace = Trace(
        declare([JobSpec(name=str(i), submitted=i * SECOND) for i in range(3)]), np.full(3, SECOND)
    )
    for change in (window(trace, SECOND), scale_load(trace, 0.5, 8), repeat(trace, 3)):
        assert (change.declared.deadline[: change.jobs] == NEVER).all()


def test_pseudonyms_are_stable_and_change_no_result(tmp_path: Path) -> None:
    trace = synthesize("philly", 80, 1, gpus=16)
    first, again = anonymise(trace, b"salt"), anonymise(trace, b"salt")
    other = anonymise(trace, b"pepper")
    out = [tmp_path / f"{i}.csv" for i in range(3)]
    for made, to in zip((first, again, other), out, strict=True):
        save_trace(made, to)
    assert out[0].read_text() == out[1].read_text()
    assert set(first.declared.users) & set(other.declared.users) == {""}
    assert len(set(first.declared.users)) == len(set(trace.declared.users)) > 2
    secret = {*trace.declared.users, *trace.declared.tenants, *trace.declared.groups} - {""}
    assert secret
    assert not [word for word in secret if word in out[0].read_text()]
    assert secret <= {*trace.declared.users, *trace.declared.tenants, *trace.declared.groups}
    runs = [ganger.simulate(one, "2x8xV100", "las", seed=0) for one in (trace, load_trace(out[0]))]
    assert runs[0].metrics["jct_mean_seconds"] == runs[1].metrics["jct_mean_seconds"]
    assert runs[1].jobs.name[:2] == ["job-0", "job-1"]
