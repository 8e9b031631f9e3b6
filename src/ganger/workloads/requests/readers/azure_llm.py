"""Azure's LLM inference traces (2023: Splitwise; 2024: DynamoLLM): `TIMESTAMP, ContextTokens,
GeneratedTokens`. Dates are UTC and count from the first request. All requests ask for one model,
which the files do not name: it is called `llm`, or as the option `model` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.units import SECOND
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.reading import SIZE, Reading, log, word
from ganger.workloads.requests.stream import delimited
from ganger.workloads.rows import Kind, Moment

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read(
    path: Path, *, skip_bad: bool = False, ordered: bool = True, model: object = "llm"
) -> Requests:
    """The requests of such a trace. Raises BadInput, when they are read."""

    def rows(reading: Reading) -> Iterator[Chunk]:
        kinds: dict[str, Kind] = {
            "TIMESTAMP": Moment(SECOND),
            "ContextTokens": SIZE,
            "GeneratedTokens": SIZE,
        }
        for table in delimited(path, reading.complaints, kinds):
            columns = {
                "model": np.zeros(len(table), np.int32),
                "prompt_tokens": table["ContextTokens"],
                "output_tokens": table["GeneratedTokens"],
            }
            yield reading.chunk(table, "TIMESTAMP", columns, from_first=True)

    return log(path, rows, skip_bad=skip_bad, ordered=ordered, models=[word(model)])
