"""All formats of requests: what they are, how to tell them apart, and the one way to load them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganger.core.errors import BadInput
from ganger.workloads.files import peek_text, suffix_of
from ganger.workloads.formats import Head
from ganger.workloads.requests import own
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.readers import (
    access_log,
    alibaba_genai,
    azure_functions,
    azure_llm,
    burstgpt,
    counted,
    mooncake,
    servegen,
)


@dataclass(frozen=True)
class Format:
    """A format of requests. `read` takes a path, `skip_bad`, `ordered` and its own options."""

    name: str
    description: str
    read: Callable[..., Requests]
    recognises: Callable[[Head], bool]

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that only this format takes."""
        names = inspect.signature(self.read).parameters
        return tuple(name for name in names if name not in ("path", "skip_bad", "ordered"))


def _is_own(head: Head) -> bool:
    plain = [line for line in head.lines if line.strip() and not line.startswith("#")]
    cells = {cell.strip().strip('"') for cell in plain[0].split(",")} if plain else set()
    return "ganger.requests/" in head.first or cells.issuperset(own.REQUIRED)


def _is_mooncake(head: Head) -> bool:
    return head.first.lstrip().startswith("{") and '"input_length"' in head.first


def _is_counted(head: Head) -> bool:
    return head.has("requests") and any(head.has(unit) for unit in counted.WIDTHS)


FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        Format("ganger", "Ganger's own CSV (docs/requests.md)", own.read, _is_own),
        Format("azure-llm", "Azure LLM inference 2023 and 2024: TIMESTAMP and tokens",
               azure_llm.read, lambda head: head.has(*azure_llm.HEADER)),
        Format("mooncake", "Mooncake (Kimi) JSON Lines: timestamp, lengths, hash_ids",
               mooncake.read, _is_mooncake),
        Format("alibaba-genai", "Alibaba GenTD26: requests for images", alibaba_genai.read,
               lambda head: head.has(*alibaba_genai.HEADER)),
        Format("burstgpt", "BurstGPT: Timestamp, Model and tokens", burstgpt.read,
               lambda head: head.has(*burstgpt.HEADER)),
        Format("burstgpt-minutes", "BurstGPT by the minute: t, tps, norm", burstgpt.read_minutes,
               lambda head: head.has(*burstgpt.MINUTES)),
        Format("azure-functions", "Azure Functions 2019: invocations per minute",
               azure_functions.read, lambda head: head.has(*azure_functions.HEADER)
               and bool(azure_functions.minutes(head.first.split(",")))),
        Format("counts", "Counts per window, as of Twitter: second,requests", counted.read,
               _is_counted),
        Format("servegen", "ServeGen: rate, cv and pattern of clients by window", servegen.read,
               lambda head: head.has(*servegen.HEADER)),
        Format("access-log", "Access logs of web servers, common or combined", access_log.read,
               lambda head: access_log.LINE.match(head.first) is not None),
    )
}  # fmt: skip
"""Every format by name."""


def detect(path: Path) -> Format:
    """The format of a file, by its extension and its first lines. Raises BadInput."""
    if path.is_dir():
        raise BadInput("it is a folder", where=str(path), mend="name one file in it")
    text = peek_text(path)
    if not text.strip():
        raise BadInput("the file is empty", where=str(path), mend="give a file of requests")
    head = Head(suffix_of(path), tuple(text.splitlines()))
    for format_ in FORMATS.values():
        if format_.recognises(head):
            return format_
    if "\0" in head.first:
        raise BadInput("it is not text", where=str(path), mend="give text, plain or gzip")
    raise BadInput(
        f"no known format begins with {head.first[:80]!r}",
        where=str(path),
        mend="name the column of arrivals `arrival`, or see `ganger requests formats`",
    )


def load_requests(
    path: str | Path,
    format: str = "auto",  # noqa: A002 - the word that users type
    *,
    skip_bad: bool = False,
    sort: bool = False,
    **options: Any,
) -> Requests:
    """Requests in a file of any format; gzip is looked through.

    Nothing but the first lines is read until chunks are asked for: only then is a wrong row found.
    Raises BadInput naming file, line and field; with `skip_bad` bad rows are left out, and counted
    in `Requests.remarks`. `sort`: rows may come in any order, and all are held in memory. `options`
    are those of the format (`FORMATS[name].options`).
    """
    path = Path(path)
    if format != "auto" and format not in FORMATS:
        raise BadInput(
            f"no format {format!r}", where="format", mend="use auto, " + ", ".join(FORMATS)
        )
    format_ = detect(path) if format == "auto" else FORMATS[format]
    for name in options:
        if name not in format_.options:
            known = ", ".join(format_.options) or "none"
            raise BadInput(
                f"format {format_.name} has no option {name!r}",
                where=str(path),
                mend=f"its options: {known}",
            )
    found = format_.read(path, skip_bad=skip_bad, ordered=not sort, **options)
    return found.sorted() if sort else found
