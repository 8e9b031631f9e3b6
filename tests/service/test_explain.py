"""What people are told of jobs that wait: what lacks, who releases it, what would start now."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganger.cli.text import folded
from ganger.client.answers import Explanation
from ganger.client.why import sentence
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, NodeSpec, TenantSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.engines.testing.fake import Script
from ganger.service.commands import NodeOrder
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import header_of
from ganger.service.durable.sandbox import prospects
from ganger.service.reports.explain import expect, explain
from ganger.service.reports.journalled import explain_journalled
from ganger.service.reports.rows import job_answer
from service.desk import Desk, box

Make = Callable[..., Desk]
LONG = 12 * HOUR


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Desks at which every job is long."""
    made: list[Desk] = []

    def desk(
        policy: str, *nodes: NodeSpec, knows: str = "history", tenants: tuple[TenantSpec, ...] = ()
    ) -> Desk:
        root = tmp_path / str(len(made))
        root.mkdir()
        cluster = ClusterSpec(nodes, tenants=tenants).check()
        begin = header_of(cluster, policy, 0, knows)
        made.append(Desk(root, begin, lambda job, attempt: Script(runs=LONG)))
        return made[-1]

    yield desk
    for one in made:
        one.close()


def told(desk: Desk, row: int) -> Explanation:
    """All that is said of a job."""
    found = explain(desk.daemon, row)
    if found.position is not None:
        expect(desk.daemon, found, *prospects(desk.daemon, row))
    return found


def said(desk: Desk, row: int) -> str:
    """The sentence, with times in minutes from now."""
    now = desk.daemon.now() / SECOND
    return sentence(told(desk, row), lambda at: f"minute {round((at - now) / 60)}")


def test_the_sentence_names_the_node_the_job_and_what_would_start_now(make: Make) -> None:
    desk = make("fifo", box(2, "node-1"), box(10, "node-3"))
    desk.submit(array="0-39", gpus=0, hold=True)
    (holder,) = desk.submit(gpus=4, time_limit="20m", pool="")
    desk.steps(1)
    assert holder == 40
    (row,) = desk.submit(gpus=8, workers=8, locality="node")
    assert said(desk, row) == (
        "waits for 8 GPUs in one node; 6 are free on node-3; job 41 releases 4 at minute 20 or"
        " earlier; or: allow two nodes, --locality any, starts now; or --gpus 6, starts now"
    )
    found = told(desk, row)
    assert (found.reason, found.by) == ("Resources", "QueuePolicy")
    assert found.evidence == {"asked_gpus": 8, "may_pass": 0}
    assert found.until == ["GPUs become free", "somebody gives an order"]


def test_who_waits_behind_a_job_that_does_not_fit_is_told_so(make: Make) -> None:
    desk = make("fifo", box(4))
    desk.submit(gpus=3)
    desk.submit(gpus=4)
    (row,) = desk.submit(gpus=1)
    found = told(desk, row)
    assert (found.reason, found.ahead) == ("Priority", 1)
    assert "fifo lets no job pass: 1 job that waits comes before it." in found.lines
    assert "Refused by the ordered queue (QueuePolicy)." in found.lines
    assert found.until == ["GPUs become free", "somebody gives an order"]
    assert sentence(found, str) == (
        "waits for 1 GPU; that is free, but the recipe does not give it to this job now"
    )


def test_the_rank_is_that_of_the_recipes_order(make: Make) -> None:
    desk = make("sjf", box(4), knows="estimate")
    desk.submit(gpus=4)
    desk.submit(gpus=4, estimate="1h")
    desk.submit(gpus=4, estimate="3h")
    (row,) = desk.submit(gpus=4, estimate="2h")
    found = told(desk, row)
    assert (found.position, found.ahead) == (2, 1)


def test_cpus_memory_types_and_workers_that_would_start_are_named(make: Make) -> None:
    desk = make("fifo", box(4, "old"), NodeSpec(gpus=2, gpu_type="A100", cpus=8000, memory=65536))
    desk.submit(gpus=1, cpus=6, gpu_types=["V100"])
    (row,) = desk.submit(gpus=2, cpus=4, gpu_types=["V100"])
    found = told(desk, row)
    assert found.best is not None
    assert (found.best.lacks, found.best.gpus_free, found.best.cpus_free) == (["CPUs"], 3, 2)
    assert [one.options for one in found.alternatives] == ["--cpus 2", "--gpus A100:2"]
    assert said(desk, row).startswith(
        "waits for 2 GPUs of type V100 in one node; old has 3 GPUs and 2 CPUs free, it needs 4; "
    )
    (big,) = desk.submit(gpus=1, memory="100GiB", gpu_types=["V100"], priority=5)
    desk.order("cancel", row)
    assert "--memory 64GiB" in [one.options for one in told(desk, big).alternatives]


def test_a_job_that_is_too_wide_for_a_node_may_have_more_workers(make: Make) -> None:
    desk = make("fifo", box(3, "a"), box(3, "b"))
    (row,) = desk.submit(gpus=4)
    assert said(desk, row) == (
        "waits for 4 GPUs in one node; no node that is up could take it; or: --workers 2, starts"
        " now; or --gpus 3, starts now"
    )


