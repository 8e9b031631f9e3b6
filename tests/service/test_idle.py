"""Jobs that do nothing with their GPUs, and the accounts of tenants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.client.connection import Client
from ganger.core.errors import BadInput
from ganger.engines.agent.meter import Meter, Running, cpu_seconds
from ganger.engines.agent.protocol import Key, Used
from ganger.service.idle import Rule
from ganger.service.reports.usage import parse_prices
from service.machines import Machine, wait_for
from waiting import until

KEY = Key(0, 1)
SPINS = [sys.executable, "-c", "while True: pass"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Machine(tmp_path / "home", meter_seconds=0.2)
    yield made.up()
    made.end()


def test_who_does_nothing_is_found_and_who_works_is_not(client: Client) -> None:
    client.call("PATCH", "/v1/idle", body={"after": 0.8})
    idle, busy = (
        client.call("POST", "/v1/jobs", body={"command": words})["job"]
        for words in (["sleep", "60"], SPINS)
    )
    until(lambda: any(job["told"] for job in client.call("GET", "/v1/idle")["jobs"]))
    assert [job["job"] for job in client.call("GET", "/v1/idle")["jobs"]] == [idle]
    (line,) = [one for one in client.call("GET", "/v1/status")["trouble"] if "idle" in one]
    assert line.startswith(f"job {idle} has been idle for ")
    assert client.call("GET", f"/v1/jobs/{idle}")[0]["state"] == "RUNNING", "only told"
    (usage,) = client.call("GET", "/v1/usage")
    assert usage["idle_gpu_hours"] > 0.4 / 3600
    text = b"".join(client.stream("/metrics")).decode()
    assert "ganger_idle_jobs 1.0" in text
    client.call("POST", f"/v1/jobs/{idle},{busy}/cancel")
    wait_for(client, [idle, busy])
    until(lambda: not client.call("GET", "/v1/idle")["jobs"])


def test_who_does_nothing_is_released_and_held(client: Client) -> None:
    client.call("PATCH", "/v1/idle", body={"after": 0.5, "action": "release"})
    job = client.call("POST", "/v1/jobs", body={"command": ["sleep", "60"]})["job"]
    kept = {"command": ["sleep", "60"], "on_preempt": "never"}
    never = client.call("POST", "/v1/jobs", body=kept)["job"]
    free = client.call("POST", "/v1/jobs", body={"command": ["sleep", "60"], "gpus": 0})["job"]

    def state(one: int) -> tuple[str, str]:
        (found,) = client.call("GET", f"/v1/jobs/{one}")
        return found["state"], found["reason"]

    until(lambda: state(job) == ("PENDING", "JobHeldUser"))
    until(lambda: any(one["told"] for one in client.call("GET", "/v1/idle")["jobs"]))
    assert state(never)[0] == state(free)[0] == "RUNNING"
    client.call("PATCH", "/v1/idle", body={"action": "off"})
    client.call("POST", f"/v1/jobs/{job}/release")
    until(lambda: state(job)[0] == "RUNNING")
    client.call("POST", f"/v1/jobs/{job},{never},{free}/cancel")


def test_who_was_only_told_of_is_released_once_the_rule_says_so(client: Client) -> None:
    client.call("PATCH", "/v1/idle", body={"after": 0.5, "action": "off"})
    job = client.call("POST", "/v1/jobs", body={"command": ["sleep", "60"]})["job"]

    def idle() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.call("GET", "/v1/idle")["jobs"]
        return found

    until(lambda: any(one["idle_seconds"] > 0.8 for one in idle()))
    assert not idle()[0]["told"], "nothing follows"
    client.call("PATCH", "/v1/idle", body={"action": "warn"})
    until(lambda: any(one["told"] for one in idle()))
    client.call("PATCH", "/v1/idle", body={"action": "release"})
    until(lambda: client.call("GET", f"/v1/jobs/{job}")[0]["reason"] == "JobHeldUser")
    client.call("POST", f"/v1/jobs/{job}/cancel")


def test_who_does_nothing_is_cancelled(client: Client) -> None:
    client.call("PATCH", "/v1/idle", body={"after": 0.5, "action": "cancel"})
    job = client.call("POST", "/v1/jobs", body={"command": ["sleep", "60"]})["job"]
    (found,) = wait_for(client, [job])
    assert found["state"] == "CANCELLED"


def test_the_rule_outlives_the_daemon(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home", meter_seconds=0.2)
    client = machine.up()
    try:
        client.call("PATCH", "/v1/idle", body={"after": 7.5, "gpu": 0.1})
        machine.kill()
        found = machine.up().call("GET", "/v1/idle")
        assert (found["after"], found["gpu"], found["action"]) == (7.5, 0.1, "warn")
    finally:
        machine.end()


@pytest.mark.parametrize(
    ("uses", "idle"),
    [
        ([(0.01, 3.0)], True),
        ([(0.01, 0.0), (0.5, 0.0)], False),
        ([(-1.0, 0.01)], True),
        ([(-1.0, 0.04), (-1.0, 0.04)], False),
        ([], False),
    ],
)
def test_what_counts_as_nothing(uses: list[tuple[float, float]], idle: bool) -> None:
    assert Rule().holds([Used(KEY, gpu, cores) for gpu, cores in uses]) is idle


@pytest.mark.parametrize("field", ["after", "gpu", "cores"])
def test_a_rule_that_cannot_be(field: str) -> None:
    with pytest.raises(BadInput) as refused:
        msgspec.structs.replace(Rule(), **{field: 0.0}).check()
    assert refused.value.where == field


def test_the_meter_counts_cores_and_asks_for_its_own_gpus() -> None:
    process = subprocess.Popen(SPINS)
    try:
        meter = Meter(lambda: [0.0, 0.75, 0.25])
        part = Running(KEY, [process.pid], [1, 2])
        assert meter.look([part]) == []
        time.sleep(0.5)
        before = cpu_seconds(process.pid)
        (used,) = meter.look([part])
        assert used.gpu == 0.75
        assert 0.05 < used.cores < 1.3
        assert before > 0.05
        assert meter.look([Running(Key(1, 1), [], [])]) == [], "a new part"
    finally:
        process.kill()
        process.wait()
    assert cpu_seconds(process.pid) == 0.0
    assert cpu_seconds(os.getpid()) > 0


def test_prices() -> None:
    assert parse_prices("A100=2.5, V100=1") == {"A100": 2.5, "V100": 1.0}
    assert parse_prices("") == {}
    for wrong in ("A100", "=1", "A100=x", "A100=-1", "A100=nan"):
        with pytest.raises(BadInput):
            parse_prices(wrong)
