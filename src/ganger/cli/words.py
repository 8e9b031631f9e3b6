"""Kinds of words that several commands take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.core.errors import BadInput

if TYPE_CHECKING:
    _Word = click.ParamType[str]
else:
    _Word = click.ParamType  # of one kind only, before click 8.4


class FloatRange(click.FloatRange):
    """As click's, which lets nan pass: it is below no limit and above none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. Raises BadInput for one that is none."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            where = param.opts[0] if param is not None else ""
            raise BadInput(f"{value} is not a number", where=where, mend="write one")
        return number


class _Span(_Word):
    """A length of time with its unit: bare numbers are minutes to some, seconds to others."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same word. Raises BadInput for a bare number."""
        if value.strip().isdecimal():
            where = param.opts[0] if param is not None else ""
            raise BadInput(
                f"{value!r} could be minutes or seconds",
                where=where,
                mend=f"write {value}m or {value}s",
            )
        return value


SPAN: Final = _Span()
KNOWS: Final = ("history", "measured", "rolling", "group", "estimate", "nothing")
"""What a live policy may believe about run times and speeds."""


def with_files_read(recipe: str) -> str:
    """The recipe with what its files hold in their place: a daemon reads none. Raises BadInput."""
    if "@" not in recipe:
        return recipe
    from ganger.lab.simulating.policies import resolved

    return resolved(recipe)
