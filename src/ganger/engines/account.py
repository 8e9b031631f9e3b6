"""What a running attempt reports to its owner: little where it is steady, never far off."""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

from ganger.core.events import Measured, Progressed, Sampled
from ganger.core.units import NEVER
from ganger.engines.agent.protocol import Progress, Used

_CHANGE: Final = 0.1
_NOISE_CHANGE: Final = 0.25
_USE_CHANGE: Final = 0.1
_CORE: Final = 1.0
_SAMPLES_APART: Final = 6


class Account:
    """What was reported of an attempt, and so what is believed of it now.

    Progress is reported when dead reckoning from the last time (that work, and that speed since) is
    amiss by what is done in `every` (microseconds), at most once in that time, and at the last
    step. What the job measured of itself is reported when it has settled, and again when it
    changed, the more rarely the older the attempt is.
    """

    def __init__(self, job: int, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self._told = Progressed(job, attempt, 0.0, 0.0)
        self._told_at = -NEVER
        self._measured: Measured | None = None
        self._measured_from = self._measured_at = -NEVER
        self._uses: dict[tuple[str, int], Used] = {}
        """The last look at each part, by machine and seat."""
        self._sampled: Sampled | None = None
        self._sampled_at = -NEVER

    def used(self, machine: str, message: Used, now: int, every: int) -> list[Sampled]:
        """The event that a look at a part makes, if any: when something has changed noticeably, and
        seldom: not for six times `every` (microseconds)."""
        if not (isfinite(message.gpu) and isfinite(message.cores)):
            return []
        self._uses[machine, message.key.seat] = message
        gpu = max(use.gpu for use in self._uses.values())
        cores = sum(use.cores for use in self._uses.values())
        said = Sampled(self.job, self.attempt, min(max(gpu, -1.0), 1.0), max(cores, 0.0))
        before = self._sampled
        if before is not None:
            moved = abs(said.gpu - before.gpu) >= _USE_CHANGE
            moved |= abs(said.cores - before.cores) > _NOISE_CHANGE * max(before.cores, _CORE)
            if not moved or now - self._sampled_at < _SAMPLES_APART * every:
                return []
        self._sampled, self._sampled_at = said, now
        return [said]

    def heard(
        self, message: Progress, reference: float, now: int, every: int
    ) -> list[Progressed | Measured]:
        """The events that a report makes. A step is `reference` microseconds of work."""
        rate, work = reference / message.step_micros, message.step * reference
        passed, before = now - self._told_at, self._told
        amiss = abs(work - before.work - before.rate * passed)
        ends = 0 < message.total <= message.step and amiss > reference
        drifts = amiss > every * max(rate, before.rate) and passed >= every
        found: list[Progressed | Measured] = []
        if self._told_at < 0 or ends or drifts:
            self._told_at, self._told = now, Progressed(self.job, self.attempt, work, rate)
            found.append(self._told)
        if self._measured_from < 0:
            self._measured_from = now
        age = now - self._measured_from
        if age >= every and now - self._measured_at >= age // 2:
            said = self._measurement(message)
            if self._measured is None or _differs(said, self._measured):
                self._measured, self._measured_at = said, now
                found.append(said)
        return found

    def _measurement(self, message: Progress) -> Measured:
        """What the metrics say that the SDK names."""
        told = {name: value for name, value in message.metrics.items() if 0 < value < inf}
        noise = told.get("noise_scale", 0.0)
        if not noise and "grad_sqr" in told and "grad_var" in told:
            noise = told["grad_var"] / told["grad_sqr"]
        step = told["step_seconds"] * 1e6 if "step_seconds" in told else message.step_micros
        return Measured(
            self.job,
            self.attempt,
            step,
            told.get("compute_seconds", 0.0) * 1e6,
            told.get("batch_size", 0.0),
            told.get("batch_size_max", 0.0),
            noise,
        )


def _differs(one: Measured, other: Measured) -> bool:
    """Whether a number changed noticeably."""
    return any(
        abs(getattr(one, name) - getattr(other, name)) > share * getattr(other, name)
        for name, share in (
            ("step", _CHANGE),
            ("computing", _CHANGE),
            ("batch", _CHANGE),
            ("most", _CHANGE),
            ("noise", _NOISE_CHANGE),
        )
    )
