"""One run: a policy over a trace on a cluster, from spec to result."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ganger.core.errors import InvariantError
from ganger.core.kernel import Kernel
from ganger.core.protocols import Engine, Journal, Policy
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.lab.billing.account import Account
from ganger.lab.billing.meter import Meter
from ganger.lab.billing.power import Power, grid_of
from ganger.lab.billing.tariff import tariff_of
from ganger.lab.outages import with_revocations
from ganger.lab.result import Run
from ganger.lab.simulating.answering import profiles_of
from ganger.lab.simulating.job_table import job_table
from ganger.lab.simulating.loans import LoanRecorder
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.policies import (
    blame,
    composed,
    doubts,
    known,
    load_policy,
    needs_of,
    over_budget,
    unused_types,
    with_budgets,
)
from ganger.lab.simulating.progress import Ticker
from ganger.lab.simulating.recorder import GANTT_JOBS, Recorder
from ganger.lab.simulating.refusals import (
    refuse_deaf,
    refuse_impossible,
    refuse_sharing,
    refuse_stranded,
    refuse_unknown_services,
)
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulating.waited import WaitRecorder
from ganger.mechanisms.hybrid.silos import named
from ganger.recipes.registry import make_sharing
from ganger.sim.children import FromCurves, Searcher
from ganger.sim.engine import Simulator
from ganger.sim.evaluation import Evaluations
from ganger.sim.hosted import Hosted
from ganger.sim.load import Fluid
from ganger.sim.physics import Physics
from ganger.sim.truth import Truth
from ganger.workloads.measured.profiles import where_it_runs
from ganger.workloads.trace import Trace

if TYPE_CHECKING:
    from ganger.lab.serving.hosting import Served
    from ganger.lab.simulating.company import CompanyRecorder
    from ganger.lab.tuning.beside import Beside

__all__ = ["Setup", "run_one"]


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

    `progress` is called with the share of the work done (`simulating/progress`). Raises BadInput
    for what the user can mend.
    """
    nodes = Nodes(cluster.check())
    setup = _fitted(setup or Setup(), trace, recipe)
    trace = where_it_runs(trace, setup.profiles, [kind for kind in nodes.type_specs if kind.name])
    refuse_impossible(trace, nodes, setup.inner)
    refuse_deaf(trace, setup)
    refuse_sharing(trace, nodes, setup, recipe)
    physics = Physics(nodes, setup.profiles, setup.costs)
    truth = Truth(trace.duration[: trace.jobs], physics)
    policy = load_policy(recipe) if isinstance(recipe, str) else recipe
    kernel = Kernel(
        nodes,
        trace.declared,
        with_budgets(composed(policy, trace, setup.inner, setup.serving, setup.sharing), cluster),
        oracle=make_oracle(trace, physics, setup, truth),
        seed=setup.seed,
        validate=setup.validate,
    )
    notes = _Notes(kernel, trace, setup, record=record)
    notes.listen(kernel, journal(kernel) if journal is not None else None, progress)
    beside = _searches(trace, setup, cluster)
    engine, served = _world(trace, nodes, physics, truth, setup, beside)
    cpu_seconds = _drive(kernel, engine, setup.until)
    trace = replace(trace, duration=truth.all())
    called = recipe if isinstance(recipe, str) else policy.name
    refuse_stranded(trace, kernel, setup, called)
    noted = notes.close(kernel, trace)
    services = served.figures(kernel.now) if served is not None else {}
    run = Run(
        recipe=called,
        seed=setup.seed,
        knows=known(recipe, setup, trace),
        trace=trace.name,
        cluster=cluster.name,
        cluster_gpus=nodes.total_gpus,
        simulation=_effort(kernel, cpu_seconds, services),
        node_gpus=nodes.gpus[: nodes.n].tolist(),
        rows=trace.rows,
        left_out=dict(trace.left_out),
        notes=[
            *trace.notes,
            *unused_types(cluster),
            *doubts(recipe, trace, setup),
            *over_budget(kernel),
        ],
        services=services,
        service_windows=served.windows() if served is not None else {},
        service_watched=served.watched() if served is not None else {},
        searches=beside.results(kernel, noted["account"], cpu_seconds) if beside else [],
        **noted,
    )
    from ganger.lab.metrics import compute

    compute(run)
    return run


