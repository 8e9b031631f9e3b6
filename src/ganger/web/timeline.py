"""The life of a job as one bar: where it waited, and each attempt in the colour of its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ganger.client.answers import JobDetail
from ganger.web.words import lasting

WIDTH: Final = 1000.0
_LEAST: Final = 2.0
"""So wide is the shortest span, of the thousand units of the bar."""
_OVER: Final = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")


@dataclass(frozen=True)
class Span:
    """A part of the bar: the class of its colour, from `x` on `width` units of a thousand, what it
    was, and how long in seconds."""

    kind: str
    x: float
    width: float
    what: str
    seconds: float


def spans(job: JobDetail, now: float) -> list[Span]:
    """The parts from submission to the end, or to now (Unix seconds)."""
    begin = job.submitted
    end = job.finished if job.finished is not None else max(now, begin)
    found: list[tuple[str, float, float, str]] = []
    at = begin
    for one in job.attempts:
        if one.started is None:
            continue
        until = one.ended if one.ended is not None else end
        if one.started > at:
            found.append(("waits", at, one.started, "waits"))
        found.append((_kind(one.outcome, one.ended), one.started, until, f"attempt {one.attempt}"))
        at = max(at, until)
    if at < end:
        found.append(("waits", at, end, "waits" if job.finished is None else "waited"))
    scale = WIDTH / max(end - begin, 1e-9)
    return [
        Span(
            kind,
            round((left - begin) * scale, 1),
            round(max((right - left) * scale, _LEAST), 1),
            f"{what}: {lasting(right - left)}",
            right - left,
        )
        for kind, left, right, what in found
    ]


def _kind(outcome: str, ended: float | None) -> str:
    """The class of an attempt's colour."""
    if ended is None:
        return "runs"
    if not outcome or outcome == "Finished":
        return "ended"
    return "preempted" if outcome.startswith("Preempted") else "failed"


def is_over(job: JobDetail) -> bool:
    """Whether nothing more happens to the job."""
    return job.state in _OVER
