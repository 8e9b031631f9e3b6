"""GPOEO (arXiv 2201.01684): another policy, and the clocks of the GPUs that its jobs run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from ganger.core.clocks import CORE_MHZ, MEMORY_MHZ
from ganger.core.events import PROGRESSED, STARTED
from ganger.core.plan import Plan, Resize, Stop, Tune
from ganger.core.protocols import Policy, revived
from ganger.core.spec import GpuType
from ganger.core.state.jobs import Phase
from ganger.core.view import View
from ganger.estimate.clocks import (
    UNKNOWN,
    Counters,
    Effect,
    Setting,
    cheapest,
    trained,
)
from ganger.mechanisms.provisioning.power import watts_of

_RUNNING = int(Phase.RUNNING)
SEARCH_MAX = 4
"""So often the clocks of an attempt are set again after its speed was measured."""


class Search(msgspec.Struct, frozen=True):
    """Where the search for an attempt's clocks stands: its speed at full clocks (`full`) and the
    one that was reported last; the place of its `setting`, how often that was set, whether the
    speed there was `measured`, and how many times as large slow-downs are as predicted (`scale`).
    """

    attempt: int
    full: float
    speed: float
    setting: int
    count: int = 0
    measured: bool = False
    scale: float = 1.0


class ClockMemory(msgspec.Struct):
    """What the inner policy keeps, and by job that runs the search for its clocks."""

    inner: Any = None
    searches: dict[int, Search] = {}


@lru_cache(maxsize=256)
def predicted(
    counters: Counters, clocks: tuple[float, ...], memory: tuple[float, ...]
) -> tuple[tuple[Setting, ...], tuple[Effect, ...]]:
    """All settings of a type of GPU, the full clocks last, and what each is predicted to do."""
    settings = tuple(
        Setting(core / clocks[-1] if clocks else 1.0, mhz / memory[-1] if memory else 1.0)
        for core in clocks or (1.0,)
        for mhz in memory or (1.0,)
    )
    predictors = trained()
    return settings, tuple(predictors.at(counters, setting) for setting in settings)


class _Heard:
    """Of which jobs there may be something new. A cache."""

    def __init__(self) -> None:
        self._new = True

    def of(self, view: View, searches: Iterable[int]) -> Iterable[int]:
        """All at first, those that are searched for too; then those that changed."""
        if not self._new:
            return view.changed
        self._new = False
        return [*view.active.tolist(), *searches]


@dataclass(frozen=True)
class Clocked:
    """`inner` decides which jobs run where. The clocks of the GPUs of each are then set where a
    step is predicted to take the least energy of those at which it is slower by at most `limit`.
    Its speed is measured there, the slow-down compared with the predicted one, and the clocks are
    set again until they stay. A new attempt begins at full clocks, and so does its search.
    """

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
    limit: float

    @property
    def name(self) -> str:
        """The recipe's."""
        return "gpoeo"

    def decide(self, view: View, memory: ClockMemory | None) -> tuple[Plan, ClockMemory]:
        """The inner plan, and a Tune for every job whose clocks change."""
        memory = memory or ClockMemory()
        plan, inner = self.inner.decide(view, revived(memory.inner, self.inner.decide))
        if not any(kind.clocks or kind.memory_clocks for kind in view.nodes.type_specs):
            return plan, ClockMemory(inner)
        leaving = {action.job for action in plan.actions if isinstance(action, Stop | Resize)}
        searches = {**memory.searches}
        for job in sorted({*view.cached(_Heard).of(view, searches), *leaving}):
            before = searches.pop(job, None)
            if job in leaving or view.at.phase[job] != _RUNNING:
                continue
            kind = self._kind(view, job)
            if kind is None:
                continue
            if before is not None and before.attempt != view.at.attempt[job]:
                before = None
            settings, effects = self._predicted(view, job, kind)
            search = searches[job] = self._next(view, job, before, settings, effects)
            at = before.setting if before is not None else len(settings) - 1
            if search.setting != at:
                plan.actions.append(
                    Tune(job, search.attempt, _knobs(kind, settings[search.setting]))
                )
        plan.until |= STARTED | PROGRESSED
        return plan, ClockMemory(inner, searches)

    def _kind(self, view: View, job: int) -> GpuType | None:
        """The type of its GPUs, if their clocks can be set."""
        held = view.ledger.holds.get(job)
        nodes = view.nodes
        rows = [slot.node for slot in held[1] if slot.devices] if held is not None else []
        if not rows:
            return None
        kind = nodes.type_specs[int(nodes.gpu_type[rows[0]])]
        return kind if kind.clocks or kind.memory_clocks else None

    def _predicted(
        self, view: View, job: int, kind: GpuType
    ) -> tuple[tuple[Setting, ...], tuple[Effect, ...]]:
        """All settings, and what each is predicted to do to the job, by what is known of its
        model's counters."""
        profile = view.oracle.profile(view.jobs.models[int(view.at.model[job])])
        use, watts = profile.utilisation, profile.watts.get(kind.name)
        counters = Counters(
            use.get("gpu", UNKNOWN),
            use.get("bandwidth", UNKNOWN),
            UNKNOWN if watts is None else min(watts / watts_of(kind).load, 1.0),
        )
        return predicted(counters, kind.clocks, kind.memory_clocks)

    def _next(
        self,
        view: View,
        job: int,
        search: Search | None,
        settings: tuple[Setting, ...],
        effects: tuple[Effect, ...],
    ) -> Search:
        """The search after what the job reported last."""
        attempt, speed = int(view.at.attempt[job]), float(view.at.rate[job])
        full = len(settings) - 1
        if search is None:
            chosen = cheapest(settings, effects, self.limit)
            return Search(attempt, speed, speed, chosen, int(chosen != full), chosen == full)
        if speed == search.speed or speed <= 0:
            return search
        if search.measured:  # it became slower or faster by itself
            plain = search.full * speed / search.speed
            return msgspec.structs.replace(search, full=plain, speed=speed)
        slowed = max(search.full / speed - 1.0, 0.0)
        expected = max(effects[search.setting].slowing - 1.0, 1e-3)
        scale = min(slowed / expected, LARGEST)
        chosen = cheapest(settings, effects, self.limit, scale)
        if search.count == SEARCH_MAX and slowed > self.limit + 1e-9:
            chosen = full
        elif search.count >= SEARCH_MAX:
            chosen = search.setting
        again = chosen != search.setting
        return Search(attempt, search.full, speed, chosen, search.count + again, not again, scale)


LARGEST = 100.0
"""So many times as large as predicted a slow-down is taken to be at most."""


def _knobs(kind: GpuType, setting: Setting) -> dict[str, float | bool | str]:
    """A setting in MHz of the clocks that a type has."""
    knobs: dict[str, float | bool | str] = {}
    if kind.clocks:
        knobs[CORE_MHZ] = setting.core * kind.clocks[-1]
    if kind.memory_clocks:
        knobs[MEMORY_MHZ] = setting.memory * kind.memory_clocks[-1]
    return knobs
