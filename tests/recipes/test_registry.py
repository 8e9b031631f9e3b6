"""Recipes by name: parameters, and messages that help."""

from __future__ import annotations

import pytest

from ganger.core.errors import BadInput
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.mechanisms.admit import Walk
from ganger.recipes import registry
from ganger.recipes.training.attained import Attained


@pytest.mark.parametrize("name", sorted(registry.CATALOGUE))
def test_every_recipe_has_a_paper_a_summary_defaults_and_works_without_arguments(name: str) -> None:
    found = registry.find(name)
    assert found.name == name
    assert found.paper.title
    assert found.summary.endswith((".", ":"))
    assert hasattr(registry.make(name), "decide")
    assert hash(found.paper) == hash(registry.find(name).paper)


def test_names_are_listed_in_alphabetical_order() -> None:
    assert registry.recipes() == sorted(registry.CATALOGUE)


@pytest.mark.parametrize(
    ("spec", "arguments"),
    [
        ("fifo", {}),
        (" fifo() ", {}),
        ("fifo(walk=skip)", {"walk": Walk.SKIP}),
        ("las(quantum=1h30m, attained=TIME)", {"quantum": 90 * MINUTE, "attained": Attained.TIME}),
        ("mlfq(thresholds=90s;2h)", {"thresholds": (90 * SECOND, 2 * HOUR)}),
        ("tiresias(min-run=5, starvation=none)", {"min_run": 5 * SECOND, "starvation": None}),
        ("tiresias(starvation=2.5, consolidate=no)", {"starvation": 2.5, "consolidate": False}),
        ("backfill(depth=3)", {"depth": 3}),
    ],
)
def test_parameters_are_read_as_their_types(spec: str, arguments: dict[str, object]) -> None:
    assert registry.parse(spec)[1] == arguments


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tiresia", "no recipe 'tiresia' .*did you mean tiresias"),
        ("sfj", "no recipe 'sfj' .*sjf"),
        ("zzzzzz", "see `ganger recipes`"),
        ("", "is no recipe"),
        ("fifo(", "is no recipe"),
        ("fifo(walk=sideways)", r"fifo\(walk\): 'sideways' is not one of strict, skip"),
        ("fifo(wlak=skip)", "has no parameter 'wlak' .*it has: walk"),
        ("fifo(skip)", "has no parameter"),
        ("las(quantum=soon)", r"las\(quantum\): 'soon' is no duration"),
        ("backfill(depth=many)", "'many' is no int"),
        ("priority(preempt=perhaps)", "neither true nor false"),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        registry.make(spec)


def test_lists_of_specs_split_at_the_outer_commas() -> None:
    assert registry.split_specs("fifo, las(quantum=1s,walk=skip) ,srtf,") == [
        "fifo",
        "las(quantum=1s,walk=skip)",
        "srtf",
    ]
