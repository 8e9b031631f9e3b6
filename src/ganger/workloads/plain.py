"""Cells of plain text: ASCII without control characters or quotes, as nearly all traces are.

A piece of a file is taken apart by numpy, and a column of plain numbers becomes an array without a
Python object per cell. Whatever is not plain (quotes, other alphabets, rows of another width) is
left to the careful readers: the functions here then say None, and never guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
PIECE = 1 << 20
"""Characters at a time: few enough to stay in the cache, many enough for numpy."""
WIDEST = 4096
"""A plain cell has no more characters."""
_DIGITS = 18
"""Numbers of so many characters fit into 64 bits."""
_EXACT = 1 << 53
"""Whole numbers up to this, divided by a power of ten up to 10^22, are the floats that Python
reads."""
_NEWLINE, _TAB, _SPACE, _DELETE = 10, 9, 32, 127


class Field(Sequence[str]):
    """One column of a piece: where each cell begins and ends."""

    def __init__(self, text: str, data: Bytes, begin: Places, end: Places) -> None:
        self._text, self._data, self._begin, self._end = text, data, begin, end

    def __len__(self) -> int:
        return len(self._begin)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return self.texts[at]
        return self._text[self._begin[at] : self._end[at]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __contains__(self, cell: object) -> bool:
        return self.has_blank if cell == "" else cell in self.texts

    @cached_property
    def has_blank(self) -> bool:
        """Whether some cell is empty."""
        return bool((self._begin == self._end).any())

    @cached_property
    def texts(self) -> list[str]:
        """The cells."""
        text = self._text
        places = zip(self._begin.tolist(), self._end.tolist(), strict=True)
        return [text[begin:end] for begin, end in places]

    def numbers(self) -> NDArray[np.float64] | None:
        """The cells as Python's `float` reads them; None unless all are digits, with one point and
        one minus sign at most."""
        width = self._end - self._begin
        longest = int(width.max())
        if longest > _DIGITS or not width.min():
            return None
        at = self._begin[:, None] + np.arange(longest)
        there = np.arange(longest) < width[:, None]
        cells = np.where(there, self._data[np.minimum(at, len(self._data) - 1)], _SPACE)
        digits = cells - np.uint8(ord("0"))
        is_digit = digits < 10
        is_point = cells == ord(".")
        minus = cells[:, 0] == ord("-")
        points = is_point.sum(axis=1)
        count = is_digit.sum(axis=1)
        if (count + points + minus != width).any() or (points > 1).any() or not count.all():
            return None
        value = np.zeros(len(self), np.int64)
        for column in range(longest):
            here = is_digit[:, column]
            value = np.where(here, value * 10 + digits[:, column], value)
        if points.any():
            if (value > _EXACT).any():
                return None
            after = np.where(points > 0, width - 1 - is_point.argmax(axis=1), 0)
            return np.where(minus, -1.0, 1.0) * (value / 10.0**after)
        return np.where(minus, -value, value).astype(np.float64)


def pieces(text: str, begin: int = 0) -> Iterator[str]:
    """The text from `begin` on in pieces of whole lines; every piece ends with a newline."""
    while begin < len(text):
        end = len(text)
        if begin + PIECE < end:
            last = text.rfind("\n", begin, begin + PIECE)
            end = (text.find("\n", begin) if last < 0 else last) + 1 or end
        piece = text[begin:end]
        yield piece if piece[-1] == "\n" else piece + "\n"
        begin = end


def delimited(piece: str, delimiter: str, width: int) -> list[Field] | None:
    """The columns of a piece of rows of `width` cells, or None where it is not plain."""
    data = _plain(piece, delimiter)
    if data is None:
        return None
    newline = data == _NEWLINE
    separators = np.flatnonzero(newline | (data == ord(delimiter)))
    if len(separators) % width:
        return None
    ends = separators.reshape(-1, width)
    if not newline[ends[:, -1]].all() or len(ends) != np.count_nonzero(newline):
        return None
    begins = np.concatenate(([0], separators[:-1] + 1)).reshape(-1, width)
    if width == 1 and (begins == ends).any():
        return None  # a blank line, which is no row
    return _fields(piece, data, begins, ends)


def blank_separated(piece: str, width: int) -> list[Field] | None:
    """The columns of a piece of lines of `width` words, or None where it is not plain."""
    data = _plain(piece, "\t")
    if data is None:
        return None
    newline = data == _NEWLINE
    blank = newline | (data == _SPACE) | (data == _TAB)
    edges = np.flatnonzero(np.diff(blank, prepend=True))
    begins, ends = edges[::2], edges[1::2]  # the piece ends with a newline
    lines = np.flatnonzero(newline)
    words = np.searchsorted(begins, lines)
    if len(begins) % width or (words != width * np.arange(1, len(lines) + 1)).any():
        return None
    return _fields(piece, data, begins.reshape(-1, width), ends.reshape(-1, width))


def _plain(piece: str, also: str) -> Bytes | None:
    """The characters, if all are printable ASCII, newlines or `also`."""
    if not piece.isascii():
        return None
    data = np.frombuffer(piece.encode(), np.uint8)
    odd = ((data < _SPACE) & (data != _NEWLINE) & (data != ord(also))) | (data == _DELETE)
    return None if odd.any() else data


def _fields(piece: str, data: Bytes, begins: Any, ends: Any) -> list[Field] | None:
    if (ends - begins).max() > WIDEST:
        return None
    return [
        Field(piece, data, begins[:, column].copy(), ends[:, column].copy())
        for column in range(begins.shape[1])
    ]
