"""Requests live and simulated, on five models of our own making: how far the simulator is off.

    python benchmarks/serving_parity.py
    python benchmarks/serving_parity.py --seconds 5 --runs 1 --no-write

Models are chains of dense layers with random weights, of five depths, measured on the core on which
the server then runs; the client has another core. Use an otherwise idle machine: a run in which the
client lagged by more than 5 ms (p99) is void.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from provenance import machine, made, write

from ganger.core.units import SECOND
from ganger.lab.serving.parity import COMPARED, RECIPES, Pair, Study, goodput_off

PAGE: Final = Path(__file__).with_suffix(".md")
WIDTH: Final = 512
DEPTHS: Final = {"a": 12, "b": 20, "c": 32, "d": 48, "e": 64}
ACCURACIES: Final = (0.70, 0.75, 0.79, 0.82, 0.84)
BATCHES: Final = "1,2,4,8,16,32"


def net(folder: Path, name: str, depth: int) -> Path:
    """A chain of dense layers."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"h{at}" for at in range(depth - 1)), "y"]
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32), f"w{at}"
        )
        for at in range(depth)
    ]
    nodes = [
        helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(depth)
    ]
    ends = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", WIDTH]) for end in ("x", "y")
    ]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


def measured(folder: Path, core: int, runs: int) -> Path:
    """A models file of the five, measured on one core alone."""
    paths = [net(folder, name, depth) for name, depth in DEPTHS.items()]
    file = folder / "models.toml"
    code = "import os; os.sched_setaffinity(0, {%d}); from ganger.cli.main import main; main()"
    words = ["profile", *map(str, paths), "--batches", BATCHES, "--runs", str(runs)]
    words += ["--family", "five", "-o", str(file)]
    subprocess.run([sys.executable, "-c", code % core, *words], check=True)
    text = file.read_text()
    for name, accuracy in zip(DEPTHS, ACCURACIES, strict=True):
        head = f'name = "{name}"\n'
        text = text.replace(head, f"{head}accuracy = {accuracy}\n", 1)
    file.write_text(text)
    return file


def row(pair: Pair) -> str:
    """A recipe, in a row of the page."""
    scales = (1.0, 1000.0, 100.0, 1.0)
    cells = [f"`{pair.recipe}`", f"{pair.rate:.1f}", f"{pair.counted} ({pair.void} void)"]
    cells += [
        f"{pair.live[name] * by:.2f} / {pair.simulated[name] * by:.2f}"
        for name, by in zip(COMPARED, scales, strict=True)
    ]
    cells.append("yes" if pair.good else "**no**")
    return "| " + " | ".join(cells) + " |"


def page(pairs: list[Pair], options: argparse.Namespace) -> str:
    """What is written."""
    return "\n".join(
        [
            "# Requests, live and simulated",
            "",
            f"{made()} {machine()}",
            "",
            f"Five models (chains of {', '.join(map(str, DEPTHS.values()))} dense layers of"
            f" {WIDTH}), Poisson arrivals of {options.load:g} times what batches of one could"
            f" serve, an SLO of {options.slo:g} ms, {options.seconds:g} s a run, medians of the"
            " runs that counted: a run is void in which the client lagged by more than 5 ms (p99)."
            " Each cell is live / simulated. Good: mean batch within 10 %, p50 within 15 %, in time"
            " within 3 points.",
            "",
            "| recipe | requests a second | runs | mean batch | p50, ms | in time, % |"
            " goodput, a second | good |",
            "|---|---|---|---|---|---|---|---|",
            *map(row, pairs),
            "",
            f"Goodput is off by {goodput_off(pairs):.2%} of the requests, on average (goal: 1 %).",
        ]
    )


def main() -> None:
    """Make the models, play all recipes, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--slo", type=float, default=100.0, help="milliseconds")
    parser.add_argument("--profile-runs", type=int, default=200)
    parser.add_argument("--recipe", action="append", help="default: all five")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    client, server, *_ = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        file = measured(Path(folder), server, options.profile_runs)
        slo = round(options.slo / 1000 * SECOND)
        study = Study(file, options.load, slo, options.seconds, cores=(client, server))
        pairs = study.run(
            options.recipe or RECIPES, options.runs, lambda line: print(line, file=sys.stderr)
        )
    text = page(pairs, options)
    print(text)
    if not options.no_write:
        write(PAGE, text)


if __name__ == "__main__":
    main()
