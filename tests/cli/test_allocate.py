"""`ganger allocate`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.typed import typed

PROBLEM = {
    "gpu_types": {"v100": 1, "k80": 2},
    "jobs": [
        {"name": "a", "throughput": {"v100": 80.0, "k80": 10.0}},
        {"name": "b", "throughput": {"v100": 70.0, "k80": 50.0}},
    ],
    "pairs": [{"jobs": ["a", "b"], "throughput": {"v100": [75.0, 65.0]}}],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with `problem.json`."""
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
    return tmp_path


def test_json_has_the_promised_form(place: Path) -> None:
    told = json.loads(
        typed(place, "allocate", "problem.json", "--objective", "max-sum", "--json").stdout
    )
    assert list(told) == [
        "objective",
        "gap",
        "allocation",
        "effective_throughput",
        "dual_prices",
        "cpu_seconds",
    ]
    assert told["objective"] == {"name": "max-sum", "value": pytest.approx(140)}
    assert told["allocation"] == {"a": {}, "b": {}, "a+b": {"v100": pytest.approx(1)}}
    assert told["effective_throughput"] == pytest.approx({"a": 75, "b": 65})
    assert told["gap"] <= 1e-6
    assert set(told["dual_prices"]) == {"v100", "k80"}


def test_the_table_says_the_same(place: Path) -> None:
    out = typed(place, "allocate", "problem.json", "-o", "max-sum").stdout
    assert "max-sum: steps per second 140, gap" in out
    assert "a+b" in out
    assert "one more v100 is worth" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.json"], "none.json"),
        (["problem.json", "--objective", "speed"], "speed"),
        (["problem.json", "--objective", "makespan"], "jobs[0].steps_remaining"),
        (["problem.json", "--objective", "hierarchical"], "entities"),
        (["problem.json", "--objective", "max-sum-per-cost"], "prices.v100"),
        (["bad.json"], "bad.json: jobs[1].throughput.h100"),
    ],
)
def test_wrong_input_ends_with_2_and_the_field(place: Path, words: list[str], said: str) -> None:
    bad = json.dumps(PROBLEM).replace('"k80": 50.0', '"h100": 50.0')
    (place / "bad.json").write_text(bad)
    assert said in typed(place, "allocate", *words, code=2).stderr


def test_every_objective_of_the_library_is_offered(place: Path) -> None:
    from ganger.lab.allocate import OBJECTIVES

    shown = typed(place, "allocate", "--help").stdout
    squeezed = "".join(shown.split())
    assert [name for name in OBJECTIVES if name not in squeezed] == []


def test_names_are_shown_as_they_are_and_nothing_is_cut(place: Path) -> None:
    """Square brackets are no markup; in a pipe of 80 columns a long name goes on below."""
    long = "[red]x[/red] [1] " + "n" * 90
    (place / "odd.json").write_text(json.dumps(PROBLEM).replace('"a"', json.dumps(long)))
    out = typed(place, "allocate", "odd.json", "-o", "max-min-lexicographic").stdout
    assert "[red]x[/red] [1]" in out
    assert out.count("n" * 10) >= 9 - 1
    assert "…" not in out
    assert out.splitlines()[0].endswith("CPU-s")
    assert max(map(len, out.splitlines()[1:])) <= 80
