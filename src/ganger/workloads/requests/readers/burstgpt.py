"""BurstGPT (Azure OpenAI on a campus, 2023): the requests, or tokens per second by the minute.

The log has `Timestamp` (seconds), `Model`, `Request tokens`, `Response tokens`, `Total tokens` and
`Log Type`, which becomes the tenant; releases with `Session ID` and `Elapsed time` are read, too.
Requests without an answer (0 response tokens) are kept: they came.

A table of minutes (`t, tps, norm`) states tokens per second only. A minute then has a Poisson
number of requests, of mean 60 tps / `tokens_per_request`; lengths are not known. The
default, 733.9, is the mean of the whole log (1,429,737 requests, 1,049,263,050 tokens).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.units import MINUTE, SECOND
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.counts import Spread, Windows, positive
from ganger.workloads.requests.processes import stream
from ganger.workloads.requests.reading import SIZE, Reading, log, names
from ganger.workloads.requests.stream import delimited
from ganger.workloads.rows import Count, Kind, Moment, Number

HEADER = ("Timestamp", "Model", "Request tokens", "Response tokens")
MINUTES = ("t", "tps", "norm")


def read(path: Path, *, skip_bad: bool = False, ordered: bool = True) -> Requests:
    """The requests of such a log. Raises BadInput, when they are read."""

    def rows(reading: Reading) -> Iterator[Chunk]:
        requests, unanswered = reading.requests, 0
        required: dict[str, Kind] = {
            "Timestamp": Moment(SECOND),
            "Model": names(requests.models),
            "Request tokens": SIZE,
            "Response tokens": SIZE,
        }
        optional: dict[str, Kind] = {"Log Type": names(requests.tenants, required=False)}
        for table in delimited(path, reading.complaints, required, optional):
            columns = {
                "model": table["Model"],
                "prompt_tokens": table["Request tokens"],
                "output_tokens": table["Response tokens"],
            }
            if "Log Type" in table:
                columns["tenant"] = table["Log Type"]
            chunk = reading.chunk(table, "Timestamp", columns, from_first=False)
            unanswered += int((chunk.columns["output_tokens"] == 0).sum())
            yield chunk
        if unanswered:
            requests.remarks.note(f"{unanswered:,} requests have no response tokens; they are kept")

    return log(path, rows, skip_bad=skip_bad, ordered=ordered)


def read_minutes(
    path: Path,
    *,
    skip_bad: bool = False,
    ordered: bool = True,
    seed: object = 0,
    arrivals: object = "uniform",
    scale: object = 1.0,
    tokens_per_request: object = 733.9,
) -> Requests:
    """Requests at the rate that a table of minutes implies. Raises BadInput."""
    spread = Spread.of(seed, arrivals, scale)
    each = positive(tokens_per_request, "tokens_per_request", 1.0)

    def counted(reading: Reading) -> Iterator[Windows]:
        draws = stream(spread.seed, "counts")
        kinds: dict[str, Kind] = {"t": Count(0, 100_000_000), "tps": Number(0, 1e9)}
        for table in delimited(path, reading.complaints, kinds):
            reading.in_order(table, "t")
            good = table.good
            mean = table["tps"][good] * 60 / each
            yield Windows(
                table["t"][good], draws.poisson(mean), np.zeros(int(good.sum()), np.int32)
            )
        reading.requests.remarks.note(
            "the file states tokens per second; numbers of requests are drawn, lengths not known"
        )

    return log(
        path,
        lambda reading: spread.arrivals(counted(reading), MINUTE),
        skip_bad=skip_bad,
        ordered=True,
        models=["llm"],
    )
