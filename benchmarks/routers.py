"""How many requests the simulated request plane works through in a CPU second.

    python benchmarks/routers.py [--requests 100000] [--rounds 5] [--no-write] [--tokens]

Requests come as a Poisson process to 16 lanes of one type, with a deadline of 100 ms; a batch of n
takes 3 + 1.5 n ms with a lognormal spread (p99 1.3 times the mean). Two loads: 1,600 a second,
where nearly every batch is a single request, and 7,500, where batches have four and more. One
model, or 16 that are asked for alike. Noise and reasons are on; for clockwork and 16 models memory
is watched as well: each device has room for 12 of them. Beside each row, in turns, the limit: a
loop over lists and a heap that sends whatever waits to the first free lane, with no router, no
noise and no outcome but a time.

With --tokens only token models, and no page: 10,000 requests to four lanes, with lognormal prompts
of 600 and outputs of 150 tokens on average, a limit of 128 sequences and a cache of 60,000 tokens
for each lane; at 8 requests a second, which the lanes can serve, and at 40, which fill the cache.
`routers_large.py` has the rows of the third table: all slots at work together, Clockwork with 1,000
models on 64 lanes, a day of 100 million requests, and a decision about 1,000 services.
"""

from __future__ import annotations

import argparse
import statistics
import time
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import numpy as np
import routers_large as large
from provenance import machine, made, write

from ganger.core.serving.tokens import Times
from ganger.core.serving.world import Known, Lane, Latencies, Store, World
from ganger.lab.serving.tally import Tally
from ganger.recipes.registry import make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane

PAGE = Path(__file__).with_name("routers.md")
SERVED = 100_000
"""Requests of each row."""
LANES, SLO, LARGEST = 16, 100_000, 64
MEAN = [0, *(3_000 + 1_500 * n for n in range(1, LARGEST + 1))]
RECIPES = ("serve.triton", "clipper", "nanily", "clockwork", "nexus", "serve.least-loaded(size=64)")
GOAL = (
    "The goal is 200 thousand where batches hold four and more, 60 thousand where they hold one,"
    " and never under a twentieth of the limit."
)
BEYOND = (
    "*All slots* is a router of a cache (1,000 answers of 20,000 inputs), Exp3 among four variants"
    " of each of four families, dispatch to the least loaded of 16 lanes, queues of at most 1,000,"
    " the earliest deadline first, and admission of what ends in time. Of the 1,000 models, the"
    " k-th is asked for in proportion to 1 / k; each device has room for 100, and a load takes 8"
    " ms. The day's load swings by half between noon and midnight; it is generated in chunks, and"
    " served by `serve.triton` on three lanes. Services have one to four replicas, and each"
    " minute another load; the first number is the median of the decisions."
)
HEAD = (
    "| recipe | models | requests a second | in a batch | answered | late | dropped |\n"
    "|:---|---:|---:|---:|---:|---:|---:|"
)
RATES = (
    "| recipe | models | in a batch | thousand requests a CPU second | least | most |"
    " share of the limit |\n|:---|---:|---:|---:|---:|---:|---:|"
)

SPOKEN = (
    "| recipe | a second | thousand requests a CPU second | thousand tokens a CPU second |"
    " tokens of an order | in a step | preempted | late |\n"
    "|:---|---:|---:|---:|---:|---:|---:|---:|"
)


class Case(NamedTuple):
    """What is measured."""

    recipe: str
    models: int
    per_second: int
    requests: int

    def columns(self) -> dict[str, list[int]]:
        """The requests."""
        rng = np.random.default_rng(1)
        at = rng.exponential(1e6 / self.per_second, self.requests).cumsum().astype(np.int64)
        return {
            "arrival": at.tolist(),
            "deadline": (at + SLO).tolist(),
            "model": rng.integers(0, self.models, self.requests).tolist(),
        }

    def world(self) -> World:
        """Models and lanes; memory that holds three quarters of the models for who loads them."""
        table = Latencies(MEAN, [round(1.3 * each) for each in MEAN])
        models = [
            Known(f"m{at}", {("gpu", 1.0): table}, 1 << 20, 5_000, 1.0) for at in range(self.models)
        ]
        if not (make_router(self.recipe).can.loads and self.models > 1):
            return World(models, [Lane(at, "gpu", device=at) for at in range(LANES)])
        lanes = [
            Lane(at, "gpu", device=at % LANES, store=at % LANES, copies=at >= LANES)
            for at in range(2 * LANES)
        ]
        room = self.models * 3 // 4 << 20
        return World(models, lanes, [Store(at, room) for at in range(LANES)])


