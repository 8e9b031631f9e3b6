"""A user's own policy, from a file: what it does wrong is reported as wrong input, at its line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ganger.core.errors import BadInput, GangerError
from ganger.core.plan import (
    AnyAction,
    AskAt,
    Lend,
    Placement,
    Plan,
    Provision,
    Resize,
    Retire,
    Route,
    Spawn,
    Start,
)
from ganger.core.protocols import Policy
from ganger.core.spec import JobSpec, Shape
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.units import WHOLE
from ganger.core.view import View

_MEND = "see docs/write-a-policy.md"


class OwnPolicy:
    """A policy that did not come with Ganger. Every plan of it is checked before it is believed.

    It sees columns that cannot be written to. `decide` raises BadInput, naming file, class and,
    where the policy itself raised, the line: for an exception, for what is not a plan, and for a
    plan that names no job, runs half a gang, or runs a job where it may not be. That all of it is
    free is for the books to say.
    """

    def __init__(self, policy: Policy, path: Path, called: str) -> None:
        self._policy, self._path = policy, path
        self.where = f"{path}: {called}"
        self.name: str = getattr(policy, "name", "") or called
        self.orders: tuple[type, ...] = tuple(getattr(policy, "orders", ()))

    def over(self, view: View, memory: Any) -> bool:
        """Whether its search is over. Raises BadInput for one that asks for trials and cannot say
        it."""
        try:
            return bool(self._policy.over(view, memory))  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            raise BadInput(
                f"over raised {in_a_line(error)}",
                where=f"{self.where}{self._line(error)}",
                mend="define over(view, memory), which says whether the search has ended",
            ) from error

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """What the policy decides. Raises BadInput for all that it does wrong."""
        if view.jobs.gpus.flags.writeable:
            view.bind(view.jobs.frozen())
        try:
            made: Any = self._policy.decide(view, memory)
        except (GangerError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a policy that calls sys.exit() has not decided either
            raise BadInput(
                f"decide raised {in_a_line(error)}",
                where=f"{self.where}{self._line(error)}",
                mend="fix the policy",
            ) from error
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Plan)):
            kind = type(made).__name__
            if isinstance(made, tuple):
                kind = f"({', '.join(type(part).__name__ for part in made)})"
            raise self.wrong(f"decide returned {kind}, not (Plan, memory)")
        plan, remembered = made
        wake: Any = plan.wake
        if not (isinstance(wake, int | np.integer) and wake > view.now):
            raise self.wrong(f"it wants to be woken at {wake}, which is not later than now")
        for action in plan.actions:
            self._check(view, action)  # which may be anything, whatever its type says
        if type(remembered) is not type(memory):
            self._check_memory(remembered)
        return plan, remembered

    def wrong(self, what: str) -> BadInput:
        """An error about this policy, to be raised."""
        return BadInput(what, where=self.where, mend=_MEND)

    def _line(self, error: BaseException) -> str:
        """The last line of the user's file that the error passed through."""
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).name == self._path.name
        ]
        return f": line {lines[-1]}" if lines else ""

    def _check(self, view: View, action: Any) -> None:
        if not isinstance(action, AnyAction):
            raise self.wrong(f"{type(action).__name__} is not an action")
        if isinstance(action, Provision):
            return
        if isinstance(action, Lend):
            nodes = action.nodes
            if not all(_is_whole(node) and 0 <= node < view.nodes.n for node in nodes):
                raise self.wrong(f"{_said(action)} names a node that there is not")
            return
        jobs = view.jobs
        if isinstance(action, Spawn | Route):
            row = action.parent if isinstance(action, Spawn) else action.service
            if not (_is_whole(row) and 0 <= row < jobs.n):
                raise self.wrong(f"{_said(action)} names job {row}, which there is not")
            if isinstance(action, Spawn) and not _is_spawn(action):
                raise self.wrong("Spawn takes (row, JobSpec, n, copies), copies being (row, epoch)")
            return
        job = action.job
        if not (_is_whole(job) and 0 <= job < jobs.n):
            raise self.wrong(f"{_said(action)} names job {job}, which there is not")
        phase, name = Phase(jobs.phase[job]), jobs.name(job)
        waits = phase == Phase.PENDING or (phase == Phase.BLOCKED and job in view.paused.tolist())
        if isinstance(action, AskAt):
            return
        if not (waits if isinstance(action, Start | Retire) else phase in HOLDS_DEVICES):
            raise self.wrong(f"{_said(action)} on job {name!r}, which is {phase.name}")
        if isinstance(action, Start | Resize):
            fault = _misplaced(view, view.draft.shape(job), action.placement)
            if fault:
                raise self.wrong(f"job {name!r} {fault}")

    def _check_memory(self, memory: Any) -> None:
        try:
            msgspec.msgpack.encode(memory)
        except (TypeError, ValueError, OverflowError) as error:
            raise self.wrong(f"its memory cannot be kept: {error}") from None


