"""What became of a search: its figures, and a row for each trial."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ganger.core.kernel import Kernel
from ganger.core.tuning.goals import front
from ganger.core.tuning.space import Point, Value
from ganger.core.units import NEVER, SECOND
from ganger.lab.tuning.detail import Detail
from ganger.lab.tuning.draws import Configurations
from ganger.mechanisms.tuning.limits import HOUR, Limits, reached
from ganger.mechanisms.tuning.trials import Mode
from ganger.sim.reports import CurveReports
from ganger.workloads.experiment.reading import Experiment

if TYPE_CHECKING:
    from ganger.lab.tuning.run import Place


@dataclass(frozen=True)
class Trial:
    """What one trial did. Times in seconds since the search was submitted; `state`: complete (it
    has trained as long as its curve is), stopped, diverged, or waiting (it never ran)."""

    number: int
    configuration: str
    point: Point
    state: str
    started_seconds: float
    ended_seconds: float
    epochs: float
    reports: int
    best: float
    last: float
    gpu_hours: float
    metrics: dict[str, float] = field(default_factory=dict)
    """Those that count beside the one that judges, as it reported them last."""
    feasible: bool = True
    """Whether its last report keeps all constraints; `best` is over those that do."""


@dataclass(frozen=True)
class TuningRun:
    """One search that is over."""

    experiment: str
    recipe: str
    seed: int
    metric: str
    mode: str
    cluster: str
    metrics: dict[str, Any]
    trials: list[Trial]
    best_by_time: list[tuple[float, float]]
    """When the best value found changed (seconds), and what it was from then on."""
    tenant: str = ""
    detail: Detail | None = None
    """What a report shows, where the run was watched."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": self.experiment,
            "recipe": self.recipe,
            "seed": self.seed,
            "tenant": self.tenant,
            "metric": self.metric,
            "mode": self.mode,
            "cluster": self.cluster,
            "metrics": self.metrics,
        }


def result_of(
    recipe: str,
    seed: int,
    experiment: Experiment,
    configurations: Configurations,
    kernel: Kernel,
    reports: CurveReports,
    limits: Limits,
    place: Place,
    cpu_seconds: float,
    billed: tuple[float, float] | None = None,
    search: int = 0,
) -> TuningRun:
    """The figures of a search, which is row `search` of a run; `billed`: what it costs, and what it
    would cost a moment later, where that is not the time of its GPUs at the mean price. Times count
    from its submission."""
    document = experiment.document
    sign = 1.0 if document.mode == "min" else -1.0
    kept, submitted = reports.kept, int(kernel.jobs.submitted[search])
    trials = _trials(kernel, configurations, reports, sign, experiment, search)
    steps = _best_by_time(reports, sign, submitted)
    begun, ended, gpu_hours = _lasted(kernel, search)
    prices = dict(limits.prices)
    cost = due = gpu_hours * _price(kernel, prices) if prices else None
    if billed is not None:
        cost, due = billed
    epochs = float(sum(trial.epochs for trial in trials))
    best = steps[-1] if steps else (math.nan, math.nan)
    winner = _winner(trials, best[1])
    stop, lasted = place.costs.checkpoint, ended - submitted
    hit = limits.hit(best[1], Mode(document.mode))
    metrics: dict[str, Any] = {
        "trials": sum(trial.state != "waiting" for trial in trials),
        **{
            f"trials_{state}": sum(trial.state == state for trial in trials)
            for state in ("complete", "stopped", "diverged")
        },
        "reports": len(kept),
        "epochs": epochs,
        "best": _number(best[1]),
        "best_at_seconds": _number(best[0]),
        "best_configuration": winner.configuration if winner else None,
        "best_point": winner.point if winner else None,
        **_goals(experiment, trials),
        "waited_seconds": (begun - submitted) / SECOND,
        "seconds": (ended - begun) / SECOND,
        "gpu_hours": gpu_hours,
        "trial_gpu_hours": float(sum(trial.gpu_hours for trial in trials)),
        "cost": cost,
        "ended_by": reached(limits, lasted / SECOND, epochs, gpu_hours, due, hit=hit),
        "deadline_kept": None if limits.deadline >= NEVER else lasted <= limits.deadline + stop,
        "budget_kept": _budget_kept(limits, epochs, gpu_hours, cost, kernel, stop, search),
        "simulation": _effort(kernel, len(kept), cpu_seconds),
    }
    return TuningRun(
        document.name,
        recipe,
        seed,
        document.metric,
        document.mode,
        place.cluster.name,
        metrics,
        trials,
        steps,
        document.tenant,
    )


