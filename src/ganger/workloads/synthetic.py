"""Seeded synthetic workloads: like published clusters, or by published generators.

Kinds `philly`, `helios` and `pai` follow these published figures:

* run times: the cumulative distributions of GPU jobs in Acme's comparison of clusters (Hu et al.,
  NSDI 2024, figure 2; its `cluster_summary` gives means 18,006 s, 6,652 s and 4,787 s, medians
  874 s, 206 s and 481 s), sampled exactly: every workload has that distribution, whatever its
  seed;
* gang sizes: the same source for philly (mean 1.93 GPUs) and helios (3.72); for pai workers per
  task as measured in a random 8 % of the 2020 task table (77 % have one), and GPUs per worker with
  the published median of 0.5 and mean of 0.68 (which shares make these up is our choice);
* hours and weekdays: measured in the traces (Philly September to October 2017, Venus April to
  August 2020, PAI 2020). PAI's day 0 is unknown; its dips are put on the weekend.

Larger gangs run longer: one correlation per kind, set so that over many seeds mean GPU-time is
about 1.8 (philly) and 2.0 (helios) times mean run time x mean gang, as published; a single seed
gives anything from 1.3 to 4, since a few heavy templates decide it. The rest is ours: users and
tenants are Zipf (exponent 0.8), users come back with a few templates that fix the gang and
much of the run time (which is what predictors from history live on), and submit in short bursts.

`poisson` has Poisson arrivals, log-normal run times (mean 1 h, sigma 1.5) and Gavel's gangs.
`gavel` is the generator of Gavel's evaluation (Narayanan et al., OSDI 2020): Poisson arrivals, run
time 60 x 10^U(1.5, 3) s for 80 % and 60 x 10^U(3, 4) s for the rest (mean 1,006 min), gangs 1, 2, 4
and 8 for 70, 10, 15 and 5 %, 26 job types, weight 5 for 20 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import HOUR, LONGEST_SECONDS, SECOND, WHOLE
from ganger.workloads.build import Coded, Rows, assemble
from ganger.workloads.measured.sites import PROFILES, Profile
from ganger.workloads.trace import Trace

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


GAVEL_SIZES: Final = ((1, 70.0), (2, 10.0), (4, 15.0), (8, 5.0))
MODELS: Final = (
    "resnet50",
    "vgg16",
    "resnet101",
    "inception3",
    "alexnet",
    "vgg19",
    "resnet152",
    "inception4",
    "vgg11",
    "googlenet",
)
_BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256), "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256), "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}  # fmt: skip
_GAVEL_TYPES = (
    *(f"{name} (batch size {size})" for name, sizes in _BATCHES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)
_DISTRIBUTED = 19
"""So many of Gavel's types, the first ones, also run on several GPUs."""
_WEEK_HOURS = 7 * 24
_BURST_GAP_SECONDS = 20.0
_TEMPLATES_PER_USER = 10


def synthesize(
    kind: str,
    jobs: int,
    seed: int = 0,
    *,
    gpus: int = 64,
    load: float = 0.8,
    throughput: Callable[[str, int], float] | None = None,
) -> Trace:
    """A workload of `jobs` jobs of a kind (`KINDS`), the same for the same arguments.

    They arrive over the time in which they offer `load` to `gpus` GPUs; no gang is larger than
    `gpus`. `throughput` (a Gavel table's `steps_per_second`) gives `gavel` jobs their steps.
    Raises BadInput.
    """
    if kind not in KINDS:
        raise BadInput(f"no kind {kind!r}", where="synth", mend="use " + ", ".join(KINDS))
    if not 1 <= jobs <= 100_000_000:
        raise BadInput(f"{jobs} jobs", where="synth", mend="give 1 to 100,000,000")
    if not 1 <= gpus <= 10_000_000 or not (load > 0 and math.isfinite(load)):
        raise BadInput(
            f"a load of {load} on {gpus} GPUs",
            where="synth",
            mend="give GPUs from 1 and a load above 0, like 0.8",
        )
    rng = np.random.default_rng(seed)
    make = {"poisson": _poisson, "gavel": _gavel}.get(kind)
    if make is None:
        rows, relative = _clustered(PROFILES[kind], jobs, rng, gpus)
    else:
        rows = make(jobs, rng, gpus, throughput)
        relative = _poisson_arrivals(jobs, rng)
    source = f"synthetic: {kind}, seed {seed}, load {load:g} on {gpus} GPUs"
    return _arrive(rows, relative, gpus * load, kind, source)


