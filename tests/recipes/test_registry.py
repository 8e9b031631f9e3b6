"""Recipes by name: parameters, and messages that help."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import getsourcefile
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.docs.recipe_pages import JOBS, schedule
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.ordering.admit import Walk
from ganger.recipes import registry
from ganger.recipes.training.attained.recipes import Attained
from worlds import job, trace_of


@pytest.mark.parametrize("name", sorted(registry.CATALOGUE))
def test_every_recipe_has_a_paper_a_summary_defaults_and_works_without_arguments(name: str) -> None:
    found = registry.find(name)
    assert found.name == name
    assert found.paper.title
    assert found.summary.endswith((".", ":"))
    assert hasattr(registry.make(name), "decide")
    assert hash(found.paper) == hash(registry.find(name).paper)


RECIPES = [registry.find(name) for name in registry.recipes()]


def chosen(**filters: Any) -> set[str]:
    """Names of those that pass."""
    return {found.name for found in registry.chosen(RECIPES, **filters)}


@pytest.mark.parametrize("name", registry.recipes())
def test_mechanisms_are_those_that_the_code_names(name: str) -> None:
    found = registry.find(name)
    assert found.mechanisms
    source = Path(getsourcefile(found.make) or "").read_text()
    others = {module for names in registry.PLANES.values() for module in names.values()}
    for module in others:  # those of recipes that it is made of
        if f"from {module} import" in source:
            source += Path(import_module(module).__file__ or "").read_text()
    for module, parts in found.mechanisms.items():
        room = "recipes" if module.startswith("training/") else "mechanisms"
        dotted = f"ganger.{room}.{module.replace('/', '.')}"
        defined = import_module(dotted)
        assert all(hasattr(defined, part) for part in parts)
        assert f"from {dotted} import" in source
    assert set(found.wants) <= set(registry.WANTS)
    assert found.objectives
    assert found.knowledge <= {"durations", "throughputs"}


@pytest.mark.parametrize("name", registry.recipes())
def test_recipes_that_change_sizes_say_so(name: str) -> None:
    segments = schedule(name).segments or []
    asked = {number: job[3] for number, job in enumerate(JOBS)}
    held: dict[tuple[int, float], int] = {}
    for each in segments:  # a job over two nodes has a segment on each, with one start
        key = (each.job, each.start_seconds)
        held[key] = held.get(key, 0) + each.devices.bit_count()
    assert any(gpus != asked[job] for (job, _), gpus in held.items()) == registry.find(name).elastic


BLIND = {"fifo", "las", "srtf", "helios", "drf", "heterogeneity-agnostic", "yarn-cs", "tiresias"}
SEEING = {"gavel", "max-min", "hierarchical", "pop", "sia", "allox"}


@pytest.mark.parametrize("name", sorted(BLIND | SEEING))
def test_recipes_that_tell_gpu_types_apart_decide_otherwise_where_speeds_are_exchanged(
    name: str,
) -> None:
    def first(swap: bool) -> set[tuple[int, int]]:
        kinds = {"V100": 1.0, "P100": 0.2}
        speeds = dict(zip(kinds, reversed(kinds.values()), strict=True)) if swap else kinds
        two = (Profile(by_type=speeds), Profile(by_type=dict.fromkeys(kinds, 1.0)))
        trace = trace_of(
            [job(f"j{i}", lasts=600, model="fast" if i % 2 else "even") for i in range(16)]
        )
        spec = ClusterSpec(tuple(NodeSpec(gpus=4, gpu_type=kind) for kind in kinds))
        setup = Setup(profiles=Profiles({"fast": two[0], "even": two[1]}))
        run = run_one(trace, spec, name, setup)
        return {(s.job, s.node) for s in run.segments or () if s.start_seconds == 0.0}

    assert (first(swap=False) != first(swap=True)) == registry.find(name).heterogeneous
    assert registry.find(name).heterogeneous == (name in SEEING)


def test_filters_find_what_their_words_say() -> None:
    assert chosen(objective="deadline") == {"chronus", "edf", "genie"}
    assert chosen(objective=" Fairness", needs="nothing", year="2019-2021") == {
        "astraea",
        "heterogeneity-agnostic",
    }
    assert chosen(mechanism="lease") == {"astraea", "gandiva-fair", "themis"}
    assert chosen(mechanism="sizing") >= {"afs", "marble", "optimus"}
    assert chosen(mechanism="promoting") == {"mlfq", "tiresias"}
    assert chosen(elastic=True, heterogeneous=True) == {
        "andreas", "aonline", "cynthia", "fc2", "jahani", "mlcloudprice", "oasis", "sia",
    }  # fmt: skip
    assert chosen(year="2023") == {"fgd", "lucid", "sia", "tgs"}
    assert chosen(year="-1970") == {"mlfq"}
    assert "srtf" not in chosen(needs="throughputs")
    assert {"srtf", "fifo"} <= chosen(needs="durations")
    assert chosen() == set(registry.recipes())


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"objective": "fairnes"}, "--objective: .*did you mean fairness"),
        ({"mechanism": "leaze"}, "--mechanism: .*did you mean lease"),
        ({"needs": "luck"}, "--needs: no recipe has 'luck'"),
        ({"year": "20x"}, "--year: '20x' is not a valid year"),
        ({"year": "-"}, "--year: '-' is not a valid year"),
    ],
)
def test_words_that_no_recipe_has_are_refused(filters: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        chosen(**filters)


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
        ("", "is not a valid recipe"),
        ("fifo(", "is not a valid recipe"),
        ("fifo(walk=sideways)", r"fifo\(walk\): 'sideways' is not one of strict, skip"),
        ("fifo(wlak=skip)", "has no parameter 'wlak' .*it has: walk"),
        ("fifo(skip)", "has no parameter"),
        ("las(quantum=soon)", r"las\(quantum\): 'soon' is not a valid duration"),
        ("backfill(depth=many)", "'many' is not a valid int"),
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


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("las(quantum=0)", "las(quantum): it is out of range (give 1 s or more)"),
        ("astraea(lease=0s)", "astraea(lease): it is out of range (give 1 s or more)"),
        ("optimus(interval=0)", "optimus(interval): it is out of range"),
        ("backfill(interval=0)", "backfill(interval): it is out of range"),
        ("e-las(epochs=0)", "e-las(epochs): it is out of range (give 1 to 10000)"),
        ("ones(population=-1)", "ones(population): it is out of range (give 1 to 10000)"),
        ("themis(fairness=1.5)", "themis(fairness): it is out of range (give 0 to 1)"),
        ("marble(tolerance=nan)", "marble(tolerance): it is out of range (give 0 to 1)"),
        ("cpu-disaggregation(cores=inf)", "cpu-disaggregation(cores): it is out of range"),
        ("cpu-disaggregation(cores=0)", "(give 1e-06 to 1e+09)"),
        ("sia(wait=0.5)", "waiting at 0.5 is cheaper than running (give more than 1)"),
        ("pollux(p=nan)", "pollux(p): it is out of range"),
        ("allox(window=1e3)", "is not a valid int"),
    ],
)
def test_a_parameter_out_of_range_is_named(spec: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        registry.make(spec)


def test_a_system_without_a_name_is_found_by_its_author() -> None:
    assert registry.make("vaibhav(interval=60s)").name == "elastic-scaling"


def test_no_recipe_takes_nonsense_for_a_number() -> None:
    """Whatever its parameter is called: made or refused, and never a NaN within."""
    for name in registry.recipes():
        for parameter, default in registry.find(name).parameters.items():
            if isinstance(default, str | tuple):
                continue
            for value in ("nan", "inf", "-inf", "1e308"):
                with pytest.raises(BadInput):
                    registry.make(f"{name}({parameter}={value})")


def test_the_function_of_a_recipe_can_be_called_as_it_is_written() -> None:
    for name in registry.recipes():
        make = registry.find(name).make
        assert getattr(import_module(make.__module__), make.__name__) is make
