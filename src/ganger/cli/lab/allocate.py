"""`ganger allocate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ganger.cli.words import FloatRange

if TYPE_CHECKING:
    from rich.table import Table

    from ganger.lab.allocate import Allocated

ROWS = 200
"""So many jobs a table shows."""
_VALUES = {
    "max-min": "smallest normalised throughput",
    "max-min-agnostic": "smallest normalised share of time",
    "max-min-lexicographic": "smallest normalised throughput",
    "hierarchical": "smallest normalised throughput",
    "isolated": "smallest normalised throughput",
    "finish-time-fairness": "largest rho",
    "makespan": "seconds until all are done",
    "max-sum": "steps per second",
    "max-sum-per-cost": "steps per second over USD per GPU-hour",
    "fifo": "weighted sum of throughput over the best",
    "sjf": "weighted sum of throughput over the best",
}
EXAMPLES = """\b
Examples:
  ganger allocate problem.json --objective max-min
  ganger allocate problem.json --objective finish-time-fairness --json
  ganger allocate problem.json --objective sjf --time-limit 1
  ganger allocate problem.json --pop 4
"""


@click.command(epilog=EXAMPLES)
@click.argument("problem", type=click.Path(path_type=Path))
@click.option(
    "--objective",
    "-o",
    type=click.Choice(list(_VALUES)),
    default="max-min",
    show_default=True,
    help="The objective to optimise.",
)
@click.option(
    "--time-limit",
    type=FloatRange(0),
    metavar="SECONDS",
    help="Stop after this time, and print the best answer so far with its gap.",
)
@click.option(
    "--pop",
    type=click.IntRange(1),
    default=None,
    metavar="PARTS",
    help="Also solve the problem in PARTS (POP), and print the loss.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def allocate(
    problem: Path, objective: str, time_limit: float | None, pop: int | None, as_json: bool
) -> None:
    """Divide the GPUs of PROBLEM among its jobs: fractions of time by GPU type.

    PROBLEM is a JSON file of docs/problem-format.md. Every answer comes with its gap to a proved
    bound.
    """
    from ganger.lab.allocate import allocate as solve

    found = solve(problem, objective, time_limit=time_limit, pop=pop or 0)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
        return
    _show(found)


def _show(found: Allocated) -> None:
    from rich.console import Console

    console = Console()
    told = f"{_VALUES[found.objective]} {found.value:.6g}, gap {found.gap:.1e}"
    console.print(
        f"[bold]{found.objective}[/]: {told}, {found.cpu_seconds:.3f} CPU-s\n",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(found))
    if len(found.problem.names) > ROWS:
        console.print(f"\n{len(found.problem.names) - ROWS} more jobs; --json prints them all")
    if found.pop is not None:
        console.print(
            f"\nin {found.pop.parts} parts (POP): {found.pop.value:.6g},"
            f" {100 * found.pop.loss:.3g} % worse",
            highlight=False,
        )
    if found.dual_prices is None:
        return
    console.print()
    for name, price in zip(found.problem.types, found.dual_prices.tolist(), strict=True):
        console.print(f"one more {name} is worth {price:.6g}", highlight=False, markup=False)


def _table(found: Allocated) -> Table:
    """Fractions by job, and by pair where they share, with the throughput of every job."""
    from rich.table import Table
    from rich.text import Text

    problem = found.problem
    table = Table(box=None, pad_edge=False)
    table.add_column("job", overflow="fold")
    for kind, placement in problem.columns:
        table.add_column(Text(f"{kind} {placement}".strip()), justify="right")
    table.add_column("steps/s", justify="right")
    for name, x, rate in zip(problem.names[:ROWS], found.x, found.throughput, strict=False):
        table.add_row(Text(name), *(f"{share:.4f}" if share else "-" for share in x), f"{rate:.6g}")
    names, n = problem.names, len(problem.names)
    for (a, b), x in zip(problem.pairs.tolist(), found.x[n:], strict=True):
        if x.any() and table.row_count < 2 * ROWS:
            shown = (f"{share:.4f}" if share else "-" for share in x)
            table.add_row(Text(f"{names[a]}+{names[b]}"), *shown, "")
    return table


__all__ = ["allocate"]
