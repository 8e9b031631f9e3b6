"""Pieces of work in processes of their own: few at once, bounded, and heard from as they go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput

AT_ONCE: Final = 2
WAITING_MAX: Final = 8
KEPT_MAX: Final = 32
"""So many pieces of work are remembered that are over."""
SECONDS_MAX: Final = 180
"""Of a processor, for one piece; in time, four times as many: it is nice to all others."""
MEMORY_MAX: Final = 4 << 30
"""Bytes of addresses."""
_LINE_MAX: Final = 16 << 20
_DIGITS_MAX: Final = 12
_LARGE: Final = {"compare": ("traces", "cluster"), "lab": ("text",)}
"""By kind: what is asked and not kept when it is done."""
OVER: Final = ("done", "failed", "ended")


class Heard(msgspec.Struct, omit_defaults=True):
    """A line of a process that works: how far it is, a part of the result by its name, the result,
    or `why` there is none and what would `mend` that."""

    done: int = 0
    total: int = 0
    name: str = ""
    part: Any = None
    result: msgspec.Raw = msgspec.Raw(b"")
    why: str = ""
    mend: str = ""


@dataclass
class Work:
    """One piece. `state`: waits, works, done, failed (`why`), or ended by somebody; `parts` came
    before the end."""

    number: int
    kind: str
    asked: dict[str, Any]
    state: str = "waits"
    done: int = 0
    total: int = 0
    parts: dict[str, Any] = field(default_factory=dict)
    result: bytes = b""
    why: str = ""
    began: float = field(default_factory=time.time)
    task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in OVER


class Pool:
    """All pieces of work of this process."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._works: OrderedDict[int, Work] = OrderedDict()
        self._last = 0

    def start(self, kind: str, asked: dict[str, Any]) -> Work:
        """Have it done. The same that is being done already is not begun twice. Raises BadInput."""
        open_ = [work for work in self._works.values() if not work.over]
        for work in open_:
            if (work.kind, work.asked) == (kind, asked):
                return work
        if len(open_) >= WAITING_MAX:
            raise BadInput(
                f"{len(open_)} simulations are waiting already", mend="wait for one of them"
            )
        self._last += 1
        made = self._works[self._last] = Work(self._last, kind, asked)
        made.task = asyncio.create_task(self._run(made))
        for number, work in list(self._works.items()):
            if len(self._works) > KEPT_MAX and work.over:
                del self._works[number]
        return made

    def called(self, number: str) -> Work | None:
        """The piece whose number a path has; None if there is none or it is too long ago."""
        plain = number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
        return self._works.get(int(number)) if plain else None

    def listed(self) -> list[Work]:
        """All that are remembered, the last first."""
        return list(reversed(self._works.values()))

    def end(self, work: Work) -> None:
        """Let it be."""
        if not work.over:
            work.state = "ended"
            if work.task is not None:
                work.task.cancel()

    async def close(self) -> None:
        """End all."""
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for work in self._works.values():
            self.end(work)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, work: Work) -> None:
        try:
            async with self._turn:
                work.state = "works"
                await asyncio.wait_for(self._child(work), 4 * SECONDS_MAX)
        except TimeoutError:
            self._failed(work, "it took too long")
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._failed(work, f"it could not be done: {error}")
        finally:
            large = _LARGE.get(work.kind, ())
            work.asked = {key: each for key, each in work.asked.items() if key not in large}

    async def _child(self, work: Work) -> None:
        """One process from its begin to its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ganger.web.background.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_MAX,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            order = {"kind": work.kind, "asked": work.asked}
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
            while line := await process.stdout.readline():
                self._hear(work, msgspec.json.decode(line, type=Heard))
            code = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if not work.over:
            too_long = code in (-24, -9)  # SIGXCPU, and what follows if that is not enough
            self._failed(
                work,
                f"it took more than {SECONDS_MAX} s of a processor"
                if too_long
                else f"its process ended with {code}",
            )

    def _hear(self, work: Work, said: Heard) -> None:
        if said.name:
            work.parts[said.name] = said.part
        if said.total:
            work.done, work.total = said.done, said.total
        if said.result:
            work.result, work.state = bytes(said.result), "done"
        if said.why:
            self._failed(work, said.why + (f": {said.mend}" if said.mend else ""))

    def _failed(self, work: Work, why: str) -> None:
        work.state, work.why = "failed", why
