"""Docstrings of public things are plain, too: none has one of the four habits of `english.py`."""

from __future__ import annotations

import ast

import pytest

from tidy.english import habits
from tidy.test_tree import FILES, SOURCE


def leaning(source: str) -> list[str]:
    """The public modules, classes and functions of a file whose docstring has one of the habits."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "the module")
            if not name.startswith("_") and any(habits(ast.get_docstring(node) or "")):
                found.append(name)
    return found


def by_room() -> dict[str, list[str]]:
    """The names of them in each room, with their files."""
    rooms: dict[str, list[str]] = {}
    for path in FILES:
        place = path.relative_to(SOURCE / "ganger")
        names = leaning(path.read_text(encoding="utf-8"))
        rooms.setdefault(place.parts[0], []).extend(f"{place}: {name}" for name in names)
    return rooms


NOW = by_room()


@pytest.mark.parametrize("room", sorted(NOW))
def test_docstrings_are_plain(room: str) -> None:
    assert not NOW[room]


def test_a_docstring_with_a_habit_is_found() -> None:
    text = '"""Who waits."""\nclass A:\n    """It was told."""\ndef b():\n    """Plain."""\n'
    assert leaning(text) == ["the module", "A"]
    assert leaning('def _hidden():\n    """Who waits."""\n') == []
