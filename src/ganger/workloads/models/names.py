"""Names in a models file: each there once, and what an unknown one may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ganger.core.errors import BadInput


def distinct(names: Sequence[str], where: str) -> None:
    """Raises BadInput where a name is there twice, or cannot be printed."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(f"{name!r} is there twice", where=where, mend="rename or remove one")
        if not name.isprintable():
            raise BadInput(f"{name!r} holds control characters", where=where, mend="rename it")
        seen.add(name)


def meant(name: str, known: Iterable[str], mend: str) -> str:
    """How to mend a name that is not among those that are known."""
    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else mend
