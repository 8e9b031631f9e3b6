"""Gavel's throughput table: steps per second by GPU type, job type and gang, alone and in pairs.

JSON: type (`v100`; `v100_unconsolidated` for gangs over more than one server) to job type and gang
size (`('ResNet-18 (batch size 16)', 2)`) to `null`, alone, or a like key, the two numbers of a pair
on the same GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ganger.core.errors import BadInput
from ganger.core.profiles import Measured, Profile, Profiles
from ganger.workloads.clusters import known_type
from ganger.workloads.documents import entries, figure
from ganger.workloads.files import open_text

REFERENCE = "V100"
APART = "_unconsolidated"
_KEY = re.compile(r"\(['\"](.*)['\"], (\d{1,7})\)")
_MEND = "give Gavel's throughput file"
Given = str | Path | Mapping[str, Any] | Profiles


def recognises(raw: Mapping[str, Any]) -> bool:
    """Whether a decoded file is such a table: below its GPU types stand job types and gangs."""
    tables = [entry for entry in raw.values() if isinstance(entry, Mapping)]
    return any(_KEY.fullmatch(key) for table in tables for key in table)


def load_throughputs(
    given: Given,
    *,
    placement: bool = False,
    where: str = "throughputs",
    models: Collection[str] | None = None,
) -> Profiles:
    """A profile for every job type of the table: a file, as decoded (`where` says of what), or
    profiles that hold such measurements. `models`: of these job types only; what the table lacks of
    others does not matter.

    `placement`: gangs over more than one node have the throughput measured there; otherwise where
    they run makes no difference, as in Gavel's simulator. Raises BadInput.
    """
    if isinstance(given, Profiles):
        return given
    if not isinstance(given, Mapping):
        file = open_text(given)
        where = file.where
        try:
            given = msgspec.json.decode(file.text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise file.refuse(f"not a JSON object: {error}", _MEND) from None
    table = {known_type(name): entry for name, entry in given.items()}
    if not isinstance(table.get(REFERENCE), Mapping):
        raise BadInput(f"it has no {REFERENCE.lower()!r}", where=where, mend=_MEND)
    found: dict[str, Measured] = {}
    for kind, by_job in given.items():
        apart = kind.endswith(APART)
        if apart and not placement:
            continue
        name = known_type(kind.removesuffix(APART))
        for key, measured in entries(by_job, f"{where}: {kind}", _MEND).items():
            _enter(found, name, key, measured, apart, f"{where}: {kind}: {key}")
    if models is not None:
        found = {model: told for model, told in found.items() if model in models}
    for model, told in found.items():
        check_reference(told, f"{where}: {model}")
    return Profiles({model: Profile(measured=told) for model, told in found.items()})


def check_reference(told: Measured, where: str) -> None:
    """Raise BadInput where speeds are not known relative to the reference."""
    for kind, by_size in told.steps.items():
        for size, speed in by_size.items():
            if speed > 0 and not told.at(told.reference, size):
                what = f"it runs on {size} GPUs of type {kind} and not on those of {told.reference}"
                raise BadInput(what, where=where, mend=f"give its throughput on {told.reference}")


def _enter(
    found: dict[str, Measured], kind: str, key: str, entry: Any, apart: bool, where: str
) -> None:
    model, size = _parsed(key, where)
    told = found.setdefault(model, Measured({}, REFERENCE))
    for other, value in entries(entry, where, _MEND).items():
        if other == "null":
            by_type = told.apart if apart else told.steps
            by_type.setdefault(kind, {})[size] = _speed(value, where)
        elif not apart:
            partner, _ = _parsed(other, where)
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise BadInput(f"{other}: not two numbers", where=where, mend=_MEND)
            beside = told.beside.setdefault(partner, {})
            beside.setdefault(kind, {})[size] = _speed(value[0], where)


def _parsed(key: str, where: str) -> tuple[str, int]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise BadInput(
            f"{key!r} is not a valid job type", where=where, mend="write like ('A3C', 1)"
        )
    return match[1], int(match[2])


def _speed(value: Any, where: str) -> float:
    return figure(value, where, "give steps per second")


def steps_per_second(given: Given) -> Callable[[str, int], float]:
    """What a job of a (type, gang size) does alone on the reference; 0 where that is not known."""
    models = load_throughputs(given).models

    def speed(model: str, gpus: int) -> float:
        told = models[model].measured if model in models else None
        return told.at(REFERENCE, gpus) if told is not None else 0.0

    return speed
