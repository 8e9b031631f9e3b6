"""Sizes that change and GPUs that are shared, over a real Slurm: with pilots and without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from engines.site import Site, missing
from service.machines import Machine, wait_for
from service.slurm_desk import STEPS, job, runs, submit
from waiting import until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
V100 = {"gpu_types": ["v100"]}


def sizes(machine: Machine, number: int) -> list[int]:
    """How many GPUs each attempt of a job had."""
    return [
        sum(len(one.partition(":")[2].split(",")) for one in attempt["devices"])
        for attempt in job(machine, number)["attempts"]
    ]


@pytest.mark.parametrize("mode", ["pilots", "machine"])
@pytest.mark.parametrize("recipe", ["elan", "afs"])
def test_elastic_jobs_shrink_for_others_and_grow_again(
    request: pytest.FixtureRequest, site: Site, tmp_path: Path, mode: str, recipe: str
) -> None:
    machine: Machine = request.getfixturevalue(mode)
    if mode == "pilots":
        client = machine.up(recipe=recipe, pilot="0..1", pilot_idle="1m")
    else:
        site.ask("scontrol", "update", "NodeName=v1", "State=DRAIN", "Reason=test")
        client = machine.up(recipe=recipe)
    ends = [tmp_path / "a", tmp_path / "b"]
    elastic: dict[str, Any] = {"gpus": 4, "min_gpus": 1, "max_gpus": 4, **V100}
    first = submit(machine, sys.executable, "-c", STEPS, str(ends[0]), "400", **elastic)
    until(lambda: job(machine, first)["progress"].get("step", 0) > 3, "some steps")
    second = submit(machine, sys.executable, "-c", STEPS, str(ends[1]), "100", **elastic)
    runs(machine, first, second)
    found = wait_for(client, [first, second], 120)
    assert [one["state"] for one in found] == ["COMPLETED"] * 2
    for number, path in zip((first, second), ends, strict=True):
        attempts = job(machine, number)["attempts"]
        assert path.read_text() == f"{len(attempts)}\n", "it ended once, in its last attempt"
    had = sizes(machine, first)
    assert had[0] == had[-1] == 4, "it grew again"
    assert min(had) < 4


def test_parts_of_a_gpu_and_gangs_that_take_turns(pilots: Machine, tmp_path: Path) -> None:
    client = pilots.up(recipe="las(quantum=8s)", pilot="0..1", pilot_idle="1m")
    parts = [submit(pilots, "sleep", "2", share=0.5, **V100) for _ in range(4)]
    runs(pilots, *parts)
    held = {job(pilots, number)["attempts"][0]["devices"][0] for number in parts}
    assert len(held) == 2, "two and two share a GPU"
    assert [one["state"] for one in wait_for(client, parts, 60)] == ["COMPLETED"] * 4
    gangs = [
        submit(
            pilots,
            sys.executable,
            "-c",
            STEPS,
            str(tmp_path / name),
            "120",
            gpus=4,
            workers=4,
            **V100,
        )
        for name in ("a", "b")
    ]
    found = wait_for(client, gangs, 120)
    assert [one["state"] for one in found] == ["COMPLETED"] * 2
    spans = [
        sorted((one["started"], one["ended"]) for one in job(pilots, number)["attempts"])
        for number in gangs
    ]
    assert all(len(span) > 1 for span in spans), f"each had to wait for the other: {spans}"
    assert max(span[0][0] for span in spans) < min(span[-1][1] for span in spans)
    for name in ("a", "b"):
        assert len((tmp_path / name).read_text().split()) == 1
