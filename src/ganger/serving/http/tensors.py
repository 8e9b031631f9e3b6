"""Requests and answers of the Open Inference Protocol v2 as bytes: JSON, and binary tensors behind
it (the binary tensor data extension, `Inference-Header-Content-Length`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY
from ganger.serving.desk import Inference
from ganger.serving.runtime import Array, Signature, Tensor
from ganger.serving.tensors import (
    MEND,
    check_id,
    check_input,
    check_new,
    of_binary,
    packed,
    place_of,
    shaped,
)

JSON_BYTES_MAX: Final = 8 << 20
"""Of JSON in a request: numbers written out take up to thirty times as much memory while they are
read. Larger tensors come as binary data."""
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
        raise BadInput(f"it is not valid: {error}", where="body", mend=MEND) from None
    check_id(given.id)
    feeds: dict[str, Array] = {}
    kinds = signature.kinds
    for each in given.inputs:
        check_new(each.name, feeds, kinds, signature.name)
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
    wanted = []
    for each in given.outputs:
        place = place_of(each.name, each.parameters, signature)
        wanted.append((place, each.parameters.get("binary_data", binary) is True))
    return wanted


def _tensor(given: _Input, kind: Tensor, body: bytes, begin: int) -> tuple[Array, int]:
    """An input, and where its binary data end."""
    where, shape = f"input {kind.name!r}", given.shape
    count = check_input(given.datatype, shape, given.parameters, kind)
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
    return of_binary(body, begin, size, kind, shape, count, where), begin + size


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
    return shaped(values, dtype, shape, count, where)


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


def encode(
    signature: Signature,
    given: Inference,
    outputs: Sequence[Array],
    parameters: Mapping[str, str | int] = {},
) -> tuple[list[bytes], int | None]:
    """The body of an answer in pieces, and the length of its JSON where binary data follow.

    NaN and infinity have no JSON: they become null there.
    """
    described, binary = [], []
    for place, as_binary in given.outputs:
        kind, array = signature.outputs[place], outputs[place]
        fields: dict[str, Any] = {
            "name": kind.name, "datatype": kind.datatype, "shape": array.shape
        }  # fmt: skip
        if as_binary:
            data = packed(array, kind.datatype)
            fields["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            fields["data"] = array.ravel().tolist()
        described.append(fields)
    answer: dict[str, Any] = {"model_name": signature.name, "model_version": "1"}
    if given.id:
        answer["id"] = given.id
    if parameters:
        answer["parameters"] = parameters
    answer["outputs"] = described
    head = _WRITER.encode(answer)
    return [head, *binary], len(head) if binary else None
