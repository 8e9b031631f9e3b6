"""Profiles of goodput, measured by others (Pollux and Sia), and what profiles mean for a trace.

One folder per application.
`placements*.csv`: placement (GPUs per node, one digit each), local_bsz, step_time, sync_time (s);
`scalability*.csv`: num_nodes, num_replicas and the same; `validation-B.csv`: training once at
batch size B: progress (in steps of the smallest batch), grad_sqr, grad_var by epoch. All may be
gzipped. The suffix of the first two names the hardware (`TYPES`), none means T4, the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.profiles import Goodput, OnType, Profile, Profiles, StepTimes
from ganger.core.spec import GpuType, Shape
from ganger.core.state.names import Names
from ganger.core.units import micros
from ganger.workloads.files import open_text
from ganger.workloads.rows import Count, Kind, Number, Text, read_delimited
from ganger.workloads.trace import Trace

TYPES: Mapping[str, str] = {
    "A100": "dgx-ext",
    "RTX2080Ti": "rtx",
    "RTX6000": "quad",
    "V100": "azure",
}
"""The hardware whose files tell of a GPU type beside T4, as Sia's simulator describes it: DGX-A100
(more batch sizes than `dgx`), 8 RTX 2080 Ti, 4 Quadro RTX 6000, Azure's ND40rs_v2."""
_Points = dict[str, dict[float, list[tuple[float, float]]]]
"""Placement to local batch to measured (step, sync)."""
_TIMES: dict[str, Kind] = {
    "local_bsz": Number(1e-6, 1e9),
    "step_time": Number(1e-9, 1e6),
    "sync_time": Number(0.0, 1e6),
}


def recognises(folder: Path) -> bool:
    """Whether it holds folders of applications."""
    return any(folder.glob("*/placements*.csv*"))


def load_profiles(folder: Path) -> Profiles:
    """The profiles of every application below `folder` that was measured on T4, and on the other
    GPU types on which it was. Raises BadInput."""
    if not folder.is_dir():
        raise BadInput("no such folder", where=str(folder))
    models = {
        each.name: Profile(goodput=load_goodput(each))
        for each in sorted(folder.iterdir())
        if _file(each, "placements") is not None
    }
    if not models:
        mend = "give the folder that holds one folder per application"
        raise BadInput("no placements in it", where=str(folder), mend=mend)
    return Profiles(models)


def load_goodput(folder: Path) -> Goodput:
    """One application. Orders of the same GPUs per node are averaged. The job is done after the
    last epoch that all of its validation runs have. Raises BadInput."""
    reference = _on_type(folder, "")
    if "1" not in reference.times:
        raise BadInput("no step times for one GPU", where=str(folder))
    by_type = {
        gpu_type: _on_type(folder, f"-{hardware}")
        for gpu_type, hardware in TYPES.items()
        if _file(folder, f"placements-{hardware}") is not None
    }
    for gpu_type, told in by_type.items():
        if not told.times:
            raise BadInput(f"no step times on {gpu_type}", where=str(folder))
    runs = _validations(folder)
    first, epochs = runs[min(runs)], min(len(run) for run in runs.values())
    ends = np.array([progress for progress, _ in first[:epochs]])
    starts = np.concatenate([[0.0], ends[:-1] / ends[-1]])
    return Goodput(
        batch=min(runs),
        most=max(runs),
        local=reference.local,
        examples=float(ends[-1]) * min(runs),
        starts=tuple(starts.tolist()),
        batches=tuple(runs),
        noise=tuple(tuple(phi * min(runs) for _, phi in run[:epochs]) for run in runs.values()),
        times=reference.times,
        by_type=by_type,
    )


def _on_type(folder: Path, suffix: str) -> OnType:
    """What the files of one kind of hardware tell."""
    points: _Points = defaultdict(lambda: defaultdict(list))
    for placement, *row in _rows(folder, f"placements{suffix}", {"placement": Text()} | _TIMES):
        _enter(points, "-".join(sorted(placement)), *row)
    counts = {"num_nodes": Count(1, 10**6), "num_replicas": Count(1, 10**6)}
    for nodes, replicas, *row in _rows(folder, f"scalability{suffix}", counts | _TIMES):
        _enter(points, f"{nodes}/{replicas}", *row)
    seen = [local for by_local in points.values() for local in by_local]
    times = {key: _measured(by_local) for key, by_local in points.items()}
    return OnType((min(seen, default=0.0), max(seen, default=0.0)), times)


def _enter(points: _Points, key: str, local: float, step: float, sync: float) -> None:
    points[key][local].append((step, sync))


def _measured(by_local: dict[float, list[tuple[float, float]]]) -> StepTimes:
    batches = sorted(by_local)
    means = [np.mean(by_local[local], axis=0).tolist() for local in batches]
    return StepTimes(
        tuple(batches), tuple(step for step, _ in means), tuple(sync for _, sync in means)
    )


