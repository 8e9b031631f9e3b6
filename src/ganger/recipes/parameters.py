"""What values parameters of recipes may have: bounded types, read from text, put in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, format_duration, parse_duration


@dataclass(frozen=True)
class Within:
    """What values a parameter may have, both ends included."""

    least: float
    most: float


Duration: TypeAlias = Annotated[int, "duration"]
"""Microseconds, written like 90s or 1h30m."""
Period: TypeAlias = Annotated[int, "duration", Within(SECOND, NEVER)]
"""A duration that comes again and again, such as a quantum, a lease or a round: a second at least,
since a run has as many decisions as periods."""
Tick: TypeAlias = Annotated[int, "duration", Within(SECOND // 1000, NEVER)]
"""A duration that comes again and again while requests are served: a millisecond at least."""
Count: TypeAlias = Annotated[int, Within(1, 10_000)]
"""How many of something that there must be one of."""
Part: TypeAlias = Annotated[float, Within(0, 1)]
"""A part of a whole."""
Positive: TypeAlias = Annotated[float, Within(1e-6, 1e9)]
"""More than nothing."""
Amount: TypeAlias = Annotated[float, Within(0, 1e9)]
"""A number that is not negative."""
Power: TypeAlias = Annotated[float, Within(-1e3, 1e3)]
"""An exponent."""
Many: TypeAlias = Annotated[int, Within(0, 1_000_000)]
"""How many of something, none at all included."""
Name: TypeAlias = Annotated[str, "name"]
"""A word that is not empty."""
_ANY = Within(-1e9, 1e9)
_LASTING = Within(0, NEVER)


def written(value: Any, hint: Any) -> str:
    """A default as one would write it."""
    if isinstance(value, tuple):
        return ";".join(written(part, get_args(hint)[0]) for part in value)
    if _is_duration(hint) and isinstance(value, int):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.name.lower()
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def exact(value: Any, hint: Any) -> str:
    """An argument as `convert` reads it back to the same value: durations in seconds."""
    kinds = [part for part in (hint, *get_args(hint)) if _is_duration(part)]
    if kinds and isinstance(value, int) and value < NEVER:
        whole, rest = divmod(value, SECOND)
        return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def convert(hint: Any, text: str, where: str, *, bounded: bool = True) -> Any:
    """`text` as the type of a parameter; within its bounds, if `bounded`. Raises BadInput."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and args[0] is str:
        if not text.strip():
            raise BadInput("it is empty", where=where, mend="give a name")
        return text
    if origin is Annotated:
        known = _LASTING if _is_duration(hint) else _ANY
        bounds = next((note for note in args if isinstance(note, Within)), known)
        if _is_duration(hint):
            value, write = parse_duration(text, where=where), _time
        else:
            value, write = _number(args[0], text, where), "{:g}".format
        if not bounded and known.least <= value <= known.most:
            return value
        return _within(bounds, value, where, write)
    if origin in (Union, UnionType):
        if text.lower() in ("none", "") and type(None) in args:
            return None
        inner = next(arg for arg in args if arg is not type(None))
        return convert(inner, text, where, bounded=bounded)
    if origin is tuple:
        parts = text.split(";")
        return tuple(convert(args[0], part.strip(), where, bounded=bounded) for part in parts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint, text, where)
    if hint is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise BadInput(f"{text!r} is neither true nor false", where=where)
        return text.lower() in ("true", "yes", "1")
    value = _number(hint, text, where)
    return _within(_ANY, value, where, "{:g}".format) if hint in (int, float) else value


def accepts(hint: Any) -> dict[str, Any]:
    """What a parameter of type `hint` may be, as plain data: `type`, and where they apply `least`,
    `most`, `choices`, `unit`, `many` (several with ; between them) and `none`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = next(arg for arg in args if arg is not type(None))
        return {**accepts(inner), "none": True}
    if origin is tuple:
        return {**accepts(args[0]), "many": True}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "choice", "choices": [member.name.lower() for member in hint]}
    if hint is bool:
        return {"type": "choice", "choices": ["yes", "no"]}
    if hint is str or (origin is Annotated and args[0] is str):
        return {"type": "text"}
    bounds = next((note for note in args if isinstance(note, Within)), _ANY)
    if _is_duration(hint):
        least = bounds.least if bounds is not _ANY else 0
        return {"type": "duration", "unit": "s", "least": least / SECOND}
    kind = args[0] if origin is Annotated else hint
    return {
        "type": "integer" if kind is int else "number",
        "least": bounds.least,
        "most": bounds.most,
    }


def described(hint: Any) -> str:
    """`accepts`, in words."""
    told = accepts(hint)
    if told["type"] == "choice":
        words = ", ".join(told["choices"])
    elif told["type"] == "duration":
        least = _time(told["least"] * SECOND) if told["least"] else ""
        words = f"a duration, {least} or more" if least else "a duration"
    elif "least" in told:
        words = f"{told['type']}, {told['least']:g} to {told['most']:g}"
    else:
        words = "text"
    return words + "; several with ;" * ("many" in told) + "; or none" * ("none" in told)


def _number(kind: Any, text: str, where: str) -> Any:
    try:
        return kind(text)
    except (TypeError, ValueError):
        said = getattr(kind, "__name__", str(kind))
        raise BadInput(f"{text!r} is not a valid {said}", where=where) from None


def _is_duration(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(_is_duration, get_args(hint)))
    return get_origin(hint) is Annotated and "duration" in get_args(hint)


def _within(bounds: Within, value: Any, where: str, write: Callable[[Any], str]) -> Any:
    """`value`, unless it is out of bounds (or NaN). Raises BadInput."""
    if bounds.least <= value <= bounds.most:
        return value
    most = f" to {write(bounds.most)}" if bounds.most < NEVER else " or more"
    raise BadInput("it is out of range", where=where, mend=f"give {write(bounds.least)}{most}")


def _time(microseconds: float) -> str:
    return format_duration(int(microseconds)).replace(".0 ", " ")


def _choice(kind: type[Enum], text: str, where: str) -> Enum:
    for member in kind:
        if text.lower() in (member.name.lower(), str(member.value).lower()):
            return member
    known = ", ".join(member.name.lower() for member in kind)
    raise BadInput(f"{text!r} is not one of {known}", where=where)
