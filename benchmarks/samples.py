"""Cheap rows of the pages of figures, made again: CI compares them with the pages.

    python benchmarks/samples.py                  # print all
    python benchmarks/samples.py speed            # those of one page
    python benchmarks/samples.py speed --write    # put them into the page, under "A sample"

A cell that is a time, or memory, is printed as `*`: it is what it is on each machine. Rows of
`environments`, `links`, `placement`, `reports`, `routers`, `serving_live` and `slices` are rows of
the pages' own tables; the others have a section for what can be made again in seconds, which the
commands that measure leave as it is. `pilots` and `slurm` need Slurm, and root; `openb`,
`placement`, `searches` and `traces` need GANGER_TRACES.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from provenance import SAMPLE, made, without_sample

HERE = Path(__file__).parent


class Sample(NamedTuple):
    """What is made again: a sentence or two, a table's head, and its rows. `own`: they are rows of
    the page's own table."""

    words: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    own: bool = False


def folder_of_traces() -> Path:
    """The folder of real traces. Ends the program where there is none."""
    if "GANGER_TRACES" not in os.environ:
        sys.exit("GANGER_TRACES is not set")
    return Path(os.environ["GANGER_TRACES"])


def allocate() -> Sample:
    """Two problems of its first table, solved by us and by HiGHS."""
    from allocate import case_highs, case_max_min

    rows = [
        (f"{jobs:,}", *(f"{case(jobs)['value']:.6f}" for case in (case_max_min, case_highs)))
        for jobs in (256, 1024)
    ]
    words = "Max-min, 5 GPU types, all rows distinct: the level that is reached."
    return Sample(words, ("jobs", "ours", "HiGHS simplex"), rows)


def calibration() -> Sample:
    """Fewer jobs."""
    from calibration import HEAD, line

    rows = [cells(line("philly", "fifo", 2, 300))]
    return Sample("The same with 300 jobs, twice.", cells(HEAD), rows)


def live() -> Sample:
    """What submissions cost in the journal."""
    from live import Daemon

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "home")
        try:
            client, journal = daemon.client, Path(folder) / "home/journal.db"
            node = client.call("GET", "/v1/nodes")[0]["name"]
            client.call("POST", f"/v1/nodes/{node}/drain")
            body = {"command": ["true"], "gpus": 1, "cwd": "/"}
            before = counted(journal)
            for _ in range(100):
                client.call("POST", "/v1/jobs", body=body)
            after = counted(journal)
            rows.append(
                (
                    "100 submissions, each after the answer to the one before",
                    *(str(b - a) for a, b in zip(before, after, strict=True)),
                )
            )
            client.call("POST", "/v1/jobs", body={**body, "array": "0-9999"})
            last = counted(journal)
            rows.append(
                ("an array of 10,000", *(f"{b - a:,}" for a, b in zip(after, last, strict=True)))
            )
        finally:
            daemon.end()
    words = "What submissions add to the journal while nothing can start: each batch is one commit."
    return Sample(words, ("what", "batches", "jobs"), rows)


def counted(journal: Path) -> tuple[int, int]:
    """Batches in which jobs are accepted, and jobs, in a journal."""
    base = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        batches = base.execute("SELECT count(*) FROM batches WHERE instr(events, 'Accepted')")
        jobs = base.execute("SELECT count(*) FROM jobs")
        return batches.fetchone()[0], jobs.fetchone()[0]
    finally:
        base.close()


def pages() -> Sample:
    """What stands on small ones."""
    import re
    from urllib.request import Request, urlopen

    from web.rig import Standin, served

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = Standin(Path(folder) / "home", 4, 8, 60)
        try:
            with served(daemon.home) as shown:
                sent = {"Host": shown.host, **shown.cookie()}
                for path in ("/", "/queue", "/nodes", "/jobs/1"):
                    asked = Request(f"http://127.0.0.1:{shown.port}{path}", headers=sent)
                    with urlopen(asked, timeout=60) as answer:
                        text = answer.read().decode()
                    kinds = ("<a ", "<button", "<input")
                    counts = (str(len(re.findall(each, text))) for each in kinds)
                    rows.append((f"`{path}`", *counts))
        finally:
            daemon.end()
    words = "What the pages of four nodes of eight GPUs and 60 jobs hold."
    return Sample(words, ("page", "links", "buttons", "fields"), rows)


def parity() -> Sample:
    """What the simulator says, with costs that are stated instead of measured."""
    from ganger.lab.live.parity import RECIPES, Study
    from ganger.sim.physics import Costs

    costs = Costs(restore=45_000, checkpoint=25_000, start=55_000, load=35_000, finish=25_000)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder))
        for recipe in RECIPES[:6]:  # the others solve in floating point
            found = study.simulate(recipe, costs)
            jct, end = found.jct_mean_seconds, found.makespan_seconds
            rows.append((recipe, f"{jct:.3f} s", f"{end:.2f} s"))
    words = (
        "What the simulator says of the 100 jobs where starting costs 55 ms (35 of them after the"
        " launch), a checkpoint 25, restoring 45 and finishing 25 ms."
    )
    return Sample(words, ("recipe", "mean JCT", "makespan"), rows)


