"""A job as it is asked for: the body of `POST /v1/jobs` and the job file `ganger.job/1`.

In TOML or YAML the fields stand as they are named here; lengths of time as seconds or like `1h30m`,
amounts of memory as MiB or like `16GiB`, moments as Unix seconds, an ISO date and time, or `+2h`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.documents import parsed
from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter

FORMAT: Final = "ganger.job/1"
FILE_BYTES_MAX: Final = 4 << 20


class EarlierTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial of an earlier search, and what it reported last: after which `step`, and which
    `value` (null: it broke down)."""

    params: dict[str, str]
    step: float
    value: float | None


class JobRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job, or with `array` many of them.

    `command` is an argv, `script` the text of a script with a `#!` line (its arguments stand in
    `command`). `{array}` in either the command or the outputs stands for the task's number, `{job}`
    for the job's.

    `gpus` in all; `workers` share them evenly, each within one node (default: as many as `nodes`,
    or one; an elastic job has a worker per GPU). `min_gpus` and `max_gpus` make the job elastic;
    a service with `min_gpus` 0 may have no replica.
    `per`: the command runs once per `worker`, `node` or `job`. `cpus` (cores) and `memory` count
    per worker. `array` lists tasks, like `0-99`, and how many of them may be in the queue at once,
    like `0-99%4`. `after` are jobs that must finish first, `after_any` jobs that must be over,
    `after_not_ok` jobs (of an array one task) that must end badly, `after_begin` jobs that must
    have begun or be over, like `12`, or `12+10m` for ten minutes ago; task i of an array waits for
    task i of those in `after_each`. With `after_one` one of all these is enough. A `singleton`
    waits for all earlier jobs of its name and user. A job is named by its number, an array by that
    of its first task, a task like `12_3`.
    `params` are values by name: every combination is a task of an array, in whose command and
    outputs `{NAME}` stands for its value, which is also in the variable GANGER_PARAM_NAME.
    A job of kind `tune` is a search: it holds `gpus` for its trials and runs nothing itself.
    `command` is what each trial runs, with the next of its `configurations`: those that are listed,
    or every combination of `params`; `search`: in their order (`grid`), or in another (`random`).
    With a `searcher` (`kde`, `tpe`, `gp`, `cma-es`) and a `space`, it is after those listed what
    that one proposes by what trials reported until then, from this `seed`; it knows what `earlier`
    trials reported. With the searcher `client` the program that submits proposes, over the API.
    `recipe`: the one over its trials, limits, and what a trial must keep to be the best, like
    `tune.asha(mode=max); deadline=6h; latency<=0.05`; without it that of the cluster. `metric`:
    what trials are judged by, of those that they report; with `printed` also of those that they
    print, as `acc=0.9` or in a JSON object. `metrics`: others that count for the Pareto front, each
    with `min` or `max`. A trial that you
    submit yourself names its search as its `parent`. A job of kind `serve` is a service: under a
    recipe for services each of its replicas runs `command`. Limits and retries count for each trial
    and each replica.
    `retries`: failed attempts that are forgiven. `mail_to` gets an e-mail on events `mail_on`
    (submitted, started, suspended, preempted, finished, failed, cancelled, idle). `hold`: it waits
    until it is released.
    """

    format: str = FORMAT
    command: list[str] = []
    script: str = ""
    name: str = ""
    gpus: int = 1
    workers: int = 0
    nodes: int = 0
    min_gpus: int | None = None
    max_gpus: int = 0
    gpu_types: list[str] = []
    share: float = 1.0
    gpu_memory: str | float = 0
    cpus: float = 0.0
    memory: str | float = 0
    locality: str = ""
    pool: str = ""
    labels: list[str] = []
    per: str = "worker"
    time_limit: str | float | None = None
    estimate: str | float | None = None
    deadline: str | float | None = None
    begin: str | float | None = None
    priority: int = 0
    weight: float = 1.0
    tenant: str = ""
    kind: str = "train"
    on_preempt: str = "checkpoint"
    grace: str | float | None = None
    model: str = ""
    steps: float = 0.0
    array: str = ""
    params: dict[str, list[str]] = {}
    configurations: list[dict[str, str]] = []
    search: str = "grid"
    searcher: str = ""
    space: dict[str, Parameter] = {}
    seed: int = 0
    earlier: list[EarlierTrial] = []
    metric: str = ""
    metrics: dict[str, str] = {}
    recipe: str = ""
    printed: bool = False
    parent: str | int = ""
    after: list[str | int] = []
    after_any: list[str | int] = []
    after_not_ok: list[str | int] = []
    after_begin: list[str | int] = []
    after_each: list[str | int] = []
    after_one: bool = False
    singleton: bool = False
    hold: bool = False
    retries: int = 0
    mail_to: list[str] = []
    mail_on: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    output: str = ""
    error: str = ""
    checkpoint_dir: str = ""
    warm: list[str] = []


def read_file(path: Path) -> JobRequest:
    """The job that a TOML, YAML or JSON file describes. Raises BadInput, naming the field."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"cannot read it: {error.strerror}", where=str(path)) from None
    if len(data) > FILE_BYTES_MAX:
        raise BadInput("it is larger than 4 MiB", where=str(path), mend="give a job file")
    found = _parse(path, data)
    if not isinstance(found, dict):
        raise BadInput("it holds no fields", where=str(path), mend=f"begin with format: {FORMAT}")
    stated = found.setdefault("format", FORMAT)
    if stated != FORMAT:
        raise BadInput(
            f"format {stated!r} is not {FORMAT}", where=str(path), mend=f"write format: {FORMAT}"
        )
    return convert(found, str(path))


def _parse(path: Path, data: bytes) -> Any:
    suffix = path.suffix if path.suffix in (".toml", ".json") else ".yaml"
    try:
        return parsed(data.decode(), suffix)
    except ValueError as error:
        what = " ".join(str(error).split())
        raise BadInput(what, where=str(path), mend="give TOML, YAML or JSON") from None


def convert(found: Any, where: str) -> JobRequest:
    """Fields as a request. Raises BadInput, naming the first that is wrong."""
    try:
        return msgspec.convert(found, JobRequest)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), where=where, mend="see `ganger submit --help`") from None
