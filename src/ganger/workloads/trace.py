"""A workload: what its jobs declare, and, kept apart, what they truly do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ganger.core.jobs import Declared
from ganger.core.profiles import Profiles


@dataclass(repr=False)
class Trace:
    """Declared jobs in order of submission, and the hidden truth beside them.

    `duration`: microseconds each job takes at the size it asks for, on the reference GPU type, in
    one piece; NEVER for a service that runs until stopped. `cluster`: a cluster spec that the
    source itself states, in short form, or "". `skipped`: rows left out by `--skip-bad`, as
    messages. `source`: where it came from, for people. `profiles`: how fast its models run on what,
    where the source says so.
    """

    declared: Declared
    duration: NDArray[np.int64]
    name: str = "trace"
    source: str = ""
    cluster: str = ""
    skipped: list[str] = field(default_factory=list)
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
