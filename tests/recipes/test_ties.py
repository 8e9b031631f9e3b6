"""Days on which nearly all is equal, or falls on one instant: what every recipe decided then is on
record, as in `test_decided`.

Jobs come, end and fall due by whole numbers of rounds, leases and intervals; they have the same
sizes, lengths, weights and speeds. Whoever asks `<` where the rule says `<=`, or lets a tie go the
other way, decides otherwise here. A line of `ties.txt` is what a line of `decided.txt` is; to
change what a recipe decides, run `PYTHONPATH=tests python tests/recipes/test_ties.py`, read what
that changed in `ties.txt`, and commit both.

`make test` has the catalogue on all three days, variants on two, and those that solve or search at
every decision on one (`often`); `make soak` has all on all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.simulation import Setup
from ganger.recipes.registry import CATALOGUE
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from recipes.days import TENANTS, Day, Dice
from recipes.test_decided import DEAR, SMALL, VARIANTS, decided
from worlds import job

RECORD = Path(__file__).with_name("ties.txt")
STEP = 6 * 60
"""Seconds: Gavel's round, of which all times are multiples."""


def even(seed: int, nodes: tuple[NodeSpec, ...], jobs: int, **more: Any) -> Day:
    """So many jobs by the dice, on nodes whose GPUs are all as fast."""
    dice, works = Dice(seed), []
    for i in range(jobs):
        lasts, at = dice.of(1, 1, 2, 3, 5) * STEP, dice.between(0, 6) * STEP
        size = dice.of(1, 1, 2, 2, 4)
        tenant = dice.of("ann", "bob", "cid")
        declared: dict[str, Any] = {"estimate": lasts, "steps": float(lasts)}
        if i % 3 == 0:
            declared["deadline"] = at + lasts * dice.of(1, 2, 3)
        if i % 6 == 5:
            declared["on_preempt"] = dice.of(OnPreempt.NEVER, OnPreempt.SUSPEND)
        if i % 9 == 7:
            declared["limit"] = lasts
        role = Role(size=size, least=dice.of(size, 1), most=size * dice.of(1, 2))
        works.append(
            job(
                f"j{i}",
                at,
                lasts,
                shape=Shape((role,)),
                tenant=tenant,
                user=tenant,
                model="even",
                priority=dice.between(0, 1),
                **declared,
            )
        )
    types = tuple(GpuType(name, 16384, 300.0, 1.0) for name in ("V100", "P100"))
    known = Profiles({"even": Profile(scaling=(1.0, 2.0, 3.0, 4.0))})
    setup = Setup(seed, profiles=known, until=12 * HOUR, **more)
    return Day(ClusterSpec(nodes, types, TENANTS), works, setup)


V100 = NodeSpec(2, 4, "V100", 32000, 65536, island=2)
TIES: dict[str, Callable[[], Day]] = {
    "two-types": lambda: even(16, (V100, NodeSpec(1, 2, "P100", 16000, 32768)), 18),
    "one-type": lambda: even(17, (V100,), 16, costs=Costs(checkpoint=MINUTE, restore=MINUTE)),
    "racks": lambda: even(
        18,
        (NodeSpec(4, 2, "V100", nodes_per_rack=2),),
        18,
        outages=(Outage(1, 2 * STEP * SECOND, 4 * STEP * SECOND),),
    ),
}


def cases() -> list[tuple[str, str]]:
    """Each recipe and each variant, on each day."""
    recipes = [*(SMALL.get(name, name) for name in sorted(CATALOGUE)), *VARIANTS]
    return list(product(recipes, TIES))


@cache
def record() -> dict[tuple[str, str], str]:
    """What is on record."""
    rows = (line.split(maxsplit=2) for line in RECORD.read_text().splitlines())
    return {(recipe, day): rest for recipe, day, rest in rows}


def often() -> list[tuple[str, str]]:
    """The cases of `make test`: the days move on from recipe to recipe."""
    days, kept = [*TIES], set[tuple[str, str]]()
    for number, recipe in enumerate(dict.fromkeys(recipe for recipe, _ in cases())):
        many = 1 if recipe.startswith(DEAR) else 2 if number >= len(CATALOGUE) else 3
        kept.update((recipe, days[(number + step) % len(days)]) for step in range(many))
    return [case for case in cases() if case in kept]


@pytest.mark.parametrize(
    ("number", "recipe", "day"), [(i, *case) for i, case in enumerate(often())]
)
def test_ties_go_as_they_are_on_record(number: int, recipe: str, day: str) -> None:
    """One in five with caches made anew at every decision; in the others they last."""
    validate = number % 5 == 0 and not recipe.startswith(DEAR)
    assert decided(recipe, TIES[day](), validate=validate) == record()[recipe, day]


@pytest.mark.soak
@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(("recipe", "day"), cases())
def test_ties_go_so_on_every_day(recipe: str, day: str, validate: bool) -> None:
    assert decided(recipe, TIES[day](), validate=validate) == record()[recipe, day]


def test_nothing_else_is_on_record() -> None:
    assert list(record()) == cases()


if __name__ == "__main__":
    lines = (f"{recipe} {day} {decided(recipe, TIES[day]())}\n" for recipe, day in cases())
    RECORD.write_text("".join(lines))
