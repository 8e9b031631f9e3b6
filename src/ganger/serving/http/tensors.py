"""Requests and answers of the Open Inference Protocol v2 as bytes: JSON, and binary tensors behind
it (the binary tensor data extension, `Inference-Header-Content-Length`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY
from ganger.serving.desk import Inference
from ganger.serving.runtime import Array, Signature, Tensor

JSON_BYTES_MAX: Final = 8 << 20
"""Of JSON in a request: numbers written out take up to thirty times as much memory while they are
read. Larger tensors come as binary data."""
_RANK_MAX: Final = 32
_ID_MAX: Final = 256
_LENGTH = struct.Struct("<I")
_TYPES: Final = {"b": bool, "u": int, "i": int, "f": float, "O": str}


class _Input(Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Raw = msgspec.field(default_factory=Raw)


class _Output(Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Body(Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_Output] = []


_READER: Final = msgspec.json.Decoder(_Body)
_WRITER: Final = msgspec.json.Encoder()
_MEND: Final = "see the Open Inference Protocol v2"


def decode(body: bytes, head_bytes: int | None, signature: Signature) -> Inference:
    """Read a request; `head_bytes`: of JSON, where binary data follow. Raises BadInput."""
    end = len(body) if head_bytes is None else head_bytes
    if not 0 <= end <= len(body):
        raise BadInput(
            f"{end} bytes of JSON in a body of {len(body)}",
            where="Inference-Header-Content-Length",
            mend="give the length of the JSON in front",
        )
    if end > JSON_BYTES_MAX:
        raise BadInput(
            f"{end:,} bytes of JSON",
            where="body",
            mend=f"send binary tensors; JSON may have {JSON_BYTES_MAX:,} bytes",
        )
    try:
        given = _READER.decode(memoryview(body)[:end])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(f"it is not valid: {error}", where="body", mend=_MEND) from None
    if len(given.id) > _ID_MAX:
        raise BadInput(f"it has {len(given.id)} letters", where="id", mend=f"give {_ID_MAX}")
    feeds: dict[str, Array] = {}
    kinds = {each.name: each for each in signature.inputs}
    for each in given.inputs:
        if each.name not in kinds:
            names = ", ".join(map(repr, kinds))
            raise BadInput(
                f"model {signature.name!r} has no input {each.name[:100]!r}",
                where="inputs",
                mend=f"it has {names}",
            )
        if each.name in feeds:
            raise BadInput(
                f"input {each.name!r} is given twice", where="inputs", mend="give it once"
            )
        feeds[each.name], end = _tensor(each, kinds[each.name], body, end)
    if end != len(body):
        raise BadInput(
            f"{len(body) - end} bytes belong to no input",
            where="body",
            mend="let binary_data_size of the inputs add up to what follows the JSON",
        )
    return Inference(given.id, given.parameters, feeds, _wanted(given, signature))


def _wanted(given: _Body, signature: Signature) -> list[tuple[int, bool]]:
    binary = given.parameters.get("binary_data_output", False) is True
    if not given.outputs:
        return [(at, binary) for at in range(len(signature.outputs))]
    places = {each.name: at for at, each in enumerate(signature.outputs)}
    wanted = []
    for each in given.outputs:
        if each.name not in places:
            raise BadInput(
                f"model {signature.name!r} has no output {each.name[:100]!r}",
                where="outputs",
                mend="it has " + ", ".join(map(repr, places)),
            )
        _offered(each.parameters, f"output {each.name!r}")
        if each.parameters.get("classification"):
            raise BadInput(
                "classification is not offered",
                where=f"output {each.name!r}",
                mend="ask for the tensor",
            )
        wanted.append((places[each.name], each.parameters.get("binary_data", binary) is True))
    return wanted


def _offered(parameters: dict[str, Any], where: str) -> None:
    if "shared_memory_region" in parameters:
        raise BadInput(
            "shared memory is not offered", where=where, mend="send the tensor in the body"
        )


def _tensor(given: _Input, kind: Tensor, body: bytes, begin: int) -> tuple[Array, int]:
    """An input, and where its binary data end."""
    where = f"input {kind.name!r}"
    if given.datatype != kind.datatype:
        raise BadInput(
            f"its datatype is {given.datatype[:100]!r}",
            where=where,
            mend=f"the model takes {kind.datatype}",
        )
    shape = given.shape
    if len(shape) > _RANK_MAX or any(length < 0 or length >= 1 << 31 for length in shape):
        raise BadInput(
            f"its shape is {shape[:_RANK_MAX]}", where=where, mend="give lengths from 0 on"
        )
    count = prod(shape)
    _offered(given.parameters, where)
    size = given.parameters.get("binary_data_size")
    if size is None:
        return _of_json(bytes(given.data), kind, shape, count, where), begin
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(body) - begin:
        raise BadInput(
            f"binary_data_size is {size!r:.100}, and {len(body) - begin} bytes follow",
            where=where,
            mend="give the bytes of this tensor, and Inference-Header-Content-Length",
        )
    if bytes(given.data):
        raise BadInput("it has data and binary_data_size", where=where, mend="leave one out")
    return _of_binary(body, begin, size, kind, shape, count, where), begin + size


def _of_binary(
    body: bytes, begin: int, size: int, kind: Tensor, shape: list[int], count: int, where: str
) -> Array:
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


def _words(
    body: bytes, at: int, end: int, shape: list[int], count: int, where: str
) -> Array:  # fmt: skip
    """Words, each behind its length in four bytes."""
    words: list[str] = []
    while at < end:
        last = at + 4 + (_LENGTH.unpack_from(body, at)[0] if at + 4 <= end else end)
        if last > end:
            raise BadInput("a word is longer than the data", where=where, mend=_MEND)
        try:
            words.append(body[at + 4 : last].decode())
        except UnicodeDecodeError:
            raise BadInput(
                f"word {len(words) + 1} is not UTF-8", where=where, mend="encode it so"
            ) from None
        at = last
    return _shaped(words, np.dtype(np.object_), shape, count, where)


def _of_json(data: bytes, kind: Tensor, shape: list[int], count: int, where: str) -> Array:
    if not data:
        raise BadInput("it has no data", where=where, mend="give data, or binary_data_size")
    dtype = NUMPY[kind.datatype]
    type_ = _TYPES[dtype.kind]
    values: list[Any]
    try:
        values = msgspec.json.decode(data, type=list[type_])  # type: ignore[valid-type]
    except msgspec.MsgspecError:
        values = _flat(data, type_, shape, kind.datatype, where)
    return _shaped(values, dtype, shape, count, where)


def _flat(data: bytes, type_: type, shape: list[int], datatype: str, where: str) -> list[Any]:
    """Values of lists in lists. Raises BadInput where they are not as the shape says, or of another
    type."""
    nested: Any = type_
    for _ in shape:
        nested = list[nested]
    try:
        values = [msgspec.json.decode(data, type=nested)]
        for length in shape:
            if any(len(row) != length for row in values):
                raise ValueError("ragged")
            values = [value for row in values for value in row]
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise BadInput(
            f"its data are not {datatype} in shape {shape}",
            where=where,
            mend="give one list of values, or lists in lists as the shape says",
        ) from None
    return values


def _shaped(
    values: list[Any], dtype: np.dtype[Any], shape: list[int], count: int, where: str
) -> Array:  # fmt: skip
    if len(values) != count:
        raise BadInput(f"{len(values)} values for shape {shape}", where=where, mend=f"give {count}")
    try:
        with np.errstate(over="ignore"):  # infinity, as in any conversion
            return np.array(values, dtype).reshape(shape)
    except (OverflowError, ValueError):
        raise BadInput(
            f"a value does not fit into {dtype}", where=where, mend="give smaller values"
        ) from None


def encode(
    signature: Signature, id_: str, outputs: Sequence[Array], wanted: Sequence[tuple[int, bool]]
) -> tuple[list[bytes], int | None]:
    """The body of an answer in pieces, and the length of its JSON where binary data follow.

    NaN and infinity have no JSON: they become null there.
    """
    described, binary = [], []
    for place, as_binary in wanted:
        kind, array = signature.outputs[place], outputs[place]
        fields: dict[str, Any] = {
            "name": kind.name, "datatype": kind.datatype, "shape": array.shape
        }  # fmt: skip
        if as_binary:
            data = _packed(array) if kind.datatype == "BYTES" else array.tobytes()
            fields["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            fields["data"] = array.ravel().tolist()
        described.append(fields)
    answer: dict[str, Any] = {"model_name": signature.name, "model_version": "1"}
    if id_:
        answer["id"] = id_
    answer["outputs"] = described
    head = _WRITER.encode(answer)
    return [head, *binary], len(head) if binary else None


def _packed(array: Array) -> bytes:
    words = [str(each).encode() for each in array.ravel()]
    return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))
