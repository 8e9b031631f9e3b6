"""KServe: an `InferenceService` (v1beta1), with Knative's routes and scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.workloads.present.settings import (
    UNKNOWN,
    Present,
    flat,
    number_of,
    plain,
    whole_of,
    words_of,
)

_BATCH, _WAIT = "batcher.maxBatchSize", "batcher.maxLatency"
_CONCURRENCY, _TARGET, _METRIC = "containerConcurrency", "scaleTarget", "scaleMetric"
_USUAL, _UTILISATION = 100, 0.7
"""Requests at once in a replica where nothing states them, and the part of them that is aimed
at (Knative, config-autoscaler)."""
_FEW: Final = 3
"""Up to so many requests at once in a replica, Knative's activator takes the first that is free."""
_WHY: Final = {
    "minReplicas": "the service and the cluster limit their number",
    "maxReplicas": "the service and the cluster limit their number",
    "batcher": "it does not change when requests run",
    "timeout": "deadlines are those of the requests",
    "model": "latencies are those of the models file",
    "onnx": "latencies are those of the models file",
    "pytorch": "latencies are those of the models file",
    "sklearn": "latencies are those of the models file",
    "tensorflow": "latencies are those of the models file",
    "triton": "latencies are those of the models file",
    "huggingface": "latencies are those of the models file",
    "containers": "latencies are those of the models file",
    "canaryTrafficPercent": "one version is compared",
    "logger": "it does not change when requests run",
}


def kserve(where: str, document: Mapping[str, Any]) -> Present:
    """What the predictor says. Raises BadInput."""
    spec = document.get("spec")
    predictor = spec.get("predictor") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(predictor, Mapping):
        raise BadInput("it has no predictor", where=where, mend="add `spec: predictor:`")
    known, read = flat(predictor), dict[str, str]()

    def number(key: str, usual: int, limit: int) -> int:
        if key not in known:
            return usual
        read[key] = f"{known[key]}"
        return whole_of(known[key], f"{where}: {key}", 0, limit)

    at_once = number(_CONCURRENCY, 0, 1_000_000)
    recipe = "serve.power-of-two"
    if at_once:
        recipe = "serve.least-loaded" if at_once <= _FEW else "serve.round-robin"
    if any(key.startswith("batcher.") for key in known):
        size, wait = number(_BATCH, 32, 10_000), number(_WAIT, 5000, 3_600_000)
        recipe = f"serve.fixed-batch(size={max(size, 1)},timeout={wait}ms)"
    scaling = ""
    metric = known.get(_METRIC, "concurrency")
    if metric == "concurrency":
        stated = known.get(_TARGET, at_once or _USUAL)
        target = _UTILISATION * number_of(stated, f"{where}: {_TARGET}", 1, 1e6)
        scaling = (
            f"scale.reactive(target={words_of(target)},look_back=60s,up_delay=0s,down_delay=0s)"
        )
        read |= {key: f"{known[key]}" for key in (_TARGET, _METRIC) if key in known}
    ignored = {key: _why(key) for key in known if key not in read}
    for name in spec:
        if name != "predictor":
            ignored[plain(name)] = "the predictor alone is compared"
    return Present(where, recipe, scaling, read, ignored)


def _why(key: str) -> str:
    if key in (_TARGET, _METRIC):
        return "only concurrency scales here"
    return _WHY.get(key.split(".")[0].split("[")[0], UNKNOWN)
