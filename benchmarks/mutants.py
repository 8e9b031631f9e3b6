"""How many one-line mutants of the deciding code do the tests kill?

    python benchmarks/mutants.py                               # 300 mutants, a new seed
    python benchmarks/mutants.py --seed 7 --count 10 --no-write
    python benchmarks/mutants.py --list --count 20             # only show what would be tried
    python benchmarks/mutants.py --control --count 40          # change nothing: all must survive

A mutant is one line of `core`, `mechanisms` or `recipes` with one thing changed: a comparison, an
operator, a number, a condition, a call or an assignment left out. Lines are drawn first, so that a
line with many operators is not likelier than others; annotations, messages of errors, years of
papers and guards (asserts, `frozen`, `slots`, `strict`) are left alone. Each mutant meets the tests
that execute its line (if that stands in no function, those that execute anything of its file, or
import it), the quickest first, until one fails, or takes twenty seconds of CPU and eight times what
it takes without the mutant (a loop that does not end; wall-clock time does not count, so that a
busy machine kills nothing). A mutant that nothing can tell from the original is *equivalent*: it
stands in `mutants.toml` with the reason. Who reads a survivor either writes the test that kills it
or its reason.

Until 26 November 2026 (commit fe06c7ae) a mutant outside functions met only the tests that execute
its file, and not those that import it: figures of seeds from before and after that are not of the
same measure.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import clocks
import trials
from mutation import Mutant, draw, equivalents
from provenance import made

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_suffix(".md")
ROOMS = ("core", "mechanisms", "recipes")
TESTS = (
    "core",
    "estimate",
    "lab",
    "lesson",
    "mechanisms",
    "recipes",
    "serving",
    "sim",
    "solve",
    "workloads",
)
ELSEWHERE = "tests/recipes/test_figures.py"
"""Makes benchmarks run in processes of their own, whose lines are not seen."""
DEAD = (trials.KILLED, trials.TIMED_OUT)
LONGEST_SECONDS = 60.0
"""Tests that take longer than this together are tried no further for one mutant."""


class Cover:
    """Which tests execute which lines, and how much CPU each test takes (seconds)."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self.seconds: dict[str, float] = known["seconds"]
        self.imported: dict[str, list[int]] = known["imported"]

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that a mutant meets, the quickest first."""
        files = {
            test: files[mutant.file]
            for test, files in self.known["lines"].items()
            if mutant.file in files
        }
        here = [test for test, lines in files.items() if mutant.line in lines]
        if _outside(mutant) or (not here and self.made_early(mutant)):
            parts = Path(mutant.file).parts
            room = f"tests/{'serving' if 'serving' in parts else parts[1]}/"
            here = [
                test
                for test in self.seconds
                if test in files or names(test.partition("::")[0], mutant.file)
            ] or [test for test in self.seconds if test.startswith(room)]
        found, spent = [], 0.0
        for test in sorted(here, key=lambda test: (self.seconds.get(test, 0.0), test)):
            spent += self.seconds.get(test, 0.0)
            if spent > LONGEST_SECONDS:
                break
            found.append(test)
        return found

    def made_early(self, mutant: Mutant) -> bool:
        """Whether the line is executed when its file is imported or tests are collected."""
        return mutant.line in self.imported.get(mutant.file, []) or _outside(mutant)


@cache
def imports(file: str) -> frozenset[str]:
    """The modules that a file of tests imports, with all names that it imports from others."""
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
    return frozenset(found)


def names(tests: str, mutated: str) -> bool:
    """Whether a file of tests imports a file of ours."""
    return ".".join(Path(mutated).with_suffix("").parts) in imports(tests)


def _outside(mutant: Mutant) -> bool:
    """Whether the line stands in no function. The test that imports its file first executes it, and
    all that use what is in the file depend on it: constants and defaults are read by tests that
    execute nothing else there."""
    try:
        trials.holder((ROOT / "src" / mutant.file).read_text(), mutant.line)
    except trials.ElsewhereError:
        return True
    return False


def environment(folder: Path) -> dict[str, str]:
    """Tests see the code in `folder`, and show the first failure as it was found."""
    paths = f"{folder / 'src'}{os.pathsep}{Path(__file__).parent}"
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "hunt",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run(words: list[str], folder: Path, seconds: int | None = None) -> int | None:
    """pytest's exit status; None where it took more than `seconds` of CPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(folder), stdout=nothing, stderr=nothing
    ) as process:
        began = time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            late = time.monotonic() - began > trials.PATIENCE * (seconds or 0)
            if seconds is not None and (late or cpu_seconds(process.pid) > seconds):
                process.kill()
                process.wait()
                return None
        return process.returncode