def pilots() -> Sample:
    """How many Slurm jobs it takes."""
    from pilots import first_line, until_up

    from engines.site import missing, standing
    from service.machines import Machine

    if missing():
        sys.exit(missing())
    rows, folder = [], Path(tempfile.mkdtemp(prefix="pilots-"))
    for name, pilot in (
        ("a Slurm job per attempt", ""),
        ("on a pilot, which is one of them", "1..1"),
    ):
        with standing({"n0": ("v100", 8)}) as site:
            settings = {"gpus": "", "engine": "slurm", "partition": "main", "pilot": pilot}
            machine = Machine(folder / f"{len(rows)}", fresh=True, **settings)
            try:
                until_up(machine.up(), 1)
                for turn in range(4):
                    first_line(machine.client, folder / f"{len(rows)}-{turn}")
                rows.append((name, "4", str(submitted(site))))
            finally:
                machine.end()
                site.clear()
    shutil.rmtree(folder, ignore_errors=True)
    head = ("", "jobs", "Slurm jobs in all")
    return Sample("By `sdiag`, which counts submissions.", head, rows)


def slurm() -> Sample:
    """How many requests a plan costs."""
    import slurm as page

    from engines.site import missing, standing

    if missing():
        sys.exit(missing())
    with standing({"n00": ("v100", 8), "n01": ("v100", 8)}) as site:
        site.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
        before = submitted(site)
        page.engine_rate(site, 16, 2)
        rows = [("a plan of 16 starts by the engine", str(submitted(site) - before))]
        site.clear()
    return Sample("By `sdiag`.", ("", "submissions that the controller counts"), rows)


def submitted(site: object) -> int:
    """The submissions that a controller has had so far."""
    told = site.ask("sdiag")  # type: ignore[attr-defined]
    for line in told.splitlines():
        if "REQUEST_SUBMIT_BATCH_JOB" in line:
            return int(line.partition("count:")[2].split()[0])
    return 0


def placement() -> Sample:
    """openb's pods."""
    from placement import openb_rows

    with quiet():
        rows = [cells(row) for row in openb_rows(folder_of_traces() / "alibaba-openb-2023")]
    return Sample("", (), [(*row[:3], "*") for row in rows], own=True)


def reading() -> Sample:
    """What the files of fewer jobs hold."""
    from ganger.lab.api import as_trace
    from ganger.workloads.formats import save_trace
    from ganger.workloads.synthetic import synthesize

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("jobs.csv", "jobs.swf"):
            path = Path(folder) / name
            save_trace(synthesize("philly", 10_000), path)
            trace = as_trace(str(path))
            hours = f"{trace.gpu_seconds() / 3600:,.1f}"
            rows.append((name, f"{path.stat().st_size:,}", f"{trace.jobs:,}", hours))
    head = ("file", "bytes", "jobs read", "GPU-hours read")
    return Sample("The same with 10,000 jobs.", head, rows)


def reports() -> Sample:
    """What happened on the page's own load."""
    from reports import counted

    return Sample("", (), [cells(counted(2000, 52))], own=True)


def environments() -> Sample:
    """What happened on the page's own world."""
    from environments import counted

    return Sample("", (), [cells(counted(3000))], own=True)


def openb() -> Sample:
    """One order of the pods of one list."""
    from openb import COLUMNS, FOLDER, row

    line, _ = row(folder_of_traces() / FOLDER, "multigpu40", "fgd", [1], [])
    return Sample("The first order alone.", COLUMNS, [cells(line)])


def routers() -> Sample:
    """What becomes of requests under the quickest recipe."""
    from routers import SERVED, cases, counted

    rows = [cells(counted(case)) for case in cases(SERVED)[:1]]
    return Sample("", (), rows, own=True)


def searches() -> Sample:
    """Our side of two seeds."""
    from searches import CURVES, KINDS, ours

    from ganger.workloads.curves.reading import read_curves

    table = read_curves(folder_of_traces() / CURVES, "3945")
    rows = []
    for kind in KINDS:
        for seed in range(2):
            found = ours(kind, table, seed, timed=False).metrics
            count, best = found["reports"], found["best"]
            rows.append((kind.name, str(seed), f"{found['trials']:,}", f"{count:,}", f"{best:.3f}"))
    words = "What ours finds by the last of the ten times."
    return Sample(words, ("scheduler", "seed", "trials", "reports", "best"), rows)


def searches_live() -> Sample:
    """A short search."""
    from live import Daemon
    from searches_live import said, search

    trials = 6
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "home")
        try:
            search(daemon, Path(folder) / "trials", trials, 0.0)
            jobs = len({job for job, *_ in said(Path(folder) / "trials")})
        finally:
            daemon.end()
    rows = [(f"{trials} trials that report once", str(jobs))]
    return Sample("Of a search whose trials end at once.", ("search", "trials that ran"), rows)


