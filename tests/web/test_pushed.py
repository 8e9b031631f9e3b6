"""Parts of pages come over the stream of changes: the same that a request gets, once for each
change, and only to whom they may be shown."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ganger.web import live
from ganger.web.pushed import SEEN_MAX, deflated, seen_of
from web import test_browser
from web.rig import Pages, Standin, Stream, served
from web.test_browser import browser, daemon, pages, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser", "daemon", "pages"]

WAITING = "/queue/rows?find=&state=pending&sort=&page=0"


def test_what_comes_over_the_stream_is_what_a_request_gets(pages: Pages, daemon: Standin) -> None:
    cookie, tenants = pages.cookie(), "/tenants/rows"
    with Stream(pages, cookie, WAITING, tenants) as stream:
        first = stream.state()
        assert set(first) == {WAITING, tenants}
        assert first[tenants] == pages.ask("GET", tenants, cookie).text
        daemon.client.call("PATCH", "/v1/jobs/9", body={"priority": 4711})
        came = stream.until(WAITING, "4711")
        assert set(came) == {WAITING}  # tenants look as they did
        daemon.client.call("PATCH", "/v1/jobs/9", body={"priority": 0})


def test_a_list_in_which_nothing_happens_is_no_news(pages: Pages, daemon: Standin) -> None:
    """Though its jobs run on: a change of another job comes without it."""
    running = "/queue/rows?find=&state=running&sort=&page=0"
    with Stream(pages, pages.cookie(), WAITING, running) as stream:
        assert "data-since" in stream.state()[running]
        came = list[str]()
        for priority in ("4714", "4715", "0"):
            time.sleep(1.1)  # which lists told in another number of seconds before
            daemon.client.call("PATCH", "/v1/jobs/9", body={"priority": int(priority)})
            came += stream.until(WAITING, f">{priority}</td>")
        assert running not in came


def test_streams_are_sent_the_same_bytes_in_any_order() -> None:
    parts = [b"one" * 100, b"two" * 100, b"three" * 100]
    for order in ((0, 1, 2), (2, 0, 1), (1, 1, 2)):
        sent = b"".join(deflated(parts[at]) for at in order)
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        assert inflate.decompress(sent) == b"".join(parts[at] for at in order)


def test_a_large_part_that_changes_all_the_time_is_not_sent_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a second's bytes each: the first comes at once, the next when that is paid."""
    monkeypatch.setattr(live, "BYTES_A_SECOND", 100_000)
    monkeypatch.setattr(live, "AHEAD_SECONDS", 0.5)

    async def news(tick: int) -> AsyncIterator[bytes]:
        yield b"x" * 50_000

    async def story() -> list[float]:
        none: Any = None
        made = live.Live(none)
        made.up = True
        stream, came = made.stream(news), list[float]()
        for _ in range(3):
            await anext(stream)
            came.append(time.monotonic())
            made.bump()
        return came

    first, second, third = asyncio.run(story())
    assert second - first < 0.45 <= third - second


def test_a_browser_that_reads_nothing_compressed_is_told_of_changes_alone(pages: Pages) -> None:
    with Stream(pages, pages.cookie(), WAITING, **{"Accept-Encoding": "identity"}) as stream:
        assert stream.head.headers["Content-Encoding"] is None
        assert stream.state() == {}


@pytest.mark.parametrize("other", [
    "/jobs/1/log", "/jobs/1/log/file", "/jobs/1", "/sessions", "/whatif", "/events",
    "/jobs/../queue/rows", "/jobs/1%2Fcancel/now", "//queue/rows", "/queue/rows/", "/é/rows",
    "http://evil.example/queue/rows", "/queue/rows?find=" + "x" * 1000,
])  # fmt: skip
def test_nothing_but_parts_comes_over_the_stream(other: str) -> None:
    assert seen_of([other, "/queue/rows?find=x"], "") == ["/queue/rows?find=x"]
    assert seen_of(["/p/queue/rows", "/queue/rows"], "/p") == ["/p/queue/rows", "/queue/rows"]
    many = [f"/queue/rows?page={at}" for at in range(99)]
    assert seen_of(many, "") == many[:SEEN_MAX]
    assert seen_of(["/nodes/rows"] * 9, "") == ["/nodes/rows"]


@pytest.mark.skipif(bool(test_browser._missing()), reason=test_browser._missing())
def test_a_page_asks_for_nothing_while_it_is_open(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    with visiting(browser, pages) as visitor:
        page = visitor.go("/queue?state=pending")
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        for priority in (4712, 4713, 0):
            daemon.client.call("PATCH", "/v1/jobs/9", body={"priority": priority})
            row = page.locator("tr", has=page.get_by_label("Job 9", exact=True))
            row.locator("[data-label=priority]").get_by_text(str(priority), exact=True).wait_for()
        assert [url for url in asked if "/queue" in url] == []


def test_a_part_without_an_answer_leaves_the_stream_as_it_is(tmp_path: Path) -> None:
    """Job 99 is none, and a daemon that is away is told of as before."""
    own = Standin(tmp_path / "home", jobs=1)
    try:
        with served(own.home) as made, Stream(made, made.cookie(), "/jobs/99/now") as stream:
            assert stream.state() == {}
            own.process.kill()
            assert any(kind == "tick" and not said["up"] for kind, said in stream)
    finally:
        own.process.wait()
        own.client.close()
