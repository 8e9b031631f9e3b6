"""What a real browser does with the pages: how soon a change is on the screen, and how long scripts
run in a frame while 20 changes a second come. Used by `pages.py`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from web.rig import Pages, Standin

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES: Final = {"desktop": (1280, 800), "phone": (390, 844)}
LOOKED_AT: Final = ("/", "/queue", "/queue?state=pending")
SECONDS: Final = 10.0
RATE: Final = 20
ROUNDS: Final = 20
_SCRIPT: Final = (
    "FunctionCall", "EvaluateScript", "FireAnimationFrame", "TimerFire", "RunMicrotasks",
    "EventDispatch", "v8.run", "V8.GCScavenger", "MinorGC", "MajorGC",
)  # fmt: skip


def in_chromium(
    chromium: str, daemon: Standin, pages: Pages, change: Callable[[Standin, int], None], job: int
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Seconds from each order's answer until the page of `job` shows it; and by page and size the
    milliseconds of script in each frame that had any."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = _come_in(browser, pages, "desktop")
        shown = _until_shown(page, daemon, pages, job)
        page.context.close()
        frames = {}
        for size in SIZES:
            page = _come_in(browser, pages, size)
            for path in LOOKED_AT:
                page.goto(pages.url + path)
                page.wait_for_timeout(1000)
                browser.start_tracing(page=page, categories=["devtools.timeline", "v8", "toplevel"])
                _while_it_changes(page, daemon, change)
                frames[f"{path}, {size}"] = script_by_frame(json.loads(browser.stop_tracing()))
            page.context.close()
        browser.close()
    return shown, frames


def _come_in(browser: Browser, pages: Pages, size: str) -> Page:
    wide, high = SIZES[size]
    context = browser.new_context(viewport={"width": wide, "height": high})
    page = context.new_page()
    page.goto(f"{pages.url}/enter#token={pages.link()}")
    page.wait_for_url(f"{pages.url}/")
    return page


def _until_shown(page: Page, daemon: Standin, pages: Pages, job: int) -> list[float]:
    """Hold and release it by the API."""
    page.goto(f"{pages.url}/jobs/{job}")
    page.wait_for_timeout(2000)
    found = []
    for at in range(ROUNDS):
        verb, button = (("hold", "release"), ("release", "hold"))[at % 2]
        daemon.client.call("POST", f"/v1/jobs/{job}/{verb}")
        begin = time.monotonic()
        page.locator(f"#orders button[value={button}]:visible").wait_for()
        found.append(time.monotonic() - begin)
        page.wait_for_timeout(1500)
    return found


def _while_it_changes(page: Page, daemon: Standin, change: Callable[[Standin, int], None]) -> None:
    """20 changes a second, by another thread."""
    over = threading.Event()

    def changes() -> None:
        at = 0
        while not over.wait(1 / RATE):
            change(daemon, at)
            at += 1

    beside = threading.Thread(target=changes)
    beside.start()
    page.wait_for_timeout(1000 * SECONDS)
    over.set()
    beside.join()


def script_by_frame(trace: dict[str, Any]) -> np.ndarray:
    """Milliseconds of script between each two frames of the page's main thread, where there was
    any: processor time of the outermost events, as the trace tells them."""
    events = [one for one in trace["traceEvents"] if one.get("ph") in ("X", "B", "I", "n", "b")]
    main = {
        (one["pid"], one["tid"])
        for one in trace["traceEvents"]
        if one.get("ph") == "M" and one["args"].get("name") == "CrRendererMain"
    }
    begins: dict[tuple[int, int], list[int]] = {thread: [] for thread in main}
    scripts: dict[tuple[int, int], list[tuple[int, int, int]]] = {thread: [] for thread in main}
    for one in events:
        thread = one["pid"], one["tid"]
        if thread not in main:
            continue
        if one["name"] == "AnimationFrame" and one["ph"] == "b":
            begins[thread].append(one["ts"])
        elif one["name"] in _SCRIPT and one["ph"] == "X":
            took = one.get("dur", 0)
            scripts[thread].append((one["ts"], took, one.get("tdur", took)))
    found = list[float]()
    for thread in main:
        if scripts[thread] and not begins[thread]:
            raise SystemExit("the trace tells no frames: Chromium names them otherwise")
        edges, spent, end = np.sort(begins[thread]), dict[int, int](), 0
        for at, took, ran in sorted(scripts[thread], key=lambda one: (one[0], -one[1])):
            if at < end:  # within one that is counted
                continue
            end = at + took
            frame = int(np.searchsorted(edges, at, side="right"))
            spent[frame] = spent.get(frame, 0) + ran
        found += [microseconds / 1000 for microseconds in spent.values()]
    return np.array(found)
