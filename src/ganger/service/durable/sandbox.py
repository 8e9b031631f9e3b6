"""Copies of the present state, for trying another policy and for looking ahead."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from ganger.client.answers import EffectAnswer, FutureAnswer, MovedAnswer, PastAnswer, PolicyAnswer
from ganger.core.errors import BadInput
from ganger.core.events import Batch, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Resize, Start, Stop
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, forget
from ganger.core.units import DAY, NEVER, SECOND
from ganger.engines.local import IGNORED
from ganger.lab.ahead.alternatives import WAITING_MAX, Waits, waits
from ganger.lab.ahead.orders import Moved, effects
from ganger.lab.ahead.whatif import Outlook, expected_starts, future, past, present
from ganger.lab.simulating.policies import load_policy
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.service.commands import Order
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Header
from ganger.service.durable.recovery import guard_of, make_kernel
from ganger.service.http import looks
from ganger.service.http.looks import Enough, TooLong
from ganger.service.reports import rows
from ganger.workloads.clusters import describe
from ganger.workloads.readers.ganger_trace_writer import lines_of
from ganger.workloads.transform import in_one_role

SAMPLES: Final = 19
DRAWS: Final = 5
"""So often run times of the present queue are drawn for a comparison of recipes."""
MOVED_MAX: Final = 20
"""So many of the jobs that wait longer, and of those that wait less, are named."""
LOOK_SECONDS: Final = 2.0
"""Of a queue longer than WAITING_MAX the look ends after so long: it tells the first starts."""
LIST_SECONDS: Final = 5.0
"""For a whole list, so that questions about one job do not wait long for it."""
SAMPLED_MAX: Final = 500
"""With more jobs than this waiting, an expected start comes without an interval."""


class _Patience:
    """Ends what takes too long: where the simulator would write its journal."""

    def __init__(self) -> None:
        self._until = time.monotonic() + looks.PATIENCE_SECONDS

    def append(self, *step: object) -> None:
        """Raise TooLong if it is time."""
        if time.monotonic() > self._until:
            raise TooLong


def copier(daemon: Daemon, header: Header | None = None) -> Callable[[], Kernel]:
    """Makes kernels in the present state, under another header if one is given: its policy
    remembers nothing then."""
    with daemon.lock:
        before = daemon.header
        snapshot = capture(daemon.kernel)
        if header is not None and (
            (header.recipes, header.knows) != (before.recipes, before.knows)
        ):
            snapshot = forget(snapshot)
        if header is not None and header.knows != before.knows:
            snapshot = msgspec.structs.replace(snapshot, learnt=msgspec.msgpack.encode(None))
        data = msgspec.msgpack.encode(snapshot)
    under, patience = header or before, _Patience()

    def copy() -> Kernel:
        patience.append()
        kernel = make_kernel(under, msgspec.msgpack.decode(data, type=Snapshot))
        kernel.now = max(kernel.now, daemon.now())
        return kernel

    return copy


def try_policy(daemon: Daemon, header: Header) -> PolicyAnswer:
    """Which jobs its recipes would start, stop and resize in their first plan. Raises BadInput."""
    refuse_bad_recipes(*header.recipes)
    kernel = copier(daemon, header)()
    plan = kernel.step(Batch(kernel.now, [Woke()]))
    actions = plan.actions if plan is not None else []
    guard = guard_of(kernel)
    return PolicyAnswer(
        recipe=header.policy,
        knows=header.knows,
        inner=header.inner,
        serving=header.serving,
        dry_run=True,
        error=guard.error,
        ignored=[
            IGNORED[order] for order in getattr(guard.policy, "orders", ()) if order in IGNORED
        ],
        starts=[action.job + 1 for action in actions if isinstance(action, Start)],
        stops=[action.job + 1 for action in actions if isinstance(action, Stop)],
        resizes=[action.job + 1 for action in actions if isinstance(action, Resize)],
    )


def refuse_bad_recipes(recipe: str, inner: str, serving: str, *, bounded: bool = True) -> None:
    """Raise BadInput for a recipe that is not there, or is for something else."""
    load_policy(recipe, recorded=True, bounded=bounded)
    for name, plane in ((inner, "tuning"), (serving, "serving")):
        if name:
            load_policy(name, recorded=True, bounded=bounded, plane=plane)


def outlook(daemon: Daemon, row: int, *, interval: bool = True) -> Outlook | None:
    """When a waiting job is expected to start; None if that is not known."""
    return outlooks(daemon, [row], interval=interval).get(row)


def prospects(daemon: Daemon, row: int) -> tuple[Waits | None, Outlook | None]:
    """What a waiting job waits for and what would help, and when it is expected to start; None for
    what is not known or takes too long."""
    there = None
    with contextlib.suppress(TooLong, Enough):
        copy = copier(daemon)
        with daemon.lock:
            jobs = daemon.kernel.jobs
            reasons = daemon.plan.reasons if daemon.plan is not None else []
            waiting = int(np.count_nonzero(jobs.phase[: jobs.n] == Phase.PENDING))
            if jobs.phase[row] != Phase.PENDING:
                return None, None
        there = waits(copy, row, reasons, ask=waiting <= WAITING_MAX)
    return there, outlook(daemon, row)


def outlooks(
    daemon: Daemon,
    rows: Sequence[int],
    *,
    interval: bool = True,
    seconds: float = looks.PATIENCE_SECONDS,
) -> dict[int, Outlook]:
    """When jobs are expected to start, of those that wait and of which that is known. `seconds`: so
    long it looks at the most, but for the first look."""
    with daemon.lock:
        jobs = daemon.kernel.jobs
        waiting = int(np.count_nonzero(jobs.phase[: jobs.n] == Phase.PENDING))
        wanted = [row for row in rows if jobs.phase[row] == Phase.PENDING]
    if not wanted:
        return {}
    samples = SAMPLES if interval and waiting <= SAMPLED_MAX else 0
    end = time.monotonic() + (LOOK_SECONDS if waiting > WAITING_MAX else seconds)
    try:
        return expected_starts(
            copier(daemon), wanted, samples=samples, enough=lambda: time.monotonic() > end
        )
    except (TooLong, Enough):
        return {}


def effects_of(daemon: Daemon, order: Order) -> EffectAnswer:
    """What an order would do to the other jobs. Raises BadInput where it does not apply."""
    copy = copier(daemon)
    with daemon.lock:
        commands = order.commands(daemon)
    effect = effects(copy, commands)
    with daemon.lock:
        moved = [_moved(daemon, move) for move in effect.moved]
        own = [_moved(daemon, move) for move in effect.own]
    later = [move for move in effect.moved if move.after > move.before]
    return EffectAnswer(
        jobs=sorted({command.job + 1 for command in commands}),
        earlier=len(moved) - len(later),
        later=len(later),
        same=effect.looked - len(moved),
        until=None if effect.until >= NEVER else effect.until / SECOND,
        moved=[*moved[:MOVED_MAX], *moved[MOVED_MAX:][-MOVED_MAX:]],
        own=own[:MOVED_MAX],
    )


def _moved(daemon: Daemon, move: Moved) -> MovedAnswer:
    jobs = daemon.kernel.jobs
    return MovedAnswer(
        job=move.job + 1,
        label=rows.label(daemon, move.job),
        name=daemon.names[move.job],
        user=jobs.users[jobs.user[move.job]],
        gpus=int(jobs.gpus[move.job]),
        before=None if move.before >= NEVER else move.before / SECOND,
        after=None if move.after >= NEVER else move.after / SECOND,
    )


def grown(cluster: ClusterSpec, add: Sequence[NodeSpec]) -> ClusterSpec:
    """The cluster with more nodes at its end."""
    new = [
        msgspec.structs.replace(node, name=node.name or f"added-{number}")
        for number, node in enumerate(add)
    ]
    return describe(msgspec.structs.replace(cluster, nodes=(*cluster.nodes, *new))).check()


def futures(
    daemon: Daemon, recipes: Sequence[str], add: Sequence[NodeSpec], history_days: float
) -> list[FutureAnswer]:
    """What each recipe would make of the present queue, or with `history_days` of the jobs that
    finished in the last days. The recipe in force comes first. Raises BadInput."""
    now = daemon.header
    wanted = [(now.policy, now)]
    cluster = grown(now.cluster, add) if add else now.cluster
    for recipe in recipes or [now.policy]:
        header = msgspec.structs.replace(now, policy=recipe, cluster=cluster)
        if header != now:
            wanted.append((recipe + (" on more" if add else ""), header))
    if history_days:
        patience = _Patience()
        return [_of_history(daemon, name, head, history_days, patience) for name, head in wanted]
    found, patience = [], _Patience()
    for name, header in wanted:
        patience.append()
        made = future(copier(daemon, header)(), name)
        found.append(FutureAnswer(**{key: getattr(made, key) for key in made.__struct_fields__}))
    return found


def past_of(daemon: Daemon, days: float, limit: int) -> PastAnswer:
    """The last days as a trace, or without `days` the present queue, with run times drawn DRAWS
    times; without jobs that no trace holds. Raises BadInput if there are no others."""
    if days:
        with daemon.lock:
            traces = [past(daemon.kernel, daemon.kernel.now - round(days * DAY), limit)]
    else:
        copy, luck = copier(daemon), np.random.default_rng(0)
        traces = [present(copy(), luck, limit) for _ in range(DRAWS)]
    if not traces[0].jobs:
        what = f"no job finished in the last {days:g} days" if days else "no job runs or waits"
        raise BadInput(what, mend="ask for more days" if days else "look at the last days")
    every = traces[0].jobs
    try:
        traces = [in_one_role(trace) for trace in traces]
    except BadInput:  # none is left
        raise BadInput("none of these jobs asks for GPUs in one role") from None
    jobs = traces[0].jobs
    header = daemon.header
    return PastAnswer(
        recipe=header.policy,
        knows=header.knows,
        jobs=jobs,
        without=every - jobs,
        cluster=msgspec.Raw(msgspec.json.encode(header.cluster)),
        traces=[lines_of(trace).decode() for trace in traces],
    )


def _of_history(
    daemon: Daemon, name: str, header: Header, days: float, patience: _Patience
) -> FutureAnswer:
    with daemon.lock:
        trace = past(daemon.kernel, daemon.kernel.now - round(days * DAY))
    if not trace.jobs:
        return FutureAnswer(recipe=name)
    setup = Setup(header.seed, header.knows)
    run = run_one(trace, header.cluster, header.policy, setup, journal=lambda kernel: patience)
    metrics = run.metrics
    return FutureAnswer(
        recipe=name,
        waiting=trace.jobs,
        unstarted=0,
        wait_mean_seconds=metrics["queueing_delay_mean_seconds"],
        end_mean_seconds=metrics["jct_mean_seconds"],
        last_end_seconds=metrics["makespan_seconds"],
        preemptions=int(metrics["preemptions"]),
    )
