"""From a request to a spec and its launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganger.client.request import JobRequest, convert, read_file
from ganger.client.states import exit_code, phases_of, state_of
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.service.jobs.dependencies import Condition
from ganger.service.jobs.job_facts import JobFacts, Prepared
from ganger.service.jobs.launches import pattern
from ganger.service.jobs.submission import Fits, Who, moment, prepare, shape_of, tasks_of

ANN = Who("ann", 1000, 100)
NOW = 1_000_000 * HOUR


def made(**fields: Any) -> Prepared:
    request = convert({"command": ["python", "train.py"], **fields}, "test")
    return prepare(request, ANN, NOW, lambda job: [int(job) - 1], False)[0]


@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ({}, Role()),
        ({"gpus": 4}, Role(size=1, needs=Needs(4))),
        ({"gpus": 16, "nodes": 2}, Role(size=2, needs=Needs(8))),
        ({"gpus": 4, "workers": 4}, Role(size=4)),
        ({"gpus": 4, "min_gpus": 2, "max_gpus": 8}, Role(size=4, least=2, most=8)),
        (
            {"gpus": 4, "workers": 2, "min_gpus": 2, "max_gpus": 8},
            Role(size=2, least=1, most=4, needs=Needs(2)),
        ),
        ({"share": 0.25, "gpu_memory": "4GiB"}, Role(needs=Needs(1, 250, 4096))),
        ({"gpus": 0}, Role(needs=Needs(0, cpus=1000))),
        ({"gpus": 0, "cpus": 2.5, "memory": "1G"}, Role(needs=Needs(0, cpus=2500, memory=1024))),
    ],
)
def test_shapes(fields: dict[str, Any], role: Role) -> None:
    assert shape_of(JobRequest(**fields)) == Shape((role,))


def test_all_that_may_be_said_arrives() -> None:
    found = made(
        name="big",
        gpu_types=["V100", "P100"],
        locality="node",
        pool="a",
        labels=["x"],
        time_limit="2h",
        estimate=90,
        deadline="+1d",
        begin="+10m",
        priority=3,
        weight=2.0,
        tenant="lab",
        kind="task",
        on_preempt="kill",
        grace="1m",
        model="resnet50",
        steps=100.0,
        after=["3"],
        after_any=[4],
        hold=True,
        retries=2,
        env={"A": "1"},
        cwd="/data",
        output="out-%j.txt",
        error="/tmp/err",
        per="node",
        warm=["torch"],
    )
    spec, facts, launch = found.spec, found.facts, found.facts.launch
    assert (spec.tenant, spec.user, spec.priority, spec.weight) == ("lab", "ann", 3, 2.0)
    assert (spec.limit, spec.estimate, spec.deadline) == (2 * HOUR, 90 * SECOND, NOW + 24 * HOUR)
    over = Condition("over", (3,))
    assert (spec.after, facts.conditions.every) == (("3",), (over,))
    assert facts.begin == NOW + 10 * MINUTE
    assert (spec.shape.locality, spec.shape.gpu_types) == (Locality.NODE, ("V100", "P100"))
    assert (spec.on_preempt, launch.on_preempt) == (OnPreempt.KILL, OnPreempt.KILL)
    assert (launch.grace, launch.retries, launch.per) == (MINUTE, 2, "node")
    assert (launch.output, launch.error) == ("/data/out-%j.txt", "/tmp/err")
    assert facts.hold
    assert made().spec.limit == NEVER
    assert made().facts.name == "train.py"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"command": []}, "command"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": 3, "workers": 2}, "gpus"),
        ({"gpus": 2, "share": 0.5}, "share"),
        ({"share": 0.0}, "share"),
        ({"cpus": -1}, "cpus"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": 0}, "time_limit"),
        ({"memory": "lots"}, "memory"),
        ({"kind": "fun"}, "kind"),
        ({"locality": "x"}, "locality"),
        ({"on_preempt": "cry"}, "on_preempt"),
        ({"array": "7-3"}, "array"),
        ({"array": "0-9%0"}, "array"),
        ({"array": "0-9%x"}, "array"),
        ({"after_each": [1]}, "after_each"),
        ({"array": "0-99999999"}, "array"),
        ({"array": "0-1", "after_each": ["1_0"]}, "after_each"),
        ({"weight": 0}, "weight"),
        ({"deadline": "teatime"}, "deadline"),
        ({"min_gpus": 2, "gpus": 1}, "min_gpus"),
        ({"priority": 1 << 40}, "priority"),
        ({"env": {"A B": ""}}, "env"),
        ({"env": {"A": "x\0y"}}, "env"),
        ({"cwd": "here"}, "cwd"),
        ({"output": "x"}, "output"),
        ({"script": "echo hi"}, "script"),
        ({"name": "a\nb"}, "name"),
        ({"per": "moon"}, "per"),
        ({"format": "ganger.job/9"}, "format"),
        ({"command": ["a\0b"]}, "command"),
        ({"weight": float("nan")}, "weight"),
        ({"begin": 1e300}, ""),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(**fields)
    assert refused.value.where == where


def test_tasks() -> None:
    assert tasks_of("0-3") == ([0, 1, 2, 3], 0)
    assert tasks_of("5,1,3-9:3%2") == ([1, 3, 5, 6, 9], 2)
    assert tasks_of("7") == ([7], 0)


def test_moments() -> None:
    assert moment(None, NOW, "x", 5) == 5
    assert moment(12.5, NOW, "x", 0) == 12_500_000
    assert moment("+90s", NOW, "x", 0) == NOW + 90 * SECOND
    assert moment("1970-01-01T00:01:00+00:00", NOW, "x", 0) == MINUTE


def test_what_can_never_fit_is_refused() -> None:
    fits = Fits(Nodes(ClusterSpec((NodeSpec(gpus=4, gpu_type="V100", cpus=8000, memory=1000),))))
    fits.check(shape_of(JobRequest(gpus=4)))
    for fields in (
        {"gpus": 5},
        {"cpus": 9},
        {"memory": 2000},
        {"gpu_types": ["A100"]},
        {"pool": "x"},
        {"labels": ["x"]},
    ):
        with pytest.raises(BadInput):
            fits.check(shape_of(JobRequest(**fields)))


def test_paths_take_slurms_patterns_and_ours() -> None:
    facts = JobFacts(name="a/b", launch=made().facts.launch, user="ann", array=6, task=3)
    assert pattern("/x/%A_%a-%j-%x-%u-%%.out", facts, 9) == "/x/7_3-10-a_b-ann-%.out"
    assert pattern("/x/%4a", facts, 9) == "/x/0003"
    assert pattern("/x/{array}-{job}", facts, 9) == "/x/3-10"
    assert pattern("/x/%", facts, 9) == "/x/%"


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", 'command = ["python", "x.py"]\ngpus = 2\ntime_limit = "1h"\n[env]\nA = "1"\n'),
        (".yaml", "command: [python, x.py]\ngpus: 2\ntime_limit: 1h\nenv: {A: '1'}\n"),
        (
            ".json",
            '{"command": ["python", "x.py"], "gpus": 2, "time_limit": "1h", "env": {"A": "1"}}',
        ),
    ],
)
def test_job_files(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"job{suffix}"
    path.write_text(text)
    expected = JobRequest(command=["python", "x.py"], gpus=2, time_limit="1h", env={"A": "1"})
    assert read_file(path) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "gpus = ", "job"),
        ("a.toml", 'gpus = "two"', r"\$\.gpus"),
        ("a.yaml", "gups: 2", "gups"),
        ("a.yaml", "- 1", "no fields"),
        ("a.yaml", "format: ganger.job/2", "ganger.job/2"),
        ("a.json", "{", "truncated"),
        ("missing.toml", None, "No such file"),
    ],
)
def test_bad_job_files(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=said if said != "job" else "Invalid value"):
        read_file(path)


def test_states_are_slurms() -> None:
    assert state_of(Phase.BLOCKED, "") == ("PENDING", "PD")
    assert state_of(Phase.FAILED, "TimeLimit") == ("TIMEOUT", "TO")
    assert state_of(Phase.FAILED, "OutOfMemory: 2 GiB") == ("OUT_OF_MEMORY", "OOM")
    assert state_of(Phase.FAILED, "exit code 3") == ("FAILED", "F")
    assert phases_of(["running", "PD"]) == {
        Phase.RUNNING,
        Phase.PENDING,
        Phase.BLOCKED,
        Phase.DECLARED,
    }
    assert phases_of(["over"]) == {Phase.FINISHED, Phase.FAILED, Phase.CANCELLED}
    with pytest.raises(BadInput, match="not a valid state"):
        phases_of(["sleeping"])


@pytest.mark.parametrize(
    ("phase", "outcome", "code"),
    [
        (Phase.RUNNING, "", None),
        (Phase.FINISHED, "", 0),
        (Phase.CANCELLED, "", 130),
        (Phase.FAILED, "exit code 3", 3),
        (Phase.FAILED, "killed by signal 9", 137),
        (Phase.FAILED, "TimeLimit", 124),
        (Phase.FAILED, "OutOfMemory", 137),
        (Phase.FAILED, "NodeFail", 1),
    ],
)
def test_exit_codes(phase: Phase, outcome: str, code: int | None) -> None:
    assert exit_code(phase, outcome) == code


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "src/train.py", "--lr", "1"], "train.py"),
        (["/usr/bin/python3", "-m", "torch.distributed.run", "x.py"], "torch.distributed.run"),
        (["python3", "-c", "print('a'); import b"], "python3"),
        (["./run.sh", "-c", "x"], "run.sh"),
    ],
)
def test_a_job_without_a_name_is_called_after_what_it_runs(command: list[str], name: str) -> None:
    assert made(command=command).facts.name == name
