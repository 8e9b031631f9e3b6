"""What a rental turns out to take and to cost: prices change, machines of the spot market go and
come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ganger.core.units import NEVER
from ganger.mechanisms.provisioning.instances import Instance

Parts: TypeAlias = Sequence[tuple[Instance, int]]
"""Kinds of machines, and how many of each are rented together."""


class Upkeep(NamedTuple):
    """What going on costs a job, microseconds: `start` before it computes, `save` to write a
    checkpoint, `restore` to begin again; `every`: from one checkpoint to the next (0: it writes
    one after notice only)."""

    start: int = 0
    save: int = 0
    restore: int = 0
    every: int = 0


FREE_OF_CHARGE = Upkeep()


class Outcome(NamedTuple):
    """When the job was done (NEVER: it never is), what its machines cost (USD), and from when to
    when they were had."""

    done: int
    dollars: float
    spans: tuple[tuple[int, int], ...]

    @property
    def revoked(self) -> int:
        """How often machines were taken away."""
        return len(self.spans) - (self.done < NEVER)


def follow(parts: Parts, since: int, work: int, upkeep: Upkeep = FREE_OF_CHARGE) -> Outcome:
    """`work` microseconds on all these machines, which are wanted from `since` on.

    The job computes while all of them are there. Where one goes, all are given back until there are
    enough again. A job that has notice of at least `save` saves at once, leaves, and loses nothing;
    another loses what it did since its last checkpoint.
    """
    at, rest, spans = since, work, list[tuple[int, int]]()
    notice = min((each.offer.notice for each, _ in parts if each.offer.market == "spot"), default=0)
    while (at := _had(parts, at)) < NEVER:
        setup = upkeep.start + (upkeep.restore if spans else 0)
        done = at + setup + rest
        gone = _gone(parts, at, done)
        if gone >= done:
            spans.append((at, done))
            return Outcome(done, _paid(parts, spans), tuple(spans))
        if notice and notice >= upkeep.save:
            saves = max(gone - notice, at)
            kept, leaves = max(saves - at - setup, 0), min(saves + upkeep.save, gone)
        else:
            did = max(gone - at - setup, 0)
            kept, leaves = did // upkeep.every * upkeep.every if upkeep.every else 0, gone
        if leaves > at:
            spans.append((at, leaves))
        rest, at = rest - kept, gone
    return Outcome(NEVER, _paid(parts, spans), tuple(spans))


def _enough(parts: Parts, at: int) -> bool:
    return all(each.to_be_had(at) >= machines for each, machines in parts)


def _next(parts: Parts, at: int) -> int:
    return min(each.changes_after(at) for each, _ in parts)


def _had(parts: Parts, at: int) -> int:
    """When there are enough machines, `at` or later; NEVER if there never are."""
    while at < NEVER and not _enough(parts, at):
        at = _next(parts, at)
    return at


def _gone(parts: Parts, since: int, until: int) -> int:
    """When there are too few machines for the first time, at most `until`."""
    at = since
    while at < until and _enough(parts, at):
        at = _next(parts, at)
    return min(at, until)


def _paid(parts: Parts, spans: Sequence[tuple[int, int]]) -> float:
    return sum(
        machines * sum(each.bill(since, until) for since, until in spans)
        for each, machines in parts
    )
