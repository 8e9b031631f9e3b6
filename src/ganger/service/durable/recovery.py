"""From the journal to a kernel: the last snapshot, and the batches since decided again.

If the present version of a policy decides otherwise than the record, the record stands, and `ganger
status` reports it.
"""

from __future__ import annotations

import logging
import time
from typing import Any, TypeAlias

import msgspec

from ganger import __version__
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import (
    ANYTHING,
    Accepted,
    AnyEvent,
    Batch,
    Evaluated,
    Measured,
    Progressed,
    Sampled,
    kinds_of_change,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.protocols import Policy, memory_type
from ganger.core.spec import ClusterSpec
from ganger.core.state.bounds import without_unfit
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.core.state.snapshot import Snapshot, restore
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.log import Divergence, memory_hash
from ganger.lab.simulating.oracles import oracle_of_past
from ganger.lab.simulating.policies import load_policy, with_budgets, with_inner, with_serving
from ganger.service.durable.journal import Decided, Header, Journal, SetAside, readable

log = logging.getLogger("ganger.service")
RETRY_AFTER = 10 * SECOND
"""A policy that failed is asked again after this time, if nothing else happens."""


class Guard:
    """A policy that cannot stop the daemon: one that fails decides nothing, for now.

    `recorded`: what the journal says was decided. If the policy now says otherwise (another
    version of it, or one that is not pure), the record stands, and `differed` counts it.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name
        self.recorded: Decided | None = None
        self.differed = 0
        self.error = ""
        self.mute = -1
        """The revision at which it planned what cannot be: it is not asked there again."""
        self.last: Plan | None = None
        """The plan of the last decision, if the present step made one."""
        self.own = -1
        """How many actions of the present step's plan are the policy's; -1: it was not asked."""

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """What the policy decides, or what it decided when it first was asked."""
        try:
            if view.revision == self.mute:
                raise InvariantError(self.error)
            plan, remembered = self.policy.decide(view, memory)
            if plan.wake <= view.now:
                raise InvariantError("the policy asks to be woken in the past")
            memory, self.error = remembered, ""
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            plan = Plan([], [], view.now + RETRY_AFTER, ANYTHING)
        recorded = self.recorded
        if recorded is not None and recorded.own >= 0:
            actions = recorded.actions[len(recorded.actions) - recorded.own :]
            if actions != plan.actions or plan.wake != recorded.wake:
                self.differed += 1
                plan = Plan(actions, plan.reasons, recorded.wake, kinds_of_change(recorded.until))
        self.last, self.own = plan, len(plan.actions)
        return plan, memory


def policy_of(header: Header) -> Policy:
    """The recipes of a header as one policy. Raises BadInput."""
    policy = load_policy(header.policy, recorded=True, bounded=False)
    if header.inner:
        policy = with_inner(policy, header.inner, recorded=True)
    if header.serving:
        policy = with_serving(policy, header.serving, recorded=True)
    return with_budgets(policy, header.cluster)


def make_kernel(header: Header, snapshot: Snapshot | None, *, validate: bool = False) -> Kernel:
    """A kernel under `header`, from `snapshot`, or empty; its policy is in a `Guard`."""
    nodes = Nodes(header.cluster)
    policy = policy_of(header)
    oracle = oracle_of_past(header.knows)
    if snapshot is None:
        kernel = Kernel(
            nodes, Declared(), policy, oracle=oracle, seed=header.seed, validate=validate
        )
    else:
        kernel = restore(
            _readable(snapshot, policy),
            nodes,
            policy,
            oracle=oracle,
            seed=header.seed,
            validate=validate,
        )
    kernel.policy = Guard(policy)
    return kernel


def _readable(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The snapshot; without the policy's memory if another version wrote that differently, for a
    policy can begin anew and the jobs must not wait for it."""
    try:
        msgspec.msgpack.decode(snapshot.memory, type=memory_type(policy.decide))
    except msgspec.MsgspecError as error:
        log.warning(
            "%s begins anew: its memory was written by another version: %s", policy.name, error
        )
        return msgspec.structs.replace(snapshot, memory=msgspec.msgpack.encode(None))
    return snapshot


def guard_of(kernel: Kernel) -> Guard:
    """The guard around a kernel's policy."""
    assert isinstance(kernel.policy, Guard)
    return kernel.policy


def decided(kernel: Kernel, plan: Plan | None) -> Decided | None:
    """The plan of the present step, as it is kept."""
    guard = guard_of(kernel)
    own, guard.own = guard.own, -1
    if plan is None:
        return None
    return Decided(plan.actions, plan.wake, plan.until, own, memory_hash(kernel.memory))


Missing: TypeAlias = list[tuple[int, Decided]]


def recover(
    journal: Journal, *, mute: int = -1, why: str = ""
) -> tuple[Header, Kernel, Missing] | None:
    """The header in force, the kernel as it was, and the plans that were not kept before the end
    came, by revision. None for a journal without a segment.

    At the revision `mute` the policy decides nothing, because of `why`. What cannot be reduced is
    set aside in the journal, and the rest goes on without it. Raises BadInput for a journal that
    is damaged.
    """
    with readable(journal.path):
        return _recover(journal, mute, why)


def _recover(journal: Journal, mute: int, why: str) -> tuple[Header, Kernel, Missing] | None:
    segments = journal.segments()
    if not segments:
        return None
    header = segments[-1][2]
    while True:
        kernel = _last_snapshot(journal)
        guard = guard_of(kernel)
        guard.mute, guard.error = mute, why
        missing: Missing = []
        for revision, batch, record in journal.steps(kernel.revision):
            guard.recorded = record
            try:
                again = decided(kernel, kernel.step(batch))
            except Exception as error:
                if revision != mute and record is None:  # what it planned could not be booked
                    mute, why = revision, f"{type(error).__name__} {error}"
                else:
                    _set_aside(journal, revision, batch, record, error)
                    mute, why = -1, ""
                break
            if record is None and again is not None:
                missing.append((revision, again))
        else:
            guard.recorded = None
            return header, kernel, missing


def _last_snapshot(journal: Journal) -> Kernel:
    number, _, header = journal.segments()[-1]
    return make_kernel(header, journal.snapshot(number))


def _before(journal: Journal, revision: int) -> Kernel:
    """The kernel as it was before a revision that is after the last snapshot."""
    kernel = _last_snapshot(journal)
    guard = guard_of(kernel)
    for _, batch, record in journal.steps(kernel.revision, revision - 1):
        guard.recorded = record
        if record is None:
            guard.mute = kernel.revision + 1
        kernel.step(batch)
    return kernel


def _set_aside(
    journal: Journal, revision: int, batch: Batch, record: Decided | None, error: Exception
) -> None:
    """Take what cannot be reduced out of a batch: the event that a handler failed on; if none did,
    what was decided on it, so that it is decided anew; if nothing was, what only tells something;
    if there is nothing of that, everything."""
    kernel = _before(journal, revision)
    jobs = kernel.jobs.n
    bad: list[AnyEvent] = []
    kernel.now = batch.at
    for event in batch.events:
        try:
            kernel.reduce(event)
        except Exception as found:
            bad, error = [event], found
            break
    if not bad and record is not None:
        _set_plan_aside(journal, revision, batch, record, error)
        return
    told: list[AnyEvent] = [
        one for one in batch.events if isinstance(one, Measured | Sampled | Evaluated | Progressed)
    ]
    bad = bad or told or list(batch.events)
    why = f"{type(error).__name__}: {error}"
    if not bad:
        raise BadInput(
            f"revision {revision} cannot be decided again: {why}",
            where=str(journal.path),
            mend="this is a bug, please report it; `ganger restore` goes back to a backup",
        ) from error
    records = [set_aside_record(revision, event, why) for event in bad]
    for one in records:
        log.error("revision %d: %s is set aside: %s", revision, one.what, one.why)
    journal.mend_batch(revision, without_unfit(batch, bad, jobs), records)


def _set_plan_aside(
    journal: Journal, revision: int, batch: Batch, record: Decided, error: Exception
) -> None:
    """Forget what was decided on a batch. What an engine did of it is found out when it is asked
    for what truly runs."""
    why = f"{type(error).__name__}: {error}"
    log.error("revision %d: the plan is set aside: %s", revision, why)
    data = msgspec.msgpack.encode(record)
    aside = SetAside(revision, time.time(), -1, data, "the plan", _clean(why))
    journal.mend_batch(revision, batch, [aside])


def _clean(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:500]


def set_aside_record(revision: int, event: AnyEvent, why: str) -> SetAside:
    """What is kept of an event that has no place in the history."""
    try:
        record = msgspec.msgpack.encode(event)
    except (OverflowError, UnicodeEncodeError):
        record = repr(event).encode(errors="backslashreplace")
    job, verb = getattr(event, "job", None), getattr(event, "verb", "")
    what = type(event).__name__ + (f" {verb}" if verb else "")
    what += f" of job {job + 1}" if job is not None else ""
    clean = _clean(what)[:200]
    refused = job if isinstance(event, Accepted) and job is not None else -1
    return SetAside(revision, time.time(), refused, record, clean, _clean(why))


def check_history(journal: Journal) -> int:
    """Decide everything in a journal again; the number of steps that agreed.

    Raises Divergence, naming the first step that does not.
    """
    segments = journal.segments()
    compared = 0
    for position, (number, start, header) in enumerate(segments):
        later = segments[position + 1 :]
        kernel = make_kernel(header, journal.snapshot(number, first=True))
        for revision, batch, record in journal.steps(start, later[0][1] if later else 1 << 62):
            again = decided(kernel, kernel.step(batch))
            if record is not None and again != record:
                raise Divergence(
                    f"revision {revision} at {batch.at / 1e6:.6f} s, under {header.policy}:"
                    f" the journal says {record}, decided now {again}"
                )
            compared += 1
    return compared


def header_of(
    cluster: ClusterSpec, policy: str, seed: int, knows: str, inner: str = "", serving: str = ""
) -> Header:
    """A header of this version."""
    return Header(__version__, policy, seed, knows, cluster, inner, serving)