Arrivals = Callable[[float], F64]
"""From the span in seconds to when each job comes."""


def _arrive(rows: Rows, relative: Arrivals, busy: float, name: str, source: str) -> Trace:
    """The Trace of jobs that arrive over the time in which they keep `busy` GPUs busy."""
    span = float((rows.duration / SECOND * rows.gpus).sum()) / busy
    if span > LONGEST_SECONDS:
        raise BadInput(
            "the jobs would arrive over more than 1e11 s",
            where="synth",
            mend="give more GPUs or fewer jobs",
        )
    rows.submitted = np.rint(relative(span) * SECOND).astype(np.int64)
    rows = rows.take(np.argsort(rows.submitted, kind="stable"))
    rows.submitted -= rows.submitted[0]
    return assemble(rows, name=name, source=source)


def _clustered(
    profile: Profile, jobs: int, rng: np.random.Generator, gpus: int
) -> tuple[Rows, Arrivals]:
    """Jobs of a calibrated kind, and their arrivals.

    What a job is hangs on a latent number per (user, template) and one of its own; ranking them
    gives every job its quantile, so that the published distribution is met exactly.
    """
    sessions = max(1, round(jobs / profile.burst))
    session = np.sort(
        np.r_[np.arange(min(sessions, jobs)), rng.integers(0, sessions, max(jobs - sessions, 0))]
    )
    users = int(np.clip(round(jobs / profile.jobs_per_user), 8, 2000))
    user = _zipf(users, 0.8, sessions, rng)
    template = user * _TEMPLATES_PER_USER + _zipf(_TEMPLATES_PER_USER, 0.8, sessions, rng)
    latent = _template_latents(users, profile.coupling, rng)
    user, template = user[session], template[session]
    size_rank = _ranks(latent[0][template] + 0.15 * rng.standard_normal(jobs), rng)
    time_rank = _ranks(latent[1][template] + 0.5 * rng.standard_normal(jobs), rng)
    size = _pick(tuple(pair for pair in profile.sizes if pair[0] <= gpus), size_rank)
    duration = _durations(profile.durations, time_rank)
    tenant = _zipf(profile.tenants, 0.8, users, rng)[user]
    rows = Rows(
        np.zeros(jobs, np.int64),
        duration,
        size.astype(np.int64),
        user=_named(user, users, "user"),
        tenant=_named(tenant, profile.tenants, "vc"),
        model=Coded((template % len(MODELS) + 1).astype(np.int32), Names(["", *MODELS])),
    )
    if profile.shares:
        _share(rows, profile.shares, rng.permutation(users * _TEMPLATES_PER_USER)[template], gpus)
    return rows, _bursts(profile, session, sessions, rng)


def _template_latents(users: int, coupling: float, rng: np.random.Generator) -> tuple[F64, F64]:
    """Latent gang size and run time per (user, template), correlated by `coupling`."""
    n = users * _TEMPLATES_PER_USER
    size, own = rng.standard_normal(n), rng.standard_normal(n)
    habit = np.repeat(rng.standard_normal(users), _TEMPLATES_PER_USER)
    rest = math.sqrt(1 - coupling**2)
    return size, coupling * size + rest * (0.6 * habit + 0.8 * own)


