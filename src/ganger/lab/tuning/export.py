"""What the trials of a search tried and reported, as files for other tools: a table of curves as
CSV or Parquet, or a study in a storage of Optuna."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ganger.core.errors import BadInput
from ganger.workloads.curves.table import LOG_FROM
from ganger.workloads.files import in_place_of
from ganger.workloads.readers.ganger_trace import import_pyarrow

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SUFFIXES: Final = (".csv", ".parquet", ".db")
Row = dict[str, Any]


class Tried:
    """One trial: its `label`, its parameters, its reports by epoch (seconds since it was started
    first, and metrics by name, None where it broke down), and whether it came to its end."""

    def __init__(self, label: str, params: Mapping[str, str], *, ended: bool) -> None:
        self.label, self.params, self.ended = label, params, ended
        self.reports: dict[float, tuple[float, dict[str, float | None]]] = {}

    def hear(self, epoch: float, seconds: float, metrics: dict[str, float | None]) -> None:
        """A report; one of an epoch that it has trained again takes the place of the former."""
        while self.reports and (last := next(reversed(self.reports))) >= epoch:
            del self.reports[last]
        self.reports[epoch] = (seconds, metrics)


def write(path: Path, trials: Sequence[Tried], metric: str, *, more_is_better: bool) -> int:
    """Write the trials that reported; how many. Raises BadInput for a file that cannot be, and for
    what is not installed."""
    if path.suffix not in SUFFIXES:
        raise BadInput("unknown format", where=str(path), mend=f"use {', '.join(SUFFIXES)}")
    if path.exists():
        raise BadInput("it is there already", where=str(path), mend="name another file")
    reporting = [trial for trial in trials if trial.reports]
    if not reporting:
        raise BadInput("no trial has reported yet", where=str(path))
    try:
        with in_place_of(path) as part:
            if path.suffix == ".db":
                _study(part, reporting, metric, path.stem, more_is_better=more_is_better)
            else:
                _table(part, reporting, metric, parquet=path.suffix == ".parquet")
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror}", where=str(path)) from None
    return len(reporting)


def _table(path: Path, trials: Sequence[Tried], metric: str, *, parquet: bool) -> None:
    """A row per report, in the layout that `ganger simulate --curves` reads."""
    params = list(dict.fromkeys(name for trial in trials for name in trial.params))
    metrics = list(
        dict.fromkeys(
            [metric, *(n for t in trials for _, each in t.reports.values() for n in each)]
        )
    )
    columns = ["configuration", *params, "epoch", "seconds", *metrics]
    rows = [
        {"configuration": trial.label, **trial.params, "epoch": epoch, "seconds": seconds, **values}
        for trial in trials
        for epoch, (seconds, values) in trial.reports.items()
    ]
    if parquet:
        arrow, files = import_pyarrow()
        columns_of = {name: [row.get(name) for row in rows] for name in columns}
        files.write_table(arrow.table(columns_of), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _study(
    path: Path, trials: Sequence[Tried], metric: str, name: str, *, more_is_better: bool
) -> None:
    """A study, each trial with what it reported last."""
    if find_spec("optuna") is None:
        raise BadInput("it needs Optuna", where=".db", mend="install ganger[optuna]")
    import optuna
    from optuna.trial import TrialState, create_trial

    among = _distributions(trials)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}")
        study = optuna.create_study(
            study_name=name, storage=storage, direction="maximize" if more_is_better else "minimize"
        )
        with warnings.catch_warnings():  # it names a file of ours, and users can do nothing
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([metric])
        for trial in trials:
            values = {
                int(epoch): value
                for epoch, (_, each) in trial.reports.items()
                if (value := each[metric]) is not None
            }
            last = list(trial.reports.values())[-1][1][metric]
            whole = trial.ended and last is not None
            kept = {name: among[name] for name in trial.params}
            study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE
                    if whole
                    else TrialState.PRUNED
                    if last is not None
                    else TrialState.FAIL,
                    value=last if whole else None,
                    params={n: _value(word, among[n]) for n, word in trial.params.items()},
                    distributions=kept,
                    intermediate_values=values,
                    user_attrs={"job": trial.label},
                )
            )
        storage.remove_session()
        storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)


def _distributions(trials: Sequence[Tried]) -> dict[str, BaseDistribution]:
    """The smallest ranges that hold all values, spread by their logarithm where the space of a
    curve table would be; what is not a number is a choice."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    words: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, word in trial.params.items():
            words.setdefault(name, {})[word] = None
    ranges: dict[str, BaseDistribution] = {}
    for name, each in words.items():
        try:
            numbers = [float(word) for word in each]
            low, high = min(numbers), max(numbers)
            ranges[name] = FloatDistribution(low, high, log=low > 0 and high >= LOG_FROM * low)
        except ValueError:
            ranges[name] = CategoricalDistribution(tuple(each))
    return ranges


def _value(word: str, among: BaseDistribution) -> float | str:
    from optuna.distributions import CategoricalDistribution

    return word if isinstance(among, CategoricalDistribution) else float(word)
