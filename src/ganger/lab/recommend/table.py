"""A recommendation for the terminal: sentences, and a table of 80 columns."""

from __future__ import annotations

import math
from collections import Counter

from rich.table import Table
from rich.text import Text

from ganger.lab.recommend.race import Gap, Recommendation
from ganger.lab.tables import duration, printable


def verdict(found: Recommendation) -> list[str]:
    """Which to take, by how much, what it must know, and what to beware of."""
    title, pick = found.objective.title, found.pick
    lines = [f"Take {printable(pick.recipe)}: {title} {figure(found, pick.mean)}."]
    if found.over_baseline is not None:
        lines.append(_against(found.baseline.recipe, found.over_baseline))
    if found.next is not None and found.next is not found.baseline and found.over_next is not None:
        lines.append(_against_next(found, found.next.recipe, found.over_next))
    lines.append(
        "It needs no information about durations."
        if pick.needs == "nothing"
        else f"It needs {pick.needs} (here: --knows {found.knows})."
    )
    if found.told_less is not None:
        lines.append(
            f"With only the durations of similar jobs (rolling), against"
            f" {printable(found.baseline.recipe)}: {times(found.told_less)}."
        )
    return lines + found.notes


def _against(name: str, gap: Gap) -> str:
    noise = "" if gap.sure or not gap.compared else ", within noise"
    return f"Against {printable(name)}: {times(gap)}{noise}."


def _against_next(found: Recommendation, name: str, gap: Gap) -> str:
    if gap.value >= gap.neutral:
        return _against(f"the next, {name}", gap)
    return (
        f"{printable(name)} has the better mean ({times(gap)}), but is not surely better than"
        f" {printable(found.baseline.recipe)}."
    )


def standings(found: Recommendation) -> Table:
    """One row per recipe that raced, in order of how much worse than the pick it is, those that
    dropped out last; then why others did not race."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("recipe", overflow="fold", min_width=12)
    table.add_column(found.objective.title, justify="right", overflow="fold")
    table.add_column("against the pick", justify="right", no_wrap=True)
    table.add_column("must know", overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("out because", overflow="fold")
    for each in found.entrants:
        name = Text(printable(each.recipe), style="bold" if each is found.pick else "")
        gap = "" if each is found.pick or not each.figures else times(found.gap(each))
        table.add_row(
            name,
            figure(found, each.mean),
            gap,
            each.needs,
            str(len(each.figures)),
            printable(each.dropped),
        )
    table.caption = _caption(found)
    table.caption_justify = "left"
    return table


def times(gap: Gap) -> str:
    """`1.31x (1.22-1.40)`, or `+3.1 % (1.0 to 5.2)`; without an interval where there is none."""
    ratios = gap.neutral == 1.0
    value = f"{gap.value:.2f}x" if ratios else f"{100 * gap.value:+.1f} %"
    if not gap.compared:
        return value
    if ratios:
        return f"{value} ({gap.low:.2f}-{gap.high:.2f})"
    return f"{value} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"


def figure(found: Recommendation, value: float) -> str:
    """A figure of the objective for people."""
    if not math.isfinite(value):
        return "-"
    if found.objective.kind == "time":
        return duration(value)
    return f"{value:.1%}" if found.objective.kind == "ratio" else f"{value:.2f}"


def _caption(found: Recommendation) -> str:
    seeds = "" if found.seeds == 1 else f", {found.seeds} seeds"
    reasons = Counter(_short(reason) for reason in found.left_out.values())
    out = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    parts = "One part" if found.parts == 1 else f"{found.parts} parts"
    told = (
        f"{parts} of {found.jobs_per_part} jobs{seeds}; in brackets 95 % intervals over parts."
        " Rows are in order of the comparison with the pick, over the parts that both ran;"
        " means are over a recipe's own parts."
    )
    if any("worse" in each.dropped for each in found.entrants):
        told += (
            " A recipe that dropped out was worse than the best of its heat, which may "
            "not be the pick."
        )
    return told + (f" Not tried: {out}." if out else "")


def _short(reason: str) -> str:
    for start, words in (("is made for", "made for something else"), ("must know", "know more")):
        if reason.startswith(start):
            return words
    return "want what is not there"
