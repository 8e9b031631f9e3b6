"""Delay scheduling by opportunities: who is skipped often enough takes a worse place."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ganger.core.books.empty import EmptyCluster
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.spec import Locality
from ganger.core.view import View

_TIERS = (Locality.NODE, Locality.RACK, Locality.ANY)
_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE


class Skipped(msgspec.Struct, frozen=True):
    """By waiting job: how many opportunities it has let pass."""

    times: dict[int, int]


@dataclass(frozen=True)
class SkipPolicy:
    """First come, first served; a job that could start, but not as close together as it wants, is
    skipped, and counts it (Zaharia et al., EuroSys 2010).

    It wants one node until it was skipped `skips[0]` times, one rack until `skips[1]` times more,
    then takes any GPUs. A tier that no empty node or rack could offer is not waited for. Every
    decision is one opportunity.
    """

    name: str
    skips: tuple[int, int]

    def decide(self, view: View, memory: Skipped | None) -> tuple[Plan, Skipped]:
        """One opportunity for everybody who waits."""
        before = memory.times if memory is not None else {}
        after: dict[int, int] = {}
        full: set[int] = set()
        reasons: list[Reason] = []
        for job in view.pending.tolist():
            shape = view.at.shape[job]
            skipped = before.get(job, 0)
            found = None if shape in full else self._find(view, job, skipped)
            if found is not None:
                view.draft.start(job, found)
                continue
            if shape not in full:
                reasons.append(Reason("Resources", "delay", shape))
            if shape in full or _search(view, job, Locality.ANY) is None:
                full.add(shape)
            else:
                skipped += 1
            if skipped:
                after[job] = skipped
        return view.draft.plan(reasons, until=_CHANGES), Skipped(after)

    def _find(self, view: View, job: int, skipped: int) -> Placement | None:
        """A place in the tier that the job insists on by now, or in the first possible one."""
        insists = (skipped >= self.skips[0]) + (skipped >= sum(self.skips))
        for tier in _TIERS[insists:]:
            if tier is Locality.ANY or _possible(view, job, tier):
                return _search(view, job, tier)
        return None


def _search(view: View, job: int, tier: Locality) -> Placement | None:
    ledger = view.draft.ledger_of(job)
    if ledger is None or ledger.lacks(view.draft.shape(job)):
        return None
    return ledger.find(view.draft.shape(job), locality=tier)


def _possible(view: View, job: int, tier: Locality) -> bool:
    """Whether the job would fit within `tier` on the empty cluster."""
    empty = view.cached(EmptyCluster, view.nodes)
    return empty.fits(view.draft.shape(job), within=tier)
