"""A log that an earlier version wrote (commit f7a7e2e1) is read, and decided again as it was."""

from __future__ import annotations

from pathlib import Path

from ganger.core.events import Accepted, Evaluated, Served
from ganger.lab.log import Log, replay

KEPT = Path(__file__).parent / "logs" / "three_planes.log.gz"


def test_services_trials_and_jobs_of_an_earlier_version_are_decided_the_same() -> None:
    kinds = {type(event) for step in Log(KEPT).steps() for event in step.events}
    assert {Accepted, Evaluated, Served} <= kinds
    assert replay(KEPT) == 1282
