"""Recipes by name, with their papers and parameters.

A recipe is a function whose parameters all have defaults and that returns a policy. Its module is
named in `CATALOGUE`, so that listing names imports nothing. On the command line it is written
`name` or `name(parameter=value, ...)`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import parse_duration

Duration: TypeAlias = Annotated[int, "duration"]
"""Microseconds, written like 90s or 1h30m."""


@dataclass(frozen=True)
class Paper:
    """Where a recipe comes from."""

    title: str
    authors: str = ""
    venue: str = ""
    year: int = 0
    objective: str = ""

    def __str__(self) -> str:
        where = f"{self.venue} {self.year}".strip() if self.year else self.venue
        return ", ".join(part for part in (self.title, self.authors, where) if part)


@dataclass(frozen=True)
class Recipe:
    """One registered recipe. `needs`: what it must be told about durations or speeds
    ("nothing", "durations", "throughputs", ...); `reconstructed`: what was assumed where the
    publication does not say, or ""."""

    name: str
    make: Callable[..., Policy]
    paper: Paper
    needs: str = "nothing"
    reconstructed: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def doc(self) -> str:
        """The recipe's own text."""
        return inspect.cleandoc(self.make.__doc__ or "")

    @property
    def summary(self) -> str:
        """Its first sentence, on one line."""
        return self.doc.split("\n\n")[0].replace("\n", " ")


_T = "ganger.recipes.training."
CATALOGUE: dict[str, str] = {
    **dict.fromkeys(("fifo", "sjf", "srtf", "srsf", "priority", "edf"), _T + "baselines"),
    **dict.fromkeys(("las", "mlfq", "tiresias", "gittins", "e-las"), _T + "attained"),
    **dict.fromkeys(("backfill",), _T + "backfill"),
    **dict.fromkeys(("drf", "max-min", "ftf", "hierarchical"), _T + "fairness"),
    **dict.fromkeys(("themis", "gandiva-fair", "astraea"), _T + "fairness"),
    **dict.fromkeys(("gavel", "pop"), _T + "gavel"),
    **dict.fromkeys(("pollux", "sia"), _T + "goodput"),
    **dict.fromkeys(("optimus", "afs", "elastic-scaling"), _T + "elasticity"),
    **dict.fromkeys(
        ("marble", "non-intrusive", "dragon", "elan", "edl", "ones", "smd"), _T + "elasticity"
    ),
    **dict.fromkeys(("placement", "delay-scheduling", "heterogeneity-agnostic"), _T + "placement"),
    **dict.fromkeys(("topology-aware", "hived", "spin"), _T + "placement"),
    **dict.fromkeys(("space-sharing", "spot", "cpu-disaggregation", "synergy"), _T + "resources"),
    **dict.fromkeys(
        ("yarn-cs", "helios", "helios-ces", "philly", "ffdl", "ali-mlaas"), _T + "production"
    ),
    **dict.fromkeys(("allox", "dorm"), _T + "programmes"),
    **dict.fromkeys(("genie", "chronus"), _T + "deadlines"),
}
"""Name of every recipe, and the module that defines it."""

_registered: dict[str, Recipe] = {}


def recipe(
    paper: Paper, *, name: str = "", needs: str = "nothing", reconstructed: str = ""
) -> Callable[[Callable[..., Policy]], Callable[..., Policy]]:
    """Register the decorated function under `name`, or its own name with dashes."""

    def register(make: Callable[..., Policy]) -> Callable[..., Policy]:
        called = name or make.__name__.replace("_", "-")
        defaults = {key: p.default for key, p in inspect.signature(make).parameters.items()}
        _registered[called] = Recipe(called, make, paper, needs, reconstructed, defaults)
        return make

    return register


def recipes() -> list[str]:
    """The names of all recipes, in alphabetical order."""
    return sorted(CATALOGUE)


def find(name: str) -> Recipe:
    """The recipe of that name. Raises BadInput with the nearest names."""
    if name not in CATALOGUE:
        from difflib import get_close_matches

        near = get_close_matches(name, CATALOGUE, 3, 0.5)
        mend = f"did you mean {' or '.join(near)}?" if near else "see `ganger recipes`"
        raise BadInput(f"no recipe {name!r}", mend=mend)
    import_module(CATALOGUE[name])
    return _registered[name]


def split_specs(text: str) -> list[str]:
    """`a,b(x=1,y=2)` into `a` and `b(x=1,y=2)`."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in parts if part]


_SPEC = re.compile(r"([\w.-]+)(?:\((.*)\))?", re.DOTALL)


def parse(spec: str) -> tuple[Recipe, dict[str, Any]]:
    """A recipe and its arguments from `name(parameter=value, ...)`. Raises BadInput."""
    match = _SPEC.fullmatch(spec.strip())
    if not match:
        raise BadInput(f"{spec!r} is no recipe", mend="write name or name(parameter=value)")
    found = find(match[1])
    hints = get_type_hints(found.make, include_extras=True)
    arguments: dict[str, Any] = {}
    for part in split_specs(match[2] or ""):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in found.parameters:
            known = ", ".join(found.parameters) or "none"
            raise BadInput(
                f"recipe {found.name!r} has no parameter {key!r}", mend=f"it has: {known}"
            )
        arguments[key] = _convert(hints[key], value.strip(), f"{found.name}({key})")
    return found, arguments


def make(spec: str) -> Policy:
    """The policy that `spec` describes. Raises BadInput."""
    found, arguments = parse(spec)
    return found.make(**arguments)


def _convert(hint: Any, text: str, where: str) -> Any:
    """`text` as the type of a parameter."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and args[1] == "duration":
        return parse_duration(text, where=where)
    if origin in (Union, UnionType):
        if text.lower() in ("none", "") and type(None) in args:
            return None
        return _convert(next(arg for arg in args if arg is not type(None)), text, where)
    if origin is tuple:
        return tuple(_convert(args[0], part.strip(), where) for part in text.split(";"))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint, text, where)
    if hint is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise BadInput(f"{text!r} is neither true nor false", where=where)
        return text.lower() in ("true", "yes", "1")
    try:
        return hint(text)
    except (TypeError, ValueError):
        kind = getattr(hint, "__name__", str(hint))
        raise BadInput(f"{text!r} is no {kind}", where=where) from None


def _choice(kind: type[Enum], text: str, where: str) -> Enum:
    for member in kind:
        if text.lower() in (member.name.lower(), str(member.value).lower()):
            return member
    known = ", ".join(member.name.lower() for member in kind)
    raise BadInput(f"{text!r} is not one of {known}", where=where)
