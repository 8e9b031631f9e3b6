"""Long logs by windows: what is run, what is read from the table, and how far that is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.lab.serving.requests import requests
from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.core.serving.world import World
from ganger.core.state.names import Names
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import ServingRun, Setup, serve
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.trouble import Trouble
from ganger.lab.serving.windows.look import Look, look_at
from ganger.lab.serving.windows.table import LEAST, MOST, Entry
from ganger.lab.serving.windows.thinning import Windowed
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.processes import Curve, constant, step
from ganger.workloads.requests.synthetic import Mix, generated
from soaking import rarely

pytestmark = pytest.mark.long

TEXT = """format = "ganger.models/1"
devices = [{ name = "T4" }]
[[models]]
name = "one"
[[models.latency]]
device = "T4"
batch = [1, 2, 4, 8, 16]
mean = [0.004, 0.006, 0.009, 0.014, 0.026]
p99 = [0.005, 0.008, 0.012, 0.018, 0.033]
[[models]]
name = "two"
latency = [{ device = "T4", base = 0.006, each = 0.002, largest = 16 }]
"""


SHORTLY = ("--quiet", "--no-yardsticks")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    path = tmp_path_factory.mktemp("windows") / "m.toml"
    path.write_text(TEXT)
    return read_models(str(path))


def log(curve: Curve, count: int, *, cv: float = 1.0, slo: float = 0.03) -> Requests:
    mix = Mix(models=2, names=("one", "two"), zipf=2, slo=round(slo * SECOND))
    return generated(curve, seed=5, most=count, cv=cv, mix=mix)


def runs(
    models: Models, made: Requests, recipe: str, window: float, fleet: str = "T4:4"
) -> tuple[ServingRun, ServingRun, dict[str, Any]]:
    """Every request; by windows; which windows."""
    whole, some = (
        serve(made, models, read_fleet(fleet), recipe, Setup(windows=round(each * SECOND)))
        for each in (0, window)
    )
    assert some.windows is not None
    return whole, some, some.windows


@pytest.mark.parametrize(
    ("recipe", "rate", "cv", "slo"),
    [("serve.triton", 800, 2.0, 0.025), rarely(("clipper", 1100, 1.0, 0.02))],
)
def test_what_is_read_is_what_a_run_gives(
    models: Models, recipe: str, rate: float, cv: float, slo: float
) -> None:
    """The limits of the design: a point of attainment, 5 % of p50, 15 % of p99."""
    made = log(constant(rate), 130_000, cv=cv, slo=slo)
    whole, some, found = runs(models, made, recipe, 6)
    assert found["read"] > found["windows"] / 3
    one, other = whole.metrics, some.metrics
    assert other["requests"] == one["requests"] == 130_000
    assert 0.5 < float(one["attainment"] or 0) < 0.999
    assert other["attainment"] == pytest.approx(one["attainment"], abs=0.01)
    for name, within in {
        "latency_p50_seconds": 0.05,
        "latency_p99_seconds": 0.15,
        "latency_mean_seconds": 0.05,
        "goodput_per_second": 0.02,
        "batch_mean": 0.02,
        "utilisation": 0.02,
        "lanes_used_mean": 0.01,
        "span_seconds": 0.001,
    }.items():
        assert other[name] == pytest.approx(one[name], rel=within), name
    assert sum(some.dropped.values()) == other["dropped"]
    assert [row["requests"] for row in some.models] == pytest.approx(
        [row["requests"] for row in whole.models], rel=0.02
    )


def test_near_capacity_every_window_is_run_and_nothing_differs(models: Models) -> None:
    whole, some, found = runs(models, log(constant(2000), 60_000), "serve.triton", 4)
    assert found["read"] == 0
    assert found["run"]["near capacity"] == 7
    assert some.metrics == whole.metrics
    assert some.dropped == whole.dropped
    assert some.models == whole.models


def test_the_window_after_a_step_is_run_though_its_like_was_measured(models: Models) -> None:
    """200 a second, 500 for a minute, and 200 again: the table knows those from the beginning."""
    up, down = (log(step(200, 500, at=120), 54_000), log(constant(200), 14_000))
    later = up.gather(), down.gather().earlier(-round(181 * SECOND))
    columns = {
        name: np.concatenate([each.columns[name] for each in later]) for name in later[0].columns
    }
    both = Requests.of(Chunk(**columns), Names(["one", "two"]))
    _, _, found = runs(models, both, "serve.triton", 10)
    assert found["run"]["after a change"] >= 3
    assert found["read"] >= 4
    assert found["windows"] == found["read"] + sum(found["run"].values())


def test_a_pause_in_which_nobody_comes_counts_as_time(models: Models) -> None:
    rows = log(constant(500), 40_000).gather()
    late = np.where(np.arange(40_000) < 20_000, 0, 1000 * SECOND)
    moved = Chunk(rows.arrival + late, rows.model)
    whole, some, _ = runs(models, Requests.of(moved, Names(["one", "two"])), "serve.triton", 5)
    assert some.metrics["span_seconds"] == pytest.approx(whole.metrics["span_seconds"], rel=1e-3)
    assert some.metrics["utilisation"] == pytest.approx(whole.metrics["utilisation"], rel=0.03)


def test_the_same_log_gives_the_same_table(models: Models) -> None:
    made = log(constant(300), 30_000)
    first, again = (
        serve(made, models, read_fleet("T4:4"), "serve.triton", Setup(windows=5 * SECOND))
        for _ in range(2)
    )
    assert first.windows is not None
    assert first.windows["table"]
    assert first.windows == again.windows
    assert first.metrics == again.metrics


# ---------------------------------------------------------------------- the table


def entry() -> Entry:
    return Entry(Look(1, 1.0, np.ones(1), 1.0, 1.0, {}), Tally(World([], []), []))


def fill(one: Entry, in_time: list[int], latency: int = 10_000) -> None:
    """A thousand requests for each number of those that are in time."""
    for count in in_time:
        good = np.arange(1000) < count
        one.add(np.full(1000, latency), np.ones(1000, np.bool_), good)
        one.tally.requests += 1000


def test_an_interval_by_hand() -> None:
    """Means of 0.89 and 0.91 in turns: half of the interval is 2.093 * 0.01 * sqrt(20/19/20)."""
    one = entry()
    fill(one, [890, 910] * 10)
    mean, half = one.intervals()["attainment"]
    assert mean == pytest.approx(0.9)
    assert half == pytest.approx(2.093 * 0.01 / 19**0.5, rel=1e-3)
    assert one.intervals()["latency_p99_seconds"] == pytest.approx((0.01, 0.0))
    assert one.converged  # 0.48 points


def converges(entry: Entry) -> bool:
    return entry.converged


def test_an_entry_converges_by_its_own_intervals() -> None:
    few, wide, slow = entry(), entry(), entry()
    fill(few, [900] * (LEAST // 1000 - 1))
    assert not converges(few)
    fill(few, [900])
    assert converges(few)
    fill(wide, [880, 920] * 10)
    assert not converges(wide)
    fill(wide, [880, 920] * 40)
    assert converges(wide)
    for latency in (8_000, 12_000) * 10:
        fill(slow, [900], latency)
    assert not converges(slow)


def test_blocks_do_not_depend_on_how_requests_come() -> None:
    whole, parts = entry(), entry()
    latency = np.arange(40_000) % 977
    good = latency < 800
    whole.add(latency, np.ones(40_000, np.bool_), good)
    for begin in range(0, 40_000, 700):
        some = slice(begin, begin + 700)
        parts.add(latency[some], np.ones(len(latency[some]), np.bool_), good[some])
    assert whole.intervals() == parts.intervals()


def look(
    rate: float, part: float = 0.5, cv: float = 1.0, slack: float = 0.1, dispersion: float = 1.0
) -> Look:
    return Look(10_000, rate, np.array([part, 1 - part]), cv, dispersion, {"slack": slack})


@pytest.mark.parametrize(
    "other",
    [
        look(106),
        look(100, part=0.6),
        look(100, cv=1.3),
        look(100, slack=0.12),
        look(100, dispersion=2.0),
    ],
)
def test_windows_that_differ_in_one_thing_are_not_alike(other: Look) -> None:
    assert look(100).distance(look(101, part=0.51, cv=1.05, slack=0.101)) <= 1
    assert look(100).distance(other) > 1


def test_figures_of_a_window_by_hand() -> None:
    """Four requests in a second, two at once; items cost 0.1 s of all devices, of model 1 twice."""
    at = np.array([0, 250_000, 250_000, 750_000]) + 3 * SECOND
    rows = Chunk(at, np.array([0, 1, 0, 0], np.int32), items=np.array([1, 2, 1, 2], np.int32))
    found = look_at(rows, SECOND, np.array([0.1, 0.2]) * SECOND, 1.0)
    assert found.rate == 4
    assert found.work == pytest.approx([0.4, 0.4])
    assert found.load == pytest.approx(0.8)
    assert found.gap_cv == pytest.approx(np.std([0.25, 0, 0.5]) / 0.25)
    assert found.sizes == {"items": 1.5}
    counts = np.bincount([0, 64, 64, 192], minlength=256)
    assert found.dispersion == pytest.approx(counts.var() / counts.mean())


def thinned(counts: list[int]) -> Windowed:
    """Windows of a second with so many requests at equal distances, each of which needs 10 ms of
    all devices; what the router made of them is not heard of."""
    at = [
        np.arange(count) * SECOND // count + second * SECOND for second, count in enumerate(counts)
    ]
    rows = np.concatenate(at).astype(np.int64)
    made = Requests.of(Chunk(rows, np.zeros(len(rows), np.int32)), Names(["m"]))
    windowed = Windowed(made, SECOND, 1.0, lambda name: 10_000.0, 1.0, lambda: entry().tally)
    windowed.requests.gather()
    return windowed


def test_why_windows_are_run() -> None:
    """Full up to a load of 0.8 and no further; a window that is only a little less loaded than a
    full one may have to answer what that left."""
    assert thinned([78, 78, 80]).choosing.counts == {"after a change": 1, "measured": 2}
    assert thinned([78, 81, 78]).choosing.counts == {"after a change": 2, "near capacity": 1}
    assert thinned([50, 61, 61]).choosing.counts == {"after a change": 2, "measured": 1}
    assert thinned([50, 59, 59]).choosing.counts == {"after a change": 1, "measured": 2}


def test_an_entry_that_did_not_converge_is_run_no_more_for_the_table() -> None:
    windowed = thinned([50, 50])
    (one,) = windowed.choosing.table.entries
    one.tally.requests = MOST
    windowed.requests.gather()
    assert windowed.choosing.counts["not converged"] == 2


# ---------------------------------------------------------------------- the commands


def files(folder: Path) -> list[str]:
    (folder / "m.toml").write_text(TEXT)
    made = ["synth", "poisson", "--rate", "200", "--requests", "40000", "--slo", "40ms"]
    path = str(folder / "r.csv")
    CliRunner().invoke(requests, [*made, "--models", "one", "-o", path], catch_exceptions=False)
    return [path, "--models", str(folder / "m.toml"), "--fleet", "T4:3", *SHORTLY]


def test_the_output_says_how_many_windows_were_read(tmp_path: Path) -> None:
    given = files(tmp_path)
    shown = CliRunner().invoke(
        requests, ["simulate", *given, "--windows", "10s"], env={"COLUMNS": "200"}
    )
    as_json = CliRunner().invoke(requests, ["simulate", *given, "--windows", "10s", "--json"])
    found = json.loads(as_json.stdout)["runs"][0]["windows"]
    assert found["read"]
    assert found["table"][0]["attainment_half_width"] <= 0.005
    run = found["run"]
    assert f"of 21 windows of 10.0 s, {found['read']} were read from a table of" in shown.output
    assert f"({run['after a change']} after a change, {run['measured']} measured)" in shown.output
    (tmp_path / "s.toml").write_text(
        'format = "ganger.scenario/1"\nmodels = "m.toml"\nrouters = ["serve.triton"]\n'
        'fleets = ["T4:3"]\nwindows = "10s"\n[[services]]\nname = "a"\nrequests = "r.csv"\n'
    )
    scenario = CliRunner().invoke(simulate, [str(tmp_path / "s.toml"), "--json", *SHORTLY])
    assert json.loads(scenario.stdout)["runs"][0]["windows"] == found


@pytest.mark.parametrize(
    ("setup", "recipe", "why"),
    [
        (Setup(windows=SECOND), "cache.clairvoyant", "knows all requests that come"),
        (Setup(windows=SECOND), "swayam", "gives lanes back"),
        (Setup(windows=SECOND, watch=True), "serve.triton", "a report draws every window"),
        (Setup(windows=SECOND, trouble=Trouble("mtbf=1h,mttr=1m")), "serve.triton", "devices fail"),
    ],
)
def test_what_needs_every_request_is_refused(
    models: Models, setup: Setup, recipe: str, why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        serve(log(constant(100), 100), models, read_fleet("T4:2"), recipe, setup)


def test_no_window_without_length(tmp_path: Path) -> None:
    result = CliRunner().invoke(requests, ["simulate", *files(tmp_path), "--windows", "0s"])
    assert isinstance(result.exception, BadInput)
    assert result.exception.where == "--windows"
