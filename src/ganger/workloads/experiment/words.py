"""Spaces and budgets in words, as options of a command have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Value

_MOST: Final = 1e12
_MEND: Final = "write like lr=log:1e-4..1e-1,layers=1..5,bs=16|32|64"
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WHOLE: Final = re.compile(r"[-+]?\d+")


def space_of(words: Sequence[str]) -> dict[str, Parameter]:
    """The parameters that `lr=log:1e-4..1e-1,layers=1..5,bs=16|32|64` names: real numbers, integers
    where both ends are, evenly by their logarithm after `log:`, or a choice. Raises BadInput."""
    parsed = dict[str, Parameter]()
    for word in (part for each in words for part in each.split(",") if part.strip()):
        name, equals, text = (piece.strip() for piece in word.partition("="))
        if not equals or not text or not _NAME.fullmatch(name):
            raise BadInput(f"{word!r} is not a valid parameter", where="--space", mend=_MEND)
        if name in parsed:
            raise BadInput(f"{name} is there twice", where="--space", mend="name it once")
        parsed[name] = _parameter(text, name)
    return parsed


def _parameter(text: str, name: str) -> Parameter:
    where, log = f"--space {name}", text.startswith("log:")
    low, dots, high = text.removeprefix("log:").partition("..")
    if not dots:
        if log:
            raise BadInput("a choice has no scale", where=where, mend=_MEND)
        values = tuple(_value(each.strip()) for each in text.split("|"))
        parameter = Parameter(type="choice", values=values)
    else:
        whole = _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high)
        ends = _number(low, where), _number(high, where)
        parameter = Parameter("integer" if whole else "real", *ends, log)
    parameter.check(where)
    return parameter


def _number(text: str, where: str, mend: str = _MEND) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a number", where=where, mend=mend) from None


def _value(text: str) -> Value:
    """An integer or a real number where it is one."""
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def values_of(word: str) -> dict[str, str]:
    """The values in `lr=0.01,bs=32`, as they stand there. Raises BadInput."""
    values = dict[str, str]()
    for part in word.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or not _NAME.fullmatch(name) or name in values:
            raise BadInput(
                f"{part!r} is not a valid value of a parameter", mend="write like lr=0.01,bs=32"
            )
        values[name] = value
    return values


def amounts_of(text: str, names: Sequence[str], where: str) -> dict[str, float]:
    """The amounts in `gpu_hours=20,epochs=4000`. Raises BadInput."""
    parsed = dict[str, float]()
    for word in (part for part in text.split(",") if part.strip()):
        name, equals, amount = (piece.strip() for piece in word.partition("="))
        if not equals or name not in names or name in parsed:
            raise BadInput(
                f"{word!r} is not a valid budget",
                where=where,
                mend=f"write NAME=AMOUNT of {', '.join(names)}",
            )
        parsed[name] = _number(amount, where, f"write a number, like {name}=2")
        if not 0.0 < parsed[name] <= _MOST:
            raise BadInput(
                f"{name} of {amount} is not above 0 and at most 1e12",
                where=where,
                mend="allow more",
            )
    return parsed
