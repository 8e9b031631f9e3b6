"""An attempt as a Slurm job: what is known of it, and what Slurm is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.plan import Placement
from ganger.core.units import WHOLE
from ganger.engines.agent.protocol import Exited, Message, Prepare, Stop
from ganger.engines.slurm.calls.answers import Job, Node
from ganger.engines.slurm.calls.client import Component
from ganger.engines.slurm.order import AttemptFolder, NodeShare, Order, Told
from ganger.sdk import PREEMPTED

TAG: Final = "ganger:"
ENDS: Final = {
    "NODE_FAIL": "NodeFail",
    "BOOT_FAIL": "NodeFail",
    "PREEMPTED": "NodeFail",
    "TIMEOUT": "TimeLimit",
    "DEADLINE": "TimeLimit",
    "OUT_OF_MEMORY": "OutOfMemory",
}
AttemptKey = tuple[int, int]
"""(job, attempt)"""


class Following:
    """An attempt as a Slurm job: `number` is 0 until it was submitted."""

    def __init__(self, key: AttemptKey, folder: AttemptFolder) -> None:
        self.key, self.folder = key, folder
        self.prepares: dict[str, Prepare] = {}
        self.ready: set[str] = set()
        """Seats that may go."""
        self.number = 0
        self.job: Job | None = None
        self.submitting = self.retry = False
        self.submitted_at = 0.0
        self.over_at = inf
        self.ended = frozenset[str]()
        """What Slurm said without being asked."""
        self.stop: Stop | None = None
        self.signalled = ""
        self.cancel_at = inf
        self.changed = -1
        self.devices: dict[str, tuple[int, ...]] = {}
        self.told: dict[str, list[Message]] = {}
        self.doubtful: dict[str, Exited] = {}
        """Seats that were killed or told to leave, not by us: Slurm may yet say why, until
        `doubt_until`."""
        self.doubt_until = inf
        self.over: set[str] = set()
        """Seats whose end was told."""

    @property
    def states(self) -> frozenset[str]:
        """Slurm's states of the job, as last reported."""
        return self.ended or (self.job.states if self.job is not None else frozenset())

    def order(
        self, home: Path, placement: Placement, names: Mapping[int, str], nodes: Mapping[str, Node]
    ) -> tuple[Order, list[Component]]:
        """What is to run at `placement`, and the nodes to ask for: those of one demand are one
        component. `names` of the kernel's nodes. Raises BadInput."""
        gpus: dict[str, int] = {}
        needs: dict[str, list[int]] = {}
        roles = next(iter(self.prepares.values())).launch.shape.roles
        for slot in placement:
            need = roles[slot.role].needs
            if need.share < WHOLE:
                raise BadInput("Slurm gives whole GPUs only", where=f"job {self.key[0]}")
            name = names[slot.node]
            gpus[name] = gpus.get(name, 0) + slot.devices.bit_count()
            cpus, memory = needs.setdefault(name, [0, 0])
            needs[name] = [cpus + need.cpus * slot.workers, memory + need.memory * slot.workers]
        groups: dict[tuple[str, int, int, int], list[str]] = {}
        for name, count in gpus.items():
            node, (cpus, memory) = nodes[name], needs[name]
            kind, total = next(iter(node.gpus.items()), ("", 0))
            # Who says nothing gets the share of the node that goes with its GPUs.
            cpus = cpus or (node.cpus * count // total if total else WHOLE)
            memory = memory or (node.memory * count // total if total else 0)
            ask = kind if count else "", count, -(-cpus // WHOLE), memory
            groups.setdefault(ask, []).append(name)
        components = [Component(tuple(names), *ask) for ask, names in groups.items()]
        seats = tuple(
            NodeShare(
                name,
                nodes[name].address,
                next(i for i, part in enumerate(components) if name in part.nodes),
                gpus[name],
                msgspec.structs.replace(prepare, launch=_as_user(prepare)),
            )
            for name, prepare in self.prepares.items()
        )
        return Order(str(home), seats, len(components)), components


def messages(told: Told) -> list[Message]:
    """What the supervisor of a node share has reported, in order."""
    return [one for one in (told.launched, told.progress, told.exited) if one is not None]


def why_over(states: frozenset[str]) -> str:
    """Why Slurm ended a job in these states by itself; empty if it did not."""
    return next((ENDS[word] for word in sorted(states) if word in ENDS), "")


def as_slurms(message: Exited, states: frozenset[str]) -> Exited:
    """An attempt that Ganger neither asked to leave nor killed was ended by Slurm, for the reason
    that Slurm gives. One that left in order as the time of its Slurm job ended may go on in
    another."""
    exit_ = message.exit
    why, detail = why_over(states), f"Slurm says {', '.join(sorted(states))}"
    if exit_.why or not (exit_.asked or (exit_.code < 0 and (why or "CANCELLED" in states))):
        return message
    if "CANCELLED" in states or not (why or "COMPLETED" in states):
        why, detail = "Cancelled", "in Slurm"
    elif exit_.asked and why in ("", "TimeLimit"):
        why = "NodeFail" if exit_.code in (0, PREEMPTED) else "TimeLimit"
        detail = "the time of its Slurm job is over"
    return Exited(message.key, msgspec.structs.replace(exit_, asked=False, why=why, detail=detail))


def key_of(comment: str) -> AttemptKey | None:
    """The attempt that a Slurm job's comment names."""
    job, _, attempt = comment.removeprefix(TAG).partition("/")
    return (int(job) - 1, int(attempt)) if job.isdecimal() and attempt.isdecimal() else None


def comment_of(key: AttemptKey) -> str:
    """The comment of an attempt's Slurm job: the job as people number it, from 1."""
    return f"{TAG}{key[0] + 1}/{key[1]}"


def _as_user(prepare: Prepare) -> Any:
    """Slurm has made it the user that it runs as."""
    return msgspec.structs.replace(prepare.launch, uid=-1, gid=-1, warm=())
