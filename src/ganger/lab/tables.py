"""Tables for the terminal: runs side by side in 80 columns, and one run by tenant, size or type.

Colour only repeats what the text says, so that nothing is lost in a pipe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ganger.core.units import SECOND, format_duration
from ganger.lab.billing.power import figure
from ganger.lab.metrics import By, Group, aggregate, breakdown
from ganger.lab.result import Run
from ganger.lab.serving.windows.words import read_and_run
from ganger.lab.simulating.waited import hours, shares
from ganger.lab.words import headline, leaders, notes, remarks, same_each_time


class _Column(NamedTuple):
    title: str
    metric: str
    kind: str
    better: str


_COLUMNS = (
    _Column("JCT\nmean", "jct_mean_seconds", "time", "low"),
    _Column("JCT\nmedian", "jct_p50_seconds", "time", "low"),
    _Column("JCT\n99th", "jct_p99_seconds", "time", "low"),
    _Column("queueing\nmean", "queueing_delay_mean_seconds", "time", "low"),
    _Column("makespan", "makespan_seconds", "time", "low"),
    _Column("GPUs\nheld", "gpu_allocated_ratio", "ratio", "high"),
    _Column("pre-\nempted", "preemptions", "count", ""),
)
_BEST = "bold green"


_COMPANY_MAX: Final = 20
"""So many kinds of company of a run are shown, the longest first."""


def comparison(runs: Sequence[Run]) -> RenderableType:
    """One row per recipe: means over its seeds, ± half the 95% interval below where there are
    several. The best of each column is bold and green, and so are those tied with it. Runs at
    several loads give one table each, with the headline below.
    """
    groups = aggregate(runs)
    loads = sorted({group.load for group in groups})
    found: list[RenderableType] = []
    for load in loads:
        field = [group for group in groups if group.load == load]
        found.append(_comparison(field, load if len(loads) > 1 else None))
        if len(field) > 1:
            said = " ".join([headline(field), *remarks(field)])
            found.append(Text(printable(said)))
    return Stack(*found, *(Text(line, style="dim") for line in footnotes(groups)))


def breakdown_table(run: Run, by: By = "tenant") -> Table:
    """One row per tenant, gang size or GPU type of one run, in the order of `metrics.breakdown`."""
    table = _table(f"{printable(run.recipe)}, by {by.replace('_', ' ')}")
    table.add_column(by.replace("gpu_type", "GPU type"), overflow="fold", min_width=8)
    times = ("JCT\nmean", "JCT\nmedian", "JCT\n99th", "queueing\nmean")
    rows = breakdown(run, by)
    bill = [name for name in _BILLED if rows and name in rows[0]]
    for title in ("jobs", *times, "GPU-\nhours", "ρ\nmean", *(_BILLED[name] for name in bill)):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [*_breakdown_cells(row), *(figure(row[name]) for name in bill)]
        table.add_row(Text(printable(str(row[by])) or "(none)"), *cells)
    return table


_BILLED = {"energy_kwh": "kWh", "cost": "cost"}


def waiting_table(runs: Sequence[Run]) -> RenderableType:
    """Why jobs waited: for every recipe a row for each reason, means over its seeds."""
    found: list[RenderableType] = []
    groups = aggregate(runs)
    for group in groups:
        known = [run.waited for run in group.runs if run.waited is not None]
        at = f", load {group.load:g}" if len({each.load for each in groups}) > 1 else ""
        table = _table(f"{printable(group.label)}{at}, why jobs waited")
        table.add_column("reason", overflow="fold", ratio=1)
        for title in ("jobs", "job-\nhours", "GPU-\nhours", "share"):
            table.add_column(title, justify="right", no_wrap=True)
        rows = shares(known)
        for one in rows:
            lasted = hours(one.job_hours), hours(one.gpu_hours)
            table.add_row(printable(one.reason), f"{one.jobs:,.0f}", *lasted, f"{one.share:.0%}")
        found.append(table if rows else Text(f"{printable(group.label)}: no job waited."))
    said = "A job that waited for several reasons counts in each; share: of the GPU-hours waited."
    return Stack(*found, Text(said, style="dim"))


def company_table(runs: Sequence[Run]) -> RenderableType:
    """Which models shared GPUs, of every run in which any did: how long, and how fast."""
    tables: list[RenderableType] = []
    for run in runs:
        if not run.company:
            continue
        table = _table(f"{printable(run.recipe)}, seed {run.seed}, jobs on the same GPUs")
        for title in ("model", "class", "beside"):
            table.add_column(title, overflow="fold")
        for title in ("jobs", "GPU-\nhours", "speed"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in run.company[:_COMPANY_MAX]:
            names = (row.model, row.standing or "-", row.beside)
            figures = (f"{row.jobs:,}", hours(row.gpu_hours), f"{row.speed:.2f}")
            table.add_row(*map(printable, names), *figures)
        tables.append(table)
    said = "Speed: the work done in the time that they shared, 1 as fast as the trace has it."
    return Stack(*tables, Text(said, style="dim"))


def experiments_table(runs: Sequence[Run]) -> RenderableType:
    """What became of the experiments of every run."""
    table = _table("experiments")
    for title in ("recipe", "experiment", "trials by"):
        table.add_column(title, overflow="fold")
    every = [(run, search) for run in runs for search in run.searches]
    priced = any(search.metrics["cost"] is not None for _, search in every)
    for title in ("trials", "best", "after", "took", "GPU-h", *["cost"] * priced, "kept"):
        table.add_column(title, justify="right", no_wrap=True)
    for run, search in every:
        figures = search.metrics
        names = (_told_apart(run, runs), search.experiment, search.recipe)
        best, after, cost = (figures[name] for name in ("best", "best_at_seconds", "cost"))
        table.add_row(
            *map(printable, names),
            f"{figures['trials']:,}",
            "-" if best is None else f"{best:.4g}",
            "-" if after is None else duration(after),
            duration(figures["seconds"]),
            f"{figures['gpu_hours']:,.2f}",
            *["-" if cost is None else f"{cost:,.2f}"] * priced,
            limits_kept(figures),
        )
    return Stack(
        table, Text("Best: of its metric, and how long after its submission.", style="dim")
    )


def loans_table(runs: Sequence[Run]) -> RenderableType:
    """What was on loan in every run, and what became of it."""
    table = _table("loans")
    table.add_column("recipe", overflow="fold")
    titles = ("lent", "used", "loans", "returns", "stopped", "shrunk", "longest return")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for run in runs:
        if run.loans is not None:
            loans = run.loans
            hours = [f"{hours:,.1f}" for hours in (loans.lent_gpu_hours, loans.used_gpu_hours)]
            counts = (loans.loans, loans.returns, loans.stopped, loans.shrunk)
            table.add_row(
                _told_apart(run, runs),
                *hours,
                *map(str, counts),
                duration(loans.longest_return_seconds),
            )
    words = "GPU-hours that were on loan, and that other jobs held of them; jobs that had to leave."
    return Stack(table, Text(words, style="dim"))


def limits_kept(figures: Mapping[str, Any]) -> str:
    """Whether deadline and budget were kept, as far as there are any."""
    kept = [figures[name] for name in ("deadline_kept", "budget_kept") if figures[name] is not None]
    return "" if not kept else "yes" if all(kept) else "no"


def services_table(runs: Sequence[Run]) -> RenderableType:
    """How the services of every run did whose requests were simulated, with their yardsticks."""
    table = _table("services")
    table.add_column("recipe", overflow="fold")
    table.add_column("service", overflow="fold", min_width=len(_ORACLE))
    every = [figures for run in runs for figures in run.services.values()]
    bounded = any("attainment_bound" in figures for figures in every)
    for title in ("requests", "in time", *["at most"] * bounded, "p50", "p99", "drops", "batch"):
        table.add_column(title, justify="right", no_wrap=True)
    windows = []
    for run in runs:
        label = _told_apart(run, runs)
        for name, figures in run.services.items():
            bound = figures.get("attainment_bound")
            limit = [_share(bound)] if bounded else []
            table.add_row(printable(label), printable(name), *_served(figures, limit))
            foreseen = figures.get("clairvoyant")
            if foreseen is not None:
                table.add_row("", _ORACLE, *_served(foreseen, [""] * bounded))
            if "windows" in figures:
                windows.append(f"{label}, {name}: {read_and_run(figures['windows'])}")
    said = ["In time: answered by the deadline, of all requests that came."]
    if bounded:
        said.append(f"At most: {AT_MOST}")
    if any("clairvoyant" in figures for figures in every):
        said.append(f"Clairvoyant: {FORESEEN}")
    said += [*no_row(run.services for run in runs), *windows]
    return Stack(table, *(Text(printable(line), style="dim") for line in said))


def _told_apart(run: Run, runs: Sequence[Run]) -> str:
    """Its recipe, and what else tells it from the others."""
    words = [run.recipe]
    if len({each.load for each in runs}) > 1:
        words.append(f"load {run.load:g}")
    if len({each.seed for each in runs}) > 1:
        words.append(f"seed {run.seed}")
    return ", ".join(words)


_ORACLE: Final = "clairvoyant"
AT_MOST = (
    "no recipe can have more, with as many replicas all the time as the service may have and the"
    " cluster has room for, without luck."
)
FORESEEN = (
    "what the same replicas answer at the same times under serve.clairvoyant, which knows all"
    " requests before they come (needs: future) and cannot be deployed."
)


def no_row(services: Iterable[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Sentences that say why a service has no clairvoyant row."""
    return list(
        dict.fromkeys(
            f"{name} has no clairvoyant row: {figures['clairvoyant_missing']}."
            for some in services
            for name, figures in some.items()
            if "clairvoyant_missing" in figures
        )
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _served(figures: Mapping[str, Any], limit: list[str]) -> list[str]:
    """The cells of a service: its figures."""
    batch = figures["batch_mean"]
    return [
        f"{figures['requests']:,}",
        _share(figures["attainment"]),
        *limit,
        *(_latency(figures[f"latency_{which}_seconds"]) for which in ("p50", "p99")),
        f"{figures['dropped']:,}",
        "-" if batch is None else f"{batch:.1f}",
    ]


def bill_table(runs: Sequence[Run]) -> RenderableType:
    """Energy, carbon and, where there are prices, money by recipe: means over its seeds."""
    table = _table("energy, carbon, cost")
    groups = [group for group in aggregate(runs) if group.runs[0].account is not None]
    priced = any(run.cost for run in runs)
    several = len({group.load for group in groups}) > 1
    table.add_column("recipe", overflow="fold")
    for title in ("energy\nkWh", "of it\nidle", "carbon\nkg", *_MONEY[: 4 * priced]):
        table.add_column(title, justify="right", no_wrap=True)
    names = ("energy_kwh", "energy_of_idle_kwh", "carbon_kg")
    paid = ("cost_of_jobs", "cost_of_services", "cost_of_idle", "cost")
    for group in groups:
        label = f"{group.label}, load {group.load:g}" if several else group.label
        cells = [figure(group.mean(name)) for name in names]
        cells += [f"{group.mean(name):,.2f}" for name in paid if priced]
        table.add_row(printable(label), *cells)
    said = dict.fromkeys(
        line for group in groups for run in group.runs if run.account for line in run.account.said()
    )
    return Stack(table, *(Text(printable(line), style="dim") for line in said))


_MONEY = ("jobs\npay", "services\npay", "nobody\npays", "cost")


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


def footnotes(groups: Sequence[Group]) -> list[str]:
    """What a reader of the table must know: the seeds, what `knows` means, which jobs and rows are
    in no figure."""
    seeds = max((len(group.runs) for group in groups), default=0)
    lines = ["knows: what the policy knew of job durations."]
    if seeds > 1 and all(map(same_each_time, groups)):
        lines.append(f"All {seeds} seeds gave the same figures: nothing is drawn at random here.")
    elif seeds > 1:
        lines.append(f"Means over {seeds} seeds; ± is half the 95% confidence interval.")
    return lines + [printable(line) for line in notes(groups)]


def printable(text: str) -> str:
    """The text with what would steer a terminal (escapes, newlines) replaced by `?`."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def duration(seconds: float) -> str:
    """Seconds for people; a dash where there is no figure."""
    return format_duration(round(seconds * SECOND)) if math.isfinite(seconds) else "-"


def _comparison(groups: list[Group], load: float | None) -> Table:
    table = _table("" if load is None else f"load {load:g}")
    table.add_column("recipe", overflow="fold", min_width=8)
    table.add_column("knows", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column.title, justify="right", no_wrap=True)
    for group in groups:
        cells = [_cell(group, column, groups) for column in _COLUMNS]
        table.add_row(Text(printable(group.label)), Text(printable(group.knows)), *cells)
    return table


def _table(title: str) -> Table:
    heading = Text(title, style="bold") if title else None
    table = Table(title=heading, box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.title_justify = "left"
    return table


def _cell(group: Group, column: _Column, groups: list[Group]) -> Text:
    mean, half = group.metrics[column.metric]
    marked = group in leaders(groups, column.metric, column.better)
    text = Text(_text(mean, column.kind), style=_BEST if marked else "")
    if half > 0:
        text.append(f"\n±{_text(half, column.kind)}", style="not bold dim")
    return text


def _text(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return "-"
    if kind == "time":
        return duration(value)
    return f"{value:.0%}" if kind == "ratio" else f"{value:,.0f}"


def _breakdown_cells(row: dict[str, Any]) -> list[str]:
    times = ("jct_mean", "jct_p50", "jct_p99", "queueing_delay_mean")
    rho = row["finish_time_fairness_mean"]
    return [
        f"{row['jobs']:,}",
        *(duration(row[f"{name}_seconds"]) for name in times),
        f"{row['gpu_hours']:,.1f}",
        f"{rho:.2f}" if math.isfinite(rho) else "-",
    ]
