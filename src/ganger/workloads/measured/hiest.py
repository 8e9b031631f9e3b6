"""HiEST's profiles (Amaral et al., SC 2017): what sockets and neighbours cost on an IBM Minsky.

JSON. `solo[model][batch].num_gpus[n]` holds the times of one run of Caffe on n GPUs of one socket
(`intra-socket`) and of both (`inter-socket`); `collocation[model][batch].num_gpus[n][other][other
batch].num_gpus[m]` that of the first beside the second. 0: not measured. Models are named like
Gavel's job types: `bvlc_alexnet (batch size 4)`.

The unit is stated nowhere; only ratios are taken. The runs are taken to be of so many steps with
the batch size on each GPU, as the published start script multiplies it by the number of GPUs: with
n times the examples in a step, throughput is n x time on one / time on n. The machine has two GPUs
a socket, so three are on both whatever the file calls it, and the factor of that is taken out of
`scaling`, where `locality` has it.

Of `collocation` only runs of two GPUs beside two count, against two alone on both sockets: those
neighbours share the sockets. Elsewhere the file contradicts itself: beside large batches many an
entry with 1 or 3 GPUs is the time of the second job, alone, or the same for any m. A factor that
is not from `LEAST` to `MOST` is a slip, too (the published file has two, 0.0001 and 22).

GPU types, and what is beyond a machine, were not measured: racks cost what sockets do.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.workloads.documents import entries, figure

SOCKET: Final = 2
"""GPUs of a socket of the machine."""
LEAST, MOST = 0.5, 10.0
"""Factors of time beside a neighbour that are believed."""
_MEND = "give the profiles of HiEST's gpu-topo-aware"
_Times = dict[int, float]


def recognises(raw: Mapping[str, Any]) -> bool:
    """Whether a decoded file holds such profiles."""
    return "solo" in raw


def load_topology(raw: Mapping[str, Any], where: str) -> Profiles:
    """The profiles of a decoded file. Raises BadInput; `where` names the file."""
    solo = _jobs(raw["solo"], f"{where}: solo")
    beside = _jobs(raw.get("collocation"), f"{where}: collocation")
    models = {}
    for name, (alone, place) in solo.items():
        near = _times(alone, "intra-socket", place)
        far = _times(alone, "inter-socket", place)
        ratios = [far[n] / near[n] for n in far if n in near]
        apart = max(1.0, sum(ratios) / len(ratios)) if ratios else 1.0
        both = far.get(SOCKET, near.get(SOCKET))
        disturbed = _disturbed(*beside[name], both) if name in beside and both else {}
        models[name] = Profile(
            locality=(1.0, apart, apart, apart), scaling=_scaling(near, apart), disturbed=disturbed
        )
    return Profiles(models)


def _jobs(by_model: Any, where: str) -> dict[str, tuple[Mapping[str, Any], str]]:
    """What `num_gpus` holds by model and batch size, and where that stands."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    if by_model is None:
        return found
    for model, by_batch in entries(by_model, where, _MEND).items():
        for batch, entry in entries(by_batch, f"{where}: {model}", _MEND).items():
            place = f"{where}: {model}: {batch}"
            inner = entries(entry, place, _MEND).get("num_gpus")
            by_gpus = entries(inner, f"{place}: num_gpus", _MEND)
            found[f"{model} (batch size {batch})"] = by_gpus, place
    return found


def _times(by_gpus: Mapping[str, Any], socket: str, where: str) -> _Times:
    """Times by number of GPUs, of those that were measured."""
    found = {}
    for gpus, entry in by_gpus.items():
        place = f"{where}: {gpus} GPUs"
        if not gpus.isdecimal() or not 0 < int(gpus[:9]) < 10**6:
            raise BadInput(f"{gpus!r} is not a valid number of GPUs", where=where, mend=_MEND)
        time = _time(entries(entry, place, _MEND).get(socket, 0), f"{place}: {socket}")
        if time:
            found[int(gpus)] = time
    return found


def _time(value: Any, where: str) -> float:
    return 0.0 if value == 0 else figure(value, where, "give a time, or 0 for none", least=1e-6)


def _scaling(near: _Times, apart: float) -> tuple[float, ...]:
    """Throughput on 1, 2, ... GPUs over one, as far as it was measured without a gap."""
    return tuple(
        gpus * near[1] / near[gpus] * (apart if gpus > SOCKET else 1.0)
        for gpus in takewhile(near.__contains__, count(1))
    )


def _disturbed(by_gpus: Mapping[str, Any], where: str, alone: float) -> dict[str, float]:
    """The factor of time by every neighbour that makes a difference."""
    two, found = str(SOCKET), {}
    for name, (theirs, place) in _jobs(by_gpus.get(two), f"{where}: {two} GPUs").items():
        time = _time(theirs.get(two, 0), f"{place}: {two} GPUs")
        if LEAST <= time / alone <= MOST and time > alone:
            found[name] = time / alone
    return found
