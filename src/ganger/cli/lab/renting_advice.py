"""`ganger recommend JOB --rent FILE`: which machines to rent for a job, and what they cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ganger.cli.lab.trace import console, plain_table
from ganger.cli.words import FloatRange
from ganger.core.errors import BadInput
from ganger.core.profiles import Profiles
from ganger.core.units import SECOND, parse_duration

if TYPE_CHECKING:
    from ganger.lab.recommend.renting import Forecast, RentalAdvice

_USED: Final = {
    "trace", "rent", "goal", "budget", "loss", "sync", "per_core", "chance", "speed_error",
    "checkpoint_every", "profiles", "recipes", "seeds", "begin", "checkpoint", "restore",
    "as_json", "quiet", "workers",
}  # fmt: skip
ABOUT: Final = ("rent", "goal", "budget", "loss")
"""The options that are about machines for one job, and have no default."""
_OPTIONS: Final = (
    click.option(
        "--rent",
        metavar="FILE",
        help="A cluster file with nodes for rent: TRACE is a job file, and machines for it are "
        "recommended.",
    ),
    click.option("--goal", metavar="TIME", help="By when the job is to be done, from its start."),
    click.option(
        "--budget", metavar="USD", type=FloatRange(0, 1e9), help="What it may cost, at most."
    ),
    click.option(
        "--loss",
        type=FloatRange(0, 1e9, min_open=True),
        help="The job is done at this loss, by the curve of its model. Default: at its own end.",
    ),
    click.option(
        "--sync",
        default="bsp",
        show_default=True,
        type=click.Choice(["bsp", "asp"]),
        help="Whether workers with parameter servers wait for each other (bsp) or not (asp).",
    ),
    click.option(
        "--server-core",
        "per_core",
        metavar="GB/S",
        default=0.0,
        type=FloatRange(0, 1e6),
        help="Gradients that one core of a parameter server adds up. Default: as much as comes.",
    ),
    click.option(
        "--chance",
        type=FloatRange(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="The part of the draws in which machines have to meet --goal and --budget.",
    ),
    click.option(
        "--speed-error",
        type=FloatRange(0, 2),
        default=0.1,
        show_default=True,
        help="Spread of the lognormal error of predicted speeds.",
    ),
    click.option(
        "--checkpoint-every",
        default="0s",
        show_default=True,
        metavar="TIME",
        help="From one checkpoint of a rented job to the next; 0s: only after notice.",
    ),
)
_IN_PROPORTION: Final = (
    "Nothing says how fast the job is on which GPUs (--profiles): speeds are in proportion to GPUs"
    " and to the `speed` of their type."
)
Command = TypeVar("Command", bound=Callable[..., Any])


def renting_options(command: Command) -> Command:
    """Add the options of renting."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def recommended_rental(path: Path, options: dict[str, Any]) -> bool:
    """Whether `path` is a job file, or ought to be; then look, print, and exit with 1 if nothing
    meets the goal. Raises BadInput."""
    from ganger.client.request import FORMAT
    from ganger.workloads.documents import says_it_is

    asked = options["rent"] is not None or says_it_is(path, FORMAT)
    if asked:
        _recommend(path, options)
    return asked


def _recommend(path: Path, options: dict[str, Any]) -> None:
    from ganger.cli.lab.simulate import parse_seeds
    from ganger.cli.lab.tuning import refuse_others
    from ganger.client.request import read_file
    from ganger.lab.recommend.renting import RECIPES, Assumptions, recommend_machines
    from ganger.mechanisms.provisioning.outcome import Upkeep
    from ganger.mechanisms.provisioning.rentals import Goal
    from ganger.mechanisms.provisioning.servers import Sync
    from ganger.recipes.registry import split_specs
    from ganger.service.jobs.submission import Who, prepare
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.measured.speeds import read_profiles

    refuse_others(_USED, "machines for one job")
    if options["rent"] is None:
        mend = "name a cluster file with nodes for rent, as in docs/cluster-file.md"
        raise BadInput("nothing says what can be rented", where="--rent", mend=mend)
    goal = math.inf
    if options["goal"] is not None:
        goal = parse_duration(options["goal"], where="--goal") / SECOND
        if not goal:
            raise BadInput("nothing is trained in no time", where="--goal", mend="write like 6h")
    seeds = parse_seeds(options["seeds"])
    if len(seeds) > 1:
        raise BadInput(f"{len(seeds)} seeds", where="--seeds", mend="give one")
    job, profiles = read_file(path), Profiles()
    prepare(job, Who(""), 0, lambda _: [], switch_user=False)  # what a daemon refuses
    if options["profiles"] is not None:
        profiles = read_profiles(options["profiles"])
        if job.model and job.model not in profiles.models:
            mend = f"it has {', '.join(sorted(profiles.models)[:9]) or 'none'}"
            raise BadInput(f"no profile of model {job.model!r}", where="--profiles", mend=mend)
    advice = recommend_machines(
        job,
        load_cluster(options["rent"], "--rent"),
        profiles,
        Goal(goal, math.inf if options["budget"] is None else options["budget"]),
        loss=options["loss"],
        recipes=split_specs(options["recipes"]) if options["recipes"] else RECIPES,
        assumed=Assumptions(
            error=options["speed_error"],
            chance=options["chance"],
            seed=seeds[0],
            sync=Sync(options["sync"]),
            per_core=options["per_core"],
            upkeep=Upkeep(
                *(
                    parse_duration(options[name], where=f"--{where}")
                    for name, where in (
                        ("begin", "start-cost"),
                        ("checkpoint", "checkpoint-cost"),
                        ("restore", "restore-cost"),
                        ("checkpoint_every", "checkpoint-every"),
                    )
                )
            ),
        ),
    )
    if options["as_json"]:
        click.echo(json.dumps(advice.to_json(), indent=2))
    else:
        _print(advice)
        if not (job.model and options["profiles"]):
            console().print(_IN_PROPORTION, style="dim")
    if advice.pick is None:
        click.get_current_context().exit(1)


