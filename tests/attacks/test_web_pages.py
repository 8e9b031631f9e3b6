"""Attacks on the pages: other sites, other names, links that were used, words that are scripts."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from ganger.client.connection import Client
from ganger.web.connections import CONNECTIONS_MAX
from ganger.web.door import TRACE_BYTES_MAX
from ganger.web.links import folder_of
from ganger.web.live import STREAMS_MAX, STREAMS_OF_ONE, Live
from ganger.web.sessions import LINK_SECONDS, Sessions, is_own, masked
from waiting import until
from web.rig import FORM, Pages, Standin, Stream, raw, served

CHANGES = ("/queue/orders", "/queue/ahead", "/nodes/orders", "/jobs/1/again", "/whatif",
           "/whatif/1/end", "/lab", "/lab/1/end", "/lessons/queue",
           "/lessons/queue/1/end", "/sessions/end")  # fmt: skip
"""All that a page posts."""
QUEUE = "/ganger/queue/rows"
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    daemon = Standin(tmp_path_factory.mktemp("web") / "home", jobs=9)
    with served(daemon.home, hosts=["https://gpu.example.org"], prefix="/ganger") as made:
        yield made
    daemon.end()


@pytest.fixture(scope="module")
def cookie(pages: Pages) -> dict[str, str]:
    return pages.cookie()


def priority(pages: Pages) -> int:
    """That of job 9, as a page shows it."""
    with Client(pages.home) as client:
        found: int = client.call("GET", "/v1/jobs/9")[0]["priority"]
    return found


def order(pages: Pages, csrf: str, cookie: dict[str, str], value: int, **headers: str) -> int:
    form = {"csrf": csrf, "verb": "priority", "job": "9", "priority": str(value)}
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return pages.ask("POST", "/queue/orders", {**cookie, **named}, form).status


def test_a_link_is_valid_once(pages: Pages) -> None:
    token = pages.link()
    assert pages.enter(token).status == 204
    assert pages.enter(token).status == 403
    for wrong in ("", "x", token[:-1], "A" * 43):
        assert pages.enter(wrong).status == 403, wrong


def test_a_used_link_gives_nothing_to_who_is_in(pages: Pages) -> None:
    """Who may do all goes on as he is; who only sees is told."""
    token = pages.link()
    assert pages.enter(token).status == 204
    again = pages.enter(token, **pages.cookie())
    assert again.status == 204
    assert "set-cookie" not in again.headers
    again = pages.enter(token, **pages.cookie(read_only=True))
    assert again.status == 403
    assert "set-cookie" not in again.headers


def test_a_link_is_valid_for_a_minute() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0], lambda: 0.0)
    early, late = sessions.link(), sessions.link()
    now[0] = LINK_SECONDS - 0.001
    assert sessions.redeem(early, "a browser") is not None
    now[0] = LINK_SECONDS
    assert sessions.redeem(late, "a browser") is None


def test_no_page_and_no_stream_without_a_session(pages: Pages) -> None:
    for path in (
        "/",
        "/queue",
        "/jobs/1",
        "/nodes",
        "/sessions",
        "/events",
        "/cluster/map",
        "/services",
        "/experiments",
        "/recipes",
        "/recipes/fifo/schedule.svg",
        "/whatif",
        "/whatif/1",
        "/jobs/1/children",
    ):
        for sent in ({}, {"Cookie": "ganger=x"}, {"Cookie": f"{'x=' * 9000}"}):
            answer = pages.ask("GET", path, {**sent, "Accept": "*/*"})
            assert answer.status in (401, 431, 400), path
            assert "resnet50" not in answer.text
    assert pages.ask("GET", "/").status == 401
    for path in CHANGES:
        answer = pages.ask("POST", path, form={"verb": "cancel", "job": "1", "recipe": "las"})
        assert answer.status == 401, path


def test_a_post_of_another_site_changes_nothing(pages: Pages, cookie: dict[str, str]) -> None:
    csrf = pages.csrf(cookie)
    other = {"Origin": "https://evil.example"}
    assert order(pages, csrf, cookie, 5, **other) == 403
    assert order(pages, csrf, cookie, 5, Origin="null") == 403
    assert order(pages, csrf, cookie, 5, Origin="http://evil.localhost:1") == 403
    assert order(pages, csrf, cookie, 5, Sec_Fetch_Site="cross-site") == 403
    assert order(pages, csrf, cookie, 5, Sec_Fetch_Site="same-site") == 403
    for wrong in ("", "x", csrf[:-4], csrf[::-1], pages.csrf(pages.cookie())):
        assert order(pages, wrong, cookie, 5) == 403, wrong
    for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        assert order(pages, csrf, cookie, 5, Content_Type=kind) == 413, kind
    assert priority(pages) == 0
    own = {"Origin": f"http://{pages.host}", "Sec_Fetch_Site": "same-origin"}
    assert order(pages, csrf, cookie, 1, **own) == 303
    assert priority(pages) == 1
    assert order(pages, csrf, cookie, 0, **own) == 303


def test_the_token_of_forms_is_written_differently_each_time(
    pages: Pages, cookie: dict[str, str]
) -> None:
    written = {pages.csrf(cookie) for _ in range(5)}
    assert len(written) == 5
    sessions = Sessions(lambda: 0.0, lambda: 0.0)
    found = [sessions.of(sessions.redeem(sessions.link(), "") or "") for _ in range(2)]
    one, two = found
    assert one is not None
    assert two is not None
    assert is_own(one, masked(one))
    assert not is_own(two, masked(one))
    assert not is_own(one, "é" * 88)


def test_no_new_form_goes_without_its_token(pages: Pages, cookie: dict[str, str]) -> None:
    other = pages.csrf(pages.cookie())
    for path in CHANGES:
        for csrf in ("", "x", other):
            form = {"csrf": csrf, "verb": "cancel", "job": "9", "recipe": "las"}
            assert pages.ask("POST", path, cookie, form).status == 403, path
        form["csrf"] = pages.csrf(cookie)
        cross = {**cookie, "Origin": "https://evil.example"}
        assert pages.ask("POST", path, cross, form).status == 403, path


def test_a_comparison_reads_no_file_and_runs_no_code(
    pages: Pages, cookie: dict[str, str], tmp_path: Path
) -> None:
    """A recipe is a registered name: the command line would take FILE.py:Class."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nclass Trap: pass\n")
    csrf = pages.csrf(cookie)
    for recipe in (f"{trap}:Trap", "trap.py:Trap", "../x", "las(x=../../y)", "a" * 999, "<b>"):
        form = {"csrf": csrf, "of": "queue", "recipe": recipe}
        assert pages.ask("POST", "/whatif", cookie, form).status == 400, recipe
    for more in ({"nodes": "1e9"}, {"nodes": "-5000"}, {"days": "99999", "of": "past"}, {}):
        form = {"csrf": csrf, "kind": "A100", **more}
        assert pages.ask("POST", "/whatif", cookie, form).status == 400, more
    for number in ("0", "99", "1.5", "٣", "-1", "x", "9" * 5000):
        for place in ("whatif", "lab", "lessons/gavel"):
            path = f"/{place}/{quote(number)}"
            assert pages.ask("GET", path, cookie).status == 404, path
    assert not (tmp_path / "sprung").exists()


