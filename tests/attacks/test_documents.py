"""Files that somebody else wrote and a user gives to a command: each costs a sentence, not a
machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ganger.cli.main import cli
from ganger.client.request import read_file
from ganger.core.documents import parsed
from ganger.core.errors import BadInput
from ganger.lab.log import replay
from ganger.workloads.clusters import load_cluster

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
DEEP = "[" * 100_000
HOSTILE = {
    "laughs.yaml": (LAUGHS, "more than 1,000,000 values"),
    "merges.yaml": (MERGES, "more than 1,000,000 values"),
    "itself.yaml": ("a: &a [*a]\n", "alias of itself"),
    "deep.yaml": (f"a: {DEEP}", "nested too deeply"),
    "deep.toml": (f"a = {DEEP}", "nested too deeply"),
    "deep.json": (f'{{"a": {DEEP}', "nested too deeply"),
    "dots.toml": ("a." * 50_000 + "b = 1\n", "more than 200 parts"),
    "digits.yaml": (f"a: {'9' * 10_000}\n", "4300 digits"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_document_that_grows_without_end_is_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    text, why = HOSTILE[name]
    path = tmp_path / name
    path.write_text(text)
    for reads in (load_cluster, read_file):
        with pytest.raises(BadInput, match=why):
            reads(path)


def test_aliases_that_save_writing_are_read() -> None:
    text = "node: &node {gpus: 8}\nnodes: [*node, {<<: *node, cpus: 4}]\n"
    node = {"gpus": 8}
    assert parsed(text, ".yaml") == {"node": node, "nodes": [node, {**node, "cpus": 4}]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a run."""
    trace, path = tmp_path / "trace.csv", tmp_path / "run.jsonl"
    trace.write_text("job,submitted,duration,gpus\na,0,10,1\nb,1,10,1\n")
    words = ["simulate", str(trace), "--cluster", "1x2xV100", "--log", str(path)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return path


CHANGES: dict[str, dict[str, Any]] = {
    "jobs": {"jobs": 10**12},
    "nodes": {"cluster": {"nodes": [{"gpus": 1, "count": 10**12}]}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_logs_header_sizes_nothing(what: str, log: Path) -> None:
    head, *lines = log.read_text().splitlines()
    changed = {**msgspec.json.decode(head), **CHANGES[what]}
    log.write_text("\n".join([msgspec.json.encode(changed).decode(), *lines]))
    with pytest.raises(BadInput, match=r"run\.jsonl"):
        replay(log)


def test_a_log_with_numbers_beyond_all_columns_is_refused(log: Path) -> None:
    log.write_text(log.read_text().replace('"duration":10000000', f'"duration":{1 << 63}', 1))
    with pytest.raises(BadInput, match=r"run\.jsonl"):
        replay(log)


def test_a_log_with_events_of_no_job_is_refused(log: Path) -> None:
    log.write_text(log.read_text().replace('"job":1', f'"job":{1 << 40}'))
    with pytest.raises(BadInput, match="contradict"):
        replay(log)
