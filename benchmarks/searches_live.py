"""Searches on a daemon with two simulated GPUs: how fast trials follow each other.

    python benchmarks/searches_live.py --trials 100 --long 1000

Trials are real processes. Each writes down the time as its first line, and as what it does last
before it ends. Ray Tune runs the same trials beside, where `.peers/ray` has it (`make peers`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from live import Daemon, fork_exec_ms, fsync_ms
from provenance import ROOT, made, write

from ganger.client.states import OVER
from ganger.core.events import Evaluated
from ganger.core.spec import ClusterSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.engines.testing.fake import Script
from ganger.service.durable.recovery import header_of

sys.path.insert(0, str(ROOT / "tests"))

from service.desk import Desk, box

SLOTS: Final = 2
TRIAL: Final = """import time
began = time.time()
import os, sys
time.sleep(float(sys.argv[2]))
print("epoch=1 loss=" + sys.argv[1], flush=True)
ended = time.time()
with open(os.path.join(sys.argv[3], f"{began:.6f}"), "w") as file:
    file.write(f"{os.environ['GANGER_JOB_ID']} {began!r} {ended!r}")
"""
RAY: Final = """import json, os, sys, time
folder, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
import ray
from ray import tune

def train(config):
    import os, time
    began = time.time()
    time.sleep(config["seconds"])
    tune.report({"loss": config["x"]})
    ended = time.time()
    with open(os.path.join(config["folder"], f"{began:.6f}"), "w") as file:
        file.write(f"0 {began!r} {ended!r}")

ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
space = {"x": tune.uniform(0, 1), "seconds": seconds, "folder": folder}
how = tune.TuneConfig(metric="loss", mode="min", num_samples=count, max_concurrent_trials=2)
tune.Tuner(train, param_space=space, tune_config=how,
    run_config=tune.RunConfig(storage_path=folder + "-ray", verbose=0)).fit()
"""


def said(folder: Path) -> list[tuple[int, float, float]]:
    """What trials wrote down: job, first line, last report; by time."""
    rows = [each.read_text().split() for each in folder.iterdir()]
    return sorted(((int(a), float(b), float(c)) for a, b, c in rows), key=lambda row: row[1])


def turnarounds(rows: list[tuple[int, float, float]]) -> list[float]:
    """Seconds from the last report of each trial to the first line of the next on its slot: the
    k-th to end makes room for the k-th after the first ones."""
    ends = sorted(end for *_, end in rows)
    return [begin - end for end, (_, begin, _) in zip(ends, rows[SLOTS:], strict=False)]


def search(daemon: Daemon, folder: Path, trials: int, seconds: float) -> dict[str, Any]:
    """Run one; all about it."""
    folder.mkdir()
    script = folder.parent / "trial.py"
    script.write_text(TRIAL)
    body = {
        "kind": "tune",
        "gpus": SLOTS,
        "metric": "loss",
        "printed": True,
        "recipe": f"tune.random(trials={trials},epochs=2)",
        "command": [sys.executable, "-S", "-E", str(script), "{x}", str(seconds), str(folder)],
        "configurations": [{"x": f"{at / trials:.4f}"} for at in range(trials)],
    }
    job = daemon.client.call("POST", "/v1/jobs", body=body)["job"]
    while True:  # an answer comes after a while, whatever became of it
        daemon.client.call("GET", f"/v1/jobs/{job}/wait")
        found: dict[str, Any] = daemon.client.call("GET", f"/v1/jobs/{job}")[0]
        if found["state"] in OVER and len(list(folder.iterdir())) >= trials:
            return found


def measured(daemon: Daemon, where: Path, trials: int) -> dict[str, list[float]]:
    """Samples in milliseconds."""
    search(daemon, where / "short", trials, 0.05)
    rows = said(where / "short")
    begins, frees = list[float](), list[float]()
    for job, began, ended in rows:
        detail = daemon.client.call("GET", f"/v1/jobs/{job}")[0]
        begins.append((began - detail["submitted"]) * 1e3)
        frees.append((detail["attempts"][-1]["ended"] - ended) * 1e3)
    return {
        "cold": begins[:1],
        "decision": begins[SLOTS:],
        "free": frees,
        "turnaround": [each * 1e3 for each in turnarounds(rows)],
    }


def lost(daemon: Daemon, where: Path, trials: int) -> float:
    """The part of the time of two slots, from the first line to the last report, in which no trial
    of a second ran."""
    search(daemon, where / "long", trials, 1.0)
    rows = said(where / "long")
    lasted = max(end for *_, end in rows) - rows[0][1]
    return 1 - trials / SLOTS / lasted


def reports_a_second(where: Path, trials: int = 200, rounds: int = 100) -> tuple[float, float]:
    """Reports that a daemon writes down and decides by, a second and a CPU second: each of `trials`
    on the fake engine reports in every batch, `tune.asha` judges them."""
    nodes = tuple(box(50, f"node{at}") for at in range(trials // 50))
    begin = header_of(ClusterSpec(nodes).check(), "fifo", 0, "history", "fifo")
    desk = Desk(where, begin, lambda job, attempt: Script(runs=NEVER))
    desk.submit(
        kind="tune",
        gpus=trials,
        metric="loss",
        recipe=f"tune.asha(trials={trials},epochs=100000,first=10)",
        command=["true"],
        configurations=[{"x": str(at)} for at in range(trials)],
    )
    jobs, runs = desk.daemon.kernel.jobs, list[int]()
    while len(runs) < trials:
        desk.daemon.once(desk.daemon.now() + 1000)
        runs = [job for job in range(1, jobs.n) if jobs.phase[job] == Phase.RUNNING]
    sent, began, cpu = 0, time.perf_counter(), time.process_time()
    for number in range(1, rounds + 1):
        alive = [job for job in runs if jobs.phase[job] == Phase.RUNNING]
        each = [Evaluated(job, int(jobs.attempt[job]), float(number), 1.0 / job) for job in alive]
        desk.engine.now += 1000
        desk.engine.post(*each)
        desk.daemon.once(desk.daemon.now() + 1000)
        sent += len(each)
    return sent / (time.perf_counter() - began), sent / (time.process_time() - cpu)


def beside(where: Path, trials: int) -> tuple[list[float], float] | None:
    """Ray Tune's turnarounds (milliseconds), and its loss; None where it is not installed."""
    python = ROOT / ".peers" / "ray" / "bin" / "python"
    if not python.exists():
        return None
    folder = where / "ray"
    folder.mkdir()
    program = where / "ray.script"
    program.write_text(RAY)
    subprocess.run(
        [python, program, folder, str(trials), "1.0"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(where)},
        timeout=600,
    )
    rows = said(folder)
    lasted = max(end for *_, end in rows) - rows[0][1]
    return [each * 1e3 for each in turnarounds(rows)], 1 - trials / SLOTS / lasted


