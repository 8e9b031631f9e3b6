"""The pages in a real browser: figures are the API's, changes arrive, nothing is fetched from
elsewhere, and no script complains."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from ganger.web.links import folder_of, leading_to
from service.machines import Machine
from web.rig import Pages, Standin, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or ""


def _missing() -> str:
    if CHROMIUM:
        return ""
    absent = "NO CHROMIUM HERE: THE PAGES ARE NOT TESTED IN A BROWSER (apt-get install chromium)"
    if os.environ.get("GANGER_REQUIRE_BROWSER"):
        pytest.fail(absent)
    return absent


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    made = Standin(tmp_path_factory.mktemp("web") / "home", jobs=9)
    yield made
    made.end()


@pytest.fixture(scope="module")
def pages(daemon: Standin) -> Iterator[Pages]:
    with served(daemon.home) as made:
        yield made


class Visitor:
    """A browser without anything from before, that came by a link. What its pages complain of, and
    which hosts they asked, is kept. `shows`: by one that only shows."""

    def __init__(self, browser: Browser, pages: Pages, *, shows: bool = False, **kind: Any) -> None:
        self.pages, self.complaints, self.hosts = pages, list[str](), set[str]()
        self.context: BrowserContext = browser.new_context(**kind)
        self.context.on("request", lambda asked: self.hosts.add(urlsplit(asked.url).netloc))
        self.page = self.tab()
        self.page.goto(f"{pages.url}/enter#token={pages.link(read_only=shows)}")
        self.page.wait_for_url(f"{pages.url}/")

    def tab(self) -> Page:
        """Another tab."""
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: self._hear(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def go(self, path: str) -> Page:
        """The first tab, at a path."""
        self.page.goto(self.pages.url + path)
        return self.page


@contextlib.contextmanager
def visiting(
    browser: Browser, pages: Pages, *, shows: bool = False, **kind: Any
) -> Iterator[Visitor]:
    """A visitor; in the end nothing was complained of, and nobody else was asked for anything."""
    visitor = Visitor(browser, pages, shows=shows, **kind)
    try:
        yield visitor
        assert visitor.complaints == []
        assert visitor.hosts == {pages.host}
    finally:
        visitor.context.close()


def facts(page: Page) -> dict[str, str]:
    """The figures at the top of a page, by what they count."""
    script = "all => all.map(one => [...one.children].map(part => part.innerText))"
    pairs = page.locator(".facts div:has(dt)").evaluate_all(script)
    return {name: figure for figure, name in pairs}


def until(page: Page, script: str) -> None:
    """Wait for something to be so in a page (whose policy lets nobody evaluate text there)."""
    end = time.monotonic() + 20.0
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        page.wait_for_timeout(50)


def test_the_cluster_shows_what_the_api_says(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    status = daemon.client.call("GET", "/v1/status")
    gpu_map = daemon.client.call("GET", "/v1/map")
    with visiting(browser, pages) as visitor:
        page = visitor.page
        figures = facts(page)
        assert figures["GPUs held"] == f"{status['gpus'] - status['gpus_free']} of {status['gpus']}"
        assert figures["free"] == str(status["gpus_free"])
        assert figures["waiting"] == str(status["jobs"]["pending"])
        assert page.locator(".map rect").count() == status["gpus"]
        drawn = page.locator("[data-job]").evaluate_all("all => all.map(one => one.dataset.job)")
        held = Counter(
            str(job) for node in gpu_map["nodes"] for job, gpus, _ in node["held"] for _ in gpus
        )
        assert Counter(drawn) == held
        page.get_by_text("As a table").first.click()
        assert page.locator("#holders tbody tr").count() == len(held)
        for way in ("tenant", "use"):
            page.get_by_role("link", name=way, exact=True).click()
            assert page.locator(".map rect").count() == status["gpus"]


def test_orders_are_carried_out_shown_and_taken_back(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    def job(number: int) -> Any:
        return daemon.client.call("GET", f"/v1/jobs/{number}")[0]

    with visiting(browser, pages) as visitor:
        page = visitor.go("/queue")
        assert page.locator("#orders button").first.is_disabled()
        for number in (8, 9):
            page.get_by_label(f"Job {number}", exact=True).check()
        assert page.locator("#chosen").inner_text() == "2 chosen:"
        told = daemon.client.call("POST", "/v1/jobs/8,9/whatif", body={"verb": "hold"})
        page.get_by_role("button", name="Hold").click()
        page.locator(".ahead h2", has_text="Hold 2 jobs?").wait_for()
        said = page.locator(".ahead p").inner_text()
        assert (told["earlier"], told["later"]) == (0, 0)  # they are the last of the queue
        assert said.startswith("No other job starts earlier or later")
        assert job(9)["reason"] != "JobHeldUser"
        page.get_by_role("button", name="Leave it").click()
        assert page.locator(".ahead").count() == 0
        page.get_by_role("button", name="Hold").click()
        page.get_by_role("button", name="Hold 2 jobs").click()
        page.get_by_text("Held 2 jobs.").wait_for()
        page.locator(".ahead").wait_for(state="detached")
        page.get_by_label("see first what it does to others").uncheck()
        assert [job(number)["reason"] for number in (8, 9)] == ["JobHeldUser"] * 2
        until(page, "document.body.innerText.split('held until somebody releases').length === 3")
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("Released 2 jobs.").wait_for()
        assert job(9)["reason"] != "JobHeldUser"
        page.get_by_label("Job 9", exact=True).check()
        page.locator("#orders input[name=priority]").fill("7")
        page.get_by_role("button", name="Set").click()
        page.get_by_text("The priority of job 9 is 7.").wait_for()
        assert job(9)["priority"] == 7
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("The priority of job 9 is 0.").wait_for()
        page.on("dialog", lambda asked: asked.dismiss())
        page.get_by_label("Job 9", exact=True).check()
        page.get_by_role("button", name="Cancel").click()
        assert job(9)["state"] == "PENDING"
        page.locator("#orders input[name=priority]").fill("99999999999")
        page.get_by_role("button", name="Set").click()
        page.locator(".toast.failed, :invalid").first.wait_for()
        assert job(9)["priority"] == 0


def test_an_order_says_first_which_jobs_it_moves_and_starts_are_expected(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    told = daemon.client.call("POST", "/v1/jobs/4/whatif", body={"verb": "cancel"})
    assert told["earlier"] > 0
    with visiting(browser, pages) as visitor:
        page = visitor.go("/queue")
        page.get_by_label("Job 4", exact=True).check()
        page.get_by_role("button", name="Cancel").click()
        page.locator(".ahead h2", has_text="Cancel job 4?").wait_for()
        assert f"{told['earlier']} jobs would start earlier" in page.locator(".ahead").inner_text()
        rows = page.locator(".ahead tbody tr")
        assert rows.count() == len(told["moved"]) + len(told["own"])
        assert "earlier" in rows.last.inner_text()
        page.get_by_role("button", name="Leave it").click()
        page.get_by_text("worked out").wait_for()  # in the background, as the page is open

        def known() -> int:
            query = {"state": "pending", "expect": 1}
            jobs = daemon.client.call("GET", "/v1/jobs", query=query)["jobs"]
            return sum(job["expected_start"] is not None for job in jobs)

        end = time.monotonic() + 20.0
        while not page.locator("#rows .start").count() == known() > 0:
            assert time.monotonic() < end
            page.wait_for_timeout(200)
    assert daemon.client.call("GET", "/v1/jobs/4")[0]["state"] == "PENDING"


def test_nodes_are_drained_and_found(browser: Browser, pages: Pages, daemon: Standin) -> None:
    with visiting(browser, pages) as visitor:
        page = visitor.go("/nodes?find=GPU-0")
        page.get_by_label("gpu-000").check()
        page.get_by_role("button", name="Drain").click()
        page.get_by_text("Nothing new starts on gpu-000.").wait_for()
        page.locator(".state.drained").wait_for()
        assert daemon.client.call("GET", "/v1/nodes")[0]["state"] == "drained"
        page.get_by_role("button", name="Undo").click()
        page.locator(".state.up").wait_for()
        page.get_by_role("searchbox").fill("nowhere")
        page.get_by_role("button", name="Show").click()
        page.get_by_text("No node is like that.").wait_for()


def test_tenants_and_what_they_used(browser: Browser, pages: Pages, daemon: Standin) -> None:
    shares = daemon.client.call("GET", "/v1/fairshare")
    with visiting(browser, pages) as visitor:
        page = visitor.go("/tenants")
        names = page.locator("#rows tbody th").evaluate_all("all => all.map(one => one.innerText)")
        assert sorted(names) == sorted(share["tenant"] for share in shares)
        held = page.locator("#rows [data-label='GPUs now']")
        assert sum(map(int, held.all_inner_texts())) == sum(share["gpus"] for share in shares)
        page.locator("#usage tbody tr").first.wait_for()
        assert page.locator("#usage .drawn polyline").count() == len(
            [s for s in shares if s["gpus"]]
        )
        page.locator("#trend-table summary").click()
        last = page.locator("#trend-table tbody tr").first
        end = datetime.fromisoformat(
            str(last.locator("time").get_attribute("datetime"))
        ).timestamp()
        part = {"since": end // 14400 * 14400, "until": end}
        used = {one["tenant"]: one for one in daemon.client.call("GET", "/v1/usage", query=part)}
        tenants = page.locator("#trend-table thead th").all_inner_texts()[1:]
        for name, cell in zip(tenants, last.locator("td").all_inner_texts(), strict=True):
            mean = used[name]["gpu_hours"] * 3600 / (end - part["since"])
            assert float(cell) == pytest.approx(mean, rel=0.2, abs=0.001)
        page.get_by_label("In the last").select_option("all")
        page.locator("#usage [data-label=useful]", has_text=".").first.wait_for()


def test_twelve_tabs_share_one_stream_and_all_see_a_change(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    """Over HTTP/1.1 a browser has six connections to a host."""
    with visiting(browser, pages) as visitor:
        tabs = [visitor.page, *(visitor.tab() for _ in range(11))]
        for tab in tabs:
            tab.goto(f"{pages.url}/queue")
        last = tabs[-1]
        last.bring_to_front()
        last.locator("#rows tbody tr").nth(8).wait_for()
        begin = time.monotonic()
        daemon.client.call("POST", "/v1/jobs/9/hold")
        last.get_by_text("it is held until somebody releases it").wait_for()
        assert time.monotonic() - begin < 5.0  # below 1 s where nothing else runs
        tabs[5].bring_to_front()
        tabs[5].get_by_text("it is held until somebody releases it").wait_for()
        daemon.client.call("POST", "/v1/jobs/9/release")


def test_a_file_leads_a_browser_to_the_link(browser: Browser, pages: Pages) -> None:
    page = browser.new_context().new_page()
    page.goto(leading_to(f"{pages.url}/enter#token={pages.link()}", folder_of(pages.home)))
    page.wait_for_url(f"{pages.url}/")
    page.context.close()


def test_a_used_link_says_so_and_a_session_ends(browser: Browser, pages: Pages) -> None:
    with visiting(browser, pages) as visitor:
        page = visitor.go("/sessions")
        assert page.get_by_text("this one").count() == 1
        assert page.evaluate("document.cookie") == ""
        page.locator("tr", has_text="this one").get_by_role("button", name="Sign out").click()
        page.get_by_text("Come in with a link").wait_for()
        token = pages.link()
        assert pages.enter(token).status == 204
        page.goto(f"{pages.url}/enter#token={token}")
        page.get_by_text("used already").wait_for()
        assert "token" not in page.url
        assert any("403" in line for line in visitor.complaints)
        visitor.complaints.clear()  # a browser writes what was refused into its console


def test_a_page_of_another_site_leads_to_the_page_and_cannot_frame_it(
    browser: Browser, pages: Pages, tmp_path: Path
) -> None:
    with visiting(browser, pages) as visitor:
        page = visitor.tab()
        page.route(
            "http://evil.example/**",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f'<a id="to" href="{pages.url}/queue">x</a>'
                f'<iframe src="{pages.url}/queue"></iframe>'
                f'<form id="post" method="post" action="{pages.url}/queue/orders">'
                '<input name="verb" value="cancel"><input name="job" value="9"></form>',
            ),
        )
        page.goto("http://evil.example/")
        page.wait_for_timeout(300)
        framed = [frame for frame in page.frames if frame != page.main_frame]
        assert all("resnet50" not in frame.content() for frame in framed)
        page.locator("#to").click()
        page.locator("#rows tbody tr").first.wait_for()  # the cookie comes with the second request
        page.goto("http://evil.example/")
        with page.expect_navigation() as sent:
            page.evaluate("document.getElementById('post').submit()")
        assert sent.value is not None
        assert sent.value.status in (401, 403)
        visitor.complaints.clear()
        visitor.hosts.discard("evil.example")


def test_a_phone_shows_pages_without_scrolling_sideways(browser: Browser, pages: Pages) -> None:
    size = {"width": 390, "height": 844}
    with visiting(browser, pages, viewport=size, color_scheme="dark") as visitor:
        for path in (
            "/",
            "/queue",
            "/jobs/1",
            "/nodes",
            "/tenants",
            "/services",
            "/experiments",
            "/recipes",
            "/whatif",
            "/sessions",
        ):
            page = visitor.go(path)
            page.wait_for_timeout(100)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, path
            assert page.locator("h1").count() == 1, path
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_label("Switch between light and dark").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A daemon that runs real jobs."""
    made = Machine(tmp_path_factory.mktemp("web") / "home", gpus="2")
    made.up()
    yield made
    made.end()


