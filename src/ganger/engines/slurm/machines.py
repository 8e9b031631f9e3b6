"""The nodes of a partition as machines: which there are, which are closed, what others hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.spec import NodeSpec
from ganger.engines.agent.protocol import Hello
from ganger.engines.machines import Box, Owner
from ganger.engines.slurm.calls.answers import CLOSED, GONE, Job, Node

log = logging.getLogger("ganger.engine")
_LOOKS: Final = 3
"""So often must Slurm say that a GPU is in use by no job that we see before we believe it: jobs
and nodes are not asked after in one breath."""


def spec_of(node: Node) -> NodeSpec | None:
    """The node for the kernel; None if it has GPUs of two types, which one node cannot have."""
    if len(node.gpus) > 1:
        return None
    kind, count = next(iter(node.gpus.items()), ("", 0))
    return NodeSpec(name=node.name, gpus=count, gpu_type=kind, cpus=node.cpus, memory=node.memory)


class Machines:
    """The nodes that can be used, by name. `admit` gives the kernel's numbers of a Hello, and may
    raise BadInput; `warn` gets what is wrong with a node, or that nothing is."""

    def __init__(
        self, admit: Callable[[Hello], Sequence[int]], warn: Callable[[str, Sequence[str]], None]
    ) -> None:
        self._admit, self._warn = admit, warn
        self.nodes: dict[str, Node] = {}
        self.boxes: dict[str, Box] = {}
        self.names: dict[int, str] = {}
        """Of the kernel's nodes."""
        self._absent: set[str] = set()
        """Nodes that Slurm knows no more, or with other GPUs."""
        self._wrong: dict[str, str] = {}
        self._closed: set[str] = set()
        self._withheld: dict[str, int] = {}
        self._hidden: dict[str, list[int]] = {}

    def update(self, nodes: Sequence[Node], jobs: Iterable[Job]) -> list[Box]:
        """Slurm says that these are the partition's nodes, and lately that these are the jobs;
        the machines that are new."""
        new = []
        seen = _held(jobs)
        self._absent = self.boxes.keys() - {node.name for node in nodes}
        for node in nodes:
            box, spec = self.boxes.get(node.name), spec_of(node)
            if spec is None:
                self._say(node.name, "it has GPUs of two types: left out")
                self._absent |= {node.name} & self.boxes.keys()
            elif box is not None and not _alike(box.hello.nodes[0], spec):
                self._say(node.name, "its GPUs are not what they were: not used")
                self._absent.add(node.name)
            elif box is not None or (box := self._join(spec)) is not None:
                if node.name not in self.nodes:
                    new.append(box)
                self._say(node.name, _why(node))
                self.nodes[node.name] = node
                looks = self._hidden.setdefault(node.name, [])
                looks.append(max(node.gpus_used - seen.get(node.name, 0), 0))
                del looks[:-_LOOKS]
        return new

    def left(self, name: str) -> int:
        """How many GPUs of a node others do not hold, as last reported."""
        return self.boxes[name].hello.nodes[0].gpus - self._withheld.get(name, 0)

    def _join(self, spec: NodeSpec) -> Box | None:
        hello = Hello(spec.name, (spec,))
        try:
            box = Box(hello, tuple(self._admit(hello)))
        except BadInput as error:
            self._say(spec.name, str(error))
            return None
        self.boxes[spec.name] = box
        self.names |= dict.fromkeys(box.nodes, spec.name)
        return box

    def _say(self, name: str, wrong: str) -> None:
        if self._wrong.get(name, "") != wrong:
            self._wrong[name] = wrong
            if wrong:
                log.warning("node %s: %s", name, wrong)
            self._warn(name, [wrong] if wrong else [])

    def tell(self, owner: Owner, foreign: Iterable[Job]) -> None:
        """Tell of nodes that can be used no more, or again, and of what `foreign` jobs hold."""
        self.withhold(owner, foreign)
        for name, box in self.boxes.items():
            node, lacks = self.nodes[name], name in self._absent
            if node.is_gone or lacks:
                if not box.down:
                    box.up, box.down, box.closed = False, True, True
                    self._closed.add(name)
                    owner.lost(box)
                continue
            if node.is_closed and name not in self._closed:
                self._closed.add(name)
                owner.closed(box)
            elif not node.is_closed and name in self._closed:
                self._closed.discard(name)
                owner.opened(box)

    def withhold(self, owner: Owner, foreign: Iterable[Job]) -> None:
        """Tell of what `foreign` jobs hold."""
        taken = _held(foreign)
        for name, box in self.boxes.items():
            if self.nodes[name].is_gone or name in self._absent:
                continue
            hidden = self._hidden[name]
            gpus = taken.get(name, 0) + (min(hidden) if len(hidden) == _LOOKS else 0)
            gpus = min(gpus, box.hello.nodes[0].gpus)
            if gpus != self._withheld.get(name, 0):
                self._withheld[name] = gpus
                owner.withheld(box, gpus)


def _why(node: Node) -> str:
    """Why nothing new starts on a node, in Slurm's words; empty where something may."""
    states = sorted(word.lower() for word in node.states & (CLOSED | GONE))
    reason = f": {node.reason}" if node.reason else ""
    return f"{', '.join(states)} in Slurm{reason}" if states else ""


def _alike(before: NodeSpec, now: NodeSpec) -> bool:
    return (before.gpus, before.gpu_type) == (now.gpus, now.gpu_type)


def _held(jobs: Iterable[Job]) -> dict[str, int]:
    """How many GPUs of each node jobs hold."""
    found: dict[str, int] = {}
    for job in jobs:
        if job.holds:
            for name, devices in job.gpus.items():
                found[name] = found.get(name, 0) + len(devices)
    return found
