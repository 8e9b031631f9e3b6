"""Where a job goes: a fit rule, how much spread it may accept, and for how long it insists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Cell, Fit, Ledger, pick_devices
from ganger.core.errors import BadInput
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, OnPreempt
from ganger.core.units import NEVER
from ganger.core.view import View

_RANDOM = Fit.RANDOM


class Placer(Protocol):
    """Finds a place for one job."""

    @property
    def patient(self) -> bool:
        """Whether any job's locality changes while it waits."""
        ...

    @property
    def sizes(self) -> bool:
        """Whether it may place a job where fewer GPUs are free than it asks for: at another size,
        or beside others."""
        ...

    @property
    def by_room(self) -> bool:
        """Whether a job that found no place finds none before GPUs are given back."""
        ...

    def locality(self, view: View, job: int) -> Locality:
        """The widest spread that `job` accepts now."""
        ...

    def relaxes(self, view: View, job: int) -> int:
        """When it will accept more; NEVER if it will not."""
        ...

    def kind(self, view: View, job: int) -> int:
        """A small number that differs between jobs of one shape that are placed by other rules."""
        ...

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = ..., gpus: int = ...
    ) -> Placement | None:
        """A placement that is free in `ledger`, or None; at `gpus` GPUs instead of those asked
        for, in `cells` instead of wherever the shape allows."""
        ...

    def why(self, view: View, job: int) -> tuple[tuple[str, float], ...]:
        """What only it knows of why `job` found no place: numbers by name, as in `Reason`."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """One fit rule and one limit on spread for all jobs."""

    fit: Fit = Fit.BEST
    within: Locality = Locality.ANY
    patient: ClassVar[bool] = False
    sizes: ClassVar[bool] = False
    by_room: ClassVar[bool] = True

    def locality(self, view: View, job: int) -> Locality:
        """The limit."""
        return self.within

    def relaxes(self, view: View, job: int) -> int:
        """It never changes."""
        return NEVER

    def kind(self, view: View, job: int) -> int:
        """The rule is the same for all but for their patience."""
        return int(self.locality(view, job)) if self.patient else 0

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By the rule; RANDOM draws from the view's own stream for this job."""
        shape, fit = view.draft.shape(job), self.fit
        draw: Callable[[int], int] | None = None
        if fit is _RANDOM:
            rng = view.rng(f"place {job}")
            draw = lambda n: int(rng.integers(n))  # noqa: E731
        within = self.locality(view, job) if self.patient else self.within
        return ledger.find(shape, shape.sizes(gpus) if gpus else (), fit, within, draw, cells)

    def why(self, view: View, job: int) -> tuple[tuple[str, float], ...]:
        """Nothing: there was no room."""
        return ()


@dataclass(frozen=True)
class ConsolidateIf(Place):
    """Only jobs for which `wants` is true insist on as few nodes as can hold them; the rest take
    any free GPUs, lowest node first (Tiresias: tensor skew decides)."""

    wants: Callable[[View, int], bool] = lambda view, job: True

    def kind(self, view: View, job: int) -> int:
        """Those that insist, and the others."""
        return int(self.wants(view, job))

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """Consolidated into the fewest nodes, or wherever there is room."""
        shape, wants = view.draft.shape(job), self.wants(view, job)
        sizes = shape.sizes(gpus) if gpus else ()
        strict = (
            wants
            and (gpus or shape.gpus)
            <= max((cell.widest for cell in ledger.cells_for(shape)), default=0)
            and (shape.is_plain or self._fits_one_node(view, job, sizes))
        )
        return ledger.find(
            shape,
            sizes,
            Fit.BEST if wants else Fit.FIRST,
            Locality.NODE if strict else self.within,
            cells=cells,
        )

    def _fits_one_node(self, view: View, job: int, sizes: tuple[int, ...]) -> bool:
        """Whether some node, if empty, has all that the job needs: CPUs and memory, too."""
        shape = view.draft.shape(job)
        return view.cached(EmptyCluster, view.nodes).fits(shape, sizes, Locality.NODE)


@dataclass(frozen=True, kw_only=True)
class AnyType(Place):
    """Blind to GPU types: job i begins its search at the type i mod n, or with `chance` at one
    drawn at random, whatever runs fastest; the other types follow in turn."""

    chance: bool

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By the fit rule, in the first type from its own on that has room."""
        cells = ledger.cells_for(view.draft.shape(job)) if cells is None else cells
        turn = job % max(len(cells), 1)
        if self.chance and cells:
            turn = int(view.rng(f"type {job}").integers(len(cells)))
        return super().find(view, ledger, job, cells[turn:] + cells[:turn], gpus)


@dataclass(frozen=True, kw_only=True)
class Revocable(Place):
    """Nodes labelled `label` may be taken away: only jobs that checkpoint go there, and, with
    `prefer`, go there first. `stated`: a cluster without such nodes is refused."""

    label: str
    prefer: bool
    stated: bool

    def kind(self, view: View, job: int) -> int:
        """Those that checkpoint, and the others."""
        return int(view.jobs.on_preempt[job] == OnPreempt.CHECKPOINT)

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By the fit rule, on the nodes that the job may use. Raises BadInput where the stated
        label is not there."""
        if self.stated:
            labels = sorted({label for each in view.nodes.label_sets for label in each})
            refuse_absent("nodes labelled", [self.label], labels, "spot(label)")
        marked, others = self._nodes(view)
        if not self.kind(view, job):
            with ledger.hidden(marked):
                return super().find(view, ledger, job, cells, gpus)
        if self.prefer:
            with ledger.hidden(others):
                found = super().find(view, ledger, job, cells, gpus)
            if found is not None:
                return found
        return super().find(view, ledger, job, cells, gpus)

    def _nodes(self, view: View) -> tuple[list[int], list[int]]:
        """Nodes with the label, and those without."""
        nodes = view.nodes
        having = [self.label in labels for labels in nodes.label_sets]
        marked = [node for node in range(nodes.n) if having[nodes.labels[node]]]
        return marked, [node for node in range(nodes.n) if not having[nodes.labels[node]]]


