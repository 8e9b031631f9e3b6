"""`#SBATCH` lines, as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ganger.client import sbatch
from ganger.client.request import convert
from ganger.core.errors import BadInput
from ganger.service.jobs.submission import Who, prepare, shape_of

TABLE: list[tuple[str, dict[str, Any]]] = [
    ("--job-name=train", {"name": "train"}),
    ("-J train", {"name": "train"}),
    ("-Jtrain", {"name": "train"}),
    ("--gpus=4", {"gpus": 4}),
    ("--gpus=a100:4", {"gpus": 4, "gpu_types": ["a100"]}),
    ("-G 2", {"gpus": 2}),
    ("--gres=gpu:2", {"gpus": 2}),
    ("--gres=gpu:v100:2", {"gpus": 2, "gpu_types": ["v100"]}),
    ("--nodes=2 --gpus-per-node=8", {"nodes": 2, "gpus": 16, "workers": 2}),
    ("-N2 --ntasks-per-node=4 --gpus-per-task=1", {"nodes": 2, "workers": 8, "gpus": 8}),
    ("--ntasks=4 --gpus=4", {"workers": 4, "gpus": 4}),
    ("-n1 --cpus-per-task=8", {"cpus": 8}),
    ("--mem=64G --gres=gpu:1", {"memory": 65536, "gpus": 1}),
    ("--mem=512", {"memory": 512}),
    ("--mem-per-cpu=2G -c 4", {"memory": 8192, "cpus": 4}),
    ("--mem-per-gpu=16G --gpus=2", {"memory": 32768, "gpus": 2}),
    ("--nodes=1 --ntasks-per-node=4 --mem=64G", {"nodes": 1, "workers": 4, "memory": 16384}),
    ("--time=60", {"time_limit": "60m"}),
    ("--time=1-12:00:00", {"time_limit": "1-12:00:00"}),
    ("-t 2:30:00", {"time_limit": "2:30:00"}),
    ("--time=UNLIMITED", {}),
    ("--account=physics", {"tenant": "physics"}),
    ("--array=0-15:3", {"array": "0-15:3"}),
    ("--dependency=afterok:12:13,afterany:9", {"after": ["12", "13"], "after_any": ["9"]}),
    ("--dependency=singleton", {"singleton": True}),
    ("--dependency=afternotok:7,aftercorr:8", {"after_not_ok": ["7"], "after_each": ["8"]}),
    ("--dependency=after:7+5:8,12", {"after_begin": ["7+5m", "8"], "after_any": ["12"]}),
    (
        "--dependency=afterok:7:8?afterany:9",
        {"after": ["7", "8"], "after_any": ["9"], "after_one": True},
    ),
    ("--array=0-9%2", {"array": "0-9%2"}),
    ("--begin=now+2hours", {"begin": "+2h"}),
    ("--begin=now+30", {"begin": "+30s"}),
    ("--begin=now", {"begin": ""}),
    ("--begin=2026-05-01T18:00", {"begin": "2026-05-01T18:00"}),
    ("--deadline=2026-05-02T18:00", {"deadline": "2026-05-02T18:00"}),
    ("-H", {"hold": True}),
    ("--hold", {"hold": True}),
    (
        "--mail-user=a@b.c --mail-type=FAIL,REQUEUE",
        {"mail_to": ["a@b.c"], "mail_on": ["failed", "cancelled", "preempted"]},
    ),
    ("--nice=100", {"priority": -100}),
    ("--priority=7", {"priority": 7}),
    ("--no-requeue", {"on_preempt": "never"}),
    ("--requeue", {}),
    ("--signal=B:USR1@120", {"grace": 120}),
    ("-o logs/%j.out -e logs/%j.err", {"output": "logs/%j.out", "error": "logs/%j.err"}),
    ("--chdir=/data", {"cwd": "/data"}),
    ("--constraint=nvlink&fast", {"labels": ["nvlink", "fast"]}),
    ('--job-name="two words" # a comment', {"name": "two words"}),
]


@pytest.mark.parametrize(("line", "expected"), TABLE, ids=[line for line, _ in TABLE])
def test_a_line_means(line: str, expected: dict[str, Any]) -> None:
    found = sbatch.parse(f"#!/bin/bash\n#SBATCH {line}\necho hi\n", "job.sh")
    assert found.fields == {"gpus": 0, **expected}
    assert found.notes == []
    shape_of(convert({**found.fields, "command": ["x"]}, "test"))


def test_lines_add_up_and_end_at_the_first_command() -> None:
    script = (
        "#!/bin/bash\n# a remark\n#SBATCH --gpus=2\n\n#SBATCH -J a\n#SBATCH -J b\n"
        "cd /tmp\n#SBATCH --gpus=8\n"
    )
    assert sbatch.parse(script, "job.sh").fields == {"gpus": 2, "name": "b"}


@pytest.mark.parametrize(
    ("line", "said"),
    [("--partition=gpu", "--partition"), ("-q high", "--qos"), ("--exclusive", "--exclusive")],
)
def test_what_means_nothing_is_said(line: str, said: str) -> None:
    found = sbatch.parse(f"#!/bin/sh\n#SBATCH {line}\n", "job.sh")
    assert found.notes
    assert said in found.notes[0]


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("--gpus=many", "job.sh:2: --gpus"),
        ("--frobnicate=1", "job.sh:2"),
        ("--nodes=2-4", "job.sh:2: --nodes"),
        ("--mail-type=X", "job.sh:2: --mail-type"),
        ("--dependency=singleton:1", "job.sh:2: --dependency"),
        ("--dependency=afterok:1?afterok:2,after:3", "job.sh:2: --dependency"),
        ("--dependency=afterok:1?singleton", "job.sh:2: --dependency"),
        ("--dependency=after:1+soon", "job.sh:2: --dependency"),
        ("--mem", "job.sh:2"),
        ("--ntasks=x", "job.sh:2: --ntasks"),
        ('--job-name="open', "job.sh:2"),
        ("stray", "job.sh:2"),
        ("--nice=low", "job.sh:2: --nice"),
        ("--signal=", "job.sh:2"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(line: str, where: str) -> None:
    with pytest.raises(BadInput) as refused:
        sbatch.parse(f"#!/bin/sh\n#SBATCH {line}\n", "job.sh")
    assert str(refused.value).startswith(where)


@pytest.mark.parametrize("line", ["--mem=lots", "--time=soon", "--array=a-b", "--begin=soon"])
def test_what_only_the_daemon_understands_is_refused_there(line: str) -> None:
    def submit() -> None:
        fields = sbatch.parse(f"#!/bin/sh\n#SBATCH {line}\n", "job.sh").fields
        request = convert({**fields, "command": ["x"]}, "test")
        prepare(request, Who("ann"), 0, lambda job: [], False)

    with pytest.raises(BadInput):
        submit()


def test_moments_as_sbatch_has_them() -> None:
    """A time of day is the next one: today's, or tomorrow's."""
    assert [sbatch.when(text) for text in ("now", "now+90", "now+2hours", "2026-05-01")] == [
        "",
        "+90s",
        "+2h",
        "2026-05-01",
    ]
    now = datetime.now()
    for text in ("16:00", "9:30:15", "noon", "midnight", "teatime"):
        then = datetime.fromisoformat(sbatch.when(text))
        assert now < then <= now + timedelta(days=1, minutes=1)
    assert datetime.fromisoformat(sbatch.when("tomorrow")).date() == now.date() + timedelta(days=1)
    assert sbatch.when("25:00") == "25:00", "which the daemon refuses"


def test_options_stand_over_a_scripts_lines() -> None:
    """`sbatch --gres=gpu:a100:1 script` of a script that asks for V100s."""
    script = "#!/bin/sh\n#SBATCH --gres=gpu:v100:4\n#SBATCH --mem-per-gpu=2G -t 5\n"
    found = sbatch.parse(script, "job.sh", [("gpus-per-node", "a100:2"), ("partition", "gpu")])
    assert found.fields == {"gpus": 2, "gpu_types": ["a100"], "time_limit": "5m", "memory": 4096}
    assert found.notes == ["--partition has no effect here and is ignored"]
    alone = sbatch.given([("ntasks", "4"), ("gpus", "8"), ("cpus-per-gpu", "3")]).fields
    assert alone == {"workers": 4, "gpus": 8, "cpus": 6}
    assert "gpus" not in sbatch.given([("mem-per-gpu", "1G")]).fields, "a command has one anyway"
    with pytest.raises(BadInput, match=r"^--gres: 'gpu' is not a valid number of GPUs"):
        sbatch.given([("gres", "gpu")])


def test_export_is_handed_on() -> None:
    assert sbatch.parse("#!/bin/sh\n#SBATCH --export=NONE\n", "job.sh").export == "NONE"
    assert sbatch.parse("#!/bin/sh\n", "job.sh").export is None
