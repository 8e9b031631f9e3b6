"""Runs for tests: small ones by hand, and realistic ones from a toy cluster of identical GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ganger.lab.result import JobTable, Run, Segment, Timeline

NAN = float("nan")
HAND_ARRIVAL = [0.0, 0.0, 1.0, 4.0]
HAND_DURATION = [30.0, 10.0, 25.0, 40.0]
HAND_START = [0.0, 0.0, 10.0, 30.0]
HAND_FINISH = [30.0, 10.0, 35.0, 70.0]


def table(
    arrival: Sequence[float],
    start: Sequence[float],
    finish: Sequence[float],
    duration: Sequence[float],
    gpus: Sequence[int] | None = None,
    state: Sequence[str] | None = None,
    tenant: Sequence[str] | None = None,
    name: Sequence[str] | None = None,
) -> JobTable:
    """Jobs that ran in one piece from `start` to `finish`."""
    n = len(arrival)
    arrived, started, ended, takes = (
        np.array(x, dtype=np.float64) for x in (arrival, start, finish, duration)
    )
    size = np.array(gpus or [1] * n, dtype=np.int64)
    ran = np.nan_to_num(ended - started)
    return JobTable(
        name=list(name or [f"job-{i}" for i in range(n)]),
        tenant=list(tenant or ["ann", "bob"] * n)[:n],
        gpus=size,
        arrival=arrived,
        first_start=started,
        finish=ended,
        state=list(state or ["finished"] * n),
        duration=takes,
        ran=ran,
        pending=np.nan_to_num(started - arrived),
        held_gpu_seconds=ran * size,
        active_gpu_seconds=ran * size,
        lost=np.zeros(n),
        preemptions=np.zeros(n, dtype=np.int64),
        restarts=np.zeros(n, dtype=np.int64),
        gpu_type=["V100" if not np.isnan(t) else "" for t in started],
        nodes=["n0" if not np.isnan(t) else "" for t in started],
        locality=["node" if not np.isnan(t) else "" for t in started],
        open_ended=np.zeros(n, dtype=np.bool_),
        deadline=np.full(n, np.nan),
    )


def timeline(jobs: JobTable, cluster_gpus: int) -> Timeline:
    """The samples that go with jobs that ran in one piece."""
    moments = np.concatenate([jobs.arrival, jobs.first_start, jobs.finish])
    seconds = np.unique(moments[np.isfinite(moments)])
    at = seconds[:, None]
    running = (jobs.first_start <= at) & ~(jobs.finish <= at)
    waiting = (jobs.arrival <= at) & ~(jobs.first_start <= at) & ~(jobs.finish <= at)
    held = (running * jobs.gpus).sum(axis=1).astype(np.float64)
    return Timeline(
        seconds=seconds,
        gpus_held=held,
        gpus_running=held,
        jobs_pending=waiting.sum(axis=1),
        gpus_pending=(waiting * jobs.gpus).sum(axis=1),
        gpus_up=np.full(seconds.size, cluster_gpus, dtype=np.int64),
    )


def run_of(jobs: JobTable, cluster_gpus: int = 2, recipe: str = "fifo", seed: int = 0) -> Run:
    """A run around a table of jobs."""
    return Run(
        recipe=recipe,
        seed=seed,
        knows="nothing",
        trace="by hand",
        cluster=f"1x{cluster_gpus}xV100",
        cluster_gpus=cluster_gpus,
        jobs=jobs,
        timeline=timeline(jobs, cluster_gpus),
        simulation={"events": 8, "decisions": 6, "cpu_seconds": 0.01, "peak_rss_bytes": 1e8},
        node_gpus=[cluster_gpus],
    )


def by_hand() -> Run:
    """Four jobs of one GPU on two GPUs, first come first served: mean JCT 35 s, makespan 70 s."""
    run = run_of(table(HAND_ARRIVAL, HAND_START, HAND_FINISH, HAND_DURATION))
    run.segments = [
        Segment(0, 0, 30, 0, 0b01),
        Segment(1, 0, 10, 0, 0b10),
        Segment(2, 10, 35, 0, 0b10),
        Segment(3, 30, 70, 0, 0b01),
    ]
    return run


def nothing() -> Run:
    """A run of no jobs at all."""
    return run_of(table([], [], [], []))


Key = Callable[["Toy", int], float]


@dataclass
class Toy:
    """A preemptive list scheduler on identical GPUs, by events: enough to look like a cluster."""

    arrival: list[float]
    duration: list[float]
    gpus: list[int]
    key: Key
    nodes: int
    per_node: int
    preempts: bool = True
    slow: float = 1.0
    left: list[float] = field(default_factory=list)
    attained: list[float] = field(default_factory=list)
    held: dict[int, dict[int, int]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    finish: list[float] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.arrival)
        self.left = [d * self.slow for d in self.duration]
        self.attained = [0.0] * n
        self.first, self.finish = [NAN] * n, [NAN] * n
        self.preemptions = [0] * n

    def run(self, until: float = float("inf")) -> None:
        """Play everything, or up to `until` seconds."""
        now, arrived, present = 0.0, 0, list[int]()
        while (arrived < len(self.arrival) or present) and now < until:
            following = self.arrival[arrived] if arrived < len(self.arrival) else float("inf")
            ends = min((now + self.left[j] for j in self.held), default=float("inf"))
            after = min(following, ends, until)
            for j in self.held:
                self.left[j] -= after - now
                self.attained[j] += (after - now) * self.gpus[j]
                self.segments += [
                    Segment(j, now, after, node, mask) for node, mask in self.held[j].items()
                ]
            now = after
            for j in [j for j in self.held if self.left[j] <= 1e-6]:
                self.finish[j] = now
                present.remove(j)
                del self.held[j]
            while arrived < len(self.arrival) and self.arrival[arrived] <= now:
                present.append(arrived)
                arrived += 1
            self._place(sorted(present, key=lambda j: (self.key(self, j), j)), now)
            waiting = [j for j in present if j not in self.held]
            busy = sum(self.gpus[j] for j in self.held)
            self.samples.append((now, busy, len(waiting), sum(self.gpus[j] for j in waiting)))

    def _place(self, order: list[int], now: float) -> None:
        free = self.nodes * self.per_node
        chosen = []
        if not self.preempts:
            order = [j for j in order if j in self.held] + [j for j in order if j not in self.held]
        for j in order:
            if self.gpus[j] <= free:
                chosen.append(j)
                free -= self.gpus[j]
        for j in [j for j in self.held if j not in chosen]:
            del self.held[j]
            self.preemptions[j] += 1
        for j in chosen:
            if j not in self.held:
                self.held[j] = self._take(self.gpus[j])
                self.first[j] = now if np.isnan(self.first[j]) else self.first[j]

    def _take(self, gpus: int) -> dict[int, int]:
        taken: dict[int, int] = {}
        for node in range(self.nodes):
            used = sum(held.get(node, 0) for held in self.held.values())
            for gpu in range(self.per_node):
                if gpus and not used >> gpu & 1:
                    taken[node] = taken.get(node, 0) | 1 << gpu
                    gpus -= 1
        return taken


RECIPES: dict[str, tuple[Key, bool, float, str]] = {
    "fifo": (lambda t, j: t.arrival[j], False, 1.0, "nothing"),
    "sjf": (lambda t, j: t.duration[j], False, 1.0, "truth"),
    "srtf": (lambda t, j: t.left[j], True, 1.0, "truth"),
    "srsf": (lambda t, j: t.left[j] * t.gpus[j], True, 1.0, "noisy"),
    "las": (lambda t, j: t.attained[j], True, 1.0, "nothing"),
    "tiresias": (lambda t, j: float(t.attained[j] > 9000), True, 1.0, "nothing"),
    "gandiva": (lambda t, j: t.gpus[j], True, 1.02, "nothing"),
    "themis": (lambda t, j: t.attained[j] / t.gpus[j], True, 1.05, "history"),
}


def simulated(
    recipe: str, seed: int = 0, jobs: int = 400, nodes: int = 8, load: float = 0.9
) -> Run:
    """One toy run: Poisson arrivals, log-normal durations, gangs of 1 to 16 GPUs, six tenants."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16], size=jobs, p=[0.55, 0.15, 0.15, 0.1, 0.05])
    duration = np.minimum(rng.lognormal(7.3, 1.5, size=jobs), 60000)
    gap = float((gpus * duration).mean()) / (nodes * 8 * load)
    arrival = np.cumsum(rng.exponential(gap, size=jobs)) - gap / 2
    arrival[0] = 0.0
    key, preempts, slow, knows = RECIPES[recipe]
    toy = Toy(arrival.tolist(), duration.tolist(), gpus.tolist(), key, nodes, 8, preempts, slow)
    toy.run()
    names = rng.choice(["vision", "speech", "nlp", "ads", "robotics", "interns"], size=jobs)
    result = run_of(
        table(toy.arrival, toy.first, toy.finish, toy.duration, toy.gpus, tenant=names.tolist()),
        nodes * 8,
        recipe,
        seed,
    )
    samples = np.array(toy.samples)
    result.timeline = Timeline(
        samples[:, 0],
        samples[:, 1],
        samples[:, 1] * 0.97,
        samples[:, 2].astype(np.int64),
        samples[:, 3].astype(np.int64),
        np.full(len(samples), nodes * 8, dtype=np.int64),
    )
    held = np.array(toy.attained)
    result.jobs.held_gpu_seconds, result.jobs.active_gpu_seconds = held, held * 0.97
    result.jobs.ran = held / gpus
    result.jobs.pending = toy_pending(result.jobs)
    result.jobs.preemptions = np.array(toy.preemptions, dtype=np.int64)
    result.knows, result.load = knows, load
    result.trace, result.cluster = "toy: Poisson, log-normal", f"{nodes}x8xV100"
    result.node_gpus = [8] * nodes
    result.segments = merged(toy.segments) if jobs <= 60 else None
    return result


def toy_pending(jobs: JobTable) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """All waiting: what of the JCT was not spent running."""
    return np.maximum(jobs.finish - jobs.arrival - jobs.ran, 0.0)


def merged(segments: list[Segment]) -> list[Segment]:
    """Join what only an event elsewhere cut in two."""
    last: dict[tuple[int, int, int], Segment] = {}
    out: list[Segment] = []
    for s in segments:
        key = (s.job, s.node, s.devices)
        if key in last and last[key].end_seconds == s.start_seconds:
            last[key] = last[key]._replace(end_seconds=s.end_seconds)
        else:
            if key in last:
                out.append(last[key])
            last[key] = s
    return sorted(out + list(last.values()), key=lambda s: (s.start_seconds, s.node, s.devices))