def cpu_seconds(pid: int) -> float:
    """What a process has had so far; 0 for one that is over."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")


def digest(paths: list[Path]) -> str:
    """Changes when one of these files does."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def covered(folder: Path, workers: int, tests: list[str], kept: Path | None) -> Cover:
    """Run `tests` once on the code as it is: those of `kept` that have not changed are known."""
    found = {each: sorted((ROOT / each).rglob("test_*.py")) or [ROOT / each] for each in tests}
    files = [file for inside in found.values() for file in inside if file != ROOT / ELSEWHERE]
    shared = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    code = digest([path for path in shared if not path.name.startswith("test_")])
    now = {str(path.relative_to(ROOT)): digest([path]) for path in files}
    known: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    if known.get("code") != code:
        known = {"code": code, "files": {}, "lines": {}, "imported": {}, "seconds": {}}
    new = [file for file, each in now.items() if known["files"].get(file) != each]
    for kind in ("lines", "seconds"):
        known[kind] = {
            test: each
            for test, each in known[kind].items()
            if (file := test.partition("::")[0]) in now and file not in new
        }
    if new:
        _cover(folder, workers, new, known)
    known["files"] = now
    if kept:
        kept.write_text(json.dumps(known))
    return Cover(known)


def _cover(folder: Path, workers: int, tests: list[str], known: dict[str, Any]) -> None:
    import coverage

    data, report = folder / "coverage", folder / "junit.xml"
    os.environ["COVERAGE_FILE"] = str(data)
    rooms = [f"--cov=ganger.{room}" for room in ROOMS]
    words = [
        "-p",
        "clocks",
        "-n",
        str(workers),
        *rooms,
        "--cov-context=test",
        "--cov-report=",
        "--timeout=0",
    ]
    if (status := run([*words, f"--junitxml={report}", *tests], folder)) not in (0, 1):
        raise SystemExit(f"the tests do not run on the code as it is (pytest: {status})")
    passed = dict(_times(report))
    lines = coverage.CoverageData(str(data))
    lines.read()
    for path in lines.measured_files():
        file = str(Path(path).relative_to(folder / "src"))
        early = set(known["imported"].get(file, []))
        for line, contexts in lines.contexts_by_lineno(path).items():
            if "" in contexts:
                early.add(line)
            for test in {each.rpartition("|")[0] for each in contexts if "\n" not in each}:
                if test in passed:
                    known["lines"].setdefault(test, {}).setdefault(file, []).append(line)
        known["imported"][file] = sorted(early)
    known["seconds"].update(passed)


def _times(report: Path) -> Iterator[tuple[str, float]]:
    """Of each test that passed: how much CPU it took. Others are named, and meet no mutant."""
    for case in Xml.parse(report).iter("testcase"):
        parts = case.attrib["classname"].split(".")
        at = next((i for i, part in enumerate(parts) if part.startswith("test_")), None)
        if at is None:
            raise SystemExit(f"{case.attrib['name']} cannot be imported")
        file = "/".join(parts[: at + 1]) + ".py"
        name = "::".join([file, *parts[at + 1 :], case.attrib["name"]])
        if case.find("failure") is not None or case.find("error") is not None:
            print(f"fails on the code as it is: {name}", flush=True)
            continue
        clock = case.find(f"properties/property[@name='{clocks.NAME}']")
        seconds = case.attrib["time"] if clock is None else clock.attrib["value"]
        yield name, float(seconds)


