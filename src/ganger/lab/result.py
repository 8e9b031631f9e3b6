"""What one run of one recipe leaves behind: columns, samples over time, figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.lab.billing.account import Account

if TYPE_CHECKING:
    from ganger.lab.serving.watching import Watched
    from ganger.lab.tuning.result import TuningRun


class Segment(NamedTuple):
    """One job on some GPUs of one node for a while (seconds since the trace's first submission).

    A job has none while it is suspended.
    """

    job: int
    start_seconds: float
    end_seconds: float
    node: int
    devices: int
    """Bit mask of the GPUs held."""


class Waited(NamedTuple):
    """How many jobs a reason held up and for how long in all, once and with the GPUs that each asks
    for. `code`: the word of the plan's reason; `by`: the class that refused; both "" if no reason
    was given."""

    code: str
    by: str
    jobs: int
    job_hours: float
    gpu_hours: float


class Together(NamedTuple):
    """Jobs of a `model` on the same GPUs as jobs of the models `beside`. `standing`: guaranteed,
    opportunistic, `0.4 to 0.5` of a GPU, or empty where the recipe gives no terms. `speed`: the
    work that they did in that time, 1 as fast as the trace has it."""

    model: str
    standing: str
    beside: str
    jobs: int
    gpu_hours: float
    speed: float


class Loans(NamedTuple):
    """What services lent to other jobs. At each of `seconds` so many GPUs were on loan (`lent`), of
    which other jobs held so many (`used`); both hold until the next.

    `loans` and `returns`: how often a node was lent, and went back; `stopped` and `shrunk`: jobs
    that had to leave, and that went on with fewer GPUs; `longest_return_seconds`: the longest that
    a node took until the last of them had let go of it."""

    seconds: list[float]
    lent: list[int]
    used: list[int]
    lent_gpu_hours: float
    used_gpu_hours: float
    loans: int
    returns: int
    stopped: int
    shrunk: int
    longest_return_seconds: float


@dataclass(repr=False)
class Timeline:
    """Samples over time; every array as long as `seconds`. Each value holds until the next."""

    seconds: NDArray[np.float64]
    gpus_held: NDArray[np.float64]
    gpus_running: NDArray[np.float64]
    jobs_pending: NDArray[np.int64]
    gpus_pending: NDArray[np.int64]
    gpus_up: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"<Timeline of {len(self.seconds)} samples>"


@dataclass(repr=False)
class JobTable:
    """One entry per submitted job. Times in seconds since the trace's first submission; NaN
    where a thing did not happen."""

    name: list[str]
    tenant: list[str]
    gpus: NDArray[np.int64]
    arrival: NDArray[np.float64]
    first_start: NDArray[np.float64]
    finish: NDArray[np.float64]
    """When it was over, whether it finished, was killed or cancelled: see `state`."""
    state: list[str]
    """finished, failed, cancelled, running, pending ... (a `Phase` in lower case)."""
    duration: NDArray[np.float64]
    """What it takes alone: at the size asked for, on the reference type, in one piece."""
    ran: NDArray[np.float64]
    """Executed time over all attempts."""
    pending: NDArray[np.float64]
    """Time spent waiting for devices, later waits included."""
    held_gpu_seconds: NDArray[np.float64]
    """Held of the cluster: 0 for a child in a grant, which its parent holds."""
    active_gpu_seconds: NDArray[np.float64]
    lost: NDArray[np.float64]
    """Work done and then lost, in seconds at the size asked for."""
    preemptions: NDArray[np.int64]
    restarts: NDArray[np.int64]
    gpu_type: list[str]
    """The type it last ran on, "" if it never ran."""
    nodes: list[str]
    """The nodes it last ran on, comma separated."""
    locality: list[str]
    """island, node, rack or any: how close together its GPUs last were; "" if it never ran."""
    open_ended: NDArray[np.bool_]
    """Services: no JCT, counted in allocation only."""
    deadline: NDArray[np.float64]
    """When it should be done; NaN for a job without a deadline."""
    of_search: NDArray[np.bool_] | None = None
    """Experiments and their trials, which are open-ended here: their figures stand apart."""

    @property
    def service(self) -> NDArray[np.bool_]:
        """Services, and their replicas."""
        return self.open_ended if self.of_search is None else self.open_ended & ~self.of_search

    @property
    def in_searches(self) -> int:
        """How many of the jobs are experiments and their trials."""
        return 0 if self.of_search is None else int(self.of_search.sum())

    def __repr__(self) -> str:
        return f"<JobTable of {len(self.name)} jobs>"


@dataclass(repr=False)
class Run:
    """One recipe over one trace with one seed."""

    recipe: str
    """As asked for: name and parameters."""
    seed: int
    knows: str
    """What the policy knew: of durations truth, noisy, history, ...; else speeds, noisy speeds or
    nothing."""
    trace: str
    cluster: str
    cluster_gpus: int
    jobs: JobTable
    timeline: Timeline
    metrics: dict[str, float] = field(default_factory=dict)
    simulation: dict[str, float] = field(default_factory=dict)
    """events, decisions, cpu_seconds, peak_rss_bytes; requests_per_cpu_second with services."""
    segments: list[Segment] | None = None
    """For small runs only: every interval of every job, for the Gantt chart."""
    node_gpus: list[int] = field(default_factory=list)
    """GPUs per node, for the Gantt chart."""
    load: float = 1.0
    """What was asked for with `--load`; 1 where the trace's own arrivals were kept."""
    rows: int = 0
    """How many rows the trace's file had; 0 if it was not a file."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many of them became no job, by reason."""
    waited: list[Waited] | None = None
    """Why jobs waited, if that was asked for (`Setup.why`)."""
    company: list[Together] | None = None
    """Which jobs shared GPUs, if that was asked for."""
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By service whose requests were simulated: its figures, as in docs/serving.md."""
    service_windows: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """The same windows as the recipe for services heard of, for the report: by service and figure,
    one entry a window; `since` and `until` are when it began and ended, in seconds."""
    service_watched: dict[str, Watched] = field(default_factory=dict)
    """What ran on their lanes, for the report; only where that was asked for (`Traffic.watch`)."""
    searches: list[TuningRun] = field(default_factory=list)
    """What became of each experiment of `Setup`."""
    loans: Loans | None = None
    """What was on loan; None where nothing ever was, or where that was not recorded."""
    account: Account | None = None
    """What it drew and cost; None where that was not recorded."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the figures must know, as sentences without a full stop."""

    @property
    def cost(self) -> dict[str, float]:
        """What `jobs`, and `services` with their replicas, held, and what nobody did (`idle`), at
        the prices of `Setup` or of the cluster file; empty without."""
        return self.account.costs if self.account is not None else {}

    def __repr__(self) -> str:
        from ganger.lab.tables import duration

        mean = duration(self.metrics.get("jct_mean_seconds", math.nan))
        return (
            f"<Run of {self.recipe}, seed {self.seed}: {len(self.jobs.name):,} jobs on "
            f"{self.cluster_gpus:,} GPUs, mean JCT {mean}>"
        )

    def table(self) -> dict[str, list[Any]]:
        """The jobs as columns by name, one entry a job, as `--per-job` writes them: times in
        seconds, None where a thing did not happen. `pandas.DataFrame(run.table())` takes it."""
        from ganger.lab.metrics import job_columns

        return dict(job_columns(self))

    def report(self, path: str | Path) -> None:
        """Write the HTML report of this run, with its plots, to `path`."""
        from ganger.lab.origin import origin_of
        from ganger.lab.report import write_report

        write_report([self], Path(path), origin=origin_of("", ()))
