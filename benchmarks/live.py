"""The daemon on this machine, with simulated GPUs and real processes.

    python benchmarks/live.py --runs 5

Beside each figure stands what the machine itself takes: fork and exec of a program that does
nothing, and an fsync of 4 KiB on the disk that the journal is on. Figures are medians of `--runs`
runs, each with a daemon and a state folder of its own; p50 and p99 are of the pooled samples.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from provenance import made, write

from ganger.client.connection import Client, NoDaemon

TARGETS = {
    "fork_exec_ms": "", "fsync_ms": "", "start_p50_ms": "50", "start_p99_ms": "200",
    "submissions_per_second": "500", "decision_ms": "100", "decision_freed_ms": "100",
    "queue_seconds": "0.3",
    "restart_seconds": "5", "restart_cpu_seconds": "",
    "idle_cpu_percent": "1", "memory_mib": "150",
    "memory_of_the_big_queue_mib": "",
}  # fmt: skip
WORDS = {
    "fork_exec_ms": "fork + exec of `true`", "fsync_ms": "write + fsync of 4 KiB",
    "start_p50_ms": "submit (HTTP) to process running, p50",
    "start_p99_ms": "submit (HTTP) to process running, p99",
    "submissions_per_second": "submissions a second over HTTP, one job each, 16 clients",
    "decision_ms": "step on a submission, 100,000 jobs queued",
    "decision_freed_ms": "longest step when GPUs become free, 100,000 jobs queued",
    "queue_seconds": "`ganger queue`, first page",
    "restart_seconds": "kill -9 to answering again, 100,000 jobs",
    "restart_cpu_seconds": "CPU time of that",
    "idle_cpu_percent": "CPU of the idle daemon, 10,000 jobs queued",
    "memory_mib": "resident memory, 10,000 jobs queued",
    "memory_of_the_big_queue_mib": "resident memory, 100,000 jobs queued",
}  # fmt: skip


class Daemon:
    """A daemon with its own state folder."""

    def __init__(self, root: Path, recipe: str = "backfill") -> None:
        self.root = root
        self.settings = {"home": str(root), "gpus": "8", "recipe": recipe}
        self.up()

    def up(self) -> float:
        """Start it; seconds until it answers."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ganger.service", msgspec.json.encode(self.settings).decode()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while True:
            try:
                self.client = Client(self.root)
                self.client.call("GET", "/v1/status")
                return time.perf_counter() - began
            except NoDaemon:
                time.sleep(0.005)

    def memory_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop it and its agent."""
        self.client.call("POST", "/v1/shutdown", body={})
        self.client.close()
        self.process.wait()


def fork_exec_ms(times: int = 100) -> float:
    """Median of starting a program that does nothing."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def fsync_ms(folder: Path, times: int = 100) -> float:
    """Median of a durable write of 4 KiB."""
    taken = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def start_samples_ms(daemon: Daemon, where: Path, times: int = 100) -> list[float]:
    """From before the request until the job's own process says what time it is."""
    taken = []
    for number in range(times):
        output = where / f"start-{number}"
        body = {"command": ["date", "+%s.%N"], "output": str(output)}
        began = time.time()
        job = daemon.client.call("POST", "/v1/jobs", body=body)["job"]
        daemon.client.call("GET", f"/v1/jobs/{job}/wait")
        taken.append((float(output.read_text()) - began) * 1e3)
    return taken


def _submit_many(root: Path, count: int) -> None:
    client = Client(root)
    for _ in range(count):
        client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 1, "cwd": "/"})
    client.close()


def _submit_at_once(root: Path, threads: int, count: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(_submit_many, root, count) for _ in range(threads)]:
            done.result()


def submissions_per_second(daemon: Daemon, clients: int = 16, each: int = 300) -> float:
    """Single submissions by several clients at once, while nothing can start."""
    node = daemon.client.call("GET", "/v1/nodes")[0]["name"]
    daemon.client.call("POST", f"/v1/nodes/{node}/drain")
    workers = [
        multiprocessing.Process(target=_submit_at_once, args=(daemon.root, 4, each))
        for _ in range(clients // 4)
    ]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lasted = time.perf_counter() - began
    total = daemon.client.call("GET", "/v1/jobs", query={"limit": 1})["total"]
    assert total >= clients * each
    return clients * each / lasted


def fill(daemon: Daemon, jobs: int) -> None:
    """Have `jobs` jobs queued behind one that holds all GPUs."""
    daemon.client.call("POST", "/v1/jobs", body={"command": ["sleep", "3600"], "gpus": 8})
    for _ in range(jobs // 10_000):
        body = {"command": ["true"], "gpus": 2, "array": "0-9999", "estimate": 600}
        daemon.client.call("POST", "/v1/jobs", body=body)


def decision_ms(daemon: Daemon, times: int = 20) -> float:
    """Median of the steps that submissions cause."""
    taken = []
    for _ in range(times):
        daemon.client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 1})
        taken.append(daemon.client.call("GET", "/v1/status")["last_decision_seconds"])
    return statistics.median(taken) * 1e3


