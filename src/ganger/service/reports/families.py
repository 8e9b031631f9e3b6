"""Searches and services in answers: how many children they have, what those reported, which trial
is the best. Each function wants the daemon's lock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from ganger.client.answering.families import (
    ChildAnswer,
    FamilyAnswer,
    ReplicaAnswer,
    ReportAnswer,
    ServiceAnswer,
    WindowAnswer,
)
from ganger.client.grid import spoken
from ganger.client.states import state_of
from ganger.core.errors import BadInput
from ganger.core.plan import Placement
from ganger.core.spec import Kind
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.tuning.goals import Constraint, feasible, front
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.engines.agent.protocol import PORT
from ganger.lab.result import Segment
from ganger.lab.tuning.detail import bill
from ganger.mechanisms.tuning.billing import rates_of
from ganger.mechanisms.tuning.limits import Limited, reached
from ganger.mechanisms.tuning.trials import Mode
from ganger.service.daemon import Daemon
from ganger.service.durable.reported import last_metrics, last_reports, some_reports
from ganger.service.families import policy_over
from ganger.service.jobs.families import children_of, constraints_of

SHOWN_MAX: Final = 1000
"""So many children of a job are listed, the last ones."""
_PARENTS: Final = (int(Kind.TUNE), int(Kind.SERVE))


def counts(daemon: Daemon, row: int) -> dict[str, int]:
    """How many children of a search or a service are in which state."""
    jobs = daemon.kernel.jobs
    if int(jobs.kind[row]) not in _PARENTS or jobs.parent[row] >= 0:
        return {}
    states = (state_of(Phase(jobs.phase[child]), "")[0] for child in children_of(jobs, row))
    return dict(sorted(Counter(states).items()))


def _state(daemon: Daemon, child: int) -> str:
    """The state of a child in words; of a trial that its recipe had set aside when the search
    ended, SET_ASIDE. It ends as others that ran, but later than its last attempt."""
    jobs = daemon.kernel.jobs
    word = state_of(Phase(jobs.phase[child]), daemon.ends.get(child, ""))[0]
    parent = int(jobs.parent[child])
    ended = jobs.phase[parent] == Phase.FINISHED and jobs.kind[parent] == Kind.TUNE
    if word == "COMPLETED" and ended and jobs.finished[child] <= jobs.finished[parent]:
        last = daemon.reader.attempts(child)[-1:]
        if last and 0 <= last[0].ended < int(jobs.finished[child]):
            return "SET_ASIDE"
    return word


def family(daemon: Daemon, row: int) -> FamilyAnswer | None:
    """The children of a search or a service; None of a job that has none."""
    jobs = daemon.kernel.jobs
    rows = children_of(jobs, row) if counts(daemon, row) else []
    if not rows:
        return None
    reports = last_reports(daemon.reader, rows)
    metrics, constraints = _goals(daemon, row)
    others = last_metrics(daemon.reader, list(reports)) if metrics or constraints else {}
    kept = {child: feasible(constraints, others.get(child)) for child in reports}
    children = [
        ChildAnswer(
            job=child + 1,
            name=daemon.names[child],
            gpus=int(jobs.size[child]),
            state=_state(daemon, child),
            params=facts.params,
            step=reports.get(child, (None, None))[0],
            value=reports.get(child, (None, None))[1],
            checkpoint_dir=facts.launch.checkpoint_dir,
            copied=facts.copied + 1 if facts.copied >= 0 else None,
            metrics=others.get(child, {}),
            feasible=kept.get(child, True),
        )
        for child in rows[-SHOWN_MAX:]
        for facts in [daemon.reader.facts(child)]
    ]
    values = [
        (child, value) for child, (_, value) in reports.items() if value is not None and kept[child]
    ]
    best = better(daemon, row)(values, key=_value_of)[0] + 1 if values else None
    return FamilyAnswer(
        children=children,
        best=best,
        metric=daemon.reader.facts(row).launch.metric,
        more_is_better=better(daemon, row) is max,
        recipe=policy_over(daemon, row).name if jobs.kind[row] == Kind.TUNE else "",
        ended_by=ended_by(daemon, row),
        metrics=metrics,
        constraints=[str(each) for each in constraints],
        pareto=_front(daemon, row, values, metrics, others),
    )


LOOKS_MAX: Final = 10_000
"""So many trials are looked at for one answer, whether they keep constraints."""


def best_values(daemon: Daemon, rows: Iterable[int]) -> dict[int, float]:
    """By search among `rows` its best value as `family` has it; none of other jobs, where no trial
    has any, and where `LOOKS_MAX` trials were looked at before one was found. The journal's reports
    are read once, however many searches there are."""
    jobs = daemon.kernel.jobs
    searches = [row for row in rows if jobs.kind[row] == Kind.TUNE and jobs.parent[row] < 0]
    children = {row: children_of(jobs, row) for row in searches}
    last = last_reports(daemon.reader, list(chain.from_iterable(children.values())))
    looks, best = LOOKS_MAX, dict[int, float]()
    for row in searches:
        told = [(child, last[child][1]) for child in children[row] if child in last]
        values = [(child, value) for child, value in told if value is not None]
        values.sort(key=_value_of, reverse=better(daemon, row) is max)
        constraints = _goals(daemon, row)[1]
        for child, value in values:  # the best first: one look is mostly enough
            if constraints:
                looks -= 1
                if looks < 0 or not _kept(daemon, [child], constraints)[child]:
                    continue
            best[row] = value
            break
    return best


def _value_of(one: tuple[int, float]) -> float:
    return one[1]


def _goals(daemon: Daemon, row: int) -> tuple[dict[str, str], tuple[Constraint, ...]]:
    """The metrics of a search that count beside the one that judges, and its constraints."""
    known = daemon.reader.facts(row).family
    if known is None or daemon.kernel.jobs.kind[row] != Kind.TUNE:
        return {}, ()
    return known.metrics, constraints_of(policy_over(daemon, row))


def _front(
    daemon: Daemon,
    row: int,
    values: Sequence[tuple[int, float]],
    metrics: dict[str, str],
    others: dict[int, dict[str, float]],
) -> list[int]:
    """The numbers of the trials on the Pareto front; none where one metric counts."""
    if not metrics:
        return []
    points = [
        [value, *(others[child].get(name, math.nan) for name in metrics)] for child, value in values
    ]
    mode = "max" if better(daemon, row) is max else "min"
    return [values[at][0] + 1 for at in front(points, [mode, *metrics.values()])]


def services(daemon: Daemon) -> list[ServiceAnswer]:
    """The services that are not over, in order of submission, at most the last 1000."""
    jobs, n = daemon.kernel.jobs, daemon.kernel.jobs.n
    mine = (jobs.kind[:n] == Kind.SERVE) & (jobs.parent[:n] < 0)
    mine &= (jobs.phase[:n] < Phase.FINISHED) & (jobs.phase[:n] > Phase.DECLARED)
    return [_service(daemon, row) for row in np.flatnonzero(mine)[-SHOWN_MAX:].tolist()]


def _service(daemon: Daemon, row: int) -> ServiceAnswer:
    jobs = daemon.kernel.jobs
    part = daemon.tasks.get(row)
    family = [row, *children_of(jobs, row)]
    return ServiceAnswer(
        job=row + 1,
        label=str(row + 1) if part is None else f"{part[0] + 1}_{part[1]}",
        name=daemon.names[row],
        user=jobs.users[jobs.user[row]],
        tenant=jobs.tenants[jobs.tenant[row]],
        state=state_of(Phase(jobs.phase[row]), daemon.ends.get(row, ""))[0],
        gpus=sum(
            int(jobs.size[member]) for member in family if jobs.phase[member] in HOLDS_DEVICES
        ),
        replicas=counts(daemon, row),
        windows=[
            WindowAnswer(
                since=window.since / SECOND,
                until=window.until / SECOND,
                figures=dict(window.figures),
            )
            for window in daemon.kernel.facts.services.get(row, ())
        ],
    )


def refuse_other_than_service(daemon: Daemon, row: int) -> None:
    """Raise BadInput unless the job is a service."""
    jobs = daemon.kernel.jobs
    if jobs.kind[row] != Kind.SERVE or jobs.parent[row] >= 0:
        raise BadInput(
            f"job {row + 1} is not a service", where="jobs", mend="see `ganger service list`"
        )


def replicas(daemon: Daemon, row: int) -> list[ReplicaAnswer]:
    """The replicas of a service that are not over, at most the last 1000; one that no recipe scales
    is its only one. Raises BadInput for another job, and for one that is over."""
    refuse_other_than_service(daemon, row)
    jobs = daemon.kernel.jobs
    if jobs.phase[row] >= Phase.FINISHED:
        raise BadInput(f"job {row + 1} is over", where="jobs")
    rows = children_of(jobs, row) if _is_scaled(daemon, row) else [row]
    return [
        _replica(daemon, each) for each in rows[-SHOWN_MAX:] if jobs.phase[each] < Phase.FINISHED
    ]


def _is_scaled(daemon: Daemon, row: int) -> bool:
    """Whether a service has replicas of its own, or is to have some."""
    scaled = bool(daemon.header.serving) and not _placement(daemon, row)
    return scaled or bool(children_of(daemon.kernel.jobs, row))


def _placement(daemon: Daemon, row: int) -> Placement:
    """What a job holds; of one that leaves, what it held."""
    jobs, held = daemon.kernel.jobs, daemon.kernel.ledger.holds.get(row)
    if held is not None or jobs.phase[row] != Phase.STOPPING:
        return held[1] if held is not None else ()
    return daemon.reader.attempts(row)[-1].placement or ()


def _replica(daemon: Daemon, row: int) -> ReplicaAnswer:
    jobs, placement = daemon.kernel.jobs, _placement(daemon, row)
    attempt, phase = int(jobs.attempt[row]), Phase(jobs.phase[row])
    node = placement[0].node if placement else -1
    progress, port = daemon.engine.progress.get(row), 0
    if progress is not None and progress.key.attempt == attempt and phase in HOLDS_DEVICES:
        port = int(progress.served.get(PORT, 0))
    return ReplicaAnswer(
        job=row + 1,
        attempt=attempt,
        state=state_of(phase, daemon.ends.get(row, ""))[0],
        node=daemon.kernel.nodes.names[node] if placement else "",
        host=daemon.engine.host(node) if placement else "",
        port=port,
        leaving=phase == Phase.STOPPING,
    )


def reports(daemon: Daemon, row: int, after: int, limit: int) -> list[ReportAnswer]:
    """What a job, or the trials of a search, reported beyond the report `after`, in order."""
    jobs = daemon.kernel.jobs
    rows = children_of(jobs, row) if jobs.kind[row] == Kind.TUNE else [row]
    began = dict[int, int]()
    answers = list[ReportAnswer]()
    for report in some_reports(daemon.reader, rows, after, limit):
        if report.job not in began:
            began[report.job] = daemon.reader.attempts(report.job)[0].started
        answers.append(
            ReportAnswer(
                id=report.id,
                job=report.job + 1,
                step=report.epoch,
                seconds=(report.at - began[report.job]) / SECOND,
                value=report.value,
                metrics=report.metrics,
            )
        )
    return answers


def _kept(
    daemon: Daemon, last: Iterable[int], constraints: tuple[Constraint, ...]
) -> dict[int, bool]:
    """By trial that reported, whether it keeps the constraints."""
    rows = list(last)
    others = last_metrics(daemon.reader, rows) if constraints else {}
    return {child: feasible(constraints, others.get(child)) for child in rows}


def ended_by(daemon: Daemon, row: int) -> str:
    """Which limit a search came to that has ended, in words; "" for none, of one that runs, and of
    another job."""
    jobs = daemon.kernel.jobs
    if jobs.kind[row] != Kind.TUNE or jobs.parent[row] >= 0 or jobs.phase[row] != Phase.FINISHED:
        return ""
    policy = policy_over(daemon, row)
    if not isinstance(policy, Limited):
        return ""
    mode, limits = getattr(policy.inner, "mode", Mode.MIN), policy.limits
    last = dict[int, tuple[float, float | None]]()
    if limits.epochs < NEVER or limits.target is not None:
        last = last_reports(daemon.reader, children_of(jobs, row))
    kept = _kept(daemon, last, limits.constraints)
    seconds = int(jobs.finished[row] - jobs.submitted[row]) / SECOND
    hours = int(jobs.held[row]) / HOUR
    return reached(
        limits,
        seconds,
        sum(step for step, _ in last.values()),
        hours,
        _due(daemon, row, hours),
        hit=any(
            value is not None and kept[child] and limits.hit(value, mode)
            for child, (_, value) in last.items()
        ),
    )


def _due(daemon: Daemon, row: int, hours: float) -> float:
    """What a search that held so many GPU-hours would have to pay a moment after its end."""
    nodes = daemon.kernel.nodes
    rates = rates_of(nodes.type_specs, {})
    if not any(rate.coarse for rate in rates):
        return hours * max((rate.price for rate in rates), default=0.0)
    held = [
        Segment(0, attempt.started / SECOND, attempt.ended / SECOND, slot.node, slot.devices)
        for attempt in daemon.reader.attempts(row)
        for slot in attempt.placement or ()
        if 0 <= attempt.started <= attempt.ended
    ]
    return bill(held, [rates[code] for code in nodes.gpu_type[: nodes.n].tolist()], longer=1)


def better(daemon: Daemon, parent: int) -> Callable[..., tuple[int, float]]:
    """`min` or `max`: which values the recipe over the trials of a search likes."""
    policy = policy_over(daemon, parent)
    mode = getattr(getattr(policy, "inner", policy), "mode", Mode.MIN)
    return max if mode is Mode.MAX else min


def sentences(daemon: Daemon, row: int) -> list[str]:
    """What there is to say of a job's family."""
    jobs, parent = daemon.kernel.jobs, int(daemon.kernel.jobs.parent[row])
    if parent >= 0:
        what = "a trial" if jobs.kind[parent] == Kind.TUNE else "a replica"
        found = [f"It is {what} of job {parent + 1}{_where(daemon, row, parent)}."]
        told = last_reports(daemon.reader, [row]).get(row)
        if told is not None:
            found.append(f"It last reported {_value(told[1])} after step {told[0]:g}.")
        return found
    said = counts(daemon, row)
    if not said:
        return _wanted(daemon, row)
    what = "trials" if jobs.kind[row] == Kind.TUNE else "replicas"
    listed = ", ".join(f"{number} {state.lower()}" for state, number in said.items())
    found = [f"Its {what}: {listed}.", *_wanted(daemon, row)]
    known = family(daemon, row)
    if known is not None and known.ended_by:
        found.append(f"It came to {known.ended_by}, which ended its trials.")
    if known is not None and known.best is not None:
        found.append(_best(known.children, known.best, known.metric))
    windows = daemon.kernel.facts.services.get(row)
    if windows:
        last = windows[-1].figures
        figures = ", ".join(f"{name} {value:.3g}" for name, value in sorted(last.items()))
        found.append(f"Its last window: {figures}.")
    return found


def _wanted(daemon: Daemon, row: int) -> list[str]:
    """What a search waits for that a program outside proposes for it."""
    wanted = daemon.proposing.wanted(row)
    if not wanted or daemon.kernel.jobs.phase[row] >= Phase.FINISHED:
        return []
    return [
        f"It waits for {wanted} configuration{'s' * (wanted > 1)}, which the program proposes that"
        f" submitted it: `ganger tune follow {row + 1} --searcher FILE.py:CLASS` goes on."
    ]


def _where(daemon: Daemon, row: int, parent: int) -> str:
    """In whose books it is placed, where that is not plain."""
    return f", on what job {parent + 1} holds" if daemon.kernel.jobs.within[row] >= 0 else ""


def _best(children: Sequence[ChildAnswer], best: int, metric: str) -> str:
    for child in children:
        if child.job == best:
            what = f" ({spoken(child.params)})" if child.params else ""
            name = f" {metric}" if metric else ""
            return (
                f"The best is job {best}{what}:{name} {_value(child.value)}"
                f" after step {child.step:g}."
            )
    return f"The best is job {best}."


def _value(value: float | None) -> str:
    return "that it broke down" if value is None else f"{value:.6g}"
