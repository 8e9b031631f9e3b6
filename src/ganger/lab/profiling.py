"""What an ONNX model takes on this machine: latency and memory by batch, and load times.

Sessions of onnxruntime run on the CPU. A share of the machine is so many of its cores: the threads
of a session are bound to them. Inputs are random, so a model whose work depends on what it is given
is not measured well.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from ganger.core.errors import BadInput
from ganger.serving.runtime import complaint, open_session, runtime
from ganger.workloads.models.document import FORMAT, Device, Document, Latency, Load, Model

_TYPES: Final = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
_LOADS: Final = 3
_LEAST_RUNS: Final = 10
_MOST_ELEMENTS: Final = 1 << 31
MOST_BATCH: Final = 1 << 16


@dataclass(frozen=True)
class Effort:
    """How long is measured: `warm_up` runs that do not count, then `runs` of each batch, or fewer
    (at least ten) when they have taken `seconds`. `open_length`: of dimensions of which no length
    is stated; 0: such a model is refused."""

    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    warm_up: int = 5
    runs: int = 100
    seconds: float = 5.0
    open_length: int = 0

    def __post_init__(self) -> None:
        if not self.batches or list(self.batches) != sorted(set(self.batches)):
            raise BadInput("batches do not rise", where="batches", mend="write like 1,2,4,8")
        if not 1 <= self.batches[0] <= self.batches[-1] <= MOST_BATCH:
            raise BadInput(
                f"batch {self.batches[-1]}", where="batches", mend=f"give 1 to {MOST_BATCH:,}"
            )
        if not 0 <= self.warm_up <= 10**6 or not _LEAST_RUNS <= self.runs <= 10**7:
            raise BadInput(
                f"{self.runs} runs after {self.warm_up}",
                where="runs",
                mend=f"give at least {_LEAST_RUNS} runs",
            )
        if not 0 < self.seconds <= 1e6:
            raise BadInput(f"{self.seconds:g} s", where="seconds", mend="give a time above 0")


@dataclass(frozen=True)
class Measured:
    """A models file of what was measured, and what there is to know about it."""

    document: Document
    notes: tuple[str, ...]


def measure(
    paths: Sequence[Path],
    effort: Effort,
    *,
    threads: Sequence[int] = (1,),
    device: str = "cpu",
    family: str = "",
    sizes: Mapping[str, int] | None = None,
    names: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Measure models one after the other, each in its own process. `threads`: cores of each
    profile; `sizes`: open dimensions other than the batch, by name; `names`: of the models, by
    default those of their files. Raises BadInput."""
    for path in paths:
        if not path.is_file():
            raise BadInput("there is no such file", where=str(path), mend="check the path")
    runtime("profiling")
    cores = sorted(_cores())
    for count in threads:
        if not 1 <= count <= len(cores):
            raise BadInput(
                f"{count} threads", where="threads", mend=f"this machine has {len(cores)} cores"
            )
    names = names or [path.name.removesuffix(".onnx") for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two models are called {name!r}", where="profile", mend="rename one")
    made = [
        Model(name, family, bytes=_bytes(path)) for path, name in zip(paths, names, strict=True)
    ]
    notes: list[str] = []
    for path, model in zip(paths, made, strict=True):
        for count in threads:
            progress(f"{model.name}: {count} of {len(cores)} cores")
            task = Task(
                path, tuple(cores[:count]), count / len(cores), device, effort, dict(sizes or {})
            )
            found = _in_a_process(task)
            model.latency.append(found.latency)
            model.source = found.source
            notes += found.notes
            if count == threads[0]:
                model.load = found.load
    return Measured(Document(FORMAT, [Device(device, _memory_mib())], made), tuple(notes))


@dataclass(frozen=True)
class Task:
    """What one process measures: one model on some cores."""

    path: Path
    cores: tuple[int, ...]
    share: float
    device: str
    effort: Effort
    sizes: dict[str, int]


@dataclass(frozen=True)
class _Found:
    latency: Latency
    load: Load
    source: str
    notes: list[str]


def _in_a_process(task: Task) -> _Found:
    """Measure in a process of its own, whose memory nobody else has used before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_measured, task).result()
        except BrokenProcessPool:
            raise BadInput(
                "the measuring process was killed",
                where=str(task.path),
                mend="there may be too little memory: measure smaller batches",
            ) from None


def _measured(task: Task) -> _Found:
    """Measure here, in a process that has nothing else to do."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task.cores)
    version = runtime().__version__
    source = f"ganger profile, up to {task.effort.runs} runs a batch, onnxruntime {version}"
    before = _resident_bytes()
    session = open_session(task.path, len(task.cores))
    notes: list[str] = []
    latency = _latency(session, task, before, notes)
    del session
    return _Found(latency, _load(task.path, len(task.cores)), source, notes)


def _latency(session: Any, task: Task, before: int, notes: list[str]) -> Latency:
    """Latency and memory by batch; `before`: the memory in use before there was a session."""
    path, effort, batches = task.path, task.effort, task.effort.batches
    fixed = _fixed_batch(session)
    if fixed is not None and batches != (fixed,):
        notes.append(f"{path.name}: its batch is fixed, so only batch {fixed} is measured")
        batches = (fixed,)
    rng = np.random.default_rng(0)
    mean, p99, memory = [], [], []
    for batch in batches:
        feeds = _feeds(session, batch, task.sizes, rng, str(path), effort.open_length)
        taken = _times(session, feeds, effort, f"{path}: batch {batch}")
        mean.append(float(taken.mean()))
        p99.append(float(np.quantile(taken, 0.99)))
        memory.append(max(_resident_bytes() - before, 1))
    rising = isotonic_regression(mean).x
    if (rising != mean).any():
        notes.append(
            f"{path.name}: means that fell with the batch are averaged over their"
            " neighbours; more --runs may help"
        )
    tail = np.maximum(isotonic_regression(p99).x, rising)
    resident = np.maximum.accumulate(memory).tolist() if before else []
    return Latency(
        task.device,
        task.share,
        list(batches),
        list(map(_digits, rising)),
        list(map(_digits, tail)),
        resident,
    )


def _digits(seconds: float) -> float:
    """To four digits, which is more than such a measurement is worth."""
    return float(f"{seconds:.4g}")


def _times(session: Any, feeds: dict[str, Any], effort: Effort, where: str) -> NDArray[np.float64]:
    """Seconds of each run that counts."""
    try:
        for _ in range(effort.warm_up):
            session.run(None, feeds)
        taken: list[float] = []
        end = time.perf_counter() + effort.seconds
        while len(taken) < effort.runs:
            begin = time.perf_counter()
            session.run(None, feeds)
            now = time.perf_counter()
            taken.append(now - begin)
            if now > end and len(taken) >= _LEAST_RUNS:
                break
    except Exception as error:  # onnxruntime's own have no common base
        raise BadInput(
            f"it does not run: {complaint(error)}",
            where=where,
            mend="measure other batches, or name open dimensions",
        ) from None
    return np.array(taken)


def _load(path: Path, threads: int) -> Load:
    """Median seconds to build a session: `host` with the file in the page cache, `disk` without."""
    near, far = [], []
    for _ in range(_LOADS):
        if _evict(path):
            far.append(_building(path, threads))
        near.append(_building(path, threads))
    host = _digits(statistics.median(near))
    disk = max(_digits(statistics.median(far)), host) if far else None
    return Load(disk=disk, host=host)


def _building(path: Path, threads: int) -> float:
    begin = time.perf_counter()
    open_session(path, threads)
    return time.perf_counter() - begin


def _evict(path: Path) -> bool:
    """Have the system forget what it holds of the file, where it can be asked to."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for each in _files(path):
        with each.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _files(path: Path) -> list[Path]:
    """The model, and the files of its parameters beside it, NAME.onnx.data or NAME.onnx_data."""
    beside = [path.with_name(path.name + tail) for tail in (".data", "_data")]
    return [each for each in (path, *beside) if each.is_file()]


def _bytes(path: Path) -> int:
    return max(sum(each.stat().st_size for each in _files(path)), 1)


def _fixed_batch(session: Any) -> int | None:
    """The batch that the model is made for, if its first dimension is not open."""
    shapes = [each.shape for each in session.get_inputs()]
    first = next((shape[0] for shape in shapes if shape), 1)
    return first if isinstance(first, int) else None


def _feeds(
    session: Any,
    batch: int,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    where: str,
    open_length: int = 0,
) -> dict[str, Any]:
    """Random inputs of a batch."""
    feeds: dict[str, Any] = {}
    for each in session.get_inputs():
        place = f"{where}: input {each.name!r}"
        if each.type not in _TYPES:
            raise BadInput(
                f"its type is {each.type}",
                where=place,
                mend="give a model whose inputs are numbers",
            )
        shape = []
        for at, length in enumerate(each.shape):
            if isinstance(length, int):
                shape.append(length)
            elif length in sizes:
                shape.append(sizes[length])
            elif at == 0:
                shape.append(batch)
            elif open_length:
                shape.append(open_length)
            else:
                raise BadInput(
                    f"dimension {length or at} is open",
                    where=place,
                    mend=f"add --size {length or at}=N",
                )
        if np.prod(shape, dtype=float) > _MOST_ELEMENTS:
            raise BadInput(f"{shape} is too large", where=place, mend="measure smaller batches")
        kind = _TYPES[each.type]
        feeds[each.name] = (
            rng.standard_normal(shape).astype(kind)
            if np.dtype(kind).kind == "f"
            else np.ones(shape, kind)
        )
    return feeds


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _resident_bytes() -> int:
    """Memory of this process; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _memory_mib() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError):
        return None
