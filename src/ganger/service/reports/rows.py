"""The kernel's tables as answers. Each function wants the daemon's lock."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.client.answers import (
    AttemptAnswer,
    Explanation,
    JobAnswer,
    JobDetail,
    JobPage,
    NodeAnswer,
    Quota,
    Share,
)
from ganger.client.states import exit_code, phases_of, state_of
from ganger.core.books.bits import members
from ganger.core.errors import BadInput
from ganger.core.plan import Placement
from ganger.core.spec import Kind, OnPreempt
from ganger.core.state.jobs import HOLDS_DEVICES, Jobs, Phase
from ganger.core.units import HOUR, NEVER, SECOND, WHOLE
from ganger.engines.agent.protocol import Used
from ganger.engines.machines import Box
from ganger.lab.ahead import explaining
from ganger.lab.ahead.explaining import Measured, Scene
from ganger.lab.ahead.whatif import Outlook
from ganger.mechanisms.common.budgets import budgets_spent
from ganger.service.daemon import Daemon
from ganger.service.durable.recovery import guard_of
from ganger.service.jobs.launches import pattern
from ganger.service.jobs.rights import Rights
from ganger.service.reports import families
from ganger.service.reports.costs import cost_of

NAMED_MAX: Final = 1000
"""How many jobs and arrays one request may name."""
_JOB = re.compile(r"([0-9]{1,12})(?:_([0-9]{1,12}))?")


class NoSuch(BadInput):
    """There is no such job or node."""


def span(time: int) -> float | None:
    """Seconds, None for never and for what has not been."""
    return time / SECOND if 0 <= time < NEVER else None


def label(daemon: Daemon, row: int) -> str:
    """What people call a job: its number, or `ARRAY_TASK`."""
    part = daemon.tasks.get(row)
    return str(row + 1) if part is None else f"{part[0] + 1}_{part[1]}"


def rows_of(daemon: Daemon, text: str | int) -> list[int]:
    """The rows that `12`, `12_3` (a task) or `12` (an array, by its first task) stand for."""
    named = _JOB.fullmatch(str(text).strip())
    if named is None:
        raise BadInput(
            f"{str(text)[:80]!r} is not a valid job number", mend="write like 12 or 12_3"
        )
    number, task = named.groups()
    row = int(number) - 1
    jobs = daemon.kernel.jobs
    if not 0 <= row < jobs.n:
        raise NoSuch(f"no job {text}", mend="`ganger queue --all` lists them")
    part = daemon.tasks.get(row)
    if task is None:
        if part is None or part[0] != row:
            return [row]
        return np.flatnonzero(jobs.array[: jobs.n] == jobs.array[row]).tolist()
    if part is not None and part[0] == row:
        after = min(row + max(int(task) - part[1], 0) + 1, jobs.n)  # tasks stand in order
        key = lambda one: daemon.tasks.get(one, (jobs.n, 0))  # noqa: E731
        found = bisect_left(range(after), (row, int(task)), row, key=key)
        if daemon.tasks.get(found) == (row, int(task)):
            return [found]
    raise NoSuch(f"no job {text}", mend=f"`ganger show {number}` shows the array")


def rows_listed(daemon: Daemon, text: str) -> list[int]:
    """The rows of jobs with commas between them, each once. Raises BadInput."""
    parts = (part.strip() for part in text.split(","))
    named = dict.fromkeys(part.lstrip("0") or part[:1] for part in parts)
    if len(named) > NAMED_MAX:
        raise BadInput(f"more than {NAMED_MAX} jobs are named", where="jobs", mend="ask in parts")
    return list(dict.fromkeys(row for job in named for row in rows_of(daemon, job)))


def reason_of(daemon: Daemon, row: int) -> str:
    """Slurm's word for why a job waits, or how it ended; "" while it runs or ended well."""
    kernel = daemon.kernel
    phase = Phase(kernel.jobs.phase[row])
    if phase == Phase.CANCELLED:
        before = kernel.jobs.phase[list(kernel.jobs.after.get(row, ()))]
        never = ((before == Phase.FAILED) | (before == Phase.CANCELLED)).any()
        if not never and kernel.jobs.first_start[row] < 0:
            never = daemon.reader.facts(row).waits_for.opens(kernel.jobs) == NEVER
        return "DependencyNeverSatisfied" if never else ""
    if phase >= Phase.FINISHED:
        return daemon.ends.get(row, "") if phase == Phase.FAILED else ""
    if row in kernel.paused:
        return "Paused"
    if phase == Phase.BLOCKED:
        return "Dependency" if row in kernel.blockers else daemon.gates.reason(row) or "Priority"
    if phase != Phase.PENDING:
        return explaining.reason_suspended(kernel, row)
    return scene_of(daemon).reason_of(row)