def served(case: Case) -> tuple[float, Tally]:
    """Requests a CPU second, and what became of them."""
    columns, world = case.columns(), case.world()
    tally = Tally(world, [1.0] * case.models)
    began = time.process_time()
    plane = Plane(world, make_router(case.recipe), Physics(world.models), iter([columns]), [tally])
    plane.advance()
    plane.finish()
    return case.requests / (time.process_time() - began), tally


def bare(case: Case) -> float:
    """The limit."""
    columns = case.columns()
    arrival, model = columns["arrival"], columns["model"]
    began = time.process_time()
    free = list(range(LANES))
    ends: list[tuple[int, int]] = []
    waiting: list[list[int]] = [[] for _ in range(case.models)]
    order: list[int] = []
    latency = [0] * case.requests
    at, now = 0, 0
    while at < case.requests or ends:
        if free and not order:
            now = arrival[at] if at < case.requests else ends[0][0]
        elif ends:
            now = ends[0][0]
        while ends and ends[0][0] <= now:
            free.append(heappop(ends)[1])
        while at < case.requests and arrival[at] <= now:
            rows = waiting[model[at]]
            if not rows:
                order.append(model[at])
            rows.append(at)
            at += 1
        while free and order:
            which = order.pop(0)
            rows, waiting[which] = waiting[which][:LARGEST], waiting[which][LARGEST:]
            if waiting[which]:
                order.append(which)
            end = now + MEAN[len(rows)]
            for row in rows:
                latency[row] = end - arrival[row]
            heappush(ends, (end, free.pop()))
    return case.requests / (time.process_time() - began)


def spoken(recipe: str, per_second: float, requests: int = 10_000) -> str:
    """A row of token models: how long it took, and what happened."""
    rng = np.random.default_rng(1)
    at = rng.exponential(1e6 / per_second, requests).cumsum().astype(np.int64)
    lengths = [
        np.clip(np.rint(rng.lognormal(np.log(mean) - 0.35, 0.83, requests)), 1, 20_000)
        for mean in (600, 150)
    ]
    prompt, output = (each.astype(np.int64).tolist() for each in lengths)
    columns = {
        "arrival": at.tolist(),
        "deadline": (at + 30_000_000).tolist(),
        "prompt": prompt,
        "output": output,
        "tenant": rng.integers(1, 5, requests).tolist(),
    }
    times = Times(
        (18_000.0, 100.0, 0.007), ((95, 20_000.0, 39.0, 0.63), (1e9, 7_200.0, 160.0, 0.58))
    )
    whole = [0, *(round(times.whole([600] * n, 150)) for n in range(1, 65))]
    known = [
        Known("m", {("gpu", 1.0): Latencies(whole, whole)}, tokens={"gpu": times}, cache_bytes=1)
    ]
    world = World(
        known,
        [Lane(at, "gpu", device=at, cache=60_000) for at in range(4)],
        tenants=("", "a", "b", "c", "d"),
    )
    tally = Tally(world, [1.0])
    began = time.process_time()
    plane = Plane(world, make_router(recipe), Physics(known), iter([columns]), [tally])
    plane.advance()
    plane.finish()
    took = time.process_time() - began
    return (
        f"| `{recipe}` | {per_second:g} | {requests / took / 1000:,.1f} |"
        f" {sum(output) / took / 1000:,.0f} | {sum(output) / plane.batches:,.0f} |"
        f" {tally.executed / tally.batches:.1f} | {tally.preempted:,} | {tally.late:,} |"
    )


def counted(case: Case) -> str:
    """A row of what happened, which is the same on every machine."""
    _, tally = served(case)
    return (
        f"| `{case.recipe}` | {case.models} | {case.per_second:,} |"
        f" {tally.executed / tally.batches:.2f} | {tally.answered:,} | {tally.late:,} |"
        f" {tally.requests - tally.answered:,} |"
    )


def cases(requests: int) -> list[Case]:
    """All of them."""
    return [
        Case(recipe, models, rate, requests)
        for rate in (1600, 7500)
        for models in (1, 16)
        for recipe in RECIPES
    ]


