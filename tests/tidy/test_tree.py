"""The source tree keeps the house's limits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FUNCTION_LINES, FILE_LINES = 70, 500
FORBIDDEN = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|/home/|/root/|/work/")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function below `tree`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def needs_none(function: ast.FunctionDef) -> bool:
    """Private functions and mere signatures need no docstring."""
    signature = any("overload" in ast.dump(mark) for mark in function.decorator_list)
    return signature or function.name.startswith("_")


def public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes, and the public methods of public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not needs_none(inner):
                        yield inner


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_source_file_keeps_the_limits(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= FILE_LINES
    assert ast.get_docstring(tree), "a module says what it is"
    for function in functions(tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES, f"{function.name} has {lines} lines"
    bare = [node.name for node in public(tree) if not ast.get_docstring(node)]
    assert not bare, f"without a docstring: {bare}"
    assert not FORBIDDEN.search(text)


def test_every_room_says_what_lives_in_it() -> None:
    for room in sorted((ROOT / "src" / "ganger").iterdir()):
        if room.is_dir() and room.name != "__pycache__":
            assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room.name


def test_the_pages_that_the_readme_names_are_there() -> None:
    readme = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / target).exists(), target
