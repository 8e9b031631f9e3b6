"""What the API answers about searches and services, their children and their reports."""

from __future__ import annotations

import msgspec

from ganger.core.tuning.space import Parameter


class ChildAnswer(msgspec.Struct, kw_only=True):
    """A trial or a replica: the `params` of its configuration, what it reported last (`value`, null
    if it broke down), and after which `step`; `checkpoint_dir` where the user named a folder, and
    of a trial that began as a copy, the trial that it `copied`; of a search with several metrics or
    constraints, the other `metrics` that it reported last, and whether they keep all
    constraints."""

    job: int
    name: str
    state: str
    gpus: int
    params: dict[str, str]
    step: float | None
    value: float | None
    checkpoint_dir: str = ""
    copied: int | None = None
    metrics: dict[str, float] = {}
    feasible: bool = True


class ReportAnswer(msgspec.Struct, kw_only=True):
    """What a job reported after `step` steps, `seconds` after it was started first: the `value`
    that it is judged by (null: it broke down), and other `metrics` by name. `id` numbers all."""

    id: int
    job: int
    step: float
    seconds: float
    value: float | None
    metrics: dict[str, float]


class ProposalsAnswer(msgspec.Struct, kw_only=True):
    """What a search waits for whose configurations the program proposes that submitted it: how many
    are `wanted` now; its `space`, its `seed`, and whether it is `over`."""

    wanted: int
    space: dict[str, Parameter] = {}
    seed: int = 0
    over: bool = False


class FamilyAnswer(msgspec.Struct, kw_only=True):
    """The children of a search or a service, at most the last 1000; of a search, the number of the
    one that reported the `best` value last, the name of what is reported, whether `more_is_better`,
    the `recipe` over its trials, and which limit ended it, such as `the deadline`. `metrics`:
    others that count, each with `min` or `max`; `constraints`: what a trial must keep to be the
    best; `pareto`: the numbers of those that keep them, and that no other beats in all metrics."""

    children: list[ChildAnswer]
    best: int | None
    metric: str
    ended_by: str = ""
    more_is_better: bool = False
    recipe: str = ""
    metrics: dict[str, str] = {}
    constraints: list[str] = []
    pareto: list[int] = []


class WindowAnswer(msgspec.Struct, kw_only=True):
    """How a service did from `since` until `until` (Unix seconds): arrivals, answered, late, p99 in
    seconds and their like, of which only those are there that were measured."""

    since: float
    until: float
    figures: dict[str, float]


class ReplicaAnswer(msgspec.Struct, kw_only=True):
    """A replica of a service that is not over: its `attempt` (0: none yet), the `node` where it
    runs and at which `host` that is reached from the daemon's machine ("": nowhere yet, or not
    known), the `port` that it reported (0: none yet), and whether it was asked to leave: then it is
    to get no request more."""

    job: int
    attempt: int
    state: str
    node: str
    host: str
    port: int
    leaving: bool


class ServiceAnswer(msgspec.Struct, kw_only=True):
    """A service that is not over: the GPUs that it holds with its replicas, how many of these are
    in which state, and its last windows, the oldest first."""

    job: int
    label: str
    name: str
    user: str
    tenant: str
    state: str
    gpus: int
    replicas: dict[str, int]
    windows: list[WindowAnswer]
