"""Docstrings of public things are plain, too: none has one of the four habits of `english.py`."""

from __future__ import annotations

import ast

from tidy.english import habits
from tidy.test_tree import FILES, ids, parsed


def leaning(tree: ast.Module) -> list[str]:
    """The public modules, classes and functions of a file whose docstring has one of the habits."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "the module")
            if not name.startswith("_") and any(habits(ast.get_docstring(node) or "")):
                found.append(name)
    return found


def test_docstrings_are_plain() -> None:
    assert [f"{ids(path)}: {name}" for path in FILES for name in leaning(parsed(path))] == []


def test_a_docstring_with_a_habit_is_found() -> None:
    text = '"""Who waits."""\nclass A:\n    """It was told."""\ndef b():\n    """Plain."""\n'
    assert leaning(ast.parse(text)) == ["the module", "A"]
    assert leaning(ast.parse('def _hidden():\n    """Who waits."""\n')) == []
