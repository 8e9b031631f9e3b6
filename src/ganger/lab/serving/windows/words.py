"""Words about windows, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
