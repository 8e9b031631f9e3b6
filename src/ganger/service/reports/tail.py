"""What a job wrote, read here, or by the agent of the machine that it ran on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.engines.agent.attempt.launch import log_in
from ganger.engines.agent.protocol import Read
from ganger.engines.agent.reading import Piece, read_piece
from ganger.service.http.app_context import AppContext
from ganger.service.jobs.launches import pattern

END: Final = 1 << 62
LOOK_SECONDS: Final = 0.1
AT_SPEED: Final = 20
"""Of one user so many outputs are looked at so often; of more each the less often."""
ANSWER_SECONDS: Final = 10.0
"""So long an agent may take to send a piece."""


class _Place(NamedTuple):
    """Where an attempt writes: the machine's node (-1: it was never placed), which of the gang's
    nodes that is, whether more may come."""

    attempt: int
    node: int
    rank: int
    more: bool


class Source:
    """One output of one attempt (0: of the last one), on its first node or on the one named `node`.
    Make it with `opened`."""

    def __init__(self, world: AppContext, row: int, stream: str, attempt: int, node: str) -> None:
        self._world, self._row, self._asked, self._node = world, row, attempt, node
        daemon = world.daemon
        with daemon.lock:
            facts = daemon.reader.facts(row)
        launch = facts.launch
        stated = launch.output if stream == "output" or not launch.error else launch.error
        self._path = pattern(stated, facts, row)
        # A file that its user named must be that user's own: who reads it may read more than they.
        self._owner = launch.uid if self._path and launch.uid > 0 else -1

    @classmethod
    async def opened(
        cls, world: AppContext, row: int, stream: str, attempt: int, node: str = ""
    ) -> Source:
        """Raises BadInput if it must not or cannot be read."""
        source = cls(world, row, stream, attempt, node)
        place = source._place()
        await source._next(place, END, 0)
        return source

    async def piece(self, at: int, lines: int) -> Piece:
        """What follows byte `at`, or with -1 the last `lines` lines; at most 256 KiB. Raises
        BadInput if it must not or cannot be read."""
        return await self._next(self._place(), at, lines)

    def _place(self) -> _Place:
        daemon = self._world.daemon
        with daemon.lock:
            jobs = daemon.kernel.jobs
            last, phase = int(jobs.attempt[self._row]), Phase(jobs.phase[self._row])
            if self._asked > last:
                raise BadInput(f"there were {last} attempts", where="attempt")
            attempts = daemon.reader.attempts(self._row)
        attempt = self._asked or last
        more = phase in HOLDS_DEVICES if self._asked else phase < Phase.FINISHED
        for one in attempts:
            if one.attempt == attempt and one.placement:
                nodes = list(dict.fromkeys(slot.node for slot in one.placement))
                rank = self._rank(nodes)
                return _Place(attempt, nodes[rank], rank, more and attempt == last)
        return _Place(attempt, -1, 0, more and attempt == last)

    def _rank(self, nodes: list[int]) -> int:
        names = [self._world.daemon.kernel.nodes.names[node] for node in nodes]
        if self._node and self._node not in names:
            raise BadInput(
                f"it did not run on {self._node}",
                where="node",
                mend=f"it ran on {', '.join(names)}",
            )
        return names.index(self._node) if self._node else 0

    async def read(self, lines: int, follow: bool, user: str = "") -> AsyncIterator[bytes]:
        """The text, from the last `lines` lines on (0: all); with `follow` what comes, too, over
        further attempts, until the job is over. A machine that is away is waited for then. `user`
        asks."""
        following = self._world.following
        following[user] += 1
        try:
            async for piece in self._read(lines, follow, user):
                yield piece
        finally:
            following[user] -= 1
            if not following[user]:
                del following[user]

    async def _read(self, lines: int, follow: bool, user: str) -> AsyncIterator[bytes]:
        place, at = self._place(), -1
        while True:
            present = self._place()
            while piece := await self._tried(place, at, lines, follow):
                at = max(at, piece.at)
                if not piece.data:
                    break
                yield piece.data
            if not follow or self._world.leaving:
                return
            if present.attempt != place.attempt:
                same = self._path and present.node == place.node
                place, at = present, at if same else -1
            elif not present.more:
                return
            else:
                place = present
                await asyncio.sleep(LOOK_SECONDS * max(1, self._world.following[user] / AT_SPEED))

    async def _tried(self, place: _Place, at: int, lines: int, follow: bool) -> Piece | None:
        try:
            return await self._next(place, at, lines)
        except BadInput:
            if follow:
                return None
            raise

    async def _next(self, place: _Place, at: int, lines: int) -> Piece:
        """What follows `at` (-1: the last `lines` lines), and where that ends."""
        order = Read(0, self._row, place.attempt, place.rank, self._path, self._owner, at, lines)
        told = self._world.daemon.engine.read(place.node, order) if place.node >= 0 else None
        if told is None:
            path = Path(
                self._path or log_in(self._world.logs, self._row, place.attempt, place.rank)
            )
            return await asyncio.to_thread(read_piece, path, at, lines, self._owner)
        try:
            text = await asyncio.wait_for(asyncio.wrap_future(told), ANSWER_SECONDS)
        except TimeoutError:
            raise BadInput(
                "the machine that holds the output does not answer", where="output"
            ) from None
        if text.why:
            raise BadInput(text.why, where="output")
        return Piece(text.at, text.data)
