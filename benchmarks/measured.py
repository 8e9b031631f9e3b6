"""The models file `measured`, of what models take on this machine: `python benchmarks/measured.py`.

Dense nets of several widths, the small CNNs that come with the `onnx` package, and ten classifiers
of handwritten digits with the class that each gives to every input of the test split, and the
scores behind it. It takes ten
minutes, wants a quiet machine, and needs what the dependency group `measured` names beside Ganger.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import sklearn
from onnx import TensorProto, helper, numpy_helper
from provenance import machine
from scipy.optimize import isotonic_regression
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from ganger.lab.profiling import Effort, measure
from ganger.workloads.models.document import FORMAT, Document, Latency, Load, Model, Operator
from ganger.workloads.models.shipped import shipped
from ganger.workloads.models.writing import write_models

Array = np.ndarray[Any, Any]
DEVICE: Final = "cpu-1"
WIDTHS: Final = (512, 1024, 2048, 4096)
DENSE: Final = Effort((1, 2, 4, 8, 16, 32, 64), runs=200, seconds=8)
CNN: Final = Effort((1, 2, 4, 8), runs=100, seconds=4)
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LEAST_TIME: Final = 0.02
"""Operators that take a smaller part of the time are joined to those behind them."""


def main(target: Path) -> None:
    """Measure all of it on one core and write the file, with the predictions beside it."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    threadpool_limits(1)
    before = os.getloadavg()[1]
    with tempfile.TemporaryDirectory() as folder:
        dense = [_dense(width, Path(folder)) for width in WIDTHS]
        nets = measure(dense, DENSE, device=DEVICE, family="dense", progress=_say)
        cnns = [_cnn(path, Path(folder)) for path in _light()]
        convolutions = measure(cnns, CNN, device=DEVICE, progress=_say)
        for path, model in zip(
            [*dense, *cnns], [*nets.document.models, *convolutions.document.models], strict=True
        ):
            model.operators = _operators(path)
    for model in convolutions.document.models:
        model.source += "; the net of the onnx package's tests, with random weights"
    digits, classes = _digits()
    np.savez_compressed(target.with_suffix(".npz"), **classes)
    here = machine().rpartition(";")[0]
    after = os.getloadavg()[1]
    about = (
        f"Measured by python benchmarks/measured.py on {date.today()} on {here};"
        f" load average {before:.2f} before, {after:.2f} after, of which it is one itself;"
        f" onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__},"
        f" scikit-learn {sklearn.__version__}. {DEVICE} is one core of this machine. A 99th"
        " percentile of fewer than a hundred runs is about their longest. Dense nets and CNNs have"
        " random weights, so they have latencies and no accuracy."
    )
    models = [*nets.document.models, *convolutions.document.models, *digits]
    write_models(Document(FORMAT, nets.document.devices, models, about=about), target)
    for note in (*nets.notes, *convolutions.notes):
        _say(f"note: {note}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _dense(width: int, folder: Path) -> Path:
    """A net 64 - width - width - width - 10 with random weights, as ONNX."""
    rng = np.random.default_rng(width)
    sizes = [64, width, width, width, 10]
    nodes, weights, last = [], [], "x"
    for at, (rows, columns) in enumerate(pairwise(sizes)):
        values = rng.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        weights += [
            numpy_helper.from_array(values, f"w{at}"),
            numpy_helper.from_array(np.zeros(columns, np.float32), f"b{at}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"w{at}", f"b{at}"], [f"h{at}"]))
        last = f"h{at}"
        if at < len(sizes) - 2:
            nodes.append(helper.make_node("Relu", [last], [f"r{at}"]))
            last = f"r{at}"
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", 10])],
        weights,
    )
    path = folder / f"dense-{width}.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def _light() -> list[Path]:
    """The CNNs that the onnx package has for its tests: graphs without weights, batch 1."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return sorted(folder.glob("light_*.onnx"))


def _cnn(path: Path, folder: Path) -> Path:
    """The net with random weights for constant ones, and batches of any size."""
    model = onnx.load(path)
    graph = model.graph
    rng = np.random.default_rng(0)
    stored = {each.name: each for each in graph.initializer}
    for node in [each for each in graph.node if each.op_type == "ConstantOfShape"]:
        shape = numpy_helper.to_array(stored[node.input[0]]).tolist()
        values = (
            rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)
            if len(shape) > 1
            else rng.uniform(0.5, 1.5, shape)
        )
        graph.node.remove(node)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    made = {name for each in graph.node for name in each.output}
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[0] in made:
            _any_batch(graph, node)
    for each in [*graph.input, *graph.output]:
        if each.name not in stored:
            each.type.tensor_type.shape.dim[0].dim_param = "n"
    del graph.value_info[:]
    target = folder / path.name.replace("light_", "").replace("bvlc_", "").replace("_", "-")
    onnx.save(model, target)
    return target


def _any_batch(graph: Any, node: Any) -> None:
    """Let a Reshape keep the first dimension, which is the batch."""
    at = next(i for i, each in enumerate(graph.initializer) if each.name == node.input[1])
    shape = numpy_helper.to_array(graph.initializer[at]).copy()
    if shape[0] == 1:
        shape[0] = 0
        name = f"{node.input[1]} of {node.output[0]}"
        graph.initializer.append(numpy_helper.from_array(shape, name))
        node.input[1] = name


def _operators(path: Path) -> list[Operator]:
    """What runs between tensors through which all of a net passes, with its part of the time, as
    onnxruntime optimises and measures the net at batch 1."""
    with tempfile.TemporaryDirectory() as folder:
        better = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(better)
        onnxruntime.InferenceSession(str(path), options)
        model = onnx.load(better)
        for at, node in enumerate(model.graph.node):
            node.name = f"node{at}"
        onnx.save(model, better)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(better), options)
        (given,) = session.get_inputs()
        shape = [1, *given.shape[1:]]
        for _ in range(20):
            session.run(None, {given.name: np.ones(shape, np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
    taken = np.zeros(len(model.graph.node))
    output = np.zeros(len(model.graph.node), np.int64)
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            at = int(name.removeprefix("node").removesuffix("_kernel_time"))
            taken[at] += event["dur"]
            output[at] = int(event["args"]["output_size"])
    return list(_joined(model.graph, taken / taken.sum(), output))


def _joined(graph: Any, part: Array, output: Array) -> Iterator[Operator]:
    """Nodes joined up to each tensor that alone is alive."""
    stored = {each.name for each in graph.initializer}
    last_read = {name: at for at, node in enumerate(graph.node) for name in node.input}
    alive: set[str] = {each.name for each in graph.input} - stored
    first, number, total = 0, 0, 0.0
    for at, node in enumerate(graph.node):
        alive |= {name for name in node.output if last_read.get(name, -1) > at}
        alive = {name for name in alive if last_read.get(name, -1) > at}
        total += part[at]
        last = at == len(graph.node) - 1
        if last or (alive == set(node.output) and total >= LEAST_TIME):
            number += 1
            longest = graph.node[first + int(part[first : at + 1].argmax())].op_type
            yield Operator(
                f"{number} {longest}", round(float(total), 5), output_bytes=int(output[at]) or None
            )
            first, total = at + 1, 0.0


def _classifiers() -> dict[str, Any]:
    return {
        "digits-bayes": GaussianNB(), "digits-tree": DecisionTreeClassifier(random_state=0),
        "digits-lda": LinearDiscriminantAnalysis(), "digits-linear-svm": LinearSVC(random_state=0),
        "digits-logistic": LogisticRegression(max_iter=5000),
        "digits-mlp-16": MLPClassifier((16,), max_iter=2000, random_state=0),
        "digits-mlp-512": MLPClassifier((512, 512), max_iter=500, random_state=0),
        "digits-forest": RandomForestClassifier(100, random_state=0),
        "digits-knn": KNeighborsClassifier(3), "digits-rbf-svm": SVC(gamma=0.001),
    }  # fmt: skip


def _digits() -> tuple[list[Model], dict[str, Array]]:
    """Ten classifiers, trained on one half of scikit-learn's digits, and what they say of the
    other."""
    inputs, labels = load_digits(return_X_y=True)
    train, test, right, true = train_test_split(
        inputs, labels, test_size=0.5, random_state=0, stratify=labels
    )
    classes = {"labels": true.astype(np.uint8)}
    models = []
    for name, classifier in _classifiers().items():
        _say(name)
        classifier.fit(train / 16 if "mlp" in name else train, right)
        asked = test / 16 if "mlp" in name else test
        classes[name] = classifier.predict(asked).astype(np.uint8)
        classes[f"{name}.scores"] = _scores(classifier, asked)
        whole = pickle.dumps(classifier)
        load = np.median([_taken(lambda whole=whole: pickle.loads(whole)) for _ in range(9)])
        models.append(
            Model(
                name,
                "digits",
                f"predict of scikit-learn {sklearn.__version__}, 200 runs a batch;"
                " trained on half of its digits, the other half is asked",
                predictions="measured.npz",
                bytes=len(whole),
                load=Load(host=_rounded(load)),
                latency=[_latency(lambda rows, it=classifier: it.predict(rows), asked)],
            )
        )
    return models, classes


def _scores(classifier: Any, asked: Array) -> Array:
    """What it gives for every class, to a thousandth: linear scores, or parts of one."""
    if hasattr(classifier, "decision_function"):
        return np.round(classifier.decision_function(asked), 3).astype(np.float32)
    return np.round(classifier.predict_proba(asked), 3).astype(np.float16)


def _latency(run: Callable[[Array], Any], rows: Array) -> Latency:
    mean, p99 = [], []
    for batch in BATCHES:
        some = np.ascontiguousarray(rows[:batch])
        for _ in range(10):
            run(some)
        taken = [_taken(lambda some=some: run(some)) for _ in range(200)]
        mean.append(float(np.mean(taken)))
        p99.append(float(np.quantile(taken, 0.99)))
    rising = isotonic_regression(mean).x
    tail = np.maximum(isotonic_regression(p99).x, rising)
    return Latency(
        DEVICE, batch=list(BATCHES), mean=list(map(_rounded, rising)), p99=list(map(_rounded, tail))
    )


def _taken(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else shipped("measured"))