def scene_of(daemon: Daemon) -> Scene:
    """What there is to say of jobs that wait."""
    kernel = daemon.kernel
    return Scene(
        kernel,
        daemon.plan,
        daemon.header.policy,
        guard_of(kernel).policy,
        daemon.now(),
        lambda row: label(daemon, row),
        daemon.warnings,
        lambda row: measured(daemon, row),
    )


def measured(daemon: Daemon, row: int) -> Measured:
    """For which part of the time a job may compute, and how fast it is beside others, as agents saw
    its slowest part last; where they do not know its speed, as its own first steps were."""
    every: dict[object, Used] = getattr(daemon.engine, "uses", {})
    jobs = daemon.kernel.jobs
    attempt = int(jobs.attempt[row])
    uses = [use for use in list(every.values()) if use.key.both == (row, attempt)]
    speeds = [use.speed for use in uses if use.speed > 0.0]
    shares = any(slot.share for slot in _held(daemon, row))
    if not speeds and shares and daemon.progress(row) and jobs.rate[row] > 0.0:
        speeds = [float(jobs.rate[row])]
    return Measured(min((use.rate for use in uses), default=None), min(speeds, default=None))


def in_use(daemon: Daemon, row: int) -> tuple[float | None, float | None]:
    """How busy a job's GPUs are (a part of the time) and how many cores it uses, as agents saw it
    last; None where they do not measure it."""
    every: dict[object, Used] = getattr(daemon.engine, "uses", {})
    attempt = int(daemon.kernel.jobs.attempt[row])
    uses = [use for use in list(every.values()) if use.key.both == (row, attempt)]
    busy = [use.gpu for use in uses if use.gpu >= 0.0]
    return (
        sum(busy) / len(busy) if busy else None,
        sum(use.cores for use in uses) if uses else None,
    )


def job_answer(daemon: Daemon, row: int) -> JobAnswer:
    """One job, as lists show it."""
    return JobAnswer(**_common(daemon, row))


def _common(daemon: Daemon, row: int) -> dict[str, Any]:
    kernel = daemon.kernel
    jobs = kernel.jobs
    phase = Phase(jobs.phase[row])
    state, code = state_of(phase, daemon.ends.get(row, ""))
    shape = jobs.shapes[jobs.shape[row]]
    yields = phase == Phase.SUSPENDED and not jobs.size[row]
    ran = int(jobs.ran[row])
    if phase == Phase.RUNNING:
        ran += daemon.now() - int(jobs.since[row])
    return {
        "job": row + 1,
        "label": label(daemon, row),
        "name": daemon.names[row],
        "user": jobs.users[jobs.user[row]],
        "tenant": jobs.tenants[jobs.tenant[row]],
        "state": state,
        "code": code,
        "reason": reason_of(daemon, row),
        "gpus": int(jobs.size[row] if phase in HOLDS_DEVICES and not yields else jobs.gpus[row]),
        "share": shape.roles[0].needs.share / WHOLE,
        "gpu_types": list(shape.gpu_types),
        "priority": int(jobs.priority[row]),
        "submitted": int(jobs.submitted[row]) / SECOND,
        "started": span(int(jobs.first_start[row])),
        "finished": span(int(jobs.finished[row])),
        "ran": max(ran, 0) / SECOND,
        "time_limit": span(int(jobs.limit[row])),
        "nodes": _nodes(daemon, _held(daemon, row)),
        "exit_code": exit_code(phase, daemon.ends.get(row, "")),
        "attempt": int(jobs.attempt[row]),
        "preemptions": int(jobs.preemptions[row]),
        "parent": int(jobs.parent[row]) + 1 or None,
        "children": families.counts(daemon, row),
        "ended_by": families.ended_by(daemon, row),
    }