def test_a_trace_of_a_browser_is_text_with_bounds_and_names_no_file(
    pages: Pages, cookie: dict[str, str], tmp_path: Path
) -> None:
    """What is sent is the text of a file, never where one lies; an address holds neither."""
    secret = tmp_path / "jobs.csv"
    secret.write_text("submitted,duration,gpus\n0,77,1\n")
    form = {"kind": "file", "jobs": "5", "seed": "0", "cluster": "1x2xV100", "recipes": "fifo"}
    form["csrf"] = pages.csrf(cookie, "/lab")
    for name in (str(secret), "../jobs.csv", "", "a\nb"):
        sent = {**form, "name": name, "text": "0,1"}
        assert pages.ask("POST", "/lab", cookie, sent).status == 400, name
    sent = {**form, "name": "jobs.csv", "text": str(secret)}
    path = pages.ask("POST", "/lab", cookie, sent).headers["location"]
    while "<progress" in (text := pages.ask("GET", f"{path}/now", cookie).text):
        time.sleep(0.05)
    assert "no known format begins with" in text
    for large, status in (("x" * (TRACE_BYTES_MAX + 1), 400), ("é" * TRACE_BYTES_MAX, 413)):
        sent = {**form, "name": "jobs.csv", "text": large}
        assert pages.ask("POST", "/lab", cookie, sent).status == status
    query = urlencode({**form, "name": "jobs.csv", "text": "submitted,duration,gpus"})
    shown = pages.ask("GET", f"/lab?{query}", cookie).text
    assert "submitted" not in shown
    assert "jobs.csv" not in shown


