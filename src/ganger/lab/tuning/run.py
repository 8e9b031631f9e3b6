"""One search over curves: the experiment, a recipe and a seed become a run with its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.profiles import Profile, Profiles
from ganger.core.protocols import Ignorant, Journal, Knows
from ganger.core.spec import ClusterSpec, JobSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND, WHOLE, parse_memory
from ganger.core.view import View
from ganger.lab.result import Segment
from ganger.lab.simulating.policies import blame
from ganger.lab.simulating.recorder import Recorder
from ganger.lab.tuning.detail import Detail, bill, by_trial, paid_by
from ganger.lab.tuning.draws import Configurations, Slowed
from ganger.lab.tuning.recipes import Chosen, chosen
from ganger.lab.tuning.result import TuningRun, result_of
from ganger.mechanisms.common.two_level import Search, TwoLevel, refuse_hopeless
from ganger.mechanisms.tuning.billing import Rate, rates_of
from ganger.mechanisms.tuning.limits import HOUR, Limited, Limits
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.sim.reports import CurveReports, FromDraws
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.curves.stragglers import NO_STRAGGLERS, Stragglers
from ganger.workloads.curves.table import CurveTable
from ganger.workloads.experiment.document import Resources
from ganger.workloads.experiment.reading import Experiment

_NODE_GPUS = 8


@dataclass(frozen=True)
class Place:
    """What searches run on: the cluster, what starting and stopping costs, and which trials are
    slower than their curves."""

    cluster: ClusterSpec
    costs: Costs = field(default_factory=Costs)
    validate: bool = False
    stragglers: Stragglers = NO_STRAGGLERS


class Told(Ignorant):
    """Knows how fast trials are on more GPUs, as the experiment says; how long they take only if it
    has their `curves`. Of stragglers it knows how long they would take if they were none
    (`believed`, by trial)."""

    def __init__(
        self,
        profile: Profile,
        curves: CurveReports | None = None,
        believed: Mapping[int, int] | None = None,
    ) -> None:
        self._profile, self._curves, self._believed = profile, curves, believed
        if curves is not None:
            self.knows = Knows.TRUTH

    def duration(self, view: View, ids: Ids) -> NDArray[np.float64]:
        """Until the last report of each, at the size asked for."""
        if self._curves is None:
            return super().duration(view, ids)
        known, curves = self._believed or {}, self._curves
        lengths = (known[job] if job in known else curves.length(job) for job in ids.tolist())
        return np.fromiter(lengths, np.float64, ids.size)

    def profile(self, model: str) -> Profile:
        """The same for every configuration."""
        return self._profile


def needs_of(resources: Resources) -> Needs:
    """What goes with each GPU of trials."""
    each = resources.per_gpu
    return Needs(
        cpus=round(resources.cpus * WHOLE) * each, memory=parse_memory(resources.memory) * each
    )


def own_cluster(experiment: Experiment) -> ClusterSpec:
    """Just the GPUs that an experiment asks for, in nodes of up to 8."""
    asked = experiment.document.resources.held(experiment.document.parallelism)
    types = experiment.document.resources.gpu_types
    kind = types[0] if types else "GPU"
    whole, rest = divmod(asked, _NODE_GPUS)
    each = needs_of(experiment.document.resources)

    def some(count: int, gpus: int) -> NodeSpec:
        return NodeSpec(count, gpus, kind, cpus=gpus * each.cpus, memory=gpus * each.memory)

    nodes = [some(whole, _NODE_GPUS)] if whole else []
    nodes += [some(1, rest)] if rest else []
    return ClusterSpec(tuple(nodes), name=f"{asked} GPUs")


def run_experiment(
    experiment: Experiment,
    source: CurveTable | Formula,
    recipe: str,
    seed: int,
    place: Place | None = None,
    *,
    journal: Callable[[Kernel], Journal] | None = None,
    watch: bool = False,
) -> TuningRun:
    """Simulate a search; `watch` keeps all that a report of it shows. Raises BadInput for what the
    user can mend, also for a search that no trial of which could report before a limit is reached.
    """
    place = place or Place(own_cluster(experiment))
    document = experiment.document
    configurations, choice = choose(experiment, source, recipe, seed)
    metrics = configurations.curves.metrics
    refuse_unknown(experiment, metrics)
    nodes = Nodes(place.cluster.check())
    limits = limits_of(experiment, place.cluster)
    search = declare([search_job(experiment, place.cluster)])
    refuse_infeasible(experiment, configurations, limits)
    policy = Limited(choice.policy, limits) if limits else choice.policy
    reports = reports_of(experiment, configurations)
    profiles = Profiles(default=profile_of(document.resources, choice.policy))
    asked = document.resources.held(document.parallelism)
    refuse_hopeless(policy, asked, profiles.default)
    draws = Slowed(configurations, place.stragglers, seed)
    oracle = Told(profiles.default, reports if choice.needs_durations else None, draws.believed)
    kernel = Kernel(
        nodes,
        search,
        TwoLevel(registry.make("fifo"), policy),
        oracle=oracle,
        seed=seed,
        validate=place.validate,
    )
    rates = rates_of(nodes.type_specs, dict(limits.prices))
    recorder = _recorded(kernel, journal, watch=watch or any(rate.coarse for rate in rates))
    physics = Physics(nodes, profiles, place.costs)
    engine = Simulator(search, np.array([NEVER]), physics, evaluations=reports)
    engine.searcher = FromDraws(draws, reports, search.n)
    started = time.process_time()
    try:
        kernel.run(engine)
    except InvariantError as error:
        raise blame(choice.policy, error) from error
    cpu_seconds = time.process_time() - started
    segments = list[Segment]()
    if recorder is not None:
        recorder.close(kernel.now)
        segments = recorder.segments or []
    by_node = [rates[code] for code in nodes.gpu_type[: nodes.n].tolist()]
    billed = _billed(segments, by_node)
    run = result_of(
        recipe,
        seed,
        experiment,
        configurations,
        kernel,
        reports,
        limits,
        place,
        cpu_seconds,
        billed,
    )
    if not watch:
        return run
    return replace(run, detail=_detail(segments, kernel, reports, by_node if limits.prices else []))


def _recorded(
    kernel: Kernel, journal: Callable[[Kernel], Journal] | None, *, watch: bool
) -> Recorder | None:
    """What records which trial is where, if it is to be watched, beside the other journal."""
    recorder = None
    if watch:
        gpus = kernel.nodes.gpus[: kernel.nodes.n].tolist()
        recorder = Recorder(kernel.jobs, gpus, segments=True)
    kernel.journal = recorder
    if journal is not None:
        kernel.journal = journal(kernel) if recorder is None else Both(recorder, journal(kernel))
    return recorder


def _billed(segments: Sequence[Segment], rates: Sequence[Rate]) -> tuple[float, float] | None:
    """What the search costs where GPUs are billed by more than the moment, `rates` by node, and
    what it would cost a moment later; else None."""
    if not any(rate.coarse for rate in rates):
        return None
    held = [each for each in segments if not each.job]
    return bill(held, rates), bill(held, rates, longer=1)


class Both:
    """Two journals that both record every step."""

    def __init__(self, first: Journal, other: Journal) -> None:
        self._journals = first, other

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Record one step in both."""
        for journal in self._journals:
            journal.append(revision, batch, plan, memory)


