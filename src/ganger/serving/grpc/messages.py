"""The messages of the protocol, and how inferences are read from and written to them.

Their classes are made of the descriptors in open_inference.binpb, in a pool of their own: the
field's client registers messages of the same names in the common pool, and a process may hold both.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY
from ganger.serving.desk import VERSION, Asked, Inference, Outcome
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

SERVICE: Final = "inference.GRPCInferenceService"
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where a tensor has its values, by its datatype; FP16 has none, and comes as bytes."""


def _classes() -> dict[str, Any]:
    """The classes of all messages, by name. Raises BadInput where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise BadInput("gRPC needs protobuf", mend="pip install 'ganger[grpc]'") from None
    pool = descriptor_pool.DescriptorPool()
    data = files("ganger.serving.grpc").joinpath("open_inference.binpb").read_bytes()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(data).file
    pool.AddSerializedFile(file.SerializeToString())
    return {
        each.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{file.package}.{each.name}")
        )
        for each in file.message_type
    }


CLASSES: Final = _classes()


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as plain values; one without a value is left out."""
    return {
        name: getattr(each, choice)
        for name, each in given.items()
        if (choice := each.WhichOneof("parameter_choice")) is not None
    }


def read(request: Any, signature: Signature) -> Inference:
    """Read a ModelInferRequest. Raises BadInput."""
    check_id(request.id)
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadInput(
            f"{len(raw)} raw contents for {len(request.inputs)} inputs",
            where="inputs",
            mend="give raw contents of all inputs, or of none",
        )
    kinds, feeds = signature.kinds, dict[str, Array]()
    for at, each in enumerate(request.inputs):
        check_new(each.name, feeds, kinds, signature.name)
        kind = kinds[each.name]
        feeds[each.name] = _tensor(each, kind, raw[at] if raw else None)
    wanted = range(len(signature.outputs))
    places = [
        place_of(each.name, parameters_of(each.parameters), signature) for each in request.outputs
    ] or wanted
    outputs = [(place, bool(raw)) for place in places]
    return Inference(request.id, parameters_of(request.parameters), feeds, outputs)


def _tensor(given: Any, kind: Tensor, raw: bytes | None) -> Array:
    where, shape = f"input {kind.name!r}", list(given.shape)
    count = check_input(given.datatype, shape, parameters_of(given.parameters), kind)
    if raw is not None:
        if given.HasField("contents"):
            raise BadInput("it has contents and raw contents", where=where, mend="leave one out")
        return of_binary(raw, 0, len(raw), kind, shape, count, where)
    field = _CONTENTS.get(kind.datatype)
    if field is None:
        raise BadInput(
            f"{kind.datatype} has no contents", where=where, mend="give raw_input_contents"
        )
    values = list(getattr(given.contents, field))
    if kind.datatype == "BYTES":
        try:
            values = [each.decode() for each in values]
        except UnicodeDecodeError:
            raise BadInput("a word is not UTF-8", where=where, mend=MEND) from None
    return shaped(values, NUMPY[kind.datatype], shape, count, where)


def write(asked: Asked, outcome: Outcome, signature: Signature) -> Any:
    """A ModelInferResponse: outputs as bytes where inputs came so, or where one has no other form.
    Raises TypeError, ValueError or UnicodeError for outputs that cannot be written."""
    response = CLASSES["ModelInferResponse"](
        model_name=signature.name, model_version=VERSION, id=asked.given.id
    )
    for name, value in outcome.parameters.items():
        kind = "string_param" if isinstance(value, str) else "int64_param"
        setattr(response.parameters[name], kind, value)
    wanted = asked.given.outputs
    kinds = [signature.outputs[place].datatype for place, _ in wanted]
    raw = any(as_raw for _, as_raw in wanted) or any(kind not in _CONTENTS for kind in kinds)
    for place, _ in wanted:
        tensor, array = signature.outputs[place], (outcome.outputs or ())[place]
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=array.shape)
        if raw:
            response.raw_output_contents.append(packed(array, tensor.datatype))
        else:
            field = getattr(output.contents, _CONTENTS[tensor.datatype])
            values = array.ravel()
            field.extend(
                [str(each).encode() for each in values]
                if tensor.datatype == "BYTES"
                else values.tolist()
            )
    return response
