"""An explanation of a waiting job as one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ganger.client.answers import Asked, BestNode, Explanation, ReleaseAnswer

_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_RELEASES_SAID: Final = 3
"""Of more releases the last ones are counted only."""
_CLOSE: Final = {"island": " in one island", "node": " in one node", "rack": " in one rack"}


def sentence(found: Explanation, moment: Callable[[float], str]) -> str:
    """What the job waits for, what there is, which jobs release what, and what would start now:
    "waits for 8 GPUs in one node; 6 are free on node-3; ...". `moment` writes Unix seconds. "" if
    nothing of that is known."""
    if found.asks is None:
        return ""
    parts = [f"waits for {_asked(found.asks)}"]
    if found.starts_next:
        return f"{parts[0]}, which is free: it starts when the recipe decides again"
    if found.recipe_waits:
        parts.append("that is free, but the recipe does not give it to this job now")
    elif found.best is None:
        parts.append("no node that is up could take it")
    else:
        parts.append(_best(found.asks, found.best, found.free_gpus or 0))
        parts += [_release(one, moment) for one in found.releases[:_RELEASES_SAID]]
        more = len(found.releases) - _RELEASES_SAID
        if more > 0:
            parts.append(f"{_count(more, 'more job')} must end, too")
    for at, one in enumerate(found.alternatives):
        wide = f"allow {_count(one.nodes, 'node')}, " if "--locality" in one.options else ""
        parts.append(f"or{':' if not at else ''} {wide}{one.options}, starts now")
    return "; ".join(parts)


def _asked(asks: Asked) -> str:
    if not asks.gpus:
        words = f"{asks.cpus:g} CPU{'s' if asks.cpus != 1 else ''}"
    elif asks.share < 1:
        words = f"{asks.share:g} of {_a_gpu(asks.gpus)}"
    else:
        words = f"{asks.gpus} GPU{'s' if asks.gpus != 1 else ''}"
    if asks.gpu_types:
        words += f" of type {' or '.join(asks.gpu_types)}"
    if asks.gpus > 1:
        words += _CLOSE.get(asks.close, "")
    if asks.pool:
        words += f" in pool {asks.pool}"
    if asks.labels:
        words += f" on nodes with label {' and '.join(asks.labels)}"
    return words


def _a_gpu(count: int) -> str:
    return "a GPU" if count == 1 else f"each of {count} GPUs"


def _best(asks: Asked, best: BestNode, free: int) -> str:
    """What is free; beside GPUs only what there is too little of."""
    if not asks.gpus or (best.lacks and "GPUs" not in best.lacks):
        has = {"CPUs": f"{best.cpus_free:g} CPUs", "memory": f"{best.memory_free} MiB of memory"}
        only = " and ".join(has[name] for name in best.lacks if name in has)
        gpus = f"{best.gpus_free} GPUs and " if asks.gpus else ""
        asked = {"CPUs": f"{asks.cpus:g}", "memory": f"{asks.memory} MiB"}
        needs = " and ".join(asked[name] for name in best.lacks if name in asked)
        return f"{best.name} has {gpus}{only or 'too little'} free" + (
            f", it needs {needs}" if needs else ""
        )
    if asks.close in ("island", "node"):
        return f"{_are(best.gpus_free)} free on {best.name}"
    most = f", {best.gpus_free} of them on {best.name}" if best.gpus_free else ""
    return f"{_are(free)} free{most}"


def _are(count: int) -> str:
    return "none is" if not count else "1 is" if count == 1 else f"{count} are"


def _release(one: ReleaseAnswer, moment: Callable[[float], str]) -> str:
    """Its time limit is certain, what is believed is not."""
    gives = f"{one.gpus}" if one.gpus else "what it holds"
    if one.latest is not None:
        return f"job {one.label} releases {gives} at {moment(one.latest)} or earlier"
    if one.expected is not None:
        return f"job {one.label} is expected to release {gives} at {moment(one.expected)}"
    return f"job {one.label} releases {gives} when it ends"


def _count(number: int, thing: str) -> str:
    words = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{words} {thing}{'s' if number != 1 else ''}"
