"""What the schema allows the service accepts, but for what a schema cannot say."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ganger.client.request import JobRequest
from ganger.core.errors import BadInput
from ganger.service.http.api import openapi
from ganger.service.http.job_api import Submission
from ganger.service.http.request_helpers import decoded
from ganger.service.jobs.submission import Who, prepare

schemathesis = pytest.importorskip("schemathesis")
UNSAID = (
    "a search is one job", "a search holds whole GPUs", "this is not a search", "has no parent",
    "contradicts configurations",
    "cannot be shared evenly", "has no tasks, or too many", "more than .* tasks",
    "it contradicts params", "an array is submitted by itself", "a worker has",
    "does not hold", "a share needs one GPU per worker",
    "no searcher is named", "must know which values are good", "^space: ", "needs optuna",
    "counts already", "earlier: its step or value", "starts .* trials", "earlier: ",
)  # fmt: skip
"""Arithmetic between fields, and within a range of tasks."""
SOUND: dict[str, list[Any]] = {
    "command": [["a", "b"]], "script": ["#!/bin/sh\ntrue\n"], "name": ["é 世"],
    "time_limit": [90, 0.5, "90s", "1h30m", "2d", "1-12:00:00", "12:30:00", "", None],
    "begin": [1.0, "+2h", "2026-05-01", "2026-05-01T18:00", "2026-05-01T18:00:30+02:00", None],
    "memory": [512, "16GiB", "16G", "512M", "1.5 GiB", "100"],
    "array": ["0-7", "1,3,5-9:2", "0-99%4"], "params": [{"lr": ["0.1", "a b"], "x_1": ["1"]}],
    "after": [[12], ["12_3"], ["7"]], "after_begin": [[12], ["12_3+10m"], ["7+1h30m"]],
    "env": [{"A_1": "x"}], "cwd": ["/tmp"], "per": ["node"],
    "output": ["/a/%j"], "mail_to": [["ann@mail.example"]], "mail_on": [["failed"]],
    "kind": ["serve"], "on_preempt": ["suspend"], "locality": ["rack"], "gpus": [0, 4.0],
    "share": [0.5], "priority": [-5], "grace": [0, "", "10s"], "retries": [3],
}  # fmt: skip
WRONG: dict[str, list[Any]] = {
    "command": [[], ["a\0"]], "script": ["echo"], "name": ["a\nb", "a\n", "x" * 201],
    "time_limit": [-1, 0, "soon", "90 minutes"], "begin": ["tomorrow", "+soon"],
    "memory": ["much", "16XB", -5], "array": ["a-b", "1;2", "0-7%0"], "after": [["x"], [0]],
    "params": [{"lr": "0.1"}, {"lr": [1]}, ["lr"], {"lr": []}, {"lr": ["1", "1"]}, {"job": ["1"]},
               {"1r": ["1"]}, {"lr": ["a\0"]}, {"lr": ["x" * 4097]}, {"a" * 65: ["1"]}],
    "env": [{"1A": "x"}, {"A-B": ""}, {"A": "\0"}], "cwd": ["relative"], "per": ["rack"],
    "mail_to": [["nobody"]], "mail_on": [["sneezed"]], "kind": ["fun"], "on_preempt": ["cry"],
    "locality": ["near"], "gpus": [-1, 1 << 21, 1.5], "share": [0, 1.5], "priority": [1 << 40],
    "tenant": ["a\x1b[2J", "x" * 201], "labels": [["a\u2028"]], "model": ["a\u202e"],
    "retries": [-1], "steps": [-1], "weight": [0], "format": ["ganger.job/2"],
    "metrics": [{"auc": "best"}, {"a\x1b[2J": "min"}, {"": "min"}, {"a" * 129: "max"}],
    "search": ["clever"], "recipe": ["x" * 1001, 7], "printed": ["much"], "metric": ["a\u2028"],
    "parent": [0, "x"], "searcher": ["clever"], "seed": [-1, 1 << 32],
    "space": [{"job": {}}, {"x": {"type": "word"}}, {"x": 3}], "earlier": ["x", [{"params": {}}]],
    "configurations": [[{"lr": 1}], [{"job": "1"}], [{"lr": "a\0"}], "lr"],
    "after_each": [["1"]], "after_begin": [["x"], ["7+"], ["7+soon"]], "output": ["relative"],
}  # fmt: skip


def rows(job: str | int) -> list[int]:
    """Every job is there that is named as jobs are."""
    if not re.fullmatch("[1-9][0-9]*(_[0-9]+)?", str(job)):
        raise BadInput("no job's number")
    return [0]


def refusal(body: Any) -> str:
    """Why the service refuses it whatever the cluster and its jobs are; empty if it does not."""
    try:
        found = decoded(body, Submission)
        for one in found if isinstance(found, list) else [found]:
            prepare(one, Who("ann"), 1_000_000_000_000, rows, False)
    except BadInput as error:
        return str(error)
    return ""


def encoded(**fields: Any) -> bytes:
    """A body with a command, and these fields."""
    return json.dumps({"command": ["true"], **fields}).encode()


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(openapi())["/v1/jobs"]["POST"]


def test_what_the_schema_allows_is_accepted(schema: Any) -> None:
    """All bodies that it allows but those whose arithmetic is wrong."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
    def check(case: Any) -> None:
        why = refusal(json.dumps(case.body).encode())
        seen["accepted" if not why else "unsaid"] += 1
        assert not why or any(re.search(one, why) for one in UNSAID), (why, case.body)

    check()
    assert seen["accepted"] >= 10


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema_rs")
    document = openapi()
    root = {"$ref": "#/components/schemas/JobRequest", "components": document["components"]}
    return jsonschema.validator_for(root)


@pytest.mark.parametrize("field", SOUND)
def test_what_is_documented_is_allowed_and_accepted(validator: Any, field: str) -> None:
    for value in SOUND[field]:
        body = encoded(**{field: value})
        assert refusal(body) == ""
        assert validator.is_valid(json.loads(body)), value


@pytest.mark.parametrize("field", WRONG)
def test_what_is_refused_is_not_allowed(validator: Any, field: str) -> None:
    for value in WRONG[field]:
        body = encoded(**{field: value})
        assert refusal(body), value
        assert not validator.is_valid(json.loads(body)), value


def test_every_field_is_tried() -> None:
    plain = {
        "tenant", "pool", "labels", "model", "hold", "singleton", "warm", "gpu_types", "error",
        "checkpoint_dir", "cpus", "workers", "nodes", "min_gpus", "max_gpus", "gpu_memory",
        "estimate", "deadline", "after_any", "after_not_ok", "after_one",
    }  # fmt: skip
    assert set(JobRequest.__struct_fields__) == plain | set(SOUND) | set(WRONG)
