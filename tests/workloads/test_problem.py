"""The problem format: what is refused, with the path of the field."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.workloads.problem import Column, load_problem

GOOD: dict[str, Any] = {
    "format": "ganger.problem/1",
    "gpu_types": {"v100": 2, "k80": 3},
    "jobs": [
        {"name": "a", "throughput": {"v100": 80, "k80": 10}, "gpus": 2, "entity": "x"},
        {"name": "b", "throughput": {"v100": {"consolidated": 9, "distributed": 5}}, "gpus": 2},
    ],
    "prices": {"v100": 3.0},
    "entities": {"x": {"weight": 2, "inside": "fifo", "parent": "y"}, "y": {}},
    "pairs": [{"jobs": ["a", "b"], "throughput": {"k80": [6, 3]}}],
}


def changed(path: list[str | int], value: Any) -> dict[str, Any]:
    """GOOD with another value at a path; None takes it away."""
    raw = copy.deepcopy(GOOD)
    at: Any = raw
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return raw


def test_a_problem_is_arrays() -> None:
    found = load_problem(GOOD)
    assert found.columns == (
        Column("v100", ""),
        Column("v100", "consolidated"),
        Column("v100", "distributed"),
        Column("k80", ""),
    )
    assert found.throughput.tolist() == [[80, 0, 0, 10], [0, 9, 5, 0]]
    assert found.kind.tolist() == [0, 0, 0, 1]
    assert found.pairs.tolist() == [[0, 1]]
    assert found.pair_throughput[0].tolist() == [[0, 0, 0, 6], [0, 0, 0, 3]]
    assert found.entity.tolist() == [0, -1]
    assert found.parent.tolist() == [1, -1]
    assert np.isnan(found.steps).all()


def test_the_format_may_be_missing() -> None:
    assert load_problem(changed(["format"], None)).names == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["format"], "ganger.problem/2", "format: 'ganger.problem/2' is newer"),
        (["format"], "csv", "format: 'csv'"),
        (["gpu_types"], None, "gpu_types: .*missing"),
        (["gpu_types"], {}, "gpu_types: there is no GPU"),
        (["gpu_types", "k80"], -1, "gpu_types.k80: -1"),
        (["gpu_types", "k80"], 1.5, "gpu_types.k80: Expected `int`"),
        (["jobs"], [], "jobs: there is no job"),
        (["jobs", 1, "name"], "a", r"jobs\[1\].name: 'a' is listed twice"),
        (["jobs", 1, "name"], "a+b", r"jobs\[1\].name: 'a\+b'"),
        (["jobs", 0, "throughput", "v100"], -1, r"jobs\[0\].throughput.v100: -1"),
        (["jobs", 0, "throughput", "v100"], float("nan"), r"jobs\[0\].throughput.v100: nan"),
        (["jobs", 0, "throughput", "v100"], "fast", r"jobs\[0\].throughput.v100: Expected"),
        (
            ["jobs", 0, "throughput", "h100"],
            1,
            r"jobs\[0\].throughput.h100: 'h100' is not "
            r"a GPU type of this problem",
        ),
        (["jobs", 1, "throughput", "v100", "spread"], 1, r"throughput.v100.spread: .*unknown"),
        (["jobs", 0, "throughput"], {"v100": 0}, r"jobs\[0\].throughput: 'a' runs on no GPU"),
        (["jobs", 0, "gpus"], 0, r"jobs\[0\].gpus: 0"),
        (["jobs", 0, "weight"], 0, r"jobs\[0\].weight: 0"),
        (["jobs", 0, "weight"], float("inf"), r"jobs\[0\].weight: inf"),
        (["jobs", 0, "steps_remaining"], -5, r"jobs\[0\].steps_remaining: -5"),
        (["jobs", 0, "slo_seconds"], 0, r"jobs\[0\].slo_seconds: 0"),
        (["jobs", 0, "priority"], 3, r"jobs\[0\].priority: .*unknown"),
        (["jobs", 0, "entity"], "q", r"jobs\[0\].entity: there is no entity 'q'"),
        (["extra"], 3, "extra: .*unknown"),
        (["prices", "v100"], 0, "prices.v100: 0"),
        (["prices", "h100"], 1, "prices.h100: 'h100' is not a GPU type of this problem"),
        (["entities", "x", "inside"], "lifo", "entities.x.inside: Invalid enum"),
        (["entities", "x", "weight"], 0, "entities.x.weight: 0"),
        (["entities", "y", "parent"], "x", "entities.x.parent: parents go round"),
        (["entities", "y", "parent"], "q", "entities.y.parent: there is no entity"),
        (["pairs", 0, "jobs"], ["a", "a"], r"pairs\[0\].jobs: 'a\+a' is not a new pair"),
        (["pairs", 0, "jobs"], ["a", "q"], r"pairs\[0\].jobs\[1\]: there is no job 'q'"),
        (["jobs", 1, "gpus"], 1, r"pairs\[0\].jobs: they use 2 and 1 GPUs"),
        (["pairs", 0, "throughput", "k80"], [1], r"pairs\[0\].throughput.k80: Expected"),
        (["pairs", 0, "throughput", "k80"], [1, -1], r"pairs\[0\].throughput.k80: -1"),
    ],
)
def test_what_is_wrong_is_named(path: list[str | int], value: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load_problem(changed(path, value))


@pytest.mark.parametrize(
    ("text", "said"), [("[]", "Expected `object`"), ("{", "cannot be parsed"), ("", "empty")]
)
def test_files_that_are_no_problems(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(BadInput, match=said):
        load_problem(tmp_path / "p.json")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(GOOD))
    assert load_problem(tmp_path / "p.json").names == ["a", "b"]
    with pytest.raises(BadInput):
        load_problem(tmp_path / "none.json")
