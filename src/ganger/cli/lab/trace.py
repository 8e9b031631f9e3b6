"""`ganger trace`: look at workloads, convert them, make them up."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from ganger.cli.lazy import Suggesting
from ganger.cli.options import load_with_options, trace_options
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ganger.workloads.trace import Trace

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST_MESSAGES = 10
_CDF_ROWS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)


_ANONYMISE = (
    click.option(
        "--anonymise",
        is_flag=True,
        help="Replace tenants, users, groups and arrays by "
        "pseudonyms, and number the jobs. Models, pools, labels, times and sizes stay.",
    ),
    click.option(
        "--salt",
        metavar="TEXT",
        help="With --anonymise: the same secret gives the same "
        "pseudonyms. Default: a new random secret, which is not kept.",
    ),
)


def _anonymising(command: Any) -> Any:
    for option in reversed(_ANONYMISE):
        command = option(command)
    return command


def _anonymised(loaded: Trace, anonymise: bool, salt: str | None) -> Trace:
    """The trace, or with `anonymise` the one that may be shown. Raises BadInput."""
    if salt is not None and (not anonymise or not salt):
        raise BadInput(
            "it needs --anonymise and a secret",
            where="--salt",
            mend="add --anonymise, and give a secret",
        )
    if not anonymise:
        return loaded
    from ganger.workloads.transform import anonymise as made

    return made(loaded, salt.encode() if salt else secrets.token_bytes(32))


_output = click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="The file to write: .csv, .jsonl (both also .gz), .parquet, .swf, or - for CSV to "
    "standard output.",
)


@click.group("trace", cls=Suggesting)
def trace() -> None:
    """Inspect, convert and generate workloads."""


@trace.command()
@click.argument("trace_file", metavar="TRACE")
@trace_options
@click.option("--gpus", type=int, metavar="N", help="Number of GPUs in the cluster, for --load.")
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables.")
def info(trace_file: str, gpus: int | None, as_json: bool, **chosen: Any) -> None:
    """Summarise a workload: sizes, run times, arrivals.

    TRACE is a file, `demo`, or a generator such as `philly:10000` (kind and jobs;
    `:SEED:GPUS` may follow).

    \b
    Examples:
      ganger trace info cluster_log.csv
      ganger trace info demo --json
      ganger trace info philly.csv.gz --from 7d --to 14d
    """
    from ganger.workloads.statistics import describe

    loaded = _load(trace_file, chosen, gpus)
    facts = describe(loaded)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    _print_facts(loaded, facts)


@trace.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--to-format",
    default="auto",
    metavar="NAME",
    show_default=True,
    help="ganger or swf; auto goes by the extension of OUT.",
)
@trace_options
@click.option("--gpus", type=int, metavar="N", help="Number of GPUs in the cluster, for --load.")
@_anonymising
def convert(
    source: str,
    target: str,
    to_format: str,
    gpus: int | None,
    anonymise: bool,
    salt: str | None,
    **chosen: Any,
) -> None:
    """Read a workload in any known format, and write it as CSV, JSON Lines, Parquet or SWF.
    OUT `-` is standard output.

    \b
    Examples:
      ganger trace convert sacct.txt month.csv.gz
      ganger trace convert philly.csv.gz philly.swf
      ganger trace convert sacct.txt shared.csv --anonymise
      ganger trace convert 0e4a51.trace gavel.jsonl --option throughputs=throughputs.json
    """
    from ganger.workloads.formats import save_trace

    loaded = _load(source, chosen, gpus)
    save_trace(_anonymised(loaded, anonymise, salt), target, to_format)
    _print_skipped(loaded)
    _written(loaded, target)


@trace.command("import-slurm")
@click.argument("source", metavar="[FILE]", required=False, type=click.Path(exists=True))
@_output
@click.option(
    "--since",
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Ask the cluster for the jobs of the last TIME. Not with a FILE.",
)
@click.option("--skip-bad", is_flag=True, help="Leave malformed rows out instead of stopping.")
@_anonymising
def import_slurm(
    source: str | None, output: str, since: str, skip_bad: bool, anonymise: bool, salt: str | None
) -> None:
    """Import the jobs of a Slurm cluster. They come from FILE, the output of `sacct --parsable2`,
    or else from the cluster that this machine belongs to.

    Without accounting, only the jobs that the controller still remembers are imported
    (MinJobAge, often five minutes).

    \b
    Examples:
      ganger trace import-slurm sacct.txt -o month.csv.gz
      ganger trace import-slurm --since 90d -o quarter.parquet
    """
    from ganger.workloads.formats import load_trace, save_trace

    if source is not None:
        loaded = load_trace(source, "sacct", skip_bad=skip_bad)
    else:
        from ganger.cli.live.site import accounting

        loaded = accounting(since, skip_bad)
    save_trace(_anonymised(loaded, anonymise, salt), output)
    _print_skipped(loaded)
    _written(loaded, output)


@trace.command()
@click.argument("kind")
@click.option("--jobs", type=int, default=10_000, show_default=True, help="Number of jobs.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed. The same seed gives the same workload.",
)
@click.option(
    "--gpus", type=int, default=64, show_default=True, help="Number of GPUs in the cluster."
)
@click.option(
    "--load",
    type=float,
    default=0.8,
    show_default=True,
    help="Offered load: work over what these GPUs can do.",
)
@_output
def synth(kind: str, jobs: int, seed: int, gpus: int, load: float, output: str) -> None:
    """Generate a workload. KIND is philly, helios, pai, poisson or gavel.

    \b
    Examples:
      ganger trace synth philly --jobs 5000 --gpus 256 --load 0.9 -o philly.csv.gz
      ganger trace synth gavel --jobs 1000 --seed 3 -o gavel.jsonl
    """
    from ganger.workloads.formats import save_trace
    from ganger.workloads.synthetic import synthesize

    made = synthesize(kind, jobs, seed, gpus=gpus, load=load)
    save_trace(made, output)
    _written(made, output)


@trace.command()
def formats() -> None:
    """List the trace formats: which can be read, and which can be written.

    \b
    Example:
      ganger trace formats
    """
    from ganger.workloads.formats import FORMATS

    table = plain_table("format", "writes", "what it is", "options")
    for name, format_ in FORMATS.items():
        writes = "yes" if format_.write else ""
        table.add_row(name, writes, format_.description, ", ".join(format_.options))
    console().print(table)


def _written(made: Trace, target: str) -> None:
    where = "standard output" if target == "-" else target
    click.echo(f"{made.jobs:,} jobs written to {where}", err=True)


def _load(trace_file: str, chosen: dict[str, Any], gpus: int | None) -> Trace:
    if chosen["load"] is not None and gpus is None:
        raise BadInput("on how many GPUs?", where="--load", mend="add --gpus")
    return load_with_options(trace_file, chosen, gpus)


def console() -> Console:
    """Where tables are printed; nothing is wrapped in a pipe."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def plain_table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    """A table; columns without a name make up a list, and are never wrapped."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", no_wrap=not column)
    return table