def _detail(
    segments: Sequence[Segment], kernel: Kernel, reports: CurveReports, rates: Sequence[Rate]
) -> Detail:
    """What a report shows of a run that is over."""
    nodes = kernel.nodes
    return Detail(
        curves=by_trial(reports.kept, kernel.jobs.n - 1),
        segments=[each._replace(job=each.job - 1) for each in segments if each.job],
        nodes={f"node {at}": gpus for at, gpus in enumerate(nodes.gpus[: nodes.n].tolist())},
        paid=paid_by([each for each in segments if not each.job], rates),
    )


def reports_of(experiment: Experiment, configurations: Configurations) -> CurveReports:
    """What its trials report, of which a searcher that learns hears."""
    document = experiment.document
    metrics = configurations.curves.metrics
    reports = CurveReports(document.metric, metrics, experiment.constraints)
    if configurations.searcher is not None:
        sign = 1.0 if document.mode == "min" else -1.0
        reports.heard = lambda job, epoch, value: configurations.tell(job, epoch, sign * value)
    return reports


def refuse_unknown(experiment: Experiment, metrics: tuple[str, ...]) -> None:
    """Raise BadInput for a metric that the curves do not have."""
    document = experiment.document
    constrained = (each.metric for each in experiment.constraints)
    for place, names in (
        ("metric", [document.metric]),
        ("metrics", document.metrics),
        ("constraints", constrained),
    ):
        for name in names:
            if name not in metrics:
                raise BadInput(
                    f"the curves have no metric {name!r}",
                    where=f"{experiment.where}: {place}",
                    mend=f"they have {', '.join(metrics)}",
                )


