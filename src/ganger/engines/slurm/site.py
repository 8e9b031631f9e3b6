"""A site's own jobs as Slurm lists them: what each asks for, holds and waits for, in plain words.

From `squeue --json` in the forms of 22.05 to 24.11, and as lines of `sacct`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.units import MINUTE, NEVER, SECOND, format_duration
from ganger.engines.slurm.calls.answers import Job, Node, job_of, rows_of
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.calls.hostlist import expand
from ganger.engines.slurm.where import Where, where_of

_COLUMNS: Final = (
    "JobID", "JobName", "User", "Account", "Partition", "QOS", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "State", "AllocTRES", "ReqTRES", "NodeList", "Priority",
)  # fmt: skip
_ASKS: Final = (("tres_per_job", ""), ("tres_per_node", "node_count"), ("tres_per_task", "tasks"))
_ASKED: Final = re.compile(r"(?:gres[/:])?gpu((?:[:=][^,()]+)?)")
_HELD: Final = frozenset(
    {
        "JobHeldUser",
        "JobHeldAdmin",
        "Dependency",
        "DependencyNeverSatisfied",
        "BeginTime",
        "JobHoldMaxRequeue",
    }
)
_AT_MOST: Final = 5
REASONS: Final = {
    "AccountNotAllowed": "its account may not use this partition",
    "AssocGrpCPUMinutesLimit": "its account has used up its CPU time",
    "AssocGrpGRES": "its account holds as many GPUs as it may",
    "AssocGrpGRESMinutes": "its account has used up its GPU time",
    "AssocGrpJobsLimit": "its account runs as many jobs as it may",
    "AssocGrpNodeLimit": "its account holds as many nodes as it may",
    "AssocMaxGRESPerJob": "it asks for more GPUs than its account may have in one job",
    "AssocMaxJobsLimit": "its user runs as many jobs as the account lets one user run",
    "AssocMaxWallDurationPerJobLimit": "its time limit is longer than its account may ask for",
    "BadConstraints": "no node has all that it asks for",
    "BeginTime": "it may not begin yet",
    "Cleaning": "its last run is still being cleaned up",
    "Dependency": "it waits for other jobs to end",
    "DependencyNeverSatisfied": "a job that it waits for ended otherwise than it needs: "
    "it will never start",
    "JobArrayTaskLimit": "as many tasks of its array run as its user wants at once",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its user holds it (scontrol release)",
    "JobHoldMaxRequeue": "it was put back in line too often and is held (scontrol release)",
    "Licenses": "the licences that it needs are in use",
    "MaxGRESPerAccount": "its account holds as many GPUs as the QOS allows",
    "NodeDown": "a node that it needs is down",
    "None": "Slurm has not looked at it yet",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is longer than its partition allows",
    "Priority": "other jobs come first",
    "QOSGrpGRES": "the jobs of its QOS hold as many GPUs as they may together",
    "QOSGrpNodeLimit": "the jobs of its QOS hold as many nodes as they may together",
    "QOSMaxGRESPerUser": "its user holds as many GPUs as the QOS allows",
    "QOSMaxJobsPerUserLimit": "its user runs as many jobs as the QOS allows",
    "QOSMaxWallDurationPerJobLimit": "its time limit is longer than its QOS allows",
    "ReqNodeNotAvail": "a node that it asks for is down, drained or reserved",
    "Reservation": "it waits for its reservation to begin",
    "Resources": "the GPUs, cores or memory that it asks for are not free",
}
"""Slurm's reasons for waiting, in plain words."""

_UNLIMITED: Final = 365 * 24 * 60
"""Minutes: what Slurm gives a job that has no limit, once it runs."""


class Listed(msgspec.Struct, frozen=True):
    """A job of the site. Times in microseconds since the epoch, 0 for not yet; for a job that
    waits, `started` is when Slurm means to start it. `gpus` in all, of `gpu_type` if it names one,
    over `nodes` nodes; `array` is the number of the array that it is a task of, 0 for none."""

    job: Job
    user: str
    account: str
    partition: str
    qos: str
    priority: int
    submitted: int
    started: int
    ended: int
    limit: int
    gpus: int
    gpu_type: str
    nodes: int
    array: int
    task: int
    where: Where = Where()

    @property
    def is_held(self) -> bool:
        """Whether it could not start if all GPUs were free."""
        return self.job.reason in _HELD

    @property
    def label(self) -> str:
        """Its number as people write it."""
        return f"{self.array}_{self.task}" if self.array else str(self.job.number)


