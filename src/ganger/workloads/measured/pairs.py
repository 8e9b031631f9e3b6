"""Measured pairs of models that share GPUs, from a table of anybody's own, as profiles.

A row is one measurement: `model`, `alone` and, beside `other`, `beside` (steps per second), on all
of `gpus` GPUs (1) of a `gpu_type`; a row without `other` is of a model alone. Columns `use_NAME`
say what share of NAME (0 to 1) the model uses alone, such as `use_gpu` and `use_bandwidth`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.profiles import Measured, Profile
from ganger.workloads.files import open_text
from ganger.workloads.measured.throughputs import check_reference
from ganger.workloads.rows import MOST_GPUS, Count, Number, Table, Text, read_delimited

USE: Final = "use_"
_FASTEST: Final = 1e9
"""Steps per second."""
_SLOWEST: Final = 1e-9


def read_pairs(path: Path) -> dict[str, Profile]:
    """Profiles with `measured` and `utilisation`, by model. The reference is the GPU type of the
    first row. Raises BadInput."""
    if not path.exists():
        raise BadInput("no such file", where=str(path), mend="name a table of measured pairs, CSV")
    file = open_text(path)
    header = next(csv.reader(file.text.splitlines()[:1]), [])
    resources = [name.strip() for name in header if name.strip().startswith(USE)]
    table = read_delimited(
        file,
        {"model": Text(), "alone": Number(_SLOWEST, _FASTEST)},
        {
            "other": Text(required=False),
            "beside": Number(0.0, _FASTEST, blank=0.0),
            "gpu_type": Text(),
            "gpus": Count(1, MOST_GPUS),
            **{name: Number(0.0, 1.0) for name in resources},
        },
    )
    profiles = _profiles(table, resources, str(path))
    for name, profile in profiles.items():
        assert profile.measured is not None
        for other in profile.measured.beside:
            if other not in profiles:
                mend = f"add a row of {other}: alone, and what it uses"
                raise BadInput(
                    f"{name} was measured beside {other}, of which there is no row",
                    where=str(path),
                    mend=mend,
                )
        check_reference(profile.measured, f"{path}: {name}")
    return profiles


def _profiles(table: Table, resources: list[str], where: str) -> dict[str, Profile]:
    """What the rows say in all; a model that is stated twice must be stated alike."""
    rows = len(table)
    types, sizes = table.get("gpu_type", [""] * rows), table.get("gpus", [1] * rows)
    others, beside = table.get("other", [""] * rows), table.get("beside", [0.0] * rows)
    uses: dict[str, dict[str, float]] = {}
    measured: dict[str, Measured] = {}
    for row, model in enumerate(table["model"]):
        kind, size = str(types[row]), int(sizes[row])
        of = measured.setdefault(model, Measured({}, str(types[0])))
        used = {name.removeprefix(USE): float(table[name][row]) for name in resources}
        alone = float(table["alone"][row])
        steps = of.steps.setdefault(kind, {})
        if uses.setdefault(model, used) != used or steps.setdefault(size, alone) != alone:
            mend = "give one speed alone for each GPU type and size, and one use of each resource"
            place = f"{where}: {table.place(row)}"
            raise BadInput(f"{model} is stated differently above", where=place, mend=mend)
        if others[row]:
            if not beside[row]:
                mend = "give the steps per second beside the other, or leave `other` empty"
                raise BadInput("no speed `beside`", where=f"{where}: {table.place(row)}", mend=mend)
            by_type = of.beside.setdefault(str(others[row]), {})
            by_type.setdefault(kind, {})[size] = float(beside[row])
    return {
        model: Profile(measured=each, utilisation=uses[model]) for model, each in measured.items()
    }


def as_toml(profiles: Mapping[str, Profile]) -> str:
    """A profiles file (`ganger.profiles/1`) of what `read_pairs` reads."""
    return "\n".join(_lines(profiles)) + "\n"


def _lines(profiles: Mapping[str, Profile]) -> Iterator[str]:
    yield 'format = "ganger.profiles/1"'
    for model, profile in profiles.items():
        yield f"\n[models.{json.dumps(model)}]"
        for field, value in msgspec.to_builtins(profile, str_keys=True).items():
            if field in ("measured", "utilisation") and value:
                yield f"{field} = {_inline(value)}"


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        items = (f"{json.dumps(str(key))} = {_inline(each)}" for key, each in value.items())
        return "{" + ", ".join(items) + "}"
    return json.dumps(value)
