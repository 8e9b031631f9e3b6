"""Names are nouns: variables, parameters and functions called `found`, `told`, `there`, `one`,
`most` or `left` say nothing of what they are. No room gets more of them than it has."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tidy.test_tree import FILES, SOURCE, parsed

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


def vague(tree: ast.Module) -> int:
    """How many of the names that a file gives say nothing."""
    return sum(name.strip("_") in VAGUE for name in bound(tree))


def by_room() -> Counter[str]:
    """The vague names of each room; of files outside rooms, ""."""
    count: Counter[str] = Counter()
    for path in FILES:
        _, *rooms, _ = path.relative_to(SOURCE).parts
        count[rooms[0] if rooms else ""] += vague(parsed(path))
    return count


def test_new_names_are_nouns() -> None:
    names = by_room()
    more = {room: (count, ON_RECORD.get(room, 0)) for room, count in names.items()}
    wrong = {room: counts for room, counts in more.items() if counts[0] > counts[1]}
    assert wrong == {}, f"name what it is, not {sorted(VAGUE)}"


def test_vague_names_are_counted() -> None:
    text = "def told(most, width):\n    one, row = width\n    self._left = found\n"
    assert vague(ast.parse(text)) == 4


if __name__ == "__main__":
    print(dict(sorted(by_room().items())))
