"""Options that several commands share: which part of a workload, at which load."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, parse_duration
from ganger.workloads.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])
_GENERATED = re.compile(r"([a-z]+):(\d+)(?::(\d+))?")

_OPTIONS = (
    click.option("--format", "format_", default="auto", metavar="NAME", show_default=True,
                 help="Format of the trace; see `ganger trace formats`."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                 help="An option of the format, such as throughputs=FILE. Repeatable."),
    click.option("--skip-bad", is_flag=True, help="Leave malformed rows out instead of stopping."),
    click.option("--from", "start", metavar="TIME",
                 help="Leave out jobs submitted earlier, counted from the first: 2d, 12h, 3600."),
    click.option("--to", "stop", metavar="TIME", help="Leave out jobs submitted at TIME or later."),
    click.option("--sample", type=float, metavar="FRACTION", help="Keep each job with this "
                 "probability (see --trace-seed)."),
    click.option("--repeat", type=int, metavar="N", help="Play the trace N times over."),
    click.option("--load", type=float, metavar="LOAD", help="Move the arrivals closer or further "
                 "apart until the work offered is LOAD times what the GPUs can do."),
    click.option("--trace-seed", type=int, default=0, show_default=True,
                 help="Seed of --sample."),
)  # fmt: skip


def trace_options(command: F) -> F:
    """Add the options that choose a part and a load of a trace; hand them all, with the trace, to
    `load_with_options`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load_with_options(
    trace: str, *, format_: str = "auto", options: Sequence[str] = (), skip_bad: bool = False,
    start: str | None = None, stop: str | None = None, sample: float | None = None,
    repeat: int | None = None, load: float | None = None, trace_seed: int = 0,
    gpus: int | None = None,
) -> Trace:  # fmt: skip
    """The workload that `trace` names, cut and scaled as the options say.

    `trace` is a file, `demo`, or a generator as `KIND:JOBS[:SEED]`. First the window, then the
    sample, the repetition and the load, for which `gpus` (the cluster's) must be known. Raises
    BadInput.
    """
    from ganger.workloads import transform

    found = _open(trace, format_, options, skip_bad, gpus)
    if start is not None or stop is not None:
        begin = parse_duration(start, where="--from") if start is not None else 0
        end = parse_duration(stop, where="--to") if stop is not None else NEVER
        found = transform.window(found, begin, end)
    if sample is not None:
        found = transform.sample(found, sample, trace_seed)
    if repeat is not None:
        found = transform.repeat(found, repeat)
    if load is not None:
        if gpus is None:
            raise BadInput("the number of GPUs is not known", where="--load", mend="name a cluster")
        found = transform.scale_load(found, load, gpus)
    return found


def _open(
    trace: str, format_: str, options: Sequence[str], skip_bad: bool, gpus: int | None
) -> Trace:
    from ganger.workloads import formats, synthetic

    if not Path(trace).exists():
        if trace == "demo":
            return synthetic.demo()
        generated = _GENERATED.fullmatch(trace)
        if generated:
            kind, jobs, seed = generated.groups()
            return synthetic.synthesize(kind, int(jobs[:12]), int(seed or 0), gpus=gpus or 64)
    return formats.load_trace(trace, format_, skip_bad=skip_bad, **_pairs(options))


def _pairs(options: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as values: numbers and true/false where they are spelt so."""
    words: dict[str, Any] = {"true": True, "false": False}
    pairs: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise BadInput(f"{option!r} has no value", where="--option", mend="write KEY=VALUE")
        pairs[key.replace("-", "_")] = words.get(value.lower(), _number(value))
    return pairs


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
