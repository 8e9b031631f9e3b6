"""Packing: a job goes beside others on GPUs that are in use, where a prediction says that this does
least harm (Co-scheML, Yeung, Horus, Lucid)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from ganger.core.books.bits import members
from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement
from ganger.core.profiles import Profile
from ganger.core.spec import Kind
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reconcile import STAYS, with_share
from ganger.mechanisms.placement.place import Place

_TRAIN: Final = int(Kind.TRAIN)
_EPSILON: Final = 1e-9
Where: TypeAlias = tuple[tuple[int, int], ...]
"""The devices of a crowd: (node, mask)."""


class Score(Protocol):
    """How much harm jobs do to each other on the same GPUs, as predicted."""

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether anything can be predicted for a model with this profile."""

    def memory(self, profile: Profile) -> int:
        """MiB of each GPU that a job with this profile is predicted to need; 0: unknown."""

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """The harm where jobs of these models share `gpus` GPUs, less is better; NaN: unknown."""


class Kindred(NamedTuple):
    """What crowds of one kind have in common: GPUs in all, their cell, on how many nodes, MiB that
    they state of each GPU, and their models by number, ascending."""

    gpus: int
    cell: int
    nodes: int
    memory: int
    models: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Packed(Place):
    """A job of n GPUs goes beside jobs that share n GPUs already, at most `together` in all, where
    the `score` is least and not above `bound`; else on empty GPUs; else it waits.

    `spread`: added to the score for every node beyond the first. `empty_first`: beside others only
    if no empty GPUs are to be had. `beyond`: if these are not either, where the bound is exceeded
    least.

    Jobs of one role of whole GPUs whose harm can be predicted take part, if they may be preempted.
    They hold 1/`together` of each GPU even while they are alone there. CPUs, host memory and GPU
    memory that they state must fit; a job that states no GPU memory counts as needing what the
    score predicts. `harm`: what the score predicts, for people.
    """

    by_room: ClassVar[bool] = False
    sizes: ClassVar[bool] = True

    score: Score
    bound: float
    together: int = 2
    spread: float = 0.0
    empty_first: bool = False
    beyond: bool = False
    harm: str = "harm"

    def kind(self, view: View, job: int) -> int:
        """Jobs of another model go elsewhere."""
        return view.at.model[job] + 1 if self.takes_part(view, job) else 0

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """Beside others or on empty GPUs, with its share of them."""
        packs = self.takes_part(view, job)
        if packs and not self.empty_first:
            placement = self._beside(view, ledger, job, self.bound)
            if placement is not None:
                return placement
        placement = None
        if not ledger.lacks(view.draft.shape(job)):
            placement = self.alone(view, ledger, job, cells, gpus)
        if placement is not None or not packs:
            return (
                with_share(placement, WHOLE // self.together) if placement and packs else placement
            )
        if self.empty_first:
            placement = self._beside(view, ledger, job, self.bound)
        if placement is None and self.beyond:
            placement = self._beside(view, ledger, job, math.inf)
        return placement

    def alone(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None, gpus: int
    ) -> Placement | None:
        """On empty GPUs, by the fit rule."""
        return super().find(view, ledger, job, cells, gpus)

    def takes_part(self, view: View, job: int) -> bool:
        """Whether the job may share its GPUs."""
        at = view.at
        if self.together < 2 or at.kind[job] != _TRAIN or not at.gpus[job]:
            return False
        if at.on_preempt[job] in STAYS:  # no recipe could undo it
            return False
        known = view.cached(_TakePart).known
        key = view.at.shape[job], view.at.model[job]
        if key not in known:
            roles = view.draft.shape(job).roles
            profile = view.oracle.profile(view.jobs.models[key[1]])
            whole = len(roles) == 1 and roles[0].needs.share == WHOLE
            known[key] = whole and self.score.knows(view, profile, view.at.gpus[job])
        return known[key]

    def memory(self, view: View, job: int) -> int:
        """MiB that the job needs of each of its GPUs: as stated, else as predicted, else 0."""
        stated = view.draft.shape(job).roles[0].needs.gpu_memory
        return stated or self.score.memory(
            view.oracle.profile(view.jobs.models[view.at.model[job]])
        )

    def weight(self, view: View, job: int) -> float:
        """Of crowds alike those whose first job has the least of this come first."""
        return 0.0

    def company(self, view: View, job: int, others: Sequence[int]) -> bool:
        """Whether a rule beside the score lets the job go beside these; if it refuses a crowd it
        refuses those alike that come after it."""
        return True

    def why(self, view: View, job: int) -> tuple[tuple[str, float], ...]:
        """The bound, and the least that was predicted beside anybody, if there was anybody."""
        if not self.takes_part(view, job):
            return ()
        ranked = self._ranked(view, view.ledger, job, self.crowds(view), math.inf)
        least = min((score for score, *_ in ranked), default=math.nan)
        numbers = ((f"{self.harm}_at_most_part", float(self.bound)),)
        beside = f"{self.harm}_beside_others_at_least_part", round(least, 6)
        return numbers if math.isnan(least) else (*numbers, beside)

    def why_beside(
        self, view: View, memory: Any, job: int, others: Sequence[int]
    ) -> tuple[tuple[str, float], ...]:
        """The bound, and what was predicted of the job beside those that are on its GPUs."""
        names = sorted(view.jobs.models[view.at.model[each]] for each in (job, *others))
        kind = view.ledger.cell_of[view.ledger.holds[job][1][0].node].gpu_type
        score = self.score.of(view, names, kind, view.at.gpus[job])
        numbers = (f"{self.harm}_together_part", round(score, 6))
        return ((f"{self.harm}_at_most_part", float(self.bound)), numbers)

    # ------------------------------------------------------------------ crowds

    def crowds(self, view: View) -> Crowds:
        """Which jobs share which GPUs now."""
        crowds = view.cached(Crowds)
        crowds.look(view, self)
        return crowds

    def _beside(self, view: View, ledger: Ledger, job: int, bound: float) -> Placement | None:
        """Where it does least harm, and that is not above `bound`."""
        crowds, shape = self.crowds(view), view.draft.shape(job)
        for _, _, kind in sorted(self._ranked(view, ledger, job, crowds, bound)):
            for _, where in crowds.kinds[kind]:
                others = crowds.jobs[where]
                if not self.company(view, job, others):
                    break
                placement = with_share(ledger.holds[others[0]][1], WHOLE // self.together)
                if _only(ledger, placement, len(others)) and ledger.is_free(shape, placement):
                    return placement
        return None

    def _ranked(
        self, view: View, ledger: Ledger, job: int, crowds: Crowds, bound: float
    ) -> Iterator[tuple[float, tuple[float, Where], Kindred]]:
        """The kinds of crowds that the job may join: score, first crowd, kind."""
        at, known = view.at, crowds.scores
        model, needs = at.model[job], self.memory(view, job)
        allowed = {cell.index for cell in ledger.cells_for(view.draft.shape(job))}
        for kind in crowds.by_gpus.get(at.gpus[job], ()):
            if kind.cell not in allowed or len(kind.models) >= self.together:
                continue
            cell = ledger.cells[kind.cell]
            if kind.memory + needs > ledger.device_memory(cell.nodes[0]):
                continue
            key = model, kind.models, cell.gpu_type, kind.gpus
            if key not in known:
                names = [view.jobs.models[code] for code in sorted((model, *kind.models))]
                known[key] = self.score.of(view, names, cell.gpu_type, kind.gpus)
            score = known[key] + self.spread * (kind.nodes - 1)
            if known[key] <= bound + _EPSILON:
                yield score, crowds.kinds[kind][0], kind


class _TakePart:
    """By shape and model: whether such jobs may share."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], bool] = {}


class Crowds:
    """Which jobs share which GPUs, or are alone where another may come.

    `jobs`: by devices, ascending by number. `kinds`: by kind its crowds, (weight of the first job,
    devices) ascending. `by_gpus`: the kinds by number of GPUs. `scores`: by a job's model, the
    models there, GPU type and GPUs.
    """

    __slots__ = (
        "_changed", "_delta", "_kind", "_models", "_where", "by_gpus", "jobs", "kinds", "scores",
    )  # fmt: skip

    def __init__(self) -> None:
        self._models = 0
        self._delta = HoldingsDelta()
        self._where: dict[int, Where] = {}
        self._changed: dict[Where, None] = {}
        self._kind: dict[Where, tuple[Kindred, tuple[float, Where]]] = {}
        self.jobs: dict[Where, list[int]] = {}
        self.kinds: dict[Kindred, list[tuple[float, Where]]] = {}
        self.by_gpus: dict[int, dict[Kindred, None]] = {}
        self.scores: dict[tuple[int, tuple[int, ...], str, int], float] = {}

    def look(self, view: View, packed: Packed) -> None:
        """Follow what has changed since the last look. Another model may change every score."""
        if len(view.jobs.models.values) != self._models:
            self._models = len(view.jobs.models.values)
            self.scores.clear()
        ledger, share = view.ledger, WHOLE // packed.together
        gone, come = self._delta.changes(ledger)
        touched: dict[Where, None] = {}
        for job in gone:
            where = self._where.pop(job, None)
            if where is not None:
                self.jobs[where].remove(job)
                touched[where] = None
        for job, placement in come:
            if any(slot.share != share for slot in placement) or not packed.takes_part(view, job):
                continue
            where = self._where[job] = tuple([(slot.node, slot.devices) for slot in placement])
            insort(self.jobs.setdefault(where, []), job)
            touched[where] = None
        for where in touched:
            self._file(view, packed, where)
        self._changed |= touched

    def take_changed(self) -> list[Where]:
        """The devices to which a job came or from which one went since this was last asked,
        ascending."""
        changed, self._changed = sorted(self._changed), {}
        return changed

    @property
    def any_shared(self) -> bool:
        """Whether any job has another beside it."""
        return len(self._where) > len(self.jobs)

    def _file(self, view: View, packed: Packed, where: Where) -> None:
        """Bring the kind of the crowd on these devices up to date."""
        old = self._kind.pop(where, None)
        if old is not None:
            kind, entry = old
            line = self.kinds[kind]
            del line[bisect_left(line, entry)]
            if not line:
                del self.kinds[kind], self.by_gpus[kind.gpus][kind]
        jobs = self.jobs[where]
        if not jobs:
            del self.jobs[where]
            return
        at = view.at
        kind = Kindred(
            at.gpus[jobs[0]],
            view.ledger.cell_of[where[0][0]].index,
            len({node for node, _ in where}),
            sum(packed.memory(view, job) for job in jobs),
            tuple(sorted(at.model[job] for job in jobs)),
        )
        entry = packed.weight(view, jobs[0]), where
        self._kind[where] = kind, entry
        insort(self.kinds.setdefault(kind, []), entry)
        self.by_gpus.setdefault(kind.gpus, {})[kind] = None


def _only(ledger: Ledger, placement: Placement, many: int) -> bool:
    """Whether `many` jobs with such a share of these devices are all that compute there."""
    used = many * placement[0].share
    return all(
        ledger.shared[slot.node].get(device, (WHOLE, 0))[0] == used
        for slot in placement
        for device in members(slot.devices)
    )
