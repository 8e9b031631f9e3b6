"""One policy for the cluster, and another for the jobs inside each grant.

The inner policy works on `view.inside(parent)`. A search whose inner policy asks for trials ends
when that policy says so (`Search.over`); any other ends with its last child. An inner policy that
has `wants` says how many GPUs the grant has from now on: `regrant` gives some back, or takes some
that are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ganger.core.books.ledger import members
from ganger.core.errors import InvariantError
from ganger.core.events import QUEUED, STARTED
from ganger.core.plan import Plan, Resize, Resume, Retire, Slot, Spawn, Start, Stop, Suspend
from ganger.core.profiles import Profile
from ganger.core.protocols import Policy, revived
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase
from ganger.core.view import View
from ganger.mechanisms.common.reasons import changed_by

_FINISHED = int(Phase.FINISHED)
_TUNE = int(Kind.TUNE)


class Search(Policy, Protocol):
    """A policy for one grant that asks for trials itself, so that it also says when no more will
    come: then the search is over."""

    def over(self, view: View, memory: Any) -> bool:
        """Whether the search has ended, whose policy keeps `memory`."""


def searches(policy: Policy) -> bool:
    """Whether a policy for one grant asks for trials itself."""
    return Spawn in getattr(policy, "orders", ())


def refuse_hopeless(policy: Policy, gpus: int, profile: Profile) -> None:
    """Raise BadInput for a search that asks for so many GPUs, and whose recipe says (`refuse`) that
    it can do nothing with them."""
    refuse = getattr(getattr(policy, "inner", policy), "refuse", None)
    if refuse is not None:
        refuse(gpus, profile)


def wanted_by(policy: Policy, view: View, memory: Any) -> int | None:
    """How many GPUs a policy for one grant wants that to have from now on: what its `wants` says;
    None if it has none, and takes what it is given."""
    wants = getattr(policy, "wants", None)
    return None if wants is None else wants(view, memory)


def regrant(view: View, grant: View, parent: int, gpus: int) -> None:
    """Draw another grant of that many GPUs, as far as the parent may have them: what its children
    hold, then what else it has, then what is free on the same nodes, then elsewhere; fewer if there
    are not as many."""
    held, shape = view.draft.holds(parent), view.draft.shape(parent)
    gpus = min(max(gpus, shape.least), shape.most)
    if not held or sum(slot.devices.bit_count() for slot in held) == gpus:
        return
    masks = dict[int, int]()
    for _, placement in grant.ledger.holds.values():
        for slot in placement:
            masks[slot.node] = masks.get(slot.node, 0) | slot.devices
    missing = gpus - sum(mask.bit_count() for mask in masks.values())
    own = {slot.node: slot.devices for slot in held}
    free, up = view.ledger.free_mask, view.ledger.up
    sources = [*own.items(), *((node, free[node]) for node in own)]
    sources += [(node, free[node]) for node in range(view.nodes.n) if up[node] and node not in own]
    for node, devices in sources:
        for device in members(devices & ~masks.get(node, 0)):
            if missing > 0:
                masks[node], missing = masks.get(node, 0) | 1 << device, missing - 1
    placement = tuple(
        Slot(node, mask, mask.bit_count()) for node, mask in sorted(masks.items()) if mask
    )
    if placement != held:
        view.draft.resize(parent, placement)


class TwoLevelMemory(msgspec.Struct):
    """What the outer policy keeps, and by parent what the inner one does, until that is over: also
    while it holds nothing."""

    outer: Any
    inner: dict[int, Any]


@dataclass(frozen=True)
class TwoLevel:
    """`outer` decides over the cluster, `inner` over the children of each parent on what that
    holds, all in one draft: a parent that is stopped takes its children along. A parent that names
    a recipe of its own (`JobSpec.inner`) has that instead, as `make` makes it of its text."""

    outer: Policy
    inner: Policy
    make: Callable[[str], Policy] | None = None

    @property
    def name(self) -> str:
        """The outer policy's."""
        return self.outer.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that the outer policy uses."""
        return getattr(self.outer, "orders", ())

    def inside(self, view: View, parent: int) -> Policy:
        """The policy over the children of a parent."""
        text = view.jobs.inners[int(view.jobs.inner[parent])]
        if not text or self.make is None:
            return self.inner
        made = view.cached(_Made).policies
        if text not in made:
            made[text] = self.make(text)
        return made[text]

    def decide(self, view: View, memory: TwoLevelMemory | None) -> tuple[Plan, TwoLevelMemory]:
        """The plan of both; each grant is divided before the cluster is."""
        memory = memory or TwoLevelMemory(None, {})
        phase, plans, over = view.at.phase, list[Plan](), list[tuple[int, View, Plan]]()
        kept_inside = {job: kept for job, kept in memory.inner.items() if phase[job] < _FINISHED}
        any_spawns = searches(self.inner) or len(view.jobs.inners) > 1
        for parent in view.parents:
            inner = self.inside(view, parent)
            spawns = searches(inner)
            grant = view.inside(parent)
            if grant is None or not (spawns or len(grant.pending) or len(grant.active)):
                continue
            before = revived(memory.inner.get(parent), inner.decide)
            plan, kept_inside[parent] = inner.decide(grant, before)
            draw(grant, plan)
            plan.reasons = [
                msgspec.structs.replace(reason, within=parent) for reason in plan.reasons
            ]
            plans.append(plan)
            wanted = wanted_by(inner, grant, kept_inside[parent])
            if wanted is not None:
                regrant(view, grant, parent, wanted)
            if spawns and inner.over(grant, kept_inside[parent]):  # type: ignore[attr-defined]
                over.append((parent, grant, plan))
        own, outer = self.outer.decide(view, revived(memory.outer, self.outer.decide))
        if not (any_spawns or view.has_families):
            return own, TwoLevelMemory(outer, kept_inside)
        draw(view, own)
        for parent, grant, plan in over:
            if view.draft.holds(parent) is not None:
                gone = {action.job for action in plan.actions if isinstance(action, Retire)}
                for child in grant.paused.tolist():
                    if child not in gone:  # they end as others that ran
                        view.draft.retire(child)
                view.draft.retire(parent)
                view.forget()  # the outer policy is not told that one of its jobs goes
        until = own.until | QUEUED  # a child comes
        if _some_start(view, own):
            until |= STARTED  # a parent will hold what it was given
        inside = 0
        for plan in plans:
            inside |= plan.until
        wake = min(plan.wake for plan in (own, *plans))
        reasons = changed_by(own.reasons, inside)  # a search may end, or give some of its GPUs back
        reasons += [reason for plan in plans for reason in plan.reasons]
        return view.draft.plan(reasons, wake, until | inside), TwoLevelMemory(outer, kept_inside)


class _Made:
    """The policies that parents have of their own, by their texts: a cache."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}


def _some_start(view: View, plan: Plan) -> bool:
    """Whether some job whose grant is divided is about to hold it."""
    kind = view.at.kind
    return view.opening or any(
        isinstance(action, Start | Resize) and kind[action.job] == _TUNE for action in plan.actions
    )


def draw(view: View, plan: Plan) -> None:
    """Draw what a policy wrote down without the draft, or beside it."""
    if view.draft.made is plan:
        view.draft.add_missing(plan.actions)
        return
    for action in plan.actions:
        if isinstance(action, Stop):
            view.draft.stop(action.job, action.why)
        elif isinstance(action, Resize):
            view.draft.resize(action.job, action.placement)
        elif isinstance(action, Start):
            view.draft.start(action.job, action.placement)
        elif isinstance(action, Suspend) and action.yields:
            view.draft.suspend(action.job)
        elif isinstance(action, Resume) and view.draft.sleeps(action.job):
            if not view.draft.resume(action.job):
                raise InvariantError(f"{action} on a job whose compute is taken")
        else:
            view.draft.act(action)
