"""Why a job waited in a run that was logged: the log replayed to that time, and the answer that the
daemon gives of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ganger.client.answers import Explanation
from ganger.client.states import state_of
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Event, Submitted
from ganger.core.kernel import Kernel
from ganger.core.plan import Action, Start
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.lab.ahead.alternatives import WAITING_MAX, waits
from ganger.lab.ahead.company import explain_company
from ganger.lab.ahead.explaining import (
    Scene,
    compare,
    explain_suspended,
    explain_waiting,
    jobs_named,
)
from ganger.lab.ahead.links import explain_links
from ganger.lab.log import (
    Divergence,
    Log,
    Replay,
    contradictions,
    refuse_others_policy,
    remade,
    world_of,
)


class Happened(NamedTuple):
    """What a log says of a job: when it was submitted, and when it was started; microseconds, and
    the revisions of these steps."""

    submitted: tuple[int, int] | None
    starts: list[tuple[int, int]]

    def then(
        self, row: int, at: int, revision: int, events: Iterable[Event], actions: Iterable[Action]
    ) -> Happened:
        """With one more step of the log."""
        for action in actions:
            if isinstance(action, Start) and action.job == row:
                self.starts.append((at, revision))
        if any(isinstance(one, Submitted | Accepted) and one.job == row for one in events):
            return self._replace(submitted=(at, revision))
        return self

    def last_wait(self, last: int) -> int:
        """The revision before its last start, or `last` if it never started: the end of the log.
        A job that started in the step that submitted it never waited: that step."""
        if not self.starts:
            return last
        revision = self.starts[-1][1]
        at_once = self.submitted is not None and self.submitted[1] == revision
        return revision if at_once else revision - 1


def explain_logged(path: Path, job: str, at: int | None = None) -> Explanation:
    """Why `job` was where it was `at` that time (microseconds of the log); None: when it last
    waited. Raises BadInput for a log that cannot be read or that the recipe now decides otherwise,
    for a job that it does not have, and for a time outside of it."""
    log = Log(path)
    refuse_others_policy(log)
    row = _row_of(log, job)
    happened, first, last, stop = _scan(log, row, at)
    if at is not None and not first <= at <= last:
        raise BadInput(
            f"{format_duration(at)} is outside of the log",
            where="--at",
            mend=f"{path} is from {format_duration(first)} to {format_duration(last)}",
        )
    log = Log(path)  # its lines can be walked once
    world = world_of(log)
    engine = Replay(log, world.truth)
    kernel = remade(log, world, engine)
    try:
        with contradictions(path):
            for _ in range(stop):
                batch = engine.poll(NEVER)
                if batch is None:
                    break
                kernel.step(batch)
    except Divergence as error:
        raise BadInput(
            f"its recipe now decides otherwise: {error}",
            where=str(path),
            mend="`ganger replay LOG --check` says more; explain it with the version that wrote it",
        ) from None
    now = kernel.now if at is None else at
    data = msgspec.msgpack.encode(capture(kernel))
    late = [*world.truth.late, int(world.truth.all()[row])]  # also of one submitted on a copy

    def copy() -> Kernel:
        made = remade(log, world_of(log, late), None, msgspec.msgpack.decode(data, type=Snapshot))
        made.now = now
        return made

    shown = copy()
    scene = Scene(shown, engine.plan, log.header.policy, shown.policy, now, _labels(shown), {})
    found = explain_past(scene, copy, row)
    found.lines += afterwards(happened, now, shown, row)
    return found


def explain_past(scene: Scene, copy: Callable[[], Kernel], row: int) -> Explanation:
    """Why a job was where it was at a past time. `copy` makes a kernel as the one of `scene`."""
    kernel = scene.kernel
    view, jobs, phase = kernel.view, kernel.jobs, Phase(kernel.jobs.phase[row])
    view.now, view.revision = scene.now, kernel.revision
    found = Explanation(
        job=row + 1,
        label=scene.label(row),
        state=state_of(phase, "")[0],
        reason="",
        lines=[],
        at=scene.now / SECOND,
    )
    if phase == Phase.PENDING:
        found.reason = scene.reason_of(row)
        explain_waiting(scene, row, found)
        waiting = int(np.count_nonzero(jobs.phase[: jobs.n] == Phase.PENDING))
        compare(scene, found, waits(copy, row, scene.reasons, ask=waiting <= WAITING_MAX))
    elif phase == Phase.BLOCKED:
        _blocked(scene, row, found)
    elif phase == Phase.DECLARED:
        found.lines.append("It has not been submitted yet.")
    elif phase >= Phase.FINISHED:
        found.lines.append(f"It is over: {found.state.lower()}.")
    else:
        held = kernel.placements().get(row, ())
        names = dict.fromkeys(kernel.nodes.names[slot.node] for slot in held)
        lasts = format_duration(scene.now - int(jobs.held_since[row]))
        if not explain_suspended(scene, row, list(names), found):
            found.lines.append(f"It has held GPUs on {', '.join(names) or 'no node'} for {lasts}.")
            explain_company(scene, row, found)
            explain_links(scene, row, found)
    return found


def _blocked(scene: Scene, row: int, found: Explanation) -> None:
    """What a job waits for that is not in the queue."""
    kernel = scene.kernel
    before = kernel.jobs.after.get(row, ()) if row in kernel.blockers else ()
    left = [one for one in before if kernel.jobs.phase[one] < Phase.FINISHED]
    found.reason = "Dependency" if left else "JobHeldUser"
    if left:
        found.holders = [one + 1 for one in left]
        ends = "ends" if len(left) == 1 else "end"
        found.lines.append(f"It waits until {jobs_named(scene.label, left)} {ends}.")
    else:
        found.lines.append("It is on hold: it waits to be released.")


def _row_of(log: Log, job: str) -> int:
    """The row of a job of that name, or of the number that is in its name, `41` for `job-41`; also
    of one that came late."""
    for name in (job, f"job-{job}"):
        try:
            return log.trace.declared.find(name)
        except KeyError:
            continue
    for step in Log(log.path).steps():
        for event in step.events:
            if isinstance(event, Accepted) and event.spec.name == job:
                return event.job
    count = log.trace.jobs
    names = [log.trace.declared.name(row) for row in range(min(count, 3))]
    some = f": {', '.join(names)}{', ...' if count > len(names) else ''}" if names else ""
    raise BadInput(
        f"no job {job!r}",
        where=str(log.path),
        mend=f"name one of its {count} job{'s' if count != 1 else ''}{some}",
    )


def _labels(kernel: Kernel) -> Callable[[int], str]:
    """How people call jobs: by name; `41` for `job-41`, since sentences say "job" themselves."""

    def label(row: int) -> str:
        name = kernel.jobs.name(row)
        number = name.removeprefix("job-")
        return number if number.isdecimal() else name

    return label


def _scan(log: Log, row: int, at: int | None) -> tuple[Happened, int, int, int]:
    """What happened to a job, the first and the last time of the log, and how many steps lead to
    `at` (None: to its last wait)."""
    happened, first, last = Happened(None, []), -1, 0
    steps = before = 0
    for step in log.steps():
        steps, last = step.revision, step.at
        first = step.at if first < 0 else first
        before = step.revision if at is not None and step.at <= at else before
        happened = happened.then(row, step.at, step.revision, step.events, step.actions or ())
    if first < 0:
        raise BadInput("it has no steps", where=str(log.path), mend="it was cut short")
    return happened, first, last, before if at is not None else happened.last_wait(steps)


def afterwards(happened: Happened, now: int, kernel: Kernel, row: int) -> list[str]:
    """When the log has it started after that time."""
    waits_yet = kernel.jobs.phase[row] <= Phase.PENDING
    later = [time for time, _ in happened.starts if time >= now and (waits_yet or time > now)]
    if later:
        return [f"In the log it is started {format_duration(later[0] - now)} later."]
    return ["In the log it is not started after this time."] if waits_yet else []
