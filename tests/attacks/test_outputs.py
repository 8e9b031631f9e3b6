"""What a job's output may be: a file without an end, or with more in it than is there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.engines.agent import reading
from ganger.engines.agent.reading import LOOKED_AT, read_piece, start_of


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


@given(text=st.text("a\n", max_size=40), lines=st.integers(0, 12), chunk=st.integers(1, 9))
def test_the_last_lines_are_those_that_people_count(text: str, lines: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK", chunk)
        begin = start_of(io.BytesIO(text.encode()), lines)
    assert text[begin:] == "".join(text.splitlines(keepends=True)[-lines:] if lines else text)
