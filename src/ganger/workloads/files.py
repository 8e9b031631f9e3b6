"""Trace files as text: gzip is undone, and what is not text is refused in one sentence."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ganger.core.errors import BadInput

LARGEST_BYTES = 8 << 30
"""More text than this is taken for a mistake (or for a gzip bomb)."""
STDOUT = Path("-")
"""What is written there goes to standard output."""
_HEAD_BYTES = 1 << 18
_STEP = 1 << 24


@dataclass
class Complaints:
    """What is wrong with one file: raised at once, or gathered while the good rows go on.

    `passed_over`: how many rows were left out as no jobs for us, by reason; `malformed`: where the
    bad rows stand."""

    where: str
    skip_bad: bool = False
    messages: list[str] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)

    def add(self, what: str, *, place: str = "", mend: str = "") -> None:
        """One bad row: raises BadInput unless bad rows are to be skipped."""
        error = BadInput(what, where=f"{self.where}: {place}" if place else self.where, mend=mend)
        if not self.skip_bad:
            raise error
        self.messages.append(str(error))
        self.malformed.add(place.partition(":")[0])

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows became no job, by reason."""
        bad = {"they are malformed": len(self.malformed)} if self.malformed else {}
        return {**self.passed_over, **bad}


@dataclass
class TextFile:
    """The text of one trace file and how to complain about it."""

    path: Path
    text: str
    complaints: Complaints
    first: int = 1
    """The number of the first line of `text` in the file."""

    @property
    def where(self) -> str:
        """The file, for messages."""
        return self.complaints.where

    @property
    def first_line(self) -> str:
        """The first line, without its end."""
        end = self.text.find("\n")
        return (self.text if end < 0 else self.text[:end]).rstrip("\r")

    def header(self, delimiter: str = ",") -> list[str]:
        """The cells of the first line."""
        return [cell.strip().strip('"') for cell in self.first_line.split(delimiter)]

    def refuse(self, what: str, mend: str = "") -> BadInput:
        """An error about the file as a whole, to be raised."""
        return BadInput(what, where=self.where, mend=mend)


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of `path` once it is whole. It lies in a folder of our
    own until then: where others may write they could lay a link in the file's place."""
    with TemporaryDirectory(prefix=f".{path.name[:64]}.", dir=path.parent) as folder:
        part = Path(folder, path.name)
        yield part
        os.replace(part, path)


def suffix_of(path: Path) -> str:
    """The extension in lower case, looking through `.gz`: `.csv` of `a.CSV.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def open_text(path: str | Path, *, skip_bad: bool = False) -> TextFile:
    """The whole of a text file, plain or gzip. Raises BadInput where it cannot be read."""
    path = Path(path)
    complaints = Complaints(str(path), skip_bad)
    text = decode_text(b"".join(file_bytes(path, LARGEST_BYTES)), path)
    if not text.strip():
        raise BadInput("the file is empty", where=str(path), mend="give a file that is not empty")
    return TextFile(path, text, complaints)


def peek_text(path: Path) -> str:
    """The first lines of a text file, for telling formats apart."""
    head = b"".join(file_bytes(path, _HEAD_BYTES))
    if len(head) < _HEAD_BYTES:
        return decode_text(head, path)
    whole = head.rfind(b"\n") + 1 or len(head)
    return head[:whole].decode("utf-8", "replace").removeprefix("\ufeff")


def decode_text(data: bytes, path: Path, first: int = 1) -> str:
    """The text of whole lines, of which the first is line `first` of the file. Raises BadInput."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + first
        raise BadInput(
            "the text is not UTF-8",
            where=f"{path}: line {line}",
            mend="convert it, for example with iconv -t UTF-8",
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def file_bytes(path: Path, most: int, step: int = _STEP) -> Iterator[bytes]:
    """The file's content in pieces of at most `step` bytes, gzip undone, at most about `most` bytes
    in all. Raises BadInput."""
    if "\0" in str(path):
        raise BadInput(f"no path: {str(path)!r}"[:200], where="files", mend="leave out the null")
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise BadInput(
                "it is a pipe or a device, not a file",
                where=str(path),
                mend="write what it gives into a file first",
            )
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if zipped else raw as stream:
                total = 0
                while piece := stream.read(min(step, most - total)):
                    total += len(piece)
                    yield piece
        if total >= LARGEST_BYTES:
            raise BadInput(
                f"more than {LARGEST_BYTES >> 30} GiB of text",
                where=str(path),
                mend="split the file",
            )
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInput(
            "the gzip data is cut short or damaged", where=str(path), mend="copy the file again"
        ) from None
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}",
            where=str(path)[:200],
            mend="check the path",
        ) from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write the file, through gzip where the name ends in `.gz`; the same data, the same bytes. `-`
    is standard output."""
    if path == STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if path.name.lower().endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror or error}", where=str(path), mend="check the path"
        ) from None
