"""Machines that are rented for jobs: what they cost, against a plain autoscaler."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

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
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer
from ganger.core.units import SECOND
from ganger.estimate.clocks import Counters, Setting, drawn, trained
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


Bill: TypeAlias = tuple[Callable[[Trace, Run], float], Callable[[Trace, Run], float]]


def goals(seed: int) -> Trace:
    """Elastic jobs of four models with deadlines."""
    trace = workload("poisson", jobs=60, load=0.5, gpus=32, seed=seed)
    return due(elastic(modelled(trace, seed)), seed)


def against(
    recipe: str,
    seed: int,
    bill: Bill = (lambda _, run: cost(run), lambda _, run: held(run)),
    **terms: Any,
) -> dict[str, float]:
    """The bill of the autoscaler over that of a recipe, and how many jobs are late. `bill`: of the
    recipe, and of the autoscaler."""
    trace = goals(seed)
    terms |= {"profiles": profiles(), "seed": seed}
    own = play(trace, ON_DEMAND, recipe, **terms)
    single, eights = (play(trace, spec, AUTOSCALER, **terms) for spec in (SINGLE, EIGHTS))
    whole, theirs = bill
    return {
        "cost, single V100": theirs(trace, single) / whole(trace, own),
        "cost, machines of 8": theirs(trace, eights) / whole(trace, own),
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


@effect
def jahani() -> Effect:
    """Cost of machines that jobs share."""
    ours = mean(lambda seed: against("jahani", seed, costs=STOP))
    return Effect(
        "jahani",
        SETUP,
        "cost -45 % to -80 % against first-principle methods",
        ours,
        verdict((ours["cost, single V100"], 1 / (1 - 0.80)), (least(ours), 1 / (1 - 0.45))),
        "the autoscaler pays for what jobs hold alone, and moves none",
        costs=ALL_STOP,
    )


KWH, LATE = 0.15, 1.0
"""USD for a kWh and for an hour of lateness: the defaults of `andreas`."""


def drawn_and_late(trace: Trace, run: Run) -> float:
    """USD for the energy of machines while they are on, and for lateness."""
    assert run.account is not None
    over = run.jobs.finish - trace.declared.deadline[: trace.jobs] / SECOND
    hours = float(np.maximum(over, 0.0).sum()) / 3600
    return KWH * run.account.all_energy_kwh + LATE * hours


@effect
def andreas() -> Effect:
    """Energy and lateness."""
    bill = drawn_and_late, drawn_and_late
    ours = mean(lambda seed: against("andreas", seed, bill, costs=STOP))
    return Effect(
        "andreas",
        "as for jahani; cost: USD 0.15 for a kWh of machines that are on and 1 for an hour of"
        " lateness, under an autoscaler on V100 over that under andreas",
        "cost -30 % to -62 % against first-principle methods",
        ours,
        verdict((ours["cost, single V100"], 1 / (1 - 0.62)), (least(ours), 1 / (1 - 0.30))),
        "watts of hosts are assumed (200); with the autoscaler billed for what jobs hold alone, as"
        " in the row of jahani, it was 2.36 and 0.94 once",
        costs=ALL_STOP,
    )


MHZ = tuple(float(each) for each in range(600, 1531, 30))
CLOCKED = ClusterSpec(
    (NodeSpec(9, 8, "V100", watts=0.0),),
    (GpuType("V100", watts=300.0, idle_watts=30.0, clocks=MHZ, memory_clocks=(400.0, 877.0)),),
)
MODELS = 71


@effect
def gpoeo() -> Effect | None:
    """Energy at a small slow-down."""
    if "GANGER_TRACES" not in os.environ:
        return None

    def measure(seed: int) -> dict[str, float]:
        models = {
            f"m{at}": Profile(
                clocks=clocks,
                utilisation={"gpu": said.gpu, "bandwidth": said.bandwidth},
                watts={"V100": 300.0 * said.power},
            )
            for at, (said, clocks) in enumerate(drawn(MODELS, seed=100 + seed))
        }
        trace = workload("poisson", 3 * MODELS, load=0.1, gpus=CLOCKED.gpus, seed=seed, largest=1)
        declared = trace.declared
        codes = [declared.models.code(name) for name in models]
        declared.model[: trace.jobs] = np.resize(codes, trace.jobs)
        terms = {"profiles": Profiles(models), "seed": seed, "costs": STOP}
        plain, own = (play(trace, CLOCKED, recipe, **terms) for recipe in ("fifo", "gpoeo"))
        assert plain.account is not None
        assert own.account is not None
        took = (own.jobs.finish - own.jobs.arrival) / (plain.jobs.finish - plain.jobs.arrival)
        return {
            "energy": float((own.account.energy_kwh / plain.account.energy_kwh).mean()),
            "time": float(took.mean()),
            "longest": float(took.max()),
        }

    ours = mean(measure)
    error, nothing = on_zeus()
    return Effect(
        "gpoeo",
        "71 models by the synthetic generator that the predictors were trained on, other draws of"
        " it, one or two jobs of one V100 each, at a limit of 5 %; over what they take at full"
        " clocks under fifo",
        "energy -16.2 % at time +5.1 %, means of 71 workloads",
        ours | {"error on Zeus": error, "without predictors": nothing},
        verdict((1 / ours["energy"], 1 / (1 - 0.162))),
        "error on Zeus: of slow-downs predicted from measured watts, mean over lower power limits"
        " of V100 (1: twice as slow), and where none is predicted; it states no clocks",
        costs=ALL_STOP,
    )


def on_zeus() -> tuple[float, float]:
    """How wrong slow-downs are that are predicted for what Zeus measured on V100 at lower limits of
    power: at the clock of the same predicted power. Then the same where none is predicted."""
    file = Path(os.environ["GANGER_TRACES"]) / "zeus/summary_power_v100.csv.gz"
    runs = dict[tuple[str, ...], dict[float, tuple[float, float]]]()
    with gzip.open(file, "rt") as lines:
        for row in csv.DictReader(lines):
            key = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
            measured = float(row["time_per_epoch"]), float(row["average_power"])
            runs.setdefault(key, {})[float(row["power_limit"])] = measured
    wrong, slowed = list[float](), list[float]()
    for by_limit in runs.values():
        top = max(by_limit)
        seconds, watts = by_limit.pop(top)
        said = Counters(power=min(watts / top, 1.0))
        effects = [trained().at(said, Setting(core, 1.0)) for core in np.linspace(0.3, 1.0, 71)]
        power = np.maximum.accumulate([each.power for each in effects])
        for took, drew in by_limit.values():
            predicted = np.interp(drew / watts, power, [each.slowing for each in effects])
            wrong.append(abs(float(predicted) - took / seconds))
            slowed.append(abs(took / seconds - 1.0))
    return float(np.mean(wrong)), float(np.mean(slowed))