def test_a_get_changes_nothing(pages: Pages, cookie: dict[str, str]) -> None:
    csrf = pages.csrf(cookie)
    query = f"?csrf={csrf}&verb=priority&job=9&priority=7"
    for path in CHANGES:
        wanted = (
            200 if path in ("/whatif", "/lab", "/lessons/queue") else 405
        )  # which has a page, too
        assert pages.ask("GET", path + query, cookie).status == wanted, path
    with Client(pages.home) as client:
        assert client.call("GET", "/v1/jobs", query={"state": "all"})["total"] == 9
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        assert pages.ask(method, "/queue/orders", cookie).status == 405
    assert priority(pages) == 0


def test_a_foreign_host_gets_nothing(pages: Pages, cookie: dict[str, str]) -> None:
    foreign = ("evil.example", "evil.localhost", f"x{pages.host}", "127.0.0.1.evil.example", "[::1",
               "gpu.example.org.evil.example", "0.0.0.0", "ganger.localhost")  # fmt: skip
    for host in foreign:
        answer = pages.ask("GET", "/queue", cookie, host=host)
        assert (answer.status, "resnet50" in answer.text) == (421, False), host
    port = pages.port
    for host in (pages.host, f"127.0.0.1:{port}", "localhost:1", "[::1]:9", "GPU.example.org"):
        assert pages.ask("GET", "/queue", cookie, host=host).status == 200, host
    line = f"Cookie: {cookie['Cookie']}\r\n"
    two = f"GET /queue HTTP/1.1\r\nHost: {pages.host}\r\nHost: evil.example\r\n{line}\r\n"
    none = f"GET /queue HTTP/1.0\r\n{line}\r\n"
    for request in (two, none):
        assert raw(port, request.encode()).split()[1] in (b"400", b"421")


def test_no_page_is_framed_or_loads_anything_from_elsewhere(
    pages: Pages, cookie: dict[str, str]
) -> None:
    paths = (
        "/",
        "/queue",
        "/jobs/1",
        "/nodes",
        "/sessions",
        "/enter",
        "/nowhere",
        "/static/app.js",
    )
    for path in (*paths, "/static/app.js"):
        answer = pages.ask("GET", path, cookie)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        if path != "/static/app.js":
            assert re.findall(r"<style|style=|\son\w+=|javascript:|https?://", answer.text) == []
            assert answer.headers["cache-control"] == "no-store"


def test_the_cookie_is_kept_from_scripts_and_other_sites(pages: Pages) -> None:
    told = pages.enter(pages.link()).headers["set-cookie"]
    assert "HttpOnly" in told
    assert "SameSite=Strict" in told
    assert "Path=/ganger/" in told
    assert "Domain" not in told
    assert "Secure" not in told
    answer = pages.ask("POST", "/enter", form={"token": pages.link()}, host="gpu.example.org")
    assert "Secure" in answer.headers["set-cookie"]


def test_every_home_has_a_name_of_its_own(pages: Pages, tmp_path: Path) -> None:
    """Cookies ignore ports: under 127.0.0.1 every local service would be sent them."""
    with served(tmp_path) as other:
        assert pages.host.partition(":")[0] != other.host.partition(":")[0]
        cookie = pages.cookie()
        assert cookie["Cookie"].partition("=")[0] != other.cookie()["Cookie"].partition("=")[0]
        assert other.ask("GET", "/sessions", cookie).status == 401
        assert pages.ask("GET", "/", host=other.host).status == 421


def test_a_link_that_only_shows_changes_nothing_and_shows_no_commands(pages: Pages) -> None:
    cookie = pages.cookie(read_only=True)
    assert "resnet50" in pages.ask("GET", "/queue", cookie).text
    assert pages.ask("GET", "/cluster/map", cookie).status == 200
    for path in (
        "/jobs/1",
        "/jobs/1/now",
        "/jobs/1/log",
        "/jobs/1/log/file",
        "/sessions",
        "/jobs/1/children",
        "/jobs/1/windows",
        "/whatif",
        "/whatif/1",
        "/lab",
        "/lab/1",
        "/lab/1/decisions.json",
        "/lessons",
        "/lessons/queue",
        "/lessons/queue/1",
        "/lessons/queue/1/now",
        "/lessons/queue/1/tables.csv",
    ):
        assert pages.ask("GET", path, cookie).status == 403, path
    assert order(pages, pages.csrf(cookie, "/nodes"), cookie, 5) == 403
    assert priority(pages) == 0