def foreseen(answer: JobAnswer | Explanation, ahead: Outlook | None) -> None:
    """Say in an answer when its job is expected to start."""
    if ahead is not None:
        answer.expected_start = ahead.expected / SECOND
        answer.expected_start_low = ahead.low / SECOND
        answer.expected_start_high = ahead.high / SECOND


def _held(daemon: Daemon, row: int) -> Placement:
    held = daemon.kernel.ledger.holds.get(row)
    if held is None and daemon.kernel.jobs.within[row] >= 0:
        return daemon.kernel.placements().get(row, ())
    return held[1] if held is not None else ()


def _nodes(daemon: Daemon, placement: Placement) -> list[str]:
    names = daemon.kernel.nodes.names
    return list(dict.fromkeys(names[slot.node] for slot in placement))


def devices(daemon: Daemon, row: int, attempt: int, placement: Placement) -> list[str]:
    """What an attempt has in words, `box:0,1,2`: the GPUs that its machines chose, if they did and
    still know, else those of its placement."""
    names, chosen = daemon.kernel.nodes.names, daemon.engine.devices(row, attempt)
    held: dict[int, int] = {}
    for slot in placement:
        held[slot.node] = held.get(slot.node, 0) | slot.devices
    found = {
        names[node]: chosen.get(names[node]) or tuple(members(mask)) for node, mask in held.items()
    }
    return [f"{name}:{','.join(map(str, gpus)) or '-'}" for name, gpus in found.items()]


def job_detail(daemon: Daemon, row: int) -> JobDetail:
    """All about one job."""
    kernel = daemon.kernel
    jobs, facts = kernel.jobs, daemon.reader.facts(row)
    shape, launch = jobs.shapes[jobs.shape[row]], facts.launch
    needs = shape.roles[0].needs
    phase = Phase(jobs.phase[row])
    pended, served = int(jobs.pended[row]), int(jobs.served[row])
    if phase == Phase.RUNNING:
        served += (daemon.now() - int(jobs.since[row])) * int(jobs.size[row])
    if phase == Phase.PENDING:
        pended += daemon.now() - int(jobs.pending_since[row])
    attempts = daemon.reader.attempts(row)
    seen = measured(daemon, row) if phase == Phase.RUNNING else Measured()
    done = phase == Phase.FINISHED and attempts and attempts[-1].outcome == "Preempted"
    retired = attempts[-1] if done else None  # it was stopped since it was wanted no more
    common, its_family = _common(daemon, row), families.family(daemon, row)
    if its_family is not None and len(its_family.children) == sum(common["children"].values()):
        common["children"] = dict(
            sorted(Counter(each.state for each in its_family.children).items())
        )
    busy, cores = in_use(daemon, row) if phase == Phase.RUNNING else (None, None)
    hours, cost = cost_of(daemon, row, attempts)
    return JobDetail(
        **common,
        gpu_busy=busy,
        cores=cores,
        gpu_hours=hours,
        cost=cost,
        command=list(launch.command),
        script=bool(facts.script),
        cwd=launch.cwd,
        output=pattern(launch.output, facts, row),
        error=pattern(launch.error, facts, row),
        cpus=needs.cpus / WHOLE,
        memory=needs.memory,
        workers=sum(role.size for role in shape.roles),
        least_gpus=shape.least,
        most_gpus=shape.most,
        deadline=span(int(jobs.deadline[row])),
        estimate=span(int(jobs.estimate[row])),
        begin=span(facts.begin) or None,
        after=[before + 1 for before in (*jobs.after.get(row, ()), *facts.waits_for.rows)],
        on_preempt=OnPreempt(jobs.on_preempt[row]).name.lower(),
        kind=Kind(jobs.kind[row]).name.lower(),
        attained_gpu_seconds=served / SECOND,
        pending=pended / SECOND,
        retries=launch.retries,
        progress=daemon.progress(row),
        rate=seen.rate,
        speed=seen.speed,
        params=facts.params,
        family=its_family,
        attempts=[
            AttemptAnswer(
                attempt=one.attempt,
                started=span(one.started),
                ended=span(one.ended),
                outcome=one.outcome if one is not retired else "",
                note=one.note,
                devices=devices(daemon, row, one.attempt, one.placement or ()),
            )
            for one in attempts
        ],
    )


