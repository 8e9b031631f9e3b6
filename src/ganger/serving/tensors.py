"""Tensors as clients send them, whatever protocol they came by: what is checked of them, and how
bytes and values become arrays."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY
from ganger.serving.runtime import Array, Signature, Tensor

_RANK_MAX: Final = 32
_ID_MAX: Final = 256
_LENGTH = struct.Struct("<I")
MEND: Final = "see the Open Inference Protocol v2"


def check_id(id_: str) -> None:
    """Raise BadInput for an id that is too long."""
    if len(id_) > _ID_MAX:
        raise BadInput(f"it has {len(id_)} letters", where="id", mend=f"give {_ID_MAX}")


def check_new(name: str, feeds: Collection[str], kinds: Collection[str], model: str) -> None:
    """Raise BadInput for an input that the model has not, or that is there already."""
    if name not in kinds:
        raise BadInput(
            f"model {model!r} has no input {name[:100]!r}",
            where="inputs",
            mend="it has " + ", ".join(map(repr, kinds)),
        )
    if name in feeds:
        raise BadInput(f"input {name!r} is given twice", where="inputs", mend="give it once")


def place_of(name: str, parameters: Mapping[str, Any], signature: Signature) -> int:
    """Which output it is that a client wants. Raises BadInput where the model has none of that
    name, or for what is not offered."""
    places = {each.name: at for at, each in enumerate(signature.outputs)}
    if name not in places:
        raise BadInput(
            f"model {signature.name!r} has no output {name[:100]!r}",
            where="outputs",
            mend="it has " + ", ".join(map(repr, places)),
        )
    _offered(parameters, f"output {name!r}")
    if parameters.get("classification"):
        raise BadInput(
            "classification is not offered", where=f"output {name!r}", mend="ask for the tensor"
        )
    return places[name]


def check_input(
    datatype: str, shape: Sequence[int], parameters: Mapping[str, Any], kind: Tensor
) -> int:
    """How many values an input of this shape has. Raises BadInput for another datatype, for a shape
    that none has, and for what is not offered."""
    where = f"input {kind.name!r}"
    if datatype != kind.datatype:
        raise BadInput(
            f"its datatype is {datatype[:100]!r}",
            where=where,
            mend=f"the model takes {kind.datatype}",
        )
    if len(shape) > _RANK_MAX or any(length < 0 or length >= 1 << 31 for length in shape):
        raise BadInput(
            f"its shape is {list(shape[:_RANK_MAX])}", where=where, mend="give lengths from 0 on"
        )
    _offered(parameters, where)
    return prod(shape)


def _offered(parameters: Mapping[str, Any], where: str) -> None:
    if "shared_memory_region" in parameters:
        raise BadInput(
            "shared memory is not offered", where=where, mend="send the tensor in the body"
        )


def of_binary(
    body: bytes,
    begin: int,
    size: int,
    kind: Tensor,
    shape: Sequence[int],
    count: int,
    where: str,
) -> Array:
    """A tensor of `size` bytes of a body. Raises BadInput where they are not those of its shape."""
    if kind.datatype == "BYTES":
        return _words(body, begin, begin + size, shape, count, where)
    dtype = NUMPY[kind.datatype]
    if size != count * dtype.itemsize:
        raise BadInput(
            f"{size} bytes for {count} values of {kind.datatype}",
            where=where,
            mend=f"give {count * dtype.itemsize}",
        )
    array = np.frombuffer(body, dtype, count, begin).reshape(shape)
    if kind.datatype == "BOOL":
        return np.not_equal(array.view(np.uint8), 0)
    return array if array.flags.aligned else array.copy()


def _words(body: bytes, at: int, end: int, shape: Sequence[int], count: int, where: str) -> Array:
    """Words, each behind its length in four bytes."""
    words: list[str] = []
    while at < end:
        last = at + 4 + (_LENGTH.unpack_from(body, at)[0] if at + 4 <= end else end)
        if last > end:
            raise BadInput("a word is longer than the data", where=where, mend=MEND)
        try:
            words.append(body[at + 4 : last].decode())
        except UnicodeDecodeError:
            raise BadInput(
                f"word {len(words) + 1} is not UTF-8", where=where, mend="encode it so"
            ) from None
        at = last
    return shaped(words, np.dtype(np.object_), shape, count, where)


def shaped(
    values: list[Any], dtype: np.dtype[Any], shape: Sequence[int], count: int, where: str
) -> Array:
    """An array of values in a row. Raises BadInput where they are not as many, or do not fit."""
    if len(values) != count:
        raise BadInput(f"{len(values)} values for shape {shape}", where=where, mend=f"give {count}")
    try:
        with np.errstate(over="ignore"):  # infinity, as in any conversion
            return np.array(values, dtype).reshape(shape)
    except (OverflowError, ValueError):
        raise BadInput(
            f"a value does not fit into {dtype}", where=where, mend="give smaller values"
        ) from None


def packed(array: Array, datatype: str) -> bytes:
    """The values in a row; words each behind its length in four bytes."""
    if datatype != "BYTES":
        return array.tobytes()
    words = [str(each).encode() for each in array.ravel()]
    return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))
