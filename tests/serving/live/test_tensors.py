"""Requests as bytes: whatever they are, they are read, or refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.serving.datatypes import NUMPY
from ganger.serving.desk import Inference
from ganger.serving.http.tensors import JSON_BYTES_MAX, decode, encode
from ganger.serving.runtime import Signature, Tensor

NUMBERS = sorted(set(NUMPY) - {"BYTES", "BOOL"})


def taking(datatype: str, *shape: int) -> Signature:
    tensor = Tensor("x", datatype, shape)
    return Signature("m", (tensor,), (Tensor("y", datatype, shape),), batched=True)


def asked(data: Any, datatype: str = "FP32", shape: Any = (1, 2), **fields: Any) -> bytes:
    tensor = {"name": "x", "shape": shape, "datatype": datatype, "data": data}
    return json.dumps({"inputs": [tensor], **fields}).encode()


@given(
    datatype=st.sampled_from(NUMBERS),
    values=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    binary=st.booleans(),
    fill=st.integers(0, 7),
)
def test_what_is_encoded_is_decoded(
    datatype: str, values: list[int], binary: bool, fill: int
) -> None:
    """An answer is read as if it were a request; `fill` moves binary data off any boundary."""
    signature, array = taking(datatype, -1), np.array(values, NUMPY[datatype])
    pieces, length = encode(signature, Inference("n" * fill, {}, {}, [(0, binary)]), [array])
    answer = json.loads(pieces[0])
    (tensor,) = answer["outputs"]
    head = json.dumps({"inputs": [{**tensor, "name": "x"}], "id": "n" * fill}).encode()
    body = head + b"".join(pieces[1:])
    found = decode(body, len(head) if length is not None else None, signature)
    assert found.feeds["x"].dtype == array.dtype
    assert found.feeds["x"].flags.aligned
    assert found.feeds["x"].tolist() == array.tolist()
    assert found.id == answer.get("id", "") == "n" * fill


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(
    data=JSON,
    shape=st.lists(st.integers(-2, 1 << 33), max_size=4) | JSON,
    datatype=st.sampled_from([*NUMPY, "FP99", ""]),
    parameters=JSON | st.fixed_dictionaries({"binary_data_size": JSON}),
    outputs=st.just([]) | JSON,
    head=st.none() | st.integers(-5, 500),
    tail=st.binary(max_size=20),
)
def test_whatever_comes_is_read_or_refused(
    data: Any, shape: Any, datatype: str, parameters: Any, outputs: Any, head: Any, tail: bytes
) -> None:
    tensor = {"name": "x", "shape": shape, "datatype": datatype, "parameters": parameters}
    if data is not None:
        tensor["data"] = data
    text = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    kind = datatype if datatype in NUMPY else "FP32"
    why = ""
    try:
        found = decode(text + tail, head, taking(kind, -1, 2))
    except BadInput as refusal:
        why = str(refusal)
    else:
        assert found.feeds["x"].dtype == NUMPY[kind]
    assert "\n" not in why


@given(st.binary(max_size=200))
def test_bytes_that_are_no_json(body: bytes) -> None:
    with pytest.raises(BadInput, match="it is not valid"):
        decode(b"\xff" + body, None, taking("FP32", -1, 2))


def test_lists_in_lists_are_as_the_shape_says() -> None:
    nested = asked([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], shape=(2, 2, 2))
    found = decode(nested, None, taking("FP32", -1, 2, 2)).feeds["x"]
    assert found.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    for wrong in ([[1, 2, 3], [4]], [[1, 2], 3, 4], [[[1]], [[2]], [[3]], [[4]]]):
        with pytest.raises(BadInput, match="its data are not FP32 in shape"):
            decode(asked(wrong, shape=(2, 2)), None, taking("FP32", -1, 2))


def test_json_that_would_take_much_memory_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadInput, match="send binary tensors"):
        decode(b"[" * (JSON_BYTES_MAX + 1), None, taking("FP32", -1, 2))
    with pytest.raises(BadInput, match="it is not valid"):
        decode(b"[" * JSON_BYTES_MAX, None, taking("FP32", -1, 2))


def test_words_are_utf_8_and_as_long_as_they_say() -> None:
    def words(data: bytes, count: int) -> Any:
        tensor = {"name": "x", "shape": [count], "datatype": "BYTES"}
        parameters = {"binary_data_size": len(data)}
        head = json.dumps({"inputs": [{**tensor, "parameters": parameters}]}).encode()
        return decode(head + data, len(head), taking("BYTES", -1)).feeds["x"].tolist()

    assert words(b"\2\0\0\0hi\0\0\0\0", 2) == ["hi", ""]
    for data, why in (
        (b"\3\0\0\0hi", "a word is longer than the data"),
        (b"\2\0\0", "a word is longer than the data"),
        (b"\1\0\0\0\xff", "word 1 is not UTF-8"),
        (b"\1\0\0\0a\1\0\0\0a", "2 values for shape"),
    ):
        with pytest.raises(BadInput, match=why):
            words(data, 1)


def test_numbers_that_json_does_not_have_become_null() -> None:
    array = np.array([[np.nan, np.inf]], np.float32)
    pieces, length = encode(taking("FP32", -1, 2), Inference("", {}, {}, [(0, False)]), [array])
    assert json.loads(pieces[0])["outputs"][0]["data"] == [None, None]
    assert length is None
