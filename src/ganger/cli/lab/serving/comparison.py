"""What `ganger requests simulate` does: read, run in parallel, print."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ganger.cli.lab.serving.tables import show
from ganger.cli.lab.shown_runs import refuse_no_folder
from ganger.cli.lab.simulate import parse_seeds
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, parse_duration

if TYPE_CHECKING:
    from ganger.lab.serving.sweep import Comparison, Task
    from ganger.workloads.requests.columns import Requests

_RUNS: Final = 10_000
"""Most runs of a comparison."""


def compare(
    file: str, load: Callable[[], Requests], chosen: dict[str, Any], files: Sequence[str] = ()
) -> None:
    """Run every recipe on every fleet, at every load, with every SLO and seed; `files`: what the
    figures come from. Raises BadInput."""
    from ganger.lab.serving.sweep import compare_tasks
    from ganger.workloads.models.reading import read_models

    present = None
    if chosen.get("present") is not None:
        from ganger.cli.lab.serving.present import beside
        from ganger.workloads.present.settings import read_present

        present = read_present(chosen["present"])
        chosen = {**chosen, "recipe": beside(present, chosen["recipe"])}
    tasks = _tasks(chosen)
    target: Path | None = chosen["per_request"]
    if target is not None and len(tasks) != 1:
        raise BadInput(
            f"one file holds one run, not {len(tasks)}",
            where="--per-request",
            mend="name one recipe, fleet, load and seed",
        )
    refuse_no_folder(chosen, "per_request", "report")
    models = read_models(chosen["models"])
    workers = chosen["workers"] or os.cpu_count() or 1
    with Bar(f"{len(tasks)} runs", chosen["quiet"] or chosen["as_json"]) as bar:
        found = compare_tasks(
            load,
            models,
            tasks,
            workers=workers,
            per_request=target,
            yardsticks=chosen.get("yardsticks", True),
            progress=lambda share: bar.show(share, 1.0),
        )
    if chosen["report"] is not None:
        _report(found, files or [file, chosen["models"]], chosen["report"])
    if chosen["as_json"]:
        more = {} if present is None else {"present": present._asdict()}
        click.echo(json.dumps({"requests": file, **more, **found.to_json()}, indent=2))
    else:
        show(found, by_class=chosen.get("by_class", False))
    if present is not None and not chosen["as_json"]:
        from ganger.cli.lab.serving.present import tell

        tell(present, found.runs)


def _tasks(chosen: dict[str, Any]) -> list[Task]:
    """Every recipe on every fleet, at every load, with every SLO and seed. Raises BadInput."""
    from ganger.lab.serving.fleet import read_fleet
    from ganger.lab.serving.run import Setup
    from ganger.lab.serving.sweep import Task
    from ganger.lab.serving.trouble import Trouble
    from ganger.recipes.registry import make_router, split_specs

    recipes = split_specs(chosen["recipe"])
    if not recipes:
        raise BadInput("it names none", where="--recipe", mend="write like serve.triton,clockwork")
    sweep = {
        "recipes": recipes,
        "fleets": chosen["fleets"].split(","),
        "SLOs": _slos(chosen["slo"], "--slo"),
        "loads": _faster(chosen["faster"]),
        "seeds": parse_seeds(chosen["seeds"]),
    }
    _refuse_many({name: len(values) for name, values in sweep.items()})
    for recipe in recipes:
        make_router(recipe)
    fleets = [read_fleet(part) for part in sweep["fleets"]]
    noise = chosen["noise"]
    trouble = Trouble(chosen.get("outages", ""), chosen.get("stragglers", ""))
    for fleet in fleets:
        trouble.changes(fleet, 0)
    setup = Setup(
        noise=noise,
        trouble=trouble,
        slo_ttft=_slos(chosen.get("slo_ttft"), "--slo-ttft")[0],
        slo_tpot=_slos(chosen.get("slo_tpot"), "--slo-tpot")[0],
        watch=chosen["report"] is not None,
        windows=_window(chosen.get("windows")),
        table=_table(chosen),
        like=chosen.get("like", False),
        prices=tuple(sorted(chosen.get("prices", {}).items())),
    )
    return [
        Task(recipe, fleet, replace(setup, seed=seed, faster=faster, slo=slo))
        for slo in sweep["SLOs"]
        for faster in sweep["loads"]
        for fleet in fleets
        for recipe in recipes
        for seed in sweep["seeds"]
    ]


def _refuse_many(counts: dict[str, int]) -> None:
    """Raise BadInput where there would be more runs than anybody waits for."""
    runs = math.prod(counts.values())
    if runs > _RUNS:
        words = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count > 1)
        raise BadInput(
            f"{words} make {runs:,} runs", where="comparison", mend=f"at most {_RUNS:,} in one go"
        )


def serve_on_cluster(requests: Path, cluster: str, recipe: str, options: dict[str, Any]) -> None:
    """Requests on all GPUs of a cluster. Raises BadInput."""
    from ganger.workloads.requests.formats import load_requests

    given = click.get_current_context().get_parameter_source
    for name in (
        "inner",
        "serving",
        "sharing",
        "rates",
        "by_windows",
        "knows",
        "load",
        "per_job",
        "log",
        "why",
    ):
        if given(name) not in (None, ParameterSource.DEFAULT):
            option = name.replace("_", "-")
            raise BadInput(
                "it is about jobs, and these are requests",
                where=f"--{option}",
                mend="leave it out; see `ganger requests simulate`",
            )
    chosen = {
        "recipe": recipe if given("recipe") != ParameterSource.DEFAULT else options["router"],
        "fleets": fleet_of(cluster),
        "models": str(options["models"]),
        "faster": "1",
        "noise": 1.0,
        "per_request": None,
        **{
            name: options[name]
            for name in (
                "slo",
                "seeds",
                "workers",
                "quiet",
                "as_json",
                "report",
                "yardsticks",
            )
        },
    }
    compare(str(requests), lambda: load_requests(requests), chosen)


def fleet_of(cluster: str) -> str:
    """All GPUs of a cluster as a fleet. Raises BadInput."""
    from ganger.workloads.clusters import load_cluster

    counts: dict[str, int] = {}
    for node in load_cluster(cluster).nodes:
        if node.gpus:
            counts[node.gpu_type] = counts.get(node.gpu_type, 0) + node.count * node.gpus
    return "+".join(f"{name}:{count}" for name, count in counts.items())


def _report(found: Comparison, inputs: Sequence[str], path: Path) -> None:
    """Write the HTML report."""
    from ganger.lab.origin import origin_of
    from ganger.lab.report.serving import write_report

    origin = origin_of(shlex.join(["ganger", *sys.argv[1:]]), inputs)
    write_report(
        [*found.runs, *found.oracle],
        path,
        origin=origin,
        bounds=found.bounds,
        missing=found.missing,
    )
    click.echo(f"report: {path}", err=True)


def _slos(text: str | None, where: str) -> list[int]:
    """Microseconds; NEVER where none is given. Raises BadInput."""
    if text is None:
        return [NEVER]
    found = [parse_duration(part.strip(), where=where) for part in text.split(",")]
    if not all(found):
        raise BadInput("nothing is answered in no time", where=where, mend="write like 100ms")
    return found


def _window(text: str | None) -> int:
    """Microseconds; 0 where none is given. Raises BadInput."""
    if text is None:
        return 0
    length = parse_duration(text, where="--windows")
    if not length:
        raise BadInput("no request comes in no time", where="--windows", mend="write like 1m")
    return length


def _table(chosen: dict[str, Any]) -> str:
    """The folder of tables of windows, which is made. Raises BadInput without windows, and where it
    cannot be."""
    folder: str = chosen.get("table", "")
    if not folder and chosen.get("like"):
        raise BadInput(
            "there is no table", where="--windows-like", mend="add --windows-table FOLDER"
        )
    if not folder:
        return ""
    if not chosen.get("windows"):
        raise BadInput("there are no windows", where="--windows-table", mend="add --windows 1m")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot be made: {error.strerror or error}",
            where=f"--windows-table: {folder}",
            mend="name another folder",
        ) from None
    return folder


def _faster(text: str) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 1e-6 <= value <= 1e6:
            raise BadInput(
                f"{part!r} is not a valid factor", where="--faster", mend="write like 2 or 0.5,1,2"
            )
        found.append(value)
    return found
