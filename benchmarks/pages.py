"""What the pages cost: CPU seconds of their process and compressed bytes for each page, the cost of
many browsers that look at a queue that changes, and how soon and at which cost a browser shows it.

    PYTHONPATH=tests python benchmarks/pages.py
    PYTHONPATH=tests python benchmarks/pages.py --nodes 4 --jobs 60 --browsers 5 --no-write

The daemon stands over a fake engine, so that jobs are rows and no processes. CPU time is that of
the pages' process alone, from /proc; the daemon's is told beside it. The last two figures need
Chromium and playwright, and are left out without.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import os
import shutil
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
from pages_in_chromium import in_chromium
from provenance import machine, made, write

from ganger.web.sessions import SESSIONS_MAX
from web import rig
from web.rig import FORM, Pages, Standin, served

PAGE = Path(__file__).with_suffix(".md")
PAGES: Final = (
    "/", "/cluster/map", "/queue", "/queue/rows", "/nodes", "/tenants", "/services",
    "/experiments", "/jobs/1", "/whatif",
)  # fmt: skip
ROUNDS: Final = 10
SECONDS: Final = 20.0
RATE: Final = 20
TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """CPU seconds of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def ask(pages: Pages, path: str, cookie: dict[str, str]) -> int:
    """Bytes of a page, compressed."""
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=60)
    sent = {"Host": pages.host, "Accept": "text/html", "Accept-Encoding": "gzip", **cookie}
    connection.request("GET", path, headers=sent)
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status == 200, (path, answer.status)
    if answer.headers.get("Content-Encoding") != "gzip":
        data = gzip.compress(data, 5)
    connection.close()
    return len(data)


def change(daemon: Standin, at: int) -> None:
    """One more change of one waiting job."""
    verb = "release" if at % 2 else "hold"
    daemon.client.call("POST", f"/v1/jobs/{LAST}/{verb}")


def change_shown(daemon: Standin, at: int) -> None:
    """One more change, which the list of the lowest priorities shows in its first line."""
    daemon.client.call("PATCH", f"/v1/jobs/{LAST}", body={"priority": -at})


LAST = 0


def each_page(daemon: Standin, pages: Pages, cookie: dict[str, str]) -> list[str]:
    """CPU and bytes of every page: as it is kept, and made anew after a change."""
    rows = []
    stream = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=60)
    stream.request("GET", "/events", headers={"Host": pages.host, **cookie})
    stream.getresponse()  # as long as somebody looks, the pages follow the daemon
    for path in PAGES:
        size = ask(pages, path, cookie)
        figures = []
        for changed in (False, True):
            spent = 0.0
            for at in range(ROUNDS):
                if changed:
                    change(daemon, at)
                    time.sleep(1.0)  # the pages hear of it, and rest
                before = cpu(pages.process.pid)
                ask(pages, path, cookie)
                spent += cpu(pages.process.pid) - before
            figures.append(1000 * spent / ROUNDS)
        rows.append(f"| `{path}` | {figures[0]:.0f} ms | {figures[1]:.0f} ms | {size:,} |")
        print(rows[-1], flush=True)
    stream.close()
    return rows


