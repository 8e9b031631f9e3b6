"""The three examples of `examples/planes`, simulated, and decided again from their logs: a search
under a grant that changes, a service beside training, and all of it in one kernel. The same on
the local engine: `tests/service/test_planes_live.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.cli.main import cli
from ganger.core.events import Accepted, NodeDown, NodeUp
from ganger.core.plan import PAUSED, RETIRED, Resize, Start, Stop
from ganger.lab.log import Log

PLANES = Path(__file__).parents[2] / "examples" / "planes"
CURVES = ("--profiles", PLANES / "curves.toml")
RATES = ("--rates", PLANES / "rates.csv")


def played(where: Path, trace: str, *options: object) -> Log:
    """The log of a simulation, which is decided again to the same plans."""
    log = where / "planes.log"
    words = ["simulate", PLANES / trace, "--cluster", "2x8xV100", *options, "--log", log]
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(cli, ["replay", str(log), "--check"])
    assert again.output.endswith("steps replayed, every plan is the same\n")
    return Log(log)


def test_twelve_trials_under_a_grant_that_grows_shrinks_goes_and_comes_back(
    tmp_path: Path,
) -> None:
    inner, outages = "tune.sha(trials=12,first=3)", PLANES / "outages.csv"
    options = ("--recipe", "afs", "--inner", inner, "--outages", outages, *CURVES)
    log = played(tmp_path, "search.csv", *options)
    search, told, trials = log.trace.declared.find("search"), list[object](), 0
    for step in log.steps():
        trials += sum(isinstance(event, Accepted) for event in step.events)
        told += [type(event) for event in step.events if isinstance(event, NodeDown | NodeUp)]
        for action in step.actions or ():
            if not isinstance(action, Start | Resize | Stop) or action.job != search:
                continue
            if isinstance(action, Stop):
                told.append(action.why)
            else:
                told.append(sum(slot.devices.bit_count() for slot in action.placement))
    assert trials == 12
    assert told == [12, 8, 4, 3, "preempted", 2, NodeDown, 2, NodeUp, 4, RETIRED]


def test_a_service_is_scaled_beside_training_and_restarts_no_sibling(tmp_path: Path) -> None:
    log = played(
        tmp_path, "service.csv", "--recipe", "fifo", "--serving", "scale.threshold", *RATES
    )
    replicas, running, starts, sizes = set[int](), set[int](), list[int](), list[int]()
    for step in log.steps():
        replicas |= {
            event.job
            for event in step.events
            if isinstance(event, Accepted) and event.spec.parent == "web"
        }
        for action in step.actions or ():
            if isinstance(action, Start) and action.job in replicas:
                starts.append(action.job)
                running.add(action.job)
            elif isinstance(action, Stop) and action.why == RETIRED:
                running.discard(action.job)
        sizes.append(len(running))
    assert sorted(starts) == sorted(set(starts)), "none was started twice"
    assert (max(sizes), sizes[-1]) == (5, 1)


@pytest.mark.parametrize("trials", [6, 12])
def test_three_recipes_in_one_kernel(tmp_path: Path, trials: int) -> None:
    log = played(
        tmp_path,
        "all.csv",
        "--recipe",
        "fifo",
        "--serving",
        "scale.threshold",
        "--inner",
        f"tune.sha(trials={trials},first=3)",
        *RATES,
        *CURVES,
    )
    parents, stops = list[str](), list[str]()
    for step in log.steps():
        parents += [event.spec.parent for event in step.events if isinstance(event, Accepted)]
        stops += [action.why for action in step.actions or () if isinstance(action, Stop)]
    assert parents.count("search") == trials
    assert parents.count("web") >= 3
    assert PAUSED in stops
    assert "preempted" not in stops, "fifo preempts nothing"
