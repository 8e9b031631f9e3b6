"""A models file, written as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.workloads.files import write_bytes
from ganger.workloads.models.document import Document

_TABLES: Final = ("devices", "models", "pipelines", "latency", "tokens", "operators", "utilisation")
"""Lists of which every entry gets a heading; others stand on one line."""


def write_models(document: Document, path: Path) -> None:
    """Write the file; `-` is standard output. Raises BadInput."""
    write_bytes(path, as_toml(document).encode())


def as_toml(document: Document) -> str:
    """The text of the file; fields that hold their default are left out."""
    return "\n".join(_table(msgspec.to_builtins(document), "")) + "\n"


def _table(table: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Fields on a line each, then the tables below."""
    below = {
        name: value for name, value in table.items() if name in _TABLES and isinstance(value, list)
    }
    for name, value in table.items():
        if name not in below:
            yield f"{name} = {_inline(value)}"
    for name, entries in below.items():
        for entry in entries:
            yield f"\n[[{prefix}{name}]]"
            yield from _table(entry, f"{prefix}{name}.")


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_inline(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)