def _matching(daemon: Daemon, filters: dict[str, str]) -> NDArray[np.int64]:
    jobs = daemon.kernel.jobs
    n = jobs.n
    phase = jobs.phase[:n]
    wanted = phases_of((filters.get("state") or "active").split(","))
    mask = np.isin(phase, [int(one) for one in wanted])
    for column, names in (("user", jobs.users), ("tenant", jobs.tenants)):
        if filters.get(column):
            mask &= getattr(jobs, column)[:n] == names.find(filters[column])
    if filters.get("kind"):
        if filters["kind"] not in (kind.name.lower() for kind in Kind):
            raise BadInput(f"{filters['kind']!r} is not a valid kind of job", where="kind")
        mask &= jobs.kind[:n] == Kind[filters["kind"].upper()]
    if filters.get("jobs"):
        mask &= np.isin(np.arange(jobs.n), rows_listed(daemon, filters["jobs"].strip(",")))
    if filters.get("alone"):
        mask &= jobs.parent[:n] < 0
    since = float(filters.get("since", 0))
    if since:
        mask &= jobs.finished[:n] >= since * SECOND
    rows = np.flatnonzero(mask)
    if filters.get("name"):
        part = filters["name"]
        rows = np.array([row for row in rows.tolist() if part in daemon.names[row]], np.int64)
    if filters.get("find"):
        rows = _found(daemon, rows, filters["find"].casefold())
    return rows


def _found(daemon: Daemon, rows: NDArray[np.int64], part: str) -> NDArray[np.int64]:
    """Those with `part` (folded) in their name, user or tenant, and the one with this number."""
    jobs = daemon.kernel.jobs
    mask = np.zeros(len(rows), bool)
    for column, names in ((jobs.user, jobs.users), (jobs.tenant, jobs.tenants)):
        meant = [code for code, name in enumerate(names) if part in name.casefold()]
        mask |= np.isin(column[rows], meant)
    for at in np.flatnonzero(~mask).tolist():
        row = int(rows[at])
        mask[at] = part in daemon.names[row].casefold() or part == label(daemon, row)
    return rows[mask]


def _sorted(daemon: Daemon, rows: NDArray[np.int64], by: str) -> NDArray[np.int64]:
    """In the order of a column, with - before it downwards; jobs that are equal in order of
    submission. Raises BadInput."""
    jobs, name = daemon.kernel.jobs, by.removeprefix("-")
    ran = jobs.ran[rows] + np.where(
        jobs.phase[rows] == Phase.RUNNING, daemon.now() - jobs.since[rows], 0
    )
    columns: dict[str, Callable[[], NDArray[Any]]] = {
        "gpus": lambda: jobs.gpus[rows],
        "priority": lambda: jobs.priority[rows],
        "submitted": lambda: jobs.submitted[rows],
        "started": lambda: jobs.first_start[rows],
        "ran": lambda: ran,
        "user": lambda: _ranks(list(jobs.users))[jobs.user[rows]],
        "tenant": lambda: _ranks(list(jobs.tenants))[jobs.tenant[rows]],
    }
    if name not in columns:
        raise BadInput(f"{by!r} is not a valid order", where="sort", mend=", ".join(columns))
    key = columns[name]().astype(np.int64)
    return rows[np.lexsort((rows, -key if by.startswith("-") else key))]


def _ranks(names: list[str]) -> NDArray[np.int64]:
    """The place of each name in the order of all."""
    return np.argsort(np.argsort(np.array(names, object))) if names else np.zeros(0, np.int64)


def job_page(daemon: Daemon, filters: dict[str, str], offset: int, limit: int) -> JobPage:
    """Jobs that match, in the order of `sort`; without it those that hold devices first, then those
    that wait (by priority and submission), then those that are over, the last first."""
    rows = _matching(daemon, filters)
    if filters.get("sort"):
        return _page(daemon, _sorted(daemon, rows, filters["sort"]), offset, limit, filters)
    jobs = daemon.kernel.jobs
    phase = jobs.phase[rows]
    over = phase >= Phase.FINISHED
    group = np.where(over, 2, np.where(phase >= Phase.STARTING, 0, 1))
    within = np.where(over, -jobs.finished[rows], np.where(group == 1, -jobs.priority[rows], 0))
    return _page(daemon, rows[np.lexsort((rows, within, group))], offset, limit, filters)


