"""Zeus' training runs (You et al., NSDI 2023): when accuracy is reached, and what an epoch takes.

A folder with two kinds of CSV, plain or gzipped. `summary_train`: dataset, network, batch_size,
optimizer, learning_rate, run, target_metric, target_epoch (the epoch after which that run had
reached the target; `nan`: it never did). `summary_power_GPU`, by the GPU's type: dataset, network,
batch_size, optimizer, power_limit (W), time_per_epoch (s), average_power (W).

Models are named like Gavel's job types, `resnet50 (batch size 128)`; a network that was trained on
several data sets also by that: `bert_base_uncased on squad (batch size 32)`. Of every model the
optimizer and learning rate count that reach the most difficult target, and that soonest. A target
is reached at the median over the runs, where a run that never does is the latest; so more than half
of them reach every target of a profile, and a job's own target is the last of these. Percentages
are taken as fractions; a metric that falls (word errors) is a loss. An epoch's time and the watts
are those at the highest power limit; on other GPU types speed is the V100's over theirs. Zeus ran
on one GPU: scaling and locality stay at their defaults. Lower limits are left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.core.profiles import Convergence, Profile, Profiles
from ganger.workloads.clusters import known_type
from ganger.workloads.files import open_text
from ganger.workloads.rows import Cell, Column, Count, Kind, Number, Text, read_delimited

REFERENCE: Final = "V100"
_TRAIN, _POWER = "summary_train", "summary_power_"
_NEVER = math.inf


class _Model(NamedTuple):
    dataset: str
    network: str
    batch: int


_Epochs = dict[float, list[float]]
"""By level of the metric: the epoch at which each run reached it, or `_NEVER`."""
_Runs = dict[_Model, dict[tuple[str, str], _Epochs]]
"""By model: by optimizer and learning rate."""
_Times = dict[_Model, dict[str, tuple[float, float]]]
"""By model and optimizer: seconds of an epoch, and watts."""
_Curve = list[tuple[float, float]]
"""(epoch, level): both ever further into training."""


def _epochs(cells: Sequence[Cell]) -> Column:
    """Epochs; `nan` (never) becomes 0."""
    return Number(1, 1e5, blank=0.0)(["" if cell == "nan" else cell for cell in cells])


_KEY: dict[str, Kind] = {
    "dataset": Text(), "network": Text(), "batch_size": Count(1, 10**9), "optimizer": Text(),
}  # fmt: skip
_RUN: dict[str, Kind] = _KEY | {
    "learning_rate": Text(),
    "target_metric": Number(1e-9, 100),
    "target_epoch": _epochs,
}
_EPOCH: dict[str, Kind] = _KEY | {
    "power_limit": Number(1, 1e5),
    "time_per_epoch": Number(1e-6, 1e9),
    "average_power": Number(0.0, 1e5),
}


def recognises(folder: Path) -> bool:
    """Whether it is such a folder."""
    return bool(_files(folder, _TRAIN))


def load_training(folder: Path) -> Profiles:
    """The profiles of such a folder. Raises BadInput."""
    runs = _runs(_files(folder, _TRAIN)[0])
    times = {
        known_type(path.name.split(".")[0].removeprefix(_POWER)): _times(path)
        for path in _files(folder, f"{_POWER}*")
    }
    if REFERENCE not in times:
        what, mend = f"no {_POWER}{REFERENCE.lower()}.csv", f"{REFERENCE} is the reference"
        raise BadInput(what, where=str(folder), mend=mend)
    falls, scales, names = _falls(runs), _scales(runs), _names([*runs, *times[REFERENCE]])
    models = {}
    for model, name in names.items():
        task = model[:2]
        optimizer, curve = _best(runs.get(model, {}), falls.get(task, False))
        optimizer = optimizer or next(iter(times[REFERENCE].get(model, {})), "")
        speeds = {
            kind: by_model[model][optimizer]
            for kind, by_model in times.items()
            if optimizer in by_model.get(model, {})
        }
        alone = speeds.get(REFERENCE, (0.0, 0.0))[0]
        models[name] = Profile(
            by_type={kind: alone / time for kind, (time, _) in speeds.items() if alone},
            watts={kind: watts for kind, (_, watts) in speeds.items()},
            convergence=_convergence(curve, falls[task], scales[task], alone) if curve else None,
        )
    return Profiles(models)


def _convergence(curve: _Curve, falls: bool, scale: float, seconds: float) -> Convergence:
    values = tuple(level / scale for _, level in curve)
    return Convergence(
        tuple(epoch for epoch, _ in curve),
        values,
        metric="loss" if falls else "accuracy",
        target=values[-1],
        seconds=seconds,
    )


def _files(folder: Path, stem: str) -> list[Path]:
    found = [path for end in (".csv", ".csv.gz") for path in folder.glob(stem + end)]
    return sorted(path for path in found if path.is_file())


def _rows(path: Path, kinds: Mapping[str, Kind]) -> Iterable[tuple[_Model, tuple[Any, ...]]]:
    """The model and the other columns of `kinds`, row by row."""
    table = read_delimited(open_text(path), kinds)
    for row in zip(*(table[name].tolist() for name in kinds), strict=True):
        yield _Model(*row[:3]), row[3:]


def _runs(path: Path) -> _Runs:
    found: _Runs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for model, (optimizer, rate, level, epoch) in _rows(path, _RUN):
        found[model][optimizer, rate][level].append(epoch or _NEVER)
    return found


def _times(path: Path) -> _Times:
    highest: dict[_Model, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for model, (optimizer, *figures) in _rows(path, _EPOCH):
        highest[model][optimizer] = max(highest[model].get(optimizer, ()), tuple(figures))
    return {
        model: {optimizer: (time, watts) for optimizer, (_, time, watts) in by_optimizer.items()}
        for model, by_optimizer in highest.items()
    }


def _falls(runs: _Runs) -> dict[tuple[str, str], bool]:
    """By data set and network: whether low levels of the metric come later than high ones."""
    later: dict[tuple[str, str], int] = defaultdict(int)
    for model, by_training in runs.items():
        for reached in by_training.values():
            low, high = median(reached[min(reached)]), median(reached[max(reached)])
            later[model[:2]] += (low > high) - (low < high)
    return {task: balance > 0 for task, balance in later.items()}


def _scales(runs: _Runs) -> dict[tuple[str, str], float]:
    """By data set and network: what stands for 1 in its metric, 100 where it is in per cent."""
    most: dict[tuple[str, str], float] = defaultdict(float)
    for model, by_training in runs.items():
        levels = [level for reached in by_training.values() for level in reached]
        most[model[:2]] = max(most[model[:2]], *levels)
    return {task: 100.0 if level > 1 else 1.0 for task, level in most.items()}


def _names(models: Iterable[_Model]) -> dict[_Model, str]:
    """What every model is called: by its network, and its data set where that says more."""
    distinct, datasets = dict.fromkeys(models), defaultdict(set)
    for model in distinct:
        datasets[model.network].add(model.dataset)
    return {
        model: f"{model.network}{f' on {model.dataset}' * (len(datasets[model.network]) > 1)}"
        f" (batch size {model.batch})"
        for model in distinct
    }


def _best(by_training: Mapping[tuple[str, str], _Epochs], falls: bool) -> tuple[str, _Curve]:
    """The optimizer that gets furthest, of those the soonest, and its curve; `("", [])` if none
    gets anywhere."""
    curves = [
        (optimizer, _curve(reached, falls)) for (optimizer, _), reached in by_training.items()
    ]
    return max(
        ((optimizer, curve) for optimizer, curve in curves if curve),
        key=lambda each: (each[1][-1][1] * (-1 if falls else 1), -each[1][-1][0]),
        default=("", []),
    )


def _curve(reached: _Epochs, falls: bool) -> _Curve:
    """Of the levels of an epoch the furthest."""
    curve: _Curve = []
    for level in sorted(reached, reverse=falls):
        epoch = median(reached[level])
        if epoch == _NEVER:
            break
        while curve and curve[-1][0] >= epoch:
            curve.pop()
        curve.append((epoch, level))
    return curve
