"""Synergy's tables (OSDI 2022): how much a model's speed depends on CPUs and host memory.

JSON: `{model_1: {cpus_per_gpu_N: {tput: 9 x 5 table, ...}}}`; rows are the cores per GPU and
columns the host memory per GPU of `CPUS` and `MEMORY`, which the file does not name: they are where
its tables reach the demands that stand beside them. Measured on one GPU; the tables of all kinds
of servers are equal, the first is taken. GPU types, placement and scaling stay at their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles, Sensitivity
from ganger.workloads.documents import entries, figure

CPUS: Final = (1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 9000.0, 12000.0, 24000.0)
"""Thousandths of a core per GPU; 3 cores are the reference."""
MEMORY: Final = (0.0, 64000.0, 128000.0, 192000.0, 256000.0)
"""MiB per GPU; 62.5 GiB are the reference."""
_MEND = "give the tables of Synergy's simulator as JSON"


def recognises(raw: Mapping[str, Any]) -> bool:
    """Whether a decoded file holds such tables."""
    servers = [entry for by in raw.values() if isinstance(by, Mapping) for entry in by.values()]
    return any(isinstance(entry, Mapping) and "tput" in entry for entry in servers)


def load_sensitivity(raw: Mapping[str, Any], where: str) -> Profiles:
    """The tables of a decoded file. Raises BadInput; `where` names the file."""
    models = {}
    for name, by_server in raw.items():
        servers = entries(by_server, f"{where}: {name}", _MEND)
        server, table = next(iter(servers.items()))
        place = f"{where}: {name}: {server}"
        speed = _speeds(entries(table, place, _MEND).get("tput"), f"{place}: tput")
        models[name.removesuffix("_1")] = Profile(sensitivity=Sensitivity(CPUS, MEMORY, speed))
    return Profiles(models)


def _speeds(table: Any, where: str) -> tuple[tuple[float, ...], ...]:
    rows = table if isinstance(table, list) else []
    wide = [isinstance(row, list) and len(row) == len(MEMORY) for row in rows]
    if len(rows) != len(CPUS) or not all(wide):
        what = f"no table of {len(CPUS)} rows and {len(MEMORY)} columns"
        raise BadInput(what, where=where, mend=_MEND)
    mend = "give the speed, above 0"
    return tuple(
        tuple(figure(cell, f"{where}[{c}][{m}]", mend, least=1e-9) for m, cell in enumerate(row))
        for c, row in enumerate(rows)
    )
