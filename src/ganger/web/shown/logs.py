"""What a job wrote, by ranges: a file of any size opens at its end, and is read piece by piece."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ganger.client.answers import OutputPiece
from ganger.client.shown import shown
from ganger.web.backend import Backend

LINES: Final = 400
"""So many of the last lines are shown first."""
PIECE: Final = 64 << 10
SEARCHED: Final = 16 << 20
"""So many bytes one search looks through; the next goes on where it ended."""
FOUND_MAX: Final = 200
LINE_MAX: Final = 2000
"""So many characters of a line are shown."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Where:
    """Which output: of which job, of which attempt (0: the last), output or error, on which node
    (empty: the first)."""

    job: str
    attempt: int
    stream: str
    node: str

    def query(self, **more: object) -> dict[str, Any]:
        """The query that names it."""
        named = {"attempt": self.attempt or "", "stream": self.stream, "node": self.node}
        return {**named, **more}


@dataclass(frozen=True)
class Text:
    """Lines from byte `at` up to `end`; `end` is -1 where there is no file yet. `more`: bytes may
    follow."""

    at: int
    end: int
    lines: list[str]
    more: bool = False


async def last(backend: Backend, where: Where) -> Text:
    """The last lines."""
    piece = await _piece(backend, where, lines=LINES)
    return Text(max(piece.at, 0), piece.end, lines_of(piece.data), more=True)


async def after(backend: Backend, where: Where, at: int) -> Text:
    """What follows byte `at`."""
    piece = await _piece(backend, where, at=at)
    data = piece.data[:PIECE]
    if len(piece.data) > PIECE:
        data = data[: data.rfind(b"\n") + 1] or data
    return Text(at, at + len(data), lines_of(data), more=len(data) == len(piece.data))


async def before(backend: Backend, where: Where, end: int) -> Text:
    """What stands before byte `end`, from the begin of a line on."""
    begin = max(end - PIECE, 0)
    data = (await _piece(backend, where, at=begin)).data[: end - begin]
    if begin and 0 <= (cut := data.find(b"\n")) < len(data) - 1:
        begin, data = begin + cut + 1, data[cut + 1 :]
    return Text(begin, end, lines_of(data))


@dataclass(frozen=True)
class Found:
    """Lines that hold a word, each with the byte at which it begins; bytes from `begin` to `end`
    were looked through, and `more` stand before or behind them."""

    lines: list[tuple[int, str]]
    begin: int
    end: int
    more: bool


async def search(backend: Backend, where: Where, word: str, begin: int) -> Found:
    """The lines from byte `begin` on that hold `word`, in any case of letters."""
    wanted, at, rest = word.casefold(), begin, b""
    matches: list[tuple[int, str]] = []
    while at - begin < SEARCHED and len(matches) < FOUND_MAX:
        piece = await _piece(backend, where, at=at)
        if not piece.data:
            break
        text, line_at = rest + piece.data, at - len(rest)
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) > PIECE:
            whole = len(text)  # a line without end
        for line in text[:whole].split(b"\n"):
            if wanted in line.decode(errors="replace").casefold():
                matches.append((line_at, plain(line)))
            line_at += len(line) + 1
        rest, at = text[whole:], at + len(piece.data)
    else:
        return Found(matches[:FOUND_MAX], begin, at, more=True)
    if rest and wanted in rest.decode(errors="replace").casefold():
        matches.append((at - len(rest), plain(rest)))
    return Found(matches[:FOUND_MAX], begin, at, more=False)


async def _piece(backend: Backend, where: Where, **more: object) -> OutputPiece:
    path = f"/v1/jobs/{quote(where.job, safe='')}/output"
    piece: OutputPiece = await backend.get(path, OutputPiece, **where.query(**more))
    return piece


def lines_of(data: bytes) -> list[str]:
    """The lines of a piece, as they may be shown."""
    lines = data.split(b"\n")
    return [plain(line) for line in (lines[:-1] if lines and not lines[-1] else lines)]


def plain(line: bytes) -> str:
    """A line without colours; of a progress bar that overwrites itself the last state."""
    text = _COLOURS.sub("", line.decode(errors="replace"))
    text = text.rstrip("\r").rpartition("\r")[2].replace("\t", "    ")
    cut = text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]} … {len(text) - LINE_MAX} more"
    return shown(cut)
