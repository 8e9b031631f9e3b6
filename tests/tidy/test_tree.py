"""The source tree keeps its own rules: short functions, short files, words for everything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ganger.recipes import registry

SOURCE = Path(__file__).parents[2] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
LINES_A_FILE, LINES_A_FUNCTION = 500, 70
FORBIDDEN = ("TODO", "FIXME", "XXX", "/home/", "/root/", "/Users/", "C:\\Users", "/work/")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def ids(path: Path) -> str:
    """A file's place in the tree."""
    return str(path.relative_to(SOURCE))


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"))


def public(body: list[ast.stmt], before: str = "") -> Iterator[tuple[str, Definition]]:
    """Public functions and classes, methods too; overloads are told by what they overload."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            if not any("overload" in ast.unparse(how) for how in node.decorator_list):
                yield before + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{before}{node.name}.")


def test_there_is_a_tree_to_look_at() -> None:
    assert len(FILES) > 30


def test_files_are_short() -> None:
    lines = {ids(path): path.read_text().count("\n") for path in FILES}
    assert {path: length for path, length in lines.items() if length > LINES_A_FILE} == {}


def test_functions_are_short() -> None:
    lines = {
        f"{ids(path)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lines.items() if length > LINES_A_FUNCTION} == {}


def test_everything_public_says_what_it_is() -> None:
    trees = {ids(path): parsed(path) for path in FILES}
    assert [path for path, tree in trees.items() if not ast.get_docstring(tree)] == []
    assert [
        f"{path}: {name}"
        for path, tree in trees.items()
        for name, node in public(tree.body)
        if not ast.get_docstring(node)
    ] == []


def skips(source: str) -> list[int]:
    """The lines of a file that the formatter leaves alone though they end no table: neither a
    literal that gets a name or is returned, nor a decorator."""
    tables = (ast.Dict, ast.List, ast.Set, ast.Tuple, ast.DictComp)
    ends = {
        node.end_lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
        and isinstance(node.value, tables)
    } | {
        each.end_lineno
        for node in ast.walk(ast.parse(source))
        for each in getattr(node, "decorator_list", ())
    }
    lines = enumerate(source.splitlines(), 1)
    return [at for at, line in lines if "# fmt: skip" in line and at not in ends]


def test_only_tables_are_laid_out_by_hand() -> None:
    texts = {ids(path): path.read_text() for path in FILES if "# fmt: skip" in path.read_text()}
    assert {path: wrong for path, text in texts.items() if (wrong := skips(text))} == {}
    assert skips("A = {\n    1: 2, 3: 4,\n}  # fmt: skip\nb(1,\n  2)  # fmt: skip\n") == [5]


def test_nothing_is_left_to_do_and_nobodys_home_is_named() -> None:
    texts = {ids(path): path.read_text() for path in FILES}
    assert [
        f"{path}: {word}" for path, text in texts.items() for word in FORBIDDEN if word in text
    ] == []


def test_no_merge_was_left_half_done() -> None:
    root = SOURCE.parent
    pages = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "benchmarks").glob("*.md"),
    ]
    texts = {path.name: path.read_text() for path in [*FILES, *pages]}
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    lines = [(name, line) for name, text in texts.items() for line in text.splitlines()]
    assert [found for found in lines if found[1].startswith(marks)] == []


def test_every_recipe_says_what_it_is_and_where_it_comes_from() -> None:
    for name in registry.recipes():
        found = registry.find(name)
        assert found.make.__doc__, name
        assert str(found.paper), name


def test_the_pages_that_the_readme_names_are_there() -> None:
    readme = (SOURCE.parent / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (SOURCE.parent / target).exists(), target


@pytest.mark.parametrize("room", ["mechanisms", "recipes"])
def test_caches_have_types_and_no_string_keys(room: str) -> None:
    """`view.scratch` is for people's own policies; the product's keep `view.cached(Kind)`."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted((SOURCE / "ganger" / room).rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "scratch"
    ]
    assert found == []