def _is_spawn(action: Any) -> bool:
    """Whether its fields are of the types that they are declared with."""
    copies = action.copies
    return (
        isinstance(action.spec, JobSpec)
        and _is_whole(action.n)
        and (
            copies is None
            or (
                isinstance(copies, tuple)
                and len(copies) == 2
                and _is_whole(copies[0])
                and (isinstance(copies[1], float) or _is_whole(copies[1]))
            )
        )
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _said(action: AnyAction) -> str:
    return type(action).__name__


def _misplaced(view: View, shape: Shape, placement: Placement) -> str:
    """What is wrong with running a job of `shape` on `placement`, whoever else is there."""
    workers = [0] * len(shape.roles)
    ledger = view.ledger
    for slot in placement:
        if not (0 <= slot.node < len(ledger.full) and 0 <= slot.role < len(shape.roles)):
            return f"is put on node {slot.node} as role {slot.role}, which there is not"
        needs, cell = shape.roles[slot.role].needs, ledger.cell_of[slot.node]
        workers[slot.role] += slot.workers
        if shape.gpu_types and slot.devices and cell.gpu_type not in shape.gpu_types:
            return f"may run on {'|'.join(shape.gpu_types)} only, and is put on {cell.gpu_type}"
        if shape.pool and cell.pool != shape.pool:
            return f"is bound to pool {shape.pool!r}, and is put elsewhere"
        have, want = slot.devices.bit_count(), slot.workers * needs.gpus
        if needs.share == WHOLE and have != want:
            return f"gets {have} GPUs on node {slot.node} for workers that need {want}"
    for role, have in zip(shape.roles, workers, strict=True):
        least, most = role.range
        if not least <= have <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            return f"gets {have} workers, and needs {wanted}: a gang runs whole or not at all"
    return ""


def in_a_line(error: BaseException) -> str:
    """An exception's type and the first line of what it says."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def loaded(path: Path, name: str) -> Any:
    """What is called `name` in the Python file `path`, which runs. Raises BadInput."""
    if not path.is_file():
        raise BadInput("no such file", where=str(path), mend="check the path")
    if not name:
        raise BadInput("which class?", where=str(path), mend=f"write {path}:Class")
    found = importlib.util.spec_from_file_location(f"ganger_user_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise BadInput(in_a_line(error), where=str(path), mend="mend the file") from error
    made = getattr(module, name, None)
    if made is None:
        raise BadInput(f"it defines no {name}", where=str(path), mend="check the name")
    return made


def load_own(path: Path, name: str) -> OwnPolicy:
    """The policy that `name` is, or makes, in the Python file `path`. Raises BadInput."""
    made = loaded(path, name)
    try:
        policy = made() if callable(made) else made
    except Exception as error:
        raise BadInput(
            f"{name}() raised {in_a_line(error)}",
            where=str(path),
            mend="a policy is made without arguments; give them defaults",
        ) from error
    if not callable(getattr(policy, "decide", None)):
        raise BadInput(f"{name} has no method decide(view, memory)", where=str(path), mend=_MEND)
    return OwnPolicy(policy, path, name)
