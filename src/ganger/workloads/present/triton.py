"""Triton Inference Server: `config.pbtxt` (docs/user_guide/model_configuration.md, 2025)."""

from __future__ import annotations

from typing import Any, Final

from ganger.core.units import HOUR
from ganger.workloads.files import TextFile
from ganger.workloads.models.text_format import Message, Value, Word, parse_text
from ganger.workloads.present.settings import UNKNOWN, Present, flat, whole_of

_BATCHING: Final = "dynamic_batching"
_LARGEST, _DELAY = "max_batch_size", f"{_BATCHING}.max_queue_delay_microseconds"
_PREFERRED, _LONGEST = f"{_BATCHING}.preferred_batch_size", ".default_queue_policy.max_queue_size"
_READ: Final = (_LARGEST, _BATCHING, _DELAY, _PREFERRED, _BATCHING + _LONGEST)
_WHY: Final = {
    "instance_group": "the lanes are those of --fleet",
    "name": "it does not change when requests run",
    "platform": "it does not change when requests run",
    "backend": "it does not change when requests run",
    "input": "it does not change when requests run",
    "output": "it does not change when requests run",
    "version_policy": "it does not change when requests run",
    "default_model_filename": "it does not change when requests run",
    "optimization": "latencies are those of the models file",
    "parameters": "latencies are those of the models file",
    "model_warmup": "models are loaded before they are measured",
    "response_cache": "add kept answers with serve.composed(results=...)",
    "sequence_batching": "sequences of requests are not simulated",
    "ensemble_scheduling": "write a pipeline in the models file",
    f"{_BATCHING}.preserve_ordering": "answers leave when they are there",
    f"{_BATCHING}.priority": "priorities are not simulated",
    f"{_BATCHING}.default_queue_policy": "deadlines are those of the requests",
    f"{_BATCHING}.default_priority_level": "priorities are not simulated",
}


def triton(file: TextFile) -> Present:
    """What a model's configuration says. Raises BadInput, with the line that cannot be parsed."""
    known = flat(_plain(parse_text(file.text, file.where)))
    batched = any(key.split(".")[0] == _BATCHING for key in known)
    largest = whole_of(known.get(_LARGEST, 0), f"{file.where}: {_LARGEST}", 0, 10_000)
    read = {key: _words(value) for key, value in known.items() if key in _READ}
    ignored = {key: _why(key) for key in known if key not in _READ}
    if not batched or largest <= 1:
        return Present(file.where, "serve.no-batch", "", read, ignored)
    stated = {"size": f"{largest}"}
    delay = whole_of(known.get(_DELAY, 0), f"{file.where}: {_DELAY}", 0, HOUR)
    if delay:
        stated["delay"] = f"{delay}us"
    sizes = known.get(_PREFERRED, [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    preferred = [whole_of(each, f"{file.where}: {_PREFERRED}", 1, largest) for each in sizes]
    if preferred:
        stated["preferred"] = ";".join(f"{each}" for each in sorted(set(preferred)))
    longest = known.get(_BATCHING + _LONGEST, 0)
    if count := whole_of(longest, f"{file.where}: {_BATCHING}{_LONGEST}", 0, 1_000_000):
        stated["longest"] = f"{count}"
    words = ",".join(f"{name}={value}" for name, value in stated.items())
    return Present(file.where, f"serve.triton({words})", "", read, ignored)


def _plain(message: Message) -> dict[str, Any]:
    """As nested fields; what stands several times is a list."""
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _, _ in message.fields):
        values = [_value(value) for value, _ in message.all(name)]
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def _value(value: Value) -> Any:
    if isinstance(value, Message):
        return _plain(value)
    return value.name if isinstance(value, Word) else value


def _words(value: Any) -> str:
    return ", ".join(f"{each}" for each in value) if isinstance(value, list) else f"{value}"


def _why(key: str) -> str:
    """Of the longest name that is part of it."""
    names = (name for name in _WHY if f"{key}.".startswith((f"{name}.", f"{name}[", f"{name}_")))
    return _WHY.get(max(names, key=len, default=""), UNKNOWN)
