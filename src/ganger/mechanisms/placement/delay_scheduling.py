"""Delay scheduling (Zaharia et al., EuroSys 2010): a job insists on GPUs close together while it
is patient. Patience is counted in time (`Relaxing`, a placer) or in opportunities that the job let
pass (`SkipPolicy`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import msgspec

from ganger.core.books.empty import EmptyCluster
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.spec import Locality
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.placement.place import Place

_TIERS = (Locality.NODE, Locality.RACK, Locality.ANY)
_NODE, _RACK, _ANY = _TIERS
_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE


class Patience(NamedTuple):
    """A job insists on one node until it has waited for `node`, and on one rack until it has waited
    for `rack` more: microseconds, or opportunities that it let pass."""

    node: int
    rack: int

    def tier(self, waited: int) -> Locality:
        """How close together its GPUs must be after such a wait."""
        if waited < self.node:
            return _NODE
        return _RACK if waited < self.node + self.rack else _ANY

    def ends(self, waited: int) -> int:
        """After which wait it will accept more; NEVER if it accepts anything."""
        if waited < self.node:
            return self.node
        return self.node + self.rack if waited < self.node + self.rack else NEVER


@dataclass(frozen=True, kw_only=True)
class Relaxing(Place):
    """Insists on one node for `node_wait` microseconds of pending time, then on one rack for
    `rack_wait` more, then on nothing (Philly waits that way)."""

    node_wait: int
    rack_wait: int
    patient: ClassVar[bool] = True

    @cached_property
    def patience(self) -> Patience:
        """In microseconds."""
        return Patience(self.node_wait, self.rack_wait)

    def locality(self, view: View, job: int) -> Locality:
        """By how long it has been waiting."""
        tier = self.patience.tier(view.now - int(view.jobs.pending_since[job]))
        return self.within if tier is _ANY else tier

    def relaxes(self, view: View, job: int) -> int:
        """The end of the present stage of patience."""
        since = int(view.jobs.pending_since[job])
        end = self.patience.ends(view.now - since)
        return end if end == NEVER else since + end


class Skipped(msgspec.Struct, frozen=True):
    """By waiting job: how many opportunities it has let pass."""

    times: dict[int, int]


@dataclass(frozen=True)
class SkipPolicy:
    """First come, first served; a job that could start, but not as close together as it wants, is
    skipped, and counts it (Zaharia et al., EuroSys 2010).

    `patience` is in skipped opportunities; every decision is one. A tier that no empty node or rack
    could offer is not waited for.
    """

    name: str
    patience: Patience

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
                reasons.append(self._reason(view, job, skipped))
            if shape in full or _search(view, job, Locality.ANY) is None:
                full.add(shape)
            else:
                skipped += 1
            if skipped:
                after[job] = skipped
        return view.draft.plan(reasons, until=_CHANGES), Skipped(after)

    def _reason(self, view: View, job: int, skipped: int) -> Reason:
        """Why the job's shape waits, and after how many opportunities it will accept more."""
        evidence = {"asked_gpus": float(view.at.gpus[job]), "skipped_chances": float(skipped)}
        ends = self.patience.ends(skipped)
        if ends < NEVER:
            evidence["patience_chances"] = float(ends)
        return Reason(
            "Resources", "SkipPolicy", view.at.shape[job], evidence=evidence, until=_CHANGES
        )

    def _find(self, view: View, job: int, skipped: int) -> Placement | None:
        """A place in the tier that the job insists on by now, or in the first possible one."""
        insists = self.patience.tier(skipped)
        for tier in _TIERS[_TIERS.index(insists) :]:
            if tier is _ANY or _possible(view, job, tier):
                return _search(view, job, tier)
        return None


def _search(view: View, job: int, tier: Locality) -> Placement | None:
    ledger = view.ledger
    if ledger.lacks(view.draft.shape(job)):
        return None
    return ledger.find(view.draft.shape(job), locality=tier)


def _possible(view: View, job: int, tier: Locality) -> bool:
    """Whether the job would fit within `tier` on the empty cluster."""
    empty = view.cached(EmptyCluster, view.nodes)
    return empty.fits(view.draft.shape(job), within=tier)
