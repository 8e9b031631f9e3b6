"""What the figures say, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganger.core.units import SECOND, format_duration
from ganger.lab.metrics import Estimate, Group, confidence, metrics_of
from ganger.lab.report.series import unfinished

JCT = "jct_mean_seconds"
TOLD = {
    "truth": "was told every job's true duration",
    "noisy": "was told roughly how long every job takes",
    "history": "guesses durations from earlier jobs",
    "nothing": "knows nothing of durations",
}


def duration(seconds: float | None) -> str:
    """Seconds for people; a dash where there is no figure."""
    if seconds is None or not math.isfinite(seconds):
        return "\u2013"
    return format_duration(round(seconds * SECOND))


def ratio(value: float) -> str:
    """`3.1×`, `1.04×` or `12×`: two figures that mean something."""
    return f"{value:.2f}×" if value < 1.2 else f"{value:.1f}×" if value < 10 else f"{value:.0f}×"


def baseline(groups: Sequence[Group]) -> Group:
    """What others are measured against: plain fifo if it ran, else the slowest."""
    plain = [group for group in groups if group.recipe.split(":")[0].split("(")[0] == "fifo"]
    return plain[0] if plain else max(groups, key=lambda g: g.mean(JCT))


def speedup(best: Group, base: Group) -> Estimate:
    """How many times shorter the mean JCT is. Seed by seed where both ran the same seeds, since
    two recipes on one seed see the same jobs."""
    other = {run.seed: metrics_of(run)[JCT] for run in base.runs}
    pairs = [(other[run.seed], metrics_of(run)[JCT]) for run in best.runs if run.seed in other]
    if not pairs:
        pairs = [(base.mean(JCT), best.mean(JCT))]
    return confidence(above / below if below > 0 else math.nan for above, below in pairs)


def headline(groups: Sequence[Group]) -> str:
    """The one sentence that a reader takes home: who is fastest, by how much, how surely."""
    ran = [group for group in groups if math.isfinite(group.mean(JCT))]
    if not ran:
        return "No job finished."
    best, base = min(ran, key=lambda g: g.mean(JCT)), baseline(ran)
    if len(ran) == 1:
        return f"Under {best.label} a job takes {duration(best.mean(JCT))} on average."
    if best is base:
        return f"No recipe finishes jobs sooner on average than {base.label}."
    gain = speedup(best, base)
    if gain.mean < 1.01:
        return f"{best.label} and {base.label} finish jobs about equally soon on average."
    if gain.mean - gain.half_width <= 1:
        return (
            f"{best.label} looks {ratio(gain.mean)} faster than {base.label}, "
            "but the seeds differ too much to be sure."
        )
    return f"{best.label} finishes jobs {ratio(gain.mean)} sooner on average than {base.label}."


def remarks(groups: Sequence[Group]) -> list[str]:
    """Sentences that qualify the headline."""
    ran = [group for group in groups if math.isfinite(group.mean(JCT))]
    if len(ran) < 2:
        return []
    found = [_how_long(ran), _sureness(ran), _knowledge(ran), _fairness(ran)]
    return [sentence for sentence in found if sentence]


def warnings(groups: Sequence[Group]) -> list[str]:
    """What would mislead a reader who did not know it."""
    return [
        f"{group.label}: {_jobs_were(unfinished(group))} not over at the end. "
        "Averages leave them out, and so look better than they are."
        for group in groups
        if unfinished(group)
    ]


def _jobs_were(count: int) -> str:
    return "1 job was" if count == 1 else f"{count:,} jobs were"


def _how_long(groups: Sequence[Group]) -> str:
    best, base = min(groups, key=lambda g: g.mean(JCT)), baseline(groups)
    return (
        f"A job takes {duration(best.mean(JCT))} on average under {best.label}, "
        f"{duration(base.mean(JCT))} under {base.label}."
        if best is not base
        else f"A job takes {duration(base.mean(JCT))} on average under {base.label}."
    )


def _sureness(groups: Sequence[Group]) -> str:
    best, base = min(groups, key=lambda g: g.mean(JCT)), baseline(groups)
    gain, seeds = speedup(best, base), len(best.runs)
    if best is base:
        return ""
    if seeds < 2:
        return "One seed only: how much of the difference is chance is not known."
    low, high = gain.mean - gain.half_width, gain.mean + gain.half_width
    between = f"between {ratio(max(low, 0))} and {ratio(high)}"
    return f"Over {seeds} seeds the factor lies {between} (95% confidence)."


def _knowledge(groups: Sequence[Group]) -> str:
    best, base = min(groups, key=lambda g: g.mean(JCT)), baseline(groups)
    blind = [g for g in groups if g.knows == "nothing" and g is not base]
    if best.knows == "nothing" or best is base:
        return ""
    told = f"{best.label} {TOLD.get(best.knows, 'knows ' + best.knows)}"
    if not blind:
        return told + "."
    fair = min(blind, key=lambda g: g.mean(JCT))
    gain = f"{ratio(speedup(fair, base).mean)} sooner than {base.label}"
    return f"{told}; of those that know nothing of durations, {fair.label} is fastest, {gain}."


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
