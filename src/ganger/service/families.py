"""What the daemon does for searches and services beside its kernel: it answers Spawn with children,
and ends searches whose trials are all over.

The next batch accepts the children, with their parent's command and the next configuration. What
was asked for and not answered when a daemon was killed is found in its last plans. A search is a
hollow attempt (`engines/gang.py`): it holds devices and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import Command
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Spawn
from ganger.core.protocols import Policy
from ganger.core.spec import NONE, Kind, Shape, rescaled
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.state.reducer import RESCALES
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.common.budgets import Budgets
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel, searches
from ganger.mechanisms.tuning.racing import Racing
from ganger.mechanisms.tuning.trials import Portion, portion_of
from ganger.recipes.tuning.easeml import Tenants
from ganger.service.commands import Ask, Finish, Turn
from ganger.service.durable.recovery import guard_of
from ganger.service.durable.reported import plans_backwards
from ganger.service.jobs.families import children_of
from ganger.service.searches.births import Bear

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


QUICK: Final = 60 * SECOND
"""A child that fails sooner than this after its submission has hardly run."""
PAUSE_MAX: Final = 300 * SECOND


class Later:
    """What the daemon asks of itself, but not yet: children of a parent whose last ones failed.

    After n children in a row that failed within a minute, the next one waits 2^(n - 1) seconds, at
    most five minutes: a command that cannot run would else fill queue and journal.
    """

    def __init__(self) -> None:
        self._asks: list[tuple[int, Ask]] = []

    @property
    def next(self) -> int:
        """When the first is due; NEVER if there is none."""
        return min((at for at, _ in self._asks), default=NEVER)

    def spread(self, asks: list[Ask], jobs: Jobs, now: int) -> list[Ask]:
        """Those that may be asked at once; the others are kept."""
        at_once = []
        for ask in asks:
            at = not_before(jobs, ask.parent) if isinstance(ask, Bear) else now
            if at <= now:
                at_once.append(ask)
            else:
                self._asks.append((at, ask))
        return at_once

    def due(self, now: int) -> list[Ask]:
        """Those whose time has come, in order."""
        due = [ask for at, ask in self._asks if at <= now]
        self._asks = [(at, ask) for at, ask in self._asks if at > now]
        return due


def not_before(jobs: Jobs, parent: int) -> int:
    """When the next child of a parent may come, by how the last ones ended (microseconds)."""
    failures, last = 0, 0
    for row in reversed(children_of(jobs, parent)):
        if jobs.phase[row] != Phase.FAILED or jobs.finished[row] - jobs.submitted[row] >= QUICK:
            break
        last = max(last, int(jobs.finished[row]))
        failures += 1
    pause = SECOND << min(failures - 1, 30) if failures else 0
    return last + min(pause, PAUSE_MAX)


class Ends(msgspec.Struct, frozen=True):
    """How many GPUs the replicas of a service have together (of one whose replicas have none: how
    many replicas), the least and the most that they may have; None: as it is. 0: no replica."""

    size: int | None = None
    least: int | None = None
    most: int | None = None


class Scale(Ask):
    """Change how many replicas services have and may have. Answers with their rows."""

    def __init__(self, rows: Sequence[int], ends: Ends) -> None:
        super().__init__()
        self._rows, self._ends = rows, ends

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """A Command for each end that changes, within what the tenant may have."""
        jobs, ceilings = turn.kernel.jobs, daemon.gates.ceilings
        for row in self._rows:
            refuse_unscaled(turn.kernel, row)
            before = jobs.shapes[jobs.shape[row]]
            for event in turn.events:
                if isinstance(event, Command) and event.job == row and event.verb in RESCALES:
                    before = rescaled(before, {event.verb: int(event.value)})
            after = rescaled_by(before, self._ends)
            tenant = jobs.tenants[jobs.tenant[row]]
            needs, has = ceilings.needs(tenant, daemon.array_of(row), after), ceilings.taken_by(row)
            more = {group: need - has[group] for group, need in needs.items() if group in has}
            grows = {group: need for group, need in more.items() if need > 0}
            if not ceilings.has_room(grows, turn.let_in):
                raise BadInput(
                    f"the tenant {tenant!r} may not hold so many GPUs, with what others wait for",
                    where="max_gpus",
                    mend="ask for less; see `ganger quota`",
                )
            for group, need in grows.items():
                turn.let_in[group] = turn.let_in.get(group, 0) + need
            first, second = before.roles[0], after.roles[0]
            turn.events += [
                Command(row, end, getattr(second, end))
                for end in RESCALES
                if getattr(first, end) != getattr(second, end)
            ]

    def answer(self) -> list[int]:
        """The services' rows."""
        return list(self._rows)