def refuse_infeasible(
    experiment: Experiment, configurations: Configurations, limits: Limits
) -> None:
    """Raise BadInput for a limit that is reached before any trial could report."""
    first = configurations.first_report()
    if first is None:
        return
    epoch, at = first
    gpus = experiment.document.resources.held(experiment.document.parallelism)
    hours = gpus * at / HOUR
    cheapest = min((price for _, price in limits.prices), default=0.0)
    for name, limit, needs, unit in (
        ("deadline", limits.deadline / SECOND, at / SECOND, "s"),
        ("budget: epochs", limits.epochs, epoch, "epochs"),
        ("budget: gpu_hours", limits.gpu_hours, hours, "GPU-hours"),
        ("budget: money", limits.money, hours * cheapest, ""),
    ):
        if limit < needs:
            raise BadInput(
                f"no trial reports before {needs:.4g} {unit}".rstrip(),
                where=f"{experiment.where}: {name}",
                mend="allow more, or fewer trials at once",
            )


def choose(
    experiment: Experiment, source: CurveTable | Formula, recipe: str, seed: int
) -> tuple[Configurations, Chosen]:
    """The configurations that there are, and the recipe, which knows how many. Raises BadInput."""
    choice = chosen(recipe, experiment)
    configurations = Configurations(
        source, experiment.space, experiment.points, choice.searcher, seed
    )
    if isinstance(source, Formula):
        longest, epoch = float(source.epochs), round(source.seconds * SECOND)
    else:
        longest, last = float(source.epochs.max()), source.starts[1:] - 1
        epoch = round(float(np.median(source.ends[last] / source.epochs[last])))
    settled = choice.settled(configurations.count, longest, max(epoch, 1), experiment)
    return configurations, settled


def profile_of(resources: Resources, policy: Search) -> Profile:
    """How fast trials are on more GPUs, and beside each other on one, where they may be."""
    shares = (
        min(resources.gpu_use, resources.share) < 1.0
        or getattr(policy, "divider", None) is not None
    )
    use = {"gpu": resources.gpu_use} if shares else {}
    return Profile(scaling=tuple(resources.scaling), utilisation=use)


def search_job(experiment: Experiment, cluster: ClusterSpec) -> JobSpec:
    """The search as a job. Raises BadInput if the cluster is too small for it."""
    document = experiment.document
    asked = document.resources.held(document.parallelism)
    types, needs = document.resources.gpu_types, needs_of(document.resources)
    has = sum(
        node.count * _gpus_with(node, needs)
        for node in cluster.nodes
        if not types or node.gpu_type in types
    )
    if asked > has:
        beside = " with the cores and memory that go with each" if needs != Needs() else ""
        raise BadInput(
            f"{document.parallelism} trials at once need {asked} GPUs{beside}, and the cluster"
            f" has {has}",
            where=f"{experiment.where}: parallelism",
            mend="set it lower, or give a larger --cluster",
        )
    shape = Shape((Role(size=asked, least=1, most=asked, needs=needs),), tuple(types))
    return JobSpec(
        name=document.name,
        kind=Kind.TUNE,
        shape=shape,
        tenant=document.tenant,
        restore=0,  # it computes nothing itself: other GPUs cost only its trials something
    )


def _gpus_with(node: NodeSpec, needs: Needs) -> int:
    """How many GPUs of a node have what is needed with each."""
    beside = [(node.cpus, needs.cpus), (node.memory, needs.memory)]
    return min([node.gpus, *(there // each for there, each in beside if each)])


def limits_of(experiment: Experiment, cluster: ClusterSpec) -> Limits:
    """The deadline and the budget. Raises BadInput for money where nothing has a price."""
    budget = experiment.document.budget
    prices = tuple((each.name, each.price) for each in cluster.gpu_types if each.price > 0)
    used = {node.gpu_type for node in cluster.nodes if node.gpus}
    if budget.money is not None and not used <= {name for name, _ in prices}:
        raise BadInput(
            "the GPUs of the cluster have no price",
            where=f"{experiment.where}: budget: money",
            mend="give --cluster a file in which each GPU type has a price",
        )
    given: dict[str, Any] = {
        name: value
        for name in ("epochs", "gpu_hours", "money")
        if (value := getattr(budget, name)) is not None
    }
    limits = Limits(
        experiment.deadline,
        prices=prices,
        target=experiment.document.target,
        constraints=experiment.constraints,
    )
    return replace(limits, **given)
