"""Jobs of the simulator on the links between nodes: which jobs move, on what terms, and when
phases of steps end."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappush

from ganger.core.plan import LINK_KNOBS, Placement
from ganger.core.spec import Kind
from ganger.core.units import NEVER, SECOND
from ganger.sim.attempts import PACE, Attempts
from ganger.sim.links.grains import EQUAL, Grain, MeanGrain, StepGrain, Terms

_TUNE = int(Kind.TUNE)
FIRST_TOKEN = -2
"""The ends of phases are filed as PACE with tokens from this one down. No attempt has them."""
TOLD_EVERY = 10 * SECOND
"""Where every step is simulated, a job's mean speed is told so often at most."""


def terms_of(knobs: Mapping[str, float | bool | str], old: Terms = EQUAL) -> Terms:
    """The terms that knobs state; what they do not state is as it was."""
    return Terms(
        float(knobs.get("link_weight", old.weight)),
        int(knobs.get("link_priority", old.priority)),
        str(knobs.get("link_rule", old.rule)),
    )


class Sharing:
    """What links leave of the speed of the attempts that move gradients over them."""

    def __init__(self, attempts: Attempts) -> None:
        physics = attempts.physics
        assert physics.links is not None, "there are no links"
        self._attempts, self.by_step = attempts, physics.costs.by_step
        self._by_step = StepGrain(physics.links) if physics.costs.by_step else None
        self.grain: Grain = self._by_step or MeanGrain(physics.links)
        self.moved: set[int] = set()
        """Jobs that began or ceased to compute, or have other terms, since the last settling."""
        self._terms: dict[int, Terms] = {}
        self._reports: dict[int, tuple[int, float]] = {}
        """By job when its speed was last reported, and what it had done by then."""
        self._reached = False

    def part(self, job: int) -> float:
        """The part of its speed that is left to a job."""
        return self.grain.part(job)

    def adopt(
        self,
        held: Mapping[int, Placement],
        knobs: Mapping[int, Mapping[str, float | bool | str]],
    ) -> None:
        """Attempts hold these since before."""
        for job in held:
            self.tune(job, knobs.get(job, {}))
        self.moved |= held.keys()
        self.settle()

    def tune(self, job: int, knobs: Mapping[str, float | bool | str]) -> None:
        """The terms on which its transfers share links, until the job is over; others stay."""
        if LINK_KNOBS.isdisjoint(knobs):
            return
        self._terms[job] = terms_of(knobs, self._terms.get(job, EQUAL))
        self.moved.add(job)

    def reached(self, job: int, token: int) -> None:
        """A phase of the job's step ends, if nothing has changed it since."""
        assert self._by_step is not None, "only single steps have phases"
        ends = self._by_step.reached(self._attempts.now, job, FIRST_TOKEN - token)
        self._reached |= ends

    def settle(self) -> list[int]:
        """After all that happened at one instant: the jobs whose speed has changed."""
        if not self.moved and not self._reached:
            return []
        attempts, now = self._attempts, self._attempts.now
        kind, began = attempts.declared.kind, attempts.began
        for job in sorted(self.moved):
            placement = attempts.where.get(job)
            transfer = None
            if placement and attempts.alive[job] and began[job] < NEVER and kind[job] != _TUNE:
                transfer = attempts.physics.transfer(attempts.declared, job, placement)
            begins = max(began[job], now) if transfer is not None else now
            self.grain.put(job, transfer, self._terms.get(job, EQUAL), begins)
            if not attempts.alive[job]:
                self._reports.pop(job, None)
        self.moved.clear()
        self._reached = False
        changed = self.grain.settle(now)
        if self._by_step is not None:
            for at, job, version in self._by_step.due:
                heappush(attempts.heap, (at, PACE, job, FIRST_TOKEN - version))
            self._by_step.due.clear()
        return changed

    def tell(self, job: int, rate: float) -> float | None:
        """The speed to report of a job that has `rate` now: its mean, where single steps are
        simulated; None: it was reported just now."""
        if not self.by_step:
            return rate
        now, done = self._attempts.now, self._attempts.done(job)
        at, before = self._reports.setdefault(job, (now, done))
        if now - at < TOLD_EVERY or done <= before:
            return None
        self._reports[job] = now, done
        return (done - before) / (now - at)
