"""Four habits that make sentences hard to read, looked for in what users read.

That is: every string of the source that is not a docstring (help, errors, notes), the help texts of
commands, which are docstrings, and the pages. `python tests/tidy/english.py` lists what it finds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_PERSON: Final = (
    r"users?|people|persons?|administrators?|owners?|members?|readers?|submitters?"
    r"|anybody|anyone|somebody|someone|everybody|everyone|nobody"
)
_LENGTH: Final = (
    r"(?:\d[\d.,]*|an?|one|two|three|several|many)"
    r" ?(?:us|ms|s|m|h|d|min|seconds?|minutes?|hours?|days?|weeks?|months?|years?)\b"
)

HABITS: Final = {
    '"that" for jobs and programs; "who" only for a person, who is named': re.compile(
        rf"(?:\b({_PERSON}),? )?\bwho(?:ever|m)?\b", re.IGNORECASE
    ),
    '"for 5 s", not "since 5 s"': re.compile(
        rf"(?<!-)\bsince (?:\{{\}}(?: ?(?:s|seconds|hours)\b)|{_LENGTH}(?! ago))", re.IGNORECASE
    ),
    '"is not a valid X", not "is no X"': re.compile(
        r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|better\b)", re.IGNORECASE
    ),
    '"reported", not "told" or "said"': re.compile(r"\b(?:told|said)\b", re.IGNORECASE),
}
"""What to write, and what shows that something else was written."""
ALLOWED: Final = (
    "who may make it do that",
    "who gets in",
    "Who is trusted with what",
)
"""Sentences about people in which "who" is right though no noun stands before it."""


class Found(NamedTuple):
    """A habit: where it was seen, and in what words."""

    where: str
    habit: str
    words: str


def habits(text: str, where: str = "") -> Iterator[Found]:
    """The habits in a text that users read."""
    for habit, looks in HABITS.items():
        for hit in looks.finditer(text):
            if hit.re.groups and hit[1]:
                continue  # "users who"
            around = text[max(hit.start() - 60, 0) : hit.end() + 60]
            if not any(allowed in around for allowed in ALLOWED):
                line = text.count("\n", 0, hit.start()) + 1
                yield Found(f"{where}:{line}", habit, " ".join(around.split()))


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that users may read; `{}` for what an f-string fills in."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inside.add(id(node.value))  # a docstring
        elif isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_is_command, node.decorator_list)):
            yield node.lineno, ast.get_docstring(node) or ""
        elif id(node) not in inside and isinstance(node, ast.Constant | ast.JoinedStr):
            text = _text(node)
            if " " in text:
                yield node.lineno, text


def in_source(path: Path) -> Iterator[Found]:
    """The habits in what a file of the source shows to users."""
    place = path.relative_to(ROOT).as_posix()
    for line, text in strings(ast.parse(path.read_text(encoding="utf-8"))):
        for found in habits(text):
            yield found._replace(where=f"{place}:{line}")


def in_page(path: Path) -> Iterator[Found]:
    """The habits in a page; blocks of code, names in backticks and links are left out."""
    blank = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
    text = blank.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), path.read_text(encoding="utf-8"))
    yield from habits(text, path.relative_to(ROOT).as_posix())


def _is_command(decorator: ast.expr) -> bool:
    return re.search(r"\b(command|group)\b", ast.unparse(decorator)) is not None


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "{}"


if __name__ == "__main__":
    for path in sorted(SOURCE.rglob("*.py")):
        for found in in_source(path):
            print(*found, sep="\n  ")
    for path in PAGES:
        for found in in_page(path):
            print(*found, sep="\n  ")
