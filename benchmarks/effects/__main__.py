"""Measure every effect and write the table.

    python benchmarks/effects [--only NAME,...] [--no-write]

Prints a row as soon as it is measured, and puts it into docs/effects.md unless told otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from provenance import commit

from effects import (
    co_location,
    elasticity,
    fairness,
    learned,
    loans,
    market,
    network,
    placement,
    programmes,
    queues,
    renting,
    serving,
    serving_ensembles,
    serving_lanes,
    serving_memory,
    serving_nexus,
    serving_planning,
    serving_sharing,
    sharing,
    tuning,
)
from effects.common import EFFECTS, SEEDS, Effect

FAMILIES = (
    queues,
    placement,
    fairness,
    learned,
    loans,
    market,
    renting,
    elasticity,
    programmes,
    network,
    sharing,
    co_location,
    serving,
    serving_ensembles,
    serving_lanes,
    serving_memory,
    serving_nexus,
    serving_planning,
    serving_sharing,
    tuning,
)
HEAD = """# Published effects, in shape

What each recipe's publication claims, and what this simulator says on small synthetic workloads
(means over {seeds} seeds). Set-ups differ from the papers', so figures are not expected to be
equal.

*Holds*: **yes** where the figures are in the direction of the claim and at least half as large
(in logarithms of ratios; what is claimed "up to" counts in full), *direction only* where they are
better by less, *no* where they are not. *Costs*: what each side pays for stopping and for changes
of size; where they differ, the next column says what is left at equal costs, and the verdict goes
by that. *Made*: commit of the code and day. A row marked *old* is from code before that of the
others, and its baseline may have changed since.

Made by `python benchmarks/effects [--only NAME,...]`. Speeds are those of
`ganger.workloads.measured.published`; jobs know their true durations unless stated. For gavel,
tiresias, rifling,
e-las, philly, themis, hived, topology-aware, gandiva-fair, marble, chronus, synergy, pop, smd,
genie, spin, delay-scheduling, aonline and tolerance-tiers the set-up or the measure was changed
after a first try had not shown the claim: Themis, for one, was worse than Tiresias (0.27 of its
largest rho) where
most jobs are short; pop 0.45 (whole over parts, both by our own division, 1000 jobs), spin 1.00 and
delay-scheduling 1.00 (philly-like, few gangs), then 0.98 of waiting always and 0.79 (models that
nearly all suffer apart); topology-aware 0.98 of spreading over nodes; marble 0.90 of Optimus
(curves that hardly flatten), then 1.00 (Optimus knew true speeds); genie as good as the earliest
deadline first (jobs of fixed size); aonline 0.88 of srtf (slots of ten minutes);
tolerance-tiers erred 0.39 points more than the best version where it tolerates none, before an
input was added to its data set on which all rules err but that version, and 0.18 more than the best
on all inputs, of which it knew half. drf, ftf,
hierarchical and yarn-cs are what others are compared with and claim nothing of their own; so are
serve.no-batch, serve.fixed-batch, serve.triton, serve.bentoml, serve.round-robin,
serve.least-loaded, serve.dedicated, serve.composed, serve.clairvoyant, scale.static-peak and
scale.threshold. cache.lfu, cache.random and cache.clairvoyant are in the row of cache.lru,
scale.asked in that of swayam.

Systems that serve requests run on models by formula, over requests that are made up as the set-up
says, with a 99th percentile of latency of 1.1 times the mean; *costs* then says what each side
knows or pays.

| recipe | set-up | published | costs | ours | at equal costs | holds | remark | made |
|:---|:---|:---|:---|:---|:---|:---|:---|:---|
"""


def row(found: Effect, commit: str) -> str:
    """A line of the table."""
    ours, equal = (
        "; ".join(f"{name} {value:.2f}" for name, value in (figures or {}).items())
        for figures in (found.ours, found.equal)
    )
    cells = (
        found.recipe,
        found.setup,
        found.published,
        found.costs,
        ours,
        equal,
        found.holds,
        found.remark,
        commit,
    )
    return f"| {' | '.join(cells)} |"


def known(docs: Path) -> dict[str, str]:
    """The rows of the table as it stands, by recipe."""
    lines = docs.read_text().splitlines() if docs.exists() else []
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| recipe")]
    return {line.split("|")[1].strip(): line for line in rows}


def main() -> None:
    """Measure, print, and put each row into the table at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    wanted = {name.replace("-", "_") for name in args.only.split(",") if name}
    docs = Path(__file__).parents[2] / "docs" / "effects.md"
    for measure in EFFECTS:
        if not wanted or measure.__name__ in wanted:
            started, found = time.process_time(), measure()
            if found is None:
                print(f"{measure.__name__}: needs GANGER_TRACES", flush=True)
                continue
            line = row(found, f"{commit()}, {date.today()}")
            print(line, f"<!-- {time.process_time() - started:.0f} CPU-s -->", flush=True)
            if not args.no_write:
                rows = {**known(docs), found.recipe: line}
                table = "\n".join(rows[name] for name in sorted(rows))
                docs.write_text(HEAD.format(seeds=len(SEEDS)) + table + "\n")


if __name__ == "__main__":
    main()
