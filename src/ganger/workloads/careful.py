"""Rows of delimited text, of which cells may be quoted and rows wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.workloads.files import Complaints, TextFile
from ganger.workloads.plain import delimited, pieces

Cells: TypeAlias = Sequence[Sequence[str | float | int]]
"""The cells of some rows, by column."""
CHUNK = 1 << 14
"""Rows at a time: few enough to stay in the cache, many enough for numpy."""


def reader_of(text: str, delimiter: str) -> Any:
    """The rows of a text as csv reads them; only cells between commas may be quoted."""
    stream = io.StringIO(text, newline="")
    if delimiter == ",":
        return csv.reader(stream, strict=True)
    return csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def all_rows(file: TextFile) -> list[list[str]]:
    """The cells of every line between commas, quoted or not. Raises BadInput."""
    try:
        return list(csv.reader(file.text.splitlines()))
    except csv.Error as error:
        raise file.refuse(f"no valid row: {error}", "check the quotes") from None


def header_of(file: TextFile, reader: Any, comment: str) -> list[str]:
    """The first row that is not empty and no comment. Raises BadInput."""
    try:
        for row in reader:
            if row and not (comment and row[0].startswith(comment)):
                return list(row)
    except csv.Error as error:
        raise BadInput(
            str(error), where=f"{file.where}: line {reader.line_num}", mend="fix the quotes"
        ) from None
    raise BadInput("it has no header", where=file.where, mend="name the columns in line 1")


def plain_rows(
    file: TextFile, delimiter: str, skipped: int, width: int
) -> Iterator[tuple[NDArray[np.int64], Cells]]:
    """The columns below the first `skipped` lines of a file in which every line is a row."""
    begin = 0
    for _ in range(skipped):
        begin = file.text.find("\n", begin) + 1 or len(file.text)
    line = skipped + file.first
    for piece in pieces(file.text, begin):
        columns = delimited(piece, delimiter, width)
        if columns is None:
            yield from careful_rows(file, reader_of(piece, delimiter), line, width)
        else:
            yield np.arange(line, line + len(columns[0])), columns
        line += piece.count("\n")


def careful_rows(
    file: TextFile, reader: Any, start: int, width: int
) -> Iterator[tuple[NDArray[np.int64], Cells]]:
    """The columns row by row, where cells may be quoted and rows wrong; `reader` goes on in line
    `start`."""
    before = reader.line_num
    try:
        while numbered := [(reader.line_num, row) for row in islice(reader, CHUNK)]:
            lines = np.fromiter((line for line, _ in numbered), np.int64, len(numbered))
            lines, rows = _square(
                file.complaints, lines + (start - before - 1), [row for _, row in numbered], width
            )
            if rows:
                yield lines, list(zip(*rows, strict=True))
    except csv.Error as error:
        raise BadInput(
            f"no valid row: {error}",
            where=f"{file.where}: line {reader.line_num + start - before - 1}",
            mend="check the quotes, or whether the file was cut short",
        ) from None


def _square(
    complaints: Complaints, lines: NDArray[np.int64], rows: list[list[str]], width: int
) -> tuple[NDArray[np.int64], list[list[str]]]:
    """Without blank rows, and without those that are too short or too long."""
    if set(map(len, rows)) == {width}:
        return lines, rows
    keep = []
    for i, row in enumerate(rows):
        if len(row) == width:
            keep.append(i)
        elif row and row != [""]:
            complaints.add(
                f"{len(row)} fields where the header has {width}",
                place=f"line {lines[i]}",
                mend="complete or remove the row",
            )
    return lines[keep], [rows[i] for i in keep]
