"""Durations as their users state them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.protocols import Ignorant, Knows
from ganger.core.units import NEVER
from ganger.core.view import View


class Stated(Ignorant):
    """Believes each job's estimate; where it has none its time limit; else it knows nothing."""

    knows = Knows.ESTIMATE

    def duration(self, view: View, ids: Any) -> NDArray[np.float64]:
        """The user's word, microseconds at the size asked for; NaN where there is none."""
        if type(ids) is int:
            at = view.at
            word = at.estimate[ids] if at.estimate[ids] < NEVER else at.limit[ids]
            return np.float64(word if word < NEVER else np.nan)  # type: ignore[return-value]
        jobs = view.jobs
        words = np.where(jobs.estimate[ids] < NEVER, jobs.estimate[ids], jobs.limit[ids])
        return np.where(words < NEVER, words, np.nan)
