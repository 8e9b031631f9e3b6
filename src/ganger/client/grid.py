"""A grid of parameters as the tasks of an array: every combination, the last parameter fastest."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from ganger.core.errors import BadInput

VALUE_LETTERS_MAX: Final = 4096
RESERVED: Final = ("job", "array", "name")
"""What stands in braces already."""
NAME: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
_NAME: Final = re.compile(NAME.replace("$", r"\Z"))
_COMMA: Final = re.compile(r"(?<!\\),")
_BRACES: Final = re.compile(r"\{(\w+)\}")


def parse(words: Iterable[str]) -> dict[str, list[str]]:
    """`lr=0.1,0.01` words as values by name; a name again adds values, `\\,` is a comma in one.

    Raises BadInput.
    """
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise BadInput(
                f"{word!r} is not a name and its values",
                where="--param",
                mend="write like lr=0.1,0.01",
            )
        found.setdefault(name, []).extend(one.replace("\\,", ",") for one in _COMMA.split(values))
    return found


def check(params: Mapping[str, Sequence[str]], most: int) -> None:
    """Raise BadInput for names and values that cannot be, and for more than `most` tasks."""
    for name, values in params.items():
        if not _NAME.match(name) or name in RESERVED:
            raise BadInput(
                f"{name[:80]!r} cannot name a parameter",
                where="params",
                mend="use letters, digits and _; not job, array, name",
            )
        if not values:
            raise BadInput(f"{name} has no values", where="params", mend="give at least one")
        if len(set(values)) < len(values):
            raise BadInput(f"{name} has a value twice", where="params")
        if any(len(value) > VALUE_LETTERS_MAX or "\0" in value for value in values):
            raise BadInput(
                f"a value of {name} is too long, or has a zero byte in it", where="params"
            )
    if math.prod(len(values) for values in params.values()) > most:
        raise BadInput(f"more than {most:,} tasks", where="params", mend="submit it in parts")


def combinations(params: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """A value of each parameter, for each task."""
    for values in product(*params.values()):
        yield dict(zip(params, values, strict=True))


def spoken(values: Mapping[str, str]) -> str:
    """One combination for people: `lr=0.1 seed=2`."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with each `{NAME}` replaced by its value, once; other braces stay."""
    return _BRACES.sub(lambda found: values.get(found[1], found[0]), text)


def together(
    params: Mapping[str, Sequence[str]], configurations: Iterable[Mapping[str, str]]
) -> dict[str, list[str]]:
    """All values of each parameter, those of `configurations` included."""
    tried = {name: list(values) for name, values in params.items()}
    for configuration in configurations:
        for name, value in configuration.items():
            tried.setdefault(name, []).append(value)
    return tried


def longest(words: Iterable[str], params: Mapping[str, Sequence[str]], name: int) -> int:
    """No fewer letters than the words can have together once they are filled; `name`: those of a
    job's name."""
    most = {each: max(map(len, values)) for each, values in params.items()}
    most |= dict.fromkeys(RESERVED, name)
    return sum(
        len(word) + sum(most.get(found[1], 0) for found in _BRACES.finditer(word)) for word in words
    )