class Bench:
    """A worker: a process that has the tests in memory, and a folder for the slow way."""

    def __init__(self, place: Path, clean: Path, tests: list[str]) -> None:
        shutil.copytree(clean / "src", place / "src")
        self.place = place
        words = [sys.executable, str(Path(trials.__file__)), str(clean / "src"), *tests]
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(clean),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def judged(self, mutant: Mutant, cover: Cover, quick: bool = True) -> str:
        """`killed`, `timed out`, `survived`, or `not executed` by any test."""
        tests = cover.of(mutant)
        if not tests:
            return "not executed"
        verdict = trials.ELSEWHERE
        if quick and not cover.made_early(mutant):
            verdict = self._quickly(mutant, cover, tests)
        return self._slowly(mutant, cover, tests) if verdict == trials.ELSEWHERE else verdict

    def _quickly(self, mutant: Mutant, cover: Cover, tests: list[str]) -> str:
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None
        assert answers is not None
        seconds = [20 + 8 * cover.seconds.get(test, 0.0) for test in tests]
        trial = {
            "file": mutant.file,
            "line": mutant.line,
            "after": mutant.after,
            "tests": tests,
            "seconds": seconds,
        }
        print(json.dumps(trial), file=asked, flush=True)
        for answer in answers:
            if (word := answer.strip()) != trials.READY:
                return word
        raise SystemExit("the tests could not be collected, or the process that has them is gone")

    def _slowly(self, mutant: Mutant, cover: Cover, tests: list[str]) -> str:
        path = self.place / "src" / mutant.file
        original = path.read_text()
        lines = original.split("\n")
        lines[mutant.line - 1] = mutant.after
        listed = self.place / "tests.txt"
        listed.write_text("\n".join(tests))
        patience = 60 + round(5 * sum(cover.seconds.get(test, 0.0) for test in tests))
        path.write_text("\n".join(lines))
        try:
            status = run(["-x", "-n", "0", "--timeout=0", f"@{listed}"], self.place, patience)
            died = trials.TIMED_OUT if status is None else trials.KILLED
            return died if status != 0 else trials.SURVIVED
        finally:
            path.write_text(original)

    def close(self) -> None:
        """End the process: it has no more trials to answer."""
        self.process.communicate()


def judge_all(mutants: list[Mutant], cover: Cover, benches: list[Bench], quick: bool) -> list[str]:
    """The verdict of each."""
    free: SimpleQueue[Bench] = SimpleQueue()
    for bench in benches:
        free.put(bench)
    began = time.monotonic()
    told: list[str] = []

    def one(mutant: Mutant) -> str:
        bench = free.get()
        try:
            verdict = bench.judged(mutant, cover, quick)
        finally:
            free.put(bench)
        told.append(verdict)
        spent = time.monotonic() - began
        left = spent / len(told) * (len(mutants) - len(told))
        died = sum(each in DEAD for each in told)
        words = f"{len(told)} of {len(mutants)} in {spent:.0f} s ({died} died, {left:.0f} s left)"
        change = f"{mutant.before.strip()} -> {mutant.after.strip()}"
        print(f"{words}: {verdict}: {mutant.file}:{mutant.line}: {change}", flush=True)
        return verdict

    with ThreadPoolExecutor(len(benches)) as pool:
        return list(pool.map(one, mutants))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, help="drawn by chance, and shown, unless given")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=[f"tests/{room}" for room in TESTS])
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS))
    parser.add_argument("--least", type=float, default=0.9, help="the share that is to die")
    parser.add_argument("--cover", type=Path, help="a file that keeps which test executes what")
    parser.add_argument("--slow", action="store_true", help="a new process for every mutant")
    parser.add_argument("--list", action="store_true", help="only show the mutants")
    parser.add_argument("--control", action="store_true", help="leave the drawn lines as they are")
    parser.add_argument(
        "--again",
        action="store_true",
        help="only write the page again, by mutants.toml as it is now",
    )
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    return options


