"""Jobs that share devices under a daemon, on core sets: real processes, decided on what they
measured of themselves and on what their agent saw them use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.rig import Agents
from ganger.core.state.jobs import Phase
from ganger.service.durable.recovery import check_history, guard_of
from ganger.service.reports.explain import explain
from ganger.service.reports.rows import job_detail, measured
from service.live_desk import LiveDesk

STEPS = """
import os, time
from ganger import sdk
where, device = os.environ["WHERE"], os.environ["CUDA_VISIBLE_DEVICES"]
mine = f"{where}/{device}.{os.environ['GANGER_JOB']}"
steps = 0
while not os.path.exists(f"{where}/done-{os.environ['GANGER_JOB']}"):
    open(mine, "w").close()
    beats = [each for each in os.scandir(where) if each.name.startswith(device + ".")]
    company = sum(time.time() - each.stat().st_mtime < .2 for each in beats) - 1
    until = time.process_time() + .002
    while time.process_time() < until: pass
    time.sleep(.05 if company and os.environ["HATES"] else .008)
    steps += 1
    sdk.progress(steps, 0)
    sdk.step()
    if sdk.should_checkpoint(): sdk.leave(steps)
"""
PYTHON = [sys.executable, "-S", "-c"]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[str], LiveDesk]]:
    """A daemon over a node of four devices that are core sets."""
    agents = Agents(tmp_path / "agents", ["a"], "--core-sets", "--meter", "0.3")
    (tmp_path / "where").mkdir()
    desks: list[LiveDesk] = []

    def begin(recipe: str) -> LiveDesk:
        desks.append(LiveDesk(tmp_path, agents, recipe))
        return desks[-1]

    yield begin
    for desk in desks:
        desk.close()
    agents.close()


def submit(desk: LiveDesk, model: str, *, hates: bool = False, **fields: object) -> int:
    """A job of one device that runs until it is told; `hates`: its steps are longer in company."""
    env = {"WHERE": str(desk.root / "where"), "HATES": "1" * hates}
    (row,) = desk.submit(command=[*PYTHON, STEPS], gpus=1, model=model, env=env, **fields)
    return row


def is_known(desk: LiveDesk, model: str) -> bool:
    """Whether the oracle was told what the model's jobs use."""
    return bool(desk.daemon.kernel.oracle.profile(model).utilisation)


def finish(desk: LiveDesk, row: int) -> None:
    """The job is done."""
    (desk.root / "where" / f"done-{row}").touch()
    desk.until(lambda: desk.phase(row) == Phase.FINISHED)


def classes(desk: LiveDesk, *rows: int) -> list[float]:
    """What the jobs request of their devices' time."""
    knobs = desk.daemon.kernel.settings.knobs
    return [float(knobs[row]["request"]) for row in rows]


def replayed(desk: LiveDesk) -> None:
    """The journal is decided again, to the same plans."""
    kernel = desk.daemon.kernel
    assert guard_of(kernel).error == ""
    assert desk.daemon.set_aside == []
    assert check_history(desk.journal) == kernel.revision


def test_an_opportunistic_job_comes_beside_and_is_guaranteed_once_it_is_alone(
    begun: Callable[[str], LiveDesk],
) -> None:
    desk = begun("antman")
    first = submit(desk, "m")
    desk.until(lambda: is_known(desk, "m"))
    finish(desk, first)
    guaranteed = [submit(desk, "m") for _ in range(4)]
    desk.until(lambda: all(desk.phase(row) == Phase.RUNNING for row in guaranteed))
    late = submit(desk, "m")
    desk.until(lambda: desk.phase(late) == Phase.RUNNING)
    assert classes(desk, *guaranteed, late) == [1.0] * 4 + [0.0]
    (shared,) = desk.daemon.kernel.ledger.holds[late][1]
    (beside,) = (row for row in guaranteed if desk.daemon.kernel.ledger.holds[row][1] == (shared,))
    rate = desk.agents.homes["a"] / "attempts" / f"{late}.1.0" / "rate"
    desk.until(lambda: rate.exists() and float(rate.read_text() or 1) < 0.5)
    desk.until(lambda: (measured(desk.daemon, late).rate or 1.0) < 0.5)
    said = explain(desk.daemon, late)
    mine, firm = said.company
    assert (mine.standing, mine.model, firm.standing) == ("opportunistic", "m", "guaranteed")
    assert mine.rate == measured(desk.daemon, late).rate == job_detail(desk.daemon, late).rate
    assert firm.rate == 1.0
    (sentence,) = (line for line in said.lines if line.startswith("It shares its GPUs, as an"))
    assert f"which may compute for {mine.rate:.0%} of the time" in sentence
    assert "as far as is known" not in sentence, "what is believed of a job that is held is not so"
    finish(desk, beside)
    desk.until(lambda: classes(desk, late) == [1.0])
    desk.until(lambda: float(rate.read_text()) == 1.0)
    replayed(desk)


def test_a_pair_that_measured_too_slow_is_taken_apart_and_not_tried_again(
    begun: Callable[[str], LiveDesk],
) -> None:
    desk = begun("gandiva(quantum=2s)")
    first = submit(desk, "m", hates=True)
    desk.until(lambda: is_known(desk, "m"))
    finish(desk, first)
    rows = [submit(desk, "m", hates=True) for _ in range(5)]
    desk.until(lambda: bool(pairs(desk)))
    (together,) = pairs(desk).values()
    assert 0.0 < together < 0.95, "two did less than one alone"
    kernel = desk.daemon.kernel
    seen = kernel.revision
    desk.until(lambda: kernel.revision > seen + 40)
    held = [placement for _, placement in kernel.ledger.holds.values()]
    assert len(set(held)) == len(held), "every job that computes has a device of its own"
    assert any(kernel.jobs.phase[row] != Phase.RUNNING for row in rows)
    replayed(desk)


def pairs(desk: LiveDesk) -> dict[str, float]:
    """What the recipe has measured of pairs."""
    memory = desk.daemon.kernel.memory
    found: dict[str, float] = getattr(memory, "pairs", {})
    return found


def test_memory_that_would_not_fit_is_refused(begun: Callable[[str], LiveDesk]) -> None:
    """Two halves of a device whose memory is too much together lie on two devices, and what no
    device has waits for a node that has it."""
    desk = begun("space-sharing")
    rows = [submit(desk, "m", share=0.5, gpu_memory="9G") for _ in range(2)]
    fits = submit(desk, "m", share=0.5, gpu_memory="2G")
    desk.until(lambda: all(desk.phase(row) == Phase.RUNNING for row in (*rows, fits)))
    ledger = desk.daemon.kernel.ledger
    one, other, third = (ledger.holds[row][1][0].devices for row in (*rows, fits))
    assert one != other
    assert third in (one, other)
    never = submit(desk, "m", share=0.5, gpu_memory="100G")
    desk.once()
    assert desk.phase(never) == Phase.PENDING
    assert explain(desk.daemon, never).reason == "Resources"