def _ranks(latent: F64, rng: np.random.Generator) -> F64:
    """Evenly spread quantiles in (0, 1) in the order of `latent`."""
    n = len(latent)
    quantile = np.empty(n)
    quantile[np.argsort(latent, kind="stable")] = (np.arange(n) + rng.random(n)) / n
    return quantile


def _durations(curve: tuple[tuple[float, float], ...], quantile: F64) -> I64:
    """Run times at quantiles of a cumulative distribution, straight between its points on a
    logarithmic scale; to the second, as clusters log them."""
    seconds, percent = np.array(curve).T
    points = np.r_[0.0, percent / 100], np.r_[0.0, np.log(seconds)]
    return np.maximum(np.rint(np.exp(np.interp(quantile, *points))), 1).astype(np.int64) * SECOND


def _pick(table: tuple[tuple[float, float], ...], quantile: F64) -> F64:
    """The value at each quantile of a table of (value, percent), rescaled to 100 percent."""
    values, percent = np.array(table, float).T
    edges = np.cumsum(percent) / percent.sum()
    at = np.minimum(np.searchsorted(edges, quantile, side="right"), len(values) - 1)
    return np.asarray(values[at], np.float64)


def _zipf(values: int, exponent: float, n: int, rng: np.random.Generator) -> I64:
    """`n` numbers below `values`, the k-th in proportion to 1 / k^exponent."""
    edges = np.cumsum(1.0 / np.arange(1, values + 1) ** exponent)
    return np.searchsorted(edges / edges[-1], rng.random(n), side="right").astype(np.int64)


def _named(codes: I64, count: int, prefix: str) -> Coded:
    digits = len(str(count - 1))
    names = Names(["", *(f"{prefix}{i:0{digits}d}" for i in range(count))])
    return Coded((codes + 1).astype(np.int32), names)


def _share(rows: Rows, shares: tuple[tuple[float, float], ...], order: I64, gpus: int) -> None:
    """Give each worker a part of a GPU or several GPUs, the same for all jobs of a template."""
    quantile = np.empty(len(order))
    quantile[np.argsort(order, kind="stable")] = (np.arange(len(order)) + 0.5) / len(order)
    each = _pick(shares, quantile)
    workers = rows.gpus
    whole = np.maximum(each, 1).astype(np.int64)
    whole = np.where(workers * whole <= gpus, whole, 1)
    rows.gpus = workers * whole
    rows.workers = np.where(whole > 1, workers, 0)
    rows.share = np.where(each < 1, np.rint(each * WHOLE), WHOLE).astype(np.int64)


def _bursts(profile: Profile, session: I64, sessions: int, rng: np.random.Generator) -> Arrivals:
    """Sessions follow the clock; the jobs of one come seconds apart."""
    when = rng.random(sessions)
    later = rng.exponential(_BURST_GAP_SECONDS, len(session))
    first = np.r_[True, session[1:] != session[:-1]]
    total = np.cumsum(later)
    start = np.maximum.accumulate(np.where(first, total, 0.0))
    weekly = np.concatenate(
        [np.array(profile.hours) / sum(profile.hours) * day for day in profile.days]
    )

    def relative(span: float) -> F64:
        moments = _rhythm(weekly, when, span)[session] + (total - start)
        return np.minimum(moments, span)

    return relative


def _rhythm(weekly: F64, when: F64, span: float) -> F64:
    """Times in [0, span) s for uniform numbers, as dense as the hours of the week say."""
    week = np.r_[0.0, np.cumsum(weekly)] / weekly.sum()
    hours = np.arange(_WEEK_HOURS + 1) * 3600.0
    length = hours[-1]
    weeks, rest = divmod(span, length)
    reached = when * (weeks + float(np.interp(rest, hours, week)))
    full = np.floor(reached)
    times: F64 = full * length + np.interp(reached - full, week, hours)
    return times


def _poisson_arrivals(jobs: int, rng: np.random.Generator) -> Arrivals:
    gaps = np.cumsum(rng.exponential(1.0, jobs))
    return lambda span: gaps * (span / jobs)


