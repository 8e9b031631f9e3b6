"""`serve.composed`: each slot does its part, and what others leave out can be left out."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import ServingRun, Setup, serve
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Chunk, Requests
from serving.rig import MS

COUNT = 3000
FLEET = "cpu-1:2"


@cache
def run(slots: str, recipe: str = "serve.composed", asked: str = "digits") -> ServingRun:
    """3,000 requests with 300 different inputs, half of them in a hurry."""
    rng = np.random.default_rng(3)
    at = (rng.exponential(1e6 / 9_000, COUNT)).cumsum().astype(np.int64)
    slo = np.where(rng.random(COUNT) < 0.5, 8 * MS, 40 * MS)
    rows = Chunk(
        at, np.zeros(COUNT, np.int32), deadline=at + slo, input=rng.integers(0, 300, COUNT)
    )
    made = Requests.of(rows, Names([asked]))
    spec = f"{recipe}({slots})" if slots else recipe
    return serve(made, read_models("measured"), read_fleet(FLEET), spec, Setup())


def test_answers_are_kept() -> None:
    kept, asked = run("").metrics, run("keeps=0").metrics
    assert (kept["batches"] or 0) * (kept["batch_mean"] or 0) < COUNT / 2
    assert (asked["batches"] or 0) * (asked["batch_mean"] or 0) > COUNT / 2


def test_a_model_is_chosen_by_the_rule_that_is_named() -> None:
    found = {rule: run(f"keeps=0,select={rule}") for rule in ("exp3", "exp4", "switching")}
    assert len({each.metrics["effective_accuracy"] for each in found.values()}) == 3
    asked = {
        rule: (each.metrics["batches"] or 0) * (each.metrics["batch_mean"] or 0)
        for rule, each in found.items()
    }
    assert asked["exp4"] > 2 * asked["exp3"]  # all models vote
    with pytest.raises(BadInput, match="does not choose among models"):
        run("select=none")


def test_a_queue_that_is_long_enough_refuses() -> None:
    short, free = run("keeps=0,longest=4"), run("keeps=0,longest=0")
    assert short.dropped.get("the queue was full")
    assert "the queue was full" not in free.dropped


SIZES = np.array([1, 2, 4, 8, 16])
PLAIN = Models(
    {
        name: Model(
            name, latency=(Latency("T4", 1.0, SIZES, base + each * SIZES, base + each * 2 * SIZES),)
        )
        for name, base, each in (("one", 0.004, 0.001), ("two", 0.006, 0.002))
    },
    {"T4": 0},
)


@cache
def plain(slots: str, recipe: str = "serve.composed") -> ServingRun:
    """2,000 requests for two models, half of them in a hurry, for more than two devices can do."""
    rng = np.random.default_rng(4)
    at = (rng.exponential(1e6 / 450, 2000)).cumsum().astype(np.int64)
    slo = np.where(rng.random(2000) < 0.5, 20 * MS, 80 * MS)
    rows = Chunk(at, rng.integers(0, 2, 2000).astype(np.int32), deadline=at + slo)
    spec = f"{recipe}({slots})" if slots else recipe
    made = Requests.of(rows, Names(["one", "two"]))
    return serve(made, PLAIN, read_fleet("T4:2"), spec, Setup())


def test_lanes_orders_and_batches_differ() -> None:
    def figures(slots: str) -> tuple[object, ...]:
        found = plain(f"keeps=0,select=none,longest=0,{slots}").metrics
        return found["latency_mean_seconds"], found["attainment"], found["batch_mean"]

    lanes = ("shared", "apart", "round-robin", "least-loaded", "power-of-two")
    assert len({figures(f"lanes={each},batch=waiting") for each in lanes}) == len(lanes)
    assert figures("order=arrival,batch=waiting") != figures("order=deadline,batch=waiting")
    batches = ("single", "waiting", "full", "aimd", "regression", "slack")
    assert len({figures(f"batch={each}") for each in batches}) == len(batches)
    assert figures("batch=single")[2] == 1
    assert figures("batch=waiting,size=2") != figures("batch=waiting")
    assert figures("batch=full,size=4") != figures("batch=full,size=4,delay=1ms")


@pytest.mark.parametrize(
    ("slots", "recipe"),
    [
        ("lanes=shared,order=arrival,batch=waiting", "serve.triton"),
        ("lanes=shared,order=arrival,batch=single", "serve.no-batch"),
        ("lanes=least-loaded,order=arrival,batch=waiting,size=1", "serve.least-loaded"),
        ("lanes=apart,order=arrival,batch=waiting", "serve.dedicated"),
        ("lanes=shared,batch=slack", "nanily"),
    ],
)
def test_simpler_recipes_are_mixes_of_it(slots: str, recipe: str) -> None:
    mine, theirs = plain(f"keeps=0,select=none,longest=0,{slots}"), plain("", recipe)
    assert mine.metrics == theirs.metrics
    assert mine.dropped == theirs.dropped
