"""The models file as it is written, `ganger.models/1`; docs/models-file.md describes it.

Times are seconds. Sizes of models are bytes; the memory of a device is MiB, or text like `15GiB`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from ganger.workloads.documents import schema_of

FORMAT: Final = "ganger.models/1"
TIERS: Final = ("remote", "disk", "host")
"""Where a model may be loaded from, the slowest first."""

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Seconds = Annotated[float, Meta(gt=0, le=1e6)]
_Rate = Annotated[float, Meta(ge=0, le=1e6)]
_Size = Annotated[int, Meta(ge=1, le=1 << 50)]
_Count = Annotated[int, Meta(ge=1, le=1 << 24)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Part = Annotated[float, Meta(ge=0, le=1)]


class Device(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A type of device that models were measured on."""

    name: _Name
    memory: int | str | None = None


class Parameters(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a model's parameters; models that name the same `id` can share it."""

    id: _Name
    bytes: _Size


class Load(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds until the model can answer, by where its parameters lie."""

    remote: _Seconds | None = None
    disk: _Seconds | None = None
    host: _Seconds | None = None


class Latency(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds for a batch on a `share` of a device: a table by batch, or `base` + `each` x
    batch. `beside`: how many times longer it takes with 1, 2, ... other batches on the device.
    `source`: where the figures are from."""

    device: _Name
    share: _Share = 1.0
    batch: list[_Count] = []
    mean: list[_Seconds] = []
    p99: list[_Seconds] = []
    memory_bytes: list[_Size] = []
    base: _Rate | None = None
    each: _Rate | None = None
    largest: _Count | None = None
    p99_over_mean: Annotated[float, Meta(ge=1, le=1e3)] | None = None
    beside: list[Annotated[float, Meta(ge=1, le=1e3)]] = []
    source: str = ""


class Prefill(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds to read prompts: a table by the tokens of all of them, or
    `base` + `token` x tokens + `token_squared` x the sum of the squares of the prompts' lengths."""

    tokens: list[_Count] = []
    seconds: list[_Seconds] = []
    base: _Rate | None = None
    token: _Rate | None = None
    token_squared: _Rate = 0.0


class DecodePart(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds of a step for batches up to `largest` (the last part: all others):
    `base` + `request` x batch + `context_token` x tokens that all requests have behind them."""

    base: _Rate
    request: _Rate = 0.0
    context_token: _Rate = 0.0
    largest: _Count | None = None


class Decode(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seconds of a step, a token for each request of a batch: a table by batch, or `parts`."""

    batch: list[_Count] = []
    seconds: list[_Seconds] = []
    parts: list[DecodePart] = []


class Tokens(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a language model takes on so many `devices` of a type."""

    device: _Name
    prefill: Prefill
    decode: Decode
    devices: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    cache_bytes_per_token: _Size | None = None


class Operator(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A step of a model's graph: its part of a batch's `time`, the operators before it that it
    reads (`inputs`; left out, the one above), `output_bytes` for each item, the identity of its
    `parameters`, and whether a batch may be cut behind it (`border`)."""

    name: _Name
    time: _Part
    inputs: list[_Name] | None = None
    output_bytes: _Size | None = None
    parameters: str = ""
    border: bool = True


class Utilisation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What runs of the model use of a `share` of a device, sampled `every` so many seconds: parts
    of its `compute` and of its memory's `bandwidth`, and `memory_bytes`."""

    device: _Name
    every: _Seconds
    share: _Share = 1.0
    compute: list[_Part] = []
    bandwidth: list[_Part] = []
    memory_bytes: list[_Size] = []
    source: str = ""


class Parity(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a parity model stands for: of the sum of `k` inputs it gives the sum of what the model
    `of` gives of each."""

    of: _Name
    k: Annotated[int, Meta(ge=2, le=16)]


class Model(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A model: what it is, how well it answers, how fast, and what it needs. `onnx`: the file that
    `ganger serve` runs, in the folder of the models file or below it."""

    name: _Name
    family: str = ""
    source: str = ""
    accuracy: _Part | None = None
    predictions: str | None = None
    bytes: _Size | None = None
    parameters: list[Parameters] = []
    load: Load = msgspec.field(default_factory=Load)
    latency: list[Latency] = []
    tokens: list[Tokens] = []
    operators: list[Operator] = []
    utilisation: list[Utilisation] = []
    onnx: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    parity: Parity | None = None


class Stage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A step of a pipeline: which model runs."""

    name: _Name
    model: _Name


class Edge(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What one stage hands to another: so many `items` for each of its own, on average."""

    source: _Name = msgspec.field(name="from")
    target: _Name = msgspec.field(name="to")
    items: Annotated[float, Meta(gt=0, le=1e6)] = 1.0


class Pipeline(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Models that work on one request together."""

    name: _Name
    stages: list[Stage]
    edges: list[Edge] = []


class Document(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A models file. `about`: what it holds, and how and when that was found."""

    format: str
    devices: list[Device]
    models: list[Model]
    pipelines: list[Pipeline] = []
    about: str = ""


def schema() -> dict[str, Any]:
    """The JSON Schema of a models file."""
    return schema_of(FORMAT, Document)
