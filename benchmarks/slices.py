"""Devices that MIG-Serving needs for ten seeded lots of services, beside the exact programme, its
bound, and devices that are not divided. Writes `slices.md`.

    python benchmarks/slices.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

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
search make of it; *exact* is the integer programme of `ganger.solve.covering`, proved; *bound* its
relaxation; *whole* gives every service whole devices. CPU seconds are of the search, and of the
programme.

Made by {made}.

| lot | bound | exact | greedy | mig-serving | whole | CPU s, search | CPU s, exact |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    """Measure, print and write."""
    rows, better, above, spent = [], 0, 0, 0.0
    last = len(MIG_SLICES["A100"]) - 1
    for seed in range(LOTS):
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
        whole = int(np.ceil(posed.loads / posed.rates[:, last] - 1e-9).sum())
        better += len(found) < len(quick)
        above = max(above, len(found) - round(best.cost))
        spent += took
        rows.append(
            f"| {seed} | {relaxed(programme(posed)):.2f} | {best.cost:.0f} | {len(quick)}"
            f" | {len(found)} | {whole} | {took:.1f} | {proved:.1f} |"
        )
        print(rows[-1], flush=True)
    summary = (
        f"\nAt most {above} above the exact number, better than greedy on {better} of {LOTS},"
        f" {spent:.0f} CPU seconds in all.\n"
    )
    print(summary)
    (HERE / "slices.md").write_text(HEAD.format(made=made()) + "\n".join(rows) + "\n" + summary)


if __name__ == "__main__":
    main()