def test_a_job_from_its_begin_to_its_end_over_a_killed_daemon(
    browser: Browser, machine: Machine
) -> None:
    code = "import time\nfor i in range(9000): print('line', i, 'Epoch' if i == 4321 else '')\n"
    code += "print('<b>ready</b>', flush=True)\ntime.sleep(60)"
    body = {"command": [sys.executable, "-c", code], "name": "story", "gpus": 1}
    job = machine.client.call("POST", "/v1/jobs", body=body)["job"]
    with served(machine.root) as pages, visiting(browser, pages) as visitor:
        page = visitor.go(f"/jobs/{job}")
        page.locator(".state.running").wait_for()
        page.locator("#log").get_by_text("<b>ready</b>").wait_for()
        assert "line 8999" in page.locator("#log").inner_text()
        page.get_by_role("button", name="Earlier").click()
        until(page, "document.getElementById('log').innerText.includes('line 8500')")
        page.locator("input[name=find]").fill("epoch")
        page.get_by_role("button", name="Show", exact=True).click()
        page.get_by_text("1 line with").wait_for()
        assert "line 4321 Epoch" in page.locator(".found").inner_text()
        with page.expect_download() as kept:
            page.get_by_role("link", name="Save as a file").click()
        assert "line 4321 Epoch" in Path(kept.value.path()).read_text()
        machine.kill()
        page.get_by_text("The daemon does not answer").wait_for()
        tenants = visitor.tab()
        tenants.goto(f"{pages.url}/tenants")
        tenants.locator("#usage .failed").wait_for()
        without = visitor.tab(), visitor.tab()
        for tab, path in zip(without, ("/queue", f"/jobs/{job}"), strict=True):
            tab.goto(pages.url + path)
            tab.locator("main").get_by_text("does not answer").first.wait_for()
            assert tab.get_by_text("story").count() == 0
        machine.up()
        page.locator("#lost").wait_for(state="hidden")
        for tab in without:  # what was opened without a daemon fills in
            tab.bring_to_front()
            tab.get_by_text("story").first.wait_for()
        tenants.bring_to_front()
        tenants.locator("#usage [data-label='GPU-hours']").first.wait_for()
        page.bring_to_front()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name=f"Cancel job {job}").click()
        page.locator(".state.cancelled").wait_for()
        assert machine.client.call("GET", f"/v1/jobs/{job}")[0]["state"] == "CANCELLED"
        assert page.locator(".life rect").count() >= 1
        assert not page.get_by_label("see first what it does to others").is_visible()
        over = visitor.go(f"/jobs/{job}")
        assert over.get_by_role("button", name="Submit again").is_visible()
        assert not over.get_by_label("see first what it does to others").is_visible()
        visitor.complaints[:] = [line for line in visitor.complaints if "503" not in line]


