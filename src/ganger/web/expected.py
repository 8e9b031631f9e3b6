"""When waiting jobs are expected to start, for the list: worked out in the background while anybody
looks, for a small part of the time, and stamped with its age."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ganger.client.answers import JobAnswer, JobPage
from ganger.core.errors import GangerError
from ganger.web.backend import Backend
from ganger.web.live import Live

FIRST: Final = 200
"""So many of the jobs that wait are looked at, the first of the queue."""
REST_SECONDS: Final = 5.0
RESTS: Final = 20.0
"""After a look, a rest of so many times what it took."""
_MOVED_SECONDS: Final = 30.0


class Expected:
    """The expected starts of the first waiting jobs of the daemon behind `backend`. `at`: when they
    were worked out, Unix seconds; 0: not yet."""

    def __init__(self, backend: Backend, live: Live) -> None:
        self._backend, self._live = backend, live
        self.jobs: dict[int, JobAnswer] = {}
        self.at = 0.0

    async def run(self) -> None:
        """Look again and again until the task is cancelled."""
        seen = 0
        while True:
            began = time.monotonic()
            live = self._live
            if live.streams and live.up and live.status is not None and live.tick != seen:
                seen = self._live.tick
                if await self.look():
                    self._live.bump()
                    seen = self._live.tick
            await asyncio.sleep(max(REST_SECONDS, RESTS * (time.monotonic() - began)))

    async def look(self) -> bool:
        """Work them out now; whether what lists show is another than before."""
        try:
            page: JobPage = await self._backend.get(
                "/v1/jobs", JobPage, state="pending", expect=1, limit=FIRST, slow=True
            )
        except GangerError:  # a later look tells
            return False
        before, self.jobs = self.jobs, {job.job: job for job in page.jobs if job.expected_start}
        self.at = time.time()
        return before.keys() != self.jobs.keys() or any(
            abs((job.expected_start or 0.0) - (before[number].expected_start or 0.0))
            > _MOVED_SECONDS
            for number, job in self.jobs.items()
        )
