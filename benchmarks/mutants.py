"""How many one-line mutants of the deciding code do the tests kill?

    python benchmarks/mutants.py                               # 300 mutants, a new seed: an hour
    python benchmarks/mutants.py --seed 7 --count 10 --no-write
    python benchmarks/mutants.py --list --count 20             # only show what would be tried

A mutant is one line of `core`, `mechanisms` or `recipes` with one thing changed: a comparison, an
operator, a number, a condition, a call or an assignment left out. Lines are drawn first, so that a
line with many operators is not likelier than others; annotations, messages of errors and asserts
are left alone. Each mutant meets the tests that execute its line, the quickest first, until one
fails. A mutant that nothing can tell from the original is *equivalent*: it stands in `mutants.toml`
with the reason. Who reads a survivor either writes the test that kills it or its reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from provenance import made

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_suffix(".md")
ROOMS = ("core", "mechanisms", "recipes")
TESTS = ("core", "estimate", "lab", "lesson", "mechanisms", "recipes", "sim", "solve", "workloads")
LONGEST_SECONDS = 150.0
"""Tests that take longer than this together are tried no further for one mutant."""
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

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not behaviour."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """It checks, and decides nothing."""


def draw(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """`count` mutants, of lines drawn by the seed; never two of one line."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for room in rooms:
        for path in sorted((ROOT / "src/ganger" / room).rglob("*.py")):
            for mutant in Finder(str(path.relative_to(ROOT / "src")), path.read_text()).found:
                lines.setdefault((mutant.file, mutant.line), []).append(mutant)
    rng = random.Random(seed)
    return [rng.choice(lines[key]) for key in rng.sample(sorted(lines), min(count, len(lines)))]


class Cover(NamedTuple):
    """Which tests execute which lines, and how long each test takes (seconds)."""

    tests: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that a mutant meets, the quickest first."""
        found, spent = [], 0.0
        here = self.tests.get((mutant.file, mutant.line), [])
        for test in sorted(here, key=lambda test: (self.seconds.get(test, 0.0), test)):
            spent += self.seconds.get(test, 0.0)
            if spent > LONGEST_SECONDS:
                break
            found.append(test)
        return found


def run(words: list[str], folder: Path, seconds: float | None = None) -> int:
    """pytest's exit status; 1 where it did not end in time."""
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=env, timeout=seconds, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return 1


def covered(folder: Path, workers: int, tests: list[str]) -> Cover:
    """Run `tests` once on the code as it is."""
    import coverage

    shutil.copytree(ROOT / "src", folder / "src")
    data, report = folder / "coverage", folder / "junit.xml"
    os.environ["COVERAGE_FILE"] = str(data)
    rooms = [f"--cov=ganger.{room}" for room in ROOMS]
    words = ["-n", str(workers), *rooms, "--cov-context=test", "--cov-report="]
    if status := run([*words, f"--junitxml={report}", *tests], folder):
        raise SystemExit(f"the tests do not pass on the code as it is (pytest: {status})")
    found: dict[tuple[str, int], list[str]] = {}
    lines = coverage.CoverageData(str(data))
    lines.read()
    for file in lines.measured_files():
        name = str(Path(file).relative_to(folder / "src"))
        by_line = {
            line: {each.partition("|")[0] for each in contexts if each and "\n" not in each}
            for line, contexts in lines.contexts_by_lineno(file).items()
        }
        of_file = sorted(set().union(*by_line.values()))
        for line, tests in by_line.items():  # none: it is executed when the file is imported
            found[name, line] = sorted(tests) or of_file
    return Cover(found, dict(_times(report)))


def _times(report: Path) -> Iterator[tuple[str, float]]:
    for case in Xml.parse(report).iter("testcase"):
        parts = case.attrib["classname"].split(".")
        at = next(i for i, part in enumerate(parts) if part.startswith("test_"))
        file = "/".join(parts[: at + 1]) + ".py"
        yield "::".join([file, *parts[at + 1 :], case.attrib["name"]]), float(case.attrib["time"])


def equivalents() -> dict[tuple[str, str, str], str]:
    """The reasons of mutants that nothing can tell from the original."""
    path = PAGE.with_suffix(".toml")
    rows: list[dict[str, Any]] = []
    if path.exists():
        rows = tomllib.loads(path.read_text()).get("equivalent", [])
    return {(row["file"], row["before"], row["after"]): row["reason"] for row in rows}