def _effort(
    kernel: Kernel, cpu_seconds: float, services: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """What the simulation took."""
    took: dict[str, float] = {
        "events": kernel.events,
        "decisions": kernel.decisions,
        "cpu_seconds": cpu_seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if services and cpu_seconds:
        requests = sum(each["requests"] or 0 for each in services.values())
        took["requests_per_cpu_second"] = requests / cpu_seconds
    return took


def _fitted(setup: Setup, trace: Trace, recipe: str | Policy) -> Setup:
    """The set-up with the trace's own profiles if it has no others. Only a recipe that needs
    throughputs spends time on profiling."""
    setup = replace(setup, profiles=profiles_of(setup, trace))
    if isinstance(recipe, str) and "throughputs" not in needs_of(recipe):
        setup = replace(setup, costs=replace(setup.costs, profiling=0))
    return setup


def _searches(trace: Trace, setup: Setup, cluster: ClusterSpec) -> Beside | None:
    """The experiments of the set-up, if there are any."""
    if not setup.searches:
        return None
    from ganger.lab.tuning.beside import Beside  # searchers, which only experiments need

    return Beside(trace, setup, cluster)


def _world(
    trace: Trace,
    nodes: Nodes,
    physics: Physics,
    truth: Truth,
    setup: Setup,
    beside: Beside | None,
) -> tuple[Engine, Served | None]:
    """The simulator, what children truly are, and beside it what is hosted. Raises BadInput."""
    outages = with_revocations(setup.outages, nodes)
    reports = None
    searcher: Searcher = FromCurves(setup.profiles, setup.seed)
    if beside is not None:
        reports = beside.evaluations(Evaluations(trace.declared, physics.profiles))
        searcher = beside.searcher(searcher)
    engine = Simulator(trace.declared, trace.duration, physics, outages, reports)
    engine.searcher, engine.late = searcher, truth.add
    if setup.traffic is not None:
        from ganger.lab.serving.hosting import Served  # routers, which only runs of requests need

        served = Served(
            trace, nodes, setup.traffic, setup.window, setup.seed, validate=setup.validate
        )
        return Hosted(engine, [served.host]), served
    if setup.loads:
        refuse_unknown_services(trace, setup.loads)
        return Hosted(engine, [Fluid(trace.declared, setup.loads, setup.window)]), None
    return engine, None


def _drive(kernel: Kernel, engine: Engine, until: int) -> float:
    """Run to the end, or `until`; the CPU seconds that it took."""
    started = time.process_time()
    try:
        kernel.run(engine, until)
    except InvariantError as error:
        raise blame(kernel.policy, error) from error
    return time.process_time() - started


class _Notes:
    """What is noted while a run goes on."""

    def __init__(self, kernel: Kernel, trace: Trace, setup: Setup, *, record: bool) -> None:
        gpus = kernel.nodes.gpus[: kernel.nodes.n].tolist()
        self.recorder = (
            Recorder(kernel.jobs, gpus, segments=trace.jobs <= GANTT_JOBS) if record else None
        )
        self.waited = WaitRecorder(kernel) if setup.why else None
        self.company = _company(kernel) if setup.why else None
        self.loans = LoanRecorder(kernel) if setup.sharing else None
        self.meter = _meter(kernel, setup) if record or setup.prices else None
        self._trace, self._setup = trace, setup

    def listen(
        self, kernel: Kernel, other: Journal | None, progress: Callable[[float], None] | None
    ) -> None:
        """Take every step, and pass it on to `other` and `progress`."""
        ticker = None
        if progress is not None:
            ticker = Ticker(kernel, self._trace, self._setup.until, progress)
        journals = [
            each
            for each in (
                self.recorder,
                self.waited,
                self.company,
                self.loans,
                self.meter,
                other,
                ticker,
            )
            if each is not None
        ]
        if journals:
            kernel.journal = journals[0] if len(journals) == 1 else _Several(journals)

    def close(self, kernel: Kernel, trace: Trace) -> dict[str, Any]:
        """The fields of `Run` that say what was noted."""
        recorder, now = self.recorder, kernel.now
        if recorder is not None:
            recorder.close(now)
        samples = recorder or Recorder(kernel.jobs, [], segments=False)
        return {
            "jobs": job_table(
                kernel, trace, recorder, [each.name for each in self._setup.searches]
            ),
            "timeline": samples.timeline(now, kernel.nodes.total_gpus),
            "segments": recorder.segments if recorder is not None else None,
            "waited": self.waited.close(now) if self.waited is not None else None,
            "company": self.company.close(now) if self.company is not None else None,
            "loans": self.loans.close(now) if self.loans is not None else None,
            "account": self._account(kernel),
        }

    def _account(self, kernel: Kernel) -> Account | None:
        if self.meter is None:
            return None
        return self.meter.close(kernel.now, grid_of(kernel.nodes.spec, self._setup.carbon))


def _company(kernel: Kernel) -> CompanyRecorder:
    from ganger.lab.simulating.company import CompanyRecorder  # it is seldom asked for

    return CompanyRecorder(kernel)


def _meter(kernel: Kernel, setup: Setup) -> Meter:
    nodes = kernel.nodes
    power, tariff = Power(nodes, setup.profiles), tariff_of(nodes, setup.prices)
    name = make_sharing(setup.sharing).named if setup.sharing else ""
    reserved = named(nodes, name) if name else ()
    return Meter(kernel.jobs, nodes, power, tariff, setup.costs.boot, reserved, setup.loan_rate)


class _Several:
    """Several journals as one."""

    def __init__(self, journals: list[Journal]) -> None:
        self._journals = journals

    def append(self, *step: Any) -> None:
        for journal in self._journals:
            journal.append(*step)