def refuse_unscaled(kernel: Kernel, row: int) -> None:
    """Raise BadInput unless the job is a service that runs, and whose replicas a recipe chooses."""
    jobs, held = kernel.jobs, kernel.ledger.holds.get(row)
    if jobs.kind[row] != Kind.SERVE or jobs.parent[row] >= 0 or held is None or held[1]:
        raise BadInput(
            f"job {row + 1} is not a service that runs and that a recipe scales",
            where="gpus",
            mend="submit it again with other sizes",
        )


def rescaled_by(shape: Shape, ends: Ends) -> Shape:
    """The shape with these ends. Its size follows where the others leave it no room. Raises
    BadInput for what cannot be."""
    role = shape.roles[0]
    each = max(role.needs.gpus, 1)
    names = {"size": "gpus", "least": "min_gpus", "most": "max_gpus"}
    changed = dict[str, int]()
    for end, name in names.items():
        gpus = getattr(ends, end)
        if gpus is not None and (gpus % each or (end == "size" and not gpus)):
            mend = f"give a multiple of {each}"
            raise BadInput(f"{gpus} GPUs are not a number of replicas", where=name, mend=mend)
        if gpus is not None:
            changed[end] = gpus // each or NONE
    fresh = rescaled(shape, changed).roles[0]
    if ends.size is None:
        size = max(role.size, fresh.least, 1)
        size = min(size, max(fresh.most, 1)) if fresh.most else size
        fresh = rescaled(shape, {**changed, "size": size}).roles[0]
    least, most = fresh.replicas
    if not least <= most or not (least <= fresh.size <= max(most, 1)):
        raise BadInput(
            f"min_gpus {least * each} <= gpus {fresh.size * each} <= max_gpus {most * each} does"
            " not hold",
            where="gpus",
        )
    return rescaled(shape, {end: getattr(fresh, end) for end in RESCALES})


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
        if all_over and not searches(policy_over(daemon, parent)):
            found.append(Finish(parent))
    return found


def policy_over(daemon: Daemon, parent: int) -> Policy:
    """The policy over the trials of a search."""
    policy = guard_of(daemon.kernel).policy
    while isinstance(policy, Planes | Budgets):
        policy = policy.training if isinstance(policy, Planes) else policy.inner
    return policy.inside(daemon.kernel.view, parent) if isinstance(policy, TwoLevel) else policy


def portion_of_more(daemon: Daemon, parent: int) -> Portion:
    """What a trial holds that people add to a search. Raises BadInput for another job, and
    where the recipe lets no trial in once it has begun."""
    jobs = daemon.kernel.jobs
    if jobs.kind[parent] != Kind.TUNE:
        raise BadInput(f"job {parent + 1} is not a search", mend="see `ganger tune list`")
    policy = policy_over(daemon, parent)
    recipe = getattr(policy, "inner", policy)
    if searches(policy) and not isinstance(recipe, Racing | Tenants):
        raise BadInput(
            f"{policy.name} takes no trials but those that it asks for",
            where="recipe",
            mend="submit another search, or use tune.asha, tune.random or another without rounds",
        )
    return portion_of(recipe)


def unanswered(daemon: Daemon) -> list[Ask]:
    """Of a journal that was just read: what was asked for and is not there yet, and searches whose
    end was not reported."""
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