def test_signing_out_ends_the_session(pages: Pages) -> None:
    cookie = pages.cookie()
    csrf = pages.csrf(cookie)
    assert pages.ask("POST", "/sessions/end", cookie, {"csrf": csrf, "name": ""}).status == 303
    assert pages.ask("GET", "/queue", cookie).status == 401


def test_signing_out_ends_the_stream(pages: Pages) -> None:
    """Which would go on to tell what the queue looks like."""
    cookie = pages.cookie()
    with Stream(pages, cookie, QUEUE) as stream, Client(pages.home) as client:
        assert set(stream.state()) == {QUEUE}
        form = {"csrf": pages.csrf(cookie), "name": ""}
        assert pages.ask("POST", "/sessions/end", cookie, form).status == 303
        client.call("PATCH", "/v1/jobs/9", body={"priority": 4711})
        assert [said for kind, said in stream if kind == "part"] == []  # and it ends
        client.call("PATCH", "/v1/jobs/9", body={"priority": 0})


def test_a_link_that_only_shows_is_sent_no_job(pages: Pages) -> None:
    """Though somebody else is sent it."""
    now = "/ganger/jobs/9/now"
    both, ours = pages.cookie(read_only=True), pages.cookie()
    with Stream(pages, ours, now, QUEUE) as known, Stream(pages, both, now, QUEUE) as strange:
        assert set(known.state()) == {now, QUEUE}
        assert set(strange.state()) == {QUEUE}


def test_a_browser_that_does_not_read_is_kept_one_message() -> None:
    """The next part is made when it has read this one, as it is then."""
    made = list[int]()

    async def news(tick: int) -> AsyncIterator[bytes]:
        for at in range(8):
            made.append(at)
            yield b"x" * 100_000

    async def story() -> None:
        none: Any = None
        live = Live(none)
        live.up = True
        stream = live.stream(news)
        for at in range(8):
            await anext(stream)
            assert made == [*range(at + 1)]

    asyncio.run(story())


def test_names_that_are_scripts_stay_words(pages: Pages, cookie: dict[str, str]) -> None:
    body = {"command": ["echo", EVIL], "name": EVIL, "tenant": EVIL, "cwd": f"/{EVIL}", "gpus": 1}
    with Client(pages.home) as client:
        job = client.call("POST", "/v1/jobs", body=body)["job"]
    kinds = {"kind": "serve", "params": {}}
    with Client(pages.home) as client:
        client.call("POST", "/v1/jobs", body={**body, **kinds})
    csrf = pages.csrf(cookie)
    ahead = [("csrf", csrf), ("verb", "cancel"), *(("job", str(at)) for at in range(1, 10))]
    text = pages.ask("POST", "/queue/ahead", cookie, ahead).text
    assert "&lt;script" in text
    assert "<script" not in text
    for path in (
        "/services",
        "/experiments",
        "/recipes?find=%3Cscript%3E",
        "/recipes?improves=%3Cscript%3E",
        "/recipes/%3Cscript%3Ealert",
        "/",
        "/?by=tenant",
        "/queue?find=script",
        f"/jobs/{job}",
        f"/jobs/{job}/why",
        f"/queue?find={EVIL.replace(' ', '%20')}",
        f"/nodes?find={EVIL.replace(' ', '+')}",
        f"/jobs/{job}/log?find=%3Cscript%3E",
        "/jobs/%3Cscript%3E",
        "/?by=%3Cscript%3E",
        "/queue?sort=%3Cscript%3E",
        f"/jobs/{job}/log?node=%3Cimg%3E",
    ):
        text = pages.ask("GET", path, cookie).text
        assert "<script>alert" not in text, path
        assert "<img" not in text, path
        assert text.count("<script") == text.count("<script src="), path


def test_a_path_names_a_job_and_nothing_else_of_the_api(
    pages: Pages, cookie: dict[str, str]
) -> None:
    for path in (
        "/jobs/1%2Fcancel",
        "/jobs/..%2Fstatus",
        "/jobs/1%3Fexpect=1",
        "/jobs/1%23",
        "/static/..%2Fapp.py",
        "/static/../app.py",
        "/static/vendor/../../app.py",
    ):
        assert pages.ask("GET", path, cookie).status in (400, 404), path
    csrf = pages.csrf(cookie)
    for job in ("1/cancel", "1?x", "../status", "1,2", "9 ", "٣"):
        form = {"csrf": csrf, "verb": "hold", "job": job}
        assert pages.ask("POST", "/queue/orders", cookie, form).status == 400, job