def refuse_absent(kind: str, stated: Iterable[str], there: Iterable[str], where: str) -> None:
    """Raise BadInput, with what is `there`, for the first of `stated` that is not."""
    known = [name for name in there if name]
    for name in stated:
        if name not in known:
            mend = f"it has {', '.join(known) or 'none'}"
            raise BadInput(f"this cluster has no {kind} {name}", where=where, mend=mend)


SENSITIVE = 1.1
"""A model is sensitive to placement if spanning nodes makes a step this many times as long."""


def sensitive_model(view: View, job: int) -> bool:
    """Whether the job's model is known to be slower over several nodes."""
    jobs = view.jobs
    profile, gpus = view.oracle.profile(jobs.models[jobs.model[job]]), view.at.gpus[job]
    near = profile.slowdown(Locality.NODE, gpus)
    return profile.slowdown(Locality.RACK, gpus) >= SENSITIVE * near


def skewed_model(view: View, job: int) -> bool:
    """Whether the job's model has one tensor so large that spreading it hurts."""
    return view.oracle.profile(view.jobs.models.values[view.at.model[job]]).skewed


@dataclass(frozen=True, kw_only=True)
class Sized(Place):
    """A job starts at the first of the sizes (GPUs in all) that `choices` names and that fits."""

    by_room: ClassVar[bool] = False

    choices: Callable[[View, int], list[int]]
    sizes: ClassVar[bool] = True

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By the fit rule, at the first size that fits."""
        for size in [gpus] if gpus else self.choices(view, job):
            found = super().find(view, ledger, job, cells, size)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, kw_only=True)
class Sampled(Place):
    """Biased sampling (FfDL): `samples` complete assignments are drawn, each worker on a node with
    room by chances that grow with how full the node is (to the power `bias`); the one on the
    fewest nodes wins, then the one that leaves the least free beside it. Jobs that ask for more
    than whole GPUs are placed by the fit rule."""

    by_room: ClassVar[bool] = False

    samples: int
    bias: float

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The best of the samples; by the fit rule where they all miss a place that exists."""
        shape = view.draft.shape(job)
        likely = super().find(view, ledger, job, cells, gpus)
        if likely is None or not shape.is_plain or shape.locality < self.within:
            return likely
        rng = view.rng(f"sample {job}")
        cell = ledger.cell_of[likely[0].node]
        nodes = [node for node in cell.nodes if ledger.up[node] and ledger.free_count[node]]
        free = np.array([ledger.free_count[node] for node in nodes], np.int64)
        full = np.array([ledger.full[node].bit_count() for node in nodes], np.float64)
        drawn = [_draw(free, full, gpus or shape.gpus, self.bias, rng) for _ in range(self.samples)]
        best = min(drawn, key=lambda taken: ((taken > 0).sum(), (free - taken)[taken > 0].sum()))
        counts = tuple((nodes[i], int(best[i])) for i in np.flatnonzero(best).tolist())
        return on_nodes(ledger, counts)


def _draw(
    free: NDArray[np.int64],
    full: NDArray[np.float64],
    need: int,
    bias: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """GPUs by node of one sampled assignment: nodes that hold the whole gang first, if any does."""
    taken = np.zeros_like(free)
    while need:
        left = free - taken
        able = left >= need if (left >= need).any() else left > 0
        chances = np.where(able, (1.0 + full - left) ** bias, 0.0)
        node = int(rng.choice(len(free), p=chances / chances.sum()))
        taken[node] = min(need, int(left[node]))
        need -= int(taken[node])
    return taken


PACK = Place()
SPREAD = Place(Fit.WORST)
RANDOM = Place(Fit.RANDOM)


def on_nodes(ledger: Ledger, counts: tuple[tuple[int, int], ...]) -> Placement | None:
    """So many whole GPUs on each named node (node, GPUs), one worker each; None where any of them
    is not free."""
    if any(not ledger.up[node] or ledger.free_count[node] < gpus for node, gpus in counts):
        return None
    return tuple(
        Slot(node, pick_devices(ledger.free_mask[node], gpus, ledger.island[node]), gpus)
        for node, gpus in counts
    )


def counted(placement: Placement) -> tuple[tuple[int, int], ...]:
    """(node, GPUs) of a placement, ascending: the inverse of `on_nodes`."""
    by_node: dict[int, int] = {}
    for slot in placement:
        by_node[slot.node] = by_node.get(slot.node, 0) + slot.devices.bit_count()
    return tuple(sorted(by_node.items()))
