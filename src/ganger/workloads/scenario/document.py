"""The scenario file as it is written, `ganger.scenario/1`; docs/scenario-file.md describes it.

Times are text like `100ms`. Files are named from the folder of the scenario.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ganger.workloads.documents import schema_of

FORMAT: Final = "ganger.scenario/1"

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Some = Annotated[list[_Name], Meta(min_length=1, max_length=100)]
_Rate = Annotated[float, Meta(ge=0, le=1e9)]
_Count = Annotated[int, Meta(ge=0, le=1 << 40)]
_Price = Annotated[float, Meta(ge=0, le=1e9)]
_Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]


class Generate(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Requests that are made up, with the words of `ganger requests synth`."""

    kind: Literal["poisson", "gamma", "mmpp", "diurnal", "step", "spike"]
    duration: str | None = None
    requests: _Count | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)] = 0
    rate: _Rate | None = None
    cv: _Rate | None = None
    rates: list[_Rate] | None = None
    stays: list[str] | None = None
    swing: _Rate | None = None
    peak: str | None = None
    period: str | None = None
    to: _Rate | None = None
    at: str | None = None
    width: str | None = None
    models: list[_Name] = []
    zipf: _Rate = 0.0
    tenants: _Count = 0
    items: _Count = 1
    prompt_tokens: _Rate = 0.0
    output_tokens: _Rate = 0.0
    tokens_cv: _Rate = 1.0
    inputs: _Count = 0
    inputs_zipf: _Rate = 0.0


class Service(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is asked for: a file of `requests` or a generator. `model`: all ask for it, whatever the
    file says; `slo`: for requests without a deadline."""

    name: _Name
    requests: _Name | None = None
    format: str = "auto"
    options: dict[str, str] = {}
    generate: Generate | None = None
    model: str = ""
    slo: str | None = None


class Entered(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A search on the same cluster: an experiment `file`, and the `curves` that its trials report,
    a file or a formula like `parametric:epochs=27`, with a `task` of them where they have several.
    It is submitted at the time `at`. `stragglers`: as `--stragglers` of an experiment. `name`,
    `recipe` and `tenant` take the place of those of the file."""

    file: _Name
    curves: _Name
    task: str = ""
    name: Annotated[str, Meta(max_length=200)] = ""
    recipe: Annotated[str, Meta(max_length=1000)] = ""
    tenant: Annotated[str, Meta(max_length=200)] = ""
    at: str = "0s"
    priority: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] = 0
    stragglers: Annotated[str, Meta(max_length=200)] = ""


class Delays(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `--start-cost` and the like say of a trace: times like `30s`. `start` is that of
    replicas, too: from when one is asked for until it loads its model."""

    start: str = "0s"
    finish: str = "0s"
    checkpoint: str = "0s"
    restore: str = "0s"
    boot: str = "0s"


class Training(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs of a trace on the same cluster, services among them; without one, only experiments.
    `scaling`: the recipe for the services; `recipes`: for all other jobs, searches among them;
    `sharing`: the rules by which the two share the cluster, as `--sharing`; `loads`: as `--load`;
    `window`: how often services report, 10 s unless it or `windows` says so; `costs`: delays of
    jobs and replicas."""

    recipes: _Some
    trace: Annotated[str, Meta(max_length=200)] = ""
    scaling: Annotated[str, Meta(max_length=200)] = ""
    sharing: Annotated[list[_Name], Meta(max_length=100)] = []
    loads: list[_Factor] = []
    knows: Literal[
        "truth", "noisy", "history", "rolling", "group", "estimate", "losses", "nothing"
    ] = "truth"
    window: str | None = None
    costs: Delays = Delays()


class Terms(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What loans cost: a job pays the part `rate` of the price of the GPUs that it has on loan, and
    the services that lend them pay the rest."""

    rate: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Document(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A scenario. Lists are swept: every recipe on every fleet, at every load (`faster`), with
    every SLO and every seed. A list that is left out has one entry: load 1, and no SLO."""

    format: str
    services: Annotated[list[Service], Meta(max_length=1000)] = []
    experiments: Annotated[list[Entered], Meta(max_length=1000)] = []
    models: Annotated[str, Meta(max_length=200)] = ""
    routers: Annotated[list[_Name], Meta(max_length=100)] = []
    fleets: list[_Name] = []
    cluster: Annotated[str, Meta(max_length=200)] = ""
    faster: Annotated[list[_Factor], Meta(max_length=100)] = []
    slo: list[str] = []
    seeds: str = "0"
    latency_noise: Annotated[float, Meta(ge=0, le=10)] = 1.0
    windows: str | None = None
    prices: dict[_Name, _Price] = {}
    loans: Terms | None = None
    training: Training | None = None
    about: str = ""


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario."""
    return schema_of(FORMAT, Document)