def test_under_backfilling_a_time_limit_lets_a_job_pass(make: Make) -> None:
    desk = make("backfill", box(4))
    desk.submit(gpus=3, time_limit="40m")
    (head,) = desk.submit(gpus=4, time_limit="1h")
    (row,) = desk.submit(gpus=1, time_limit="2h")
    assert told(desk, head).evidence["reserved_at_s"] == pytest.approx(
        desk.daemon.now() / SECOND + 40 * 60, abs=2
    )
    found = told(desk, row)
    assert [one.options for one in found.alternatives] == ["--time 40m00s"]
    assert said(desk, row).endswith("or: --time 40m00s, starts now")


def test_a_tenants_quota_and_its_use_are_said_of_that_tenant_alone(make: Make) -> None:
    desk = make("yarn-cs", box(8), tenants=(TenantSpec("lab", 4), TenantSpec("art", 4)))
    desk.submit(gpus=3, tenant="lab")
    (row,) = desk.submit(gpus=2, tenant="lab")
    desk.submit(gpus=4, tenant="art")
    (other,) = desk.submit(gpus=2, tenant="art")
    found = told(desk, row)
    assert (found.reason, found.by) == ("AssocGrpGRES", "QueuePolicy")
    assert found.evidence == {"asked_gpus": 2, "used_gpus": 3, "quota_gpus": 4}
    assert told(desk, other).evidence["used_gpus"] == 4
    assert (
        "Refused by the ordered queue (QueuePolicy): asked 2 GPUs, used 3 GPUs, quota 4 GPUs."
        in found.lines
    )


def test_what_runs_without_a_limit_is_believed_to_end_when_its_user_says(make: Make) -> None:
    desk = make("fifo", box(4), knows="estimate")
    desk.submit(gpus=1)
    desk.submit(gpus=3, estimate="30m")
    desk.steps(1)
    (row,) = desk.submit(gpus=3)
    assert said(desk, row) == (
        "waits for 3 GPUs in one node; none is free on box; job 2 is expected to release 3 at"
        " minute 30"
    )
    (all_of_it,) = desk.submit(gpus=4, priority=9)
    assert "job 1 releases 1 when it ends" in said(desk, all_of_it)


def test_a_node_that_is_out_of_use_is_no_room(make: Make) -> None:
    desk = make("fifo", box(4))
    desk.ask(NodeOrder([0], "drain"))
    (row,) = desk.submit(gpus=1)
    assert said(desk, row) == "waits for 1 GPU; no node that is up could take it"


def test_labels_and_pools_without_which_it_would_start_are_named(make: Make) -> None:
    desk = make(
        "fifo",
        NodeSpec(gpus=4, gpu_type="V100", cpus=8000, name="a", pool="left"),
        NodeSpec(gpus=2, gpu_type="V100", cpus=8000, name="b", pool="right", labels=("fast",)),
    )
    (labelled,) = desk.submit(gpus=3, labels=["fast"])
    assert [one.options for one in told(desk, labelled).alternatives] == [
        "no --label fast",
        "--gpus 2",
    ]
    desk.order("cancel", labelled)
    (pooled,) = desk.submit(gpus=3, pool="right")
    assert "no --pool right" in [one.options for one in told(desk, pooled).alternatives]


def test_a_journal_says_of_a_time_what_the_daemon_said_then(make: Make) -> None:
    desk = make("backfill", box(4))
    desk.submit(gpus=3, time_limit="40m")
    desk.submit(gpus=4, time_limit="1h")
    (row,) = desk.submit(gpus=1, time_limit="2h")
    then, at = told(desk, row), desk.daemon.now()
    desk.engine.now += SECOND
    (task, _) = desk.submit(array="0-1", gpus=1, time_limit="9h")
    desk.steps(3)
    journal = Journal(desk.daemon.journal.path, readonly=True)
    try:
        again = explain_journalled(journal, str(row + 1), at)
        assert sentence(again, str) == sentence(then, str)
        assert (again.reason, again.by, again.evidence) == (then.reason, then.by, then.evidence)
        assert (again.ahead, again.until) == (then.ahead, then.until)
        assert explain_journalled(journal, f"{task + 1}_1").label == f"{task + 1}_1"
        with pytest.raises(BadInput, match=r"no job 99 .*it has jobs 1 to 5"):
            explain_journalled(journal, "99")
        with pytest.raises(BadInput, match="is outside of the log"):
            explain_journalled(journal, str(row + 1), at + 99 * LONG)
        with pytest.raises(BadInput, match="was not submitted by"):
            explain_journalled(journal, f"{task + 1}_1", at)
    finally:
        journal.close()


def test_a_sentence_is_folded_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "It waits for 8 GPUs in one node; " * 5
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert folded(long) == f"  {long}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    lines = folded(long).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines)


