"""The examples of services, searches and jobs in one kernel: what docs/services-and-searches.md
promises of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.typed import typed
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Failed, NodeDown, Served
from ganger.core.plan import Resize, Spawn, Start, Stop
from ganger.lab.log import Log, Step
from ganger.lab.simulating.refusals import refuse_unknown_services
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.measured.loads import read_loads

FILES = Path(__file__).parents[2] / "examples" / "planes"
SEARCH = ("--inner", "tune.sha(trials=12,first=3)", "--profiles", str(FILES / "curves.toml"))
SERVICE = ("--serving", "scale.threshold", "--rates", str(FILES / "rates.csv"))


class Told:
    """A run of one of the examples, by its log."""

    def __init__(self, folder: Path, trace: str, *options: str) -> None:
        self.folder, self.log = folder, folder / "run.log"
        typed(
            folder,
            "simulate",
            str(FILES / trace),
            "--cluster",
            "2x8xV100",
            "--log",
            str(self.log),
            "--validate",
            "--quiet",
            *options,
        )
        log = Log(self.log)
        self.steps: list[Step] = list(log.steps())
        declared = log.trace.declared
        self.names = [declared.name(job) for job in range(declared.n)]
        for step in self.steps:
            self.names += [each.spec.name for each in step.events if isinstance(each, Accepted)]

    def actions(self, kind: Any, name: str) -> Iterator[tuple[float, Any]]:
        """When (seconds) such actions were taken on the job, or one whose name begins so."""
        for step in self.steps:
            for action in step.actions or ():
                if isinstance(action, kind) and self.names[action.job].startswith(name):
                    yield step.at / 1e6, action

    def replay(self) -> None:
        """Decided again from the log alone, every plan is the same."""
        said = typed(self.folder, "replay", str(self.log)).stdout
        assert said == f"{len(self.steps)} steps replayed, every plan is the same\n"


def sizes(told: Told, name: str) -> list[int]:
    """What a job held after each start and resize of it."""
    return [
        sum(slot.devices.bit_count() for slot in action.placement)
        for _, action in told.actions((Start, Resize), name)
    ]


def test_a_search_grows_and_shrinks_is_stopped_whole_loses_a_node_and_ends(tmp_path: Path) -> None:
    told = Told(
        tmp_path, "search.csv", "--recipe", "afs", "--outages", str(FILES / "outages.csv"), *SEARCH
    )
    own = [
        (at, action)
        for at, action in told.actions((Start, Resize, Stop), "search")
        if told.names[action.job] == "search"
    ]
    changes = [
        (
            type(action).__name__,
            sum(slot.devices.bit_count() for slot in action.placement)
            if not isinstance(action, Stop)
            else action.why,
        )
        for _, action in own
    ]
    assert changes == [
        ("Start", 12),
        ("Resize", 8),
        ("Resize", 4),
        ("Resize", 3),
        ("Stop", "preempted"),
        ("Start", 2),
        ("Start", 2),
        ("Resize", 4),
        ("Stop", "retired"),
    ]
    with_parent = [
        at for at, action in told.actions(Stop, "search-trial") if action.why == "parent"
    ]
    # At 1200 the one trial that runs fits in the three GPUs that are left, and goes on.
    assert sorted(set(with_parent)) == [600, 900, 1260, 3000], "fewer fit, or other GPUs"
    lost = [
        told.names[event.job]
        for step in told.steps
        for event in step.events
        if isinstance(event, Failed) and event.why == "NodeFail"
    ]
    assert "search" in lost
    assert any(name.startswith("search-trial") for name in lost)
    assert sum(isinstance(event, NodeDown) for step in told.steps for event in step.events) == 1
    spawns = [
        action for step in told.steps for action in step.actions or () if isinstance(action, Spawn)
    ]
    assert [spawn.n for spawn in spawns] == [12], "once, whatever happens to the search"
    told.replay()


def test_a_service_goes_from_three_replicas_to_five_to_one_and_restarts_none(
    tmp_path: Path,
) -> None:
    told = Told(tmp_path, "service.csv", *SERVICE)
    running, counts = set[int](), list[int]()
    for _, action in told.actions((Start, Stop, Resize), "web-replica"):
        assert not isinstance(action, Resize)
        (running.add if isinstance(action, Start) else running.discard)(action.job)
        counts.append(len(running))
    assert counts == [1, 2, 3, 4, 5, 4, 3, 2, 1, 0]
    starts = [action.job for _, action in told.actions(Start, "web-replica")]
    assert len(starts) == len(set(starts)) == 5
    assert [action.why for _, action in told.actions(Stop, "web-replica")] == [
        *["retired"] * 4,
        "cancelled",
    ], "the last one with its service"
    assert not list(told.actions((Stop, Resize), "train")), "nor any job beside it"
    windows = [event for step in told.steps for event in step.events if isinstance(event, Served)]
    assert len(windows) == 1260
    came, answered = (
        sum(window.figures[name][0] or 0.0 for window in windows)
        for name in ("arrivals", "answered")
    )
    assert came == pytest.approx(150 * 1800 + 450 * 3600 + 40 * 7200)
    assert answered == pytest.approx(came), "all of them by the end"
    told.replay()


def test_three_recipes_in_one_kernel_decide_the_same_from_their_log(tmp_path: Path) -> None:
    told = Told(tmp_path, "all.csv", *SERVICE, *SEARCH)
    assert sizes(told, "web") == [0, 1, 1, 1, 1, 1]
    trials = [action.job for _, action in told.actions(Start, "search-trial")]
    assert len(set(trials)) == 12
    why = [action.why for _, action in told.actions(Stop, "search-trial")]
    assert (why.count("retired"), why.count("preempted")) == (11 - retired_in_line(told), 0)
    assert {name for name in told.names if name.startswith("train")} == {
        told.names[action.job] for _, action in told.actions(Start, "train")
    }
    told.replay()


def test_a_trial_that_came_late_is_explained_from_the_log(tmp_path: Path) -> None:
    told = Told(tmp_path, "all.csv", *SERVICE, *SEARCH)
    last = [name for name in told.names if name.startswith("search-trial")][-1]
    said = typed(tmp_path, "explain", last, "--log", str(told.log), "--at", "1m").stdout
    assert f"job {last} at 1:00 of the log: PENDING" in said
    assert "SuccessiveHalving" in said
    wrong = typed(tmp_path, "explain", "search-trial-99", "--log", str(told.log), code=2).stderr
    assert "no job 'search-trial-99'" in wrong


def retired_in_line(told: Told) -> int:
    """How many trials were retired while they were set aside."""
    from ganger.core.plan import Retire

    return sum(isinstance(action, Retire) for step in told.steps for action in step.actions or ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "rates.csv"),
        ("service,time\nweb,0\n", "requests_per_second"),
        ("{h}\nweb,0,1,10\n", "'web' has one row only"),
        ("{h}\nweb,0,1,10\nweb,0,2,10\n", "do not ascend: 0 after 0"),
        ("{h}\nweb,9,1,10\nweb,3,2,10\n", "do not ascend: 3 after 9"),
        ("{h}\nweb,0,1,10\nweb,3,2,11\n", "changes from 10 to 11"),
        ("{h}\nweb,0,1,0\nweb,3,2,0\n", "out of range"),
        ("{h}\nweb,0,-1,5\nweb,3,2,5\n", "out of range"),
        ("{h}\nweb,0,nan,5\nweb,3,2,5\n", "not a finite number"),
        ("{h}\nweb,0,many,5\nweb,3,2,5\n", "many"),
        ("{h}\nwob,0,1,5\nwob,3,2,5\n", "'wob' is not a job of kind serve"),
        ("{h}\ntrain-1,0,1,5\ntrain-1,3,2,5\n", "there are web"),
    ],
)
def test_requests_that_cannot_be_are_one_error(tmp_path: Path, text: str, complaint: str) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text(text.format(h="service,time,requests_per_second,replica_per_second"))
    trace = load_trace(FILES / "service.csv")
    with pytest.raises(BadInput) as refused:
        refuse_unknown_services(trace, read_loads(rates))
    assert complaint in str(refused.value)


@pytest.mark.parametrize("recipe", ["mark", "barista", "inferline"])
def test_a_recipe_that_plans_by_latencies_is_not_run_without(recipe: str) -> None:
    trace = load_trace(FILES / "service.csv")
    with pytest.raises(BadInput, match="give --requests and --models, or another"):
        run_one(trace, load_cluster("2x8xV100"), "fifo", Setup(serving=recipe))


@pytest.mark.parametrize("window", ["0s", "500ms", "soon", "-5s"])
def test_a_window_is_a_second_or_longer(tmp_path: Path, window: str) -> None:
    said = typed(
        tmp_path,
        "simulate",
        str(FILES / "service.csv"),
        "--cluster",
        "2x8xV100",
        "--window",
        window,
        code=2,
    ).stderr
    assert "--window" in said
