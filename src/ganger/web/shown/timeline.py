"""The life of a job as one bar: where it waited, and each attempt in the colour of its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ganger.client.answers import JobDetail
from ganger.web.shown.words import lasting

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
    parts: list[tuple[str, float, float, str]] = []
    at = begin
    for attempt in job.attempts:
        if attempt.started is None:
            continue
        until = attempt.ended if attempt.ended is not None else end
        if attempt.started > at:
            parts.append(("waits", at, attempt.started, "waits"))
        parts.append(
            (
                _kind(attempt.outcome, attempt.ended),
                attempt.started,
                until,
                f"attempt {attempt.attempt}",
            )
        )
        at = max(at, until)
    if at < end:
        parts.append(("waits", at, end, "waits" if job.finished is None else "waited"))
    scale = WIDTH / max(end - begin, 1e-9)
    return [
        Span(
            kind,
            round((start - begin) * scale, 1),
            round(max((stop - start) * scale, _LEAST), 1),
            f"{what}: {lasting(stop - start)}",
            stop - start,
        )
        for kind, start, stop, what in parts
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
