"""Text files that may be longer than memory, as tables of some thousand rows each."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.workloads.files import Complaints, TextFile, decode_text, file_bytes, peek_text
from ganger.workloads.requests.columns import Remarks
from ganger.workloads.rows import Kind, Table, gather_delimited

LARGEST_BYTES: Final = 1 << 40
"""More text than this is taken for a mistake (or for a gzip bomb)."""
_STEP = 1 << 20
_LONGEST_LINE = 1 << 26


@dataclass
class Counted(Complaints):
    """Complaints about a stream: those of one part of it, until they are counted in `remarks`."""

    remarks: Remarks = field(default_factory=Remarks)

    def leave_out(self, table: Table, rows: NDArray[np.bool_], why: str) -> None:
        """Drop rows that are not requests."""
        rows = rows & table.good
        if rows.any():
            self.remarks.leave_out(int(rows.sum()), why)
            table.good[rows] = False

    def flush(self) -> None:
        """Count what was wrong since the last time, and keep only the first messages."""
        for message in self.messages:
            self.remarks.say(message)
        if self.malformed:
            self.remarks.leave_out(len(self.malformed), "they are malformed")
        self.messages.clear()
        self.malformed.clear()


def pieces(path: Path, complaints: Counted) -> Iterator[TextFile]:
    """Parts of whole lines of a text file, plain or gzip. Raises BadInput where it is empty or
    cannot be read."""
    first, rest, blank = 1, b"", True
    for data in file_bytes(path, LARGEST_BYTES, _STEP):
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) > _LONGEST_LINE:
                raise BadInput(
                    f"a line is longer than {_LONGEST_LINE >> 20} MiB",
                    where=f"{path}: line {first}",
                    mend="break lines",
                )
            continue
        whole, rest = rest + data[:cut], data[cut:]
        text = decode_text(whole, path, first)
        if text.strip():
            yield TextFile(path, text, complaints, first)
            blank = False
        first += whole.count(b"\n")
    if rest:
        text = decode_text(rest, path, first)
        if text.strip():
            yield TextFile(path, text, complaints, first)
            blank = False
    if blank:
        raise BadInput("the file is empty", where=str(path), mend="give a file that is not empty")


def delimited(
    path: Path,
    complaints: Counted,
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind] | None = None,
    *,
    header: Sequence[str] | None = None,
    see: Callable[[list[str], list[str]], None] | None = None,
) -> Iterator[Table]:
    """The wanted columns of a comma-separated file, part by part; the first line that is not a
    comment names them unless `header` does. `see` gets the comments and the header. Raises
    BadInput."""
    comments: list[str] = []
    some = False
    for file in pieces(path, complaints):
        if header is None:
            header, taken = _header(file, comments)
            if header is None:
                continue
            if see is not None:
                see(comments, list(header))
            file = TextFile(
                path, file.text[taken:], complaints, file.first + file.text.count("\n", 0, taken)
            )
        found = gather_delimited(file, required, optional, header=header, comment="")
        if found.lines:
            some = True
            yield found.table()
        complaints.flush()
    if header is None:
        raise BadInput("it has no header", where=str(path), mend="name the columns in line 1")
    if not some and not complaints.remarks.left_out:
        raise BadInput(
            "it holds no rows", where=str(path), mend="give a file with at least one row"
        )


def header_of(path: Path) -> list[str]:
    """The columns that the first line of a file names, before it is read."""
    lines = peek_text(path).splitlines()
    return [cell.strip() for cell in lines[0].split(",")] if lines else []


def _header(file: TextFile, comments: list[str]) -> tuple[list[str] | None, int]:
    """The cells of the first line that is no comment, and where the text goes on behind it."""
    at = 0
    while at < len(file.text):
        end = file.text.find("\n", at) + 1 or len(file.text)
        line = file.text[at:end].strip()
        at = end
        if line.startswith("#"):
            comments.append(line)
        elif line:
            try:
                return [cell.strip() for cell in next(csv.reader([line], strict=True))], at
            except csv.Error as error:
                raise file.refuse(f"no valid header: {error}", "fix the quotes") from None
    return None, at