def beyond(requests: int, rounds: int) -> list[str]:
    """What there is a goal for beyond the table of recipes: what, measured, goal."""
    rows = list[str]()

    def row(what: str, value: str, goal: str) -> None:
        rows.append(f"| {what} | {value} | {goal} |")
        print(rows[-1], flush=True)

    for rate, goal in ((1600, "30"), (7500, "100")):
        found = [large.all_slots(rate, requests) for _ in range(rounds)]
        size = found[0].tally.executed / found[0].tally.batches
        middle = statistics.median(each.per_second for each in found) / 1000
        row(
            f"all slots, {rate:,} a second, {size:.1f} in a batch: thousand a CPU second",
            f"{middle:,.0f}",
            goal,
        )
    for rate in (8_000, 16_000):
        found = [large.many_models(rate, requests) for _ in range(rounds)]
        middle = statistics.median(each.per_second for each in found) / 1000
        row(
            f"`clockwork`, 1,000 models, 64 lanes, {rate:,} a second: thousand a CPU second",
            f"{middle:,.0f}",
            "50",
        )
    some = large.day(large.DAY // 20)
    size = some.tally.executed / some.tally.batches
    row(
        f"a day of 100 million, {size:.1f} in a batch: CPU minutes, from a twentieth of it",
        f"{some.seconds * 20 / 60:.1f}",
        "10",
    )
    found = large.by_windows(large.DAY // 10, 15)
    row(
        "a tenth of that day on four lanes, by windows of 15 s: times as fast as every request",
        f"{found['times as fast']:.1f}",
        "",
    )
    found = large.beside(1200.0)
    row(
        f"a service beside training, by windows of 10 s, {found['read']:.0%} of them read:"
        " times as fast as every request",
        f"{found['times as fast']:.1f}",
        "",
    )
    row(
        "attainment of it, p50, p99: how far from those of every request",
        f"{found['attainment']:+.2%}, {found['latency_p50_seconds']:+.1%},"
        f" {found['latency_p99_seconds']:+.1%}",
        "",
    )
    most, held = large.bytes_in_flight(1_000_000)
    row(f"bytes a request, {held:,} in flight", f"{most:.0f}", "120")
    for recipe in ("scale.threshold", "scale.reactive"):
        took = large.control(recipe)
        row(
            f"`{recipe}`, 1,000 services, 500 GPUs: CPU ms of a decision, at most",
            f"{statistics.median(took):.1f}, {max(took):.1f}",
            "100",
        )
    return rows


def main() -> None:
    """Measure in turns, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=SERVED)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--tokens", action="store_true", help="token models only, and no page")
    args = parser.parse_args()
    if args.tokens:
        print(SPOKEN)
        for rate in (8, 40):
            for recipe in ("serve.continuous-batching", "serve.fair", "serve.triton"):
                print(spoken(recipe, rate), flush=True)
        return
    rows, rates = list[str](), list[str]()
    for case in cases(args.requests):
        rows.append(counted(case))
        ours, limit = list[float](), list[float]()
        for _ in range(args.rounds):
            ours.append(served(case)[0])
            limit.append(bare(case))
        mean = float(rows[-1].split("|")[4])
        middle = statistics.median(ours)
        rates.append(
            f"| `{case.recipe}` | {case.models} | {mean:.1f} | {middle / 1000:,.0f} |"
            f" {min(ours) / 1000:,.0f} | {max(ours) / 1000:,.0f} |"
            f" 1/{statistics.median(limit) / middle:.1f} |"
        )
        print(rates[-1], flush=True)
    more = beyond(args.requests, args.rounds)
    rows.append(large.slots_row(1600, args.requests))
    if not args.no_write:
        text = __doc__.split("\n\n")[2].replace("\n", " ")
        table, speeds, goals = "\n".join(rows), "\n".join(rates), "\n".join(more)
        write(
            PAGE,
            f"""# Requests, simulated

Made by {made()}; {machine()}. Medians of {args.rounds} rounds in
turns, {args.requests:,} requests each.

{GOAL}

{text}

{RATES}
{speeds}

## Beyond
{BEYOND}

| what | measured | goal |
|:---|---:|---:|
{goals}

## What became of them
{HEAD}
{table}
""",
        )


if __name__ == "__main__":
    main()
