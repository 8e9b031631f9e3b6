"""Mooncake's traces (FAST 2025), JSON Lines: `timestamp` (ms), `input_length`, `output_length` and
`hash_ids`, which number the blocks of 512 tokens of the prompt by what they hold.

All requests ask for one model, `llm` or as the option `model` says. Prompts of the same blocks have
the same `input`, a number that stands for the whole list; that prompts share a beginning is not
kept, and a note says so.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ganger.core.units import SECOND
from ganger.workloads.files import TextFile
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.reading import SIZE, Reading, log, word
from ganger.workloads.requests.stream import pieces
from ganger.workloads.rows import Kind, Moment, read_records

_MILLISECOND = SECOND / 1000


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


_ALL = msgspec.json.Decoder(_Line)


def read(
    path: Path, *, skip_bad: bool = False, ordered: bool = True, model: object = "llm"
) -> Requests:
    """The requests of such a trace. Raises BadInput, when they are read."""

    def rows(reading: Reading) -> Iterator[Chunk]:
        kinds: dict[str, Kind] = {
            "timestamp": Moment(_MILLISECOND),
            "input_length": SIZE,
            "output_length": SIZE,
        }
        shared = False
        for file in pieces(path, reading.complaints):
            numbers, lines = _lines(file)
            if not lines:
                continue
            shared = shared or any(line.hash_ids for line in lines)
            cells = {name: [getattr(line, name) for line in lines] for name in kinds}
            table = read_records(reading.complaints, kinds, [(np.array(numbers), cells)])
            columns = {
                "model": np.zeros(len(lines), np.int32),
                "prompt_tokens": table["input_length"],
                "output_tokens": table["output_length"],
                "input": np.array([_key(line.hash_ids) for line in lines], np.int64),
            }
            yield reading.chunk(table, "timestamp", columns, from_first=False)
        if shared:
            reading.requests.remarks.note(
                "prompts with the same blocks have the same input; shared beginnings are not kept"
            )

    return log(path, rows, skip_bad=skip_bad, ordered=ordered, models=[word(model)])


def _lines(file: TextFile) -> tuple[list[int], list[_Line]]:
    """The lines of a part of the file that are requests, and their numbers."""
    numbers: list[int] = []
    found: list[_Line] = []
    for at, text in enumerate(file.text.split("\n"), file.first):
        if not text.strip():
            continue
        try:
            found.append(_ALL.decode(text))
            numbers.append(at)
        except (msgspec.DecodeError, RecursionError) as error:
            file.complaints.add(
                f"no valid row: {error}", place=f"line {at}", mend="give one JSON object a line"
            )
    return numbers, found


def _key(blocks: list[int]) -> int:
    """A number for a list of blocks, below 2^52; -1 for none."""
    if not blocks:
        return -1
    data = ",".join(map(str, blocks)).encode()
    return zlib.crc32(data) << 20 | zlib.adler32(data[::-1]) & 0xFFFFF
