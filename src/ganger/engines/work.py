"""What jobs' steps are worth as the kernel's work: steps times what one takes at rate 1."""

from __future__ import annotations

from ganger.core.spec import OnPreempt
from ganger.engines.gang import UNCHANGED, Attempt, Outcome


class Work:
    """By job: the reference (microseconds a step at rate 1) and the last step that was saved."""

    def __init__(self) -> None:
        self._reference: dict[int, float] = {}
        self._saved: dict[int, int] = {}

    def declare(self, job: int, step_micros: float) -> None:
        """What a step takes at rate 1; 0: as first measured."""
        if step_micros:
            self._reference[job] = step_micros

    def reference(self, job: int, measured: float) -> float:
        """What a step takes at rate 1: as declared, or else as first measured."""
        return self._reference.setdefault(job, measured)

    def save(self, job: int, step: int) -> None:
        """The job says that so many steps are saved; below 0: it says nothing."""
        if step >= 0:
            self._saved[job] = step

    def kept(self, one: Attempt, end: Outcome) -> float:
        """The work that survives the attempt."""
        saved, reference = self._saved.get(one.job, -1), self._reference.get(one.job, 0.0)
        if end.kept_all and (end.saved < 0 or not reference):
            return UNCHANGED
        if saved < 0 or one.launch.on_preempt == OnPreempt.KILL:
            return 0.0
        return saved * reference if reference else UNCHANGED
