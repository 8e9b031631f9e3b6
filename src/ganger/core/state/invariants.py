"""What must always hold (design section 7), checked after every step in `validate` mode."""

from __future__ import annotations

import numpy as np

from ganger.core.books.ledger import rooms
from ganger.core.errors import InvariantError
from ganger.core.spec import Kind, Shape
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.state.state import State


def check_state(state: State) -> None:
    """Raise InvariantError unless books, phases and counters agree."""
    jobs, n = state.jobs, state.jobs.n
    state.ledger.check()
    phase = jobs.phase[:n]
    _check_holders(state)
    _check_grants(state)
    _check_sets(state)
    if (jobs.size[:n][~np.isin(phase, HOLDS_DEVICES)] != 0).any():
        raise InvariantError("a job that is not running counts GPUs")
    for name in ("ran", "served", "held", "pended", "lost", "work"):
        column = getattr(jobs, name)[:n]
        if (column < 0).any() or not np.isfinite(column).all():
            raise InvariantError(f"{name} is negative or not finite for job {column.argmin()}")
    served_too_much = (
        jobs.served[:n] > jobs.held[:n] + (state.now - jobs.held_since[:n]) * (jobs.size[:n])
    )
    if served_too_much.any():
        raise InvariantError(f"job {served_too_much.argmax()} executed more than it held")
    early = (jobs.first_start[:n] >= 0) & (jobs.first_start[:n] < jobs.submitted[:n])
    if early.any():
        raise InvariantError(f"job {early.argmax()} started before it was submitted")


def _check_holders(state: State) -> None:
    """Every job that holds devices does so whole, and no other holds any."""
    for scope in state.grants.scopes.values():
        for job, (shape, placement) in scope.ledger.holds.items():
            phase = Phase(state.jobs.phase[job])
            if phase not in HOLDS_DEVICES or phase == Phase.STOPPING:
                raise InvariantError(f"job {job} holds devices while {phase.name}")
            if not placement and state.jobs.kind[job] == Kind.SERVE:
                continue  # its replicas hold what it needs
            workers = [0] * len(shape.roles)
            for slot in placement:
                workers[slot.role] += slot.workers
            for role, have in zip(shape.roles, workers, strict=True):
                least, most = role.range
                if not least <= have <= most:
                    raise InvariantError(
                        f"job {job} runs {have} {role.name}s; it needs {least} to {most}"
                    )


def _check_grants(state: State) -> None:
    """What the children hold lies inside what their parent holds, or is just leaving."""
    for parent, books in state.grants.inner.items():
        books.check()
        shape, held = state.ledger.holds.get(parent, (Shape(), ()))
        if books.within != rooms(shape, held):
            raise InvariantError(f"the grant of job {parent} is not what it holds")


def _check_sets(state: State) -> None:
    """The pending and active sets hold exactly the jobs in those phases."""
    pending: list[int] = []
    active: list[int] = []
    for scope in state.grants.scopes.values():
        pending += scope.pending.ids.tolist()
        active += scope.active.ids.tolist()
    phase = state.jobs.phase[: state.jobs.n]
    if sorted(pending) != np.flatnonzero(phase == Phase.PENDING).tolist():
        raise InvariantError("the pending set disagrees with the phases")
    if sorted(active) != np.flatnonzero(np.isin(phase, HOLDS_DEVICES)).tolist():
        raise InvariantError("the active set disagrees with the phases")
