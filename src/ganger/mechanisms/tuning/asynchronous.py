"""Successive halving without waiting: a trial is compared with those that came to its rung before.

Li et al., MLSys 2020 (promotion), and the variant that stops trials (as in Ray Tune and Syne Tune).
"""

from __future__ import annotations

from dataclasses import dataclass

from ganger.core.state.facts import Curve
from ganger.mechanisms.tuning.racing import Leaves, Race, Rungs, Verdict
from ganger.mechanisms.tuning.trials import broke


def _came(race: Race, rungs: Rungs, job: int, goal: float, curve: Curve) -> tuple[int, int, int]:
    """The rung at which a trial is, its rank there, and how many have come there. One that broke
    down is the worst of the rung that it was on its way to."""
    rung = rungs.at(goal)
    bad = float("inf") if broke(curve) else race.badness(curve, goal)
    return rung, *race.came(job, rung, bad)


@dataclass(frozen=True)
class StopBelow:
    """A trial that comes to a rung goes on if it is among the best one in `eta`, rounded up, of all
    that have come there by then, itself included; else it ends."""

    rungs: Rungs

    @property
    def begins(self) -> float:
        """The first rung."""
        return self.rungs.epoch(0)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial is among the best of its rung so far."""
        rung, rank, count = _came(race, self.rungs, job, goal, curve)
        if goal >= self.rungs.longest or rank >= -(-count // self.rungs.eta):
            return Leaves.OVER
        return self.rungs.epoch(rung + 1)

    def resumes(self, race: Race) -> None:
        """None is ever set aside."""


@dataclass(frozen=True)
class Promote:
    """A trial that comes to a rung is set aside. Where there is room, the best of those that are
    still in the highest rung goes on if it is among the best one in `eta`, rounded down, of all
    that have come there, and fewer than so many have gone on; where no rung has such a trial, a new
    one starts. `beyond`: it does not matter how many have gone on, so that a trial that comes late
    goes on though one that is worse has, too (algorithm 2 of the paper)."""

    rungs: Rungs
    beyond: bool = False

    @property
    def begins(self) -> float:
        """The first rung."""
        return self.rungs.epoch(0)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """It is set aside, or over at the end of the last rung."""
        _came(race, self.rungs, job, goal, curve)
        return Leaves.OVER if goal >= self.rungs.longest else Leaves.ASIDE

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """The best that may go on, of the highest rung that has one."""
        for rung in range(len(race.rungs) - 1, -1, -1):
            if self.rungs.epoch(rung) >= self.rungs.longest:
                continue
            while (best := race.best_still(rung)) is not None:
                job, rank, count = best
                share = count // self.rungs.eta
                if rank >= share or (not self.beyond and len(race.gone[rung]) >= share):
                    break
                race.goes_on(job, rung)
                if not race.is_over(job):  # one that ended early uses up its place
                    return job, self.rungs.epoch(rung + 1)
        return None
