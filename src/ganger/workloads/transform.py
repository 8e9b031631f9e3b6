"""Pure functions from one Trace to another: cut, sample, repeat, change the load."""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec
from ganger.core.state.jobs import Declared
from ganger.core.state.names import Names
from ganger.core.units import LONGEST_SECONDS, NEVER, SECOND, format_duration
from ganger.workloads.trace import Trace


def window(trace: Trace, start: int = 0, stop: int = NEVER) -> Trace:
    """The jobs submitted in [start, stop), in microseconds since the first submission."""
    submitted = trace.declared.submitted[: trace.jobs]
    rows = np.flatnonzero((submitted >= start) & (submitted < stop))
    span = f"{format_duration(start)} to {'the end' if stop >= NEVER else format_duration(stop)}"
    return _select(trace, rows, f"window from {span}")


def head(trace: Trace, jobs: int) -> Trace:
    """The first `jobs` jobs."""
    return _select(trace, np.arange(min(max(jobs, 0), trace.jobs)), f"the first {jobs} jobs")


def parts(trace: Trace, count: int, jobs: int) -> list[Trace]:
    """`count` parts of at most `jobs` jobs in a row, spread evenly over the trace; none overlap."""
    step = trace.jobs // count
    size = min(step, jobs)
    return [
        _select(trace, np.arange(first, first + size), f"{size} jobs from the {first + 1}th on")
        for first in range(0, count * step, step)
    ]


def sample(trace: Trace, fraction: float, seed: int = 0) -> Trace:
    """Each job with probability `fraction`; the same seed, the same jobs."""
    if not 0 < fraction <= 1:
        raise BadInput(f"a sample of {fraction}", where="sample", mend="give above 0 up to 1")
    kept = np.random.default_rng(seed).random(trace.jobs) < fraction
    return _select(trace, np.flatnonzero(kept), f"a sample of {fraction:g} (seed {seed})")


def at_most(trace: Trace, gpus: int) -> Trace:
    """The jobs that ask for no more than `gpus` GPUs."""
    rows = np.flatnonzero(trace.declared.gpus[: trace.jobs] <= gpus)
    return _select(trace, rows, f"jobs of at most {gpus} GPUs")


def in_one_role(trace: Trace) -> Trace:
    """The jobs that ask for GPUs, all in one role: those that our own format can hold.
    Raises BadInput if there is none."""
    plain = [len(shape.roles) == 1 and shape.gpus > 0 for shape in trace.declared.shapes]
    return of_shapes(trace, plain, "jobs with GPUs in one role")


def of_shapes(trace: Trace, wanted: Sequence[bool], note: str) -> Trace:
    """The jobs whose shape is `wanted`, which holds that of each shape by its code. Raises BadInput
    if there is none."""
    codes = trace.declared.shape[: trace.jobs]
    return _select(trace, np.flatnonzero(np.array(wanted, bool)[codes]), note)


PSEUDONYM_DIGITS = 10


def anonymise(trace: Trace, salt: bytes) -> Trace:
    """The trace with pseudonyms for tenants, users, groups and arrays, and numbers for the names of
    jobs. The same name and salt give the same pseudonym; a person who knows the salt can test a
    guess. Models, GPU types, pools and labels stay, which profiles and clusters name, and all
    numbers."""
    declared = copy(trace.declared)
    declared.names = None
    for kind in ("tenant", "user", "group", "array"):
        names: Names[str] = getattr(declared, f"{kind}s")
        made: Names[str] = Names()
        for name in names:
            made.code(_pseudonym(kind, name, salt))
        if len(made) < len(names):
            raise BadInput(f"two {kind}s got one pseudonym", where="salt", mend="take another salt")
        setattr(declared, f"{kind}s", made)
    return replace(trace, declared=declared, name="anonymous", source="", skipped=[])


def _pseudonym(kind: str, name: str, salt: bytes) -> str:
    if not name:
        return ""
    text = hmac.digest(salt, f"{kind}:{name}".encode(), "sha256").hex()
    return f"{kind}-{text[:PSEUDONYM_DIGITS]}"


def offered_load(trace: Trace, gpus: int) -> float:
    """Work submitted over what `gpus` GPUs could do between the first and last submission."""
    if gpus <= 0:
        raise BadInput(f"{gpus} GPUs", where="load", mend="give the cluster's GPUs")
    span = int(trace.declared.submitted[trace.jobs - 1])
    work = trace.gpu_seconds()
    return work / (gpus * span / SECOND) if span else math.inf


def scale_load(trace: Trace, load: float, gpus: int) -> Trace:
    """The same jobs, arriving faster or slower so that they offer `load` to `gpus` GPUs.

    Deadlines keep their distance from the submission. Raises BadInput where all jobs come at once.
    """
    if not (load > 0 and math.isfinite(load)):
        raise BadInput(f"a load of {load}", where="load", mend="give a number above 0, like 0.9")
    now = offered_load(trace, gpus)
    if not (0 < now < math.inf):
        raise BadInput(
            "no load can be set: all jobs arrive at once, or take no time",
            where="load",
            mend="use a trace whose jobs arrive over time",
        )
    old = trace.declared.submitted[: trace.jobs]
    if float(old[-1]) * now / load > LONGEST_SECONDS * SECOND:
        raise BadInput(
            f"a load of {load} spreads the jobs over more than 1e11 s",
            where="load",
            mend="give a higher load",
        )
    declared = _copy(trace.declared, slice(None))
    declared.submitted[:] = np.rint(old * (now / load)).astype(np.int64)
    finite = declared.deadline < NEVER
    declared.deadline[finite] += (declared.submitted - old)[finite]
    return _noted(trace, declared, trace.duration[: trace.jobs], f"load {load:g} on {gpus} GPUs")


