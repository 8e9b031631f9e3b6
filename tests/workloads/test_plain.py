"""Plain cells are what the careful readers make of the same text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.lab.api import as_trace
from ganger.workloads import plain
from ganger.workloads.plain import Field, blank_separated, delimited, pieces

numbers = st.one_of(
    st.integers(-(10**17), 10**17).map(str),
    st.decimals(-(10**9), 10**9, places=4).map(str),
    st.text("0123456789.-+e_ ", min_size=1, max_size=20),
)


def field(cells: list[str]) -> Field:
    """The cells as a column of a piece."""
    found = delimited("".join(f"{cell},x\n" for cell in cells), ",", 2)
    assert found is not None
    assert list(found[0]) == cells
    return found[0]


@given(st.lists(numbers, min_size=1, max_size=8))
def test_plain_numbers_are_the_floats_that_python_reads(cells: list[str]) -> None:
    found = field(cells).numbers()
    if found is not None:
        assert found.tolist() == [float(cell) for cell in cells]
        assert not any(set(cell) & set("+e_ ") for cell in cells)


@pytest.mark.parametrize("cell", ["7", "-7", "0.1", "-12.0625", "123456789.123456", "007"])
def test_ordinary_numbers_are_plain(cell: str) -> None:
    found = field([cell, "1"]).numbers()
    assert found is not None
    assert found.tolist() == [float(cell), 1.0]


@pytest.mark.parametrize("cell", ["", "-", ".", "1.2.3", "--1", "1-", "nan", "1e5", "9" * 19])
def test_what_is_no_ordinary_number_is_left_to_the_careful_readers(cell: str) -> None:
    assert field([cell, "1"]).numbers() is None


letters = st.text("ab1 ,;\t\n\x0b\x7f\u2028\u00e9", max_size=60)


@given(letters, st.integers(1, 3))
def test_a_plain_piece_has_the_rows_of_the_csv_module(text: str, width: int) -> None:
    for piece in pieces(text):
        found = delimited(piece, ",", width)
        if found is not None:
            rows = [list(row) for row in zip(*found, strict=True)]
            assert rows == list(csv.reader(io.StringIO(piece, newline=""), strict=True))


@given(letters, st.integers(1, 3))
def test_a_plain_piece_has_the_words_of_its_lines(text: str, width: int) -> None:
    for piece in pieces(text):
        found = blank_separated(piece, width)
        if found is not None:
            rows = [list(row) for row in zip(*found, strict=True)]
            assert rows == [line.split() for line in piece.splitlines()]


def test_ordinary_rows_are_plain_and_a_blank_line_is_not() -> None:
    assert delimited("a,1\nb,2\n", ",", 2) is not None
    assert delimited("a\n\nb\n", ",", 1) is None
    assert blank_separated(" 1  2\n3\t4\n", 2) is not None


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few lines, so that a short file has several."""
    monkeypatch.setattr(plain, "PIECE", 64)


def rows(count: int) -> list[str]:
    """Lines of a trace in our own format."""
    return [f"job-{at},{at},{at % 7 + 0.5},{at % 3 + 1},t{at % 5}" for at in range(count)]


@pytest.mark.usefixtures("small_pieces")
def test_a_file_reads_the_same_in_pieces_and_with_a_quote_in_it(tmp_path: Path) -> None:
    """One quoted cell sends the whole file to the careful reader."""
    header, lines = "job,submitted,duration,gpus,tenant", rows(50)
    lines[20] = lines[20].replace("t0", "caf\u00e9")
    easy, hard = tmp_path / "trace.csv", tmp_path / "quoted" / "trace.csv"
    hard.parent.mkdir()
    easy.write_text("\n".join([header, *lines]))
    lines[0] = lines[0].replace("t0", '"t0"')
    hard.write_text("\n".join([header, *lines]))
    first, second = as_trace(easy), as_trace(hard)
    assert (first.duration == second.duration).all()
    assert (first.declared.submitted[:50] == second.declared.submitted[:50]).all()
    assert list(first.declared.tenants) == list(second.declared.tenants)
    assert (first.declared.tenant[:50] == second.declared.tenant[:50]).all()
    assert first.declared.tenants[int(first.declared.tenant[20])] == "caf\u00e9"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("wrong", "said"), [("x,1,oops,1,t", "oops"), ("x,1", "2 fields"), ("x,-1,2,1,t", "-1")]
)
def test_a_wrong_row_in_a_later_piece_is_named_by_its_line(
    tmp_path: Path, wrong: str, said: str
) -> None:
    lines = ["job,submitted,duration,gpus,tenant", *rows(40)]
    lines[30] = wrong
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as caught:
        as_trace(path)
    assert "line 31" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.usefixtures("small_pieces")
def test_a_log_in_the_standard_workload_format_reads_the_same_in_pieces(tmp_path: Path) -> None:
    """A comment between the jobs sends its piece, and no other, to the careful reader."""
    lines = [f"{at} {at} 0 {at + 9} 2 -1 -1 2 99 -1 1 {at % 3} 1 1 1 -1 -1 -1" for at in range(30)]
    path = tmp_path / "log.swf"
    path.write_text("; Version: 2.2\n" + "\n".join(lines) + "\n")
    whole = as_trace(path)
    lines.insert(15, "; a comment")
    path.write_text("; Version: 2.2\n" + "\n".join(lines) + "\n")
    commented = as_trace(path)
    assert (whole.duration == np.arange(30) * 10**6 + 9 * 10**6).all()
    assert (whole.duration == commented.duration).all()
    lines[20] = "1 2 3"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput, match="line 21: 3 fields"):
        as_trace(path)
