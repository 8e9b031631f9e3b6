"""Names are nouns: variables, parameters and functions called `found`, `told`, `there`, `one`,
`most` or `left` say nothing of what they are. No room gets more of them than it has."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tidy.test_tree import FILES, SOURCE

VAGUE = {"found", "told", "there", "one", "most", "left"}
ON_RECORD = {
    "cli": 120,
    "client": 42,
    "core": 49,
    "engines": 202,
    "estimate": 21,
    "lab": 207,
    "mechanisms": 159,
    "recipes": 190,
    "sdk": 15,
    "service": 226,
    "sim": 40,
    "solve": 90,
    "workloads": 94,
}
"""By room: how many there are. A smaller number is written down, a larger one is not."""


def bound(tree: ast.Module) -> Iterator[str]:
    """The names that a file gives to variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def vague(source: str) -> int:
    """How many of the names that a file gives say nothing."""
    return sum(name.strip("_") in VAGUE for name in bound(ast.parse(source)))


def by_room() -> Counter[str]:
    """The vague names of each room; of files outside rooms, ""."""
    count: Counter[str] = Counter()
    for path in FILES:
        _, *rooms, _ = path.relative_to(SOURCE).parts
        count[rooms[0] if rooms else ""] += vague(path.read_text(encoding="utf-8"))
    return count


NOW = by_room()


@pytest.mark.parametrize("room", sorted(NOW))
def test_new_names_are_nouns(room: str) -> None:
    assert NOW[room] <= ON_RECORD.get(room, 0), f"{room}: name what it is, not {sorted(VAGUE)}"


def test_vague_names_are_counted() -> None:
    assert vague("def told(most, width):\n    one, row = width\n    self._left = found\n") == 4


if __name__ == "__main__":
    print(dict(sorted(NOW.items())))
