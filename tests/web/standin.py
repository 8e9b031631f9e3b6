"""A daemon over a fake engine as a process of its own: clusters of any size, and jobs without
processes. `python -m web.standin HOME NODES GPUS JOBS`; it steps when somebody asks."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from ganger.core.events import Evaluated, Served
from ganger.core.spec import ClusterSpec, GpuType, Kind, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.engines.testing.fake import Script
from ganger.service.durable.recovery import header_of
from ganger.service.home import Home
from ganger.service.http.app_context import AppContext
from ganger.service.http.server import Server, unix_socket
from service.desk import Desk, Scripted

SIZES = (1, 2, 4, 8, 1, 2, 8, 16)
NAMES = ("resnet50", "bert-large", "llama-sft", "eval", "vit-h", "sweep", "whisper", "dlrm")
STEPS_APART = 0.02
AT_ONCE = 250
"""Jobs that come in one step."""
WINDOWS = 3
"""What each service reports, a quarter of a second apart."""


def cluster(nodes: int, gpus: int) -> ClusterSpec:
    """Nodes of two types."""
    kinds = ("A100", "V100") if nodes > 1 else ("A100", "A100")
    return ClusterSpec(
        tuple(
            NodeSpec(
                gpus=gpus,
                gpu_type=kinds[at * 2 // nodes],
                cpus=64000,
                memory=1 << 19,
                name=f"gpu-{at:03d}",
            )
            for at in range(nodes)
        ),
        tuple(GpuType(kind, price=2.0) for kind in sorted(set(kinds))),
    ).check()


class Now(Scripted):
    """Begins at the time of the wall clock, so that pages show days of this year."""

    def __init__(self) -> None:
        super().__init__(lambda job, attempt: Script(runs=10_000 * HOUR))
        self.now = round(time.time() * SECOND)


def reports(desk: Desk, told: dict[int, list[int]]) -> bool:
    """Have each trial that runs report five values once, and each service three windows, one after
    the other; whether there was anything to report. `told`: by job, when it was."""
    jobs = desk.daemon.kernel.jobs
    for row in range(jobs.n):
        now, parent = desk.engine.now, int(jobs.parent[row])
        before = told.get(row, [])
        serves = parent < 0 and jobs.kind[row] == Kind.SERVE
        if jobs.phase[row] != Phase.RUNNING or len(before) >= (WINDOWS if serves else 1):
            continue
        if parent >= 0 and jobs.kind[parent] == Kind.TUNE:
            for epoch in range(1, 6):
                value = 1.0 / epoch + 0.01 * row
                desk.engine.post(Evaluated(row, int(jobs.attempt[row]), float(epoch), value))
        elif serves:
            since = before[-1] if before else now - SECOND
            if now - since < SECOND // 4:
                continue
            arrivals = 100.0 * (1 + len(before))
            figures: dict[str, tuple[float | None, ...]] = {
                "arrivals": (arrivals,),
                "late": (arrivals / 10,),
                "p50": (0.05,),
                "p99": (0.25,),
            }
            desk.engine.post(Served(since, (row,), figures))
        else:
            continue
        told.setdefault(row, []).append(now)
        return True
    return False


def main(home: str, nodes: int, gpus: int, jobs: int) -> None:
    """Serve until SIGTERM."""
    root = Home(Path(home))
    root.take()
    engine = Now()
    desk = Desk(root.root, header_of(cluster(nodes, gpus), "fifo", 0, "history"), engine=engine)
    for at in range(jobs):
        ask = desk.jobs(
            gpus=min(SIZES[at % len(SIZES)], nodes * gpus),
            workers=max(1, SIZES[at % len(SIZES)] // gpus),
            name=f"{NAMES[at % len(NAMES)]}-{at // len(NAMES)}",
            tenant=("vision", "speech", "nlp", "ann")[at * 7 % 4],
            time_limit="2h",
        )
        desk.daemon.ask(ask)
        if at % AT_ONCE == AT_ONCE - 1:
            desk.daemon.once()
    desk.daemon.once()
    while (desk.daemon.kernel.jobs.phase == Phase.STARTING).any():
        desk.daemon.once()
    over, told = threading.Event(), dict[int, list[int]]()

    def steps() -> None:
        while not over.is_set():
            engine.now = max(engine.now, round(time.time() * SECOND))
            starts = (desk.daemon.kernel.jobs.phase == Phase.STARTING).any()
            if desk.daemon._inbox or starts or reports(desk, told):
                desk.daemon.once()
            time.sleep(STEPS_APART)

    stepping = threading.Thread(target=steps)
    stepping.start()
    Server(AppContext(desk.daemon, root.root), [unix_socket(root, False)]).run()
    over.set()
    stepping.join()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