def _poisson(
    jobs: int, rng: np.random.Generator, gpus: int, throughput: Callable[[str, int], float] | None
) -> Rows:
    sigma = 1.5
    seconds = rng.lognormal(math.log(3600) - sigma**2 / 2, sigma, jobs)
    sizes = tuple(pair for pair in GAVEL_SIZES if pair[0] <= gpus)
    users = int(np.clip(jobs // 100, 8, 1000))
    user = _zipf(users, 1.0, jobs, rng)
    return Rows(
        np.zeros(jobs, np.int64),
        np.rint(np.maximum(seconds, 1) * SECOND).astype(np.int64),
        _pick(sizes, rng.random(jobs)).astype(np.int64),
        user=_named(user, users, "user"),
        tenant=_named(user % 4, 4, "tenant"),
    )


def _gavel(
    jobs: int, rng: np.random.Generator, gpus: int, throughput: Callable[[str, int], float] | None
) -> Rows:
    long = rng.random(jobs) >= 0.8
    exponent = np.where(long, rng.uniform(3, 4, jobs), rng.uniform(1.5, 3, jobs))
    seconds = 60 * 10**exponent
    size = _pick(tuple(p for p in GAVEL_SIZES if p[0] <= gpus), rng.random(jobs)).astype(np.int64)
    kinds = np.where(size > 1, _DISTRIBUTED, len(_GAVEL_TYPES))
    kind = (rng.random(jobs) * kinds).astype(np.int64)
    steps = np.zeros(jobs)
    if throughput is not None:
        pairs = zip(kind.tolist(), size.tolist(), strict=True)
        steps = np.floor(seconds * np.array([throughput(_GAVEL_TYPES[k], s) for k, s in pairs]))
    return Rows(
        np.zeros(jobs, np.int64),
        np.rint(seconds * SECOND).astype(np.int64),
        size,
        steps=steps,
        model=Coded((kind + 1).astype(np.int32), Names(["", *_GAVEL_TYPES])),
        weight=np.where(rng.random(jobs) < 0.2, 5.0, 1.0),
    )


KINDS: Final = (*PROFILES, "poisson", "gavel")
"""What `synthesize` can make."""
_DEMO = Profile(
    (
        (20.0, 2.0),
        (120.0, 15.0),
        (600.0, 40.0),
        (1800.0, 58.0),
        (3600.0, 70.0),
        (7200.0, 80.0),
        (14400.0, 88.0),
        (43200.0, 95.0),
        (86400.0, 98.0),
        (172800.0, 100.0),
    ),
    ((1, 62.0), (2, 10.0), (4, 12.0), (8, 12.0), (16, 3.0), (32, 1.0)),
    PROFILES["helios"].hours,
    PROFILES["helios"].days,
    coupling=0.25,
    jobs_per_user=25,
    tenants=4,
)


def demo(jobs: int = 400, seed: int = 7) -> Trace:
    """The bundled workload: four tenants, a heavy tail and a load of 1.0 for `8x8xV100`, the same
    every time; small enough for a dozen schedulers in seconds."""
    gpus = 64
    rng = np.random.default_rng(seed)
    rows, relative = _clustered(_DEMO, jobs, rng, gpus)
    rows.steps = rows.duration / SECOND * 5  # five steps a second, so that progress can be shown
    rows.estimate = _estimates(rows.duration, rng)
    trace = _arrive(rows, relative, gpus, "demo", "the bundled demo workload")
    trace.cluster = "8x8xV100"
    return trace


def _estimates(duration: I64, rng: np.random.Generator) -> I64:
    """What users guess: the f-model (Mu'alem and Feitelson, TPDS 2001), run time x U(1, 5), rounded
    up to a quarter of an hour."""
    quarter = HOUR // 4
    guess = np.ceil(duration * rng.uniform(1, 5, len(duration)) / quarter)
    return guess.astype(np.int64) * quarter
