"""Devices that MIG-Serving needs for ten seeded lots of services, beside the exact programme, its
bound, and devices that are not divided. Writes `slices.md`.

    python benchmarks/slices.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]


from provenance import made  # noqa: E402

from ganger.core.books.mig import MIG_SLICES  # noqa: E402
from ganger.recipes.serving.slices.packing import greedy  # noqa: E402
from ganger.recipes.serving.slices.search import Search  # noqa: E402
from ganger.solve.covering import cheapest, relaxed  # noqa: E402
from mechanisms.test_mig_serving import counted, programme, random_problem  # noqa: E402

LOTS, SERVICES, DEVICES = 10, 24, 100
HEAD = """# Slices for services

24 services on A100s, each with its own rates on 1, 2, 3, 4 and 7 sevenths (some need larger ones),
loads that need about 100 devices. `mig-serving` is the greedy answer and what 400 rounds of the
search make of it (`mig-serving(rounds=400)`; the recipe has 100); *exact* is the integer programme
of `ganger.solve.covering`, proved; *bound* its relaxation; *whole* gives every service whole
devices. CPU seconds are of the search, and of the programme.

Made by {made}.

| lot | bound | exact | greedy | mig-serving | whole | CPU s, search | CPU s, exact |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""


class Lot(NamedTuple):
    """Devices of one lot: the bound, the exact number, greedy, with the search, and undivided; CPU
    seconds of the search and of the programme."""

    bound: float
    exact: int
    greedy: int
    ours: int
    whole: int
    search_seconds: float
    exact_seconds: float

    def row(self, seed: int) -> str:
        """Of the table."""
        return (
            f"| {seed} | {self.bound:.2f} | {self.exact} | {self.greedy} | {self.ours}"
            f" | {self.whole} | {self.search_seconds:.1f} | {self.exact_seconds:.1f} |"
        )


def measured(seed: int) -> Lot:
    """One of the lots."""
    posed = random_problem(seed, SERVICES, DEVICES)
    quick = greedy(posed, posed.loads, 9999)
    begin = process_time()
    found = Search(400, 6, 4).improved(posed, quick, np.random.default_rng(seed))
    took = process_time() - begin
    begin = process_time()
    best = cheapest(programme(posed), counted(posed, quick), nodes=20_000)
    proved = process_time() - begin
    assert posed.covers(found), seed
    assert best.gap < 1e-6, seed
    last = len(MIG_SLICES["A100"]) - 1
    whole = int(np.ceil(posed.loads / posed.rates[:, last] - 1e-9).sum())
    bound = relaxed(programme(posed))
    return Lot(bound, round(best.cost), len(quick), len(found), whole, took, proved)


def main() -> None:
    """Measure, print and write."""
    lots, rows = list[Lot](), list[str]()
    for seed in range(LOTS):
        lots.append(measured(seed))
        rows.append(lots[-1].row(seed))
        print(rows[-1], flush=True)
    summary = (
        f"\nAt most {max(lot.ours - lot.exact for lot in lots)} above the exact number, better than"
        f" greedy on {sum(lot.ours < lot.greedy for lot in lots)} of {LOTS},"
        f" {sum(lot.search_seconds for lot in lots):.0f} CPU seconds in all.\n"
    )
    print(summary)
    (HERE / "slices.md").write_text(HEAD.format(made=made()) + "\n".join(rows) + "\n" + summary)


if __name__ == "__main__":
    main()
