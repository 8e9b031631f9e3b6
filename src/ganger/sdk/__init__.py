"""What a job imports to work with Ganger: one file, standard library only, Python 3.9 or newer.

>>> from ganger import sdk
>>> for step in range(first, total):                                # doctest: +SKIP
...     train(step)
...     sdk.progress(step + 1, total, loss=loss)
...     if sdk.should_checkpoint():
...         save(sdk.checkpoint_dir / "model.pt")
...         sdk.leave(step + 1)

`progress` reports how far the job is, and so how fast it goes. When Ganger wants the job's devices
back, `should_checkpoint()` turns true: the job saves and calls `leave(step)`, which ends it with
exit code 75 (EX_TEMPFAIL); Ganger starts it again later. A job of several workers must agree on the
step at which all leave: let rank 0 ask and broadcast the answer. Work that is saved in between is
reported by `saved(step)`: a job that fails resumes from there in Ganger's books.

A job that shares its devices may call `step()` after each step: where Ganger gives the devices'
time to another job, it waits there, at a border of its own, instead of being held anywhere.

Outside Ganger every call is harmless: nothing is sent, no file is made, no signal handler is set,
`should_checkpoint()` is false, and the job has rank 0 of 1.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

__all__ = [
    "PREEMPTED", "checkpoint_dir", "configuration", "gradient_statistics", "inside", "leave",
    "listens", "local_rank", "number", "on_preempt", "progress", "rank", "report", "reported",
    "saved", "served", "should_checkpoint", "step", "until", "world_size",
]  # fmt: skip

PREEMPTED = 75
"""The exit code of a job that saved because it was asked to leave (EX_TEMPFAIL)."""
_EVERY = 0.05  # seconds between reports; what comes faster is told by the next one
_Save = TypeVar("_Save", bound=Callable[[], Any])

rank: int
"""This worker's number in its gang, from 0."""
local_rank: int
"""This worker's number on its node."""
world_size: int
"""Workers in the gang."""
checkpoint_dir: Path
"""Where the job's checkpoints belong: the same folder for every attempt of the job."""
configuration: dict[str, str]
"""What a trial of a search tries: its parameters by name; empty for other jobs."""
number: int
"""The number of a trial or of a replica among the children of its parent, from 0."""
until: float
"""The step at which a trial is judged next, as `report` counts them and as was known when it was
started; infinite if it was not. A trial goes on beyond it: it is told to leave if others go
first."""
reported = 0.0
"""The step that `report` told of last; 0 before the first."""


