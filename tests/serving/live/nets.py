"""Small ONNX models whose answers are known, and models files that name them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Sequence[Any] = (),
) -> Path:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def value(name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def times(path: Path, factor: float, shape: Shape = ("n", 4)) -> Path:
    """y = factor * x."""
    constant = numpy_helper.from_array(np.array([factor], np.float32), "k")
    node = helper.make_node("Mul", ["x", "k"], ["y"])
    return save(path, [node], [value("x", shape)], [value("y", shape)], [constant])


def copies(path: Path, kind: int) -> Path:
    """y = x, of any type."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return save(path, [node], [value("x", ("n", 2), kind)], [value("y", ("n", 2), kind)])


def sums(path: Path) -> Path:
    """total = a + b and larger = a > b: two inputs, two outputs."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"]),
        helper.make_node("Greater", ["a", "b"], ["larger"]),
    ]
    return save(
        path,
        nodes,
        [value("a", ("n", 3)), value("b", ("n", 3))],
        [value("total", ("n", 3)), value("larger", ("n", 3), TensorProto.BOOL)],
    )


def looks_up(path: Path) -> Path:
    """y = the row of a table of three that x names: another number is the model's failure."""
    table = numpy_helper.from_array(np.array([[1, 1], [2, 2], [3, 3]], np.float32), "t")
    node = helper.make_node("Gather", ["t", "x"], ["y"])
    return save(
        path, [node], [value("x", ("n",), TensorProto.INT64)], [value("y", ("n", 2))], [table]
    )


def busy(path: Path, rounds: int, width: int = 256) -> Path:
    """y = x through so many products of matrices: it takes a while."""
    eye = numpy_helper.from_array(np.eye(width, dtype=np.float32), "eye")
    names = ["x", *(f"h{at}" for at in range(rounds - 1)), "y"]
    nodes = [
        node
        for a, b in pairwise(names)
        for node in (
            helper.make_node("MatMul", [a, "eye"], [b + "m"]),
            helper.make_node("Sin", [b + "m"], [b]),
        )
    ]
    return save(path, nodes, [value("x", ("n", width))], [value("y", ("n", width))], [eye])


def models_file(
    folder: Path,
    names: Sequence[str],
    *,
    base: float = 0.0005,
    each: float = 0.0002,
    largest: int = 8,
    size: int = 0,
    family: str = "",
    accuracy: float = 0.0,
) -> Path:
    """A models file for ONNX files of these names, with one latency for all."""
    lines = ['format = "ganger.models/1"', '[[devices]]\nname = "cpu"']
    for name in names:
        lines.append(f'[[models]]\nname = "{name}"\nonnx = "{name}.onnx"')
        if size:
            lines.append(f"bytes = {size}")
        if family:
            lines.append(f'family = "{family}"')
        if accuracy:
            lines.append(f"accuracy = {accuracy}")
        lines.append(
            f'[[models.latency]]\ndevice = "cpu"\nbase = {base}\neach = {each}\nlargest = {largest}'
        )
    path = folder / "models.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
