"""What trials report: each report once and in order, whoever dies in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engines.conformance import Play, on
from engines.rig import PYTHON, LocalBench
from ganger.core.events import Evaluated, Finished
from ganger.core.plan import Start
from ganger.engines.agent.attempt.launch import Home
from ganger.engines.agent.attempt.reports import Kept, Reports
from ganger.engines.agent.protocol import Report

WAITS = "import os, time\nwhile not os.path.exists({flag!r}): time.sleep(.005)\n"


def run(play: Play, text: str, metric: str = "") -> int:
    """A trial of this Python text, on a GPU."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(job, *PYTHON, text, metric=metric, env={"GANGER_METRIC": metric})
    play.apply(Start(job, 1, (on(0, 0),)))
    return job


def values(play: Play, job: int) -> list[float | None]:
    """What was reported so far."""
    return [event.value for event in play.find(Evaluated, job)]


def test_reports_come_in_order_and_before_the_end(play: Play) -> None:
    job = run(
        play,
        "from ganger import sdk\nfor epoch in range(1, 6):\n"
        "    sdk.report(epoch, loss=1 / epoch, accuracy=epoch / 10, final=epoch == 5)",
        "accuracy",
    )
    play.until(Finished, job)
    told = play.find(Evaluated, job)
    assert [event.epoch for event in told] == [1, 2, 3, 4, 5]
    assert values(play, job) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert told[3].metrics == {"loss": 0.25}
    assert [event.final for event in told] == [False] * 4 + [True]
    kinds = [type(event) for event in play.events if getattr(event, "job", -1) == job]
    assert kinds.index(Finished) == len(kinds) - 1


def test_an_agent_and_an_engine_that_die_repeat_and_drop_nothing(
    play: Play, tmp_path: Path
) -> None:
    flags = [str(tmp_path / name) for name in "ab"]
    job = run(
        play,
        "from ganger import sdk\nsdk.report(1, loss=1.0)\n"
        + WAITS.format(flag=flags[0])
        + "sdk.report(2, loss=2.0)\n"
        + WAITS.format(flag=flags[1])
        + "sdk.report(3, loss=3.0)",
    )
    play.wait(lambda: values(play, job) == [1.0], "the first")
    play.bench.kill_agent(0)
    Path(flags[0]).touch()
    play.wait(lambda: values(play, job) == [1.0, 2.0], "the second, through another agent")
    Path(flags[1]).touch()
    play.bench.reconnect([(job, 1, "RUNNING", (on(0, 0),))])  # an owner that knows of none
    play.until(Finished, job)
    assert values(play, job) == [1.0, 2.0, 1.0, 2.0, 3.0]


def test_an_owner_that_has_journalled_some_is_told_the_others(play: Play, tmp_path: Path) -> None:
    flag = str(tmp_path / "flag")
    text = "from ganger import sdk\nsdk.report(1, loss=1.0); sdk.report(2, loss=2.0)\n"
    job = run(play, text + WAITS.format(flag=flag))
    play.wait(lambda: len(values(play, job)) == 2, "both")
    bench = play.bench
    assert isinstance(bench, LocalBench)
    bench.engine.close()
    from ganger.core.state.jobs import Phase
    from ganger.engines.local import Hold

    bench.engine = bench.connected([Hold(job, 1, Phase.RUNNING, (on(0, 0),), reports=1)])
    play.wait(lambda: len(values(play, job)) == 3, "the second again")
    Path(flag).touch()
    play.until(Finished, job)
    assert values(play, job) == [1.0, 2.0, 2.0]


def test_who_breaks_down_says_so_and_what_has_no_name_is_not_sent(play: Play) -> None:
    job = run(
        play,
        "from ganger import sdk\n"
        "for wrong in (lambda: sdk.report(1, other=1.0), lambda: sdk.report(1),\n"
        "              lambda: sdk.report(float('nan'), loss=1.0)):\n"
        "    try: wrong()\n    except ValueError: pass\n    else: raise SystemExit(3)\n"
        "sdk.report(1, loss=float('nan'), other=float('inf'), more=2.0)",
        "loss",
    )
    play.until(Finished, job)
    (told,) = play.find(Evaluated, job)
    assert (told.value, told.metrics) == (None, {"more": 2.0})


def test_who_reports_without_end_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reports = Reports(tmp_path / "reports", "")
    for number in range(300):
        reports.take({"step": number, "metrics": {"loss": 1.0}})
    assert reports.rest_until == pytest.approx(100.0 + 100 / 20)
    clock[0] += 1000.0
    reports.take({"step": 300, "metrics": {"loss": 1.0}})
    assert reports.rest_until < clock[0], "after a pause it is heard again"
    assert sum(len(some) for _, some in Kept(tmp_path / "reports").new()) == 301


def test_a_full_disk_keeps_a_report_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    reports = Reports(folder / "reports", "loss")
    assert not reports.take({"step": 1, "metrics": {"loss": 1.0}})
    assert reports.rest_until > time.monotonic()
    folder.mkdir()
    assert reports.write()
    assert not reports.write(), "once"
    assert list(Kept(folder / "reports").new()) == [(1, (Report(1.0, 1.0),))]


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"step": 1},
        {"step": 1, "metrics": {}},
        {"step": "x", "metrics": {"loss": 1}},
        {"step": 1, "metrics": {"other": 1}},
        {"step": -1, "metrics": {"loss": 1}},
        {"step": 1e999, "metrics": {"loss": 1}},
        {"step": 1, "metrics": {"loss": "much"}},
        {"step": 1, "metrics": {"loss": 1, "x" * 129: 1}},
        {"step": 1, "metrics": [1]},
        {"step": 1, "metrics": {"loss": 1, "\ud800": 1}},
        {"step": 1, "metrics": {"loss": 1, **{str(i): 1 for i in range(17)}}},
    ],
)
def test_nonsense_is_no_report(tmp_path: Path, told: dict[str, Any]) -> None:
    reports = Reports(tmp_path / "reports", "loss")
    with pytest.raises((ValueError, TypeError, AttributeError, LookupError)):
        reports.take(told)
    assert not (tmp_path / "reports").exists()


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    Reports(path, "").take({"step": 1, "metrics": {"loss": 1.0}})
    line = path.read_bytes()
    path.write_bytes(line + line[:5])
    kept = Kept(path)
    assert [number for number, _ in kept.new()] == [1]
    path.write_bytes(line + line)
    assert [number for number, _ in kept.new()] == [2]
    kept.again()
    assert [(number, len(some)) for number, some in kept.new()] == [(1, 2)]


def test_what_a_trial_is_told_stands_in_the_sdk(tmp_path: Path) -> None:
    Home(tmp_path).make()
    text = "from ganger import sdk; print(sdk.number, sdk.configuration['lr'], sdk.until)"
    env = {
        "PYTHONPATH": str(tmp_path / "sdk"),
        "GANGER_CHILD": "3",
        "GANGER_UNTIL": "9",
        "GANGER_CONFIGURATION": json.dumps({"lr": "0.1"}),
        "PATH": os.environ["PATH"],
    }
    said = subprocess.run(
        [sys.executable, "-S", "-c", text], env=env, capture_output=True, check=True, text=True
    ).stdout
    assert said == "3 0.1 9.0\n"
