"""What a job's output may be: a file without an end, or with more in it than is there."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.engines.agent import reading
from ganger.engines.agent.reading import LOOKED_AT, read_piece, start_of
from ganger.service.http.app_context import AppContext
from ganger.service.reports.tail import Source
from service.desk import Desk


def test_the_last_lines_of_a_file_without_lines_are_not_looked_for_without_end(
    tmp_path: Path,
) -> None:
    """A sparse file takes no room, and may be as long as the file system counts."""
    path, size = tmp_path / "out", 256 << 20
    path.touch()
    os.truncate(path, size)
    with path.open("rb") as file:
        assert size - 2 * LOOKED_AT < start_of(file, 1_000_000) < size
    piece = read_piece(path, -1, 1)
    assert piece.at <= size
    assert set(piece.data) == {0}


def test_who_follows_many_outputs_sees_each_the_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look takes a thread, or an agent's time: all of a user's are at most 200 a second."""
    desk = Desk(tmp_path)
    (row,) = desk.submit(gpus=1)
    world = AppContext(desk.daemon, tmp_path)
    rests: list[float] = []

    async def rested(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.Event().wait()

    async def attack() -> None:
        for user, number in (("ann", 1), ("eve", 100)):
            sources = [await Source.opened(world, row, "output", 0) for _ in range(number)]
            readers = [asyncio.ensure_future(all_of(one, user)) for one in sources]
            while len(rests) < number:
                await real(0.01)
            assert world.following[user] == number
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            assert number / rests.pop() <= 200.0
            assert user not in world.following
            rests.clear()

    async def all_of(source: Source, user: str) -> None:
        async for _ in source.read(0, True, user):
            pass

    real = asyncio.sleep
    monkeypatch.setattr("ganger.service.reports.tail.asyncio.sleep", rested)
    asyncio.run(attack())
    desk.close()


@given(text=st.text("a\n", max_size=40), lines=st.integers(0, 12), chunk=st.integers(1, 9))
def test_the_last_lines_are_those_that_people_count(text: str, lines: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK", chunk)
        begin = start_of(io.BytesIO(text.encode()), lines)
    assert text[begin:] == "".join(text.splitlines(keepends=True)[-lines:] if lines else text)
