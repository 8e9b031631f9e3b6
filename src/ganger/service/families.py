"""What the daemon does for searches and services beside its kernel: it answers Spawn with children,
and ends searches whose trials are all over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ganger.core.plan import Plan, Spawn
from ganger.core.protocols import Policy
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel, searches
from ganger.service.commands import Ask, Bear, Finish
from ganger.service.durable.recovery import guard_of
from ganger.service.durable.reported import plans_backwards
from ganger.service.jobs.families import children_of

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


def answers(plan: Plan) -> list[Ask]:
    """What the daemon asks of itself since a plan wants it."""
    return [Bear(action) for action in plan.actions if isinstance(action, Spawn)]


def ended(daemon: Daemon, touched: Iterable[int]) -> list[Ask]:
    """Searches to be ended, since the last of their children is over: one of `touched`."""
    kernel = daemon.kernel
    jobs, found = kernel.jobs, list[Ask]()
    over = [row for row in touched if jobs.phase[row] >= Phase.FINISHED]
    for parent in sorted({int(jobs.parent[row]) for row in over} - {-1}):
        if jobs.kind[parent] != Kind.TUNE or jobs.phase[parent] >= Phase.FINISHED:
            continue
        all_over = (jobs.phase[children_of(jobs, parent)] >= Phase.FINISHED).all()
        if all_over and not asks_for_trials(guard_of(kernel).policy):
            found.append(Finish(parent))
    return found


def asks_for_trials(policy: Policy) -> bool:
    """Whether the recipe for trials asks for them itself, and says when a search is over."""
    while isinstance(policy, Planes):
        policy = policy.training
    return isinstance(policy, TwoLevel) and searches(policy.inner)


def unanswered(daemon: Daemon) -> list[Ask]:
    """Of a journal that was just read: what was asked for and is not there yet, and searches whose
    end was not told."""
    jobs, found = daemon.kernel.jobs, list[Ask]()
    wanted = dict(daemon.kernel.settings.spawning)
    for plan in plans_backwards(daemon.journal) if wanted else ():
        for action in reversed(plan.actions):
            left = wanted.get(action.parent, 0) if isinstance(action, Spawn) else 0
            if isinstance(action, Spawn) and left:
                some = min(left, action.n)
                found.append(Bear(msgspec.structs.replace(action, n=some)))
                wanted[action.parent] = left - some
        if not any(wanted.values()):
            break
    trials = np.flatnonzero(jobs.within[: jobs.n] >= 0).tolist()
    return [*reversed(found), *ended(daemon, trials)]