def part(samples: list[float], quantile: float) -> float:
    """A quantile."""
    return sorted(samples)[min(int(quantile * len(samples)), len(samples) - 1)]


HEAD = """# Live searches

Made by `python benchmarks/searches_live.py --trials {trials} --long {long}`: {made}.

One daemon, two simulated GPUs, `tune.random`; trials are processes of Python without `site`. Fork
and exec of `true` take {fork:.1f} ms here, an fsync of 4 KiB {sync:.1f} ms; the machine's load was
{load:.1f} on {cores} cores. Turnaround is from the last report of a trial to the first line of the
one that follows it. Reports are written down and decided by before the next ones are read; 200
trials on the fake engine make them.

| figure | goal | measured |
|:---|---:|---:|
{rows}
"""


def main() -> None:
    """Print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--long", type=int, default=1000)
    parser.add_argument("--ray", type=int, default=30)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        fork, sync, load = fork_exec_ms(), fsync_ms(where), os.getloadavg()[0]
        daemon = Daemon(where / "home")
        try:
            found = measured(daemon, where, args.trials)
            loss = lost(daemon, where, args.long)
        finally:
            daemon.end()
        (where / "desk").mkdir()
        by_clock, by_cpu = reports_a_second(where / "desk")
        ray = beside(where, args.ray)
    rows = [
        ("decision to first line, p50", "<= 50 ms", f"{part(found['decision'], 0.5):.0f} ms"),
        ("decision to first line, p99", "<= 200 ms", f"{part(found['decision'], 0.99):.0f} ms"),
        ("the first trial of the daemon", "", f"{found['cold'][0]:.0f} ms"),
        ("last report to slot free, p50", "<= 50 ms", f"{part(found['free'], 0.5):.0f} ms"),
        ("turnaround, p50", "", f"{part(found['turnaround'], 0.5):.0f} ms"),
        ("turnaround, p99", "", f"{part(found['turnaround'], 0.99):.0f} ms"),
        (f"{args.long:,} trials of 1 s: lost", "< 6 %", f"{loss:.1%}"),
    ]
    rows.append(("reports a second, 200 trials", ">= 10,000", f"{by_clock:,.0f}"))
    rows.append(("reports a CPU second", "", f"{by_cpu:,.0f}"))
    if ray is not None:
        name = f"Ray Tune, {args.ray} trials of 1 s"
        rows.append((f"{name}: turnaround, p50", "", f"{part(ray[0], 0.5):.0f} ms"))
        rows.append((f"{name}: lost", "", f"{ray[1]:.1%}"))
    table = "\n".join(f"| {what} | {goal} | {value} |" for what, goal, value in rows)
    print(table)
    if not args.no_write:
        page = HEAD.format(
            trials=args.trials,
            long=args.long,
            made=made(),
            fork=fork,
            sync=sync,
            rows=table,
            load=load,
            cores=os.cpu_count(),
        )
        write(Path(__file__).with_suffix(".md"), page)


if __name__ == "__main__":
    main()
