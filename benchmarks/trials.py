"""Try mutants one after the other in copies of a process that has the tests in memory.

    python benchmarks/trials.py SOURCE TEST...      # trials come on stdin, answers go to stdout

Tests are imported and collected once. Then each trial (a line of JSON: `file`, `line`, `after`,
`tests`, CPU `seconds` that each test may take) is a fork, in which the function that holds the line
gets its mutated code wherever it lives, and the named tests run in their order until one fails.
The answer is `killed`, `timed out` (a test took more CPU than it may: a loop that does not end),
`survived`, or `elsewhere`: this line cannot be exchanged in a running process (it stands outside
functions, or made something while tests were collected), so another way has to be taken.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any

import pytest

READY, KILLED, SURVIVED, ELSEWHERE = "ready", "killed", "survived", "elsewhere"
TIMED_OUT = "timed out"
PATIENCE = 10
"""Wall-clock time that a trial may take for each second of CPU: a busy machine kills no mutant."""
MEMORY = 6 << 30
"""A mutant that takes more bytes than this is over: it must not take the machine with it."""
Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


class ElsewhereError(Exception):
    """This line cannot be exchanged in a running process."""


def holder(text: str, line: int) -> tuple[int, int]:
    """First and last line of the outermost function whose body holds `line`."""

    def inside(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield each
            elif not isinstance(each, ast.expr):
                yield from inside(each)

    for found in inside(ast.parse(text)):
        end = found.end_lineno or 0
        if found.body[0].lineno <= line <= end:
            return min(found.lineno, *(each.lineno for each in found.decorator_list), end), end
    raise ElsewhereError


def functions(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions that stand in a module or its classes."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if not each.co_flags & 1:  # CO_OPTIMIZED: a function's, not a class body's
                yield from functions(each)
            elif not each.co_name.startswith("<"):
                yield each


class Living:
    """All functions and caches of Ganger in this process."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.functions: dict[Key, list[FunctionType]] = {}
        self.caches: list[Any] = []
        kind = type(functools.cache(len))
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(f"{source}/"):
                code = each.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self.functions.setdefault(key, []).append(each)
            elif type(each) is kind and each.__module__.startswith("ganger"):
                self.caches.append(each)

    def exchange(self, file: str, line: int, after: str) -> None:
        """Let what lives of the function that holds the line do what it says now."""
        path = self.source / file
        text = path.read_text()
        begin, _ = holder(text, line)
        lines = text.split("\n")
        lines[line - 1] = after
        code = compile("\n".join(lines), str(path), "exec", dont_inherit=True)
        found = [each for each in functions(code) if each.co_firstlineno == begin]
        if len(found) != 1:
            raise ElsewhereError
        key = (str(path), found[0].co_qualname, begin)
        within = f"{key[1]}.<locals>."
        made = any(each[0] == key[0] and each[1].startswith(within) for each in self.functions)
        if made or key not in self.functions:
            raise ElsewhereError
        for each in self.functions[key]:
            try:
                each.__code__ = found[0]
            except ValueError as error:  # it closes over less than it did
                raise ElsewhereError from error
        for cache in self.caches:
            cache.cache_clear()


class Trials:
    """pytest with another way to run what it has collected: by trials."""

    def __init__(self, source: Path, ask: IO[str], answer: IO[str], notes: IO[str]) -> None:
        self.source, self.ask, self.answer, self.notes = source, ask, answer, notes
        self.failed, self.until = False, 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice that one failed, and say which."""
        self.failed = self.failed or report.failed
        if report.failed:
            print(f"  by {report.nodeid}", file=self.notes, flush=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer trials until there are no more."""
        items = {item.nodeid: item for item in session.items}
        living = Living(self.source)
        gc.freeze()
        print(READY, file=self.answer, flush=True)
        for line in self.ask:
            trial = json.loads(line)
            chosen = [items[name] for name in trial["tests"]]
            print(self.tried(living, trial, chosen), file=self.answer, flush=True)
        return True

    def tried(self, living: Living, trial: dict[str, Any], items: list[pytest.Item]) -> str:
        """What a copy of this process found out."""
        child = os.fork()
        if child == 0:
            try:
                status = self._copy(living, trial, items)
            except ElsewhereError:
                status = 3
            except BaseException:
                status = 1
            os._exit(status)
        ended = os.pidfd_open(child)
        in_time, _, _ = select.select([ended], [], [], 60 + PATIENCE * sum(trial["seconds"]))
        if not in_time:
            os.kill(child, signal.SIGKILL)
        os.close(ended)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests left behind
        said = {0: SURVIVED, 3: ELSEWHERE, 4: TIMED_OUT}
        return said.get(os.waitstatus_to_exitcode(status), KILLED) if in_time else TIMED_OUT

    def _look(self, number: int, frame: object) -> None:
        """End this copy if the test took too much CPU."""
        if time.process_time() > self.until:
            os._exit(4)

    def _copy(self, living: Living, trial: dict[str, Any], items: list[pytest.Item]) -> int:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            living.exchange(trial["file"], trial["line"], trial["after"])
        except SyntaxError:
            return 1
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)  # one of CPU time would make its clock coarse
        for item, after, seconds in zip(items, [*items[1:], None], trial["seconds"], strict=True):
            self.until = time.process_time() + seconds
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return 1
        return 0


def main(source: Path, tests: list[str]) -> int:
    """Collect `tests`, and answer."""
    ask, answer, notes = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--timeout=0", *tests]
    return int(pytest.main(words, plugins=[Trials(source, ask, answer, notes)]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
