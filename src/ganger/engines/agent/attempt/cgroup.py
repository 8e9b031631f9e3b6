"""One cgroup per part of an attempt: limits, freezing, and killing that nothing escapes.

Knows v2 (unified), hybrid (v2 without controllers beside v1 hierarchies) and v1 alone; with none of
them, or no right to use them, the supervisor falls back on its process tree. Groups are made below
the agent's own, so that what holds the agent (a container, a unit) holds its jobs as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ganger.core.units import WHOLE
from ganger.engines.agent.attempt.processes import send
from ganger.engines.launch import MIB

ROOT = Path("/sys/fs/cgroup")
_V1 = ("memory", "cpu", "freezer")
_PATIENCE_SECONDS = 5.0


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _own_groups() -> Iterator[tuple[str, Path]]:
    """(controller or `v2`, folder) of each cgroup that this process is in."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            for root in (ROOT, ROOT / "unified"):
                if (root / "cgroup.controllers").exists():
                    yield "v2", root / path.lstrip("/")
        for controller in controllers.split(","):
            if controller in _V1:
                yield controller, ROOT / controller / path.lstrip("/")


class Containment(NamedTuple):
    """Where groups can be made: a folder per hierarchy (`v2`, or a controller of v1)."""

    kind: str
    """`v2`, `hybrid`, `v1` or `none`."""
    bases: dict[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def find(cls, name: str) -> Containment:
        """What this machine allows; makes the folders `name` that the groups will be in."""
        bases: dict[str, str] = {}
        for hierarchy, own in _own_groups():
            base = own / name
            with contextlib.suppress(OSError):
                base.mkdir(exist_ok=True)
                if os.access(base / "cgroup.procs", os.W_OK):
                    bases[hierarchy] = str(base)
        unified = Path(bases["v2"]) if "v2" in bases else None
        full = unified is not None and _enable(unified)
        kind = "v2" if full else "hybrid" if unified else "v1" if bases else "none"
        warnings = []
        if not bases:
            warnings.append("no cgroup can be made: jobs are held by their process tree only")
        elif not full and "memory" not in bases:
            warnings.append("no memory controller: memory is watched, not limited")
        return cls(kind, bases, tuple(warnings))

    def make(self, name: str, memory: int, cpus: int) -> Group:
        """A new group with at most `memory` MiB (0: any) and the weight of `cpus` thousandths of
        a core (0: as all). Hierarchies that refuse are left out, and those that nothing is wanted
        of: a process that enters one may wait for milliseconds."""
        needed = {"v2": True, "memory": memory, "cpu": cpus, "freezer": "v2" not in self.bases}
        paths = {}
        for hierarchy, base in self.bases.items():
            if not needed[hierarchy]:
                continue
            with contextlib.suppress(OSError):
                path = Path(base, name)
                path.mkdir(exist_ok=True)
                paths[hierarchy] = str(path)
        group = Group(paths)
        group.limit(memory, cpus)
        return group

    def sweep(self) -> None:
        """Remove the groups in which nothing is (they are left where everybody was killed)."""
        for base in self.bases.values():
            for group in Path(base).iterdir():
                if group.is_dir():
                    with contextlib.suppress(OSError):
                        group.rmdir()

    def remove(self) -> None:
        """Remove the folders; those that still hold groups stay."""
        for base in self.bases.values():
            with contextlib.suppress(OSError):
                os.rmdir(base)


def _enable(base: Path) -> bool:
    """Give the groups in `base` a memory and a CPU controller (v2). A group with processes of its
    own cannot do so, so the agent first moves into a leaf."""
    wanted = "+memory +cpu"
    if "memory" not in _read(base.parent / "cgroup.controllers").split():
        return False
    if not _write(base.parent / "cgroup.subtree_control", wanted):
        leaf = base.parent / "ganger-agent"
        with contextlib.suppress(OSError):
            leaf.mkdir(exist_ok=True)
        if not _write(leaf / "cgroup.procs", "0") or not _write(
            base.parent / "cgroup.subtree_control", wanted
        ):
            return False
    return _write(base / "cgroup.subtree_control", wanted)


class Group(NamedTuple):
    """A group: its folder in each hierarchy. Empty if there are no cgroups."""

    paths: dict[str, str]

    def limit(self, memory: int, cpus: int) -> None:
        """Set the limits that its hierarchies can set."""
        if "v2" in self.paths:
            unified = Path(self.paths["v2"])
            if memory:
                _write(unified / "memory.max", str(memory * MIB))
                _write(unified / "memory.swap.max", "0")
            if cpus:
                _write(unified / "cpu.weight", str(min(max(cpus * 100 // WHOLE, 1), 10_000)))
        if memory and "memory" in self.paths:
            v1 = Path(self.paths["memory"])
            _write(v1 / "memory.limit_in_bytes", str(memory * MIB))
            _write(v1 / "memory.memsw.limit_in_bytes", str(memory * MIB))
        if cpus and "cpu" in self.paths:
            _write(Path(self.paths["cpu"], "cpu.shares"), str(max(cpus * 1024 // WHOLE, 2)))

    @property
    def limits_memory(self) -> bool:
        """Whether the kernel enforces the memory limit."""
        return "memory" in self.paths or (
            "v2" in self.paths and Path(self.paths["v2"], "memory.max").exists()
        )

    def enter(self, born_inside: bool) -> None:
        """Move this process in; the v2 part is done if it was `born_inside`."""
        for hierarchy, path in self.paths.items():
            if not (born_inside and hierarchy == "v2"):
                _write(Path(path, "cgroup.procs"), "0")

    def pids(self) -> set[int]:
        """The processes in it."""
        return {
            int(pid)
            for path in self.paths.values()
            for pid in _read(Path(path, "cgroup.procs")).split()
        }

    def oom_kills(self) -> int:
        """How many processes the kernel killed because the memory limit was reached."""
        text = ""
        if "memory" in self.paths:
            text = _read(Path(self.paths["memory"], "memory.oom_control"))
        elif "v2" in self.paths:
            text = _read(Path(self.paths["v2"], "memory.events"))
        counts = dict(line.split() for line in text.splitlines())
        return int(counts.get("oom_kill", 0))

    def freeze(self, frozen: bool) -> bool:
        """Stop or continue all of it; False if there is no hierarchy that can."""
        if "v2" in self.paths:
            return _write(Path(self.paths["v2"], "cgroup.freeze"), str(int(frozen)))
        if "freezer" in self.paths:
            state = "FROZEN" if frozen else "THAWED"
            return _write(Path(self.paths["freezer"], "freezer.state"), state)
        return False

    def kill(self) -> None:
        """SIGKILL everything in it. Returns when the signal is sent, not when all are gone."""
        if "v2" in self.paths and _write(Path(self.paths["v2"], "cgroup.kill"), "1"):
            return
        send(self.pids(), signal.SIGKILL)
        self.freeze(False)

    def kill_and_wait(self) -> bool:
        """Kill until nothing is left, for some seconds at most; whether nothing is left."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.pids():
            self.kill()
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True

    def remove(self) -> None:
        """Remove the empty group."""
        for path in self.paths.values():
            with contextlib.suppress(OSError):
                os.rmdir(path)