def queue_seconds(daemon: Daemon) -> float:
    """`ganger queue`, as a user runs it."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ganger.cli", "queue"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "GANGER_HOME": str(daemon.root)},
    )
    return time.perf_counter() - began


def restart_seconds(daemon: Daemon) -> float:
    """From kill -9 to the first answer."""
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()
    daemon.client.close()
    return daemon.up()


def freed_ms(daemon: Daemon) -> float:
    """The longest step when the job that holds all GPUs is cancelled and others start."""
    daemon.client.call("POST", "/v1/jobs/1/cancel")
    time.sleep(0.5)
    return float(daemon.client.call("GET", "/v1/status")["slowest_decision_seconds"]) * 1e3


def quiet(daemon: Daemon) -> None:
    """Leave nothing running."""
    node = daemon.client.call("GET", "/v1/nodes")[0]["name"]
    daemon.client.call("POST", f"/v1/nodes/{node}/drain")
    running = daemon.client.call("GET", "/v1/jobs", query={"state": "R,CF,CG"})["jobs"]
    if running:
        daemon.client.call(
            "POST", f"/v1/jobs/{','.join(str(job['job']) for job in running)}/cancel"
        )
        time.sleep(1)


def one_run(folder: Path) -> tuple[dict[str, float], list[float]]:
    """All figures once, and the samples of starts."""
    found = {"fork_exec_ms": fork_exec_ms(), "fsync_ms": fsync_ms(folder)}
    daemon = Daemon(folder / "quick")
    samples = start_samples_ms(daemon, folder)
    found["submissions_per_second"] = submissions_per_second(daemon)
    daemon.end()
    daemon = Daemon(folder / "idle")
    fill(daemon, 10_000)
    time.sleep(1)
    before = daemon.cpu_seconds()
    time.sleep(10)
    found["idle_cpu_percent"] = (daemon.cpu_seconds() - before) * 10
    found["memory_mib"] = daemon.memory_mib()
    quiet(daemon)
    daemon.end()
    daemon = Daemon(folder / "big")
    fill(daemon, 100_000)
    found["decision_ms"] = decision_ms(daemon)
    found["queue_seconds"] = statistics.median(queue_seconds(daemon) for _ in range(5))
    found["memory_of_the_big_queue_mib"] = daemon.memory_mib()
    found["restart_seconds"] = restart_seconds(daemon)
    found["restart_cpu_seconds"] = daemon.cpu_seconds()
    found["decision_freed_ms"] = freed_ms(daemon)
    quiet(daemon)
    daemon.end()
    return found, samples


def measure(runs: int, folder: Path) -> dict[str, float]:
    """The medians."""
    found: dict[str, list[float]] = {}
    pooled: list[float] = []
    for number in range(runs):
        place = folder / str(number)
        place.mkdir(parents=True)
        figures, samples = one_run(place)
        pooled += samples
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        print(json.dumps({name: round(values[-1], 3) for name, values in found.items()}))
        shutil.rmtree(place)
    found["load"] = [os.getloadavg()[2]]
    medians = {name: statistics.median(values) for name, values in found.items()}
    cuts = statistics.quantiles(pooled, n=100)
    return medians | {"start_p50_ms": cuts[49], "start_p99_ms": cuts[98]}


def markdown(figures: dict[str, float], runs: int) -> str:
    """The table of `live.md`."""
    lines = [
        "# The daemon on one machine",
        "",
        f"Made by {made()}, beside other work (load average"
        f" {figures['load']:.1f}):"
        f" Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}."
        f" Medians of {runs} runs.",
        "",
        "| what | measured | goal |",
        "|:---|---:|---:|",
    ]
    for name, goal in TARGETS.items():
        lines.append(f"| {WORDS[name]} | {figures[name]:.3g} {unit(name)} | {goal} |")
    return "\n".join(lines) + "\n"


def unit(name: str) -> str:
    """The unit that a figure's name ends in."""
    for end, word in (("_ms", "ms"), ("_percent", "%"), ("_mib", "MiB"), ("per_second", "/s")):
        if name.endswith(end):
            return word
    return "s"


def main() -> None:
    """Measure, print, write `live.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where state folders go; default: temporary")
    parser.add_argument("--no-write", action="store_true")
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        figures = measure(given.runs, Path(folder))
    text = markdown(figures, given.runs)
    print(text)
    if not given.no_write:
        write(Path(__file__).with_suffix(".md"), text)


if __name__ == "__main__":
    main()
