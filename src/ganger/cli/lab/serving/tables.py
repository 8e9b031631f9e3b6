"""Runs over requests as tables in a terminal, and what has to be known to read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from rich.markup import escape

from ganger.cli.lab.trace import console, plain_table
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.lab.serving.windows.words import read_and_run

if TYPE_CHECKING:
    from ganger.lab.serving.loading.driving import Loaded
    from ganger.lab.serving.run import Place, ServingRun
    from ganger.lab.serving.sweep import Comparison

Groups: TypeAlias = "dict[tuple[str, str, str, str], list[ServingRun]]"
Figures: TypeAlias = dict[str, tuple[str, Callable[[Any], str]]]
_TITLES: Final = ("recipe", "fleet", "load", "SLO")


def show(found: Comparison, *, by_class: bool = False) -> None:
    """Print a row for each recipe and place: means over the seeds; `by_class` the same for the
    classes of requests; the most that any recipe could have in time; why requests were dropped;
    what was left out."""
    screen, groups = console(), _groups(found)
    columns = dict(zip(_TITLES, zip(*groups, strict=True), strict=True))
    shown = [name for name, words in columns.items() if len(set(words)) > 1] or ["recipe"]
    figures = _figures(found.runs, len(shown))
    screen.print(_table(groups, columns, shown, figures, screen.width), "")
    if by_class:
        _show_classes(
            screen,
            [
                (", ".join(columns[name][at] for name in shown), group[0].classes)
                for at, group in enumerate(groups.values())
            ],
        )
        if len({run.setup.seed for run in found.runs}) > 1:
            said = f"Classes are of seed {found.runs[0].setup.seed} alone."
            screen.print(said, style="dim", soft_wrap=False)
    same = [
        "SLO of each request" if name == "SLO" and found.runs[0].own_slo else f"{name} {words[0]}"
        for name, words in columns.items()
        if name not in shown and words[0]
    ]
    for line in _lines(found, groups, same):
        screen.print(escape(line), style="dim", soft_wrap=False)
    for remark in found.runs[0].remarks:
        click.echo(f"note: {remark}", err=True)


def _groups(found: Comparison) -> Groups:
    """The runs of a row: of one recipe at one place, with different seeds."""
    groups: Groups = {}
    runs = [*found.runs, *found.oracle]
    places = list(dict.fromkeys(run.place for run in runs))
    for run in sorted(runs, key=lambda run: places.index(run.place)):
        name = run.recipe.removeprefix("serve.") if run in found.oracle else run.recipe
        groups.setdefault(_key(name, run.place), []).append(run)
    return groups


def _key(recipe: str, place: Place) -> tuple[str, str, str, str]:
    slo = "" if place.slo == NEVER else format_duration(place.slo)
    return recipe, place.fleet, f"{place.faster:g}", slo


def _figures(runs: list[ServingRun], names: int) -> Figures:
    """The columns that fit beside so many columns of names, of which runs have figures."""
    figures = _SPOKEN if _spoke(runs) else _FIGURES
    if runs[0].setup.prices:
        kept = {name: each for name, each in figures.items() if name != "busy" or names == 1}
        figures = {**kept, "cost/M": ("cost_per_million_in_time", _number)}
    if names > 1:
        return figures
    loads = any(run.metrics["loads"] for run in runs)
    used = any(_gave_back(run) for run in runs)
    return {
        **figures,
        **({"loads": ("loads", "{:,.0f}".format)} if loads else {}),
        **({"lanes": ("lanes_used_mean", _number)} if used else {}),
    }


def _spoke(runs: list[ServingRun]) -> bool:
    """Whether token models answered."""
    return any(run.metrics["output_tokens"] is not None for run in runs)


def _gave_back(run: ServingRun) -> bool:
    """Whether its router gives lanes back, so that not all are used all the time."""
    from ganger.recipes.registry import make_router

    return make_router(run.recipe).can.retires


def _table(
    groups: Groups,
    columns: dict[str, tuple[str, ...]],
    shown: list[str],
    figures: Figures,
    width: int,
) -> Any:
    """Names that are too long are broken; figures that the screen has no room for are left out."""
    widest = 17 if len(shown) < 3 else 12
    names = {title: [broken(word, widest) for word in columns[title]] for title in shown}
    cells = {
        title: [write(_mean(group, name)) for group in groups.values()]
        for title, (name, write) in figures.items()
    }
    every = {**names, **cells}
    wide = {title: longest([title, *words]) + 2 for title, words in every.items()}
    for title in _SPARED:
        if sum(wide.values()) - 2 > width and title in cells:
            del cells[title], wide[title]
    table = plain_table()
    table.show_header, table.padding, table.show_edge = True, (0, 1, 0, 0), False
    for title in names:
        table.add_column(title, min_width=wide[title] - 2)
    for title in cells:
        table.add_column(title, justify="right", no_wrap=True)
    rows = zip(*(map(escape, words) for words in [*names.values(), *cells.values()]), strict=True)
    for row in rows:
        table.add_row(*row)
    return table


def broken(name: str, width: int) -> str:
    """A name in lines of at most so many characters, after a mark where there is one."""
    lines = [""]
    for part in _AFTER_MARKS.split(name):
        if len(lines[-1]) + len(part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(lines)


def longest(words: Sequence[str]) -> int:
    """The characters of the longest line."""
    return max(len(line) for word in words for line in word.split("\n"))


def _lines(found: Comparison, groups: Groups, same: list[str]) -> list[str]:
    """What stands below the table; `same`: what all rows have in common."""
    runs = found.runs
    seeds = len({run.setup.seed for run in runs})
    same = same + [f"means over {seeds} seeds"] * (seeds > 1)
    about = ", ".join([f"{runs[0].metrics['requests']:,} requests", *same])
    lines = [
        f"{about}. In time: answered by the deadline, of all that came; good/s: these, a second."
        " Latencies are of answered requests."
    ]
    if runs[0].setup.prices:
        lines.append("cost/M: of the whole fleet, for a million requests in time.")
    if _spoke(runs):
        lines.append(
            "ttft, tpot: the 99th percentiles of the time to the first token, and of that for each"
            " further one; tok/s: tokens of outputs, a second."
        )
    if found.oracle:
        lines.append(
            "clairvoyant (serve.clairvoyant) knows all requests before they come (needs: future),"
            " which nobody can deploy."
        )
    lines += [
        f"{recipe} needs the future: it knows which requests come, and cannot be deployed."
        for recipe in dict.fromkeys(run.recipe for run in runs if run.needs)
    ]
    places = list(dict.fromkeys(run.place for run in runs))
    lines += found.missing
    low = {place: bound for place, bound in found.bounds.items() if bound.attainment <= _ALL}
    for place, bound in low.items():
        where = place.told(places)
        lines.append(
            f"{where}{': no' if where else 'No'} recipe can have more than"
            f" {percent(bound.attainment)} in time, without luck"
        )
    if len(low) < len(found.bounds):
        lines.append(f"{'Elsewhere the' if low else 'The'} bound on what is in time is 100%.")
    for group in groups.values():
        first = group[0]
        where = ", ".join(filter(None, (first.recipe, first.place.told(places))))
        for reason, count in _dropped(group):
            lines.append(f"{where}: {count:,.0f} dropped: {reason}")
        if first.windows is not None:
            lines.append(f"{where}: {read_and_run(first.windows)}")
    return lines


def _show_classes(screen: Any, runs: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """Below the name of each row, one for each class of requests by model, tenant and SLO, of the
    first seed."""
    every = [row for _, rows in runs for row in rows]
    words = {
        "model": [broken(row["model"], 17) for row in every],
        "tenant": [broken(row["tenant"] or "", 12) for row in every],
        "SLO": [time_of(row["slo_seconds"]) for row in every],
    }
    names = [name for name, column in words.items() if len(set(column)) > 1] or ["model"]
    figures = {
        title: [write(row[of]) for row in every] for title, (of, write) in _OF_CLASSES.items()
    }
    cells = {**{name: words[name] for name in names}, **figures}
    shown = {title: column for title, column in cells.items() if set(column) != {"-"}}
    at = 0
    for name, rows in runs:
        if len(runs) > 1:
            screen.print(escape(name), highlight=False)
        table = plain_table()
        table.show_header, table.padding, table.show_edge = True, (0, 1, 0, 0), False
        for title, column in shown.items():
            right = title not in names
            width = longest([title, *column])
            table.add_column(title, justify="right" if right else "left", min_width=width)
        for row in list(zip(*shown.values(), strict=True))[at : at + len(rows)]:
            table.add_row(*map(escape, row))
        at += len(rows)
        screen.print(table, "")
    if any(row["attainment_bound"] is not None for row in every):
        screen.print(
            "At most: what no recipe can exceed for a class, even if there were no others; all"
            " together may not reach it.",
            style="dim",
            soft_wrap=False,
        )


def _mean(group: list[ServingRun], name: str) -> float | None:
    """Over its seeds; None where a run has no such figure."""
    values = [run.metrics[name] for run in group]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _dropped(group: list[ServingRun]) -> list[tuple[str, float]]:
    """Each reason and how many requests were dropped for it, the mean over its seeds, the commonest
    first."""
    counts: dict[str, float] = {}
    for run in group:
        for reason, count in run.dropped.items():
            counts[reason] = counts.get(reason, 0.0) + count / len(group)
    return sorted(counts.items(), key=lambda item: -item[1])


def percent(value: float | None) -> str:
    """A part, as it is shown."""
    return "-" if value is None else f"{100 * value:.1f}%"


def _round(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def time_of(value: float | None) -> str:
    """Seconds, as they are shown."""
    if value is None:
        return "-"
    if value >= 1:
        return format_duration(value * SECOND)
    return f"{value * 1000:.{value < 0.1:d}f}ms"


_SPARED: Final = ("busy", "batch", "drops", "p50", "tpot", "ttft")
"""Columns that go, in this order, where the screen is too narrow for all."""
_AFTER_MARKS: Final = re.compile(r"(?<=[-,(;.=])")
_ALL: Final = 0.9995
"""Bounds above it are no news."""
_FIGURES: Final[Figures] = {
    "in time": ("attainment", percent),
    "good/s": ("goodput_per_second", _number),
    "p50": ("latency_p50_seconds", time_of),
    "p99": ("latency_p99_seconds", time_of),
    "drops": ("dropped", "{:,.0f}".format),
    "batch": ("batch_mean", _number),
    "busy": ("utilisation", _round),
}
"""Columns: the metric, and how it is written."""
_SPOKEN: Final[Figures] = {
    "in time": ("attainment", percent),
    "good/s": ("goodput_per_second", _number),
    "ttft": ("ttft_p99_seconds", time_of),
    "tpot": ("tpot_p99_seconds", time_of),
    "tok/s": ("output_tokens_per_second", _number),
    "busy": ("utilisation", _round),
}
"""The same where token models ran."""
_OF_CLASSES: Final[Figures] = {
    "requests": ("requests", "{:,}".format),
    "in time": ("attainment", percent),
    "at most": ("attainment_bound", percent),
    "p50": ("latency_p50_seconds", time_of),
    "p99": ("latency_p99_seconds", time_of),
    "ttft p99": ("ttft_p99_seconds", time_of),
}
"""The same of a class."""


def show_load(loaded: Loaded, name: str) -> None:
    """Print the figures of a run against a server, why requests were dropped, and by how much the
    client lagged."""
    figures = {title: each for title, each in _FIGURES.items() if title != "busy"}
    table, screen = plain_table(), console()
    table.show_header, table.padding, table.show_edge = True, (0, 1, 0, 0), False
    cells = {title: write(loaded.metrics[of]) for title, (of, write) in figures.items()}
    table.add_column("server")
    for title, cell in cells.items():
        table.add_column(title, justify="right", no_wrap=True, min_width=longest([title, cell]))
    table.add_row(escape(name), *map(escape, cells.values()))
    screen.print(table, "")
    lines = [
        f"{loaded.metrics['requests']:,} requests. In time: answered by the deadline, of all that"
        " came; good/s: these, a second. Latencies are of answered requests, from the time at"
        " which each should have gone out.",
        f"The client itself lagged by {time_of(loaded.metrics['sent_late_p99_seconds'])} (p99).",
    ]
    for reason, count in sorted(loaded.dropped.items(), key=lambda item: -item[1]):
        lines.append(f"{count:,} dropped: {reason}")
    for line in lines:
        screen.print(escape(line), style="dim", soft_wrap=False)
