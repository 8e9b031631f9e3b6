"""Policies of a real daemon decide on curves that jobs measured: `--knows measured`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.weather import SCALES
from ganger.client.connection import Client
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from service.machines import Machine, wait_for

pytestmark = pytest.mark.long

MODELS = {"scales": (0.004, 0.096), "flat": (0.096, 0.004)}


def held(job: dict[str, Any]) -> int:
    """How many GPUs its last attempt holds, 0 if it does not run."""
    if job["state"] != "RUNNING":
        return 0
    return sum(text.count(",") + 1 for text in job["attempts"][-1]["devices"])


def until(client: Client, jobs: list[int], holds: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Wait until it holds of the jobs."""
    late = time.monotonic() + 60
    path = "/v1/jobs/" + ",".join(map(str, jobs))
    while not holds(found := client.call("GET", path)):
        assert time.monotonic() < late, [(one["state"], one["attempts"]) for one in found]
        time.sleep(0.05)


@pytest.mark.parametrize(
    "recipe", ["pollux(interval=2s,rescale=100ms)", "optimus(interval=2s)", "afs"]
)
def test_who_scales_gets_the_gpus(tmp_path: Path, recipe: str) -> None:
    """One job of each model runs on one GPU, one of each on four; then two elastic jobs, one of
    each model, share eight GPUs: whoever scales gets most of them, with half of them asked for."""
    machine = Machine(tmp_path / "home", gpus="8", recipe=recipe, knows="measured")
    client = machine.up()

    def submit(model: str, steps: int, **more: Any) -> int:
        command = [sys.executable, "-S", "-c", SCALES, str(steps), *map(str, MODELS[model])]
        body = {"command": command, "model": model, **more}
        return int(client.call("POST", "/v1/jobs", body=body)["job"])

    try:
        first = [
            submit(model, round(8 / (serial + shared / n)), gpus=n, workers=n, estimate="10s")
            for model, (serial, shared) in MODELS.items()
            for n in (1, 4)
        ]
        assert {one["state"] for one in wait_for(client, first, 90)} == {"COMPLETED"}
        jobs = [
            submit(model, 5000, gpus=4, min_gpus=1, max_gpus=8, estimate="10m") for model in MODELS
        ]

        def decided(found: list[dict[str, Any]]) -> bool:
            scales, flat = map(held, found)
            return scales >= 5 and 1 <= flat <= 2

        until(client, jobs, decided)
        client.call("POST", f"/v1/jobs/{jobs[0]},{jobs[1]}/cancel")
        wait_for(client, jobs)
    finally:
        machine.end()
    journal = Journal(machine.root / "journal.db", readonly=True)
    assert check_history(journal) > 10  # the log alone gives the same plans
    journal.close()