def _effort(kernel: Kernel, reports: int, cpu_seconds: float) -> dict[str, float | None]:
    """What the simulation took."""
    return {
        "events": kernel.events,
        "decisions": kernel.decisions,
        "cpu_seconds": cpu_seconds,
        "reports_per_cpu_second": reports / cpu_seconds if cpu_seconds else None,
    }


def _lasted(kernel: Kernel, search: int) -> tuple[int, int, float]:
    """When a search first had GPUs, when it was over (until now, if it is not), and the GPU-hours
    that it has held."""
    jobs = kernel.jobs
    over, first = int(jobs.finished[search]), int(jobs.first_start[search])
    ended = over if over >= 0 else kernel.now
    holding = (kernel.now - int(jobs.held_since[search])) * int(jobs.size[search])
    gpu_hours = (float(jobs.held[search]) + holding) / HOUR
    return first if first >= 0 else ended, ended, gpu_hours


def _goals(experiment: Experiment, trials: list[Trial]) -> dict[str, Any]:
    """How many trials keep the constraints, and the Pareto front, where there are any."""
    document, goals = experiment.document, dict[str, Any]()
    reported = [trial for trial in trials if trial.reports]
    if experiment.constraints:
        goals["trials_feasible"] = sum(trial.feasible for trial in reported)
    if document.metrics:
        kept = [trial for trial in reported if trial.feasible]
        points = [
            [trial.last, *(trial.metrics[name] for name in document.metrics)] for trial in kept
        ]
        goals["pareto"] = [
            {
                "trial": kept[at].number,
                "configuration": kept[at].configuration,
                document.metric: kept[at].last,
                **{name: kept[at].metrics[name] for name in document.metrics},
            }
            for at in front(points, [document.mode, *document.metrics.values()])
        ]
    return goals


def _trials(
    kernel: Kernel,
    configurations: Configurations,
    reports: CurveReports,
    sign: float,
    experiment: Experiment,
    search: int,
) -> list[Trial]:
    jobs, kept = kernel.jobs, reports.kept
    of = np.frombuffer(kept.job, np.int64) if len(kept) else np.empty(0, np.int64)
    order = np.argsort(of, kind="stable")
    values = np.array(kept.value)[order]
    keeps = np.ones(len(values), bool)
    keeps[list(kept.broken)] = False
    keeps = keeps[order]
    wanted = {*experiment.document.metrics, *(each.metric for each in experiment.constraints)}
    epochs = np.array(kept.epoch)[order]
    starts = np.searchsorted(of[order], np.arange(jobs.n + 1))
    begun = int(jobs.submitted[search])
    trials = []
    for number, job in enumerate(np.flatnonzero(jobs.within[: jobs.n] == search).tolist()):
        mine = slice(int(starts[job]), int(starts[job + 1]))
        own = values[mine]
        numbers = own[~np.isnan(own) & keeps[mine]]
        last = float(epochs[mine].max()) if len(own) else 0.0
        others = reports.at_epoch(job, last) if wanted and len(own) else {}
        complete = len(own) and epochs[mine][-1] >= reports.last_epoch(job)
        if jobs.first_start[job] < 0:
            state = "waiting"
        elif len(own) and math.isnan(own[-1]):
            state = "diverged"
        else:
            state = "complete" if complete else "stopped"
        best = float(sign * (sign * numbers).min()) if len(numbers) else math.nan
        trials.append(
            Trial(
                number=number,
                configuration=configurations.curves.label(configurations.rows[job]),
                point=configurations.point(job),
                state=state,
                started_seconds=_moment(int(jobs.first_start[job]), begun),
                ended_seconds=_moment(int(jobs.finished[job]), begun),
                epochs=last,
                reports=len(own),
                best=best,
                last=float(own[-1]) if len(own) else math.nan,
                gpu_hours=float(jobs.served[job]) / HOUR,
                metrics={name: value for name, value in others.items() if name in wanted},
                feasible=bool(len(own) and keeps[mine][-1]),
            )
        )
    return trials


