"""A site's own jobs: read from recorded answers, explained, imported, and advised upon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.engines.slurm.calls.answers import Job, Node, nodes_of
from ganger.engines.slurm.site import Listed, called, explained, lines_of, listed_of
from ganger.engines.slurm.where import Where
from ganger.lab.ahead.slurm_mirror import advice, counts, mirror
from ganger.lab.ahead.whatif import future
from ganger.workloads.formats import load_trace

ANSWERS = Path(__file__).parents[1] / "engines" / "answers"
NOW = 1_000_000 * SECOND
ANYWHERE = Where()
versions = pytest.mark.parametrize("version", ["22.05", "24.11"])


def recorded(version: str) -> tuple[list[Listed], list[Node], int]:
    """What a real controller answered, and a time a minute later."""
    jobs = listed_of((ANSWERS / f"squeue-{version}.json").read_text())
    nodes = nodes_of((ANSWERS / f"nodes-{version}.json").read_text(), "scontrol")
    return jobs, nodes, max(one.submitted for one in jobs) + MINUTE


def node(name: str, gpus: int, state: str = "IDLE") -> Node:
    """A node as Slurm tells of it."""
    return Node(name, name, {"v100": gpus}, 16000, 16000, ("main",), frozenset({state}))


def job(
    number: int,
    gpus: int,
    *,
    on: dict[str, Sequence[int]] | None = None,
    nodes: int = 1,
    reason: str = "Resources",
    ran: int = 0,
    limit: int = NEVER,
    partition: str = "main",
    ended: bool = False,
    where: Where = ANYWHERE,
) -> Listed:
    """A job as Slurm lists it; `on`: it runs there since `ran` seconds."""
    held = {name: tuple(devices) for name, devices in (on or {}).items()}
    state = "COMPLETED" if ended else "RUNNING" if on else "PENDING"
    raw = Job(number, "train", "", frozenset({state}), reason, tuple(held), 0, held)
    began = NOW - ran * SECOND if on or ended else 0
    return Listed(
        raw,
        "ann",
        "vision",
        partition,
        "",
        10,
        NOW - 100 * SECOND + number,
        began,
        NOW if ended else 0,
        limit,
        gpus,
        "",
        nodes,
        0,
        -1,
        where,
    )


@versions
def test_what_jobs_ask_for_and_hold_is_read(version: str) -> None:
    jobs = {one.job.number: one for one in recorded(version)[0]}
    assert (jobs[1].gpus, jobs[1].gpu_type, jobs[1].nodes) == (4, "v100", 2)
    assert (jobs[3].gpus, jobs[3].gpu_type) == (2, "k80")
    assert (jobs[5].gpus, jobs[5].partition, jobs[5].user) == (4, "main", "root")
    assert jobs[5].limit == NEVER
    assert jobs[2].limit == NEVER, "Slurm shows a year of a job that runs without a limit"
    assert jobs[1].submitted + SECOND == jobs[1].started


@versions
def test_a_waiting_job_is_explained_in_plain_words(version: str) -> None:
    jobs, nodes, now = recorded(version)
    one, lines = explained("5", jobs, nodes, now)
    assert one.job.reason == "Priority"
    assert lines[:6] == [
        "Other jobs come first.",
        "It has waited 1m 00s for 4 GPUs of type v100.",
        "It asks for the nodes v0.",
        "By priority it is number 3 of 3 that wait for partition main.",
        "Of 4 GPUs that would do 2 are free.",
        "The others are held by 1 (root, 4).",
    ]
    assert "k1" in explained("3", jobs, nodes, now)[1][-1], "it is drained"
    assert explained("2", jobs, nodes, now)[1] == ["It is running on k0."]
    with pytest.raises(BadInput, match="Slurm knows no job 77"):
        explained("77", jobs, nodes, now)


@versions
def test_what_a_recipe_would_do_with_recorded_jobs(version: str) -> None:
    jobs, nodes, now = recorded(version)
    made = mirror(nodes, jobs, "main", now, "fifo")
    assert counts(made) == (2, 2), "job 3 is held back"
    assert advice(made) == ["start 4 (root, 1 GPU, a.sh) on k0 (1)"], (
        "job 3 asks for k1, which is drained"
    )


def test_a_job_is_called_as_squeue_shows_it() -> None:
    array = [msgspec.structs.replace(job(9, 1), array=9, task=task) for task in (3, 4)]
    assert called("9_[3,4,7-9%2]", [job(1, 1), *array]) is array[0]
    assert called("9", array) is array[0]
    assert called("9_4", array) is array[1]
    assert called("8", array) is None


def test_recipes_differ_in_their_advice() -> None:
    nodes = [node("a", 4), node("b", 4)]
    jobs = [
        job(1, 4, on={"a": range(4)}, ran=90, limit=1000 * SECOND),
        job(2, 8, nodes=2, limit=1000 * SECOND),
        job(3, 4, limit=100 * SECOND),
    ]
    assert advice(mirror(nodes, jobs, "main", NOW, "fifo")) == [], "the first one waits for both"
    assert advice(mirror(nodes, jobs, "main", NOW, "srtf")) == [
        "start 3 (ann, 4 GPUs, train) on b (4)"
    ]
    one = [nodes[0]]
    assert advice(mirror(one, [jobs[0], jobs[2]], "main", NOW, "srtf")) == [
        "stop 1 (ann, 4 GPUs, train), which ran for 1m 30s",
        "start 3 (ann, 4 GPUs, train) on a (4)",
    ]


def test_others_hold_and_held_jobs_are_not_advised_upon() -> None:
    nodes = [node("a", 4), node("b", 4, "DRAIN")]
    jobs = [
        job(1, 3, on={"a": (0, 1, 3)}, partition="other"),
        job(2, 2), job(3, 1, reason="JobHeldUser"), job(4, 1), job(5, 0),
    ]  # fmt: skip
    made = mirror(nodes, jobs, "main", NOW, "backfill")
    assert advice(made) == ["start 4 (ann, 1 GPU, train) on a (1)"]
    assert counts(made) == (0, 2)
    assert list(made.left_out) == [
        "1 jobs without GPUs",
        "1 jobs of other partitions or nodes",
        "1 nodes that are closed, or have GPUs of two types",
    ]


def test_the_present_queue_under_another_recipe() -> None:
    nodes = [node("a", 4)]
    jobs = [job(1, 4, on={"a": range(4)}, ran=50, limit=60 * SECOND), job(2, 4, limit=60 * SECOND)]
    found = future(mirror(nodes, jobs, "main", NOW, "fifo").copy(), "fifo")
    assert (found.waiting, found.unstarted) == (1, 0)
    assert found.wait_mean_seconds == pytest.approx(10)


def test_jobs_that_are_over_are_imported_as_sacct_writes_them(tmp_path: Path) -> None:
    jobs = [
        job(1, 4, nodes=2, ran=60, limit=MINUTE * 5, ended=True),
        job(2, 1),
        job(3, 1, on={"a": (0,)}, ran=5),
    ]
    path = tmp_path / "sacct.txt"
    path.write_text(lines_of(jobs))
    found = load_trace(path, "sacct")
    assert found.jobs == 1
    assert found.duration[0] == 60 * SECOND
    assert found.declared.gpus[0] == 4
    assert found.declared.limit[0] == 5 * MINUTE


def test_tasks_of_an_array_that_waits_are_jobs_of_their_own() -> None:
    row = (
        '{"job_id": 9, "name": "x", "job_state": "PENDING", "array_job_id": 9,'
        ' "array_task_id": null, "array_task_string": "1-3,7%2", "tres_per_node": "gres:gpu:2"}'
    )
    found = listed_of(f'{{"jobs": [{row}]}}')
    assert [one.label for one in found] == ["9_1", "9_2", "9_3", "9_7"]
    assert {one.gpus for one in found} == {2}


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gres:gpu:v100:2", 2),
        ("gres/gpu:2", 2),
        ("gres:gpu", 1),
        ("gres:gpu:v100", 1),
        ("cpu:4", 0),
        ("gres:gpu:a100:1,gres:gpu:v100:2", 3),
    ],
)
def test_how_many_gpus_are_asked_for(text: str, gpus: int) -> None:
    row = f'{{"job_id": 1, "name": "x", "job_state": "PENDING", "tres_per_job": "{text}"}}'
    assert listed_of(f'{{"jobs": [{row}]}}')[0].gpus == gpus


# ---------------------------------------------------------------------- where jobs may run


def advised(*jobs: Listed, nodes: Sequence[Node] | None = None) -> tuple[list[str], Sequence[str]]:
    """What fifo would do with these jobs on three nodes, and what it leaves out."""
    there = nodes or [node("a", 4), node("b", 4), node("c", 4)]
    made = mirror(there, jobs, "", NOW, "fifo")
    return [line.rpartition(" on ")[2] for line in advice(made)], made.left_out


@pytest.mark.parametrize(
    ("where", "on"),
    [
        (Where(required=("c",)), "c (4)"),
        (Where(excluded=("a",)), "b (4)"),
        (Where(excluded=("a", "b")), "c (4)"),
        (Where(constraint="fast"), "b (4)"),
        (Where(constraint="fast&big"), "c (4)"),
        (Where(constraint="big|none"), "c (4)"),
    ],
)
def test_a_job_is_advised_onto_no_node_that_it_may_not_have(where: Where, on: str) -> None:
    features = {"a": (), "b": ("fast",), "c": ("fast", "big")}
    nodes = [msgspec.structs.replace(node(name, 4), features=has) for name, has in features.items()]
    assert advised(job(1, 4, where=where), nodes=nodes) == ([on], [])


def test_a_job_that_may_have_no_open_node_is_not_advised_anywhere() -> None:
    assert advised(job(1, 4, where=Where(required=("gone",))))[0] == []


def test_what_is_not_understood_is_ignored_and_said() -> None:
    some = job(1, 8, nodes=2, where=Where(required=("c",)))
    odd = job(2, 1, where=Where(constraint="[rack1|rack2]"))
    lines, left_out = advised(some, odd)
    assert len(lines) == 2
    assert left_out == ["2 jobs whose constraint or node list is ignored: it is not understood"]
    _, said = explained("2", [odd], [node("a", 4)], NOW)
    assert "What follows ignores its constraint [rack1|rack2]." in said


def test_a_running_job_stays_where_it_is_whatever_its_constraint_says_now() -> None:
    runs = job(1, 4, on={"a": range(4)}, where=Where(constraint="gone"))
    assert advised(runs, job(2, 4))[0] == ["b (4)"]
