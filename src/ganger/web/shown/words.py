"""Times, lengths of time and reasons, as the pages write them. What a browser should write in its
own zone stands in elements that a script finds; without scripts there is UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from ganger.client.answers import JobAnswer
from ganger.core.units import SECOND, format_duration

_REASONS: Final = {
    "Resources": "too few of the GPUs that it may use are free",
    "Priority": "the recipe puts other jobs before it",
    "Dependency": "it waits for other jobs",
    "BeginTime": "it may not start before the time that was asked for",
    "JobHeldUser": "it is held until somebody releases it",
    "AssocGrpGRES": "its tenant has as many GPUs as its limit allows",
    "AssocGrpBilling": "its tenant has spent its budget",
    "JobArrayTaskLimit": "its array has as many tasks in the queue as it may",
    "Paused": "the recipe for trials has set it aside with its work",
    "DependencyNeverSatisfied": "a job that it waited for ended otherwise",
}
LATEST: Final = 253_402_300_799.0
"""The last second that a calendar of four digits has."""


def when(unix_seconds: float | None) -> Markup:
    """A moment; a dash where there is none."""
    if unix_seconds is None or not 0 <= unix_seconds <= LATEST:
        return Markup("–")
    at = datetime.fromtimestamp(unix_seconds, UTC)
    # digits and names of months alone: nothing to escape, and a list has hundreds of them
    return Markup(
        f'<time datetime="{at.isoformat(timespec="seconds")}">{at:%d %b %H:%M} UTC</time>'
    )


def lasting(seconds: float | None) -> str:
    """A length of time, `3h 20m`; a dash where there is none."""
    return "–" if seconds is None else format_duration(round(seconds * SECOND))


def since(unix_seconds: float | None) -> Markup:
    """A length of time that goes on, as the browser's clock has it; without scripts, since when.
    The text does not change with time, so that a list is sent again only after a change."""
    if unix_seconds is None:
        return Markup("–")
    at = datetime.fromtimestamp(unix_seconds, UTC)
    return Markup(f'<span data-since="{unix_seconds:.0f}">since {at:%d %b %H:%M} UTC</span>')


def reason(job: JobAnswer) -> str:
    """Why a job waits or how it ended, as a sentence without its end."""
    if job.state == "PENDING" or job.reason in _REASONS:
        return _REASONS.get(job.reason, job.reason)
    if job.state in ("RUNNING", "CONFIGURING", "COMPLETING"):
        return f"on {', '.join(job.nodes[:4])}{_more(len(job.nodes) - 4)}" if job.nodes else ""
    return job.reason


def coded(text: str) -> Markup:
    """A sentence in which what stands between backticks is code."""
    parts = text.replace("\n", " ").split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def prose(text: str) -> Markup:
    """A docstring as paragraphs, what stands between backticks as code."""
    return Markup().join(Markup("<p>{}</p>").format(coded(each)) for each in text.split("\n\n"))


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def counted(count: float, thing: str) -> str:
    """`1 GPU`, `3 GPUs`."""
    return f"{count:,g} {thing}{'' if count == 1 else 's'}"
