"""How fast models run, from a file: our own (`ganger.profiles/1`) and those of others.

The format is recognised by what a file holds, never by its name; docs/profiles-file.md lists all.
"""

from __future__ import annotations

import math
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.clocks import Clocks
from ganger.core.errors import BadInput
from ganger.core.host_use import HostUse
from ganger.core.profiles import (
    PLAIN_PROFILE,
    Convergence,
    Measured,
    Profile,
    Profiles,
    Sensitivity,
)
from ganger.core.serving.answering import Answering
from ganger.workloads.documents import json_object, read_document
from ganger.workloads.files import TextFile, open_text, suffix_of
from ganger.workloads.measured import hiest, profiles, published, synergy, throughputs, zeus

FORMAT: Final = "ganger.profiles/1"
DOCS: Final = "docs/profiles-file.md"
EPOCHS_MAX: Final = 100_000
STAGES_MAX: Final = 8
_LARGEST: Final = 1e9
"""Of the figures of a graph, and of MiB and seconds of `memory`."""
_SHORTEST_S: Final = 1e-6
"""The shortest iteration."""
UNKNOWN: Final = "the file holds no known profiles"
READABLE: Final = (
    f"name a file with format = \"{FORMAT}\", Gavel's throughputs, Synergy's sensitivities or"
    " HiEST's profiles as JSON, a folder of Pollux' and Sia's applications or of Zeus' summaries,"
    " or `published`"
)


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    models: dict[str, Profile]
    default: Profile = PLAIN_PROFILE


def read_profiles(text_or_path: str | Path) -> Profiles:
    """The profiles of a file or folder, whatever of `READABLE` it holds, or those of
    `workloads.measured.published` for the word `published`. Raises BadInput."""
    if text_or_path == "published":
        return published.profiles()
    path = Path(text_or_path)
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise BadInput("no such file", where=str(path), mend=READABLE)
    file = open_text(path)
    raw = json_object(file)
    spelt = raw is None and suffix_of(path) in (".toml", ".yaml", ".yml", ".json")
    if spelt or (raw and "format" in raw):
        return _own(file)
    if raw is None:
        raise file.refuse(UNKNOWN, READABLE)
    if hiest.recognises(raw):
        return hiest.load_topology(raw, file.where)
    if synergy.recognises(raw):
        return synergy.load_sensitivity(raw, file.where)
    if throughputs.recognises(raw):
        return throughputs.load_throughputs(raw, placement=True, where=file.where)
    raise file.refuse(UNKNOWN, READABLE)


def _folder(path: Path) -> Profiles:
    if zeus.recognises(path):
        return zeus.load_training(path)
    if profiles.recognises(path):
        return profiles.load_profiles(path)
    raise BadInput(UNKNOWN, where=str(path), mend=READABLE)


def _own(file: TextFile) -> Profiles:
    document = read_document(file, FORMAT, _Document, docs=DOCS)
    for name, profile in [*document.models.items(), ("default", document.default)]:
        _check(profile, f"{file.where}: {name}")
    return Profiles(document.models, document.default)


def _check(profile: Profile, where: str) -> None:
    """Raise BadInput unless every number makes sense."""
    steps = profile.steps
    rules: list[tuple[str, Any, float]] = [
        ("by_type", profile.by_type.values(), 0.0),
        ("locality", profile.locality, 1.0),
        ("scaling", profile.scaling, 0.0),
        ("disturbed", profile.disturbed.values(), 1.0),
        ("watts", profile.watts.values(), 0.0),
    ]
    if steps is not None:
        rules += [
            ("steps.compute", [steps.compute], 0.0),
            ("steps.gradients", [steps.gradients], 0.0),
            ("steps.bandwidth", steps.bandwidth, 0.0),
            ("steps.servers", [steps.servers], 0.0),
        ]
    for field, values, least in rules:
        for value in values:
            above = value > 0 or field in ("steps.servers", "steps.gradients")
            if not (math.isfinite(value) and value >= least and above):
                said = f"at least {least:g}" if least or not value else "a number above 0"
                raise BadInput(f"{value:g}", where=f"{where}.{field}", mend=f"give {said}")
    if profile.clocks is not None:
        _check_clocks(profile.clocks, f"{where}.clocks")
    if profile.sensitivity is not None:
        _check_sensitivity(profile.sensitivity, f"{where}.sensitivity")
    _check_sharing(profile, where)
    if profile.measured is not None:
        _check_measured(profile.measured, f"{where}.measured")
    if profile.convergence is not None:
        _check_convergence(profile.convergence, f"{where}.convergence")
    if steps is not None and (profile.scaling or profile.locality != PLAIN_PROFILE.locality):
        raise BadInput(
            "`steps` beside `scaling` or `locality`",
            where=where,
            mend="give one of them: steps tell both",
        )


