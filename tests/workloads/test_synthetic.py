"""Synthetic workloads: seeded, sound, and like what was published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.units import DAY, HOUR, SECOND, WHOLE
from ganger.workloads.measured.sites import PROFILES
from ganger.workloads.measured.throughputs import steps_per_second
from ganger.workloads.statistics import describe
from ganger.workloads.synthetic import GAVEL_SIZES, KINDS, demo, synthesize
from ganger.workloads.trace import Trace
from ganger.workloads.transform import offered_load


def seconds(trace: Trace) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return trace.duration[: trace.jobs] / SECOND


@given(
    st.sampled_from(KINDS),
    st.integers(1, 400),
    st.integers(0, 1000),
    st.integers(1, 300),
    st.floats(0.1, 3),
)
def test_any_workload_is_sound(kind: str, jobs: int, seed: int, gpus: int, load: float) -> None:
    trace = synthesize(kind, jobs, seed, gpus=gpus, load=load)
    n = trace.jobs
    assert n == jobs
    assert trace.declared.submitted[0] == 0
    assert (np.diff(trace.declared.submitted[:n]) >= 0).all()
    assert (trace.duration > 0).all()
    assert trace.declared.gpus[:n].min() >= 1
    assert trace.declared.gpus[:n].max() <= gpus
    shapes = [trace.declared.shapes[code] for code in trace.declared.shape[:n]]
    assert [shape.gpus for shape in shapes] == trace.declared.gpus[:n].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_workload(kind: str) -> None:
    one, two, other = (synthesize(kind, 500, seed) for seed in (5, 5, 6))
    for column in ("submitted", "gpus", "user", "tenant", "model", "weight"):
        left, right = getattr(one.declared, column), getattr(two.declared, column)
        assert (left == right).all()
    assert (one.duration == two.duration).all()
    assert (one.duration != other.duration).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("load", [0.3, 1.2])
def test_the_load_is_as_asked(kind: str, load: float) -> None:
    trace = synthesize(kind, 20_000, 1, gpus=512, load=load)
    assert offered_load(trace, 512) == pytest.approx(load, rel=0.03)


# Published medians and means of run times (s): Acme's cluster_summary, see the module.
@pytest.mark.parametrize(
    ("kind", "median", "mean"),
    [("philly", 874, 18_006), ("helios", 206, 6_652), ("pai", 481, 4_787)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_run_times_are_as_published(kind: str, median: float, mean: float, seed: int) -> None:
    found = seconds(synthesize(kind, 100_000, seed, gpus=4096))
    assert np.median(found) == pytest.approx(median, rel=0.05)
    assert found.mean() == pytest.approx(mean, rel=0.10)


@pytest.mark.parametrize("kind", PROFILES)
def test_the_whole_distribution_of_run_times_is_as_published(kind: str) -> None:
    found = np.sort(seconds(synthesize(kind, 50_000, 3, gpus=4096)))
    for at_most, percent in PROFILES[kind].durations:
        if at_most >= 8:  # below, whole seconds are coarser than the curve
            share = np.searchsorted(found, at_most, side="right") / len(found)
            assert share == pytest.approx(percent / 100, abs=0.01)


@pytest.mark.parametrize(("kind", "mean"), [("philly", 1.93), ("helios", 3.72)])
def test_gangs_are_as_published(kind: str, mean: float) -> None:
    trace = synthesize(kind, 100_000, 2, gpus=4096)
    gpus = trace.declared.gpus[: trace.jobs]
    assert gpus.mean() == pytest.approx(mean, rel=0.05)
    for size, percent in PROFILES[kind].sizes:
        assert (gpus == size).mean() == pytest.approx(percent / 100, abs=0.003)


@pytest.mark.parametrize(("kind", "ratio"), [("philly", 1.76), ("helios", 2.0)])
def test_larger_gangs_run_longer_on_average(kind: str, ratio: float) -> None:
    found = []
    for seed in range(12):
        trace = synthesize(kind, 20_000, seed, gpus=4096)
        time, gpus = seconds(trace), trace.declared.gpus[: trace.jobs]
        found.append((time * gpus).mean() / time.mean() / gpus.mean())
    assert np.mean(found) == pytest.approx(ratio, rel=0.35)


def test_pai_workers_share_gpus() -> None:
    trace = synthesize("pai", 100_000, 4, gpus=4096)
    shapes = [shape.roles[0] for shape in trace.declared.shapes]
    each = np.array([role.needs.gpus * role.needs.share / WHOLE for role in shapes])
    workers = np.array([role.size for role in shapes])
    of_job = trace.declared.shape[: trace.jobs]
    assert (workers[of_job] == 1).mean() == pytest.approx(0.77, abs=0.02)
    assert np.median(each[of_job]) == 0.5
    assert each[of_job].mean() == pytest.approx(0.68, rel=0.2)


def test_arrivals_follow_the_hours_and_days() -> None:
    trace = synthesize("helios", 200_000, 1, gpus=1024)
    submitted = trace.declared.submitted[: trace.jobs]
    hours = np.bincount(submitted % DAY // HOUR, minlength=24)
    assert hours[17] > 5 * hours[5]
    days = np.bincount(submitted // DAY % 7, minlength=7)
    assert days[2] > 1.2 * days[5]


def test_history_of_a_user_tells_about_the_next_job() -> None:
    trace = synthesize("philly", 50_000, 1, gpus=2048)
    logs, users = np.log(seconds(trace)), trace.declared.user[: trace.jobs]
    within = np.mean(
        [logs[users == user].var() for user in np.unique(users) if (users == user).sum() > 100]
    )
    assert within < 0.85 * logs.var()
    pairs = np.corrcoef(logs[:-1], logs[1:])[0, 1]  # the jobs of a burst are alike
    assert pairs > 0.2


def test_activity_is_uneven() -> None:
    counts = np.bincount(synthesize("helios", 50_000, 1).declared.user[:50_000])
    assert np.sort(counts)[::-1][:6].sum() > 0.25 * 50_000


def test_gavel_is_its_generator() -> None:
    table = {
        "v100": {
            f"('ResNet-18 (batch size {b})', {s})": {"null": 2.0}
            for b in (16, 32, 64, 128, 256)
            for s in (1, 2, 4, 8)
        }
    }
    trace = synthesize("gavel", 100_000, 3, gpus=512, throughput=steps_per_second(table))
    assert seconds(trace).mean() / 60 == pytest.approx(1006, rel=0.02)
    gpus, model = trace.declared.gpus[: trace.jobs], trace.declared.model[: trace.jobs]
    for size, percent in GAVEL_SIZES:
        assert (gpus == size).mean() == pytest.approx(percent / 100, abs=0.01)
    assert len(np.unique(model[gpus == 1])) == 26
    assert len(np.unique(model[gpus > 1])) == 19
    assert (trace.declared.weight[: trace.jobs] == 5).mean() == pytest.approx(0.2, abs=0.01)
    known = model <= 5
    expected = np.floor(2.0 * seconds(trace)[known])
    assert np.abs(trace.declared.steps[: trace.jobs][known] - expected).max() <= 1


@pytest.mark.parametrize(
    ("kind", "jobs", "gpus", "load"),
    [
        ("moon", 10, 8, 1),
        ("philly", 0, 8, 1),
        ("philly", 10**9, 8, 1),
        ("philly", 10, 0, 1),
        ("philly", 10, 8, 0),
        ("philly", 10, 8, float("nan")),
        ("gavel", 10, 8, -1),
        ("philly", 1000, 1, 1e-9),
    ],
)
def test_impossible_wishes(kind: str, jobs: int, gpus: int, load: float) -> None:
    with pytest.raises(BadInput) as caught:
        synthesize(kind, jobs, gpus=gpus, load=load)
    assert caught.value.mend


def test_the_demo_is_small_loaded_and_tenanted() -> None:
    trace = demo()
    facts = describe(trace)
    assert (facts["jobs"], facts["tenants"], trace.cluster) == (400, 4, "8x8xV100")
    assert facts["models"] >= 5
    assert offered_load(trace, 64) == pytest.approx(1.0, rel=0.05)
    assert facts["duration_seconds"]["p99"] > 20 * facts["duration_seconds"]["p50"]
    assert trace.declared.gpus[:400].max() <= 64


def test_describe_is_plain_data_that_adds_up() -> None:
    facts = describe(synthesize("pai", 2000, 1))
    assert sum(facts["hour_of_day"]) == 2000
    assert sum(row["jobs"] for row in facts["gangs"]) == 2000
    assert sum(row["gpu_hours"] for row in facts["gangs"]) == pytest.approx(facts["gpu_hours"])
    assert facts["duration_seconds"]["p0"] <= facts["duration_seconds"]["p50"]
    assert facts["shared_jobs"] > 0
    assert describe(synthesize("poisson", 1, 0))["jobs_per_hour"] is None
