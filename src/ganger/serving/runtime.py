"""Models in onnxruntime: what they take and give, sessions, and batches of requests through them.

Nothing but ONNX is loaded, which holds no code; no pickle is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY, of_runtime

Array = NDArray[Any]
Feeds = Mapping[str, Array]
_WORDS: Final = 300
"""Letters of a runtime's complaint that are passed on."""


class Tensor(Struct, frozen=True):
    """An input or an output of a model. `datatype`: the protocol's name; `shape`: -1 where a
    length is open."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Signature(Struct, frozen=True):
    """What a model takes and gives. `batched`: whether the first length of all tensors is open, so
    that several requests can run as one; `name` is the model's."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batched: bool

    @property
    def kinds(self) -> dict[str, Tensor]:
        """The inputs by name."""
        return {each.name: each for each in self.inputs}

    def items(self, feeds: Feeds) -> int:
        """How many items these inputs bring. Raises BadInput where they are not what the model
        takes, in one sentence that names the input."""
        items = 0
        for each in self.inputs:
            given = feeds.get(each.name)
            if given is None or len(feeds) != len(self.inputs):
                raise self._wrong_names(feeds)
            kind, shape = NUMPY[each.datatype], given.shape
            if given.dtype is not kind and given.dtype != kind:
                where = f"model {self.name!r}: input {each.name!r}"
                raise BadInput("it has another datatype", where=where, mend=f"give {each.datatype}")
            if not _fits(shape, each.shape):
                raise BadInput(
                    f"its shape is {list(shape)[:16]}",
                    where=f"model {self.name!r}: input {each.name!r}",
                    mend=f"give {list(each.shape)} (-1: any length)",
                )
            if self.batched:
                if each is not self.inputs[0] and shape[0] != items:
                    raise BadInput(
                        f"it brings {shape[0]} items, another input {items}",
                        where=f"model {self.name!r}: input {each.name!r}",
                        mend="give as many in all inputs",
                    )
                items = shape[0]
        if items == 0 and self.batched:
            raise BadInput(
                "it brings no items", where=f"model {self.name!r}", mend="give at least one"
            )
        return items or 1

    def _wrong_names(self, feeds: Feeds) -> BadInput:
        names = ", ".join(repr(each.name) for each in self.inputs)
        given = ", ".join(map(repr, feeds))[:_WORDS] or "none"
        return BadInput(
            f"inputs {given} were given", where=f"model {self.name!r}", mend=f"give {names}"
        )


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is as wanted, where -1 is any length."""
    return len(shape) == len(wanted) and all(
        length in (have, -1) for have, length in zip(shape, wanted, strict=True)
    )


def runtime(what: str = "serving models") -> Any:
    """onnxruntime, for `what`. Raises BadInput where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise BadInput(f"{what} needs onnxruntime", mend="pip install 'ganger[serving]'") from None
    return onnxruntime


def open_session(path: Path, threads: int) -> Any:
    """A session on the CPU. Its threads run on the cores of the thread that opens it. Raises
    BadInput."""
    ort = runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own have no common base
        raise BadInput(
            f"onnxruntime does not load it: {complaint(error)}",
            where=str(path),
            mend="export the model again",
        ) from None


def complaint(error: BaseException) -> str:
    """What a runtime complains of, in a line."""
    return " ".join(str(error).split())[:_WORDS]


def signature_of(session: Any, name: str, where: str) -> Signature:
    """What a model takes and gives. Raises BadInput for types that cannot be served."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    tensors = [
        [_tensor(each, f"{where}: {kind} {each.name!r}") for each in group]
        for kind, group in (("input", inputs), ("output", outputs))
    ]
    firsts = [each.shape[0] if each.shape else 0 for each in inputs]
    batched = (
        bool(firsts)
        and not any(isinstance(first, int) for first in firsts)
        and len(set(firsts)) == 1
        and all(each.shape and not isinstance(each.shape[0], int) for each in outputs)
    )
    return Signature(name, tuple(tensors[0]), tuple(tensors[1]), batched)


def _tensor(given: Any, where: str) -> Tensor:
    datatype = of_runtime(given.type)
    if datatype is None:
        raise BadInput(
            f"its type is {given.type}", where=where, mend="export it with a type that is served"
        )
    shape = [length if isinstance(length, int) else -1 for length in given.shape]
    return Tensor(given.name, datatype, tuple(shape))


def warm_up(session: Any, signature: Signature) -> None:
    """Run once on zeros, so that the first request does not pay for what is made lazily. A model
    that cannot run on zeros stays cold."""
    feeds = {}
    for each in signature.inputs:
        shape = [abs(length) for length in each.shape]
        empty = np.zeros(shape, NUMPY[each.datatype])
        feeds[each.name] = empty if each.datatype != "BYTES" else np.full(shape, "", np.object_)
    try:
        session.run(None, feeds)
    except Exception:
        return


class Failure(Struct, frozen=True):
    """A model did not run on what one request brought; `why` is the runtime's complaint."""

    why: str


Given = list[Array] | Failure
"""What one request was given: the outputs of its model, in their order."""


def run_batch(session: Any, signature: Signature, jobs: Sequence[Feeds]) -> list[Given]:
    """Run requests together where their shapes are equal, one by one where the model has no batch
    axis. What fails together is run one by one, so that a bad request fails alone."""
    if len(jobs) == 1 or not signature.batched:
        return [_run_one(session, feeds) for feeds in jobs]
    shapes = [tuple(each.shape[1:] for each in feeds.values()) for feeds in jobs]
    if shapes.count(shapes[0]) == len(shapes):
        return _run_equal(session, jobs)
    groups: dict[Any, list[int]] = {}
    for at, shape in enumerate(shapes):
        groups.setdefault(shape, []).append(at)
    given: list[Given] = [Failure("it did not run")] * len(jobs)
    for places in groups.values():
        for at, result in zip(places, _run_equal(session, [jobs[i] for i in places]), strict=True):
            given[at] = result
    return given


def _run_equal(session: Any, jobs: Sequence[Feeds]) -> list[Given]:
    """Requests of equal shapes, as one batch."""
    if len(jobs) == 1:
        return [_run_one(session, jobs[0])]
    names = list(jobs[0])
    sizes = [len(feeds[names[0]]) for feeds in jobs]
    items = sum(sizes)
    feeds = {name: np.concatenate([each[name] for each in jobs]) for name in names}
    try:
        outputs = session.run(None, feeds)
    except Exception:
        outputs = None
    if outputs is None or any(not each.shape or len(each) != items for each in outputs):
        return [_run_one(session, each) for each in jobs]
    given: list[Given] = []
    begin = 0
    for size in sizes:
        given.append([each[begin : begin + size] for each in outputs])
        begin += size
    return given


def _run_one(session: Any, feeds: Feeds) -> Given:
    try:
        outputs: list[Array] = session.run(None, feeds)
    except Exception as error:
        return Failure(complaint(error))
    return outputs
