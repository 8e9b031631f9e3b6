"""What a live plane does besides what every recipe asks of it: faults, requests that are given up,
models that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.serving.router import PLAIN, Abilities
from ganger.core.serving.verbs import Batch, Do, Ended, News, Part, Wait
from ganger.core.serving.world import Lane, World
from ganger.lab.serving.live import Machine
from ganger.serving.plane import BROKEN
from serving.live.nets import busy, looks_up, models_file, times
from serving.live.rig import Bench, run


@dataclass
class Whole:
    """A router of few words: all that waits for the first model goes as one batch, once there are
    `least` of them. It fails where `fails` is set."""

    least: int = 1
    fails: str = ""
    waits: list[int] = field(default_factory=list)
    name: str = "whole"
    can: Abilities = PLAIN

    def begin(self, world: World) -> Any:
        self.waits = []
        return None

    def arrive(self, world: World, rows: range) -> None:
        if self.fails == "arrive":
            raise KeyError("on purpose")
        self.waits += rows

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        if self.fails == "wait":
            return (Wait(world.now),)
        if len(self.waits) < self.least or not idle:
            return ()
        part = Part(0, self.waits, world.count_items(self.waits))
        self.waits = []
        lane = idle[0].number if self.fails != "lane" else 7
        return (Batch(lane, (part,), "all that waits"),)

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        if self.fails != "forget":
            world.answer(done.order.parts[0].tasks, 0)
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        return ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    times(tmp_path / "double.onnx", 2, ("n", "wide"))
    return tmp_path


def row(*values: float) -> Any:
    return np.array([values], np.float32)


@pytest.mark.parametrize("fault", ["arrive", "wait", "lane"])
def test_a_recipe_that_fails_drops_what_is_under_way_and_begins_anew(
    folder: Path, fault: str
) -> None:
    async def story() -> None:
        router = Whole()
        bench = Bench(models_file(folder, ["double"]), router, Machine(lanes=2))
        first = await bench.ask(0, row(1))
        router.fails = fault
        lost = [bench.ask(0, row(2)), bench.ask(0, row(3))]
        dropped = await asyncio.wait_for(asyncio.gather(*lost), 5)
        assert {ticket.reason for ticket in dropped} == {BROKEN}
        assert bench.plane.failures == 1
        soon = await bench.ask(0, row(4))
        assert soon.reason == BROKEN  # it rests for a second
        router.fails = ""
        await asyncio.sleep(1.3)
        again = await bench.ask(0, row(5))
        bench.close()
        assert first.outputs is not None
        assert again.outputs is not None
        assert again.outputs[0].tolist() == [[10]]
        assert bench.plane.waiting == bench.world.open == 0

    run(story)


def test_what_was_given_up_is_not_computed(folder: Path) -> None:
    async def story() -> None:
        bench = Bench(models_file(folder, ["double"]), Whole(least=4), Machine())
        futures = [bench.ask(0, row(at)) for at in range(3)]
        await asyncio.sleep(0.01)
        ticket = next(each for each in bench.plane.overdue(bench.plane.now()) if each.row == 1)
        bench.plane.give_up(ticket)
        bench.plane.give_up(ticket)  # twice is once
        assert ticket.feeds is None
        assert bench.plane.waiting == 2
        futures.append(bench.ask(0, row(3)))
        others = await asyncio.gather(futures[0], *futures[2:])
        bench.close()
        assert [each.outputs[0].item() for each in others if each.outputs] == [0, 4, 6]
        assert {each.batch for each in others} == {3}
        assert not futures[1].done()
        assert ticket.outputs is None
        assert bench.plane.waiting == bench.world.open == 0

    run(story)


def test_a_batch_that_nobody_wants_takes_no_lane(folder: Path) -> None:
    """The second waits behind the first and is given up: its batch is over as soon as it begins."""

    async def story() -> None:
        busy(folder / "slow.onnx", 2000)
        bench = Bench(models_file(folder, ["slow"]), Whole(), Machine())
        x = np.ones((4, 256), np.float32)
        first = bench.ask(0, x)
        await asyncio.sleep(0.001)
        bench.ask(0, x)
        await asyncio.sleep(0.001)
        _, second = bench.plane.overdue(bench.plane.now() + 1)
        bench.plane.give_up(second)
        ticket = await first
        while bench.world.open:
            await asyncio.sleep(0.001)
        assert len(bench.seen.batches) == 2
        assert bench.seen.until[0] - ticket.ended < (ticket.ended - ticket.began) / 2
        bench.close()

    run(story)


def test_requests_of_other_shapes_in_a_batch_run_apart(folder: Path) -> None:
    async def story() -> None:
        bench = Bench(models_file(folder, ["double"]), Whole(least=5), Machine())
        shapes = [(1, 2), (1, 3), (2, 2), (1, 3), (1, 1)]
        given = [np.arange(a * b, dtype=np.float32).reshape(a, b) for a, b in shapes]
        tickets = await asyncio.gather(*(bench.ask(0, x) for x in given))
        bench.close()
        for x, ticket in zip(given, tickets, strict=True):
            assert ticket.outputs is not None
            assert ticket.outputs[0].tolist() == (2 * x).tolist()
            assert ticket.why == "all that waits"

    run(story)


def test_one_request_on_which_a_model_fails_spoils_no_batch(folder: Path) -> None:
    async def story() -> None:
        looks_up(folder / "table.onnx")
        bench = Bench(models_file(folder, ["table"]), Whole(least=3), Machine())
        rows = [bench.ask(0, np.array([at], np.int64)) for at in (0, 9, 2)]
        first, wrong, last = await asyncio.gather(*rows)
        bench.close()
        assert [len(bench.seen.batches), bench.seen.batches[0]] == [1, (0, 3)]
        assert first.outputs is not None
        assert last.outputs is not None
        assert (first.outputs[0].tolist(), last.outputs[0].tolist()) == ([[1, 1]], [[3, 3]])
        assert wrong.outputs is None
        assert "idx=9 must be within" in wrong.failure

    run(story)


def test_no_more_requests_are_under_way_than_may_be(folder: Path) -> None:
    async def story() -> None:
        bench = Bench(models_file(folder, ["double"]), Whole(least=99), Machine(), limit=2)
        tickets = []
        for _ in range(2):
            bench.ask(0, row(1))
        await asyncio.sleep(0.01)
        with pytest.raises(AssertionError):
            bench.ask(0, row(1))
        tickets = bench.plane.overdue(bench.plane.now() + 1)
        for ticket in tickets:
            bench.plane.give_up(ticket)
        bench.ask(0, row(1))
        bench.close()

    run(story)


def test_rows_that_are_over_are_forgotten(folder: Path) -> None:
    async def story() -> None:
        bench = Bench(models_file(folder, ["double"], largest=64), "serve.triton", Machine())
        for _ in range(20):
            await asyncio.gather(*(bench.ask(0, row(1)) for _ in range(500)))
        bench.close()
        assert bench.world.requests.end == 10_000
        assert len(bench.world.requests.arrival) < 4096 + 500

    run(story)


def test_a_model_whose_file_is_gone_is_tried_again_later(folder: Path) -> None:
    """The other model is served meanwhile; the load that failed takes no room."""

    async def story() -> None:
        times(folder / "other.onnx", 3, ("n", "wide"))
        file = models_file(folder, ["double", "other"], size=1000)
        bench = Bench(file, "cache.lru", Machine(memory=1000))
        (folder / "double.onnx").rename(folder / "away")
        missing, other = bench.ask(0, row(1)), bench.ask(1, row(1))
        await asyncio.sleep(0.05)
        (folder / "away").rename(folder / "double.onnx")
        tickets = await asyncio.wait_for(asyncio.gather(missing, other), 10)
        bench.close()
        assert [t.outputs[0].item() for t in tickets if t.outputs] == [2, 3]
        assert bench.seen.loads >= 3

    run(story)
