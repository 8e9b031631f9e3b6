"""Metrics against arithmetic done by hand."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from ganger import simulate
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.lab import metrics
from ganger.lab.figures import fairness, integral
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.rows import Outage
from ganger.workloads.trace import Trace
from worlds import cluster, job, trace_of

from .builders import NAN, by_hand, nothing, run_of, simulated, table


def test_times_of_four_jobs() -> None:
    found = metrics.compute(by_hand())
    expected = {
        "jobs_submitted": 4,
        "jobs_finished": 4,
        "jobs_failed": 0,
        "jobs_cancelled": 0,
        "jobs_unfinished": 0,
        "services": 0,
        "jct_mean_seconds": 35,  # 30 10 34 66
        "jct_p50_seconds": 32,
        "jct_p90_seconds": 34 + 0.7 * 32,
        "jct_p99_seconds": 34 + 0.97 * 32,
        "makespan_seconds": 70,
        "queueing_delay_mean_seconds": 8.75,  # 0 0 9 26
        "queueing_delay_p50_seconds": 4.5,
        "pending_time_mean_seconds": 8.75,
        "slowdown_mean": (1 + 1 + 34 / 25 + 66 / 40) / 4,
        "throughput_jobs_per_hour": 4 / 70 * 3600,
        "gpu_allocated_ratio": 105 / 140,
        "gpu_active_ratio": 105 / 140,
        "gpu_up_ratio": 1,
        "preemptions": 0,
        "lost_work_gpu_seconds": 0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_finish_time_fairness_by_hand() -> None:
    # Two GPUs. Present: 2 in [0,1), 3 in [1,4), 4 in [4,10), 3 in [10,30), 2 in [30,35), 1 to 70.
    # Job 0 lives in [0,30): N = (2 + 9 + 24 + 60) / 30, so alone it has 2/N of a GPU.
    n0 = (2 + 9 + 24 + 60) / 30
    n1 = (2 + 9 + 24) / 10
    n2 = (9 + 24 + 60 + 10) / 34

    # Job 3 has N < 2: at least one GPU is its own.
    expected = [30 / (30 * n0 / 2), 10 / (10 * n1 / 2), 34 / (25 * n2 / 2), 66 / 40]
    assert fairness(by_hand()) == pytest.approx(expected)
    found = metrics.compute(by_hand())
    assert found["finish_time_fairness_max"] == pytest.approx(1.65)
    assert found["unfair_fraction"] == 0.25


def test_alone_on_the_cluster_is_fair() -> None:
    run = run_of(table([5.0], [5.0], [15.0], [10.0], gpus=[2]))
    assert fairness(run).tolist() == [1.0]
    assert metrics.compute(run)["unfair_fraction"] == 0.0


def test_nothing_finished_is_not_a_number() -> None:
    for run in (
        nothing(),
        run_of(table([0.0, 1.0], [0.0, NAN], [NAN, NAN], [5.0, 5.0], state=["running", "pending"])),
    ):
        found = metrics.compute(run)
        assert found["jobs_unfinished"] == found["jobs_submitted"]
        for name in ("jct_mean_seconds", "jct_p99_seconds", "makespan_seconds", "unfair_fraction"):
            assert math.isnan(found[name])
        assert math.isnan(found["gpu_allocated_ratio"])
        assert found["preemptions"] == 0


def test_failures_cancellations_and_services_have_no_jct() -> None:
    jobs = table(
        [0.0, 0.0, 2.0, 0.0],
        [0.0, 0.0, NAN, 0.0],
        [10.0, 4.0, 3.0, NAN],
        [10.0, 9.0, 9.0, NAN],
        state=["finished", "failed", "cancelled", "running"],
    )
    jobs.open_ended[3] = True
    found = metrics.compute(run_of(jobs, 4))
    assert [found[f"jobs_{s}"] for s in ("submitted", "finished", "failed", "cancelled")] == [
        3,
        1,
        1,
        1,
    ]
    assert found["jobs_unfinished"] == 0
    assert found["services"] == 1
    assert found["jct_mean_seconds"] == 10
    assert found["queueing_delay_mean_seconds"] == 0
    assert found["gpu_allocated_ratio"] == pytest.approx((10 + 4 + 10) / 40)


def killed_late() -> Run:
    """Two GPUs; one job finishes at 10 s, the other is killed at 40 s."""
    jobs = table([0.0, 0.0], [0.0, 0.0], [10.0, 40.0], [10.0, 99.0], state=["finished", "failed"])
    return run_of(jobs, 2)


def test_a_killed_job_has_an_end_but_no_jct() -> None:
    found = metrics.compute(killed_late())
    assert (found["jct_mean_seconds"], found["makespan_seconds"]) == (10, 40)
    assert found["gpu_allocated_ratio"] == pytest.approx((10 + 40) / 80)
    assert found["throughput_jobs_per_hour"] == pytest.approx(3600 / 40)


def test_the_simulator_gives_a_killed_job_its_end() -> None:
    run = run_one(trace_of([job("a", 0, 10), job("b", 0, 99, limit=40)]), cluster(1, 2), "fifo")
    assert run.jobs.finish.tolist() == [10, 40]
    assert run.metrics["makespan_seconds"] == 40
    assert run.metrics["gpu_allocated_ratio"] == pytest.approx(50 / 80)


def both_ways() -> list[Run]:
    """Under fifo all four finish, under srtf the long one does not, and its JCT is gone."""
    whole, partly = by_hand(), by_hand()
    partly.recipe, partly.jobs.state = "srtf", ["finished"] * 3 + ["failed"]
    partly.jobs.finish = partly.jobs.finish + np.array([1, 1, 1, 0])
    return [whole, partly]


def test_recipes_are_compared_on_the_jobs_that_finished_under_all() -> None:
    fifo, srtf = metrics.comparable(both_ways())
    assert (fifo.jobs, fifo.outside) == (srtf.jobs, srtf.outside) == (3, 1)
    assert metrics.metrics_of(both_ways()[0])["jct_mean_seconds"] == 35
    assert fifo.figures["jct_mean_seconds"] == pytest.approx((30 + 10 + 34) / 3)
    assert srtf.figures["jct_mean_seconds"] == pytest.approx((31 + 11 + 35) / 3)
    assert fifo.figures["queueing_delay_mean_seconds"] == pytest.approx((0 + 0 + 9) / 3)
    assert fifo.figures["makespan_seconds"] == 70, "of the run, not of the common jobs"
    assert [group.mean("jct_mean_seconds") for group in metrics.aggregate(both_ways())] == [
        fifo.figures["jct_mean_seconds"],
        srtf.figures["jct_mean_seconds"],
    ]
    data = metrics.to_json(both_ways())["runs"]
    assert data[0]["metrics"]["jct_mean_seconds"] == 35
    assert data[0]["on_common_jobs"]["jobs_outside"] == 1
    assert set(data[0]["on_common_jobs"]["metrics"]) == set(metrics.JOB_FIGURES)


def test_common_jobs_are_found_by_name_where_one_run_saw_fewer() -> None:
    short = run_of(
        table([0.0, 1.0], [0.0, 1.0], [10.0, 26.0], [10.0, 25.0], name=["job-1", "job-2"]),
        recipe="las",
    )
    fifo, las = metrics.comparable([by_hand(), short])
    assert (fifo.jobs, fifo.outside, las.jobs, las.outside) == (2, 2, 2, 0)
    assert fifo.figures["jct_mean_seconds"] == pytest.approx((10 + 34) / 2)


def test_where_nothing_is_common_each_keeps_its_own_figures() -> None:
    whole, none = by_hand(), by_hand()
    none.recipe, none.jobs.state = "stuck", ["running"] * 4
    none.jobs.finish = np.full(4, NAN)
    fifo, stuck = metrics.comparable([whole, none])
    assert (fifo.jobs, fifo.figures["jct_mean_seconds"]) == (0, 35)
    assert math.isnan(stuck.figures["jct_mean_seconds"])


def test_other_loads_and_seeds_are_not_compared_job_by_job() -> None:
    other = both_ways()[1]
    other.load = 2.0
    found = metrics.comparable([by_hand(), other])
    assert found[0].figures["jct_mean_seconds"] == 35
    assert found[1].figures == metrics.metrics_of(other)


def test_lost_work_counts_gpus() -> None:
    jobs = table([0.0, 0.0], [0.0, 0.0], [10.0, 10.0], [8.0, 10.0], gpus=[4, 1])
    jobs.lost[0], jobs.preemptions[0], jobs.restarts[0] = 2.0, 3, 1
    found = metrics.compute(run_of(jobs, 8))
    assert found["lost_work_gpu_seconds"] == 8
    assert (found["preemptions"], found["jobs_preempted"], found["restarts"]) == (3, 1, 1)


def test_integral_holds_each_sample_and_clips() -> None:
    line = by_hand().timeline
    whole = integral(line, line.gpus_held, 0, 70)
    assert whole == 105
    assert (
        integral(line, line.gpus_held, 0, 32.5) + integral(line, line.gpus_held, 32.5, 70) == whole
    )
    assert integral(line, line.gpus_up, -10, 70) == 140


def test_metrics_are_computed_once() -> None:
    run = by_hand()
    assert metrics.metrics_of(run) is metrics.metrics_of(run)


def test_confidence_is_students() -> None:
    mean, half = metrics.confidence([1, 2, 3, NAN])
    assert mean == 2
    assert half == pytest.approx(4.302653 / math.sqrt(3))  # t(0.975, 2) x s / sqrt(n), s = 1
    assert metrics.confidence([4]).mean == 4
    assert math.isnan(metrics.confidence([4]).half_width)
    assert math.isnan(metrics.confidence([]).mean)


def test_aggregate_groups_over_seeds_only() -> None:
    runs = [by_hand() for _ in range(6)]
    for i, run in enumerate(runs):
        run.seed = i
    runs[3].recipe = runs[4].recipe = "sjf"
    runs[4].knows, runs[5].load = "truth", 2.0
    groups = metrics.aggregate(runs)
    assert [(g.label, g.load, g.seeds) for g in groups] == [
        ("fifo", 1.0, [0, 1, 2]),
        ("sjf, knows nothing", 1.0, [3]),
        ("sjf, knows truth", 1.0, [4]),
        ("fifo", 2.0, [5]),
    ]
    assert groups[0].metrics["jct_mean_seconds"] == metrics.Estimate(35, 0)
    assert groups[0].mean("jct_mean_seconds") == 35
    assert math.isnan(groups[0].mean("no_such_metric"))


def test_aggregate_names_what_differs() -> None:
    first, second = by_hand(), by_hand()
    second.cluster = "2x2xA100"
    assert [g.label for g in metrics.aggregate([first, second])] == [
        "fifo, 1x2xV100",
        "fifo, 2x2xA100",
    ]


def test_breakdown_by_tenant() -> None:
    ann, bob = metrics.breakdown(by_hand(), "tenant")
    assert (ann["tenant"], ann["jobs"], ann["jct_mean_seconds"]) == ("ann", 2, 32)
    assert (bob["tenant"], bob["jct_mean_seconds"]) == ("bob", 38)
    assert ann["gpu_hours"] == pytest.approx(55 / 3600)
    assert ann["gpu_hours_ratio"] + bob["gpu_hours_ratio"] == pytest.approx(1)


def test_breakdown_by_gpus_is_in_order_of_size() -> None:
    rows = metrics.breakdown(simulated("fifo", jobs=40), "gpus")
    sizes = [row["gpus"] for row in rows]
    assert sizes == sorted(sizes)
    assert sum(row["jobs"] for row in rows) == 40
    assert metrics.breakdown(nothing(), "gpu_type") == []


def test_json_form() -> None:
    run = run_of(table([0.0], [NAN], [NAN], [5.0], state=["pending"]))
    found = metrics.to_json([run], per_job_path="jobs.csv")
    (only,) = found["runs"]
    assert list(only) == [
        "recipe",
        "seed",
        "knows",
        "load",
        "metrics",
        "per_job",
        "simulation",
        "rows",
        "rows_left_out",
        "notes",
        "on_common_jobs",
    ]
    assert only["on_common_jobs"] is None, "it is compared with nothing"
    assert only["metrics"]["jct_mean_seconds"] is None
    assert only["per_job"] == "jobs.csv"
    assert list(only["simulation"]) == ["events", "decisions", "cpu_seconds", "peak_rss_bytes"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert metrics.to_json([by_hand(), by_hand()])["runs"][1]["per_job"] is None


def test_json_refuses_a_wrong_number_of_paths() -> None:
    with pytest.raises(BadInput, match="1 per-job files for 2 runs"):
        metrics.to_json([by_hand(), by_hand()], "jobs.csv")


def test_csv_round_trip(tmp_path: Path) -> None:
    run = by_hand()
    run.jobs.name[1] = 'comma, "quote"\nand a line'
    run.jobs.finish[3] = NAN
    run.jobs.state[3] = "running"
    metrics.write_jobs(run, tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["job"] for row in rows] == run.jobs.name
    assert [float(row["jct_seconds"]) for row in rows[:3]] == [30, 10, 34]
    assert rows[3]["jct_seconds"] == "" == rows[3]["finish_seconds"]
    assert rows[0]["gpus"] == "1"
    assert rows[0]["locality"] == "node"


def test_parquet_says_what_csv_says(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = by_hand()
    run.jobs.finish[3] = NAN
    metrics.write_jobs(run, tmp_path / "jobs.parquet")
    assert parquet.read_table(tmp_path / "jobs.parquet").to_pydict() == metrics.job_columns(run)


def test_parquet_without_pyarrow_names_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install pyarrow"):
        metrics.write_jobs(by_hand(), tmp_path / "jobs.parquet")


def test_unknown_file_form(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.csv or \.parquet"):
        metrics.write_jobs(by_hand(), tmp_path / "jobs.xls")


def test_toy_runs_obey_the_definitions() -> None:
    for recipe in ("fifo", "srtf"):
        run = simulated(recipe, jobs=60)
        found = metrics.compute(run)
        assert found["jobs_finished"] == 60
        jct = run.jobs.finish - run.jobs.arrival
        assert (jct >= run.jobs.duration - 1e-3).all()
        assert found["jct_mean_seconds"] == pytest.approx(float(np.mean(jct)))
        assert 0 < found["gpu_allocated_ratio"] <= 1


def test_a_gpu_of_which_two_jobs_have_a_half_is_held_once(tmp_path: Path) -> None:
    path = tmp_path / "halves.csv"
    rows = ["a,0,100,1,0.5", "b,0,100,1,0.5", "c,0,100,1,1"]
    path.write_text("\n".join(["job,submitted,duration,gpus,share", *rows]) + "\n")
    run = simulate(str(path), "1x2xV100", "fifo")
    assert run.timeline.gpus_held.tolist() == run.timeline.gpus_running.tolist() == [2, 0]
    assert run.metrics["gpu_allocated_ratio"] == run.metrics["gpu_active_ratio"] == 1


def test_nodes_that_are_down_are_missing_from_the_time_that_gpus_are_up() -> None:
    """One of two GPUs is down for a quarter of the 100 s: an eighth of all GPU time is missing."""
    declared = declare([JobSpec(name="a"), JobSpec(name="b", submitted=60 * SECOND)])
    trace = Trace(declared, np.array([50, 40]) * SECOND)
    spec = ClusterSpec((NodeSpec(count=2, gpus=1, gpu_type="V100"),))
    down = Outage(1, 10 * SECOND, 35 * SECOND)
    assert run_one(trace, spec, "fifo", Setup(outages=(down,))).metrics["gpu_up_ratio"] == 0.875


def test_segments_hold_what_still_runs_at_the_end_of_the_simulation() -> None:
    trace = trace_of([job("a", 0, 10), job("b", 0, 99)])
    run = run_one(trace, cluster(1, 2), "fifo", Setup(until=30 * SECOND))
    assert run.segments is not None
    assert sorted((each.job, each.start_seconds, each.end_seconds) for each in run.segments) == [
        (0, 0, 10),
        (1, 0, 30),
    ]