def _number(row: Mapping[str, Any], name: str) -> int:
    """A number that may be in a struct of its own; 0 where it is not set or infinite."""
    value = row.get(name)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else 0
    return value if isinstance(value, int) and 0 <= value < (1 << 32) - 2 else 0


def _asked(text: str) -> tuple[int, str]:
    """GPUs and their type in `gres:gpu:v100:2`; a number that is not said is 1."""
    total, kind = 0, ""
    for words in _ASKED.findall(text):
        parts = re.split("[:=]", words)[1:]
        count = parts.pop() if parts and parts[-1].isdecimal() else "1"
        total, kind = total + int(count), parts[0] if parts else kind
    return total, kind


def _gpus(row: Mapping[str, Any], job: Job) -> tuple[int, str]:
    total, kind = 0, ""
    for name, times in _ASKS:
        count, named = _asked(row.get(name) or "")
        if count:
            total, kind = count * max(_number(row, times) if times else 1, 1), named
            break
    return sum(map(len, job.gpus.values())) or total, kind


def listed_of(text: str, command: str = "squeue --json") -> list[Listed]:
    """The jobs in `squeue --json --states=all`. Raises BadInput."""
    found = []
    for row in rows_of(text, command, "jobs"):
        job = job_of(row, command)
        gpus, kind = _gpus(row, job)
        minutes, where = _number(row, "time_limit"), where_of(row)
        found += [
            Listed(
                job=job,
                user=row.get("user_name") or "",
                account=row.get("account") or "",
                partition=row.get("partition") or "",
                qos=row.get("qos") or "",
                priority=_number(row, "priority"),
                submitted=_number(row, "submit_time") * SECOND,
                started=_number(row, "start_time") * SECOND,
                ended=_number(row, "end_time") * SECOND,
                limit=minutes * MINUTE if 0 < minutes < _UNLIMITED else NEVER,
                gpus=gpus,
                gpu_type=kind,
                nodes=max(len(job.nodes) or _number(row, "node_count"), 1),
                array=_number(row, "array_job_id") if task >= 0 else 0,
                task=task,
                where=where,
            )
            for task in _tasks(row)
        ]
    return found


def _tasks(row: Mapping[str, Any]) -> list[int]:
    """The tasks of an array that the row stands for; -1 for a job that is no array's."""
    task, several = row.get("array_task_id"), row.get("array_task_string") or ""
    if isinstance(task, dict):
        task = task.get("number") if task.get("set", False) else None
    if isinstance(task, int):
        return [task]
    several = several.partition("%")[0]
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", several):  # none, or cut short by Slurm
        return [-1]
    return [int(number) for number in expand(f"[{several}]")]


# ---------------------------------------------------------------------- accounting


def accounting(client: Client, since_days: float) -> tuple[str, str]:
    """The site's jobs as `sacct --parsable2` writes them, and where they come from: its accounting
    or, if it keeps none, what the controller still remembers. Raises BadInput, Away."""
    try:
        return client.sacct(_COLUMNS, since_days), "sacct"
    except BadInput as error:
        jobs = listed_of(client.listing())
        return lines_of(jobs), f"the controller's memory (sacct: {error.what})"