def repeat(trace: Trace, times: int) -> Trace:
    """The trace `times` times over, one mean gap between the end of one and the next."""
    if not 1 <= times <= 1_000_000 or times * trace.jobs > 100_000_000:
        raise BadInput(f"{times} repetitions", where="repeat", mend="give 1 to 1,000,000")
    n, span = trace.jobs, int(trace.declared.submitted[trace.jobs - 1])
    period = span + max(span // max(n - 1, 1), 1)
    if period * times > LONGEST_SECONDS * SECOND:
        raise BadInput(
            f"{times} repetitions take more than 1e11 s", where="repeat", mend="give fewer"
        )
    declared = _copy(trace.declared, np.tile(np.arange(n), times))
    shift = np.repeat(np.arange(times, dtype=np.int64), n)
    declared.submitted += shift * period
    finite = declared.deadline < NEVER
    declared.deadline[finite] += (shift * period)[finite]
    children = declared.parent >= 0
    declared.parent[children] += (shift * n)[children]
    declared.after = {
        row + k * n: tuple(other + k * n for other in others)
        for k in range(times)
        for row, others in trace.declared.after.items()
    }
    names = trace.declared.names
    if names is not None and times > 1:
        declared.names = [f"{name}.{k}" for k in range(times) for name in names]
    return _noted(trace, declared, np.tile(trace.duration[:n], times), f"{times} times over")


def with_jobs(trace: Trace, specs: Sequence[JobSpec], duration: int = NEVER) -> Trace:
    """The trace with more jobs, in order of submission, each of which takes so long. Raises
    BadInput for a name that is there."""
    grown, n = trace.declared.twin(), trace.jobs
    names = {grown.name(row) for row in range(n)}
    for spec in specs:
        if spec.name in names:
            raise BadInput(f"two jobs are named {spec.name!r}", mend="give each its own name")
        names.add(spec.name)
        grown.append(spec, {})
    order = np.argsort(grown.submitted[: grown.n], kind="stable")
    rank = np.empty(grown.n, np.int64)
    rank[order] = np.arange(grown.n)
    declared = _copy(grown, order)
    declared.names = [grown.name(row) for row in order.tolist()]
    children = declared.parent >= 0
    declared.parent[children] = rank[declared.parent[children]]
    declared.after = {
        int(rank[row]): tuple(int(rank[other]) for other in others)
        for row, others in grown.after.items()
    }
    takes = np.append(trace.duration[:n], np.full(len(specs), duration, np.int64))[order]
    return _noted(trace, declared, takes, f"{len(specs)} more jobs")


def _copy(declared: Declared, rows: NDArray[np.int64] | slice) -> Declared:
    """Some rows, sharing nothing with `declared` that a transform changes."""
    copy = declared.take(rows)
    copy.after = dict(declared.after)
    return copy


def _select(trace: Trace, rows: NDArray[np.int64], note: str) -> Trace:
    """Only `rows` (ascending), the first at 0; references to other jobs are dropped and counted."""
    if not len(rows):
        raise BadInput("no job is left", where=note, mend="take more of the trace")
    old = trace.declared
    declared = _copy(old, rows)
    origin = int(declared.submitted[0])
    declared.submitted -= origin
    declared.deadline[declared.deadline < NEVER] -= origin
    if old.names is not None or rows[-1] != len(rows) - 1:
        declared.names = [old.name(row) for row in rows.tolist()]
    lost = _renumber(old, declared, rows)
    result = _noted(trace, declared, trace.duration[rows], note)
    if lost:
        result.skipped.append(f"{lost:,} references to jobs outside were dropped: {note}")
    return result


def _renumber(old: Declared, new: Declared, rows: NDArray[np.int64]) -> int:
    """Point `after` and `parent` of `new` at its own rows; how many pointed outside."""
    lost = 0
    if old.after:
        row_of = {row: i for i, row in enumerate(rows.tolist())}
        new.after = {}
        for row, others in old.after.items():
            if row in row_of:
                kept = tuple(row_of[other] for other in others if other in row_of)
                lost += len(others) - len(kept)
                if kept:
                    new.after[row_of[row]] = kept
    children = np.flatnonzero(new.parent >= 0)
    if len(children):
        where = np.searchsorted(rows, new.parent[children])
        inside = rows[np.minimum(where, len(rows) - 1)] == new.parent[children]
        new.parent[children] = np.where(inside, where, -1)
        lost += int((~inside).sum())
    return lost


def _noted(trace: Trace, declared: Declared, duration: NDArray[np.int64], note: str) -> Trace:
    source = f"{trace.source}; {note}".removeprefix("; ")
    return replace(
        trace, declared=declared, duration=duration, source=source, skipped=list(trace.skipped)
    )
