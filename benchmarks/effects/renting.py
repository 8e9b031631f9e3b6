"""Machines that are rented for jobs: what they cost, against a plain autoscaler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from effects.common import (
    ALL_STOP,
    STOP,
    Effect,
    effect,
    elastic,
    mean,
    modelled,
    verdict,
    workload,
)
from effects.market import due
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.market.prices import Series, read_prices
from ganger.workloads.measured.published import profiles
from ganger.workloads.trace import Trace

DOLLARS = {"V100": 3.06, "P100": 2.07, "K80": 0.90}
"""An hour of a machine with one GPU on demand, in 2020 (AWS, Azure)."""
AUTOSCALER = "helios-ces(buffer=0)"
"""First come, first served on as many machines as are asked for. Its bill counts only what jobs
hold, as if machines came and went at once: what is left is the choice of machines."""
MACHINES = 64


def group(kind: str, gpus: int = 1, market: str = "on_demand", prices: Series = ()) -> NodeSpec:
    """Machines of a type for rent, enough of them."""
    price = -1.0 if prices else DOLLARS[kind] * gpus
    offer = Offer(market, price=price, prices=prices, rentable=True)
    return NodeSpec(MACHINES // gpus, gpus, kind, offer=offer)


def offered(*groups: NodeSpec) -> ClusterSpec:
    """What is for rent."""
    types = tuple(GpuType(name, price=price) for name, price in DOLLARS.items())
    return ClusterSpec(groups, types)


ON_DEMAND = offered(group("V100"), group("V100", 8), group("P100"), group("K80"))
SINGLE, EIGHTS = offered(group("V100")), offered(group("V100", 8))


def play(trace: Trace, spec: ClusterSpec, recipe: str, **setup: Any) -> Run:
    """Run it, with its bill; every job must come to its end."""
    run = run_one(trace, spec, recipe, Setup(**setup))
    assert all(state == "finished" for state in run.jobs.state), recipe
    return run


def cost(run: Run) -> float:
    """The bill, in USD."""
    return sum(run.cost.values())


def held(run: Run) -> float:
    """What jobs held of the bill, in USD."""
    return run.cost["jobs"]


def late(trace: Trace, run: Run) -> float:
    """The percentage of jobs that were not done by their deadline."""
    n = trace.jobs
    return 100.0 * float(np.mean(run.jobs.finish > trace.declared.deadline[:n] / SECOND))


def goals(seed: int) -> Trace:
    """Elastic jobs of four models with deadlines."""
    trace = workload("poisson", jobs=60, load=0.5, gpus=32, seed=seed)
    return due(elastic(modelled(trace, seed)), seed)


def against(recipe: str, seed: int) -> dict[str, float]:
    """The bill of the autoscaler over that of a recipe, and how many jobs are late."""
    trace = goals(seed)
    own = play(trace, ON_DEMAND, recipe, profiles=profiles(), seed=seed)
    single, eights = (
        play(trace, spec, AUTOSCALER, profiles=profiles(), seed=seed) for spec in (SINGLE, EIGHTS)
    )
    return {
        "cost, single V100": held(single) / cost(own),
        "cost, machines of 8": held(eights) / cost(own),
        f"late %, {recipe}": late(trace, own),
        "late %, single V100": late(trace, single),
        "late %, machines of 8": late(trace, eights),
    }


def least(ours: dict[str, float]) -> float:
    """Over the cheaper of the two that it is compared with."""
    return min(value for name, value in ours.items() if name.startswith("cost"))


SETUP = (
    "Poisson, 60 elastic jobs of four models, due at ten minutes and 1.2 to 4 times their run time;"
    " V100, P100, K80 by one and V100 by eight for rent; cost of what jobs hold under an"
    " autoscaler on V100 over its whole bill"
)


@effect
def cynthia() -> Effect:
    """Cost within goals of time."""
    ours = mean(lambda seed: against("cynthia", seed))
    return Effect(
        "cynthia",
        SETUP,
        "cost up to -50.6 % at the goal of time",
        ours,
        verdict((least(ours), 1 / (1 - 0.506))),
        "no parameter servers: the published models state none",
    )


@effect
def fc2() -> Effect:
    """Cost at similar speed."""
    ours = mean(lambda seed: against("fc2", seed))
    return Effect(
        "fc2",
        SETUP,
        "cost up to -80 % at similar performance",
        ours,
        verdict((least(ours), 1 / (1 - 0.8))),
        "where a job stops to scale on part of a machine of 8, all of that is paid",
    )


@effect
def mlcloudprice() -> Effect | None:
    """Cost by moving between types, zones and markets, on recorded prices."""
    if "GANGER_TRACES" not in os.environ:
        return None
    file = Path(os.environ["GANGER_TRACES"]) / "spot-prices-2020/aws_spot_price_us.csv.gz"
    zones = {"p3.2xlarge": ("V100", "us-east-1c", "us-east-2a"),
             "p2.xlarge": ("K80", "us-east-1b", "us-west-2a")}  # fmt: skip
    spot = [
        group(kind, market="spot", prices=read_prices(file, instance, zone))
        for instance, (kind, *names) in zones.items()
        for zone in names
    ]
    market = offered(group("V100"), group("K80"), *spot)
    recipes = ("mlcloudprice", "mlcloudprice(every=1h)", "mlcloudprice(every=1000d)")

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload("poisson", 60, load=0.5, gpus=32, seed=seed, largest=1), seed)
        trace.duration[:] *= 24
        terms = {"profiles": profiles(), "seed": seed, "costs": STOP}
        plain = held(play(trace, SINGLE, AUTOSCALER, **terms))
        return {
            name: plain / cost(play(trace, market, recipe, **terms))
            for name, recipe in zip(("daily", "hourly", "never"), recipes, strict=True)
        }

    ours = mean(measure)
    return Effect(
        "mlcloudprice",
        "60 one-GPU jobs of four models, of hours to weeks, V100 and K80 on demand and on the spot"
        " market of two AWS zones each in the winter of 2020; cost of what jobs hold on V100 on"
        " demand over the whole bill of moving daily, hourly, never",
        "cost down by as much as 3.5x against a static policy; moving more than once a day brings"
        " nothing",
        ours,
        verdict((ours["daily"], 3.5)),
        "the saving is that of type and market: no job moves, as the cheapest zone stays the"
        " cheapest; nothing is revoked, as prices say nothing of that",
        costs=ALL_STOP,
    )