def _print_facts(loaded: Trace, facts: dict[str, Any]) -> None:
    from rich.markup import escape

    screen = console()
    screen.print(f"[bold]{escape(facts['name'])}[/bold]  {escape(facts['source'])}")
    table = plain_table("", "", right=(1,))
    for label, value in _summary(facts):
        table.add_row(label, value)
    screen.print(table)
    screen.print(_gang_table(facts["gangs"]))
    if facts["duration_seconds"]:
        screen.print("[bold]run times[/bold] (jobs at most that long)")
        screen.print(_cdf(loaded))
    screen.print("[bold]arrivals by hour of day[/bold] (since the first submission)")
    screen.print("  " + bars(facts["hour_of_day"]) + "\n  0     6     12    18")
    _print_skipped(loaded)


def _summary(facts: dict[str, Any]) -> list[tuple[str, str]]:
    durations = facts["duration_seconds"]
    busy, rate = facts["mean_gpus_busy"], facts["jobs_per_hour"]
    rows = [
        ("jobs", f"{facts['jobs']:,}"),
        ("span", format_duration(facts["span_seconds"] * SECOND)),
        ("work", f"{facts['gpu_hours']:,.1f} GPU-hours"),
        ("arrivals", "all at once" if rate is None else f"{rate:,.1f} jobs/h"),
        ("keeps busy", "" if busy is None else f"{busy:,.1f} GPUs"),
    ]
    if durations:
        for label, key in (
            ("mean run time", "mean"),
            ("median", "p50"),
            ("99th percentile", "p99"),
        ):
            rows.append((label, format_duration(durations[key] * SECOND)))
    counts = ("tenants", "users", "models", "deadlines", "elastic", "services", "shared_jobs")
    rows += [(key.replace("_", " "), f"{facts[key]:,}") for key in counts if facts[key]]
    return rows


def _gang_table(gangs: list[dict[str, float]]) -> Table:
    table = plain_table("GPUs", "jobs", "", "GPU-hours", "", right=(0, 1, 3))
    shown = sorted(sorted(gangs, key=lambda row: -row["jobs"])[:16], key=lambda row: row["gpus"])
    for row in shown:
        table.add_row(
            f"{row['gpus']:,}",
            f"{row['jobs']:,}",
            _share(row["fraction"]),
            f"{row['gpu_hours']:,.1f}",
            _share(row["gpu_hours_fraction"]),
        )
    if len(gangs) > len(shown):
        table.caption = f"and {len(gangs) - len(shown)} rarer sizes"
    return table


def _share(fraction: float) -> str:
    return f"{fraction:6.1%} {'█' * round(20 * fraction)}"


def _cdf(loaded: Trace) -> Table:
    import numpy as np

    durations = np.sort(loaded.duration[: loaded.jobs])
    table = plain_table("", "", right=(0,))
    for seconds in _CDF_ROWS:
        at_most = int(np.searchsorted(durations, seconds * SECOND, side="right"))
        table.add_row(format_duration(seconds * SECOND), _share(at_most / len(durations)))
    return table


def bars(counts: list[int]) -> str:
    """One block of eight heights for each count."""
    most = max(counts, default=0) or 1
    return "".join(_BLOCKS[-(-8 * count // most)] for count in counts)


def _print_skipped(loaded: Trace) -> None:
    for message in loaded.skipped[:_MOST_MESSAGES]:
        click.echo(f"note: {message}", err=True)
    if len(loaded.skipped) > _MOST_MESSAGES:
        click.echo(f"note: and {len(loaded.skipped) - _MOST_MESSAGES:,} more", err=True)
    for note in loaded.notes:
        click.echo(f"note: {note}", err=True)
