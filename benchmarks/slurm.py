"""The Slurm engine on a real controller with 64 node daemons on this machine (as root).

    python benchmarks/slurm.py

Two questions. How fast does a round of 256 starts reach the controller, beside a shell loop of bare
`sbatch` on the same controller? The partition is down meanwhile, so that no job competes with
either for this machine's cores; both are measured in turn, and figures are medians of the turns.
And what do 10,000 queued jobs on 64 nodes of 8 GPUs, all of them busy, cost: a decision, the
controller's CPU, its requests a second (`sdiag`)?
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from provenance import machine, made, write

from engines.site import Site, missing, standing
from ganger.core.plan import Plan, Slot, Start
from ganger.core.units import HOUR
from ganger.engines.launch import Launch
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.engine import SlurmEngine
from service.machines import Machine

NODES = {f"n{i:02}": ("v100", 8) for i in range(64)}
STARTS, QUEUED, WINDOW_SECONDS = 256, 10_000, 60.0


class Counting(Client):
    """Knows which jobs it has submitted."""

    def __init__(self, partition: str) -> None:
        super().__init__(partition)
        self.numbers: list[int] = []

    def submit(self, *words: Any, **more: Any) -> int:
        """Submit, and note it."""
        number = super().submit(*words, **more)
        self.numbers.append(number)
        return number


def bare_rate(site: Site) -> float:
    """Jobs a second of a shell loop of sbatch."""
    loop = f"""for i in $(seq {STARTS}); do sbatch --parsable --job-name=bare --no-requeue \
--nodelist=n$(printf %02d $((i / 8 % 64))) --nodes=1 --ntasks-per-node=1 --gres=gpu:v100:1 \
--mem=100M --partition=main --output=/dev/null --export=NIL {site.root}/script; done"""
    (site.root / "script").write_text("#!/bin/sh\nexec true\n")
    began = time.perf_counter()
    subprocess.run(["sh", "-c", loop], check=True, stdout=subprocess.DEVNULL, env=site.env)
    return STARTS / (time.perf_counter() - began)


def engine_rate(site: Site, starts: int = STARTS, nodes: int = len(NODES)) -> float:
    """Jobs a second of one plan of so many starts."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-bench-"))
    client, names = Counting("main"), list(NODES)[:nodes]
    engine = SlurmEngine(
        client,
        folder,
        lambda job: Launch(command=("true",)),
        lambda hello: [names.index(hello.name)],
        cluster="bench",
        patience=HOUR,
    )
    while not all(box.up for box in engine.boxes.values()):
        engine.poll(engine.clock.now() + 100_000)
    plan = Plan([Start(job, 1, (Slot(job // 8, 1 << job % 8, 1),)) for job in range(starts)])
    began = time.perf_counter()
    engine.apply(plan, engine.clock.now())
    while len(client.numbers) < starts:
        engine.poll(engine.clock.now() + 20_000)
    rate = starts / (time.perf_counter() - began)
    engine.close()
    shutil.rmtree(folder, ignore_errors=True)
    return rate


def dispatch(site: Site, rounds: int) -> tuple[float, float, float]:
    """Medians of `rounds` turns: jobs a second of sbatch, of the engine, and their ratio."""
    site.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        found.append((bare_rate(site), engine_rate(site)))
        site.ask("scancel", "--user=root")
        print("  sbatch {:.1f}/s, engine {:.1f}/s".format(*found[-1]), flush=True)
    site.clear()
    site.ask("scontrol", "update", "PartitionName=main", "State=UP")
    middle = statistics.median
    return (
        middle(bare for bare, _ in found),
        middle(ours for _, ours in found),
        middle(ours / bare for bare, ours in found),
    )


def cpu_seconds(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def standing_load(site: Site, folder: Path) -> dict[str, float]:
    """Figures of a full cluster with a long queue."""
    settings = {"gpus": "", "engine": "slurm", "partition": "main", "recipe": "backfill"}
    machine = Machine(folder / "home", fresh=True, **settings)
    client = machine.up()
    body = {"command": ["sleep", "3600"], "gpus": 8, "array": f"0-{QUEUED - 1}", "time_limit": "2h"}
    client.call("POST", "/v1/jobs", body=body)
    late = time.monotonic() + 900
    while (status := client.call("GET", "/v1/status"))["jobs"].get("running", 0) < len(NODES):
        assert time.monotonic() < late, status
        time.sleep(2)
    print(f"  {status['jobs']}", flush=True)
    time.sleep(10)
    pid = int((site.root / "slurmctld.pid").read_text())
    ours = machine.process.pid if machine.process is not None else 0
    site.ask("sdiag", "--reset")
    before, began, used = cpu_seconds(pid), time.monotonic(), cpu_seconds(ours)
    decisions = []
    while time.monotonic() - began < WINDOW_SECONDS:
        client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 1, "priority": 1})
        decisions.append(client.call("GET", "/v1/status")["last_decision_seconds"])
        time.sleep(2)
    lasted = time.monotonic() - began
    asked = site.requests()
    print(f"  {asked}", flush=True)
    found = {
        "decision_ms": 1000 * max(decisions),
        "controller_cpu_percent": 100 * (cpu_seconds(pid) - before) / lasted,
        "daemon_cpu_percent": 100 * (cpu_seconds(ours) - used) / lasted,
        "requests_per_second": sum(asked.values()) / lasted,
    }
    machine.kill()
    machine.client.close()
    return found


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    with tempfile.TemporaryDirectory() as folder, standing(NODES) as site:
        bare, ours, ratio = dispatch(site, given.rounds)
        found = standing_load(site, Path(folder))
        site.clear()
    text = f"""# The Slurm engine on a real controller

Made by {made()}; {machine()}; load average {os.getloadavg()[2]:.1f} in the end. Slurm, one
controller and {len(NODES)} node daemons of 8 GPUs on this machine. Medians of {given.rounds} turns.

| | measured | wanted |
|:---|---:|---:|
| bare `sbatch` in a shell loop, {STARTS} jobs | {bare:.1f} /s | |
| a plan of {STARTS} starts by the engine | {ours:.1f} /s | |
| the one beside the other, median of the turns' ratios | {100 * ratio:.0f} % | 80 % |
| longest decision, 10,000 jobs queued, 64 running | {found["decision_ms"]:.1f} ms | 100 ms |
| the controller's CPU meanwhile | {found["controller_cpu_percent"]:.1f} % | 5 % |
| the daemon's CPU meanwhile | {found["daemon_cpu_percent"]:.1f} % | |
| requests to the controller a second meanwhile | {found["requests_per_second"]:.2f} | 1 |
"""
    print(text)
    if not given.no_write:
        write(Path(__file__).with_suffix(".md"), text)


if __name__ == "__main__":
    main()