def lines_of(jobs: Iterable[Listed]) -> str:
    """Jobs as lines of `sacct --parsable2`, with their header."""
    lines = ["|".join(_COLUMNS)]
    for one in jobs:
        over = one.job.is_over
        ended = one.ended if over else 0
        started = one.started if over or one.job.holds else 0
        gpus = f"gres/gpu{':' + one.gpu_type if one.gpu_type else ''}={one.gpus}"
        tres = gpus if one.gpus else ""
        state = next(iter(sorted(one.job.states)), "")
        lines.append(
            "|".join(
                (
                    one.label,
                    one.job.name.replace("|", "_").replace("\n", " "),
                    one.user,
                    one.account,
                    one.partition,
                    one.qos,
                    _when(one.submitted),
                    _when(started),
                    _when(ended),
                    str(max(ended - started, 0) // SECOND if started else 0),
                    str(one.limit // MINUTE) if one.limit < NEVER else "UNLIMITED",
                    state,
                    tres if started else "",
                    tres,
                    ",".join(one.job.nodes),
                    str(one.priority),
                )
            )
        )
    return "\n".join(lines) + "\n"


def _when(at: int) -> str:
    if not at:
        return "Unknown"
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# ---------------------------------------------------------------------- why a job waits


def called(number: str, jobs: Sequence[Listed]) -> Listed | None:
    """The job of that number; `12_[3-5]`, as squeue shows what is left of an array, is its first
    task that waits."""
    number = number.partition("_[")[0]
    found = [one for one in jobs if number in (one.label, str(one.job.number), str(one.array))]
    return next((one for one in found if one.job.is_pending), next(iter(found), None))


def explained(
    number: str, jobs: Sequence[Listed], nodes: Sequence[Node], now: int
) -> tuple[Listed, list[str]]:
    """The job of that number, and in sentences why it is where it is. Raises BadInput."""
    one = called(number, jobs)
    if one is None:
        raise BadInput(f"Slurm knows no job {number}", mend="`squeue` lists them")
    if not one.job.is_pending:
        there = ", ".join(one.job.nodes)
        return one, [f"It is {_words(one.job.states)}{f' on {there}' if there else ''}."]
    said = one.job.reason or "None"
    word = said.split(",")[0].strip("()")
    plain = REASONS.get(word, f"Slurm gives a reason that is not known here: {said}")
    kind = f" of type {one.gpu_type}" if one.gpu_type else ""
    spread = f" on {one.nodes} nodes" if one.nodes > 1 else ""
    lasts = format_duration(max(now - one.submitted, 0))
    gpus = f"{one.gpus} GPU{'s' if one.gpus != 1 else ''}"
    lines = [
        f"{plain[0].upper()}{plain[1:]}.",
        f"It has waited {lasts} for {gpus}{kind}{spread}.",
        *one.where.lines(),
    ]
    if ignored := one.where.not_understood(one.nodes):
        lines.append(f"What follows ignores {ignored}.")
    lines += _line_of(one, jobs)
    lines += _supply_of(one, jobs, nodes)
    if one.started > now:
        lines.append(f"Slurm means to start it in {format_duration(one.started - now)}.")
    return one, lines


def _words(states: Iterable[str]) -> str:
    return ", ".join(state.lower().replace("_", " ") for state in sorted(states))


def _line_of(one: Listed, jobs: Sequence[Listed]) -> list[str]:
    """Its place among those that wait for the same partition."""
    line = sorted(
        (
            other
            for other in jobs
            if other.job.is_pending and not other.is_held and other.partition == one.partition
        ),
        key=lambda other: (-other.priority, other.job.number),
    )
    if one not in line:
        return []
    return [
        f"By priority it is number {line.index(one) + 1} of {len(line)} that wait for partition"
        f" {one.partition}."
    ]


def _supply_of(one: Listed, jobs: Sequence[Listed], nodes: Sequence[Node]) -> list[str]:
    """Of the GPUs that would do: how many are free, who holds the others, what is out of use."""
    could = [
        node
        for node in nodes
        if node.gpus
        and (not one.gpu_type or one.gpu_type in node.gpus)
        and one.where.allows(node, one.nodes)
    ]
    names = {node.name for node in could}
    closed = [node for node in could if node.is_closed]
    total = sum(sum(node.gpus.values()) for node in could)
    free = sum(sum(node.gpus.values()) - node.gpus_used for node in could if not node.is_closed)
    lines = [f"Of {total} GPUs that would do {max(free, 0)} are free."] if could else []
    holders = [
        other
        for other in jobs
        if other.job.holds and any(node in names for node, held in other.job.gpus.items() if held)
    ]
    if holders:
        holders.sort(key=lambda other: (-other.gpus, other.job.number))
        some = ", ".join(
            f"{other.label} ({other.user}, {other.gpus})" for other in holders[:_AT_MOST]
        )
        more = f" and {len(holders) - _AT_MOST} more" if len(holders) > _AT_MOST else ""
        lines.append(f"The others are held by {some}{more}.")
    if closed:
        some = ", ".join(
            f"{node.name} ({node.reason or _words(node.states)})" for node in closed[:_AT_MOST]
        )
        more = f" and {len(closed) - _AT_MOST} more" if len(closed) > _AT_MOST else ""
        lines.append(f"Out of use: {some}{more}.")
    return lines