def test_a_job_has_the_orders_of_its_state_and_a_node_its_size(
    browser: Browser, machine: Machine
) -> None:
    """A node of two GPUs is drawn with two; what a held job can be told is to be released."""
    body = {"command": ["sleep", "300"], "gpus": 2}
    first = machine.client.call("POST", "/v1/jobs", body=body)["job"]
    second = machine.client.call("POST", "/v1/jobs", body=body)["job"]
    with served(machine.root) as pages, visiting(browser, pages) as visitor:
        page = visitor.go(f"/jobs/{first}")
        page.locator(".state.running").wait_for()
        until(page, "document.querySelectorAll('#now .map rect').length === 2")

        def shown() -> list[str]:
            return [one.inner_text() for one in page.locator("#orders button:visible").all()]

        assert shown() == ["Suspend", "Requeue", "Cancel", "Set"]
        page = visitor.go(f"/jobs/{second}")
        assert shown() == ["Hold", "Cancel", "Set"]
        page.get_by_label("see first what it does to others").uncheck()
        page.get_by_role("button", name="Hold").click()
        page.get_by_role("button", name="Release").wait_for()
        assert shown() == ["Release", "Cancel", "Set"]
        assert visitor.go("/jobs/999").get_by_text("The queue has all jobs").count() == 1
        visitor.complaints[:] = [line for line in visitor.complaints if "404" not in line]
    machine.client.call("POST", f"/v1/jobs/{first},{second}/cancel")
