"""How wrong predictors of sharing are on what others measured: pairs on a GPU, and slices of one.

    python benchmarks/interference.py TRACES [--write]

TRACES is the folder that holds `gavel` and `miso-mig`. Prints the rows of interference.md;
`--write` makes the page.
"""

from __future__ import annotations

import argparse
import csv
import json
import zlib
from pathlib import Path

import numpy as np
from provenance import made

from ganger.core.profiles import Profiles
from ganger.estimate.sharing.held_out import (
    FITTED,
    FITTED_FOREST,
    NOTHING,
    PLAIN,
    Errors,
    summed_up,
)
from ganger.estimate.sharing.slowdown import Row, predicted
from ganger.workloads.measured.throughputs import load_throughputs

SLICES = 7
"""Of an A100."""
FOLDS = 5
SWEEPS = 100
"""Of alternating least squares."""
Known = tuple[str, str, float]
"""A model, the one beside it, and how many times as long a step of the first takes."""
PAGE = """# How wrong predictions of sharing are

Made by {made}.

Relative errors of the time of a step, on what the predictor was not trained on: mean, median and
ninth decile of their sizes, and the mean with sign (above 0: predicted too long).

{table}

**Gavel's pairs** ({pairs} steps beside another model on one V100). Gavel states no use of the GPU,
so each model has the one use, 0 to 1, that explains its training pairs best, where a step takes 1 +
own use x the other's use times as long; a fifth of the pairs, both of their models' steps, is held
out in turn. *Regression*: that formula, with its weight as it is or fitted. *Forest*: that of
`co-scheml`, trained on the same pairs and uses. The formula never exceeds 2.

**MISO's slices** ({slices} times of a step on 1 to 4 of the 7 slices of an A100, of eight models at
four batches). A job that uses a part u of the GPU alone takes max(1, u / p) times as long on a part
p: what the simulator and `kubeshare` go by. *By stated use*: u as MISO sampled it (SM utilisation).
*By slices*: u = 1. Nothing is trained here.

The use that `yeung` and `horus` predict from graphs (trained on the synthetic generator `roofline`)
is not in the table: neither data set states the graphs of its models.
"""


def gavel_pairs(traces: Path) -> list[Known]:
    """Measured slow-downs on one V100; pairs of which one does not run are left out."""
    file = traces / "gavel/simulation_throughputs.json.gz"
    profiles: Profiles = load_throughputs(file)
    found = [
        (model, other, 1.0 / part)
        for model, profile in profiles.models.items()
        if profile.measured is not None
        for other in profile.measured.beside
        if (part := profile.measured.part(other, "V100", 1))
    ]
    return sorted(found)


def latent(pairs: list[Known], names: list[str]) -> dict[str, float]:
    """The use of each model that explains these pairs best, by alternating least squares."""
    at = {name: row for row, name in enumerate(names)}
    own, other = (np.array([at[pair[side]] for pair in pairs]) for side in (0, 1))
    longer = np.array([times - 1.0 for *_, times in pairs])
    use = np.full(len(names), 0.5)
    for _ in range(SWEEPS):
        for row in range(len(names)):
            beside = np.concatenate([use[other[own == row]], use[own[other == row]]])
            seen = np.concatenate([longer[own == row], longer[other == row]])
            if beside @ beside > 0:
                use[row] = np.clip(beside @ seen / (beside @ beside), 0.0, 1.0)
    return dict(zip(names, use.tolist(), strict=True))


def gavel_errors(pairs: list[Known]) -> dict[str, Errors]:
    """By predictor, over all pairs, each held out once."""
    names = sorted({name for pair in pairs for name in pair[:2]})
    off: dict[str, list[float]] = {}
    for fold in range(FOLDS):
        held = [
            pair
            for pair in pairs
            if zlib.crc32("+".join(sorted(pair[:2])).encode()) % FOLDS == fold
        ]
        seen = [pair for pair in pairs if pair not in held]
        use = latent(seen, names)
        rows: tuple[Row, ...] = tuple(((use[a],), (use[b],), times) for a, b, times in seen)
        products = np.array([use[a] * use[b] for a, b, _ in seen])
        weight = products @ np.array([times - 1.0 for *_, times in seen]) / (products @ products)
        for a, b, times in held:
            answers = {
                FITTED_FOREST: predicted(rows, (use[a],), (use[b],)),
                FITTED: 1.0 + weight * use[a] * use[b],
                PLAIN: 1.0 + use[a] * use[b],
                NOTHING: 1.0,
            }
            for name, answer in answers.items():
                off.setdefault(name, []).append(answer / times - 1.0)
    return {name: summed_up(np.array(each)) for name, each in off.items()}


def miso_errors(traces: Path) -> dict[str, Errors]:
    """By predictor, over all slices smaller than the GPU."""
    folder = traces / "miso-mig"
    took: dict[tuple[str, str], dict[int, float]] = {}
    with (folder / "mig_iteration_times.csv").open() as file:
        for row in csv.DictReader(file):
            slices = int(row["mig_slice"].partition("g")[0])
            key = row["model"], row["batch_size"]
            took.setdefault(key, {})[slices] = float(row["iter_time_mean_s"])
    off: dict[str, list[float]] = {"by stated use": [], "by slices": []}
    for (model, batch), times in took.items():
        text = (folder / f"util_collection/util_sm_{model}.json").read_text()
        use = json.loads(text)[batch] / 100.0
        for slices, seconds in times.items():
            if slices < SLICES in times:
                measured = seconds / times[SLICES]
                part = slices / SLICES
                off["by stated use"].append(max(1.0, use / part) / measured - 1.0)
                off["by slices"].append(1.0 / part / measured - 1.0)
    return {name: summed_up(np.array(each)) for name, each in off.items()}


def rows(data: str, found: dict[str, Errors]) -> list[str]:
    """Lines of the table."""
    return [
        f"| {data} | {name} | {each.pairs} | {each.mean:.1%} | {each.median:.1%} |"
        f" {each.ninth:.1%} | {each.bias:+.1%} |"
        for name, each in found.items()
    ]


def main() -> None:
    """Print the rows, and write the page if told to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    gavel, miso = gavel_errors(gavel_pairs(asked.traces)), miso_errors(asked.traces)
    lines = [
        "| data | predictor | times | mean | median | ninth decile | with sign |",
        "|:--|:--|--:|--:|--:|--:|--:|",
        *rows("Gavel's pairs", gavel),
        *rows("MISO's slices", miso),
    ]
    table = "\n".join(lines)
    print(table)
    if asked.write:
        counts = {
            "pairs": next(iter(gavel.values())).pairs,
            "slices": next(iter(miso.values())).pairs,
        }
        page = PAGE.format(made=made(), table=table, **counts)
        Path(__file__).with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
