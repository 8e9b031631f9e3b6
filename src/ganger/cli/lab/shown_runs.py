"""Running simulations from the command line: what is printed of them, and what is written."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ganger.cli.progress import Bar
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.core.spec import ClusterSpec
    from ganger.lab.api import Task
    from ganger.lab.result import Run


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """What to print and write."""
    target = click.Path(dir_okay=False, path_type=Path)
    per_job = (
        "Write the times of every job here, as CSV or Parquet. {recipe}, {seed} and {load} are "
        "filled in."
    )
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
        click.option(
            "--by",
            type=click.Choice(["tenant", "gpus", "gpu_type"]),
            help="Also print a table of every run by tenant, gang size or GPU type.",
        ),
        click.option(
            "--why",
            is_flag=True,
            help="Also add up why jobs waited, and for how long: a table here and in the report;"
            " and which jobs shared GPUs, and how fast they were: a table here.",
        ),
        click.option(
            "--bill",
            is_flag=True,
            help="Also print energy, carbon and cost by recipe, and where the figures come from."
            " Printed anyway where GPU types have prices.",
        ),
        click.option("--report", type=target, help="Write an HTML report here."),
        click.option("--per-job", type=target, help=per_job),
        click.option("--workers", type=click.IntRange(1), help="Processes (default: all cores)."),
        click.option(
            "--validate", is_flag=True, help="Check every invariant at every step (slow)."
        ),
        click.option("--quiet", is_flag=True, help="No progress bar."),
    ):
        command = option(command)
    return command


def refuse_no_folder(options: dict[str, Any], *names: str) -> None:
    """Raise BadInput, before hours of simulation, if the folder of one of these files is missing.
    `names`: options that are a path or None, with underscores."""
    for name in names:
        path: Path | None = options.get(name)
        if path is not None and not path.absolute().parent.is_dir():
            raise BadInput(
                f"no folder {str(path.parent)!r}",
                where=f"--{name.replace('_', '-')}",
                mend="make it first",
            )


def _refuse_unwritable(options: dict[str, Any]) -> None:
    """Raise BadInput before hours of simulation if their results can be put nowhere."""
    refuse_no_folder(options, "per_job", "report", "per_trial")
    path: Path | None = options["per_job"]
    if path is not None and path.suffix not in (".csv", ".parquet"):
        raise BadInput(
            f"cannot write jobs to {path.name!r}",
            where="--per-job",
            mend="end it in .csv or .parquet",
        )
    if path is not None and path.suffix == ".parquet":
        from ganger.workloads.readers.ganger_trace import import_pyarrow

        import_pyarrow()


def log_one(tasks: Sequence[Task], cluster: ClusterSpec, options: dict[str, Any]) -> None:
    """One run, with its log written."""
    from contextlib import ExitStack

    from ganger.lab.log import LogWriter
    from ganger.lab.simulation import run_one

    if len(tasks) != 1:
        raise BadInput(f"a log holds one run, not {len(tasks)}", where="--log")
    _refuse_unwritable(options)
    task = tasks[0]
    with ExitStack() as stack:
        run = run_one(
            task.trace,
            cluster,
            task.recipe,
            task.setup,
            journal=lambda kernel: stack.enter_context(
                LogWriter(options["log"], kernel, task.trace, cluster, task.recipe, task.setup)
            ),
        )
    show([run], options)


def run_and_show(tasks: Sequence[Task], cluster: ClusterSpec, options: dict[str, Any]) -> None:
    """Run all tasks with a progress bar, then print, and write what was asked for."""
    from ganger.lab.api import run_all

    _refuse_unwritable(options)
    workers = options["workers"] or os.cpu_count() or 1
    names = ", ".join(dict.fromkeys(task.recipe for task in tasks))
    done = [0.0] * len(tasks)
    with Bar(f"{len(tasks)} runs: {names[:40]}", options["quiet"] or options["as_json"]) as bar:

        def tell(task: int, share: float) -> None:
            done[task] = share
            bar.show(sum(done), len(tasks))

        runs = run_all(tasks, cluster, workers=workers, progress=tell)
    show(runs, options)


def show(runs: list[Run], options: dict[str, Any]) -> None:
    """Write per-job files and the report, and print the figures: last, since nobody may read them
    to the end."""
    from ganger.lab.metrics import to_json, write_jobs

    paths: list[str | None] = [None] * len(runs)
    if options["per_job"] is not None:
        targets = _per_job_paths(options["per_job"], runs)
        for run, target in zip(runs, targets, strict=True):
            write_jobs(run, target)
        paths = list(map(str, targets))
    if options.get("per_trial") is not None:
        from ganger.lab.tuning.result import per_trial
        from ganger.workloads.files import write_bytes

        searches = [search for run in runs for search in run.searches]
        under = [run.recipe for run in runs for _ in run.searches]
        write_bytes(options["per_trial"], per_trial(searches, under).encode())
    if options["report"] is not None:
        from ganger.lab.origin import origin_of
        from ganger.lab.report import write_report

        command = shlex.join(["ganger", *sys.argv[1:]])
        origin = origin_of(command, filter(None, options.get("inputs", ())))
        write_report(runs, options["report"], origin=origin)
        click.echo(f"report: {options['report']}", err=True)
    if options["as_json"]:
        data = to_json(runs)
        for entry, path in zip(data["runs"], paths, strict=True):
            entry["per_job"] = path
        click.echo(json.dumps(data, indent=2))
    else:
        from rich.console import Console

        from ganger.lab.tables import (
            bill_table,
            breakdown_table,
            company_table,
            comparison,
            experiments_table,
            loans_table,
            services_table,
            waiting_table,
        )

        console = Console()
        console.print(comparison(runs))
        for run in runs if options["by"] else ():
            console.print(breakdown_table(run, options["by"]))
        if any(run.services for run in runs):
            console.print(services_table(runs))
        if any(run.loans is not None for run in runs):
            console.print(loans_table(runs))
        if any(run.searches for run in runs):
            console.print(experiments_table(runs))
        if options["bill"] or any(run.cost for run in runs):
            console.print(bill_table(runs))
        if options["why"]:
            console.print(waiting_table(runs))
            if any(run.company for run in runs):
                console.print(company_table(runs))


def _per_job_paths(pattern: Path, runs: list[Run]) -> list[Path]:
    """Where each run's jobs go: what tells several runs apart is in the name, asked for or not."""
    filled = [_filled(str(pattern), run) for run in runs]
    if len(set(filled)) < len(runs):
        words = ["{recipe}", "{seed}"] + ["{load}"] * (len({run.load for run in runs}) > 1)
        stem = "-".join([pattern.stem, *(word for word in words if word not in pattern.stem)])
        filled = [_filled(str(pattern.with_name(stem + pattern.suffix)), run) for run in runs]
    return [Path(name) for name in filled]


def _filled(pattern: str, run: Run) -> str:
    safe = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in run.recipe)
    named = pattern.replace("{recipe}", safe).replace("{seed}", str(run.seed))
    return named.replace("{load}", f"{run.load:g}")
