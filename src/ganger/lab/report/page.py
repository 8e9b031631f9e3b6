"""What every report page is made with: its template, its look, and how figures are written.

Everything is inside the file; nothing is fetched. Every string is escaped by Jinja or stands in a
JSON block whose `<`, `>` and `&` are escaped, and the script never writes HTML.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import ganger
from ganger.lab import words
from ganger.lab.metrics import Estimate

COLOURS = 12


@dataclass(frozen=True)
class Column:
    """A metric as a column: `better` says which end of it is good, if any."""

    key: str
    title: str
    kind: Literal["time", "latency", "ratio", "number", "rate"]
    better: Literal["low", "high", ""] = ""


def fill(template: str, script: str, *, data: Any, **values: Any) -> str:
    """The page of a template, with the `script` that draws from `data`."""
    return (
        _environment()
        .get_template(template)
        .render(
            colours=COLOURS,
            data=Markup(_script_json(data)),
            css=_asset("tokens.css") + _asset("charts.css") + _asset("style.css"),
            scripts=[_asset(name) for name in ("draw.js", "save.js", "shared.js", script)],
            **values,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ganger.lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(estimate=estimate, per_cent=per_cent, duration=words.duration)
    return environment


def _asset(name: str) -> Markup:
    return Markup(files("ganger.lab.report").joinpath(name).read_text(encoding="utf-8"))


def _script_json(data: Any) -> str:
    """JSON that can stand in a script element: no name can close it or open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def cell(value: Estimate, kind: str, *, best: bool) -> dict[str, Any]:
    """A cell of the table of comparison."""
    mean, half = value
    return {
        "sort": mean if math.isfinite(mean) else "",
        "text": text_of(mean, kind),
        "half": text_of(half, kind) if half > 0 else "",
        "best": best,
    }


def table(head: list[str], words: int, body: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A table for the template; the first `words` columns are text. None where it is empty."""
    return {"head": head, "words": words, "body": body} if body else None


def text_of(value: float, kind: str) -> str:
    """A figure of a column; "" where there is none."""
    if not math.isfinite(value):
        return ""
    if kind == "time":
        return words.duration(value)
    if kind == "latency" and value < 1:
        return f"{1000 * value:.1f} ms"
    if kind == "latency":
        return words.duration(value)
    if kind == "rate" and value < 100:
        return f"{value:.1f}"
    return per_cent(value) if kind == "ratio" else f"{value:,.0f}"


def per_cent(value: float) -> str:
    """A part of a whole."""
    return f"{value:.1%}" if math.isfinite(value) else "\u2013"


def whole(value: float) -> str:
    """A count, which may be a mean."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def estimate(value: Estimate) -> str:
    """The mean, and the half-width with two digits where it is more than rounding."""
    if not math.isfinite(value.mean):
        return "\u2013"
    half = value.half_width
    if not half > 0:
        return _number(value.mean)
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{value.mean:,.{decimals}f} \u00b1 {half:,.{decimals}f}"


def _number(value: float) -> str:
    """Five digits, never as a power of ten."""
    if value == 0 or abs(value) >= 1e4:
        return f"{value:,.0f}"
    text = f"{value:,.{max(0, 4 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def span(values: Sequence[int]) -> str:
    """`5` or `5–9`, of sorted values."""
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,}\u2013{values[-1]:,}"


def listed(values: Iterable[str]) -> str:
    """Each once, in the order in which they come."""
    return ", ".join(dict.fromkeys(values))


def one_seed(seeds: Iterable[Sequence[int]]) -> str:
    """What charts of a single run must say where figures are means over several seeds (those of
    each group)."""
    several = [each for each in seeds if len(each) > 1]
    if not several:
        return ""
    first = listed(str(each[0]) for each in several)
    most = max(map(len, several))
    return f"This is the run of seed {first} alone; the tables above are means over {most} seeds."


def versions() -> tuple[str, str]:
    """What made the figures, as a row of the last table."""
    python = platform.python_version()
    return "Versions", f"ganger {ganger.__version__}, Python {python}, numpy {np.__version__}"
