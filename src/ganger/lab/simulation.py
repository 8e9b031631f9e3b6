"""One run: a policy over a trace on a cluster, from spec to result."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ganger.client.strangers import refuse_others_file
from ganger.core.books.empty import EmptyCluster
from ganger.core.errors import BadInput, InvariantError
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement
from ganger.core.profiles import Load, Profiles
from ganger.core.protocols import Engine, Ignorant, Journal, Oracle, Policy
from ganger.core.spec import ClusterSpec, Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.lab.progress import Ticker
from ganger.lab.recorder import GANTT_JOBS, Recorder
from ganger.lab.result import JobTable, Run
from ganger.lab.serving.hosting import Served, Traffic
from ganger.lab.user_policy import OwnPolicy, load_own
from ganger.lab.waited import WaitRecorder
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel, searches
from ganger.recipes import registry
from ganger.sim.children import FromCurves
from ganger.sim.detailed import simulator
from ganger.sim.hosted import Hosted
from ganger.sim.load import Fluid
from ganger.sim.physics import Costs, Physics
from ganger.sim.rows import Outage
from ganger.sim.truth import Noisy, Truth
from ganger.workloads.measured.profiles import where_it_runs
from ganger.workloads.trace import Trace


@dataclass(frozen=True)
class Setup:
    """Everything that decides how a run goes, besides trace, cluster and recipe.

    `knows`: truth, noisy (with `noise` as the lognormal spread of run times, `speed_noise` of
    speeds), history (boosted trees over what like jobs took), rolling (the mean of the user's like
    jobs), group (the mean by group and GPUs), estimate (what the user stated: the estimate, else
    the time limit, else nothing), losses (a curve fitted to what jobs reported of their
    training, by the profiles' `convergence`; true speeds) or nothing. `until`: stop there
    (microseconds). `outages`: nodes that go down and come back.
    """

    seed: int = 0
    knows: str = "truth"
    noise: float = 0.5
    costs: Costs = field(default_factory=Costs)
    profiles: Profiles = field(default_factory=Profiles)
    outages: tuple[Outage, ...] = ()
    until: int = NEVER
    validate: bool = False
    speed_noise: float = 0.0
    inner: str = "fifo"
    """The recipe that divides what a job of kind `tune` holds among its children."""
    serving: str = ""
    """The recipe for services, which is asked before that for other jobs; "": one for all."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """By service: its requests. They are reported to the recipe each `window` (microseconds)."""
    window: int = 10 * SECOND
    traffic: Traffic | None = None
    """Requests that the services of the trace answer one by one, reported in the same way."""
    why: bool = False
    """Whether to add up why jobs wait (`Run.waited`)."""


def load_policy(
    spec: str, *, recorded: bool = False, bounded: bool = True, plane: str = "training"
) -> Policy:
    """A recipe by name and parameters, or a user's own class as `FILE.py:Class`. `recorded`: a
    journal or log names it; then no file runs that another user wrote or may change. `bounded`:
    parameters must be within their bounds, which a version that recorded a recipe may not have had.
    `plane`: one of `registry.PLANES`, of which the recipe has to be if it is not for all jobs.
    Raises BadInput."""
    path, colon, name = spec.partition(":")
    if colon and path.endswith(".py"):
        file = Path(path)
        if recorded and file.is_file():
            file = refuse_others_file(file, above=True)
        return load_own(file, name)
    found, _ = registry.parse(spec, bounded=bounded)
    if found.plane not in ("training", "requests", plane):
        what, option = OTHER_PLANES[found.plane]
        raise BadInput(f"{found.name} decides over {what} only", where="recipe",
                       mend=f"use it as {option} {found.name}")  # fmt: skip
    return registry.make(spec, bounded=bounded)


OTHER_PLANES = {
    "serving": ("services", "--serving"),
    "tuning": ("the trials of a search", "--inner"),
}
"""What recipes decide over that are not for all jobs, and the option of `ganger simulate`."""


def families(trace: Trace, inner: str, *, recorded: bool = False) -> bool:
    """Whether some job is to be placed inside what another holds: it names it as its parent, or the
    recipe `inner` asks for it. Raises BadInput."""
    declared, n = trace.declared, trace.jobs
    if not _has(trace, Kind.TUNE):
        return False
    return bool((declared.parent[:n] >= 0).any()) or searches(
        load_policy(inner, recorded=recorded, bounded=not recorded, plane="tuning")
    )


def with_inner(policy: Policy, inner: str, *, recorded: bool = False) -> Policy:
    """The policy, and inside each grant the recipe `inner`. Raises BadInput."""
    within = load_policy(inner, recorded=recorded, bounded=not recorded, plane="tuning")
    return TwoLevel(policy, within)


def with_serving(policy: Policy, serving: str, *, recorded: bool = False) -> Policy:
    """The policy, and beside it the recipe `serving` for services. Raises BadInput."""
    services = load_policy(serving, recorded=recorded, bounded=not recorded, plane="serving")
    return Planes(services, policy)


def composed(
    policy: Policy, trace: Trace, inner: str, serving: str, *, recorded: bool = False
) -> Policy:
    """The policy, with `inner` inside grants if the trace has any, and beside it `serving` for
    services if there are any. Raises BadInput."""
    if families(trace, inner, recorded=recorded):
        policy = with_inner(policy, inner, recorded=recorded)
    if serving and has_services(trace):
        policy = with_serving(policy, serving, recorded=recorded)
    return policy


def _has(trace: Trace, kind: Kind) -> bool:
    return bool((trace.declared.kind[: trace.declared.n] == kind).any())


def has_services(trace: Trace) -> bool:
    """Whether there are jobs of kind `serve`."""
    return _has(trace, Kind.SERVE)


def needs_of(spec: str) -> str:
    """What the recipe of `spec` must know; "own" for a user's file."""
    if spec.partition(":")[0].endswith(".py"):
        return "own"
    return registry.parse(spec, bounded=False)[0].needs


PAST = ("history", "measured", "rolling", "group", "estimate", "nothing")
"""What an oracle can know without being told the truth."""


def oracle_of_past(knows: str) -> Oracle:
    """An oracle that has only what it sees: one of `PAST`. Raises BadInput."""
    if knows not in PAST:
        raise BadInput(f"{knows!r} is not a valid value of --knows", mend=f"use {', '.join(PAST)}")
    if knows == "nothing":
        return Ignorant()
    if knows == "estimate":
        from ganger.estimate.stated import Stated

        return Stated()
    if knows == "measured":
        from ganger.estimate.measured import MeasuredSpeeds

        measured: Oracle = MeasuredSpeeds()
        return measured
    from ganger.estimate.history import History, like_helios, like_pai

    history: Oracle = History(
        blend=0.9 if knows == "history" else 0.0,
        alike=like_pai if knows == "group" else like_helios,
    )
    return history


def make_oracle(
    trace: Trace, physics: Physics, setup: Setup, truth: Truth | None = None
) -> Oracle:  # fmt: skip
    """The oracle that `setup.knows` names. `truth`: from which one that knows durations has them
    (default: from the trace)."""
    if setup.knows in PAST:
        return oracle_of_past(setup.knows)
    truth = truth or Truth(trace.duration, physics)
    if setup.knows == "truth":
        return truth
    if setup.knows == "noisy":
        return Noisy(truth, setup.noise, setup.seed, trace.jobs, setup.speed_noise)
    if setup.knows == "losses":
        from ganger.estimate.convergence import FromLosses

        told = {name: physics.profiles.of(name).convergence for name in trace.declared.models}
        rules = {name: convergence for name, convergence in told.items() if convergence}
        if not rules:
            raise BadInput(
                "no job tells its losses", where="--knows losses",
                mend="give --profiles in which models have `convergence`",
            )  # fmt: skip
        losses: Oracle = FromLosses(rules, truth)
        return losses
    raise BadInput(
        f"{setup.knows!r} is not a valid value of --knows",
        mend=f"use truth, noisy, losses, {', '.join(PAST)}",
    )


def refuse_impossible(trace: Trace, nodes: Nodes, inner: str = "fifo") -> None:
    """Raise BadInput naming the first job that would not fit on the empty cluster, or that nothing
    would ever end with the recipe `inner` for trials."""
    empty = EmptyCluster(nodes)
    declared = trace.declared
    for code, shape in enumerate(declared.shapes):
        for gpu_type in shape.gpu_types:
            if gpu_type not in nodes.types.values:
                known = ", ".join(t for t in nodes.types if t) or "no GPU"
                _refuse(trace, code, f"wants GPU type {gpu_type!r}", f"the cluster has {known}")
        least = tuple(role.range[0] for role in shape.roles)
        if not empty.fits(shape, least):
            top = declared.parent[: declared.n] < 0
            if (top & (declared.shape[: declared.n] == code)).any():
                mend = "use a larger --cluster, or leave such jobs out with --max-gpus"
                needs = shape.roles[0].needs
                if (needs.cpus and not nodes.cpus.any()) or (
                    needs.memory and not nodes.memory.any()
                ):
                    mend = "give nodes CPUs and memory: a file for --cluster, not `8x8xV100`"
                _refuse(trace, code, f"asks for {shape} and can never fit in this cluster", mend)
    if _has(trace, Kind.TUNE) and not searches(load_policy(inner, plane="tuning")):
        _refuse_endless(trace)


def refuse_unknown_services(trace: Trace, loads: Mapping[str, Load]) -> None:
    """Raise BadInput for requests to a service that is not there."""
    declared, n = trace.declared, trace.jobs
    there = [declared.name(job) for job in np.flatnonzero(declared.kind[:n] == Kind.SERVE).tolist()]
    for name in loads:
        if name not in there:
            raise BadInput(
                f"{name!r} is not a job of kind serve in {trace.name}", where="--rates",
                mend=f"there are {', '.join(there[:9]) or 'none'}",
            )  # fmt: skip


def _refuse_endless(trace: Trace) -> None:
    """Raise BadInput for a search that nothing would ever end: it ends with its last child."""
    declared, n = trace.declared, trace.jobs
    endless = (declared.kind[:n] == Kind.TUNE) & (trace.duration[:n] >= NEVER)
    endless[declared.parent[:n][declared.parent[:n] >= 0]] = False
    for job in np.flatnonzero(endless & (declared.limit[:n] >= NEVER)).tolist():
        raise BadInput(
            f"job {declared.name(job)!r} is of kind tune, has no duration, and no job names it as"
            " its parent: it would never end",
            where=trace.name, mend="give it a duration or children, or a recipe that asks for"
            " them, like --inner tune.sha",
        )  # fmt: skip


def _refuse_stranded(trace: Trace, kernel: Kernel, setup: Setup, recipe: str) -> None:
    """Raise BadInput if jobs wait although nothing runs and nothing will happen any more: the
    recipe's own rules let them start nowhere."""
    view = kernel.view
    waiting = view.pending[view.jobs.attempt[view.pending] == 0]  # others did start somewhere
    if len(waiting) == 0 or len(view.active) or setup.until < NEVER or setup.outages:
        return
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    job = int(waiting[0])
    raise BadInput(
        f"job {trace.declared.name(job)!r}{more} can never start under {recipe}, not even on the"
        f" idle cluster: it asks for {trace.declared.shapes[int(trace.declared.shape[job])]}",
        where=trace.name,
        mend="change the recipe's parameters (how close together, quotas), use a larger --cluster,"
        " or leave such jobs out with --max-gpus",
    )


def _refuse(trace: Trace, code: int, what: str, mend: str) -> None:
    job = int(np.flatnonzero(trace.declared.shape[: trace.jobs] == code)[0])
    raise BadInput(f"job {trace.declared.name(job)!r} {what}", where=trace.name, mend=mend)


def run_one(
    trace: Trace,
    cluster: ClusterSpec,
    recipe: str | Policy,
    setup: Setup | None = None,
    *,
    journal: Callable[[Kernel], Journal] | None = None,
    progress: Callable[[float], None] | None = None,
    record: bool = True,
) -> Run:
    """Simulate one policy; `record=False` leaves timeline and placements out (faster).

    `progress` is called with the share of the work done (`lab/progress`). Raises BadInput for what
    the user can mend.
    """
    setup = setup or Setup()
    setup = replace(setup, profiles=setup.profiles or trace.profiles)
    nodes = Nodes(cluster.check())
    if isinstance(recipe, str) and "throughputs" not in needs_of(recipe):
        setup = replace(setup, costs=replace(setup.costs, profiling=0))
    trace = where_it_runs(trace, setup.profiles, [name for name in nodes.types if name])
    refuse_impossible(trace, nodes, setup.inner)
    physics = Physics(nodes, setup.profiles, setup.costs)
    truth = Truth(trace.duration[: trace.jobs], physics)
    policy = load_policy(recipe) if isinstance(recipe, str) else recipe
    both = composed(policy, trace, setup.inner, setup.serving)
    kernel = Kernel(
        nodes, trace.declared, both,
        oracle=make_oracle(trace, physics, setup, truth), seed=setup.seed, validate=setup.validate,
    )  # fmt: skip
    recorder = _recorder(kernel, trace) if record else None
    waited = WaitRecorder(kernel) if setup.why else None
    journals: list[Journal] = [one for one in (recorder, waited) if one is not None]
    if journal is not None:
        journals.append(journal(kernel))
    if progress is not None:
        journals.append(Ticker(kernel, trace, setup.until, progress))
    if journals:
        kernel.journal = journals[0] if len(journals) == 1 else _Both(journals)
    engine, served = _world(trace, nodes, physics, truth, setup)
    started = time.process_time()
    try:
        kernel.run(engine, setup.until)
    except InvariantError as error:
        raise _wrong(both, error) from error
    cpu_seconds = time.process_time() - started
    trace = replace(trace, duration=truth.all())
    if recorder is not None:
        recorder.close(kernel.now)
    _refuse_stranded(trace, kernel, setup, recipe if isinstance(recipe, str) else policy.name)
    run = Run(
        recipe=recipe if isinstance(recipe, str) else policy.name, seed=setup.seed,
        knows=_known(recipe, setup, trace), trace=trace.name, cluster=cluster.name,
        cluster_gpus=nodes.total_gpus, jobs=job_table(kernel, trace, recorder),
        timeline=_timeline(kernel, recorder, nodes.total_gpus),
        simulation={
            "events": kernel.events, "decisions": kernel.decisions, "cpu_seconds": cpu_seconds,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        },
        segments=recorder.segments if recorder is not None else None,
        node_gpus=nodes.gpus[: nodes.n].tolist(), rows=trace.rows, left_out=dict(trace.left_out),
        waited=waited.close(kernel.now) if waited is not None else None,
        notes=[*trace.notes, *_doubts(recipe, trace, setup)],
        services=served.figures(kernel.now) if served is not None else {},
    )  # fmt: skip
    from ganger.lab.metrics import compute

    run.metrics = compute(run)
    return run


def _world(
    trace: Trace, nodes: Nodes, physics: Physics, truth: Truth, setup: Setup
) -> tuple[Engine, Served | None]:
    """The simulator, what children truly are, and beside it what is hosted. Raises BadInput."""
    engine = simulator(trace.declared, trace.duration, physics, setup.outages)
    engine.searcher, engine.late = FromCurves(setup.profiles, setup.seed), truth.add
    if setup.traffic is not None:
        served = Served(trace, nodes, setup.traffic, setup.window, setup.seed)
        return Hosted(engine, [served.host]), served
    if setup.loads:
        refuse_unknown_services(trace, setup.loads)
        return Hosted(engine, [Fluid(trace.declared, setup.loads, setup.window)]), None
    return engine, None


def _recorder(kernel: Kernel, trace: Trace) -> Recorder:
    """What keeps placements and samples, and for small runs the segments of the Gantt chart."""
    gpus = kernel.nodes.gpus[: kernel.nodes.n].tolist()
    return Recorder(kernel.jobs, gpus, segments=trace.jobs <= GANTT_JOBS)


def _wrong(policy: Policy, error: InvariantError) -> Exception:
    """The error as one of the user's own policy, if there is one."""
    parts: list[Policy] = [policy]
    while parts:
        part = parts.pop(0)
        if isinstance(part, OwnPolicy):
            return part.wrong(str(error))
        if isinstance(part, Planes):
            parts += [part.serving, part.training]
        elif isinstance(part, TwoLevel):
            parts += [part.outer, part.inner]
    return error


def _known(recipe: str | Policy, setup: Setup, trace: Trace) -> str:
    """What the policy was told of durations: nothing, if its recipes never ask."""
    if not isinstance(recipe, str):
        return setup.knows
    recipes = [recipe]
    if families(trace, setup.inner):
        recipes.append(setup.inner)
    if setup.serving and has_services(trace):
        recipes.append(setup.serving)
    return "nothing" if all(needs_of(each) == "nothing" for each in recipes) else setup.knows


def _doubts(recipe: str | Policy, trace: Trace, setup: Setup) -> list[str]:
    """What the recipe must know and does not."""
    if not isinstance(recipe, str) or "durations" not in needs_of(recipe):
        return []
    if setup.knows == "nothing":
        return [
            "it needs durations and has none (--knows nothing): it uses estimates and limits if"
            " it can, else arrivals; try --knows estimate, rolling or history"
        ]
    if setup.knows == "estimate":
        declared, n = trace.declared, trace.jobs
        silent = int(((declared.estimate[:n] >= NEVER) & (declared.limit[:n] >= NEVER)).sum())
        if silent:
            return [f"{silent:,} of {n:,} jobs state neither estimate nor time limit"
                    " (--knows estimate)"]  # fmt: skip
    return []


def _timeline(kernel: Kernel, recorder: Recorder | None, gpus: int) -> Any:
    if recorder is None:
        recorder = Recorder(kernel.jobs, [], segments=False)
    return recorder.timeline(kernel.now, gpus)


_LOCALITY = ("island", "node", "rack", "any")


def job_table(kernel: Kernel, trace: Trace, recorder: Recorder | None) -> JobTable:
    """The jobs as columns for metrics and reports."""
    jobs, n = kernel.jobs, kernel.jobs.n
    rows = np.flatnonzero(jobs.phase[:n] != Phase.DECLARED)
    last = recorder.last if recorder is not None else {}
    nodes = kernel.nodes
    physics = Physics(nodes)
    placed = [last.get(job, ()) for job in rows.tolist()] if last else []
    running = jobs.phase[rows] == Phase.RUNNING
    lasting = (kernel.now - jobs.since[rows]) * running
    held = jobs.held[rows] + (kernel.now - jobs.held_since[rows]) * jobs.size[rows]
    waiting = jobs.phase[rows] == Phase.PENDING
    duration = trace.duration[rows].astype(float) / SECOND
    open_ended = trace.duration[rows] >= NEVER
    return JobTable(
        name=[jobs.name(job) for job in rows.tolist()],
        tenant=[jobs.tenants[code] for code in jobs.tenant[rows].tolist()],
        gpus=jobs.gpus[rows].astype(np.int64),
        arrival=jobs.submitted[rows] / SECOND,
        first_start=_moment(jobs.first_start[rows]),
        finish=_moment(jobs.finished[rows]),
        state=[Phase(code).name.lower() for code in jobs.phase[rows].tolist()],
        duration=np.where(open_ended, np.nan, duration),
        ran=(jobs.ran[rows] + lasting) / SECOND,
        pending=(jobs.pended[rows] + (kernel.now - jobs.pending_since[rows]) * waiting) / SECOND,
        held_gpu_seconds=np.where(jobs.within[rows] < 0, held, 0) / SECOND,
        active_gpu_seconds=(jobs.served[rows] + lasting * jobs.size[rows]) / SECOND,
        lost=jobs.lost[rows] / SECOND,
        preemptions=jobs.preemptions[rows].astype(np.int64),
        restarts=jobs.restarts[rows].astype(np.int64),
        gpu_type=[_type_of(nodes, placement) for placement in placed],
        nodes=[_names_of(nodes, placement) for placement in placed],
        locality=[_LOCALITY[physics.tier(p)] if p else "" for p in placed],
        open_ended=open_ended | (jobs.kind[rows] == Kind.SERVE),
        deadline=np.where(jobs.deadline[rows] < NEVER, jobs.deadline[rows] / SECOND, np.nan),
    )


def _moment(times: Any) -> Any:
    return np.where(times >= 0, times / SECOND, np.nan)


def _type_of(nodes: Nodes, placement: Placement) -> str:
    return nodes.types[nodes.gpu_type[placement[0].node]] if placement else ""


def _names_of(nodes: Nodes, placement: Placement) -> str:
    return ",".join(nodes.names[slot.node] for slot in placement)


class _Both:
    """Several journals as one."""

    def __init__(self, journals: Iterable[Journal]) -> None:
        self._journals = list(journals)

    def append(self, *step: Any) -> None:
        for journal in self._journals:
            journal.append(*step)
