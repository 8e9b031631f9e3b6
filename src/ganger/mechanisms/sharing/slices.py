"""MIG: each job that asks for a part of a GPU has a slice of its own, which stays where it is.

Where a job's slices lie stands in its knob `mig`, so that snapshots keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ganger.core.books.ledger import Ledger, members
from ganger.core.books.mig import KNOB, Device, mig_slice, place, read, written
from ganger.core.books.share import Part, Sharing
from ganger.core.plan import Placement, Plan, Start, Tune
from ganger.core.spec import Needs
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.share import Parts


class Layouts:
    """Where the slices of all jobs lie: a cache that follows the books. Of those whose knob does
    not say it yet, they lie where they are placed beside the others, the first to hold first."""

    def __init__(self) -> None:
        self._delta = HoldingsDelta()
        self._on: dict[Device, dict[int, None]] = {}
        self._devices: dict[int, list[Device]] = {}

    def look(self, view: View, ledger: Ledger) -> None:
        """Catch up with the books."""
        gone, come = self._delta.changes(ledger)
        for job in gone:
            for device in self._devices.pop(job, ()):
                del self._on[device][job]
        for job, placement in come:
            if part_of(view, job) is not None:
                self._devices[job] = devices = on_devices(placement)
                for device in devices:
                    self._on.setdefault(device, {})[job] = None

    def taken(self, view: View, device: Device) -> dict[int, int]:
        """By start, how many slots each slice on the device takes."""
        return dict(self.lie(view, device).values())

    def lie(self, view: View, device: Device) -> dict[int, tuple[int, int]]:
        """By job, where its slice on the device starts, and how many slots it takes."""
        lying, new, taken = dict[int, tuple[int, int]](), list[int](), dict[int, int]()
        for job in self._on.get(device, ()):
            said = read(view.knobs.get(job, {}).get(KNOB)).get(device)
            if said is None or set(range(said[0], sum(said))) & _slots(taken):
                new.append(job)
            else:
                lying[job] = said
                taken[said[0]] = said[1]
        for job in new:
            nodes = view.nodes
            kind = nodes.type_specs[nodes.gpu_type[device[0]]]
            part = part_of(view, job)
            wanted = mig_slice(part, kind.name, kind.memory) if part is not None else None
            if wanted is not None and (at := place(wanted, taken, kind.name)) >= 0:
                lying[job] = at, wanted.memory
                taken[at] = wanted.memory
        return lying


def _slots(taken: dict[int, int]) -> set[int]:
    return {slot for at, size in taken.items() for slot in range(at, at + size)}


def part_of(view: View, job: int) -> Part | None:
    """What the job asks for of each device; None if that is whole devices."""
    needs: Needs = view.draft.shape(job).roles[0].needs
    return Part(needs.share, needs.gpu_memory) if 0 < needs.share < WHOLE else None


def on_devices(placement: Placement) -> list[Device]:
    """The devices of a placement."""
    return [(slot.node, device) for slot in placement for device in members(slot.devices)]


@dataclass(frozen=True, kw_only=True)
class Slices(Parts):
    """Parts become slices, each on a device where it may start."""

    mode: Sharing = Sharing.MIG

    def admits(
        self, view: View, ledger: Ledger, device: Device, used: list[Part], part: Part
    ) -> bool:
        """Whether the device has the slots of one more slice, side by side."""
        kind = ledger.nodes.type_specs[ledger.nodes.gpu_type[device[0]]]
        wanted = mig_slice(part, kind.name, kind.memory)
        if wanted is None:
            return False
        layouts = view.cached(Layouts)
        layouts.look(view, ledger)
        return place(wanted, layouts.taken(view, device), kind.name) >= 0


@dataclass(frozen=True)
class SlicedPolicy:
    """A queue, and beside it for each job that starts on slices a Tune that says where they lie."""

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    queue: QueuePolicy

    @property
    def name(self) -> str:
        """The queue's."""
        return self.queue.name

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The queue's plan, and where its slices lie."""
        plan, _ = self.queue.decide(view, memory)
        layouts = view.cached(Layouts)
        layouts.look(view, view.ledger)
        for action in list(plan.actions):
            if isinstance(action, Start) and part_of(view, action.job) is not None:
                lying = {
                    device: jobs[action.job]
                    for device in on_devices(action.placement)
                    if action.job in (jobs := layouts.lie(view, device))
                }
                plan.actions.append(Tune(action.job, action.attempt, {KNOB: written(lying)}))
        return plan, None
