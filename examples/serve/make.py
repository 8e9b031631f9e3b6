"""Makes the two models of this example, with random weights (needs the package onnx)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def classifier(path: Path, width: int) -> None:
    """Ten scores for an image of 8 x 8 points, by one hidden layer."""
    rng = np.random.default_rng(width)
    shapes = {"first": (64, width), "second": (width, 10)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["image", "first"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["scores"]),
    ]
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", length])
        for name, length in (("image", 64), ("scores", 10))
    ]
    graph = helper.make_graph(nodes, path.stem, tensors[:1], tensors[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))


if __name__ == "__main__":
    for name, width in (("small", 16), ("large", 512)):
        classifier(Path(__file__).with_name(f"{name}.onnx"), width)