def _page(
    daemon: Daemon,
    ordered: NDArray[np.int64],
    offset: int,
    limit: int,
    filters: dict[str, str],
) -> JobPage:
    page = ordered[offset : offset + limit].tolist()
    end = offset + len(page)
    answers = [job_answer(daemon, row) for row in page]
    if filters.get("best"):
        best = families.best_values(daemon, page)
        for row, answer in zip(page, answers, strict=True):
            answer.best = best.get(row)
    return JobPage(
        jobs=answers,
        total=len(ordered),
        offset=offset,
        next=end if end < len(ordered) else None,
    )


def node_answers(daemon: Daemon) -> list[NodeAnswer]:
    """All nodes."""
    answers = explaining.node_answers(daemon.kernel)
    boxes: dict[str, Box] = getattr(daemon.engine, "boxes", {})
    for box in list(boxes.values()):
        for node in box.nodes:
            answers[node].sharing = box.hello.sharing
    return answers


def quotas(daemon: Daemon, rights: Rights) -> list[Quota]:
    """What each tenant may have that somebody set something for."""
    ceilings = daemon.gates.ceilings
    limits = {name: gpus for (kind, name), gpus in ceilings.most.items() if kind == "tenant"}
    specs = {spec.name: spec for spec in daemon.header.cluster.tenants}
    spent = budgets_spent(daemon.kernel.view, daemon.kernel.memory, daemon.now())
    return [
        Quota(
            tenant=name,
            limit=limits[name] / WHOLE if name in limits else None,
            let_in=ceilings.taken(("tenant", name)) / WHOLE if name in limits else None,
            waiting=ceilings.waiting(("tenant", name)),
            quota=specs[name].quota if name in specs and specs[name].quota >= 0 else None,
            weight=specs[name].weight if name in specs else 1.0,
            members=rights.of(name).members,
            max_priority=rights.of(name).max_priority,
            max_weight=rights.of(name).max_weight,
            budget=specs[name].budget if name in spent else None,
            spent=spent.get(name),
            beyond=specs[name].beyond if name in specs else "warn",
        )
        for name in sorted({*limits, *specs, *rights.tenants})
    ]


def gpu_parts(jobs: Jobs) -> NDArray[np.float64]:
    """The part of each of its GPUs that every job uses: 1, or its share; of a trial nothing, since
    its search holds them."""
    parts = [shape.roles[0].needs.share / WHOLE for shape in jobs.shapes]
    return np.array(parts, np.float64)[jobs.shape[: jobs.n]] * (jobs.within[: jobs.n] < 0)


def shares(daemon: Daemon) -> list[Share]:
    """What each tenant has used, holds, and waits for."""
    kernel = daemon.kernel
    jobs, n, now = kernel.jobs, kernel.jobs.n, daemon.now()
    tenant, phase = jobs.tenant[:n], jobs.phase[:n]
    running = (phase >= Phase.STARTING) & (phase <= Phase.STOPPING)
    lasting = np.where(phase == Phase.RUNNING, now - jobs.since[:n], 0)
    part = gpu_parts(jobs)
    served = (jobs.served[:n] + lasting * jobs.size[:n]) * part
    lost = jobs.lost[:n] * jobs.gpus[:n] * part
    weights = {spec.name: spec.weight for spec in daemon.header.cluster.tenants}
    codes = sorted(set(tenant.tolist()))
    total = float(served.sum()) or 1.0
    weight = sum(weights.get(jobs.tenants[code], 1.0) for code in codes) or 1.0
    return [
        Share(
            tenant=jobs.tenants[code],
            running=int((running & (tenant == code)).sum()),
            pending=int(((phase == Phase.PENDING) & (tenant == code)).sum()),
            gpus=float((jobs.size[:n] * part)[running & (tenant == code)].sum()),
            gpu_hours=float(served[tenant == code].sum()) / HOUR,
            lost_gpu_hours=float(lost[tenant == code].sum()) / HOUR,
            usage_share=float(served[tenant == code].sum()) / total,
            fair_share=weights.get(jobs.tenants[code], 1.0) / weight,
        )
        for code in codes
    ]
