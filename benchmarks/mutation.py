"""One-line mutants of Python code: how they are found, drawn and known again."""

from __future__ import annotations

import ast
import random
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
               "is not": "is", "is": "is not", "not in": "in", "in": "not in"}  # fmt: skip
OPERATORS = {"+": "-", "-": "+", "*": "//", "//": "*", "/": "*", "%": "*", "&": "|", "|": "&",
             "<<": ">>", ">>": "<<", "**": "*", "^": "&"}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "True": "False", "False": "True"}


class Mutant(NamedTuple):
    """One line, and what it becomes."""

    file: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is, wherever its line has moved to."""
        return self.file, self.before.strip(), self.after.strip()


class Finder(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.lines = file, [line.encode() for line in text.split("\n")]
        self.found: list[Mutant] = []
        self.visit(ast.parse(text))

    def _replace(self, line: int, begin: int, end: int, by: str) -> None:
        old = self.lines[line - 1]
        new = old[:begin] + by.encode() + old[end:]
        self.found.append(Mutant(self.file, line, old.decode(), new.decode()))

    def _between(self, left: ast.expr, right: ast.expr, table: dict[str, str]) -> None:
        """Replace the operator that stands between two operands on one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        begin, end = left.end_col_offset, right.col_offset
        text = self.lines[right.lineno - 1][begin:end].decode()
        found = re.fullmatch(r"([\s)]*)(.*?)([\s(]*)", text)
        if found and (other := table.get(" ".join(found[2].split()))):
            self._replace(right.lineno, begin, end, found[1] + other + found[3])

    def _whole(self, node: ast.stmt | ast.expr, by: str) -> None:
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            self._replace(node.lineno, node.col_offset, node.end_col_offset, by)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in pairwise(operands):
            self._between(left, right, COMPARISONS)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._between(node.left, node.right, OPERATORS)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self._between(left, right, {"and": "or", "or": "and"})
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub) and node.lineno == node.operand.lineno:
            self._replace(node.lineno, node.col_offset, node.operand.col_offset, "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self._whole(node, str(node.value + 1))
        elif type(node.value) is bool:
            self._whole(node, str(not node.value))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in NAMES:
            self._whole(node, NAMES[node.id])

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if test.lineno == test.end_lineno and test.end_col_offset is not None:
            source = self.lines[test.lineno - 1][test.col_offset : test.end_col_offset].decode()
            self._replace(test.lineno, test.col_offset, test.end_col_offset, f"(not ({source}))")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._whole(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._whole(node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self._whole(node, "pass")
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__slots__" not in names:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._whole(node.value, "None")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._whole(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._whole(node, "continue")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for each in (*node.args.defaults, *node.args.kw_defaults, *node.body):
            if each is not None:
                self.visit(each)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """`frozen` and `slots` are guards, as asserts are; the body is what counts."""
        for each in node.body:
            self.visit(each)

    def visit_Call(self, node: ast.Call) -> None:
        """Where and when a paper appeared decides nothing."""
        if not (isinstance(node.func, ast.Name) and node.func.id == "Paper"):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """`strict` is a guard, too."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not behaviour."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """It checks, and decides nothing."""


def draw(count: int, seed: int, source: Path, rooms: list[str]) -> list[Mutant]:
    """`count` mutants of `rooms` below `source`, of lines drawn by the seed; never two of one."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for room in rooms:
        for path in sorted((source / "ganger" / room).rglob("*.py")):
            for mutant in Finder(str(path.relative_to(source)), path.read_text()).found:
                lines.setdefault((mutant.file, mutant.line), []).append(mutant)
    rng = random.Random(seed)
    return [rng.choice(lines[key]) for key in rng.sample(sorted(lines), min(count, len(lines)))]


def equivalents(path: Path) -> dict[tuple[str, str, str], str]:
    """The reasons of mutants that nothing can tell from the original."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        rows = tomllib.loads(path.read_text()).get("equivalent", [])
    return {(row["file"], row["before"], row["after"]): row["reason"] for row in rows}
