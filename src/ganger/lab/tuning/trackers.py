"""What the trials of a search tried and reported, for the trackers that people have: event files
of TensorBoard, and runs of MLflow."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.lab.tuning.export import Tried

_SEARCH: Final = "ganger.search"
_AT_ONCE: Final = 1000
"""So many values go to MLflow in one request."""
_STATES: Final = {True: "FINISHED", False: "KILLED"}


@dataclass(frozen=True)
class Search:
    """A search that is written to a tracker: what it is called, its number, and when its trials
    began (Unix seconds, by label)."""

    name: str
    number: int
    began: Mapping[str, float]


def to_tensorboard(folder: Path, search: Search, trials: Sequence[Tried]) -> int:
    """Write a folder of events for each trial that reported: a scalar for each metric by step, and
    its parameters for the tab of hyper-parameters. How many. Raises
    BadInput for a folder in which there is something, and where tensorboardX is not installed."""
    if not _installed("tensorboardX"):
        raise BadInput(
            "it needs tensorboardX", where="--tensorboard", mend="install ganger[tensorboard]"
        )
    from tensorboardX import FileWriter
    from tensorboardX.summary import hparams, scalar

    reporting = _reporting(trials, "--tensorboard")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput(
                "it holds something already",
                where=str(folder),
                mend="name a folder that is new or empty",
            )
        for trial in reporting:
            began = search.began.get(trial.label, 0.0)
            writer = FileWriter(str(folder / f"trial-{trial.label}"))
            values = {name: number_or_word(word) for name, word in trial.params.items()}
            for summary in hparams(values, _last(trial)):
                writer.add_summary(summary, global_step=0, walltime=began)
            for epoch, (seconds, metrics) in trial.reports.items():
                for name, value in metrics.items():
                    if value is not None:
                        step, at = round(epoch), began + seconds
                        writer.add_summary(scalar(name, value), global_step=step, walltime=at)
            writer.close()
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror}", where=str(folder)) from None
    return len(reporting)


def to_mlflow(where: str, search: Search, trials: Sequence[Tried]) -> int:
    """Make a run in MLflow for each trial that reported, in an experiment with the name of the
    search; `where` is a folder or the address of a server. How many. Raises BadInput for a search
    that is there already, for what MLflow refuses, and where it is not installed."""
    if not _installed("mlflow"):
        raise BadInput("it needs MLflow", where="--mlflow", mend="install ganger[mlflow]")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it tells its makers of each use
    if "://" not in where:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder was asked for
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    reporting = _reporting(trials, "--mlflow")
    address = where if "://" in where else Path(where).absolute().as_uri()
    try:
        client = MlflowClient(tracking_uri=address)
        known = client.get_experiment_by_name(search.name)
        experiment = known.experiment_id if known else client.create_experiment(search.name)
        mine = f"tags.`{_SEARCH}` = '{search.number}'"
        if client.search_runs([experiment], mine, max_results=1):
            raise BadInput(
                f"search {search.number} is there already",
                where=where,
                mend="name another place, or delete its runs",
            )
        for trial in reporting:
            _run(client, experiment, search, trial)
    except (MlflowException, OSError) as error:
        raise BadInput(f"MLflow: {error}"[:500], where=where) from None
    return len(reporting)


def _run(client: Any, experiment: str, search: Search, trial: Tried) -> None:
    from mlflow.entities import Metric, Param

    began = 1000 * search.began.get(trial.label, 0.0)
    tags = {_SEARCH: str(search.number), "ganger.job": trial.label}
    run = client.create_run(
        experiment, start_time=round(began), tags=tags, run_name=f"trial {trial.label}"
    ).info.run_id
    params = [Param(name, word) for name, word in trial.params.items()]
    values = [
        Metric(name, value, round(began + 1000 * seconds), round(epoch))
        for epoch, (seconds, metrics) in trial.reports.items()
        for name, value in metrics.items()
        if value is not None
    ]
    for first in range(0, len(params), 100):
        client.log_batch(run, params=params[first : first + 100])
    for first in range(0, len(values), _AT_ONCE):
        client.log_batch(run, metrics=values[first : first + _AT_ONCE])
    last = max(seconds for seconds, _ in trial.reports.values())
    client.set_terminated(run, _STATES[trial.ended], round(began + 1000 * last))


def _installed(module: str) -> bool:
    """Whether it is installed."""
    try:
        return find_spec(module) is not None
    except ValueError:  # somebody keeps it from being imported
        return False


def _reporting(trials: Sequence[Tried], where: str) -> list[Tried]:
    reporting = [trial for trial in trials if trial.reports]
    if not reporting:
        raise BadInput("no trial has reported yet", where=where)
    return reporting


def _last(trial: Tried) -> dict[str, float]:
    """What it reported last of each metric."""
    last: dict[str, float] = {}
    for _, metrics in trial.reports.values():
        last |= {name: value for name, value in metrics.items() if value is not None}
    return last


def number_or_word(word: str) -> float | str:
    """A value of a parameter as TensorBoard draws it: a number where it is one."""
    try:
        number = float(word)
    except ValueError:
        return word
    return number if math.isfinite(number) else word