def serving_live() -> Sample:
    """How full batches are where more requests wait than fit."""
    from serving_live import DEPTHS, RECIPES, in_process, net

    size, depth = min(DEPTHS.items(), key=lambda item: item[1])
    with tempfile.TemporaryDirectory() as folder:
        _, batch = in_process(net(Path(folder), depth), RECIPES[0], 4096)
    return Sample("", (), [(size, RECIPES[0], "*", "*", f"{batch:.1f}")], own=True)


def links() -> Sample:
    """Two worlds of few jobs."""
    from links import beside, line

    return Sample("", (), [cells(line(seed, beside(seed))) for seed in (3, 11)], own=True)


def scale() -> Sample:
    """Fewer jobs."""
    from scale import line, measure

    with tempfile.TemporaryDirectory() as folder:
        row = measure("helios", 5000, 0.65, 1200, Path(folder) / "share")
    found = cells(line("helios", row, 1200))
    head = ("recipe", "decisions", "mean JCT")
    return Sample("The same with 5,000 jobs.", head, [(found[0], found[2], found[4])])


def slices() -> Sample:
    """One lot of services, whose search takes least."""
    from slices import measured

    row = cells(measured(8).row(8))
    return Sample("", (), [(*row[:6], "*", "*")], own=True)


def speed() -> Sample:
    """Fewer jobs."""
    from speed import measure

    rows = []
    for recipe, load in (("srtf", 5.0), ("tiresias", 5.0)):
        row = measure(recipe, 10_000, load)
        rows.append(
            (
                recipe,
                f"{load:g}",
                f"{row['decisions']:,}",
                f"{row['preemptions']:,}",
                f"{row['wait']:,.1f} s",
            )
        )
    head = ("recipe", "load", "decisions", "preemptions", "mean queueing delay")
    return Sample("The same with 10,000 jobs.", head, rows)


def traces() -> Sample:
    """The sizes of the smaller traces, and what three recipes make of them."""
    from traces import TRACES, cluster_for

    from ganger.lab.simulation import run_one
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.formats import load_trace

    folder, rows = folder_of_traces(), []
    for name in ("Muri 1", "Shockwave", "Tiresias"):
        trace = load_trace(folder / TRACES[name])
        jobs, gpus, cluster = cluster_for(folder, name, 0.9)
        found = [
            run_one(trace, load_cluster(cluster), recipe, record=False).metrics["jct_mean_seconds"]
            for recipe in ("fifo", "srtf", "tiresias")
        ]
        rows.append((name, f"{jobs:,}", f"{gpus:,}", *(f"{each:,.0f} s" for each in found)))
    head = ("trace", "jobs", "GPUs", "mean JCT under fifo", "srtf", "tiresias")
    return Sample("", head, rows)


def versus() -> Sample:
    """What this commit calls for each job, which does not depend on how busy the machine is."""
    from versus import ROOT, probe

    rows = []
    for kind, name in (("speed", "fifo"), ("scale", "afs")):
        calls = probe(ROOT, (kind, name, 500), counts=True)["calls"]
        rows.append((f"{kind} {name}", f"{calls:.0f}"))
    return Sample("Of 500 jobs, with this commit.", ("benchmark", "calls a job"), rows)


@contextmanager
def quiet() -> Iterator[None]:
    """Print nothing meanwhile."""
    with open(os.devnull, "w") as nowhere:
        before, sys.stdout = sys.stdout, nowhere
        try:
            yield
        finally:
            sys.stdout = before


def cells(line: str) -> tuple[str, ...]:
    """The cells of a row in Markdown."""
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


PAGES: dict[str, Callable[[], Sample]] = {
    make.__name__: make
    for make in (
        allocate,
        calibration,
        environments,
        live,
        openb,
        pages,
        parity,
        pilots,
        placement,
        reading,
        links,
        reports,
        routers,
        scale,
        searches,
        searches_live,
        serving_live,
        slices,
        slurm,
        speed,
        traces,
        versus,
    )
}


def write(name: str, sample: Sample, rows: list[str]) -> None:
    """Put a sample into its page, in place of the one before."""
    page = HERE / f"{name}.md"
    lines = [
        SAMPLE,
        "",
        f"Made by {made()}. {sample.words}".rstrip(),
        "",
        f"| {' | '.join(sample.head)} |",
        "|:---|" + "---:|" * (len(sample.head) - 1),
        *rows,
    ]
    page.write_text(without_sample(page.read_text()).rstrip() + "\n\n" + "\n".join(lines) + "\n")


def main() -> None:
    """Make samples, print their rows, write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], help="default: all")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for name in given.pages or PAGES:
        began, sample = time.process_time(), PAGES[name]()
        rows = [f"| {' | '.join(row)} |" for row in sample.rows]
        print("\n".join(rows))
        print(f"{name}: {time.process_time() - began:.1f} CPU-s", file=sys.stderr, flush=True)
        if given.write and not sample.own:
            write(name, sample, rows)


if __name__ == "__main__":
    main()
