"""What a run costs: flat prices of GPUs by type, for jobs, services and fleets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, JobSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import HOUR, MINUTE
from ganger.lab.metrics import to_json
from ganger.lab.report import render
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.trace import Trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"
CLUSTER = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100"), NodeSpec(gpus=4, gpu_type="T4")))
PRICES = {"V100": 2.0, "T4": 0.5}


def shape(size: int, type_: str = "", share: int = 1000, most: int = 0) -> Shape:
    role = Role(size=size, most=most, needs=Needs(share=share))
    return Shape((role,), gpu_types=(type_,) if type_ else ())


def cost(specs: list[JobSpec], minutes: list[int], **setup: object) -> dict[str, float]:
    lasts = np.array(minutes, np.int64) * MINUTE
    given = Setup(prices=PRICES, **setup)  # type: ignore[arg-type]
    run = run_one(Trace(declare(specs), lasts), CLUSTER, "fifo", given)
    assert run.metrics["cost_of_jobs"] == run.cost["jobs"]
    assert "cost_of_services" in render([run])
    assert to_json([run])["runs"][0]["cost"] == {**run.cost, "all": sum(run.cost.values())}
    return run.cost


def test_jobs_pay_by_the_hour_of_the_type_that_they_hold() -> None:
    """Two V100 for half an hour, three T4 for an hour and 20 minutes; nobody pays the rest of four
    of each for that long."""
    specs = [JobSpec(name="a", shape=shape(2, "V100")), JobSpec(name="b", shape=shape(3, "T4"))]
    jobs = 2 * 2.0 / 2 + 3 * 0.5 * 4 / 3
    assert cost(specs, [30, 80]) == {
        "jobs": pytest.approx(jobs),
        "services": 0,
        "idle": pytest.approx(4 * 2.5 * 4 / 3 - jobs),
    }


def test_a_part_of_a_gpu_costs_that_part() -> None:
    specs = [JobSpec(name=name, shape=shape(1, "T4", share=400)) for name in "ab"]
    assert cost(specs, [60, 60])["jobs"] == pytest.approx(2 * 0.4 * 0.5)


def test_a_service_pays_for_its_replicas() -> None:
    """Two replicas of one T4 for an hour."""
    service = JobSpec(name="web", kind=Kind.SERVE, shape=shape(1, "T4", most=4))
    found = cost([service], [60], serving="scale.static-peak(replicas=2)")
    assert found == {
        "jobs": 0,
        "services": pytest.approx(2 * 0.5, rel=1e-3),
        "idle": pytest.approx(4 * 2.5 - 1, rel=1e-2),
    }


def test_what_runs_still_is_paid_until_the_end() -> None:
    job = JobSpec(name="a", shape=shape(4, "V100"))
    assert cost([job], [600], until=HOUR)["jobs"] == pytest.approx(8.0)


def test_a_type_without_a_price_is_an_error() -> None:
    trace = Trace(declare([JobSpec(name="a")]), np.full(1, MINUTE, np.int64))
    with pytest.raises(BadInput, match="no price for V100"):
        run_one(trace, CLUSTER, "fifo", Setup(prices={"T4": 1.0}))


def scenario(folder: Path, prices: str) -> dict[str, object]:
    text = f"""format = "ganger.scenario/1"
models = "{EXAMPLES / "models.toml"}"
fleets = ["T4:2+L4:1"]
routers = ["serve.triton"]
prices = {prices}
[[services]]
name = "bert"
slo = "1s"
generate = {{ kind = "poisson", rate = 50, requests = 500 }}
"""
    (folder / "s.toml").write_text(text)
    result = CliRunner().invoke(simulate, [str(folder / "s.toml"), "--json", "--quiet"])
    if result.exception is not None:
        raise result.exception
    found: dict[str, object] = json.loads(result.stdout)["runs"][0]["metrics"]
    return found


def test_a_fleet_is_paid_for_as_long_as_requests_come(tmp_path: Path) -> None:
    found = scenario(tmp_path, "{ T4 = 0.4, L4 = 0.8 }")
    hours = float(str(found["span_seconds"])) / 3600
    assert found["cost"] == pytest.approx((2 * 0.4 + 0.8) * hours)
    in_time = int(str(found["answered"])) - int(str(found["late"]))
    assert found["cost_per_million_in_time"] == pytest.approx(1.6 * hours / in_time * 1e6)
    with pytest.raises(BadInput, match="no price for L4"):
        scenario(tmp_path, "{ T4 = 0.4 }")
    with pytest.raises(BadInput, match="prices"):
        scenario(tmp_path, "{ T4 = -1 }")
