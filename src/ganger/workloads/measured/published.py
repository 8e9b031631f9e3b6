"""Measured speeds of a few models, for workloads that name none of their own.

From the public throughput table of Gavel (Narayanan et al., OSDI 2020; steps per second, batch size
in the name): on one P100 and one K80 over one V100, on 2, 4 and 8 V100s of one machine over one,
and, on 4, of one machine over several. Between measured sizes throughput is linear; beyond 8 it
stays level.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ganger.core.profiles import Profile, Profiles


class Measured(NamedTuple):
    """One model: throughput on a P100 and a K80, on 2, 4 and 8 V100s, and the time factor of
    spanning machines; all relative to one V100, or to one machine."""

    p100: float
    k80: float
    scaling: tuple[float, float, float]
    apart: float


MEASURED: Final = {
    "resnet50-128": Measured(0.635, 0.139, (1.69, 2.82, 4.12), 1.0),
    "resnet50-16": Measured(0.794, 0.202, (1.22, 2.04, 2.44), 1.56),
    "transformer-128": Measured(0.564, 0.180, (1.85, 2.60, 5.67), 1.82),
    "lm-80": Measured(0.749, 0.214, (2.06, 2.65, 8.19), 2.81),
}
"""By model and batch size. Factors below 1 are taken as 1."""


def profiles() -> Profiles:
    """All of them as profiles."""
    return Profiles({name: _profile(measured) for name, measured in MEASURED.items()})


def _profile(measured: Measured) -> Profile:
    scaling = np.interp(np.arange(1, 9), (1, 2, 4, 8), (1.0, *measured.scaling))
    return Profile(
        by_type={"V100": 1.0, "P100": measured.p100, "K80": measured.k80},
        locality=(1.0, 1.0, measured.apart, measured.apart),
        scaling=tuple(scaling.round(4).tolist()),
    )
