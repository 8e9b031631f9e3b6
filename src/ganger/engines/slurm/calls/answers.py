"""What Slurm's commands answer in JSON, in the forms of 22.05 to 24.11, as plain structs.

Forms differ: a state is a word or a list of words, a number is itself or `{"set": .., "number":
..}`, nodes are listed by `sinfo --json` (22.05) or `scontrol show nodes --json` (later).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from ganger.core.errors import BadInput, GangerError
from ganger.engines.slurm.calls.hostlist import expand

ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of a job that is over; COMPLETING besides one of them: not quite yet."""
HOLDING: Final = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "CONFIGURING"})
"""States in which a job has its nodes."""
GONE: Final = frozenset({"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN", "ERROR"})
CLOSED: Final = frozenset(
    {"DRAIN", "DRAINING", "DRAINED", "MAINT", "RESERVED", "FUTURE", "UNKNOWN", "NOT_RESPONDING"}
)
_GRES = re.compile(r"(?:gres[/:])?gpu(?::([^:=(,]+))?[:=](\d+)(?:\(([^)]*)\))?(?:,|$)")
_Kind = TypeVar("_Kind")


class Node(msgspec.Struct, frozen=True):
    """A node: GPUs by type, thousandths of cores, MiB of memory, states in capitals."""

    name: str
    address: str
    gpus: dict[str, int]
    cpus: int
    memory: int
    partitions: tuple[str, ...]
    states: frozenset[str]
    reason: str = ""
    gpus_used: int = 0
    """GPUs that jobs hold there, those included that we must not see."""
    features: tuple[str, ...] = ()
    """What constraints may name, as it is now."""

    @property
    def is_gone(self) -> bool:
        """Whether it is down, and what ran there lost."""
        return bool(self.states & GONE)

    @property
    def is_closed(self) -> bool:
        """Whether nothing new starts there."""
        return bool(self.states & CLOSED) or self.is_gone


class Job(msgspec.Struct, frozen=True):
    """A job as the queue shows it. `gpus`: devices by node, as far as Slurm tells."""

    number: int
    name: str
    comment: str
    states: frozenset[str]
    reason: str
    nodes: tuple[str, ...]
    leader: int
    """The first job of the heterogeneous job that it is part of; 0: none."""
    gpus: dict[str, tuple[int, ...]]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs or will."""
        return bool(self.states & ENDED) and "COMPLETING" not in self.states

    @property
    def is_pending(self) -> bool:
        """Whether it waits."""
        return "PENDING" in self.states

    @property
    def holds(self) -> bool:
        """Whether it has its nodes."""
        return bool(self.states & HOLDING)


class Away(GangerError):  # noqa: N818 - reads as a sentence
    """The controller does not answer; what was asked may have happened or not."""


def _decode(text: str, command: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"the answer is not JSON: {error}", where=command) from None
    if not isinstance(found, dict):
        raise BadInput("the answer is not a JSON object", where=command)
    return found


def rows_of(text: str, command: str, name: str) -> list[Mapping[str, Any]]:
    """The list `name` of an answer. Raises BadInput, Away.

    Where the controller is away, commands exit with 0 and answer with an empty list and an error.
    """
    answer = _decode(text, command)
    found, errors = answer.get(name), answer.get("errors")
    if errors and not found:
        raise Away(f"Slurm's controller does not answer ({command}: {_said(errors)})")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise BadInput(
            f"no list {name!r}", where=command, mend="Slurm 22.05 and later are understood"
        )
    return found


def _said(errors: Any) -> str:
    first = errors[0] if isinstance(errors, list) else errors
    if isinstance(first, dict):
        first = first.get("description") or first.get("error") or first
    return str(first)


def _get(row: Mapping[str, Any], name: str, kind: type[_Kind], command: str) -> _Kind:
    value: Any = row.get(name)
    if kind is int and isinstance(value, dict):
        value = value.get("number")
    if not isinstance(value, kind):
        raise BadInput(
            f"{name!r} is missing or no {kind.__name__}",
            where=command,
            mend="Slurm 22.05 and later are understood",
        )
    return value


def _words(row: Mapping[str, Any], name: str, command: str) -> frozenset[str]:
    value = row.get(name)
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadInput(f"{name!r} is missing or no state", where=command)
    return frozenset(word.upper() for word in words)


def nodes_of(text: str, command: str) -> list[Node]:
    """The nodes of `sinfo --json` (22.05) or `scontrol show nodes --json`. Raises BadInput."""
    found = []
    for row in rows_of(text, command, "nodes"):
        states = _words(row, "state", command)
        if "state_flags" in row:
            states |= _words(row, "state_flags", command)
        found.append(
            Node(
                name=_get(row, "name", str, command),
                address=_get(row, "address", str, command),
                gpus=gpus_of(_get(row, "gres", str, command)),
                cpus=_get(row, "cpus", int, command) * 1000,
                memory=_get(row, "real_memory", int, command),
                partitions=tuple(_get(row, "partitions", list, command)),
                states=states,
                reason=row.get("reason") or "",
                gpus_used=sum(gpus_of(row.get("gres_used") or "").values()),
                features=_features(row.get("active_features") or row.get("features")),
            )
        )
    return found


def _features(value: Any) -> tuple[str, ...]:
    """Features as a list, or as words with commas between (22.05)."""
    words = value.split(",") if isinstance(value, str) else value
    return tuple(str(word) for word in words or () if word)


def jobs_of(text: str, command: str = "squeue --json") -> list[Job]:
    """The jobs of `squeue --json`. Raises BadInput."""
    return [job_of(row, command) for row in rows_of(text, command, "jobs")]


def job_of(row: Mapping[str, Any], command: str) -> Job:
    """The job in a row of `squeue --json`. Raises BadInput."""
    nodes = tuple(expand(row.get("nodes") or ""))
    details = row.get("gres_detail") or []
    return Job(
        number=_get(row, "job_id", int, command),
        name=_get(row, "name", str, command),
        comment=row.get("comment") or "",
        states=_words(row, "job_state", command),
        reason=row.get("state_reason") or "",
        nodes=nodes,
        leader=_get(row, "het_job_id", int, command) if row.get("het_job_id") else 0,
        gpus={node: devices_of(one) for node, one in zip(nodes, details, strict=False)},
    )


def gpus_of(gres: str) -> dict[str, int]:
    """GPUs by type in `gpu:v100:4(S:0-1),gpu:k80:2`; untyped ones are of type `gpu`."""
    found: dict[str, int] = {}
    for kind, count, _ in _GRES.findall(gres):
        found[kind or "gpu"] = found.get(kind or "gpu", 0) + int(count)
    return found


def devices_of(detail: str) -> tuple[int, ...]:
    """Device indices in `gpu:v100:2(IDX:0-1)`; none where Slurm tells none."""
    found: list[int] = []
    for indices in re.findall(r"\(IDX:([\d,-]+)\)", detail):
        found += [int(i) for i in expand(f"[{indices}]")]
    return tuple(sorted(found))