def _moment(at: int, begun: int) -> float:
    return (at - begun) / SECOND if at >= 0 else math.nan


def _best_by_time(reports: CurveReports, sign: float, since: int) -> list[tuple[float, float]]:
    """When something better was reported than ever before, and how good it was."""
    kept = reports.kept
    if not len(kept):
        return []
    bad = np.array(kept.value) * sign
    bad[np.isnan(bad)] = math.inf
    bad[list(kept.broken)] = math.inf
    lowest = np.minimum.accumulate(bad)
    better = np.flatnonzero(lowest < np.r_[math.inf, lowest[:-1]])
    return [((kept.at[at] - since) / SECOND, float(sign * lowest[at])) for at in better.tolist()]


def _winner(trials: list[Trial], best: float) -> Trial | None:
    return next((trial for trial in trials if trial.best == best), None)


def _price(kernel: Kernel, prices: dict[str, float]) -> float:
    """Money per GPU-hour, the mean over the GPUs of the cluster."""
    nodes = kernel.nodes
    gpus = nodes.gpus[: nodes.n]
    each = [prices.get(nodes.types[code], 0.0) for code in nodes.gpu_type[: nodes.n].tolist()]
    return float(np.dot(gpus, each) / max(int(gpus.sum()), 1))


def _budget_kept(
    limits: Limits,
    epochs: float,
    gpu_hours: float,
    cost: float | None,
    kernel: Kernel,
    stop: int,
    search: int,
) -> bool | None:
    """Whether no budget was exceeded by more than a stop; None where there is none."""
    period = max((kind.per for kind in kernel.nodes.type_specs), default=1)
    saving = int(kernel.jobs.gpus[search]) * -(-stop // period) * period / HOUR
    rate = cost / gpu_hours if cost is not None and gpu_hours else 0.0
    kept = [
        used <= limit + allowed + 1e-9 * limit
        for used, limit, allowed in (
            (epochs, limits.epochs, 0.0),
            (gpu_hours, limits.gpu_hours, saving),
            (cost or 0.0, limits.money, saving * rate),
        )
        if limit < NEVER
    ]
    return all(kept) if kept else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


COLUMNS: Final = (
    "trial",
    "configuration",
    "state",
    "started_seconds",
    "ended_seconds",
    "epochs",
    "reports",
    "best",
    "last",
    "gpu_hours",
)


def per_trial(runs: list[TuningRun], under: Sequence[str] = ()) -> str:
    """All trials of these runs as CSV: of which run, the figures, then the parameters. `under`: for
    each run the recipe for the cluster, where there were others beside it."""
    names = list(dict.fromkeys(name for run in runs for t in run.trials for name in t.point))
    goals = list(dict.fromkeys(name for run in runs for t in run.trials for name in t.metrics))
    goals += ["feasible"] * bool(goals)
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(
        [
            "experiment",
            "recipe",
            "seed",
            *["cluster_recipe"] * bool(under),
            *COLUMNS,
            *goals,
            *names,
        ]
    )
    for at, run in enumerate(runs):
        for trial in run.trials:
            figures: list[Value] = [trial.number, trial.configuration, trial.state]
            figures += [_cell(getattr(trial, name)) for name in COLUMNS[3:]]
            metrics = {name: _cell(value) for name, value in trial.metrics.items()}
            metrics["feasible"] = str(trial.feasible).lower() if trial.reports else ""
            figures += [metrics.get(name, "") for name in goals]
            point = [trial.point.get(name, "") for name in names]
            rows.writerow(
                [run.experiment, run.recipe, run.seed, *under[at : at + 1], *figures, *point]
            )
    return stream.getvalue()


def _cell(value: float) -> Value:
    return "" if math.isnan(value) else value
