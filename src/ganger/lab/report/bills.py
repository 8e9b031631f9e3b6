"""Energy, carbon and money in the report: a table by recipe, which recipes nothing beats, and where
the figures come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ganger.lab.billing.account import figure
from ganger.lab.metrics import Group
from ganger.lab.words import JCT

COLUMNS: Final = (
    ("energy_kwh", "Energy, kWh"),
    ("energy_of_idle_kwh", "of it idle"),
    ("carbon_kg", "Carbon, kg"),
    ("cost", "Cost"),
    ("cost_of_jobs", "of jobs"),
    ("cost_of_services", "of services"),
    ("cost_of_idle", "of idle"),
)
FRONTIERS: Final = (("energy_kwh", "energy and JCT"), ("cost", "cost and JCT"))


def table(groups: Sequence[Group], colours: dict[str, int]) -> dict[str, Any] | None:
    """What the section shows of one load: means over seeds, and for each recipe in what nobody is
    better; None where no run has an account."""
    known = [group for group in groups if group.runs[0].account is not None]
    if not known:
        return None
    shown = [each for each in COLUMNS if any(math.isfinite(g.mean(each[0])) for g in known)]
    fronts = {
        said: frontier(known, metric)
        for metric, said in FRONTIERS
        if any(math.isfinite(g.mean(metric)) for g in known)
    }
    return {
        "head": [title for _, title in shown],
        "rows": [
            {
                "label": group.label,
                "colour": colours[group.label],
                "cells": [figure(group.mean(name)) for name, _ in shown],
                "best": ", ".join(said for said, front in fronts.items() if group in front),
            }
            for group in known
        ],
        "sources": list(
            dict.fromkeys(
                line for g in known for run in g.runs if run.account for line in run.account.said()
            )
        ),
    }


def frontier(groups: Sequence[Group], metric: str) -> list[Group]:
    """Those than which no other has both less of `metric` and a lower mean JCT, or as much of one
    and less of the other."""

    def at(group: Group) -> tuple[float, float]:
        return group.mean(metric), group.mean(JCT)

    known = [group for group in groups if all(map(math.isfinite, at(group)))]
    return [group for group in known if not any(_beats(at(other), at(group)) for other in known)]


def _beats(first: tuple[float, float], other: tuple[float, float]) -> bool:
    return first != other and first[0] <= other[0] and first[1] <= other[1]