def test_large_and_slow_requests_take_no_memory(pages: Pages, cookie: dict[str, str]) -> None:
    form = [("csrf", pages.csrf(cookie)), ("verb", "hold"), ("job", "1" * 70_000)]
    assert pages.ask("POST", "/queue/orders", cookie, form).status == 413
    many = [("csrf", pages.csrf(cookie)), *[("j", "1")] * 2000]
    assert pages.ask("POST", "/queue/orders", cookie, many).status == 413
    with pytest.raises((http.client.HTTPException, ConnectionError, AssertionError)):
        assert pages.ask("GET", "/queue", {"X": "x" * 100_000}).status < 400
    assert pages.ask("GET", "/queue", cookie).status == 200


def test_jobs_start_while_pages_are_flooded_and_after_they_are_killed(tmp_path: Path) -> None:
    """The daemon hears four of their questions at once, whatever they are asked."""
    daemon = Standin(tmp_path / "home", nodes=4)

    def starts() -> None:
        asked = {"command": ["true"], "gpus": 1}
        job = daemon.client.call("POST", "/v1/jobs", body=asked)["job"]
        until(lambda: daemon.client.call("GET", f"/v1/jobs/{job}")[0]["state"] == "RUNNING")

    with served(daemon.home) as pages:
        cookie, over = pages.cookie(), threading.Event()

        def flood(which: int) -> int:
            at = 0
            while not over.is_set():
                at += 1
                answer = pages.ask("GET", f"/queue/rows?find={which}-{at}", cookie)
                assert answer.status == 200, answer.text
            return at

        with ThreadPoolExecutor(16) as threads:
            floods = [threads.submit(flood, which) for which in range(16)]
            for _ in range(5):
                starts()
            over.set()
        assert sum(each.result() for each in floods) >= 16
        pages.process.kill()
        pages.process.wait()
        starts()
    daemon.end()


def test_strangers_who_keep_connections_shut_nobody_out(
    pages: Pages, cookie: dict[str, str]
) -> None:
    with contextlib.ExitStack() as strange:
        for _ in range(CONNECTIONS_MAX + 50):
            sock = strange.enter_context(socket.create_connection(("127.0.0.1", pages.port)))
            sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert pages.ask("GET", "/queue", cookie).status == 200
    assert pages.ask("GET", "/queue", cookie).status == 200


def test_one_session_takes_no_stream_and_no_connection_of_another(pages: Pages) -> None:
    """As a link for the wall could, which many may know."""
    wall, own = pages.cookie(read_only=True), pages.cookie()
    with contextlib.ExitStack() as kept:
        streams = 0
        while kept.enter_context(Stream(pages, wall)).head.status == 200:
            streams += 1
        assert streams == STREAMS_OF_ONE < STREAMS_MAX / 4
        assert kept.enter_context(Stream(pages, own)).head.status == 200
        head = (
            f"GET /favicon.ico HTTP/1.1\r\nHost: {pages.host}\r\nCookie: {wall['Cookie']}\r\n\r\n"
        )
        for _ in range(CONNECTIONS_MAX + 5):
            sock = kept.enter_context(socket.create_connection(("127.0.0.1", pages.port)))
            sock.sendall(head.encode())
            sock.recv(1)
        assert pages.ask("GET", "/queue", own).status == 200


def test_strangers_do_not_fill_the_log(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as file, served(tmp_path / "home", file) as pages:
        head = f"POST /enter HTTP/1.1\r\nHost: {pages.host}\r\nContent-Type: {FORM}\r\n"
        for _ in range(3):
            assert raw(pages.port, b"no request\r\n\r\n").startswith(b"HTTP/1.1 400")
            with socket.create_connection(("127.0.0.1", pages.port)) as sock:
                sock.sendall(f"{head}Content-Length: 9\r\n\r\ntok".encode())
        assert pages.ask("GET", "/queue").status == 401
    assert said.read_bytes() == b""


def test_nobody_else_asks_for_a_link(pages: Pages) -> None:
    folder = folder_of(pages.home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("links.sock", "name", "lock"):
        found = (folder / name).stat()
        assert stat.S_IMODE(found.st_mode) & 0o077 == 0, name
        assert found.st_uid == os.geteuid()
