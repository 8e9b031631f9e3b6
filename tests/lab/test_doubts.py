"""What a run says that its recipe did not know, or found nothing of, and what it says it knew."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import GpuType, Needs, Role, Shape
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from worlds import cluster, job, trace_of

KNOWN = Profiles({"half": Profile(utilisation={"gpu": 0.5})})
WITH_CPUS = Shape((Role(needs=Needs(cpus=1000)),))
THIRD = Shape((Role(needs=Needs(share=300)),))


def ran(recipe: str, knows: str = "truth", **declared: Any) -> Run:
    """Two jobs of a model that shares, on a node with CPUs."""
    works = [job(name, 0, 10, model="half", **declared) for name in "ab"]
    setup = Setup(profiles=KNOWN, knows=knows)
    return run_one(trace_of(works), cluster(1, 1, cpus=8000), recipe, setup)


@pytest.mark.parametrize("recipe", ["antman", "tgs", "co-scheml", "yeung", "horus", "muri-l"])
def test_recipes_that_need_speeds_only_say_so_and_that_they_have_none(recipe: str) -> None:
    none = "it needs speeds and has none (--knows {}): no job shares GPUs; try --knows truth"
    for knows, column in [("truth", "speeds"), ("noisy", "noisy speeds")]:
        found = ran(recipe, knows)
        assert (found.knows, found.notes) == (column, [])
    for knows in ("nothing", "history", "rolling"):
        found = ran(recipe, knows)
        assert (found.knows, found.notes) == ("nothing", [none.format(knows)])


def test_recipes_that_need_durations_too_are_told_as_before() -> None:
    assert ran("lucid", "noisy").knows == "noisy"
    assert ran("horus(shortest=true)", "history").knows == "history"
    assert ran("gavel(objective=makespan)").knows == "truth"
    assert ran("gavel(objective=max-min)").knows == "speeds"
    assert ran("fifo", "truth").knows == "nothing"


def test_speeds_that_nobody_knows_are_in_proportion_to_gpus() -> None:
    notes = ran("max-min", "history").notes
    assert notes == [
        "it needs speeds and has none (--knows history): speeds are taken to be in proportion to"
        " GPUs; try --knows truth"
    ]


@pytest.mark.parametrize("recipe", ["kubeshare", "fgd", "kubeshare(limit=0.5)"])
def test_a_run_without_parts_of_gpus_says_so_once(recipe: str) -> None:
    assert ran(recipe).notes == ["no job asks for a part of a GPU"]
    assert ran(recipe, shape=THIRD).notes == []


@pytest.mark.parametrize("recipe", ["muri-s", "muri-l", "antman", "tgs", "lucid", "fifo"])
def test_jobs_that_ask_for_cpus_share_with_nobody_and_the_run_says_so(recipe: str) -> None:
    notes = ran(recipe, shape=WITH_CPUS).notes
    assert any("such as CPUs" in note for note in notes) == (recipe not in ("lucid", "fifo"))
    assert ran(recipe).notes == []


def test_a_gpu_type_that_no_node_has_is_named() -> None:
    described = msgspec.structs.replace(
        cluster(1, 1), gpu_types=tuple(GpuType(name, price=2.0) for name in ("V10", "V100", "A1"))
    )
    found = run_one(trace_of([job("a")]), described, "fifo")
    assert found.notes == ["no node has GPUs of type V10 or A1, which the cluster describes"]