async def browser(pages: Pages, cookie: dict[str, str], end: float) -> tuple[int, int, float]:
    """A browser with the queue open: bytes that it got, parts that came with them, and the longest
    time in seconds between two of them."""
    see = quote("/queue/rows?find=&state=active&sort=priority&page=0", safe="")
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    writer.write(
        f"GET /events?see={see} HTTP/1.1\r\nHost: {pages.host}\r\n"
        f"Cookie: {cookie['Cookie']}\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    inflate = zlib.decompressobj(zlib.MAX_WBITS + 16)
    got, parts, last, longest = 0, 0, 0.0, 0.0
    while (left := end - time.monotonic()) > 0:
        try:
            size = int(await asyncio.wait_for(reader.readline(), left), 16)
        except TimeoutError:
            break
        chunk = (await reader.readexactly(size + 2))[:-2]
        got += size
        if count := inflate.decompress(chunk).count(b"event: part"):
            now = time.monotonic()
            longest = max(longest, now - last) if parts else 0.0
            parts, last = parts + count, now
    writer.close()
    return got, parts, longest


def decisions(daemon: Standin) -> tuple[float, float]:
    """How many steps the daemon has made, and how many seconds they took, by its own metrics."""
    text = b"".join(daemon.client.stream("/metrics")).decode()
    name = "ganger_decision_duration_seconds_"
    count, total = (text.partition(f"\n{name}{each} ")[2].split()[0] for each in ("count", "sum"))
    return float(count), float(total)


async def many(daemon: Standin, pages: Pages, cookies: list[dict[str, str]], count: int) -> str:
    """So many browsers with the queue open, and `RATE` changes a second: a row."""
    end = time.monotonic() + SECONDS
    before, daemon_before = cpu(pages.process.pid), cpu(daemon.process.pid)
    decided, lasted = decisions(daemon)

    async def changes() -> None:
        for at in range(round(SECONDS * RATE)):
            await asyncio.sleep(max(0.0, end - SECONDS + at / RATE - time.monotonic()))
            await asyncio.to_thread(change_shown, daemon, at)

    crowd = asyncio.gather(
        *(browser(pages, cookies[at % len(cookies)], end) for at in range(count))
    )
    looked, _ = await asyncio.gather(crowd, changes())
    took = time.monotonic() - end + SECONDS
    used, its = cpu(pages.process.pid) - before, cpu(daemon.process.pid) - daemon_before
    got = sum(each[0] for each in looked) / max(count, 1) / took
    parts = sum(each[1] for each in looked) / max(count, 1) / took
    longest = max((each[2] for each in looked), default=0.0)
    steps, in_all = (np.array(decisions(daemon)) - (decided, lasted)).tolist()
    return (
        f"| {count} | {used / took:.1%} | {got / 1000:.1f} KB/s | {parts:.2f} | {longest:.2f} s"
        f" | {its / took:.1%}"
        f" | {1000 * in_all / steps:.2f} ms |"
    )


def ahead(pages: Pages, cookie: dict[str, str]) -> str:
    """How long an order's effect on the others takes."""
    csrf = pages.csrf(cookie)
    took = []
    for verb in ("cancel", "hold", "priority"):
        begin = time.monotonic()
        form = {"csrf": csrf, "verb": verb, "job": str(LAST), "priority": "9"}
        answer = pages.ask("POST", "/queue/ahead", {**cookie, "Content-Type": FORM}, form)
        assert answer.status == 200, answer.text
        took.append(f"{verb} {time.monotonic() - begin:.2f} s")
    return f"What an order does to the others is said after: {', '.join(took)}."


def browsed(daemon: Standin, pages: Pages) -> list[str]:
    """What a real browser says, if there is one."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return []
    shown, frames = in_chromium(chromium, daemon, pages, change, LAST)
    return [
        f"A change is on the screen after {np.median(shown):.2f} s in the median of {len(shown)},"
        f" {max(shown):.2f} s at the most, from the daemon's answer on.",
        "",
        "| page, at 20 changes a second | frames with script | script p50 | p95 | most |",
        "|:---|---:|---:|---:|---:|",
        *(
            f"| `{name.replace(', ', '`, ')} | {len(each)} | {np.median(each):.1f} ms"
            f" | {np.quantile(each, 0.95):.1f} ms | {each.max():.1f} ms |"
            for name, each in frames.items()
            if len(each)
        ),
    ]


def text(
    given: argparse.Namespace,
    loads: list[float],
    running: int,
    rows: list[str],
    measured: tuple[str, list[str], list[str]],
) -> str:
    """The page."""
    order, beside, shown = measured
    return f"""# The pages at {given.nodes * 8:,} GPUs and {given.jobs:,} jobs

Made by {made()}; {machine()}. \
Other work ran on this machine, whose load was {loads[0]:.1f} at the begin and {loads[1]:.1f} at \
the end: CPU time is of the pages' process alone; how soon something is there, and how long \
decisions take, is of the clock. {running:,} jobs run. A page's CPU time is the mean of {ROUNDS} \
requests, with handler, questions to the daemon and compression: without a change between them, \
so that parts that look the same to everybody are kept, and with a change before each. Script is \
the processor time of the outermost script events between two frames of the page's thread, in \
frames that had any.

| page | CPU, kept | CPU, made anew | bytes, compressed |
|:---|---:|---:|---:|
{chr(10).join(rows)}

{order}

So many browsers have the list of the lowest priorities open, while the lowest changes \
{RATE} times a second, for {SECONDS:.0f} s. Each is sent the list as it is then; the longest that \
one waited for the next is told. A decision is the mean of the daemon's own steps:

| browsers | CPU of the pages | each gets | lists a s | longest | CPU of the daemon | a decision |
|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(beside)}

{chr(10).join(shown)}
"""


def main() -> None:
    """Measure, print, write the page."""
    global LAST
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--browsers", type=int, default=200)
    parser.add_argument("--costs", action="store_true", help="only what each page costs")
    parser.add_argument("--crowd", action="store_true", help="only what many browsers cost")
    parser.add_argument("--screen", action="store_true", help="only what a browser shows")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    LAST = given.jobs
    rig.START_SECONDS = 600.0
    with tempfile.TemporaryDirectory() as folder:
        daemon = Standin(Path(folder) / "home", given.nodes, 8, given.jobs)
        try:
            with served(daemon.home) as pages:
                if given.screen:
                    print("\n".join(browsed(daemon, pages)))
                    return
                cookie = pages.cookie()
                status = daemon.client.call("GET", "/v1/status")["jobs"]
                running = status.get("running", 0)
                loads = [os.getloadavg()[0]]
                rows = [] if given.crowd else each_page(daemon, pages, cookie)
                if given.costs:
                    return
                order = "" if given.crowd else ahead(pages, cookie)
                cookies = [pages.cookie() for _ in range(SESSIONS_MAX - 4)]
                beside = []
                for count in (0, given.browsers, 0, given.browsers):
                    beside.append(asyncio.run(many(daemon, pages, cookies, count)))
                    print(beside[-1], flush=True)
                if given.crowd:
                    return
                shown = browsed(daemon, pages)
                loads.append(os.getloadavg()[0])
        finally:
            daemon.end()
    print("\n".join([order, *beside, *shown]))
    if given.no_write:
        return
    write(PAGE, text(given, loads, running, rows, (order, beside, shown)))


if __name__ == "__main__":
    main()
