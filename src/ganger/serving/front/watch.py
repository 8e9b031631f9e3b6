"""A thread beside the front that asks the daemon which replicas there are, and tells it how the
service does. A daemon that does not answer changes nothing: the front goes on with what it knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.client.connection import Client, Refusal
from ganger.core.errors import GangerError

EVERY_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 5.0
_NEVER: Final = (400, 403, 404)
"""Statuses of refusals that will be the same the next time."""


class ReplicaSeen(msgspec.Struct):
    """Of `ReplicaAnswer` what a front needs."""

    job: int
    attempt: int
    host: str
    port: int
    leaving: bool


class Found(msgspec.Struct):
    """The replicas of a version, or that its job is over."""

    replicas: list[ReplicaSeen]
    over: bool = False


class Watch(threading.Thread):
    """Asks until it is ended. `asked` gives the versions and, by version, the figures to tell;
    `heard` gets what was found, and None while no daemon answers. Both are called on this
    thread."""

    def __init__(
        self,
        home: Path,
        asked: Callable[[], tuple[Sequence[int], dict[int, dict[str, float]]]],
        heard: Callable[[dict[int, Found] | None], None],
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self._client = Client(home, timeout=TIMEOUT_SECONDS)
        self._asked, self._heard = asked, heard
        self._wake = threading.Event()
        self._ended = False
        self._cancelled: list[int] = []

    def end(self) -> None:
        """Ask no more."""
        self._ended = True
        self._wake.set()

    def soon(self) -> None:
        """Ask at once: something has changed."""
        self._wake.set()

    def cancel(self, job: int) -> None:
        """Cancel a version's job, once the daemon answers."""
        self._cancelled.append(job)
        self.soon()

    def run(self) -> None:
        """Until it is ended."""
        while not self._ended:
            self._wake.clear()
            jobs, figures = self._asked()
            try:
                answers = {job: self._of(job) for job in jobs}
                while self._cancelled:
                    self._post(f"/v1/jobs/{self._cancelled[0]}/cancel")
                    del self._cancelled[0]
                for job, counted in figures.items():
                    if not answers[job].over:
                        self._post(f"/v1/jobs/{job}/served", {"figures": counted})
            except GangerError:
                self._heard(None)
            else:
                self._heard(answers)
            self._wake.wait(EVERY_SECONDS)
        self._client.close()

    def _post(self, path: str, body: Any = None) -> None:
        """Raises GangerError where the daemon does not answer."""
        try:
            self._client.call("POST", path, body=body)
        except Refusal as refusal:
            if refusal.status not in _NEVER:
                raise

    def _of(self, job: int) -> Found:
        """Raises GangerError where the daemon does not say."""
        try:
            path = f"/v1/jobs/{job}/replicas"
            return Found(self._client.call("GET", path, list[ReplicaSeen]))
        except Refusal as refusal:
            if refusal.status not in _NEVER:
                raise
            return Found([], over=True)
