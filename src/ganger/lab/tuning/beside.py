"""Experiments beside other jobs: several searches of several tenants in one run, each a job of the
trace with a recipe of its own for what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.profiles import PLAIN_PROFILE, Profiles
from ganger.core.spec import ClusterSpec, JobSpec
from ganger.lab.billing.account import Account
from ganger.lab.simulating.answering import profiles_of
from ganger.lab.simulating.setup import Setup
from ganger.lab.tuning.draws import Slowed
from ganger.lab.tuning.live import limits_in_words, recipe_text
from ganger.lab.tuning.own_recipe import own_recipe, written
from ganger.lab.tuning.result import TuningRun, result_of
from ganger.lab.tuning.run import (
    Place,
    choose,
    limits_of,
    profile_of,
    refuse_infeasible,
    refuse_unknown,
    reports_of,
    search_job,
)
from ganger.mechanisms.common.two_level import refuse_hopeless
from ganger.sim.children import Searcher
from ganger.sim.evaluation import Evaluates
from ganger.sim.reports import BySearch, FromDraws, SeveralReports
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.curves.stragglers import NO_STRAGGLERS, Stragglers
from ganger.workloads.curves.table import CurveTable
from ganger.workloads.experiment.reading import Experiment
from ganger.workloads.trace import Trace
from ganger.workloads.transform import with_jobs


@dataclass(frozen=True)
class Entry:
    """An experiment that is submitted at `at` (microseconds), its curves, the recipe over its
    trials, and which of these are slower than their curves."""

    experiment: Experiment
    source: CurveTable | Formula
    recipe: str
    at: int = 0
    priority: int = 0
    stragglers: Stragglers = NO_STRAGGLERS

    @property
    def name(self) -> str:
        """Of the experiment, and of the job that its search is."""
        return self.experiment.document.name

    def job(self, cluster: ClusterSpec) -> JobSpec:
        """The search as a job. Raises BadInput for what the user can mend, also for a search that
        no trial of which could report before a limit is reached."""
        experiment = self.experiment
        configurations, choice = choose(experiment, self.source, self.recipe, 0)
        if choice.own is not None:
            raise BadInput(
                "a recipe of your own runs beside no other job",
                where=f"{experiment.where}: recipe",
                mend="simulate the experiment by itself, or name a recipe that is shipped",
            )
        refuse_unknown(experiment, configurations.curves.metrics)
        refuse_infeasible(experiment, configurations, limits_of(experiment, cluster))
        limits = limits_in_words(experiment)
        text = written(recipe_text(choice), limits, experiment.constraints)
        own_recipe(text)
        job = search_job(experiment, cluster)
        resources = experiment.document.resources
        profile = profile_of(resources, choice.policy)
        refuse_hopeless(choice.policy, resources.held(experiment.document.parallelism), profile)
        return msgspec.structs.replace(job, inner=text, submitted=self.at, priority=self.priority)


def entered(
    trace: Trace, setup: Setup, entries: Sequence[Entry], cluster: ClusterSpec
) -> tuple[Trace, Setup]:
    """The trace with a job for each search, and the set-up that knows what their trials are. Raises
    BadInput."""
    if not entries:
        return trace, setup
    found = with_jobs(trace, [entry.job(cluster) for entry in entries])
    base = profiles_of(setup, trace)
    models = dict(base.models)
    for entry in entries:
        _, choice = choose(entry.experiment, entry.source, entry.recipe, 0)
        profile = profile_of(entry.experiment.document.resources, choice.policy)
        if profile != PLAIN_PROFILE:
            models[entry.name] = profile
    profiles = Profiles(models, base.default)
    return found, replace(setup, searches=tuple(entries), profiles=profiles)


class Beside:
    """The searches of one run while it goes on."""

    def __init__(self, trace: Trace, setup: Setup, cluster: ClusterSpec) -> None:
        self._entries, self._place = setup.searches, Place(cluster, setup.costs)
        self._rows = [trace.declared.find(entry.name) for entry in setup.searches]
        self._first, self._alike = trace.jobs, setup.profiles.models
        self._seed = setup.seed
        self._drawn = [
            choose(each.experiment, each.source, each.recipe, self._seed_of(each))[0]
            for each in self._entries
        ]
        self._reports = [
            reports_of(each.experiment, drawn)
            for each, drawn in zip(self._entries, self._drawn, strict=True)
        ]
        self._several: SeveralReports | None = None

    def _seed_of(self, entry: Entry) -> int:
        """Of its configurations: that of the file, and as much more as the run's."""
        return entry.experiment.document.seed + self._seed

    def evaluations(self, others: Evaluates) -> SeveralReports:
        """What all jobs report: trials by curves, others as before."""
        self._several = SeveralReports(others, self._reports)
        return self._several

    def searcher(self, others: Searcher) -> BySearch:
        """What trials are; other children as before."""
        assert self._several is not None, "reports are made first"
        draws = {
            row: FromDraws(
                Slowed(drawn, entry.stragglers, self._seed_of(entry)), reports, self._first
            )
            for entry, row, drawn, reports in zip(
                self._entries, self._rows, self._drawn, self._reports, strict=True
            )
        }
        return BySearch(draws, others, self._several, self._first, self._alike)

    def results(
        self, kernel: Kernel, account: Account | None, cpu_seconds: float
    ) -> list[TuningRun]:
        """What became of each search."""
        results = []
        for entry, row, drawn, reports in zip(
            self._entries, self._rows, self._drawn, self._reports, strict=True
        ):
            limits = limits_of(entry.experiment, self._place.cluster)
            billed = None
            if account is not None and account.cost is not None:
                paid = float(account.cost[row])
                billed = paid, paid
            results.append(
                result_of(
                    entry.recipe,
                    self._seed,
                    entry.experiment,
                    drawn,
                    kernel,
                    reports,
                    limits,
                    self._place,
                    cpu_seconds,
                    billed,
                    row,
                )
            )
        return results
