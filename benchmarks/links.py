"""Flows on shared links: how fast their rates follow, and how near means are to single steps.

    python benchmarks/links.py [--write]

Prints the rows of links.md; `--write` makes the page. CPU time of this process, other work beside
it or not.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
from provenance import machine, made
from provenance import write as write_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ganger.solve.flows.flow_rates import Flow, FlowRates
from ganger.solve.flows.max_min import Crossings, Floats, max_min
from sim.links.worlds import Random

HOSTS, RACK, FLOWS = 512, 16, 2000
CHANGES = 500
SECONDS = 300
"""So long single steps are simulated."""
PAGE = """# Flows on shared links

Made by {made}. Times are CPU seconds, beside other work, on {machine}.

## Rates of flows that come and go
A fat tree of {hosts} hosts in racks of {rack}, {flows} flows at once, each between two hosts; one
goes, one comes, {changes} times each. *Exact*: the largest difference at the end, as a part of the
rate, from filling all flows from nothing.

{speed}

## Means beside single steps
Twenty random worlds: 16 nodes in racks of four at 1:1, 2:1 or 4:1, four to thirteen jobs that
compute for 0.1 to 1 s and move for a tenth to all of that. Seconds of a step in the mean grain over
the mean of {seconds} s of single steps that begin at random: by world the mean over its jobs, and
the job that is farthest off. What single steps show and means do not is the phase: two jobs of one
period keep theirs for ever, and whether they meet is then chance.

{worlds}

All in all a job's step is {mean:.1%} off in the mean; {near:.0%} of {jobs} jobs are within 5 %.
"""


def tree(over: float) -> list[float]:
    """Capacities: hosts up and down at 1, racks up and down."""
    return [1.0] * (2 * HOSTS) + [RACK / over] * (2 * HOSTS // RACK)


def flow(random: np.random.Generator, inside: float) -> Flow:
    """Between two hosts, with that chance of one rack."""
    one = int(random.integers(HOSTS))
    first, size = (one // RACK * RACK, RACK) if random.random() < inside else (0, HOSTS)
    other = first + int(random.integers(size))
    while other == one:
        other = first + int(random.integers(size))
    path = [(2 * one, 1.0), (2 * other + 1, 1.0)]
    if one // RACK != other // RACK:
        path += [(2 * HOSTS + 2 * (one // RACK), 1.0), (2 * HOSTS + 2 * (other // RACK) + 1, 1.0)]
    return Flow(tuple(path))


def speed(inside: float, over: float) -> tuple[float, float]:
    """Starts and ends a CPU second, and how exact the rates are after them."""
    random, capacity = np.random.default_rng(0), tree(over)
    rates = FlowRates(capacity)
    rates.change([(number, flow(random, inside)) for number in range(FLOWS)])
    coming = [flow(random, inside) for _ in range(CHANGES)]
    began = time.process_time()
    for number, new in enumerate(coming):
        rates.change(remove=[number])
        rates.change([(FLOWS + number, new)])
    took = time.process_time() - began
    numbers = sorted(rates.flows)
    crossings = Crossings.of([rates.flows[each].path for each in numbers], len(capacity))
    ones = np.ones(len(numbers))
    exact, _ = max_min(crossings, np.array(capacity), ones, np.full(len(numbers), math.inf))
    ours = np.array([rates.rates[each] for each in numbers])
    return 2 * CHANGES / took, float(np.abs(ours / exact - 1).max())


def beside(seed: int) -> Floats:
    """Seconds of a step of each job of a random world in the mean, over those of single steps."""
    world = Random(seed)
    return world.fluid() / world.by_step(SECONDS)


def line(seed: int, ratio: Floats) -> str:
    """The row of a world."""
    far = ratio[np.abs(ratio - 1).argmax()]
    return f"| {seed} | {len(ratio)} | {ratio.mean():.3f} | {far:.3f} |"


def main() -> None:
    """Print the rows; write the page if wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    lines = ["| flows | starts or ends a CPU second | exact to |", "|:---|---:|---:|"]
    for name, inside, over in (("90 % inside racks, 4:1", 0.9, 4.0), ("uniform, 4:1", 0.0, 4.0)):
        many, off = speed(inside, over)
        lines.append(f"| {name} | {many:,.0f} | {off:.1e} |")
        print(lines[-1], flush=True)
    worlds = ["| world | jobs | mean over jobs | farthest off |", "|---:|---:|---:|---:|"]
    every = []
    for seed in range(20):
        ratio = beside(seed)
        every.append(ratio)
        worlds.append(line(seed, ratio))
        print(worlds[-1], flush=True)
    off = np.abs(np.concatenate(every) - 1)
    page = PAGE.format(
        made=made(),
        machine=machine(),
        hosts=HOSTS,
        rack=RACK,
        flows=FLOWS,
        changes=CHANGES,
        seconds=SECONDS,
        jobs=len(off),
        speed="\n".join(lines),
        worlds="\n".join(worlds),
        mean=off.mean(),
        near=(off < 0.05).mean(),
    )
    if write:
        write_page(Path(__file__).parent / "links.md", page)


if __name__ == "__main__":
    main()