def _check_clocks(clocks: Clocks, where: str) -> None:
    """Raise BadInput unless speed and power stay above 0 at any clock."""
    slowing = (clocks.time, clocks.memory_time)
    if not all(0 <= each <= 1e3 for each in slowing):
        raise BadInput(f"{slowing}", where=where, mend="give `time`, `memory_time` of 0 to 1000")
    if not (clocks.watts >= 0 and clocks.memory_watts >= 0):
        raise BadInput("watts below 0", where=where, mend="give parts of 0 or more")
    if not clocks.watts + clocks.memory_watts <= 1:
        mend = "`watts` and `memory_watts` are parts of one whole"
        raise BadInput("parts of more than 1", where=where, mend=mend)


def _check_measured(measured: Measured, where: str) -> None:
    """Raise BadInput unless all are speeds, of which the reference has one for each size."""
    tables = {"steps": measured.steps, "apart": measured.apart}
    tables |= {f"beside.{other}": by_type for other, by_type in measured.beside.items()}
    for field, by_type in tables.items():
        for kind, by_size in by_type.items():
            for size, speed in by_size.items():
                if size < 1 or not 0 <= speed < math.inf:
                    place = f"{where}.{field}.{kind}.{size}"
                    mend = "give steps per second, 0 or more, by number of GPUs, 1 or more"
                    raise BadInput(f"{speed:g}", where=place, mend=mend)
    throughputs.check_reference(measured, where)


def _check_sharing(profile: Profile, where: str) -> None:
    """Raise BadInput unless stages and utilisation are what they are called."""
    sizes = [0, *(each.gpus for each in profile.stages)]
    if not all(a < b for a, b in pairwise(sizes)):
        mend = "give them by `gpus`, ascending"
        raise BadInput(f"gpus of {sizes[1:]}", where=f"{where}.stages", mend=mend)
    for each in profile.stages:
        times = each.times
        rules = [
            (
                "times",
                len(times) <= STAGES_MAX
                and all(0 <= time < math.inf for time in times)
                and any(times),
                f"give seconds by resource, 1 to {STAGES_MAX}, of which one is above 0",
            ),
            ("iteration", 0 <= each.iteration < math.inf, "give seconds, or leave it out"),
            (
                "overhead",
                bool(each.overhead) and all(1 <= factor < math.inf for factor in each.overhead),
                "give a factor of 1 or more by number of jobs",
            ),
        ]
        for field, holds, mend in rules:
            if not holds:
                place = f"{where}.stages.{field}"
                raise BadInput(f"{getattr(each, field)!r}", where=place, mend=mend)
    for resource, used in profile.utilisation.items():
        if not 0 <= used <= 1:
            place = f"{where}.utilisation.{resource}"
            raise BadInput(f"{used:g}", where=place, mend="give a share, 0 to 1")
    for field in ("gflops", "operators", "parameters", "activations", "batch"):
        number = getattr(profile.graph, field, 1)
        if not 0 < number <= _LARGEST:
            place = f"{where}.graph.{field}"
            raise BadInput(f"{number:g}", where=place, mend="give a number above 0, to 1e9")
    for field in ("persistent", "ephemeral", "iteration") if profile.memory is not None else ():
        given = getattr(profile.memory, field)
        shortest = _SHORTEST_S if field == "iteration" and given else 0.0
        if not shortest <= given <= _LARGEST:
            mend = "give MiB of each GPU, 0 to 1e9 (iteration: seconds, 1e-6 or more)"
            raise BadInput(f"{given:g}", where=f"{where}.memory.{field}", mend=mend)
    for field in ("forward", "backward", "loss") if profile.passes is not None else ():
        given = getattr(profile.passes, field)
        if not (0.0 if field == "loss" else _SHORTEST_S) <= given <= _LARGEST:
            mend = "give seconds, 1e-6 to 1e9 (loss: a number of 0 or more)"
            raise BadInput(f"{given:g}", where=f"{where}.passes.{field}", mend=mend)
    if profile.host is not None:
        _check_host(profile.host, f"{where}.host")
    if profile.answering is not None:
        _check_answering(profile.answering, f"{where}.answering")


