"""Functions as jobs: `ganger.Client().submit(train, 0.1, gpus=1)` gives a future.

The function must be importable where the job runs, or stand in the script that submits it; it and
its arguments travel by pickle, through files in the state folder. For one machine, or machines that
share that folder.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ganger.client import connection
from ganger.client.answers import Changed, JobDetail, Submitted
from ganger.client.call import Outcome, keep
from ganger.client.environment import environment
from ganger.client.request import JobRequest, convert
from ganger.core.errors import GangerError

T = TypeVar("T")
LOOK_SECONDS: Final = 0.1
_PAGE = 200


class JobFailed(GangerError):  # noqa: N818 - reads as a sentence
    """The job ended without a result: it was cancelled, killed, out of time."""


class JobFuture(Future[T], Generic[T]):
    """What a job will return. `job` is its number."""

    def __init__(self, client: Client, job: int, folder: Path) -> None:
        super().__init__()
        self.job = job
        self.folder = folder
        self._client = client

    def cancel(self) -> bool:
        """Cancel the job; False if it was over before."""
        if self.done():
            return False
        try:
            self._client.order(self.job, "cancel")
        except connection.Refusal:
            return False
        gone = super().cancel()
        self.set_running_or_notify_cancel()  # tells who waits for it
        return gone


class Client(connection.Client):
    """A connection whose `submit` and `map` look like those of `concurrent.futures`."""

    def __init__(self, root: Path | None = None, **more: Any) -> None:
        super().__init__(root, **more)
        self._open: dict[int, JobFuture[Any]] = {}
        self._mutex = threading.Lock()
        self._watcher: threading.Thread | None = None

    def submit(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        kwargs: dict[str, Any] | None = None,
        **request: Any,
    ) -> JobFuture[T]:
        """Run `function(*args, **kwargs)` as a job. `request`: fields of JobRequest (`gpus=2`,
        `time_limit="1h"`). Raises BadInput."""
        folder = keep(self.places.root, function, args, kwargs or {})
        fields: dict[str, Any] = {
            "name": getattr(function, "__name__", "call"),
            "cwd": str(Path.cwd()),
            "env": environment(None),
            **request,
            "command": [sys.executable, "-m", "ganger.client.call", str(folder)],
        }
        asked: JobRequest = convert(fields, "submit")
        answer: Submitted = self.call("POST", "/v1/jobs", Submitted, body=asked)
        future: JobFuture[T] = JobFuture(self, answer.job, folder)
        with self._mutex:
            self._open[answer.job] = future
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return future

    def map(
        self, function: Callable[..., T], *iterables: Iterable[Any], **request: Any
    ) -> Iterator[T]:
        """One job per tuple of arguments; the results in order."""
        futures = [
            self.submit(function, *args, **request) for args in zip(*iterables, strict=False)
        ]
        return (future.result() for future in futures)

    def order(self, job: int, verb: str) -> None:
        """Say `cancel`, `hold` and their like of a job."""
        with self._another() as other:
            other.call("POST", f"/v1/jobs/{job}/{verb}", Changed)

    def _another(self) -> connection.Client:
        """A connection for another thread."""
        return connection.Client(
            self.places.root if not self._url else None, url=self._url, token=self._token
        )

    def _watch(self) -> None:
        """Complete futures whose jobs are over, until none is open."""
        pause = threading.Event()
        with self._another() as other:
            while True:
                with self._mutex:
                    jobs = list(self._open)
                    if not jobs:
                        self._watcher = None
                        return
                for first in range(0, len(jobs), _PAGE):
                    self._look(other, jobs[first : first + _PAGE])
                pause.wait(LOOK_SECONDS)

    def _look(self, other: connection.Client, jobs: list[int]) -> None:
        path = f"/v1/jobs/{','.join(map(str, jobs))}"
        try:
            found: list[JobDetail] = other.call("GET", path, list[JobDetail])
        except connection.NoDaemon:
            return  # it will be back
        for detail in found:
            if detail.finished is not None:
                with self._mutex:
                    future = self._open.pop(detail.job)
                complete(future, detail)


def complete(future: JobFuture[Any], detail: JobDetail) -> None:
    """Give the future what its job left behind."""
    if future.cancelled():
        return
    try:
        outcome: Outcome = pickle.loads((future.folder / "result").read_bytes())
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(pickle.loads(outcome.value))
    except FileNotFoundError:
        why = f"job {detail.job} is {detail.state.lower()}"
        future.set_exception(JobFailed(why + (f": {detail.reason}" if detail.reason else "")))
    except Exception as error:  # what cannot be unpickled here
        future.set_exception(error)
