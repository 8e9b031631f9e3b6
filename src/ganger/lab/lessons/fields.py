"""What may be changed about an example, and how it is read from text: from an option of the command
line or a field of a page. Every reader has bounds, and nothing here computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ganger.core.errors import BadInput

TEXT_MAX: Final = 1000
JOBS_MAX: Final = 20
GPUS_MAX: Final = 64
ROWS_MAX: Final = 8
TYPES_MAX: Final = 6
RECIPES_MAX: Final = 6
_RECIPE: Final = re.compile(r"[\w.-]{1,60}(\([^()/@]{0,200}\))?")
_NAME: Final = r"[A-Za-z0-9][\w.-]{0,19}"
_NUMBER: Final = r"\d{1,7}(?:\.\d{1,6})?"


@dataclass(frozen=True)
class Field:
    """One input. `read` makes its value of a text, or raises BadInput; `lowest`, `highest`, `step`
    are those of a number, `choices` those of a choice."""

    name: str
    label: str
    default: str
    read: Callable[[str, str], Any]
    lowest: str = ""
    highest: str = ""
    step: str = ""
    choices: tuple[str, ...] = ()

    def value(self, text: str) -> Any:
        """The value of a text."""
        return self.read(text.strip()[: TEXT_MAX + 1], self.name)


def whole(name: str, label: str, default: int, lowest: int, highest: int) -> Field:
    """A whole number."""

    def read(text: str, where: str) -> int:
        fits = text.isascii() and text.isdecimal() and len(text) < 12
        if not fits or not lowest <= int(text) <= highest:
            raise _wrong(text, where, f"a whole number from {lowest} to {highest:,}")
        return int(text)

    return Field(name, label, str(default), read, str(lowest), str(highest), "1")


def decimal(
    name: str, label: str, default: float, lowest: float, highest: float, step: str
) -> Field:
    """A number."""

    def read(text: str, where: str) -> float:
        if not re.fullmatch(_NUMBER, text) or not lowest <= float(text) <= highest:
            raise _wrong(text, where, f"a number from {lowest:g} to {highest:,g}")
        return float(text)

    return Field(name, label, f"{default:g}", read, f"{lowest:g}", f"{highest:g}", step)


def choice(name: str, label: str, choices: tuple[str, ...], default: str = "") -> Field:
    """One of some words."""

    def read(text: str, where: str) -> str:
        if text not in choices:
            raise _wrong(text, where, f"one of {', '.join(choices)}")
        return text

    return Field(name, label, default or choices[0], read, choices=choices)


def text(name: str, label: str, default: str, read: Callable[[str, str], Any]) -> Field:
    """Words that `read` understands."""
    return Field(name, label, default, read)


def _wrong(text: str, where: str, wanted: str, mend: str = "") -> BadInput:
    return BadInput(f"{text[:40]!r} is not {wanted}", where=where, mend=mend)


def _parts(text: str, between: str, highest: int, where: str, what: str) -> list[str]:
    words = [word.strip() for word in text.split(between) if word.strip()]
    if not 1 <= len(words) <= highest:
        raise BadInput(f"{len(words)} {what}", where=where, mend=f"give one to {highest}")
    return words


_PERSON: Final = re.compile(rf"({_NAME}) (\d{{1,3}})x({_NUMBER})(?:@({_NUMBER}))?")


def people(text: str, where: str) -> list[tuple[str, int, float, float]]:
    """`Alice 4x6, Eve 1x0.25@2` as (name, GPUs, hours, hour of arrival)."""
    parsed = []
    for word in _parts(text, ",", JOBS_MAX, where, "jobs"):
        made = _PERSON.fullmatch(" ".join(word.split()))
        if made is None or not 1 <= int(made[2]) <= GPUS_MAX or not 0 < float(made[3]) <= 1000:
            mend = "write NAME GPUSxHOURS@ARRIVAL like Alice 4x6, Eve 1x0.25@2"
            raise _wrong(word, where, "a job", mend)
        parsed.append((made[1], int(made[2]), float(made[3]), float(made[4] or 0)))
    return parsed


_TASK: Final = re.compile(r"(\d{1,4})(?:@(\d{1,4}))?(?:!(\d{1,3}))?")


def tasks(text: str, where: str) -> list[tuple[int, int, int]]:
    """`30@0!3, 10, 25@1` as (seconds, arrival, priority)."""
    parsed = []
    for word in _parts(text, ",", JOBS_MAX, where, "jobs"):
        made = _TASK.fullmatch(word)
        if made is None or not 1 <= int(made[1]) <= 1000 or int(made[2] or 0) > 1000:
            mend = "write SECONDS@ARRIVAL!PRIORITY like 30@0!3, 10"
            raise _wrong(word, where, "a job of 1 to 1,000 s", mend)
        parsed.append((int(made[1]), int(made[2] or 0), int(made[3] or 0)))
    return parsed


def check_recipe(recipe: str, where: str = "") -> None:
    """Raise BadInput for a recipe that names a file (a policy's, or a parameter's as in
    `workload=@FILE`): pages and lessons read none."""
    if not _RECIPE.fullmatch(recipe) or ".py" in recipe:
        raise _wrong(recipe, where, "a recipe", "write like las or gavel(x=1), without files")


def recipes(text: str, where: str = "recipes") -> list[str]:
    """`fifo, las(quantum=1s)`: names of registered recipes with parameters, never a file."""
    words = re.split(r",(?![^()]*\))", text[:TEXT_MAX])
    parsed = list(dict.fromkeys(word.strip() for word in words if word.strip()))
    for recipe in parsed:
        check_recipe(recipe, where)
    if not 1 <= len(parsed) <= RECIPES_MAX:
        raise BadInput(f"{len(parsed)} recipes", where=where, mend=f"name one to {RECIPES_MAX}")
    return parsed


def one_recipe(text: str, where: str) -> str:
    """A registered recipe."""
    parsed = recipes(text, where)
    if len(parsed) != 1:
        raise BadInput(f"{len(parsed)} recipes", where=where, mend="name one")
    return parsed[0]


_CLUSTER: Final = re.compile(r"[0-9]{1,3}x[0-9]{1,3}x[A-Za-z][A-Za-z0-9-]{0,19}")


def cluster(text: str, where: str) -> str:
    """`2x4xV100` or `2x4xV100+1x8xA100`: a cluster in words, never a file."""
    parts = text.split("+")
    if len(parts) > ROWS_MAX or not all(_CLUSTER.fullmatch(part) for part in parts):
        raise _wrong(text, where, "a cluster", "write like 2x4xV100 or 2x4xV100+1x8xA100")
    return text


def gpus_of(words: str) -> int:
    """The GPUs of a cluster in words."""
    return sum(
        int(n) * int(each) for n, each, _ in (part.split("x", 2) for part in words.split("+"))
    )


_COUNTED: Final = re.compile(rf"(\d{{1,3}}) ({_NAME})")


def counted_types(text: str, where: str) -> list[tuple[int, str]]:
    """`2 K80, 1 V100` as (how many, type)."""
    parsed = []
    for word in _parts(text, ",", TYPES_MAX, where, "types"):
        made = _COUNTED.fullmatch(" ".join(word.split()))
        if made is None or int(made[1]) < 1:
            raise _wrong(word, where, "GPUs of a type", "write like 2 K80, 1 V100")
        parsed.append((int(made[1]), made[2]))
    return _distinct(parsed, 1, where)


def names(text: str, where: str) -> list[str]:
    """`K80, V100`."""
    parsed = _parts(text, ",", ROWS_MAX, where, "names")
    for word in parsed:
        if not re.fullmatch(_NAME, word):
            raise _wrong(word, where, "a name")
    return parsed


_ROW: Final = re.compile(rf"({_NAME})((?: {_NUMBER})+)")


def rates(text: str, where: str) -> list[tuple[str, list[float]]]:
    """`A 10 30 80; B 50 65 70` as (name, throughput on each type)."""
    parsed = []
    for word in _parts(text, ";", ROWS_MAX, where, "jobs"):
        made = _ROW.fullmatch(" ".join(word.split()))
        if made is None:
            raise _wrong(word, where, "a job", "write NAME and a number for each type")
        parsed.append((made[1], [float(number) for number in made[2].split()]))
    return _distinct(parsed, 0, where)


_LINK: Final = re.compile(rf"({_NAME}) ({_NUMBER})")


def links(text: str, where: str) -> list[tuple[str, float]]:
    """`NVLink 600, Ethernet 10` as (name, GB/s)."""
    parsed = []
    for word in _parts(text, ",", ROWS_MAX, where, "links"):
        made = _LINK.fullmatch(" ".join(word.split()))
        if made is None or not float(made[2]) > 0:
            raise _wrong(word, where, "a link", "write like NVLink 600, Ethernet 10")
        parsed.append((made[1], float(made[2])))
    return _distinct(parsed, 0, where)


def _distinct(rows: list[Any], at: int, where: str) -> list[Any]:
    if len({row[at] for row in rows}) < len(rows):
        raise BadInput("a name stands twice", where=where, mend="give each one a name of its own")
    return rows


def durations(text: str, where: str) -> tuple[int, ...]:
    """`30,10,25,40`: seconds of the lecture's four jobs."""
    words = [word.strip() for word in text.split(",")]
    fits = all(word.isdecimal() and len(word) < 10 and 0 < int(word) <= 1000 for word in words)
    if len(words) != 4 or not fits:
        raise BadInput(
            f"{text[:40]!r} is not four whole numbers from 1 to 1000",
            where=where,
            mend="write like 30,10,25,40",
        )
    return tuple(int(word) for word in words)
