"""Trials that take longer than their curves say: stragglers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.workloads.curves.table import Curve


@dataclass(frozen=True)
class Stragglers:
    """How much longer trials take. A trial takes 1 + |z| times as long, where z is normal with the
    spread `spread` (as in the simulations of Li et al., MLSys 2020, there by rung); and of its
    epochs the part `part` takes `times` as long, each by itself."""

    spread: float = 0.0
    part: float = 0.0
    times: float = 10.0

    def __bool__(self) -> bool:
        """Whether anything is slow."""
        return self.spread > 0.0 or self.part > 0.0

    def check(self, where: str) -> Stragglers:
        """This. Raises BadInput for what cannot be."""
        bounds = {"spread": (0.0, 10.0), "part": (0.0, 1.0), "times": (1.0, 1000.0)}
        for name, (least, highest) in bounds.items():
            if not least <= getattr(self, name) <= highest:
                raise BadInput(
                    f"{getattr(self, name):g} is out of range",
                    where=f"{where}: {name}",
                    mend=f"use {least:g} to {highest:g}",
                )
        return self

    def slowed(self, curve: Curve, rng: np.random.Generator) -> Curve:
        """What a trial of this curve reports, and when."""
        if not curve.epochs or not self:
            return curve
        steps = np.diff(np.array([0, *curve.ends]))
        factor = (1.0 + abs(float(rng.normal())) * self.spread) * np.where(
            rng.random(len(steps)) < self.part, self.times, 1.0
        )
        taken = np.maximum(np.rint(steps * factor).astype(np.int64), steps.clip(max=1))
        return curve._replace(ends=np.cumsum(taken).tolist())


NO_STRAGGLERS: Final = Stragglers()


def read_stragglers(text: str, where: str = "--stragglers") -> Stragglers:
    """`spread=0.5`, `part=0.05,times=10`, or both; "" for none. Raises BadInput."""
    known, given = [each.name for each in fields(Stragglers)], dict[str, float]()
    for word in filter(None, text.split(",")):
        name, _, value = (piece.strip() for piece in word.partition("="))
        try:
            if name not in known or name in given:
                raise ValueError
            given[name] = float(value)
        except ValueError:
            raise BadInput(
                f"{word!r} is not a setting of stragglers",
                where=where,
                mend="write like spread=0.5, or part=0.05,times=10",
            ) from None
    if "times" in given and not given.get("part"):
        raise BadInput("which part of the epochs?", where=where, mend="add part=0.05")
    return Stragglers(**given).check(where)
