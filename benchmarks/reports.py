"""How many reports of trials a kernel takes in a CPU second, on the load of a large search.

    python benchmarks/reports.py [--trials 2000] [--reports 52] [--rounds 7] [--no-write]

One search holds a GPU for every second trial. All trials report each epoch, each report a batch of
its own, through a kernel with fifo for the cluster and successive halving inside the grant. The
first half runs to the end of the rung and is set aside; then the other half does, while the first
stands among the paused. The recipe is asked where a trial reaches the end of its rung, and nowhere
else. No simulator and no searcher take part: an engine of a few lines says at once that what was to
start has started. Beside it, in turns, the same reports into a dictionary of lists, which is the
limit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path

from provenance import machine, made, write

from ganger.core.events import AnyEvent, Batch, Evaluated, Released, Started, Submitted
from ganger.core.kernel import Kernel
from ganger.core.plan import PAUSED, Plan, Start, Stop
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.units import NEVER
from ganger.lab.simulating.policies import load_policy
from ganger.mechanisms.common.two_level import TwoLevel

PAGE = Path(__file__).with_name("reports.md")
GOAL = 40_000
HEAD = "| trials | reports | most paused at once | decisions |\n|---:|---:|---:|---:|"
RATES = "| reports a CPU second | median | least | most |\n|:---|---:|---:|---:|"


def kernel_of(trials: int, reports: int) -> Kernel:
    """A kernel with one search of so many trials, which are there from the start."""
    gpus = trials // 2
    search = JobSpec(name="search", kind=Kind.TUNE, shape=Shape((Role(size=gpus),)))
    specs = [search, *(JobSpec(name=f"t{at}", parent="search") for at in range(trials))]
    cluster = ClusterSpec((NodeSpec(count=-(-gpus // 8), gpus=8, gpu_type="V100"),)).check()
    inner = load_policy(f"tune.sha(trials=1,eta=2,first={reports})", plane="tuning")
    return Kernel(Nodes(cluster), declare(specs), TwoLevel(load_policy("fifo"), inner))


class Load:
    """An engine: trials that report one after the other, a second apart."""

    def __init__(self, trials: int, reports: int) -> None:
        self._now, self._reports = 0, reports
        self._instant: list[AnyEvent] = [Submitted(row) for row in range(trials + 1)]
        self._running: list[int] = []
        self._attempt: dict[int, int] = {}
        self._wave = iter(())
        self.reported, self.most_paused = 0, 0
        self._paused: set[int] = set()

    def poll(self, until: int) -> Batch | None:
        """What was ordered has happened; else the next report."""
        if self._instant:
            events, self._instant = self._instant, []
            return Batch(self._now, events)
        following = next(self._wave, None)
        if following is None:
            if not self._running:
                return None
            rows, self._running = self._running, []
            self._wave = iter(
                [(row, epoch) for epoch in range(1, self._reports + 1) for row in rows]
            )
            following = next(self._wave)
        row, epoch = following
        self._now += 1
        self.reported += 1
        return Batch(self._now, [Evaluated(row, 1, float(epoch), 1.0 / epoch)])

    def apply(self, plan: Plan, now: int) -> None:
        """At once."""
        for action in plan.actions:
            if isinstance(action, Start):
                self._instant.append(Started(action.job, action.attempt))
                self._paused.discard(action.job)
                if action.job and action.attempt == 1:
                    self._running.append(action.job)
            elif isinstance(action, Stop):
                self._instant.append(Released(action.job, action.attempt))
                if action.why == PAUSED:
                    self._paused.add(action.job)
                    self.most_paused = max(self.most_paused, len(self._paused))
        self._instant.sort(key=lambda event: event.rank)


def through_the_kernel(trials: int, reports: int) -> tuple[float, Load, Kernel]:
    """Reports a CPU second; the engine and the kernel at the end."""
    kernel, load = kernel_of(trials, reports), Load(trials, reports)
    began = time.process_time()
    kernel.run(load, NEVER)
    assert load.reported >= trials * reports
    return load.reported / (time.process_time() - began), load, kernel


def into_a_dictionary(trials: int, reports: int) -> float:
    """The same reports, only kept."""
    kept: dict[int, list[float]] = defaultdict(list)
    began = time.process_time()
    for epoch in range(1, reports + 1):
        for row in range(1, trials + 1):
            event = Evaluated(row, 1, float(epoch), 1.0 / epoch)
            kept[event.job].append(1.0 / epoch)
    return trials * reports / (time.process_time() - began)


def counted(trials: int, reports: int) -> str:
    """A row of what happened, which is the same on every machine."""
    _, load, kernel = through_the_kernel(trials, reports)
    return f"| {trials:,} | {load.reported:,} | {load.most_paused:,} | {kernel.decisions:,} |"


def main() -> None:
    """Measure in turns, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--reports", type=int, default=52)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    ours, bare, row = list[float](), list[float](), counted(args.trials, args.reports)
    for _ in range(args.rounds):
        ours.append(through_the_kernel(args.trials, args.reports)[0])
        bare.append(into_a_dictionary(args.trials, args.reports))
    rates = [
        f"| {name} | {statistics.median(each):,.0f} | {min(each):,.0f} | {max(each):,.0f} |"
        for name, each in (("the kernel", ours), ("only kept", bare))
    ]
    print("\n".join([HEAD, row, RATES, *rates]))
    if not args.no_write:
        text = __doc__.split("\n\n")[2].replace("\n", " ").replace(" `--write` makes the page.", "")
        write(
            PAGE,
            f"""# Reports of trials

Made by {made()}; {machine()}. Medians of {args.rounds} rounds in turns. The goal is {GOAL:,}.

{text}

{HEAD}
{row}

{RATES}
{rates[0]}
{rates[1]}
""",
        )


if __name__ == "__main__":
    main()
