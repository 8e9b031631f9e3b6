"""The experiment file as it is written, `ganger.experiment/1`; docs/tuning.md describes it.

Times are text like `90m`. Names of parameters are those of the space or of the curve table.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ganger.core.tuning.goals import GOALS_MAX
from ganger.core.tuning.space import Parameter, Value
from ganger.core.units import WHOLE
from ganger.workloads.documents import schema_of

FORMAT: Final = "ganger.experiment/1"

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Count = Annotated[int, Meta(ge=1, le=10_000)]
_Amount = Annotated[float, Meta(gt=0, le=1e12)]


class Budget(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The most that all trials together may take: epochs of training, GPU-hours that the search
    holds, and money for these at the prices of the cluster file."""

    epochs: _Amount | None = None
    gpu_hours: _Amount | None = None
    money: _Amount | None = None


class Resources(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What each trial holds: `gpus`, or of one GPU the part `share`; up to `most_gpus` if that is
    more, with a recipe that changes sizes; `cpus` (cores) and `memory` of the host (like 8GiB) with
    each of them, or with the part. `scaling`: how much faster it trains on 1, 2, 3, ... GPUs than
    on one; in proportion where that is not stated. `gpu_use`: the part of a GPU's time for which
    it computes alone; where trials share GPUs, n on one take
    1 + (n - 1) x `gpu_use`^2 times as long."""

    gpus: Annotated[int, Meta(ge=1, le=4096)] = 1
    share: Annotated[float, Meta(ge=0.001, le=1)] = 1.0
    gpu_types: list[_Name] = []
    cpus: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    memory: _Name = "0"
    most_gpus: Annotated[int, Meta(ge=0, le=4096)] = 0
    scaling: Annotated[list[Annotated[float, Meta(gt=0, le=4096)]], Meta(max_length=4096)] = []
    gpu_use: Annotated[float, Meta(gt=0, le=1)] = 1.0

    @property
    def per_gpu(self) -> int:
        """How many trials have a part of one GPU; 1 where each has whole ones."""
        return WHOLE // round(self.share * WHOLE)

    def held(self, trials: int) -> int:
        """The GPUs on which so many train at once."""
        return -(-trials // self.per_gpu) * self.gpus


class Document(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A search. `trials`: the most that are started; `epochs`: the most that one trains, and the
    first report counts as one; `parallelism`: how many train at once; `deadline`: by when all have
    ended; `target`: a value of the metric with which the search ends. `metrics`: others that count
    for the Pareto front, each with its direction; `constraints`: what trials must keep to be the
    best, like `latency <= 50ms`. `points`: configurations that
    are tried first. `command`: what each trial runs on a cluster, where `{NAME}` stands for a value
    of its configuration."""

    format: str
    metric: _Name
    mode: Literal["min", "max"] = "min"
    metrics: Annotated[dict[_Name, Literal["min", "max"]], Meta(max_length=GOALS_MAX)] = {}
    constraints: Annotated[list[_Name], Meta(max_length=GOALS_MAX)] = []
    name: _Name = "search"
    space: dict[_Name, Parameter] = {}
    points: Annotated[list[dict[_Name, Value]], Meta(max_length=10_000)] = []
    searcher: _Name | None = None
    recipe: _Name = "tune.asha"
    parallelism: _Count = 4
    trials: _Count | None = None
    epochs: _Amount | None = None
    budget: Budget = Budget()
    deadline: _Name | None = None
    target: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)] = 0
    resources: Resources = Resources()
    tenant: str = ""
    command: Annotated[list[str], Meta(max_length=1000)] = []
    about: str = ""


def schema() -> dict[str, Any]:
    """The JSON Schema of an experiment."""
    return schema_of(FORMAT, Document)
