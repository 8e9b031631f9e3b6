"""How many GPUs nodes have: asked once, and again where a node is not known or some time passed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from ganger.client.answers import NodeAnswer
from ganger.web.backend import Backend

KEPT_SECONDS: Final = 60.0
"""A node that went may come back as another machine."""


class Nodes:
    """The nodes of the daemon behind `backend`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._gpus: dict[str, int] = {}
        self._asked = -KEPT_SECONDS

    async def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The number of GPUs of each of these nodes that is there. Raises NoDaemon."""
        wanted = list(names)
        old = time.monotonic() - self._asked > KEPT_SECONDS
        if old or any(name not in self._gpus for name in wanted):
            answers: list[NodeAnswer] = await self._backend.get("/v1/nodes", list[NodeAnswer])
            self._gpus = {node.name: node.gpus for node in answers}
            self._asked = time.monotonic()
        return {name: self._gpus[name] for name in wanted if name in self._gpus}
