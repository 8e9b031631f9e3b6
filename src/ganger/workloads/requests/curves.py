"""Loads as people write them: a kind, and its options."""

from __future__ import annotations

from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.core.units import SECOND, parse_duration
from ganger.workloads.requests import processes
from ganger.workloads.requests.processes import Curve

_OPTIONS_OF: Final = {
    "poisson": (), "gamma": ("cv",), "mmpp": ("rates", "stays", "cv"),
    "diurnal": ("swing", "peak", "period", "cv"), "step": ("to", "at", "cv"),
    "spike": ("to", "at", "width", "cv"),
}  # fmt: skip
"""The options that only some kinds take."""


def curve_of(kind: str, chosen: dict[str, Any]) -> Curve:
    """The load that the options of a kind describe, as they are written; those that are not given
    are None. Raises BadInput, whose place is the option."""
    if kind not in _OPTIONS_OF:
        raise BadInput(f"no kind {kind!r}", where="synth", mend="use " + ", ".join(_OPTIONS_OF))
    for name in sorted({name for names in _OPTIONS_OF.values() for name in names}):
        if chosen[name] is not None and name not in _OPTIONS_OF[kind]:
            raise BadInput(f"it means nothing for {kind}", where=f"--{name}", mend="leave it out")
    if kind == "mmpp":
        if chosen["rate"] is not None:
            raise BadInput("it means nothing for mmpp", where="--rate", mend="use --rates")
        rates = [_number(word, "--rates") for word in _needed(chosen, "rates").split(",")]
        stays = [_seconds(word, "--stays") for word in _needed(chosen, "stays").split(",")]
        return processes.modulated(rates, stays)
    rate = _needed(chosen, "rate")
    if kind in ("step", "spike"):
        to, at = _needed(chosen, "to"), _seconds(_needed(chosen, "at"), "--at")
        if kind == "step":
            return processes.step(rate, to, at)
        return processes.spike(rate, to, at, _seconds(_needed(chosen, "width"), "--width"))
    if kind == "diurnal":
        swing = 0.8 if chosen["swing"] is None else chosen["swing"]
        return processes.diurnal(
            rate,
            swing,
            _seconds(chosen["peak"] or "14h", "--peak"),
            _seconds(chosen["period"] or "24h", "--period"),
        )
    return processes.constant(rate)


def _needed(chosen: dict[str, Any], name: str) -> Any:
    if chosen[name] is None:
        raise BadInput("it is needed", where=f"--{name}", mend="see ganger requests synth --help")
    return chosen[name]


def _number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise BadInput(f"{word!r} is not a number", where=where, mend="give numbers") from None


def _seconds(word: str, where: str) -> float:
    return parse_duration(word, where=where) / SECOND
