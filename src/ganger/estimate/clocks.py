"""How a model's speed and power change with the clocks of its GPU, predicted from what its counters
say at full clocks, by boosted trees (GPOEO, arXiv 2201.01684).

No measured table of clocks comes with the trees: they are trained on the synthetic generator
`drawn`. It draws the parts of a step in which a model waits for the multiprocessors and for memory,
and what of the board's power goes to each; time and power then follow `Clocks`. Its counters are
those parts with noise. A counter that nobody measured is -1, as it is at random in a third of the
rows of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from ganger.core.clocks import Clocks
from ganger.solve.boost import Floats, Trees, boost

GENERATOR: Final = "synthetic generator `ganger.estimate.clocks.drawn`"
SAMPLES: Final = 600
"""Models that are drawn for training."""
SEED: Final = 0
UNKNOWN: Final = -1.0
_NOISE: Final = 0.03
_PARTS: Final = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Parts of the full clock of the multiprocessors that are trained on."""
_MEMORY: Final = (0.4, 0.7, 1.0)


class Counters(NamedTuple):
    """What a model uses of a GPU at full clocks, 0 to 1, or UNKNOWN: the time in which its
    multiprocessors compute (`gpu`), the bandwidth of its memory, and watts as a part of those at
    full load."""

    gpu: float = UNKNOWN
    bandwidth: float = UNKNOWN
    power: float = UNKNOWN


class Setting(NamedTuple):
    """Parts of the full clocks."""

    core: float
    memory: float


class Effect(NamedTuple):
    """How many times as long a step takes, and the part of the watts at full clocks."""

    slowing: float
    power: float

    @property
    def energy(self) -> float:
        """Of a step, as a part of that at full clocks."""
        return self.slowing * self.power


def drawn(samples: int = SAMPLES, seed: int = SEED) -> list[tuple[Counters, Clocks]]:
    """Models by the synthetic generator."""
    random = np.random.default_rng(seed)
    busy = random.uniform(0.3, 1.0, samples)
    bound = random.beta(1.5, 1.5, samples)
    core, memory = busy * bound, busy * (1.0 - bound)
    fixed = random.uniform(0.2, 0.45, samples)
    watts = (1.0 - fixed) * random.uniform(0.55, 0.75, samples) * (0.6 + 0.4 * bound)
    memory_watts = (1.0 - fixed - watts) * random.uniform(0.3, 0.7, samples)
    noise = random.normal(0.0, _NOISE, (3, samples))
    true = np.stack([busy, memory, 0.25 + 0.55 * core + 0.3 * memory])
    said = np.clip(true + noise, 0.0, 1.0)
    columns = zip(said.T.tolist(), core, watts, memory, memory_watts, strict=True)
    return [
        (Counters(*counters), Clocks(float(a), float(b), float(c), float(d)))
        for counters, a, b, c, d in columns
    ]


class Predictors(NamedTuple):
    """The trees for the time of a step and for power."""

    slowing: Trees
    power: Trees

    def at(self, counters: Counters, setting: Setting) -> Effect:
        """What a setting does; at full clocks nothing, and never faster than that."""
        if setting == (1.0, 1.0):
            return Effect(1.0, 1.0)
        row = [*counters, *setting]
        return Effect(max(self.slowing.at(row), 1.0), min(max(self.power.at(row), 0.05), 1.0))


@lru_cache(maxsize=4)
def trained(samples: int = SAMPLES, seed: int = SEED) -> Predictors:
    """Predictors trained on the generator."""
    hide = np.random.default_rng(seed + 1).random((samples, 3)) < 1.0 / 3.0
    settings = [Setting(core, memory) for core in _PARTS for memory in _MEMORY]
    rows, slowing, power = list[list[float]](), list[float](), list[float]()
    for (counters, clocks), hidden in zip(drawn(samples, seed), hide, strict=True):
        said = np.where(hidden, UNKNOWN, counters).tolist()
        for setting in settings:
            rows.append([*said, *setting])
            slowing.append(clocks.slowing(*setting))
            power.append(clocks.power(*setting))
    x: Floats = np.array(rows)
    fitted = (boost(x, np.array(y), rounds=80, depth=4, rate=0.15) for y in (slowing, power))
    return Predictors(*fitted)


def cheapest(
    settings: Sequence[Setting], effects: Sequence[Effect], limit: float, scale: float = 1.0
) -> int:
    """The place of the setting with the least energy of a step of those that slow it down by at
    most `limit` (0.05: 5 %), where slow-downs are `scale` times as large as predicted; of equal
    ones the fastest. Full clocks where none is within it."""
    best, least = len(settings) - 1, (1.0, 1.0)
    for at, effect in enumerate(effects):
        slowing = 1.0 + scale * (effect.slowing - 1.0)
        key = round(slowing * effect.power, 9), slowing
        if slowing <= 1.0 + limit + 1e-9 and key < least:
            best, least = at, key
    return best
