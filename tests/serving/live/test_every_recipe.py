"""Every recipe for requests drives real lanes, and breaks no rule there: see `rig.Seen`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import NEVER
from ganger.lab.serving.live import Machine, prepared
from ganger.recipes.registry import make_router, recipes
from ganger.serving.tickets import Ticket
from ganger.workloads.models.reading import read_models
from serving.live.nets import models_file, times
from serving.live.rig import Bench, run

NOT_HERE = {"cache.clairvoyant", "serve.clairvoyant", "serve.continuous-batching"}
"""What no machine can do."""
LIVE = [each for each in recipes("requests") if each not in NOT_HERE]
CACHED = ["serve.triton(cache=lru)", "serve.fixed-batch(size=3,timeout=2ms,cache=random)"]
SIZE = 1000
FACTORS = (2.0, 3.0, 5.0)
MS = 1000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models: the second takes rows of any width, the third one request at a time."""
    folder = tmp_path_factory.mktemp("models")
    times(folder / "a.onnx", FACTORS[0])
    times(folder / "b.onnx", FACTORS[1], ("n", "wide"))
    times(folder / "c.onnx", FACTORS[2], (1, 4))
    return models_file(folder, ["a", "b", "c"], size=SIZE)


async def play(file: Path, recipe: str, machine: Machine, seconds: float) -> None:
    """Requests come at random for so long; each is answered with its own numbers, or dropped."""
    bench, rng = Bench(file, recipe, machine), random.Random(7)
    futures: list[tuple[int, Any, asyncio.Future[Ticket]]] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        for _ in range(rng.choice((1, 1, 2, 7))):
            model = rng.randrange(3)
            items = 1 if model == 2 else rng.choice((1, 1, 1, 2))
            width = 4 + model % 2 * rng.randrange(2)
            x = np.array([rng.random()] * items * width, np.float32)
            within = rng.choice((NEVER, 2 * MS, 20 * MS, 500 * MS))
            futures.append((model, x, bench.ask(model, x.reshape(items, -1), within)))
        await asyncio.sleep(rng.choice((0, 0.001, 0.004)))
    tickets = await asyncio.wait_for(asyncio.gather(*(each for *_, each in futures)), 20)
    bench.close()
    answered = 0
    for (model, x, _), ticket in zip(futures, tickets, strict=True):
        assert ticket.ended >= ticket.arrival
        assert not ticket.failure
        if ticket.reason:
            assert ticket.outputs is None
            continue
        answered += 1
        assert ticket.outputs is not None
        assert ticket.arrival <= ticket.began <= ticket.ended
        assert np.array_equal(ticket.outputs[0].ravel(), x * np.float32(FACTORS[model]))
    assert len(bench.seen.over) == len(futures)
    assert answered > len(futures) / 20
    assert bench.plane.failures == 0
    assert bench.plane.waiting == bench.world.open == 0
    assert bool(bench.seen.loads) == bool(bench.world.stores)
    assert all(size == 1 for model, size in bench.seen.batches if model == 2)


@pytest.mark.parametrize("recipe", LIVE)
def test_it_drives_a_lane_for_each_model(file: Path, recipe: str) -> None:
    run(lambda: play(file, recipe, Machine(lanes=3), 0.4))


@pytest.mark.parametrize("recipe", [*(r for r in LIVE if make_router(r).can.loads), *CACHED])
def test_where_two_of_three_models_fit_it_loads_and_evicts(file: Path, recipe: str) -> None:
    run(lambda: play(file, recipe, Machine(memory=2 * SIZE), 0.4))


@pytest.mark.parametrize("recipe", sorted(NOT_HERE))
def test_what_no_machine_can_do_is_refused_by_name(file: Path, recipe: str) -> None:
    with pytest.raises(BadInput, match=recipe) as refusal:
        prepared(read_models(file), recipe, Machine())
    assert "simulate it" in str(refusal.value)


def test_models_that_do_not_fit_need_a_recipe_that_loads(file: Path) -> None:
    with pytest.raises(BadInput, match="use a recipe that loads models"):
        prepared(read_models(file), "nexus", Machine(memory=2 * SIZE))
    with pytest.raises(BadInput, match="model 'a': it has 1,000 bytes, and a lane 900"):
        prepared(read_models(file), "clockwork", Machine(memory=900))
