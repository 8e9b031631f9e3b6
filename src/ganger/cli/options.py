"""Options that several commands share: which part of a workload, at which load."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ganger.core.errors import BadInput
from ganger.core.profiles import PLAIN_PROFILE, Profiles
from ganger.core.spec import Kind
from ganger.core.units import NEVER, parse_duration
from ganger.workloads.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])
_GENERATED = re.compile(r"([a-z]+):(\d+)(?::(\d+)(?::(\d+))?)?")

yardsticks_option = click.option(
    "--no-yardsticks",
    "yardsticks",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave out the bound on requests in time, and the router that knows the future.",
)
_OPTIONS = (
    click.option("--format", "format_", default="auto", metavar="NAME", show_default=True,
                 help="Format of the trace; see `ganger trace formats`."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                 help="An option of the format, such as throughputs=FILE. Repeatable."),
    click.option("--skip-bad", is_flag=True, help="Leave malformed rows out instead of stopping."),
    click.option("--from", "start", metavar="TIME",
                 help="Leave out jobs submitted before TIME, counted from the first submission: "
                      "2d, 12h, 3600."),
    click.option("--to", "stop", metavar="TIME", help="Leave out jobs submitted at TIME or later."),
    click.option("--sample", type=float, metavar="FRACTION", help="Keep each job with this "
                 "probability (see --trace-seed)."),
    click.option("--max-gpus", type=click.IntRange(1), metavar="N",
                 help="Leave out jobs that ask for more GPUs."),
    click.option("--repeat", type=int, metavar="N", help="Repeat the trace N times."),
    click.option("--load", metavar="LOAD", help="Scale the arrival times until the offered work "
        "is LOAD times the capacity of the GPUs."),
    click.option("--trace-seed", type=int, default=0, show_default=True,
                 help="Seed of --sample."),
)  # fmt: skip


profiles_option = click.option(
    "--profiles",
    metavar="FILE",
    help="Speeds of the models of the trace: our own file, tables of Gavel, Synergy or HiEST, a "
    "folder of Pollux and Sia or of Zeus, or `published`. See docs/profiles-file.md.",
)


stragglers_option = click.option(
    "--stragglers",
    default="",
    metavar="spread=..|part=..,times=..",
    help="Trials of an experiment that are slower than their curves: each takes 1 + |z| times as "
    "long, z normal with this spread; that part of epochs takes so many times as long.",
)


def cost_options(command: F) -> F:
    """Add what a preemption costs: `checkpoint` and `restore`."""
    save = click.option(
        "--checkpoint-cost",
        "checkpoint",
        default="0s",
        show_default=True,
        help="Time for which a preempted job saves, before its GPUs are free.",
    )
    load = click.option(
        "--restore-cost",
        "restore",
        default="0s",
        show_default=True,
        help="Time a resumed job needs before it computes again.",
    )
    return save(load(command))


def trace_options(command: F) -> F:
    """Add the options that choose a part and a load of a trace; hand them all, with the trace, to
    `load_with_options`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load_with_options(
    trace: str | Path, options: Mapping[str, Any], gpus: int | None = None
) -> Trace:
    """The workload that `trace` names, cut as the `trace_options` in `options` say.

    `trace` is a file, `demo`, or a generator as `KIND:JOBS[:SEED[:GPUS]]`, whose jobs offer a load
    of 0.8 to so many GPUs (64), and of which none asks for more. First the window, then the
    sample, the widest jobs, the repetition and, only where `gpus` (the cluster's) are given, the
    load. Raises BadInput.
    """
    from ganger.workloads import transform

    profiles = None
    if options.get("profiles") is not None:
        from ganger.workloads.measured.speeds import read_profiles

        profiles = read_profiles(options["profiles"])
    found = _open(str(trace), options, gpus, profiles)
    if profiles is not None:
        found = replace(found, profiles=profiles)
        _note_unknown(found)
    start, stop = options.get("start"), options.get("stop")
    if start is not None or stop is not None:
        begin = parse_duration(start, where="--from") if start is not None else 0
        end = parse_duration(stop, where="--to") if stop is not None else NEVER
        found = transform.window(found, begin, end)
    if options.get("sample") is not None:
        found = transform.sample(found, options["sample"], options.get("trace_seed", 0))
    if options.get("max_gpus") is not None:
        found = transform.at_most(found, options["max_gpus"])
    if options.get("repeat") is not None:
        found = transform.repeat(found, options["repeat"])
    if options.get("load") is not None and gpus is not None:
        found = transform.scale_load(found, _load(options["load"]), gpus)
    return found


def _note_unknown(trace: Trace) -> None:
    """Say so where the profiles are of other models than the trace's."""
    declared, known = trace.declared, trace.profiles.models
    models = sorted({declared.models[code] for code in declared.model[: trace.jobs].tolist()})
    searches = (declared.kind[: trace.jobs] == Kind.TUNE).any()  # its trials may draw one of them
    other = trace.profiles.default == PLAIN_PROFILE and known.keys().isdisjoint(models)
    if other and not searches:
        theirs, ours = ", ".join(map(repr, models[:3])), ", ".join(map(repr, sorted(known)[:3]))
        click.echo(
            f"note: --profiles tell nothing of the trace's models: it has {theirs}, ..., the"
            f" profiles {ours}, ...",
            err=True,
        )


def _load(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(
            f"{text!r} is not a valid load", where="--load", mend="write like 0.9"
        ) from None


def _open(
    trace: str, options: Mapping[str, Any], gpus: int | None, profiles: Profiles | None
) -> Trace:
    """A Gavel trace that states steps has its durations from measured `profiles`, too."""
    from ganger.workloads import formats, synthetic

    if not Path(trace).exists():
        if trace == "demo":
            return synthetic.demo()
        generated = _GENERATED.fullmatch(trace)
        if generated:
            kind, jobs, seed, stated = generated.groups()
            size = int(stated[:12]) if stated else gpus or 64
            return synthetic.synthesize(kind, int(jobs[:12]), int(seed or 0), gpus=size)
    name, given = options.get("format_", "auto"), key_values(options.get("options", ()))
    if profiles is not None and any(each.measured for each in profiles.models.values()):
        format_ = formats.detect(trace) if name == "auto" else formats.find_format(name)
        if "throughputs" in format_.options:
            given.setdefault("throughputs", profiles)
    return formats.load_trace(trace, name, skip_bad=options.get("skip_bad", False), **given)


def key_values(options: Sequence[str]) -> dict[str, Any]:
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
