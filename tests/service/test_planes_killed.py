"""kill -9 of a daemon with a search and a service: the recipes, the trials and what they reported
are there again, and the search goes on to its end. The trials are those of the examples."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganger.core.events import Evaluated
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from service.machines import Machine, wait_for
from waiting import until

PLANES = Path(__file__).parents[2] / "examples" / "planes"
RATES = ["0.01", "0.03", "0.1", "0.3", "1", "3"]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(
        tmp_path / "home",
        inner="tune.sha(trials=6,eta=3)",
        window="1s",
        serving="scale.threshold(cooldown=1s)",
    )
    yield made
    made.end()


def detail(machine: Machine, job: int) -> dict[str, Any]:
    """All about a job."""
    found: dict[str, Any] = machine.client.call("GET", f"/v1/jobs/{job}")[0]
    return found


def test_a_search_and_a_service_outlive_their_daemon(machine: Machine, tmp_path: Path) -> None:
    client = machine.up()
    (tmp_path / "load").write_text("0.95")
    web = client.call(
        "POST",
        "/v1/jobs",
        body={
            "command": [sys.executable, "-S", str(PLANES / "replica.py"), str(tmp_path / "load")],
            "kind": "serve",
            "gpus": 1,
            "max_gpus": 2,
        },
    )["job"]
    search = client.call(
        "POST",
        "/v1/jobs",
        body={
            "command": [sys.executable, "-S", str(PLANES / "trial.py"), "--seconds", "0.15"],
            "kind": "tune",
            "gpus": 2,
            "params": {"lr": RATES},
            "metric": "loss",
        },
    )["job"]
    until(lambda: (detail(machine, search)["family"] or {}).get("best") is not None)
    machine.kill()
    machine.up()
    machine.kill()
    machine.up()
    assert client.call("GET", "/v1/policy")["inner"] == "tune.sha(trials=6,eta=3)"
    (found,) = wait_for(client, [search])
    assert found["state"] == "COMPLETED"
    family = detail(machine, search)["family"]
    assert len(family["children"]) == 6
    (best,) = [one for one in family["children"] if one["job"] == family["best"]]
    assert best["params"] == {"lr": "0.1"}
    assert (best["step"], best["value"]) == (9, pytest.approx(0.1 + 1 / 9))
    until(lambda: detail(machine, web)["children"].get("RUNNING") == 2)
    client.call("POST", f"/v1/jobs/{web}/cancel")
    wait_for(client, [web])
    journal = Journal(machine.root / "journal.db", readonly=True)
    told = dict[tuple[int, int], list[float]]()
    for _, batch, _ in journal.steps(0):
        for event in batch.events:
            if isinstance(event, Evaluated):
                told.setdefault((event.job, event.attempt), []).append(event.epoch)
    assert all(epochs == sorted(set(epochs)) for epochs in told.values()), "each once, in order"
    assert check_history(journal) > 10
    journal.close()
