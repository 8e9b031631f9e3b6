"""What the figures of several runs say, in plain words: for the terminal and for the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

from ganger.core.units import SECOND, format_duration
from ganger.lab.metrics import JOB_FIGURES, Estimate, Group, confidence

JCT = "jct_mean_seconds"
TOLD = {
    "truth": "knows how long jobs truly take",
    "noisy": "knows roughly how long jobs take",
    "history": "guesses durations from earlier jobs",
    "rolling": "guesses durations from earlier jobs",
    "group": "guesses durations from earlier jobs",
    "estimate": "believes what users state",
    "losses": "fits durations to reported losses",
    "nothing": "knows nothing of durations",
    "speeds": "knows how fast jobs truly run",
    "noisy speeds": "knows roughly how fast jobs run",
}
ORACLES = ("truth", "noisy")
"""What no deployed policy can know."""
SPEEDS = ("speeds", "noisy speeds")
"""What a deployed policy knows only of models that were measured."""
ALIKE = 1e-3
"""Two figures of one run each that differ by less, as a part of the larger, are called equal."""


def duration(seconds: float | None) -> str:
    """Seconds for people; a dash where there is no figure."""
    if seconds is None or not math.isfinite(seconds):
        return "\u2013"
    return format_duration(round(seconds * SECOND))


def ratio(value: float) -> str:
    """`3.1×`, `1.04×` or `12×`: two figures that mean something."""
    return f"{value:.2f}×" if value < 1.2 else f"{value:.1f}×" if value < 10 else f"{value:.0f}×"


def deployable(group: Group) -> bool:
    """Whether it knows no more than a live policy can."""
    return group.knows not in (*ORACLES, *SPEEDS)


def baseline(groups: Sequence[Group]) -> Group:
    """What others are measured against: plain fifo if it ran, else the slowest."""
    plain = [group for group in groups if group.recipe.split(":")[0].split("(")[0] == "fifo"]
    return plain[0] if plain else max(groups, key=lambda g: g.mean(JCT))


def speedup(best: Group, base: Group) -> Estimate:
    """How many times shorter the mean JCT is. Seed by seed where both ran the same seeds, since
    two recipes on one seed see the same jobs."""
    pairs = _paired(base, best, JCT) or [(base.mean(JCT), best.mean(JCT))]
    return confidence(above / below if below > 0 else math.nan for above, below in pairs)


def _paired(one: Group, two: Group, metric: str) -> list[tuple[float, float]]:
    """A metric of both, seed by seed."""
    other = dict(zip(two.seeds, two.beside, strict=True))
    return [
        (mine.figures[metric], other[seed].figures[metric])
        for seed, mine in zip(one.seeds, one.beside, strict=True)
        if seed in other
    ]


def tied(one: Group, two: Group, metric: str) -> bool:
    """Whether two groups cannot be distinguished by a metric: over several seeds the 95 % interval
    of the difference, seed by seed, holds 0; of one seed the figures are `ALIKE`."""
    pairs = _paired(one, two, metric)
    if len(pairs) > 1 and not (same_each_time(one) and same_each_time(two)):
        gap = confidence(mine - other for mine, other in pairs)
        return abs(gap.mean) <= gap.half_width or gap.mean == 0
    mine, other = one.mean(metric), two.mean(metric)
    return abs(mine - other) <= ALIKE * max(abs(mine), abs(other))


def alike_by_seed(
    figures: Mapping[int, float | None],
    opposed: Mapping[int, float | None],
    mine: float,
    others: float,
) -> bool:
    """Whether a figure of two groups cannot be distinguished, by seed and in the mean (`mine`,
    `others`): over several seeds the 95 % interval of the difference holds 0, else they are
    `ALIKE`."""
    pairs = [(figure, opposed[seed]) for seed, figure in figures.items() if seed in opposed]
    gap = confidence(a - b for a, b in pairs if a is not None and b is not None)
    if gap.half_width > 0:
        return abs(gap.mean) <= gap.half_width
    return abs(mine - others) <= ALIKE * max(abs(mine), abs(others))


class Ranked(Protocol):
    """What has figures that are means over seeds."""

    def mean(self, metric: str) -> float:
        """The mean of a metric; NaN where there is none."""


R = TypeVar("R", bound=Ranked)


def leaders(groups: Sequence[Group], metric: str, better: str) -> list[Group]:
    """`in_front`, where those are alike that are `tied`."""
    return in_front(groups, metric, better, tied)


def in_front(
    groups: Sequence[R], metric: str, better: str, alike: Callable[[R, R, str], bool]
) -> list[R]:
    """The group with the best figure, `better` being low or high, and the next in order of it up to
    the first that is surely worse, which is not `alike`; nobody where there is no choice or all are
    tied."""
    known = [group for group in groups if math.isfinite(group.mean(metric))]
    if len(known) < 2 or better not in ("low", "high"):
        return []
    known.sort(key=lambda group: group.mean(metric), reverse=better == "high")
    best, *others = known
    found = [best, *takewhile(lambda other: alike(best, other, metric), others)]
    return found if len(found) < len(known) else []


def same_each_time(group: Group) -> bool:
    """Whether several seeds gave the very same figures."""
    names = (*JOB_FIGURES, "makespan_seconds")
    return len(group.runs) > 1 and all(
        _same(each.figures[name] for each in group.beside) for name in names
    )


def _same(values: Iterable[float]) -> bool:
    first, *others = values
    return all(other == first or (other != other and first != first) for other in others)


# ---------------------------------------------------------------------- the headline


def headline(groups: Sequence[Group]) -> str:
    """The one sentence that a reader takes home: which recipe that can be deployed is fastest, by
    how much, how surely. An oracle only where nothing else ran beside the baseline."""
    ran = [group for group in groups if math.isfinite(group.mean(JCT))]
    if not ran:
        return "No job finished."
    best, base = _contenders(ran)
    if len(ran) == 1:
        return f"Under {best.label} a job takes {duration(best.mean(JCT))} on average."
    if best is base:
        which = "" if all(map(deployable, ran)) else " that can be deployed"
        return f"No recipe{which} finishes jobs sooner on average than {base.label}."
    who = best.label if deployable(best) else f"{best.label}, which {_told(best)},"
    gain = speedup(best, base)
    if gain.mean < 1.01:
        return f"{best.label} and {base.label} finish jobs about equally soon on average."
    if gain.mean - gain.half_width <= 1:
        return (
            f"{best.label} looks {ratio(gain.mean)} faster than {base.label}, "
            "but the seeds differ too much to be sure."
        )
    return f"{who} finishes jobs {ratio(gain.mean)} sooner on average than {base.label}."


def _contenders(ran: Sequence[Group]) -> tuple[Group, Group]:
    """The best that can be deployed, and what it is measured against."""
    base = baseline(ran)
    field = [group for group in ran if deployable(group)]
    if not [group for group in field if group is not base]:
        field = list(ran)  # nothing but oracles beside the baseline
    return min(field, key=lambda group: group.mean(JCT)), base


def remarks(groups: Sequence[Group]) -> list[str]:
    """Sentences that qualify the headline."""
    ran = [group for group in groups if math.isfinite(group.mean(JCT))]
    if len(ran) < 2:
        return []
    found = [_how_long(ran), _sureness(ran), _ties(ran), _bound(ran), _fairness(ran)]
    return [sentence for sentence in found if sentence]


def _told(group: Group) -> str:
    return TOLD.get(group.knows, "knows " + group.knows)


def _how_long(groups: Sequence[Group]) -> str:
    best, base = _contenders(groups)
    return (
        f"A job takes {duration(best.mean(JCT))} on average under {best.label}, "
        f"{duration(base.mean(JCT))} under {base.label}."
        if best is not base
        else f"A job takes {duration(base.mean(JCT))} on average under {base.label}."
    )


def _sureness(groups: Sequence[Group]) -> str:
    best, base = _contenders(groups)
    gain, seeds = speedup(best, base), len(best.runs)
    if best is base:
        return ""
    if seeds < 2:
        return "One seed only: how much of the difference is chance is not known."
    if same_each_time(best) and same_each_time(base):
        return (
            f"All {seeds} seeds gave the same figures: nothing is drawn at random here, and how "
            "much of the difference is chance is not known."
        )
    low, high = gain.mean - gain.half_width, gain.mean + gain.half_width
    between = f"between {ratio(max(low, 0))} and {ratio(high)}"
    return f"Over {seeds} seeds the factor lies {between} (95% confidence)."


def _ties(groups: Sequence[Group]) -> str:
    best, base = _contenders(groups)
    field = [group for group in groups if group is not base and deployable(group)]
    field.sort(key=lambda group: group.mean(JCT))
    found = takewhile(lambda other: tied(best, other, JCT), field)
    others = [group.label for group in found if group is not best]
    return f"Within noise of {best.label}: {', '.join(others)}." if others else ""


def _bound(groups: Sequence[Group]) -> str:
    """What an oracle makes of it: how far a policy that can be deployed may still come."""
    best, base = _contenders(groups)
    oracles = [group for group in groups if not deployable(group) and group is not base]
    if not oracles or not deployable(best):
        return ""
    bound = min(oracles, key=lambda group: group.mean(JCT))
    gain = speedup(bound, base)
    unlike = "no deployed policy can know"
    if bound.knows in SPEEDS:
        unlike = "a deployed policy knows only of models that were measured"
    told = f"{bound.label} {_told(bound)}, which {unlike}"
    if gain.mean < 1.01:
        return f"{told}; it finishes jobs no sooner than {base.label}."
    return f"{told}: {ratio(gain.mean)} sooner than {base.label} is the bound."


def _fairness(groups: Sequence[Group]) -> str:
    known = [g for g in groups if math.isfinite(g.mean("unfair_fraction"))]
    if len(known) < 2:
        return ""
    best = min(known, key=lambda g: g.mean("unfair_fraction"))
    worst = max(known, key=lambda g: g.mean("unfair_fraction"))
    few, many = best.mean("unfair_fraction"), worst.mean("unfair_fraction")
    if f"{few:.0%}" == f"{many:.0%}":
        return ""
    return (
        f"{few:.0%} of jobs would have been better off on an equal share of the cluster under "
        f"{best.label}, {many:.0%} under {worst.label}."
    )


# ---------------------------------------------------------------------- what is not in the figures


def notes(groups: Sequence[Group]) -> list[str]:
    """What would mislead a reader who did not know it: rows that became no job, jobs that are in
    no mean, jobs that only some recipes finished, and what recipes did not know."""
    return [
        *dict.fromkeys(
            sentence
            for group in groups
            for run in group.runs
            if (sentence := left_out(run.trace, run.rows, run.left_out))
        ),
        *_folded(groups, lambda group: [f"{note}." for run in group.runs for note in run.notes]),
        *_folded(groups, _without_jct),
        *_outside(groups),
    ]


def left_out(trace: str, rows: int, reasons: dict[str, int]) -> str:
    """How many rows of a trace became no job, and why; "" for none."""
    count = sum(reasons.values())
    told = ", ".join(f"{n:,} ({why})" for why, n in reasons.items())
    return f"{count:,} of {rows:,} rows of {trace} are not simulated: {told}." if count else ""


def _folded(groups: Sequence[Group], tell: Callable[[Group], Iterable[str]]) -> list[str]:
    """Sentences about groups, once each, after the names of those that they are about."""
    about: dict[str, list[str]] = {}
    for group in groups:
        for sentence in dict.fromkeys(tell(group)):
            about.setdefault(sentence, []).append(group.label)
    everybody = {group.label for group in groups}
    return [
        sentence if set(labels) == everybody else f"{', '.join(dict.fromkeys(labels))}: {sentence}"
        for sentence, labels in about.items()
    ]


_STATES = {
    "failed": ("failed (time limit)", "failed (time limit)"),
    "cancelled": ("was cancelled", "were cancelled"),
    "unfinished": ("was not over at the end", "were not over at the end"),
}


def _without_jct(group: Group) -> list[str]:
    """Which jobs of a group have no JCT."""
    parts, total = [], 0
    for name, (one, many) in _STATES.items():
        count = int(sum(each.figures[f"jobs_{name}"] for each in group.beside))
        if count:
            parts.append(f"1 job {one}" if count == 1 else f"{count:,} jobs {many}")
            total += count
    if not parts:
        return []
    seeds = f", all {len(group.runs)} seeds together," if len(group.runs) > 1 else ""
    verb = "is" if total == 1 else "are"
    return [f"{', '.join(parts)}{seeds} and {verb} not in the JCT figures."]


def _outside(groups: Sequence[Group]) -> list[str]:
    """On how many jobs recipes are compared, where that leaves out some that have a JCT."""
    found = []
    for load in sorted({group.load for group in groups}):
        field = [group for group in groups if group.load == load]
        beside = [each for group in field for each in group.beside]
        if all(each.jobs == each.figures["jobs_finished"] for each in beside):
            continue
        at = f"At load {load:g}, " if len({group.load for group in groups}) > 1 else ""
        if not all(each.jobs for each in beside):
            found.append(
                f"{at}no job finished under every recipe: each figure is of a recipe's"
                " own jobs, and they cannot be compared."
            )
            continue
        first = field[0].beside
        count, outside = sum(each.jobs for each in first), sum(each.outside for each in first)
        told = (
            f"{at}recipes are compared on the {count:,} jobs that finished under every one;"
            f" {outside:,} are outside."
        )
        found.append(told)
    return [sentence[0].upper() + sentence[1:] for sentence in found]
