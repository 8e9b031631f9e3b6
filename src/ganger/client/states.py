"""Phases and outcomes in Slurm's words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase

_WORDS: Final = {
    Phase.DECLARED: ("PENDING", "PD"), Phase.BLOCKED: ("PENDING", "PD"),
    Phase.PENDING: ("PENDING", "PD"), Phase.STARTING: ("CONFIGURING", "CF"),
    Phase.RUNNING: ("RUNNING", "R"), Phase.SUSPENDED: ("SUSPENDED", "S"),
    Phase.STOPPING: ("COMPLETING", "CG"), Phase.FINISHED: ("COMPLETED", "CD"),
    Phase.FAILED: ("FAILED", "F"), Phase.CANCELLED: ("CANCELLED", "CA"),
}  # fmt: skip
_FAILURES: Final = {
    "TimeLimit": ("TIMEOUT", "TO"),
    "OutOfMemory": ("OUT_OF_MEMORY", "OOM"),
    "NodeFail": ("NODE_FAIL", "NF"),
}
OVER: Final = (
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "SET_ASIDE"
)  # fmt: skip
"""The words of jobs that are over; the last one only of trials."""
_CODE = re.compile(r"(?:code|status) (-?\d+)|signal (\d+)", re.IGNORECASE)

ALL: Final = {word: phase for phase, words in _WORDS.items() for word in words}


def state_of(phase: Phase, outcome: str) -> tuple[str, str]:
    """The state's word and its code, like RUNNING and R."""
    if phase == Phase.FAILED:
        for why, words in _FAILURES.items():
            if outcome.startswith(why):
                return words
    return _WORDS[phase]


def phases_of(states: Iterable[str]) -> set[Phase]:
    """The phases that words or codes stand for; `active`, `over` and `all` too. Raises BadInput."""
    found: set[Phase] = set()
    for state in states:
        word = state.strip().upper()
        if word == "ALL":
            found.update(Phase)
        elif word == "ACTIVE":
            found.update(phase for phase in Phase if phase < Phase.FINISHED)
        elif word == "OVER":
            found.update(phase for phase in Phase if phase >= Phase.FINISHED)
        elif word in ("TIMEOUT", "TO", "OUT_OF_MEMORY", "OOM", "NODE_FAIL", "NF"):
            found.add(Phase.FAILED)
        elif word in ALL:
            found.update(phase for phase, words in _WORDS.items() if word in words)
        else:
            raise BadInput(
                f"{state!r} is not a valid state",
                where="state",
                mend="write like running, PD, active, over or all",
            )
    return found


def exit_code(phase: Phase, outcome: str) -> int | None:
    """What `ganger wait` exits with for a job that is over: its own code, 128 + N for signal N,
    124 after its time limit, 130 if it was cancelled; None while it is not over."""
    if phase < Phase.FINISHED:
        return None
    if phase == Phase.FINISHED:
        return 0
    if phase == Phase.CANCELLED:
        return 130
    if outcome.startswith("TimeLimit"):
        return 124
    found = _CODE.search(outcome)
    if not found:
        return 137 if outcome.startswith("OutOfMemory") else 1
    return int(found[1]) if found[1] else 128 + int(found[2])
