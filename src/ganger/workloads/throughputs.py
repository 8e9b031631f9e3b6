"""Gavel's throughput table: steps per second by GPU type, job type and gang, alone and in pairs.

JSON: type (`v100`; `v100_unconsolidated` for gangs over more than one server) to job type and gang
size (`('ResNet-18 (batch size 16)', 2)`) to `null`, alone, or a like key, the two numbers of a pair
on the same GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ganger.core.errors import BadInput
from ganger.core.profiles import Measured, Profile, Profiles
from ganger.workloads.clusters import known_type
from ganger.workloads.files import open_text

REFERENCE = "V100"
APART = "_unconsolidated"
_KEY = re.compile(r"\(['\"](.*)['\"], (\d+)\)")
_MEND = "give Gavel's throughput file"
Given = str | Path | Mapping[str, Any]


def load_throughputs(given: Given, *, placement: bool = False) -> Profiles:
    """A profile for every job type of the table (a file, or as decoded).

    `placement`: gangs over more than one node have the throughput measured there; otherwise where
    they run makes no difference, as in Gavel's simulator. Raises BadInput.
    """
    where = "throughputs"
    if not isinstance(given, Mapping):
        file = open_text(given)
        where = file.where
        try:
            given = msgspec.json.decode(file.text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise file.refuse(f"no JSON object: {error}", _MEND) from None
    table = {known_type(name): entries for name, entries in given.items()}
    if not isinstance(table.get(REFERENCE), Mapping):
        raise BadInput(f"it has no {REFERENCE.lower()!r}", where=where, mend=_MEND)
    found: dict[str, Measured] = {}
    for kind, entries in given.items():
        if not isinstance(entries, Mapping):
            raise BadInput(f"{kind!r} holds no job types", where=where, mend=_MEND)
        apart = kind.endswith(APART)
        if apart and not placement:
            continue
        name = known_type(kind.removesuffix(APART))
        for key, measured in entries.items():
            _enter(found, name, key, measured, apart, f"{where}: {kind}: {key}")
    return Profiles({model: Profile(measured=told) for model, told in found.items()})


def _enter(
    found: dict[str, Measured], kind: str, key: str, entry: Any, apart: bool, where: str
) -> None:
    model, size = _parsed(key, where)
    told = found.setdefault(model, Measured({}, REFERENCE))
    if not isinstance(entry, Mapping):
        raise BadInput("it holds no throughputs", where=where, mend=_MEND)
    for other, value in entry.items():
        if other == "null":
            _number(value, where)
            (told.apart if apart else told.steps).setdefault(kind, {})[size] = float(value)
        elif not apart:
            partner, _ = _parsed(other, where)
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise BadInput(f"{other}: not two numbers", where=where, mend=_MEND)
            _number(value[0], where)
            by_type = told.beside.setdefault(partner, {})
            by_type.setdefault(kind, {})[size] = float(value[0])


def _parsed(key: str, where: str) -> tuple[str, int]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise BadInput(f"{key!r} is no job type", where=where, mend="write like ('A3C', 1)")
    return match[1], int(match[2])


def _number(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise BadInput(f"{value!r} is no throughput", where=where, mend="give steps per second")


def steps_per_second(given: Given | Profiles) -> Callable[[str, int], float]:
    """What a job of a (type, gang size) does alone on the reference; 0 where that is not known."""
    models = (given if isinstance(given, Profiles) else load_throughputs(given)).models

    def speed(model: str, gpus: int) -> float:
        told = models[model].measured if model in models else None
        return told.at(REFERENCE, gpus) if told is not None else 0.0

    return speed
