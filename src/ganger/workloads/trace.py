"""A workload: what its jobs declare, and, kept apart, what they truly do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profiles
from ganger.core.state.jobs import Declared, declare


@dataclass(repr=False)
class Trace:
    """Declared jobs in order of submission, and the hidden truth beside them.

    `duration`: microseconds each job takes at the size it asks for, on the reference GPU type, in
    one piece; NEVER for a service that runs until stopped. `cluster`: a cluster spec that the
    source itself states, in short form, or "". `skipped`: rows that became no job, as messages;
    `left_out`: how many of them, by reason; `rows`: how many the source had (0: not a file).
    `notes`: what was made of rows that are not as a simulation needs them. `source`: where it came
    from, for people. `profiles`: how fast its models run on what, where the source says so.
    """

    declared: Declared
    duration: NDArray[np.int64]
    name: str = "trace"
    source: str = ""
    cluster: str = ""
    skipped: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    profiles: Profiles = field(default_factory=Profiles)

    def __repr__(self) -> str:
        return f"<Trace {self.name!r} of {self.jobs:,} jobs>"

    @property
    def jobs(self) -> int:
        """How many jobs."""
        return self.declared.n

    def gpu_seconds(self) -> float:
        """All work asked for, in GPU-seconds; services not counted."""
        n = self.declared.n
        finite = self.duration[:n] < 1 << 61
        return float((self.duration[:n] / 1e6 * self.declared.gpus[:n])[finite].sum())


def no_jobs() -> Trace:
    """A trace without a job."""
    return Trace(declare([]), np.empty(0, np.int64), "no jobs")
