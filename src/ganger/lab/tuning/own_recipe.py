"""The recipe that a search names for its own trials, with its limits, as text that a journal keeps:
`tune.asha(mode=max,trials=60); deadline=6h; gpu_hours=20`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.tuning.goals import GOALS_MAX, Constraint, read_constraint
from ganger.core.units import parse_duration
from ganger.mechanisms.common.two_level import Search, searches
from ganger.mechanisms.tuning.limits import Limited, Limits
from ganger.recipes import registry

LENGTH_MAX: Final = 1000
"""Characters."""
TRIALS_MAX: Final = 10_000
"""The most trials of a search."""
_AMOUNTS: Final = ("epochs", "gpu_hours", "money")
_AMOUNT_MAX: Final = 1e12


def written(recipe: str, limits: dict[str, str], constraints: Sequence[Constraint] = ()) -> str:
    """A recipe, its limits, and what trials must keep, as one text."""
    said = (f"{name}={value}" for name, value in limits.items())
    return "; ".join([recipe, *said, *map(str, constraints)])


def own_recipe(text: str, *, bounded: bool = True) -> Policy:
    """The recipe that a text names: one over trials, or fifo for trials that users submit. A file
    would run as the daemon, and a recipe for jobs could keep it busy. Raises BadInput."""
    if len(text) > LENGTH_MAX:
        raise BadInput(f"it is longer than {LENGTH_MAX} characters", where="recipe")
    name, *parts = (part.strip() for part in text.split(";"))
    named, _ = registry.parse(name, bounded=bounded)
    if named.plane != "tuning" and named.name != "fifo":
        raise BadInput(
            f"{named.name} does not decide over the trials of a search",
            where="recipe",
            mend="see `ganger recipes --plane tuning`",
        )
    policy = registry.make(name, bounded=bounded)
    if getattr(policy, "trials", 0) > TRIALS_MAX:
        raise BadInput(
            f"it starts {policy.trials:,} trials",  # type: ignore[attr-defined]
            where="recipe",
            mend=f"at most {TRIALS_MAX:,} are started: let trials train for fewer epochs",
        )
    limits = _limits(parts)
    if not limits and not limits.constraints:
        return policy
    if not searches(policy):
        raise BadInput(
            f"{named.name} asks for no trials, so that it cannot end them at a limit",
            where="recipe",
            mend="leave the limits out, or see `ganger recipes --plane tuning`",
        )
    return Limited(cast("Search", policy), limits)


def _limits(parts: list[str]) -> Limits:
    """Those that are written `NAME=VALUE`, and constraints, `METRIC<=BOUND`."""
    given, constraints = dict[str, Any](), list[Constraint]()
    for part in parts:
        if "<=" in part or ">=" in part:
            constraints.append(read_constraint(part, "recipe"))
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in ("deadline", "target", *_AMOUNTS) or name in given:
            raise BadInput(
                f"{part!r} is not one limit",
                where="recipe",
                mend="write like tune.asha; deadline=6h; epochs=4000; gpu_hours=20; money=50",
            )
        if name == "deadline":
            given[name] = parse_duration(value, where="deadline")
            continue
        try:
            given[name] = float(value)
        except ValueError:
            given[name] = float("nan")
        if name == "target":
            if not math.isfinite(given[name]):
                raise BadInput(f"{value!r} is not a valid value of a metric", where=name)
        elif not 0.0 < given[name] <= _AMOUNT_MAX:
            raise BadInput(f"{value!r} is not above 0 and at most 1e12", where=name)
    if len(constraints) > GOALS_MAX:
        raise BadInput(f"more than {GOALS_MAX} constraints", where="recipe")
    return replace(Limits(), **given, constraints=tuple(constraints))