def judged(mutant: Mutant, cover: Cover, folder: Path) -> str:
    """`killed`, `survived`, or `not executed` by any test."""
    tests = cover.of(mutant)
    if not tests:
        return "not executed"
    path = folder / "src" / mutant.file
    original = path.read_text()
    lines = original.split("\n")
    lines[mutant.line - 1] = mutant.after
    listed = folder / "tests.txt"
    listed.write_text("\n".join(tests))
    patience = 60 + 5 * sum(cover.seconds.get(test, 0.0) for test in tests)
    path.write_text("\n".join(lines))
    try:
        return "killed" if run(["-x", "-n", "0", f"@{listed}"], folder, patience) else "survived"
    finally:
        path.write_text(original)


def judge_all(mutants: list[Mutant], cover: Cover, place: Path, workers: int) -> list[str]:
    """The verdict of each."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        shutil.copytree(ROOT / "src", place / str(number) / "src")
        free.put(place / str(number))
    began, done = time.monotonic(), [0]

    def one(mutant: Mutant) -> str:
        folder = free.get()
        try:
            verdict = judged(mutant, cover, folder)
        finally:
            free.put(folder)
        done[0] += 1
        words = f"{done[0]}/{len(mutants)} {time.monotonic() - began:.0f} s {verdict}"
        change = f"{mutant.before.strip()} -> {mutant.after.strip()}"
        print(f"{words}: {mutant.file}:{mutant.line}: {change}", flush=True)
        return verdict

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, mutants))


def main() -> int:
    """Draw, try, print, write the page; 1 if fewer than `--least` of those that differ died."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, help="drawn by chance, and shown, unless given")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=[f"tests/{room}" for room in TESTS])
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS))
    parser.add_argument("--least", type=float, default=0.9, help="the share that is to die")
    parser.add_argument("--list", action="store_true", help="only show the mutants")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    mutants, known = draw(options.count, seed, options.rooms), equivalents()
    print(f"seed {seed}: {len(mutants)} mutants", flush=True)
    if options.list:
        for mutant in mutants:
            print(
                f"{mutant.file}:{mutant.line}\n  {mutant.before.strip()}\n  {mutant.after.strip()}"
            )
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        cover = covered(place / "cover", options.workers, options.tests)
        verdicts = judge_all(mutants, cover, place, options.workers)
    alive = [pair for pair in zip(mutants, verdicts, strict=True) if pair[1] != "killed"]
    same = [mutant for mutant, _ in alive if mutant.key in known]
    left = [(mutant, verdict) for mutant, verdict in alive if mutant.key not in known]
    differ = len(mutants) - len(same)
    share = (differ - len(left)) / max(differ, 1)
    print(f"{differ - len(left)} of {differ} died ({share:.1%}); {len(same)} are equivalent")
    found = {
        "seed": seed, "made": made(), "mutants": len(mutants), "equivalent": len(same),
        "died": differ - len(left),
        "survivors": [[m.file, m.before.strip(), m.after.strip(), verdict] for m, verdict in left],
    }  # fmt: skip
    if not options.no_write:
        write(found)
    return 0 if share >= options.least else 1


def write(found: dict[str, Any]) -> None:
    """The page of the last three seeds, whose figures stand in it as JSON as well."""
    runs: list[dict[str, Any]] = []
    if PAGE.exists():
        runs = [json.loads(row) for row in re.findall(r"<!-- run (.*) -->", PAGE.read_text())]
    runs = [*runs, found][-3:]
    parts = [f"# Mutants\n\n{(__doc__ or '').split(chr(10) * 2, 2)[2]}"]
    parts.append(
        "| seed | date | mutants | equivalent | died of the others |\n|---:|:---|---:|---:|---:|"
    )
    for each in runs:
        differ = each["mutants"] - each["equivalent"]
        parts[-1] += (f"\n| {each['seed']} | {each['date']} | {each['mutants']} | "
                      f"{each['equivalent']} | {each['died']} of {differ} "
                      f"({each['died'] / differ:.1%}) |")  # fmt: skip
    for each in runs:
        rows = [f"- `{file}` {verdict}: `{before}` -> `{after}`"
                for file, before, after, verdict in each["survivors"]]  # fmt: skip
        parts.append(f"## Survivors of seed {each['seed']}\n\n" + ("\n".join(rows) or "None."))
    parts += [f"<!-- run {json.dumps(each)} -->" for each in runs]
    PAGE.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
