"""Sentences about windows: of what was read and run, and of what needs every request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.units import SECOND, format_duration


def read_and_run(windows: Mapping[str, Any]) -> str:
    """How many windows were read from the table, and how many run, by why."""
    length = format_duration(windows["seconds"] * SECOND)
    run = ", ".join(f"{count:,} {why}" for why, count in windows["run"].items())
    known = sum(entry["requests_known"] for entry in windows["table"])
    return (
        f"of {windows['windows']:,} windows of {length}, {windows['read']:,} were read from a table"
        f" of {len(windows['table']):,}, and {sum(windows['run'].values()):,} run ({run})"
        + (f"; {known:,} requests of the table were run before" if known else "")
    )


def check_windows(router: Router, option: str, others: Mapping[str, bool]) -> None:
    """Raise BadInput where a router has to know of every request, or one of `others` holds, which
    has to."""
    reasons = {
        f"{router.name} knows all requests that come": router.can.foresees and not router.can.ahead,
        f"{router.name} gives lanes back over time": router.can.retires,
        **others,
    }
    for why, holds in reasons.items():
        if holds:
            raise BadInput(
                f"{why}: that needs every request",
                where=option,
                mend="leave one of the two out",
            )