def _validations(folder: Path) -> dict[float, list[tuple[float, float]]]:
    """Batch size to (progress at the end of the epoch, variance over squared norm), ascending."""
    found: dict[float, list[tuple[float, float]]] = {}
    kinds = {
        "progress": Number(1e-9, 1e15),
        "grad_var": Number(0.0, 1e30),
        "grad_sqr": Number(0.0, 1e30),
    }
    for path in sorted(folder.glob("validation-*.csv*")):
        stem = path.name.split(".csv")[0]
        found[_batch(path, stem)] = [
            (progress, _ratio(variance, square))
            for progress, variance, square in _rows(folder, stem, kinds)
        ]
    if not found or not all(found.values()):
        raise BadInput("no validation runs", where=str(folder))
    return dict(sorted(found.items()))


def _batch(path: Path, stem: str) -> float:
    digits = stem.removeprefix("validation-")
    if not digits.isdecimal() or not 0 < int(digits[:12]) < 10**9:
        raise BadInput(
            f"{digits!r} is not a valid batch size", where=str(path), mend="write validation-B"
        )
    return float(digits)


def _ratio(variance: float, square: float) -> float:
    """Variance over squared norm of the gradient; at most 1e9, where no signal was measured."""
    return variance / max(square, 1e-9 * variance, 1e-300)


def _file(folder: Path, stem: str) -> Path | None:
    for suffix in (".csv", ".csv.gz"):
        if (folder / (stem + suffix)).is_file():
            return folder / (stem + suffix)
    return None


def _rows(folder: Path, stem: str, kinds: Mapping[str, Kind]) -> list[tuple[Any, ...]]:
    """The columns `kinds` of a file, row by row."""
    path = _file(folder, stem)
    if path is None:
        raise BadInput(f"no {stem}.csv", where=str(folder))
    table = read_delimited(open_text(path), kinds)
    return list(zip(*(table[name].tolist() for name in kinds), strict=True))


def with_goodput(trace: Trace, profiles: Profiles, *, elastic: int = 0) -> Trace:
    """`trace` with durations from its models' goodput profiles: the whole job on one GPU at the
    batch size it was tuned for. `elastic`: such jobs may run on 1 to so many GPUs (0: as asked).
    """
    declared = trace.declared.take(slice(None))
    duration = trace.duration.copy()
    shapes: Names[Shape] = Names(declared.shapes.values)
    for job in range(declared.n):
        goodput = profiles.of(declared.models[int(declared.model[job])]).goodput
        if goodput is None:
            continue
        duration[job] = micros(goodput.seconds())
        if elastic:
            shape = declared.shapes[int(declared.shape[job])]
            most = min(elastic, int((goodput.only or goodput.most) // goodput.local[0]))
            role = msgspec.structs.replace(
                shape.roles[0], least=1, most=max(most, shape.roles[0].size)
            )
            roles = (role, *shape.roles[1:])
            declared.shape[job] = shapes.code(msgspec.structs.replace(shape, roles=roles))
    declared.shapes = shapes
    return replace(trace, declared=declared, duration=duration)


def trained_to_target(trace: Trace, profiles: Profiles) -> Trace:
    """`trace` with durations from its models' convergence, where that tells the seconds of an
    epoch: the epochs to the target times what each takes."""
    duration = trace.duration.copy()
    codes = trace.declared.model[: trace.jobs]
    for code, name in enumerate(trace.declared.models):
        told = profiles.of(name).convergence
        if told is not None and told.seconds:
            duration[codes == code] = micros(told.length() * told.seconds)
    return replace(trace, duration=duration)


def where_it_runs(trace: Trace, profiles: Profiles, types: Sequence[GpuType]) -> Trace:
    """`trace` with jobs bound to those of `types` whose memory is enough for their model and, if
    they may go anywhere, on which it was not measured to fail. Raises BadInput where there are
    none."""
    declared, n = trace.declared, trace.jobs
    kinds = np.stack([declared.model[:n], declared.shape[:n]], axis=1)
    bound: list[tuple[int, int, Shape]] = []
    for model, code in np.unique(kinds, axis=0).tolist():
        shape, profile = declared.shapes[code], profiles.of(declared.models[model])
        asked = [kind for kind in types if not shape.gpu_types or kind.name in shape.gpu_types]
        able = tuple(
            kind.name
            for kind in asked
            if profile.peak <= kind.memory
            and (shape.gpu_types or profile.runs_on(kind.name, shape.gpus))
        )
        if shape.gpus and len(able) < len(asked):
            if not able:
                needs = f", and needs {profile.peak:g} MiB of each" if profile.peak else ""
                raise BadInput(
                    f"{declared.models[model]!r} runs on {shape.gpus} GPUs of no type there{needs}",
                    where=trace.name,
                    mend="add a GPU type to --cluster on which it does",
                )
            bound.append((model, code, msgspec.structs.replace(shape, gpu_types=able)))
    if not bound:
        return trace
    declared = declared.take(slice(None))
    shapes: Names[Shape] = Names(declared.shapes.values)
    for model, code, shape in bound:
        rows = (kinds[:, 0] == model) & (kinds[:, 1] == code)
        declared.shape[:n][rows] = shapes.code(shape)
    declared.shapes = shapes
    return replace(trace, declared=declared)