def _check_host(host: HostUse, where: str) -> None:
    """Raise BadInput unless it is a traffic, and a part of the time."""
    for field, given, bound in (
        ("bandwidth", host.bandwidth, _LARGEST),
        ("bound", host.bound, 1.0),
    ):
        if not 0 < given <= bound:
            place, mend = f"{where}.{field}", f"give a number above 0, at most {bound:g}"
            raise BadInput(f"{given:g}", where=place, mend=mend)


def _check_answering(answering: Answering, where: str) -> None:
    """Raise BadInput unless every time can be one."""
    for gpu_type, each in (
        (name, times) for name, some in answering.times.items() for times in some
    ):
        place = f"{where}.times.{gpu_type}"
        if not each.mean or len(each.mean) != len(each.p99):
            mend = "give `mean` and `p99` of batches of 1, 2, 3, ... inputs"
            raise BadInput("not a mean and a percentile for each size", where=place, mend=mend)
        if not all(
            _SHORTEST_S <= mean <= p99 <= _LARGEST
            for mean, p99 in zip(each.mean, each.p99, strict=True)
        ):
            mend = "give seconds, 1e-6 to 1e9, and a percentile of no less than the mean"
            raise BadInput("a time that cannot be", where=place, mend=mend)
        if not 0 < each.share <= 1:
            raise BadInput(f"{each.share:g}", where=f"{place}.share", mend="give 0.001 to 1")
    if not 0 <= answering.load <= _LARGEST:
        raise BadInput(f"{answering.load:g}", where=f"{where}.load", mend="give seconds, to 1e9")
    if answering.accuracy is not None and not 0 <= answering.accuracy <= 1:
        raise BadInput(f"{answering.accuracy:g}", where=f"{where}.accuracy", mend="give 0 to 1")


def _check_sensitivity(told: Sensitivity, where: str) -> None:
    """Raise BadInput unless it is a table over two ascending axes."""
    for field, axis in (("cpus", told.cpus), ("memory", told.memory)):
        if not axis or not all(a < b < math.inf for a, b in pairwise((-1e-300, *axis))):
            mend = "give one or more, ascending, 0 or more"
            raise BadInput(f"{axis!r}", where=f"{where}.{field}", mend=mend)
    square = len(told.speed) == len(told.cpus)
    if not square or not all(len(row) == len(told.memory) for row in told.speed):
        what = "not a row for each of `cpus` with a column for each of `memory`"
        raise BadInput(what, where=f"{where}.speed", mend="complete the table")
    for speed in chain.from_iterable(told.speed):
        if not 0 < speed < math.inf:
            raise BadInput(f"{speed:g}", where=f"{where}.speed", mend="give a number above 0")


def _check_convergence(told: Convergence, where: str) -> None:
    """Raise BadInput unless the curve is one, and leads to an end."""
    top = 1.0 if told.metric == "accuracy" else math.inf
    steps = (0.0, *told.epochs)
    rules = [
        (
            "epochs",
            all(a < b <= EPOCHS_MAX for a, b in pairwise(steps)) and len(steps) > 1,
            f"give one or more, ascending, above 0 and up to {EPOCHS_MAX:,}",
        ),
        ("values", len(told.values) == len(told.epochs), "give one for each of `epochs`"),
        (
            "values",
            all(0 < value <= top and value < math.inf for value in told.values),
            "give numbers above 0" + " and at most 1" * (top == 1.0),
        ),
        ("target", 0 <= told.target < min(top, math.inf), "leave it out, or name a value to reach"),
        ("change", 0 <= told.change < 1, "give a part of the first value, such as 0.05, or 0"),
        ("window", 0 < told.window <= EPOCHS_MAX, "give epochs, such as 10"),
        (
            "every",
            0 < steps[-1] <= EPOCHS_MAX * told.every < math.inf,
            f"give epochs, such as 1, for at most {EPOCHS_MAX:,} evaluations",
        ),
        ("noise", 0 <= told.noise <= 10, "give a spread from 0 to 10"),
        ("seconds", 0 <= told.seconds < math.inf, "give the seconds of an epoch"),
    ]
    for field, holds, mend in rules:
        if not holds:
            raise BadInput(f"{getattr(told, field)!r}", where=f"{where}.{field}", mend=mend)