def main() -> int:
    """Draw, try, print, write the page; 1 if fewer than `--least` of those that differ died."""
    options = arguments()
    if options.again:
        write()
        return 0
    mutants = draw(options.count, options.seed, ROOT / "src", options.rooms)
    if options.control:
        mutants = [mutant._replace(after=mutant.before) for mutant in mutants]
    print(f"seed {options.seed}: {len(mutants)} mutants", flush=True)
    if options.list:
        for mutant in mutants:
            print(
                f"{mutant.file}:{mutant.line}\n  {mutant.before.strip()}\n  {mutant.after.strip()}"
            )
        return 0
    stamp, began = made("--cover"), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / "clean"
        shutil.copytree(ROOT / "src", clean / "src")
        cover = covered(clean, options.workers, options.tests, options.cover)
        places = [Path(folder) / str(number) for number in range(options.workers)]
        benches = [Bench(place, clean, options.tests) for place in places]
        try:
            verdicts = judge_all(mutants, cover, benches, not options.slow)
        finally:
            for bench in benches:
                bench.close()
    found = {
        "seed": options.seed,
        "made": stamp,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "mutants": len(mutants),
        "late": verdicts.count(trials.TIMED_OUT),
        "load": load(),
        "alive": [
            [*mutant.key, verdict]
            for mutant, verdict in zip(mutants, verdicts, strict=True)
            if verdict not in DEAD
        ],
    }
    if options.control:
        print(f"{len(found['alive'])} of {len(mutants)} unchanged lines survived")
        return int(len(found["alive"]) < len(mutants))
    differ, died, _ = counted(found)
    print(f"{died} of {differ} died ({died / differ:.1%}); {len(mutants) - differ} are equivalent")
    if not options.no_write:
        write(found)
    return 0 if died / differ >= options.least else 1


def load() -> str:
    """What ran beside this: load averages of one, five and fifteen minutes."""
    return ", ".join(f"{each:.1f}" for each in os.getloadavg())


def counted(found: dict[str, Any]) -> tuple[int, int, list[list[str]]]:
    """Of a run: how many differ from the original by what is known now, how many of these died,
    and those that did not (file, before, after, verdict)."""
    known = equivalents(PAGE.with_suffix(".toml"))
    left = [row for row in found["alive"] if tuple(row[:3]) not in known]
    differ = found["mutants"] - (len(found["alive"]) - len(left))
    return max(differ, 1), differ - len(left), left


def write(*more: dict[str, Any]) -> None:
    """The page of the last three seeds, whose figures stand in it as JSON as well."""
    runs: list[dict[str, Any]] = []
    if PAGE.exists():
        runs = [json.loads(row) for row in re.findall(r"<!-- run (.*) -->", PAGE.read_text())]
    runs = [*runs, *more][-3:]
    last = f"Made by {runs[-1]['made']}." if runs else "Nothing was tried yet."
    parts = [f"# Mutants\n\n{last}\n\n{(__doc__ or '').split(chr(10) * 2, 2)[2].strip()}"]
    parts.append(
        "| seed | mutants | equivalent | died of the others | of all: out of time"
        " | minutes | load at the end | made by |\n|---:|---:|---:|---:|---:|---:|:---|:---|"
    )
    for each in runs:
        differ, died, _ = counted(each)
        same = each["mutants"] - differ
        share = f"{died} of {differ} ({died / differ:.1%})"
        cells = (
            each["seed"],
            each["mutants"],
            same,
            share,
            each.get("late", ""),
            each["minutes"],
            each.get("load", ""),
            each["made"],
        )
        parts[-1] += f"\n| {' | '.join(map(str, cells))} |"
    for each in runs:
        rows = [
            f"- `{file}` {verdict}: `{before}` -> `{after}`"
            for file, before, after, verdict in counted(each)[2]
        ]
        parts.append(f"## Survivors of seed {each['seed']}\n\n" + ("\n".join(rows) or "None."))
    parts += [f"<!-- run {json.dumps(each)} -->" for each in runs]
    PAGE.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
