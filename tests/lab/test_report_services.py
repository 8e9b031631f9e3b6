"""The report of jobs shows the services beside them, where their requests were simulated."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from ganger.core.units import SECOND
from ganger.lab.metrics import aggregate
from ganger.lab.report import render, services
from ganger.lab.report.page import text_of
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.processes import spike
from ganger.workloads.requests.synthetic import Mix, generated

from .builders import simulated
from .test_report import Page

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"


@cache
def run(router: str = "serve.no-batch") -> Run:
    """Two services for some minutes; one is asked for ten times as much for a minute."""
    mix = Mix(models=2, names=("resnet50", "bert"), zipf=2, slo=SECOND // 20)
    made = generated(spike(15, 300, 120.0, 30.0), seed=1, duration=400.0, mix=mix)
    models = read_models(EXAMPLES / "models.toml")
    traffic = Traffic(made, models, router, watch=True, yardsticks=True)
    setup = Setup(traffic=traffic, serving="scale.threshold(up=0.5,cooldown=20s)")
    cluster = load_cluster("2x4xT4")
    return run_one(load_trace(EXAMPLES / "trace.csv"), cluster, "fifo", setup)


def test_the_table_of_services_is_that_of_the_run() -> None:
    page = Page(render([run()]))
    assert "services" in page.ids
    section = page.words[page.words.index("Services") :]
    assert set(run().services) == {"web", "bert"}
    for name, figures in run().services.items():
        at = section.index(name)
        row = section[at : at + 200]
        assert f"{figures['requests']:,}" in row
        for share in ("attainment", "attainment_bound", "utilisation", "effective_accuracy"):
            assert f"{figures[share]:.1%}" in row
        assert f"{figures['dropped']:,}" in row
        assert text_of(figures["latency_p999_seconds"], "latency") in row


def test_the_curves_of_a_service_add_up_to_what_came() -> None:
    chart = Page(render([run()])).charts["panels"][0]
    assert chart["services"] == ["web", "bert"]
    (drawn,) = chart["groups"]
    for name, curves in drawn["services"].items():
        width = curves["at"][1] - curves["at"][0]
        came = sum(curves["arrivals"]) * width
        assert came == pytest.approx(run().services[name]["requests"], rel=0.01)
        assert len(curves["at"]) == len(curves["replicas"]) == len(curves["p99"])
    web = drawn["services"]["web"]
    at = max(range(len(web["at"])), key=lambda i: web["arrivals"][i])
    assert 120 <= web["at"][at] <= 150
    assert max(web["replicas"]) > web["replicas"][2] >= 1
    assert min(share for share in web["in_time"] if share is not None) < 1


def test_no_service_exceeds_what_it_could_have_with_all_its_replicas() -> None:
    for figures in run().services.values():
        assert 0 < figures["attainment"] <= figures["attainment_bound"] <= 1
        assert 0 < figures["utilisation"] < 1


def test_the_batches_of_a_service_are_drawn_on_the_lanes_that_it_used() -> None:
    (drawn,) = Page(render([run()])).charts["panels"][0]["groups"]
    for name, model in (("web", "resnet50"), ("bert", "bert")):
        lanes = drawn["services"][name]["lanes"]
        assert lanes["models"] == [model]
        boxes = [box for stretch in lanes["stretches"] for box in stretch["boxes"]]
        assert {lanes["types"][box[0]] for box in boxes} == {"T4"}
        assert {box[4] for box in boxes} == {1}  # serve.no-batch
        assert lanes["reasons"] == ["one at a time"]
        within = drawn["services"][name]["within"]
        answered = run().services[name]["answered"] / run().services[name]["requests"]
        assert within["y"][-1] == pytest.approx(answered, abs=1e-3)


def test_why_requests_were_dropped_and_how_tenants_did_is_said_of_each_service() -> None:
    mix = Mix(models=2, names=("resnet50", "bert"), zipf=2, slo=SECOND // 20, tenants=2)
    made = generated(spike(15, 2500, 120.0, 9.0), seed=1, duration=400.0, mix=mix)
    traffic = Traffic(made, read_models(EXAMPLES / "models.toml"), "nanily", watch=True)
    some = run_one(
        load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4"), "fifo", Setup(traffic=traffic)
    )
    page = Page(render([some]))
    drops = page.words[page.words.index("Why requests were dropped") :]
    for figures in some.services.values():
        ((reason, count),) = figures["dropped_by_reason"].items()
        assert reason in drops
        assert f"{count:,}" in drops
        assert f"{count / figures['requests']:.1%}" in drops
        assert {row["tenant"] for row in figures["classes"]} == {"tenant-0", "tenant-1"}
        assert sum(row["requests"] for row in figures["classes"]) == figures["requests"]
        assert all(f"{row['requests']:,}" in drops for row in figures["classes"])


def test_a_run_that_nobody_looks_at_keeps_no_batches() -> None:
    few = generated(spike(2, 3, 20.0, 5.0), seed=1, duration=60.0, mix=Mix(names=("bert",)))
    traffic = Traffic(few, read_models(EXAMPLES / "models.toml"), "serve.no-batch")
    plain = run_one(
        load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4"), "fifo", Setup(traffic=traffic)
    )
    assert plain.service_watched == {}
    assert "attainment_bound" not in plain.services["bert"]
    assert 'data-chart="lanes"' not in render([plain])


def test_what_a_choice_redraws_is_there() -> None:
    page = render([run()])
    drawn_by = page.partition("const DRAWN_BY = ")[2].partition("\n")[0]
    charts = set(re.findall(r'"(\w+)"', drawn_by))
    assert charts == {"services", "services_within", "lanes"}
    assert all(f'data-chart="{chart}"' in page for chart in charts)


def test_a_long_run_has_no_more_points_than_can_be_drawn() -> None:
    windows: dict[str, list[float | None]] = {
        "since": [10.0 * at for at in range(1000)],
        "until": [10.0 * at for at in range(1, 1001)],
        "arrivals": [100.0] * 1000,
        "answered": [90.0, 100.0] * 500,
        "dropped": [10.0, 0.0] * 500,
        "late": [0.0] * 1000,
        "queue": [0.0, 4.0] * 500,
        "replicas": [2.0] * 1000,
        "p99": [None, 0.2] * 500,
        "batch": [None, 3.0] * 500,
        "busy": [0.5] * 1000,
    }
    long = run()
    curves = services.charts(
        Run(
            long.recipe,
            0,
            "nothing",
            "t",
            "c",
            8,
            long.jobs,
            long.timeline,
            service_windows={"web": windows},
        )
    )["web"]
    assert 100 <= len(curves["at"]) <= services.POINTS
    assert curves["at"][0] == 35.0  # seven windows together
    assert set(curves["arrivals"]) == {10.0}
    assert set(curves["p99"]) == {0.2}
    assert set(curves["batch"]) == {3.0}
    assert set(curves["busy"]) == {0.5}
    assert curves["in_time"][0] == pytest.approx(660 / 700, abs=1e-3)


def test_without_requests_there_is_no_section() -> None:
    plain = simulated("fifo", 0, jobs=20, nodes=4)
    assert "services" not in Page(render([plain])).ids
    assert services.names(aggregate([plain])) == []
