"""How far a run is, told by the work that it has simulated."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ganger.cli.progress import forecast
from ganger.core.kernel import Kernel
from ganger.core.units import NEVER, SECOND
from ganger.lab.api import Task, run_all
from ganger.lab.simulating.progress import EVERY_SECONDS, Ticker
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace
from worlds import Work, cluster, job, trace_of


def shares(works: list[Work], until: float | None = None) -> dict[float, float]:
    """By second: the share at each step of a run on two GPUs."""
    trace, found = trace_of(works), dict[float, float]()
    stop = NEVER if until is None else round(until * SECOND)

    class Look:
        """A journal that asks at every step."""

        def __init__(self, kernel: Kernel) -> None:
            self.kernel = kernel
            self.ticker = Ticker(kernel, trace, stop, lambda share: None)

        def append(self, *step: Any) -> None:
            """After a step."""
            found[self.kernel.now / SECOND] = self.ticker.share()

    run_one(trace, cluster(1, 2), "fifo", Setup(until=stop), journal=Look)
    return found


def test_a_share_is_of_the_work_done_a_tenth_of_it_by_gpu_time() -> None:
    found = shares([job("short", 0, 10), job("long", 0, 40), job("late", 20, 20)])
    assert found == pytest.approx(
        {
            0: 0,
            10: 0.3 * (1 + 10 / 40) + 0.1 * 20 / 70,
            20: 0.3 * (1 + 20 / 40) + 0.1 * 30 / 70,
            40: 1,
        }
    )


def test_services_are_no_work_and_a_run_with_an_end_is_as_far_as_the_time() -> None:
    found = shares([job("serve", 0, None), job("a", 0, 10), job("b", 0, 30)], until=40)
    assert found[10] == pytest.approx(0.45 * 1 + 0.1 * 10 / 40)
    assert found[40] == 1
    assert shares([job("serve", 0, None)], until=40)[40] == 1


def ended() -> tuple[Trace, Kernel]:
    """A job of 10 s, and a kernel that has run it."""
    kept: list[Kernel] = []

    class Keep:
        """Remembers the kernel."""

        def __init__(self, kernel: Kernel) -> None:
            kept.append(kernel)

        def append(self, *step: Any) -> None:
            """Nothing."""

    trace = trace_of([job("a", 0, 10)])
    run_one(trace, cluster(1, 2), "fifo", journal=Keep)
    return trace, kept[0]


def test_a_share_never_falls_though_work_is_lost() -> None:
    told: list[float] = []
    trace, kernel = ended()
    ticker = Ticker(kernel, trace, NEVER, told.append)
    ticker.append()
    kernel.jobs.phase[0], kernel.jobs.work[0] = 2, 0.0
    ticker._due = 0.0
    ticker.append()
    assert told == [1.0, 1.0]


def test_a_look_that_had_to_wait_keeps_no_bar_still() -> None:
    """On a busy machine a look may take long, though it costs nothing."""
    told: list[float] = []

    def tell(share: float) -> None:
        told.append(share)
        time.sleep(0.05)

    trace, kernel = ended()
    ticker = Ticker(kernel, trace, NEVER, tell)
    ticker.append()
    time.sleep(EVERY_SECONDS)
    ticker.append()
    assert len(told) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_tell_how_far_they_are_in_this_process_and_in_others(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar that hears only of whole runs stands still for as long as the longest takes."""
    monkeypatch.setattr("ganger.lab.simulating.progress.EVERY_SECONDS", 0.02)
    monkeypatch.setattr("ganger.lab.api.LOOK_SECONDS", 0.01)
    trace: Trace = synthesize("philly", 5000, 1, gpus=512)
    told: dict[int, list[float]] = {0: [], 1: []}
    run_all(
        [Task("srtf", trace, Setup()), Task("srtf", trace, Setup())],
        cluster(64, 8),
        workers=workers,
        progress=lambda task, share: told[task].append(share),
    )
    for heard in told.values():
        assert heard == sorted(heard)
        assert heard[-1] == 1.0
        assert any(0.05 < share < 0.95 for share in heard)


@pytest.mark.parametrize(
    ("elapsed", "share", "said"),
    [(30.0, 0.25, "about 1m 30s left"), (30.0, 0.01, ""), (30.0, 1.0, ""), (None, 0.5, "")],
)
def test_the_rest_is_forecast_by_what_was_done(
    elapsed: float | None, share: float, said: str
) -> None:
    assert forecast(elapsed, share) == said