def __getattr__(name: str) -> Any:
    # Asked for late: an interpreter that was started ahead imports this before it has a job.
    if name == "rank":
        return int(os.environ.get("RANK", "0"))
    if name == "local_rank":
        return int(os.environ.get("LOCAL_RANK", "0"))
    if name == "world_size":
        return int(os.environ.get("WORLD_SIZE", "1"))
    if name == "checkpoint_dir":
        return Path(os.environ.get("GANGER_CHECKPOINT_DIR", "checkpoints"))
    if name == "configuration":
        return json.loads(os.environ.get("GANGER_CONFIGURATION", "{}"))
    if name == "number":
        return int(os.environ.get("GANGER_CHILD", "0"))
    if name == "until":
        return float(os.environ.get("GANGER_UNTIL", "inf"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def inside() -> bool:
    """Whether Ganger started this process."""
    return "GANGER_DIR" in os.environ


class _Reports:
    """Datagrams to this job's supervisor. What cannot be sent is dropped: the job goes first."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.owner = 0
        self.waiting: dict[str, Any] = {}
        self.sent_at = float("-inf")
        self.lock = threading.RLock()  # a signal handler may interrupt a report

    def add(self, urgent: bool = False, **fields: Any) -> None:
        if not inside() or os.environ.get("RANK", "0") != "0":
            return
        with self.lock:
            if "metrics" in fields and "metrics" in self.waiting:
                fields["metrics"] = {**self.waiting["metrics"], **fields["metrics"]}
            self.waiting.update(fields)
            if urgent or time.monotonic() - self.sent_at >= _EVERY:
                self.flush()

    def flush(self) -> None:
        with self.lock:
            if not self.waiting or not inside():
                return
            try:
                data = json.dumps(self.waiting).encode()
                self._open().send(data)
                self.waiting = {}
            except (OSError, TypeError, ValueError):
                self._close()
            self.sent_at = time.monotonic()

    def surely(self, **fields: Any) -> None:
        """Send it, and wait as long as the supervisor takes no more."""
        data = json.dumps(fields).encode()
        self.flush()
        sock = self._connected()
        try:
            sock.send(data)
        finally:
            sock.close()

    def _open(self) -> socket.socket:
        if self.socket is None or self.owner != os.getpid():  # a fork must not share it
            self._close()
            sock = self._connected()
            sock.setblocking(False)
            self.socket, self.owner = sock, os.getpid()
        return self.socket

    @staticmethod
    def _connected() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Through the folder's descriptor: a socket's own path may have only 107 bytes.
        folder = os.open(os.environ["GANGER_DIR"], os.O_RDONLY | os.O_DIRECTORY)
        try:
            sock.connect("/proc/self/fd/%d/sdk" % folder)  # noqa: UP031
        except OSError:
            sock.close()
            raise
        finally:
            os.close(folder)
        return sock

    def _close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


_reports = _Reports()
atexit.register(_reports.flush)
_saves: list[Callable[[], Any]] = []
_asked = _listening = False


def progress(step: int, total: int = 0, **metrics: float) -> None:
    """Tell that `step` steps are done, of `total` (0: unknown); `metrics` are named numbers.

    Call it after every step: it costs microseconds, and at most twenty reports a second are sent.
    Only rank 0 is heard. Metrics that Ganger itself reads, so that policies know how fast the job
    would be at other sizes: `batch_size` (examples a step, all workers together), `batch_size_max`,
    `step_seconds` (instead of the time between two calls), `compute_seconds` (without
    synchronising), and `noise_scale` or `grad_sqr` and `grad_var` (`gradient_statistics`).
    """
    _reports.add(
        urgent=0 < total <= step,
        step=int(step),
        total=int(total),
        at=time.monotonic(),
        metrics={name: float(value) for name, value in metrics.items()},
    )


def report(step: float, *, final: bool = False, **metrics: float) -> None:
    """Tell how good the model is after `step` steps (or epochs) of training in all: this is what
    the trials of a search are judged by. `final`: no other report follows.

    Other than `progress`, no report is dropped or merged, and they arrive in order: where they come
    faster than 20 a second for long, this waits. Only rank 0 is heard. Give the metric that the
    search names (else the first counts) and at most 16 others; NaN or an infinite value of it says
    that the trial has broken down. Raises ValueError for metrics that cannot be.
    """
    judged = os.environ.get("GANGER_METRIC", "")
    if not 0 < len(metrics) <= 17 or any(len(name) > 128 for name in metrics):
        raise ValueError("give 1 to 17 metrics, with names of at most 128 characters")
    if judged and judged not in metrics:
        raise ValueError("the trials of this search are judged by %r" % judged)  # noqa: UP031
    if not 0 <= float(step) < float("inf"):
        raise ValueError("step must be a number of steps")
    global reported
    reported = float(step)
    if not inside() or os.environ.get("RANK", "0") != "0":
        return
    told = {name: float(value) for name, value in metrics.items()}
    with contextlib.suppress(OSError):  # the supervisor is gone, and with it this attempt
        _reports.surely(report={"step": float(step), "final": bool(final), "metrics": told})


class _Load:
    """What a replica has counted since its start."""

    def __init__(self) -> None:
        self.told: dict[str, float] = {}
        self.at = time.monotonic()
        self.lock = threading.RLock()


_load = _Load()


def served(
    arrivals: float = 0,
    answered: float = 0,
    *,
    late: float = 0,
    dropped: float = 0,
    ongoing: float | None = None,
    queue: float | None = None,
    busy: float | None = None,
    p50: float | None = None,
    p99: float | None = None,
) -> None:
    """Tell how a replica of a service does: how many requests came, were answered, were late or
    were dropped since the last call; how many are `ongoing` and wait in its `queue` now; `busy`,
    the part of the time since the last call in which it worked, from 0 to 1; latencies in seconds.

    Recipes for services decide by that how many replicas there are. It costs microseconds: call it
    after each request, or once a second. What is counted is never lost; at most twenty reports a
    second are sent. Only rank 0 is heard.
    """
    if not inside() or os.environ.get("RANK", "0") != "0":
        return
    with _load.lock:
        now, told = time.monotonic(), _load.told
        counts = {"arrivals": arrivals, "answered": answered, "late": late, "dropped": dropped}
        if busy is not None:
            span = now - _load.at
            counts.update(busy_seconds=busy * span, seconds=span)
        for name, more in counts.items():
            told[name] = told.get(name, 0.0) + float(more)
        levels = {"ongoing": ongoing, "queue": queue, "p50": p50, "p99": p99}
        told.update({name: float(value) for name, value in levels.items() if value is not None})
        _load.at = now
        _reports.add(served=dict(told))


def listens(port: int) -> None:
    """Tell the TCP port at which a replica of a service answers, for its front. Replicas with
    `{port}` in their command need not. Only rank 0 is heard. Raises ValueError."""
    if not 0 < int(port) < 1 << 16:
        raise ValueError("%r is not a port" % (port,))  # noqa: UP031
    if not inside() or os.environ.get("RANK", "0") != "0":
        return
    with _load.lock:
        _load.told["port"] = float(int(port))
        with contextlib.suppress(OSError):  # the supervisor is gone, and with it this attempt
            _reports.surely(served=dict(_load.told))


def gradient_statistics(
    small: float, small_batch: float, large: float, large_batch: float
) -> tuple[float, float]:
    """The squared norm of the true gradient and the variance of one example's, both unbiased, from
    the mean squared norm `small` of gradients over `small_batch` examples (of each worker) and that
    of their mean over `large_batch` examples (all workers together). Average both over many steps
    before dividing: their ratio is the gradient noise scale in examples (McCandlish et al.,
    arXiv:1812.06162, appendix A.1). Raises ValueError unless `large_batch` is the larger one.
    """
    if not 0 < small_batch < large_batch:
        raise ValueError("the large batch must be larger than the small one")
    square = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    variance = (small - large) / (1.0 / small_batch - 1.0 / large_batch)
    return square, variance


def should_checkpoint() -> bool:
    """Whether Ganger wants the job to save and leave, now. Costs one look at a file."""
    global _asked, _listening
    if not _asked and inside():
        if not _listening:  # so that Ganger gives it time when it asks
            _listening = True
            _reports.add(urgent=True, listens=1)
        _asked = os.path.exists(os.path.join(os.environ["GANGER_DIR"], "leave"))
    return _asked


class _Pace:
    """For which part of the time this process may compute, as its supervisor notes it."""

    def __init__(self) -> None:
        self.file = -1
        self.rate = 1.0
        self.began = time.monotonic()
        self.said = False

    def read(self) -> float:
        if self.file < 0:
            try:
                path = os.path.join(os.environ["GANGER_DIR"], os.pardir, "rate")
                self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return 1.0
        with contextlib.suppress(OSError, ValueError):
            self.rate = min(max(float(os.pread(self.file, 16, 0)), 0.0), 1.0)
        return self.rate


_pace = _Pace()
_HELD = 0.05  # seconds between looks at the rate, while this waits


def step() -> None:
    """A step is done: where this job shares its devices and may compute for a part of the time
    only, wait as long as the step makes due. Call it after every step, in each worker; it costs
    microseconds where there is nothing to wait for, and returns at once when Ganger wants the job
    to leave."""
    if not inside():
        return
    if not _pace.said:
        _pace.said = True
        _reports.add(urgent=True, paces=1)
    now = time.monotonic()
    took = now - _pace.began
    while True:
        rate = _pace.read()
        due = now + took * (1.0 / rate - 1.0) if rate else float("inf")
        wait = due - time.monotonic()
        if wait <= 0 or should_checkpoint():
            break
        time.sleep(min(wait, _HELD))
    _pace.began = time.monotonic()


def saved(step: int) -> None:
    """Tell that a checkpoint of `step` steps is safely on disk."""
    _reports.add(urgent=True, saved=int(step))


def leave(step: int | None = None) -> NoReturn:
    """End this process because Ganger asked; `step` if a checkpoint of it was just saved."""
    if step is not None:
        _reports.add(urgent=True, saved=int(step))
    _reports.flush()
    sys.exit(PREEMPTED)


def on_preempt(save: _Save) -> _Save:
    """Call `save()` in the main thread when Ganger asks the job to leave, then `leave()`.

    For jobs without a loop of their own; use it as a decorator. `save` runs between two bytecodes
    of the main thread, so prefer `should_checkpoint()` where there is a step to finish. If `save`
    returns a number it is the step that was saved. Call this from the main thread.
    """
    if inside():
        if not _saves:
            signal.signal(signal.SIGUSR1, _leave_now)
        _saves.append(save)
        if should_checkpoint():  # it was asked for before anybody listened
            _leave_now()
    return save


def _leave_now(*_: object) -> None:
    global _asked
    _asked = True
    steps = [step for step in (save() for save in _saves) if isinstance(step, int)]
    leave(max(steps) if steps else None)
