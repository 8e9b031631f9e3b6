"""Searches and services of a daemon: how their children come, what they are told, who may add one,
and that a crash loses none."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.client.request import JobRequest
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Batch, Evaluated, Served, Unable
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.protocol import Key, Progress
from ganger.engines.launch import Launch
from ganger.engines.testing.fake import Script
from ganger.service.commands import SetPolicy
from ganger.service.durable.journal import Header
from ganger.service.durable.recovery import check_history, guard_of
from ganger.service.durable.sandbox import outlook
from ganger.service.families import not_before
from ganger.service.jobs import families
from ganger.service.jobs.families import tried_again
from ganger.service.reports.explain import explain
from ganger.service.reports.rows import job_answer, job_detail, job_page, shares
from service.desk import Desk, header

GRID = {"lr": ["0.1", "0.2"], "wd": ["1", "2"]}


def under(
    inner: str = "tune.sha(trials=4,eta=2)", serving: str = "", policy: str = "fifo"
) -> Header:
    """A header with recipes for families, over a node of 4 GPUs."""
    return msgspec.structs.replace(header(policy), inner=inner, serving=serving)


def endless(job: int, attempt: int) -> Script:
    """Runs until it is stopped."""
    return Script(runs=NEVER)


def search(desk: Desk, **fields: Any) -> int:
    """A search over a grid of four configurations, on two GPUs."""
    (row,) = desk.submit(**{"kind": "tune", "gpus": 2, "params": GRID, "name": "s", **fields})
    return row


def phases(desk: Desk) -> list[str]:
    """Of all jobs."""
    jobs = desk.daemon.kernel.jobs
    return [Phase(phase).name for phase in jobs.phase[: jobs.n]]


def test_a_recipe_asks_for_trials_and_each_gets_the_next_configuration(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, checkpoint_dir="/tmp/kept", metric="loss")
    desk.steps(4)
    assert phases(desk) == ["RUNNING", "RUNNING", "RUNNING", "PENDING", "PENDING"]
    facts = [desk.journal.facts(child) for child in range(1, 5)]
    assert [one.params for one in facts] == [
        {"lr": "0.1", "wd": "1"},
        {"lr": "0.1", "wd": "2"},
        {"lr": "0.2", "wd": "1"},
        {"lr": "0.2", "wd": "2"},
    ]
    assert facts[3].name == "s lr=0.2 wd=2"
    launch = desk.daemon.launch(2)
    assert {name: value for name, value in launch.env.items() if name != "GANGER_HOME"} == {
        "GANGER_PARENT_ID": "1",
        "GANGER_CHILD": "1",
        "GANGER_METRIC": "loss",
        "GANGER_CONFIGURATION": json.dumps({"lr": "0.1", "wd": "2"}),
        "GANGER_UNTIL": "1",
        "GANGER_PARAM_LR": "0.1",
        "GANGER_PARAM_WD": "2",
        "GANGER_JOB_ID": "3",
        "GANGER_JOB_NAME": "s lr=0.1 wd=2",
    }
    assert (launch.checkpoint_dir, launch.hollow, launch.metric) == ("/tmp/kept/3", False, "loss")
    assert desk.daemon.launch(row).hollow, "the search itself runs nothing"
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_two_searches_with_one_folder_do_not_go_on_from_each_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    first = search(desk, checkpoint_dir="/tmp/kept", metric="loss")
    desk.steps(4)
    second = search(desk, checkpoint_dir="/tmp/kept", metric="loss")
    desk.steps(4)
    jobs = desk.daemon.kernel.jobs
    folders = {
        search: {
            desk.journal.facts(row).launch.checkpoint_dir
            for row in range(jobs.n)
            if jobs.parent[row] == search
        }
        for search in (first, second)
    }
    assert len(folders[first]) == len(folders[second]) == 4
    assert not folders[first] & folders[second]


def test_trials_halve_by_what_they_report_and_the_journal_needs_no_searcher(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    search(desk)
    told = set[tuple[int, float]]()
    while phases(desk).count("FINISHED") < 3:
        desk.steps(1)
        jobs = desk.daemon.kernel.jobs
        for row in range(1, jobs.n):
            report = row, float(jobs.asks_at[row])
            if jobs.phase[row] == Phase.RUNNING and 0 < report[1] < NEVER and report not in told:
                told.add(report)
                desk.engine.post(Evaluated(row, int(jobs.attempt[row]), report[1], 10.0 - row))
    assert phases(desk) == ["RUNNING", "FINISHED", "FINISHED", "FINISHED", "RUNNING"]
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_what_was_asked_for_comes_after_a_crash(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    search(desk)
    while not desk.daemon.kernel.settings.spawning:
        desk.steps(1)
    assert desk.daemon.kernel.jobs.n == 1
    again = desk.again()
    again.steps(2)
    assert again.daemon.kernel.jobs.n == 5
    assert again.daemon.kernel.settings.spawning == {}
    third = again.again()
    third.steps(2)
    assert third.daemon.kernel.jobs.n == 5, "and once"
    assert guard_of(third.daemon.kernel).differed == 0


def test_trials_of_ones_own_end_their_search(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("fifo"), lambda job, attempt: Script(runs=SECOND if job else NEVER))
    row = search(desk, params={}, metric="loss")
    desk.steps(1)
    children = desk.submit(parent="1", array="0-2", command=["true"])
    assert desk.daemon.kernel.jobs.within[children].tolist() == [row] * 3
    assert [desk.journal.facts(child).child for child in children] == [0, 1, 2]
    assert desk.journal.facts(children[0]).launch.metric == "loss"
    desk.until_quiet()
    assert phases(desk) == ["FINISHED"] * 4
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_a_search_whose_end_was_not_told_before_a_crash_ends_after_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("fifo"), lambda job, attempt: Script(runs=SECOND if job else NEVER))
    search(desk, params={})
    desk.submit(parent="1", command=["true"])
    while desk.phase(1) != Phase.FINISHED:
        desk.steps(1)
    assert desk.phase(0) == Phase.RUNNING
    again = desk.again()
    again.until_quiet()
    assert phases(again) == ["FINISHED", "FINISHED"]


def test_who_is_cancelled_takes_the_trials_along(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    row = search(desk)
    desk.steps(4)
    desk.order("cancel", row)
    desk.until_quiet()
    assert phases(desk) == ["CANCELLED"] * 5


def test_what_cannot_be_born_is_said_and_nothing_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "CHILDREN_MAX", 2)
    desk = Desk(tmp_path, under("tune.sha(trials=5)"), endless)
    search(desk)
    desk.steps(4)
    kernel = desk.daemon.kernel
    events = [one for _, batch, _ in desk.journal.steps(0) for one in batch.events]
    (unable,) = [one for one in events if isinstance(one, Unable)]
    assert (unable.job, unable.action, unable.n) == (0, "Spawn", 3)
    assert "may have no more" in unable.why
    assert (kernel.jobs.n, kernel.settings.spawning) == (3, {})
    assert check_history(desk.journal) == kernel.revision


def test_a_service_is_scaled_by_what_its_replicas_report(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("", "scale.threshold(cooldown=1s)"), endless)
    (web,) = desk.submit(kind="serve", gpus=2, min_gpus=1, max_gpus=3, name="web")
    desk.steps(5)
    assert phases(desk) == ["RUNNING"] * 3
    assert [desk.journal.facts(row).name for row in (1, 2)] == ["web replica 0", "web replica 1"]
    desk.engine.now += 5 * SECOND
    for busy in (0.9, 0.1, 0.1):
        now = desk.engine.now
        desk.engine.now += 2 * SECOND
        desk.engine.post(Served(now, (web,), {"busy": (busy,)}))
        desk.steps(5)
    running = [row for row in range(1, 4) if desk.phase(row) == Phase.RUNNING]
    assert running == [1], "one more came, and the two newest went"
    assert desk.daemon.kernel.jobs.restarts[1] == 0
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_replicas_that_fail_at_once_are_started_ever_later(tmp_path: Path) -> None:
    """One that fails after a tenth of a second is followed at once; after two, four, eight, ...
    seconds in between. One that lasts ends the row."""
    lasting = {0}

    def broken(job: int, attempt: int) -> Script:
        return (
            Script(runs=NEVER) if job in lasting else Script(runs=SECOND // 10, fails="exit code 1")
        )

    desk = Desk(tmp_path, under("", "scale.threshold"), broken)
    desk.submit(kind="serve", gpus=1, min_gpus=1, max_gpus=1, name="web")
    desk.steps(400)
    jobs = desk.daemon.kernel.jobs
    came = [int(jobs.submitted[row]) for row in range(1, jobs.n)]
    gaps = [(after - before) / SECOND for before, after in pairwise(came)]
    assert gaps[:5] == pytest.approx([1.1, 2.1, 4.1, 8.1, 16.1], abs=0.05)
    assert max(gaps) <= 300.2
    lasting.add(good := jobs.n)
    desk.steps(100)
    assert desk.phase(good) == Phase.RUNNING
    assert jobs.n == good + 1
    assert not_before(jobs, 0) == 0
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_children_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "CHILDREN_MAX", 3)
    desk = Desk(tmp_path, under("fifo"), endless)
    search(desk)
    desk.submit(parent=1, array="0-1")
    with pytest.raises(BadInput, match="may have no more"):
        desk.submit(parent=1, array="0-1")
    desk.submit(parent=1)
    assert desk.daemon.kernel.jobs.n == 4, "the two that were refused left nothing"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "tune", "array": "0-3"}, "a search is one job"),
        ({"kind": "tune", "gpus": 0}, "whole GPUs"),
        ({"kind": "tune", "params": GRID, "configurations": [{"lr": "1"}]}, "contradicts"),
        ({"kind": "tune", "configurations": [{"job": "1"}]}, "cannot name a parameter"),
        ({"configurations": [{"lr": "1"}]}, "this is not a search"),
        ({"kind": "tune", "search": "clever"}, "not one of grid, random"),
        ({"kind": "serve", "parent": 1}, "has no parent"),
        ({"parent": 2}, "is not a search"),
        ({"parent": 3}, "no job 3"),
        ({"metric": "a\nb"}, "not to be seen"),
    ],
)
def test_families_that_cannot_be(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    desk = Desk(tmp_path, under("fifo"), endless)
    search(desk)
    desk.submit()
    with pytest.raises(BadInput, match=said):
        desk.submit(**fields)
    assert desk.daemon.kernel.jobs.n == 2


def test_a_random_search_has_the_same_configurations_in_another_order(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("fifo"), endless)
    rows = [search(desk, search=how) for how in ("grid", "random")]
    one, other = (desk.journal.facts(row).family for row in rows)
    assert one is not None
    assert other is not None
    assert one.configurations != other.configurations
    assert sorted(map(str, one.configurations)) == sorted(map(str, other.configurations))


def test_a_tenants_limit_counts_a_search_and_not_its_trials_again(tmp_path: Path) -> None:
    from ganger.service.commands import SetTenant

    desk = Desk(tmp_path, under(), endless)
    desk.ask(SetTenant("ann", 2000, set_limit=True))
    search(desk)
    desk.steps(4)
    assert phases(desk)[:3] == ["RUNNING"] * 3
    (other,) = desk.submit()
    assert desk.phase(other) == Phase.BLOCKED
    assert desk.daemon.gates.ceilings.taken(("tenant", "ann")) == 2000


def test_a_service_that_holds_nothing_is_no_victim(tmp_path: Path) -> None:
    """A service whose recipe was taken away holds no device itself. The recipe for all jobs looked
    for those devices, and failed at every decision."""
    desk = Desk(tmp_path, under("fifo", "scale.threshold(cooldown=1s)"), endless)
    (first,) = desk.submit(gpus=4, hold=True)
    desk.submit(gpus=2)
    desk.submit(kind="serve", gpus=1)
    desk.steps(5)
    desk.ask(SetPolicy("las", "history", inner="fifo", serving=""))
    desk.order("release", first)
    for _ in range(5):
        desk.steps(1)
        assert guard_of(desk.daemon.kernel).error == ""
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_other_recipes_for_families_are_a_new_segment(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("fifo"), endless)
    search(desk)
    desk.ask(SetPolicy("fifo", "history", inner="tune.sha(trials=2)"))
    desk.steps(4)
    assert desk.daemon.header.inner == "tune.sha(trials=2)"
    assert phases(desk) == ["RUNNING"] * 3
    again = desk.again()
    assert again.daemon.header.recipes == ("fifo", "tune.sha(trials=2)", "")
    assert check_history(again.journal) == again.daemon.kernel.revision


def test_a_child_that_a_policy_asked_for_is_told_from_one_of_people(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("tune.sha(trials=2)"), endless)
    search(desk)
    desk.steps(4)
    desk.submit(parent=1)
    batches: list[Batch] = [batch for _, batch, _ in desk.journal.steps(0)]
    accepted = [one for batch in batches for one in batch.events if isinstance(one, Accepted)]
    assert [one.spawned for one in accepted] == [False, True, True, False]


def tell(desk: Desk, row: int, **served: float) -> None:
    """What a replica has counted since its start."""
    attempt = int(desk.daemon.kernel.jobs.attempt[row])
    desk.engine.progress[row] = Progress(Key(row, attempt), -1, served=served)


def windows(desk: Desk) -> list[dict[str, float | None]]:
    """The windows of the first job that are in the journal."""
    found = []
    for _, batch, _ in desk.journal.steps(0):
        for event in batch.events:
            if isinstance(event, Served) and 0 in event.services:
                at = event.services.index(0)
                found.append({name: column[at] for name, column in event.figures.items()})
    return found


def test_replicas_counts_become_windows_that_a_recipe_decides_by(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("", "scale.threshold(cooldown=1s)"), endless)
    desk.submit(kind="serve", gpus=2, min_gpus=1, max_gpus=4, name="web")
    desk.steps(5)
    tell(desk, 1, arrivals=40, answered=30, busy_seconds=9.5, seconds=10, ongoing=3, p99=0.2)
    tell(desk, 2, arrivals=60, answered=50, busy_seconds=8.9, seconds=9, ongoing=1, p99=0.5)
    while not windows(desk):
        desk.steps(1)
    assert windows(desk) == [
        {
            "arrivals": 100,
            "answered": 80,
            "busy": pytest.approx(18.4 / 19),
            "ongoing": 4,
            "p99": 0.5,
            "replicas": 2,
        }
    ]
    while phases(desk) != ["RUNNING"] * 4:  # they were busier than 0.8: a third comes
        desk.steps(1)
    tell(desk, 1, arrivals=50, answered=60, busy_seconds=10.5, seconds=20, ongoing=0, p99=0.1)
    while len(windows(desk)) < 2:
        desk.steps(1)
    last = windows(desk)[1]
    assert (last["arrivals"], last["answered"], last["replicas"]) == (10, 30, 3)
    assert last["busy"] == pytest.approx(0.1), "the others told nothing new"
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_a_replica_that_tells_nonsense_stops_no_recipe(tmp_path: Path) -> None:
    """1e308 open requests times a window's length were infinite: the recipe failed at every
    decision, and no job of anybody started any more."""
    desk = Desk(tmp_path, under("", "scale.reactive"), endless)
    desk.submit(kind="serve", gpus=1, min_gpus=1, max_gpus=2, name="web")
    desk.steps(5)
    for ongoing in (0.0, 1e308):
        tell(desk, 1, arrivals=1e308, ongoing=ongoing, queue=1e308, busy_seconds=1e308, seconds=1)
        desk.engine.now += 10 * SECOND
        desk.steps(3)
    assert windows(desk)[-1]["ongoing"] == 1e15
    assert guard_of(desk.daemon.kernel).error == ""
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_only_a_service_whose_command_has_a_place_for_it_is_told_a_port(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("", "scale.threshold"), endless)
    (told,) = desk.submit(kind="serve", command=["vllm", "--port={port}"])
    (other,) = desk.submit(kind="serve", command=["vllm"])
    (job,) = desk.submit(command=["vllm", "--port={port}"])
    desk.steps(5)
    jobs = desk.daemon.kernel.jobs
    replicas = {int(jobs.parent[row]): row for row in range(jobs.n) if jobs.parent[row] >= 0}
    launches = [desk.daemon.launch(row) for row in (replicas[told], replicas[other], job)]
    assert [one.listens for one in launches] == [True, False, False]
    for one in launches:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Launch) == one
    assert launches[0].command == ("vllm", "--port={port}"), "it is known where it runs"


def test_what_was_counted_before_a_restart_is_not_counted_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("", "scale.threshold"), endless)
    desk.submit(kind="serve", gpus=1, name="web")
    desk.steps(4)
    tell(desk, 1, arrivals=40)
    while not windows(desk):
        desk.steps(1)
    again = desk.again()
    tell(again, 1, arrivals=50)
    before = again.daemon.kernel.now
    while again.engine.now < before + 10 * SECOND:
        again.steps(1)
    assert len(windows(again)) == 1, "how many of the 50 came before is not known"
    tell(again, 1, arrivals=57)
    while len(windows(again)) < 2:
        again.steps(1)
    assert windows(again)[1]["arrivals"] == 7


def test_no_replica_that_tells_nothing_makes_a_window(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under("", "scale.threshold"), endless)
    desk.submit(kind="serve", gpus=1, name="web")
    desk.steps(4)
    revision = desk.daemon.kernel.revision
    desk.steps(4)
    assert windows(desk) == []
    assert desk.daemon.kernel.revision == revision


def test_people_see_families(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, metric="loss")
    desk.steps(4)
    (later,) = desk.submit(gpus=4)
    for child, value in ((1, 0.5), (2, 0.25)):
        desk.engine.post(Evaluated(child, 1, 1.0, value))
    while desk.phase(2) == Phase.RUNNING:
        desk.steps(1)
    desk.steps(2)
    said = {one: explain(desk.daemon, one).lines for one in (row, 2, 4)}
    assert "The best is job 3 (lr=0.1 wd=2): loss 0.25 after step 1." in said[row]
    assert "Its trials: 2 pending, 2 running." in said[row]
    assert said[2] == [
        "The recipe for trials has set it aside with its work.",
        "It is a trial of job 1, on what job 1 holds.",
        "It last reported 0.25 after step 1.",
    ]
    assert (job_answer(desk.daemon, 2).reason, job_answer(desk.daemon, 2).parent) == ("Paused", 1)
    detail = job_detail(desk.daemon, row)
    assert detail.family is not None
    assert (detail.family.best, detail.family.metric) == (3, "loss")
    listed = job_page(desk.daemon, {"state": "all", "best": "1"}, 0, 10).jobs
    assert {one.job: one.best for one in listed} == {**dict.fromkeys(range(2, 7)), 1: 0.25}
    assert {one.best for one in job_page(desk.daemon, {"state": "all"}, 0, 10).jobs} == {None}
    assert [(one.step, one.value) for one in detail.family.children] == [
        (1.0, 0.5),
        (1.0, 0.25),
        (None, None),
        (None, None),
    ]
    assert job_detail(desk.daemon, 4).params == {"lr": "0.2", "wd": "2"}
    (share,) = shares(desk.daemon)
    assert share.gpus == 2, "what its trials hold is not counted again"
    assert outlook(desk.daemon, later) is not None


def test_a_limit_that_ends_a_search_is_told_and_what_became_of_its_trials(tmp_path: Path) -> None:
    """Two trials are set aside after an epoch each; the third epoch is the last one allowed."""
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, recipe="tune.sha(trials=4,eta=2); epochs=3", metric="loss")
    told = set[int]()
    while desk.phase(row) < Phase.FINISHED:
        desk.steps(1)
        jobs = desk.daemon.kernel.jobs
        for trial in range(1, jobs.n):
            if jobs.phase[trial] == Phase.RUNNING and len(told) < 3 and trial not in told:
                told.add(trial)
                desk.engine.post(Evaluated(trial, int(jobs.attempt[trial]), 1.0, 0.5))
    desk.steps(2)
    assert job_answer(desk.daemon, row).ended_by == "the budget of epochs"
    detail = job_detail(desk.daemon, row)
    assert detail.family is not None
    assert detail.family.ended_by == "the budget of epochs"
    assert detail.children == {"COMPLETED": 2, "SET_ASIDE": 2}, detail.children
    assert [each.state for each in detail.family.children[:2]] == ["SET_ASIDE"] * 2
    assert [one.outcome for one in detail.attempts] == [""], "nobody preempted it"


def test_more_trials_than_configurations_are_told() -> None:
    asked = JobRequest(
        command=["true"], kind="tune", recipe="tune.sha(trials=27)", configurations=[{"a": "1"}]
    )
    assert tried_again(asked) == (
        "the only configuration is tried again and again: the recipe starts 27 trials"
    )
    more = msgspec.structs.replace(asked, configurations=[], params={"a": ["1", "2"], "b": ["3"]})
    assert tried_again(more).startswith("the 2 configurations are tried again and again")
    enough = msgspec.structs.replace(asked, configurations=[{"a": "1"}] * 27)
    assert tried_again(enough) == tried_again(JobRequest(command=["true"])) == ""


def test_looking_ahead_asks_for_trials_that_are_not_there_yet(tmp_path: Path) -> None:
    desk = Desk(tmp_path, under(), endless)
    desk.submit(gpus=4)
    row = search(desk)
    ahead = outlook(desk.daemon, row)
    assert ahead is not None
    assert ahead.expected > desk.daemon.now()
    assert desk.daemon.kernel.jobs.n == 2
