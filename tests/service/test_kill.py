"""kill -9 of the daemon at random moments: nothing is lost, nothing starts twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.client.connection import Client
from ganger.core.errors import GangerError
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from service.machines import Machine, wait_for
from soaking import many

pytestmark = pytest.mark.long

SCRIPT = """
echo start >> {where}/$GANGER_JOB_ID.$GANGER_ATTEMPT
sleep {lasts}
echo $((GANGER_JOB_ID * 7)) >> {where}/result.$GANGER_JOB_ID
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    yield made
    made.end()


class Submitter(threading.Thread):
    """Submits job after job, each under a key of its own, and asks again until it is told."""

    def __init__(self, root: Path, where: Path, seed: int) -> None:
        super().__init__()
        self._root, self._where = root, where
        self._random = random.Random(seed)
        self.accepted: dict[str, int] = {}
        self.over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            lasts = self._random.choice((0, 0.01, 0.05, 0.3))
            body: dict[str, object] = {
                "command": ["sh", "-c", SCRIPT.format(where=self._where, lasts=lasts)],
                "gpus": self._random.choice((1, 1, 2, 4)),
            }
            self._submit(f"key-{number}", body)
            time.sleep(self._random.uniform(0, 0.08))

    def _submit(self, key: str, body: dict[str, object]) -> None:
        while True:
            client = Client(self._root)
            try:
                answer = client.call(
                    "POST", "/v1/jobs", body=body, headers={"Idempotency-Key": key}
                )
                self.accepted[key] = answer["job"]
                return
            except (GangerError, OSError):
                if self.over.is_set():
                    return
                time.sleep(0.01)
            finally:
                client.close()


def kill_often(machine: Machine, where: Path, times: int, seed: int) -> None:
    where.mkdir()
    choose = random.Random(seed)
    machine.up()
    submitter = Submitter(machine.root, where, seed)
    submitter.start()
    try:
        for _ in range(times):
            time.sleep(choose.uniform(0, 0.35))
            machine.kill()
            machine.up()
        time.sleep(0.2)
    finally:
        submitter.over.set()
        submitter.join()
    jobs = list(submitter.accepted.values())
    assert len(jobs) == len(set(jobs)), "one number for two submissions"
    client = machine.client
    total = client.call("GET", "/v1/jobs", query={"state": "all"})["total"]
    assert total in (len(jobs), len(jobs) + 1)  # the last may not have been told
    found = []
    for first in range(1, total + 1, 500):
        found += wait_for(client, list(range(first, min(first + 500, total + 1))), 300)
    assert {job["state"] for job in found} == {"COMPLETED"}, found
    for job in found:
        number = job["job"]
        starts = sorted(where.glob(f"{number}.*"))
        assert [start.name for start in starts] == [f"{number}.1"], "no second attempt was needed"
        assert starts[0].read_text() == "start\n", "an attempt started twice"
        assert (where / f"result.{number}").read_text() == f"{number * 7}\n"
    assert len(found) > times
    journal = Journal(machine.root / "journal.db", readonly=True)
    assert check_history(journal) > len(found)
    journal.close()


def test_twenty_kills(machine: Machine, tmp_path: Path) -> None:
    kill_often(machine, tmp_path / "where", 20, seed=1)


@pytest.mark.soak
def test_five_hundred_kills(machine: Machine, tmp_path: Path) -> None:
    kill_often(machine, tmp_path / "where", many(500), seed=2)