def _print(advice: RentalAdvice) -> None:
    from rich.markup import escape

    from ganger.client.shown import shown

    screen = console()
    for line in _verdict(advice):
        screen.print(escape(shown(line)), highlight=False)
    table = plain_table()
    table.show_header, table.padding, table.show_edge = True, (0, 1, 0, 0), False
    table.add_column("machines", overflow="fold", min_width=22)
    for title in ("GPUs", "time", "cost", "met"):
        table.add_column(title, justify="right", no_wrap=True)
    first = [each for each in (advice.pick, advice.cheapest, advice.fastest) if each is not None]
    for each in {id(each): each for each in (*first, *advice.others)}.values():
        name = escape(shown(str(each.rental)))
        table.add_row(
            f"[bold]{name}[/bold]" if each is advice.pick else name,
            str(each.rental.gpus),
            _spread(each.seconds, _time),
            _spread(each.dollars, _usd),
            f"{each.met(advice.goal):.0%}",
        )
    screen.print(table)
    screen.print(escape(_caption(advice)), style="dim")


def _verdict(advice: RentalAdvice) -> list[str]:
    """What to rent, or that nothing meets the goal and what comes nearest."""
    if advice.pick is not None:
        return [f"Rent {_in_words(advice.pick)}."]
    lines = [f"No machines for rent do it {_goal(advice)}."]
    fastest, cheapest, goal, chance = (
        advice.fastest, advice.cheapest, advice.goal, advice.assumed.chance
    )  # fmt: skip
    if cheapest is not None and cheapest is not fastest:
        words = (
            "in time" if math.inf > goal.seconds and cheapest.timely(goal) >= chance else "of all"
        )
        lines.append(f"The cheapest {words}: {_in_words(cheapest)}.")
    if fastest is not None:
        paid = math.inf > goal.dollars and fastest.paid(goal) >= chance
        lines.append(
            f"The fastest {'within the budget' if paid else 'of all'}: {_in_words(fastest)}."
        )
    return lines


def _in_words(each: Forecast) -> str:
    return (
        f"{each.rental}: {_spread(each.seconds, _time)} for {_spread(each.dollars, _usd)}"
        f" (by {each.recipe})"
    )


def _goal(advice: RentalAdvice) -> str:
    goal = advice.goal
    parts = [f"within {_time(goal.seconds)}"] if goal.seconds < math.inf else []
    parts += [f"for {_usd(goal.dollars)}"] if goal.dollars < math.inf else []
    return f"{' and '.join(parts) or 'at all'} in {advice.assumed.chance:.0%} of the draws"


def _caption(advice: RentalAdvice) -> str:
    assumed = advice.assumed
    begins = f" begin anywhere in {_time(advice.history)} of prices," if advice.history else ""
    return (
        f"{advice.looked_at:,} rentals were looked at. Intervals: 95 % of {assumed.draws} draws,"
        f" which{begins} have speeds with a lognormal error of {assumed.error:.0%} (assumed unless"
        f" given: --speed-error). A goal counts as met in {assumed.chance:.0%} of them (--chance)."
    )


def _spread(values: Any, written: Any) -> str:
    from ganger.lab.recommend.renting import interval

    low, high = interval(values)
    return f"{written(float(values.mean()))} ({written(low)} to {written(high)})"


def _time(seconds: float) -> str:
    """In days, hours or minutes."""
    if not math.isfinite(seconds):
        return "never"
    if seconds >= 3 * 86400:
        return f"{seconds / 86400:.1f}d"
    return f"{seconds / 3600:.1f}h" if seconds >= 3600 else f"{seconds / 60:.1f}m"


def _usd(value: float) -> str:
    return f"${value:,.2f}" if math.isfinite(value) else "-"
