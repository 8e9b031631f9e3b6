"""What `ganger recommend` does with requests: the smallest fleet that keeps an SLO."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ganger.cli.lab.serving.tables import broken, percent, time_of
from ganger.cli.lab.simulate import parse_seeds
from ganger.cli.lab.trace import console, plain_table
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, parse_duration

if TYPE_CHECKING:
    from ganger.lab.serving.sizing import Advice, Found, Tried
    from ganger.lab.serving.yardsticks.least import Least, Measured


def recommend_fleet(requests: Path, options: dict[str, Any]) -> None:
    """Search, print, and exit with 1 if no fleet keeps it. Raises BadInput."""
    from ganger.lab.serving.run import Setup
    from ganger.lab.serving.sizing import candidates, read_sizes, size
    from ganger.lab.serving.tokens import apart
    from ganger.lab.serving.yardsticks.least import measured, part_of_search
    from ganger.recipes.registry import make_router, split_specs
    from ganger.workloads.models.reading import read_models
    from ganger.workloads.requests.formats import load_requests

    for name in ("cluster", "current", "objective"):
        if click.get_current_context().get_parameter_source(name) == _GIVEN:
            raise BadInput(
                "it is about jobs, and these are requests",
                where=f"--{name}",
                mend="name --fleets and --slo",
            )
    if options["fleets"] is None:
        raise BadInput("it is missing", where="--fleets", mend="write like T4:1-64,L4:1-64")
    ranges = read_sizes(options["fleets"])
    slo = NEVER if options["slo"] is None else parse_duration(options["slo"], where="--slo")
    if not slo:
        raise BadInput("nothing is answered in no time", where="--slo", mend="write like 100ms")
    types = [name for each in ranges for name, *_ in each.types]
    prices = _prices(options["prices"], [*types, *(apart(name)[1] for name in types)])
    models = read_models(options["models"])
    if options["recipes"]:
        recipes = split_specs(options["recipes"])
        for recipe in recipes:
            make_router(recipe)
    else:
        first = load_requests(requests)
        chunk = next(iter(first.chunks()), None)
        asked = [] if chunk is None else [first.models[code] for code in set(chunk.model.tolist())]
        recipes = candidates(models, asked)
    seeds, workers = parse_seeds(options["seeds"]), options["workers"] or os.cpu_count() or 1
    part = part_of_search(len(recipes), len(seeds))
    with Bar("recommend", options["quiet"] or options["as_json"]) as bar:
        advice = size(
            lambda: load_requests(requests),
            models,
            recipes,
            ranges,
            Setup(slo=slo),
            target=options["attainment"],
            seeds=seeds,
            prices=prices,
            workers=workers,
            progress=lambda share: bar.show(part * share, 1.0),
        )
        yardsticks = measured(
            advice,
            lambda: load_requests(requests),
            models,
            Setup(slo=slo),
            seeds=seeds,
            prices=prices,
            workers=workers,
            progress=lambda share: bar.show(part + (1 - part) * share, 1.0),
        )
    if options["as_json"]:
        click.echo(json.dumps({**advice.to_json(), "yardsticks": yardsticks.to_json()}, indent=2))
    else:
        _print(advice, yardsticks, bool(prices))
    if advice.best is None:
        click.get_current_context().exit(1)


_GIVEN = click.core.ParameterSource.COMMANDLINE


def _prices(text: str | None, types: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        try:
            price = float(value)
        except ValueError:
            price = math.nan
        if name.strip() not in types or not 0 < price < 1e9:
            raise BadInput(
                f"{part!r} is not the price of a device",
                where="--price",
                mend=f"write like {types[0]}=0.35",
            )
        found[name.strip()] = price
    return found


def _print(advice: Advice, yardsticks: Measured, priced: bool) -> None:
    from rich.markup import escape

    screen = console()
    best = advice.best
    if best is None or best.best is None:
        nearest = advice.found[0].nearest
        line = f"No fleet keeps it for {percent(advice.target)} of the requests."
        if nearest is not None:
            line += (
                f" The nearest is {nearest.recipe} on {nearest.fleet}:"
                f" {percent(nearest.attainment)}"
                f" ({percent(nearest.low)} to {percent(nearest.high)})."
            )
    else:
        line = (
            f"{best.recipe} on {best.best.fleet}: {percent(best.best.attainment)} of the"
            f" requests are in time ({percent(best.best.low)} to {percent(best.best.high)})."
        )
        if best.below is not None:
            line += f" {best.below.fleet} keeps it for {percent(best.below.attainment)}."
    screen.print(escape(line), highlight=False)
    table = plain_table()
    table.show_header, table.padding = True, (0, 1, 0, 0)
    table.add_column("recipe", min_width=12)
    for title in ("fleet", *(["cost"] if priced else []), "in time", "interval", "p99", "one less"):
        table.add_column(title, justify="right" if title != "fleet" else "left", no_wrap=True)
    for found in advice.found:
        table.add_row(*_row(found, priced))
    screen.print(table)
    screen.print(
        f"{advice.requests:,} requests, {advice.runs} runs. Interval: 95 %, of means of parts of"
        f" the log; a fleet keeps the SLO if all of it does. One less: the part in time with one"
        f" device less{_lasts(advice)}, which was run as well.",
        style="dim",
        soft_wrap=False,
    )
    for line in _measured(yardsticks):
        screen.print(escape(line), style="dim", soft_wrap=False)
    for found in advice.found:
        if found.refused is not None:
            screen.print(escape(f"{found.recipe}, {found.sizes}: {found.refused}"), style="dim")
    for remark in advice.remarks:
        click.echo(f"note: {remark}", err=True)


def _lasts(advice: Advice) -> str:
    """Of which type there was one less, where fleets are mixed."""
    mixed = dict.fromkeys(row.sizes for row in advice.found if len(row.sizes.types) > 1)
    some = ", ".join(f"of {sizes} one {sizes.types[-1][0]}" for sizes in mixed)
    return f" ({some})" if some else ""


def _measured(yardsticks: Measured) -> list[str]:
    """What nobody can deploy, and what nobody can exceed."""
    lines = list(map(_least, yardsticks.least))
    foreseen, bound = yardsticks.clairvoyant, yardsticks.bound
    if foreseen is not None:
        lines.append(
            f"clairvoyant (serve.clairvoyant), which knows all requests before they come and cannot"
            f" be deployed, has {percent(foreseen.attainment)} in time on {foreseen.fleet}, with a"
            f" p99 of {time_of(foreseen.p99_seconds)}."
        )
    if bound is not None:
        lines.append(
            f"No recipe can have more than {percent(bound)} in time on {yardsticks.fleet}, without"
            " luck."
        )
    return lines + yardsticks.missing


def _least(least: Least) -> str:
    """What is the least of a range."""
    short = "" if least.short is None else f": {_bound(least.short)}"
    if least.fleet is None:
        return f"No recipe keeps it on any fleet of {least.sizes}{short}."
    return f"Of {least.sizes} no recipe keeps it on less than {least.fleet}{short}."


def _bound(tried: Tried) -> str:
    return f"on {tried.fleet} none can have more than {percent(tried.attainment)} in time"


def _row(found: Found, priced: bool) -> list[str]:
    from rich.markup import escape

    tried = found.best or found.nearest
    name = escape(broken(found.recipe, 20))
    if tried is None:
        return [name, f"{found.sizes}", *([""] if priced else []), "-", "-", "-", "-"]
    cost = [f"{found.cost:,.4g}" if found.best is not None else "-"] if priced else []
    fleet = f"{tried.fleet}" if found.best is not None else f"none; {tried.fleet}"
    below = "-" if found.below is None else percent(found.below.attainment)
    return [
        name,
        fleet,
        *cost,
        percent(tried.attainment),
        f"{100 * tried.low:.1f}-{percent(tried.high)}",
        time_of(tried.p99_seconds),
        below,
    ]