def test_who_comes_between_two_decisions_is_told_when_the_next_one_is(make: Make) -> None:
    desk = make("backfill(interval=5m)", box(4))
    desk.submit(gpus=3)
    desk.submit(gpus=4)
    desk.engine.now += 60 * SECOND
    (row,) = desk.submit(gpus=1)
    found = told(desk, row)
    assert (found.reason, found.by) == ("Priority", "Periodic")
    assert found.evidence["decides_at_s"] == (desk.daemon.now() + 240 * SECOND) / SECOND
    assert found.until == ["a time comes at which the recipe decides"]


def test_what_no_node_could_take_is_told_whether_waiting_helps(make: Make) -> None:
    desk = make("fifo", box(3, "a"), box(2, "b"))
    (never,) = desk.submit(gpus=4)
    assert (
        "Nothing in this cluster could take it, even if no job ran: cancel it, or add nodes."
        in told(desk, never).lines
    )
    desk.order("cancel", never)
    desk.ask(NodeOrder([0], "drain"))
    (later,) = desk.submit(gpus=3)
    assert (
        "It can start when nodes or GPUs that are out of use come back." in told(desk, later).lines
    )


def test_limits_say_what_would_end_the_wait(make: Make) -> None:
    desk = make("fifo", box(4))
    tasks = desk.submit(array="0-1%1", gpus=1)
    lines = told(desk, tasks[1]).lines
    assert lines == [
        "Its array may have 1 (now 1) tasks in the queue at once: it enters the queue when one of"
        f" them ends, or when `ganger update {tasks[0] + 1} --throttle` allows more."
    ]


def test_a_suspended_job_that_keeps_only_its_memory_says_so(make: Make) -> None:
    """The second job has no GPU, and so nothing that it could yield."""
    desk = make("fifo", box(2, "node-1"))
    (row,) = desk.submit(gpus=2, gpu_memory="4GiB")
    (other,) = desk.submit(gpus=0)
    desk.steps(1)
    (held,) = told(desk, row).lines
    assert "GPU memory" not in held
    desk.order("suspend", row, other)
    place = held.split()[3]
    assert told(desk, row).lines == [
        f"It keeps only its GPU memory on {place}: other jobs may run there.",
        "After `ganger resume` it goes on as soon as no other job runs there.",
    ]
    assert told(desk, other).lines[0].startswith("It has held ")
    desk.order("resume", row)
    assert told(desk, row).lines[0].startswith(f"It has held {place} for ")


def test_jobs_on_parts_of_a_gpu_are_told_of_each_other(make: Make) -> None:
    desk = make("space-sharing", box(1, "node-1"))
    rows = [*desk.submit(gpus=1, share=0.4), *desk.submit(gpus=1, share=0.5)]
    desk.steps(1)
    assert [told(desk, row).lines[1:] for row in rows] == [
        [
            "It shares its GPUs; at what speed is not known.",
            f"Job {other} is there, too; at what speed is not known.",
        ]
        for other in (2, 1)
    ]


def test_a_suspended_job_that_waits_for_its_gpus_says_for_whose(make: Make) -> None:
    """The third job computes where two sleep, of which the first is told to resume meanwhile."""
    desk = make("fifo", box(1, "node-1"))
    (row,) = desk.submit(gpus=1, gpu_memory="4GiB")
    desk.steps(1)
    desk.order("suspend", row)
    (sleeper,) = desk.submit(gpus=1, gpu_memory="4GiB")
    desk.steps(1)
    desk.order("suspend", sleeper)
    (other,) = desk.submit(gpus=1, gpu_memory="8GiB")
    desk.steps(1)
    assert job_answer(desk.daemon, row).reason == ""
    assert told(desk, row).holders == []
    desk.order("resume", row)
    answer = job_answer(desk.daemon, row)
    assert (answer.state, answer.reason) == ("SUSPENDED", "Resources")
    found = told(desk, row)
    assert found.reason == "Resources"
    assert found.holders == [other + 1]
    assert found.lines[0].endswith("It resumes as soon as no other job runs there.")
    assert found.lines[1] == f"Job {other + 1} runs there."
    desk.order("cancel", other)
    assert told(desk, row).holders == [other + 1], "it has not let go yet"
    desk.steps(1)
    assert job_answer(desk.daemon, row).reason == ""


def test_a_job_that_the_recipe_suspended_waits_for_its_next_turn(make: Make) -> None:
    desk = make("gandiva(quantum=1s)", box(1, "node-1"))
    first, second = (desk.submit(gpus=1, gpu_memory="4GiB")[0] for _ in range(2))
    while desk.phase(first) != Phase.SUSPENDED:
        desk.steps(1)
    desk.steps(1)
    assert desk.phase(second) == Phase.RUNNING
    assert job_answer(desk.daemon, first).reason == "Resources"
    assert job_answer(desk.daemon, first).gpus == 1
    lines = told(desk, first).lines
    assert lines[0].endswith("The recipe suspended it, and resumes it in its next turn.")
    assert lines[1:] == [f"Job {second + 1} runs there."]
    desk.order("suspend", first)
    assert first not in desk.daemon.kernel.view.resumable
    with pytest.raises(BadInput, match="suspend does not apply to it"):
        desk.order("suspend", first)
    desk.order("resume", first)
    assert first in desk.daemon.kernel.view.resumable
