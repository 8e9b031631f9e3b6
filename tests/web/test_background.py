"""Background work: how it is heard, ended and bounded, in real processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.web.background import pool
from ganger.web.background.pool import Pool, Work


def children() -> set[str]:
    """The processes that this one has, those included that are over and were not waited for."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


async def until_over(work: Work) -> None:
    """Until nothing more comes of it."""
    while not work.over:
        await asyncio.sleep(0.02)


def test_cards_come_at_once_and_what_is_ended_leaves_no_process() -> None:
    before = children()

    async def story() -> Work:
        works = Pool()
        made = works.start("gallery", {})
        assert works.start("gallery", {}) is made
        while "cards" not in made.parts:
            assert not made.over, made.why
            await asyncio.sleep(0.05)
        assert children() - before
        await works.close()
        return made

    made = asyncio.run(story())
    assert made.state == "ended"
    assert len(made.parts["cards"]) == made.total
    assert children() <= before


def test_what_takes_too_long_or_is_not_known_fails_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(kind: str) -> Work:
        works = Pool()
        work = works.start(kind, {})
        await until_over(work)
        await works.close()
        return work

    assert asyncio.run(run("nothing")).why == "its process ended with 1"
    monkeypatch.setattr(pool, "SECONDS_MAX", 0.05)
    begin = time.monotonic()
    assert asyncio.run(run("gallery")).why == "it took too long"
    assert time.monotonic() - begin < 20.0


def test_few_work_at_once_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []

    async def child(self: Pool, work: Work) -> None:
        at_once.append(sum(one.state == "works" for one in self._works.values()))
        await asyncio.sleep(0)
        self._hear(work, pool.Heard(done=1, total=2))
        self._hear(work, pool.Heard(why="no", mend="do"))

    monkeypatch.setattr(Pool, "_child", child)

    async def story() -> list[Any]:
        works = Pool()
        every = [works.start("x", {"at": at}) for at in range(pool.WAITING_MAX)]
        with pytest.raises(BadInput, match="waiting already"):
            works.start("x", {"at": -1})
        for work in every:
            await until_over(work)
        return [(work.state, work.done, work.total, work.why) for work in every]

    assert asyncio.run(story()) == [("failed", 1, 2, "no: do")] * pool.WAITING_MAX
    assert max(at_once) <= pool.AT_ONCE
