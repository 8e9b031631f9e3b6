"""How somebody looks at the pages: from another zone, by keys alone, on paper, and at a list that
changes while lines of it are ticked."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from web.rig import Pages, Standin
from web.test_browser import browser, daemon, pages, pytestmark, until, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

__all__ = ["browser", "daemon", "pages", "pytestmark"]


def test_times_are_of_the_zone_of_who_looks(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    """Kathmandu is 5:45 ahead of UTC."""
    job = daemon.client.call("GET", "/v1/jobs/1")[0]
    there = datetime.fromtimestamp(job["submitted"], UTC) + timedelta(hours=5, minutes=45)
    with visiting(browser, pages, timezone_id="Asia/Kathmandu", locale="en-GB") as visitor:
        page = visitor.go("/queue")
        cell = page.locator("tr", has=page.get_by_label("Job 1", exact=True)).locator("time").first
        assert cell.inner_text().endswith(f"{there:%H:%M}")
        assert f"{there:%A}" in (cell.get_attribute("title") or "")


def test_an_order_is_given_by_keys_alone(browser: Browser, pages: Pages, daemon: Standin) -> None:
    """From one to the next with Tab: past the menu, to a job, to what can be done with it."""
    with visiting(browser, pages) as visitor:
        page = visitor.go("/queue")

        def to(script: str) -> None:
            for _ in range(60):
                if page.evaluate(f"document.activeElement.matches({script!r})"):
                    return
                page.keyboard.press("Tab")
            raise AssertionError(script)

        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.get_by_label("Job 9", exact=True).focus()
        page.keyboard.press("Space")
        assert page.locator("#chosen").inner_text() == "1 chosen:"
        page.locator("#orders button").first.focus()
        page.keyboard.press("Enter")
        until(page, "document.activeElement.id === 'h-ahead'")  # a reader of screens reads it out
        to(".ahead button:not(.leave)")
        page.keyboard.press("Enter")
        page.locator("#toast", has_text="Held job 9.").wait_for()
        assert daemon.client.call("GET", "/v1/jobs/9")[0]["reason"] == "JobHeldUser"
    daemon.client.call("POST", "/v1/jobs/9/release")


def test_a_page_is_printed_dark_on_light_without_what_is_pressed(
    browser: Browser, pages: Pages
) -> None:
    with visiting(browser, pages, color_scheme="dark") as visitor:
        page = visitor.go("/queue")
        ink = "getComputedStyle(document.querySelector('#rows td.why')).color"
        assert min(map(int, re.findall(r"\d+", page.evaluate(ink))[:3])) > 128
        page.emulate_media(media="print")
        assert max(map(int, re.findall(r"\d+", page.evaluate(ink))[:3])) < 128
        for pressed in ("header nav", "#orders", "button", "input", "select", "#toast"):
            assert not any(one.is_visible() for one in page.locator(pressed).all()), pressed
        assert page.locator("#rows tbody tr").last.is_visible()
        assert page.pdf()[:5] == b"%PDF-"


def test_a_list_that_changes_keeps_the_lines_that_did_not(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    """A line moves with its tick; what stands in the end is what a new page would show."""
    first = "[...document.querySelectorAll('#rows tbody th a')].map(one => one.pathname)"
    with visiting(browser, pages) as visitor:
        page = visitor.go("/queue?sort=-priority")
        page.get_by_label("Job 9", exact=True).check()
        page.evaluate("for (const one of document.querySelectorAll('#rows tr')) one.mine = true")
        daemon.client.call("POST", "/v1/jobs/7/hold")
        until(page, "document.querySelector('#rows').innerText.includes('held until')")
        daemon.client.call("POST", "/v1/jobs/7/release")
        daemon.client.call("PATCH", "/v1/jobs/9", body={"priority": 5})
        until(page, f"{first}[0] === '/jobs/9'")
        asked = {"command": ["true"], "gpus": 8, "priority": 3}
        new = daemon.client.call("POST", "/v1/jobs", body=asked)["job"]
        until(page, f"{first}[1] === '/jobs/{new}'")
        daemon.client.call("POST", f"/v1/jobs/{new}/cancel")
        daemon.client.call("PATCH", "/v1/jobs/8", body={"priority": 2})
        until(page, f"{first}[1] === '/jobs/8'")
        until(page, f"!{first}.includes('/jobs/{new}')")
        new_ones = "[...document.querySelectorAll('#rows tr')].filter(one => !one.mine).length"
        assert page.evaluate(new_ones) == 0
        assert page.get_by_label("Job 9", exact=True).is_checked()
        assert page.locator("#rows input:checked").count() == 1
        lines = """[...document.querySelectorAll('#rows tr')]
            .map(one => one.innerText.replace(/\\d+ m?s\\b/g, 'a time'))"""
        fresh, ends = visitor.tab(), time.monotonic() + 20.0
        fresh.goto(page.url)
        while (new := fresh.evaluate(lines)) != page.evaluate(lines):  # starts are news, too
            assert time.monotonic() < ends, (new, page.evaluate(lines))
            page.wait_for_timeout(100)
            fresh.reload()
    for job in (8, 9):
        daemon.client.call("PATCH", f"/v1/jobs/{job}", body={"priority": 0})


def test_a_sentence_that_comes_below_a_list_touches_none_of_its_lines(
    browser: Browser, pages: Pages, daemon: Standin
) -> None:
    """When the jobs will start is known later than the jobs are, and is then forgotten again."""
    sentence, above = '<p class="soft" id="later">A sentence.</p>', '<nav class="pager"'
    said = [sentence]

    def with_it(route: Route) -> None:
        asked = urlsplit(route.request.url)
        cookie = {"Cookie": route.request.all_headers()["cookie"], "HX-Request": "true"}
        text = pages.ask("GET", f"{asked.path}?{asked.query}", cookie).text
        text = re.sub(r'<p class="soft">The start of .*?</p>', "", text)
        route.fulfill(body=text.replace(above, f"{said[-1]}{above}"), content_type="text/html")

    mine = "[...document.querySelectorAll('#rows tr, #rows nav')].filter(one => one.mine).length"
    ask = "document.body.dispatchEvent(new Event('ganger:done'))"
    with visiting(browser, pages) as visitor:
        visitor.context.add_init_script("delete window.SharedWorker")  # it asks for parts then
        page = visitor.go("/queue")
        page.evaluate(
            "for (const one of document.querySelectorAll('#rows tr, #rows nav')) one.mine = true"
        )
        lines = page.evaluate(mine)
        page.route("**/queue/rows*", with_it)
        page.evaluate(ask)
        until(page, "document.querySelector('#later + nav') !== null")
        assert page.evaluate(mine) == lines > 5
        page.get_by_label("Job 9", exact=True).check()
        said.append("")
        page.evaluate(ask)
        until(page, "document.querySelector('#later') === null")
        assert page.evaluate(mine) == lines
        assert page.get_by_label("Job 9", exact=True).is_checked()
        page.unroute("**/queue/rows*")


def listed(names: list[str], word: str) -> str:
    """A list of jobs as the server sends it."""
    rows = "".join(
        f'<tr data-row="{name}"><td class="tick"><input type="checkbox" name="job" value="{name}"'
        f' form="orders" aria-label="Job {name}"></td><th><a href="/jobs/{name}">{name}</a></th>'
        f'<td class="why">{word if int(name) % 2 else "as before"}</td></tr>\n'
        for name in names
    )
    return (
        '<div class="scroll"><table class="cards queue"><thead><tr><th>Job</th></tr></thead>'
        f"<tbody>\n{rows}</tbody></table></div>\n<p>{word}</p>"
    )


def test_a_long_list_is_lined_up_frame_by_frame_and_the_newest_counts(
    browser: Browser, pages: Pages
) -> None:
    """By a clock in which each line takes as long as a frame may: a line a frame. What the hand is
    at stays: a tick, the line that has the focus though it moves, and lines that did not change."""
    names = [str(number) for number in range(101, 131)]
    said = [listed(names, "first")]
    script = """(() => {
        const clock = performance.now.bind(performance);
        let ahead = 0;
        performance.now = () => clock() + (ahead += window.slow ? 5 : 0);
        delete window.SharedWorker;
    })()"""  # without it a page asks for its parts
    order = "[...document.querySelectorAll('#rows tbody th')].map(one => one.innerText).join()"
    news = (
        "[...document.querySelectorAll('#rows .why')].filter(one => one.innerText === '{}').length"
    )
    ask = "document.body.dispatchEvent(new Event('ganger:done'))"
    with visiting(browser, pages) as visitor:
        visitor.context.add_init_script(script)
        page = visitor.go("/queue")
        page.route(
            "**/queue/rows*", lambda route: route.fulfill(body=said[-1], content_type="text/html")
        )
        page.evaluate(ask)
        until(page, f"{order} === '{','.join(names)}'")
        page.get_by_label("Job 104", exact=True).check()
        page.get_by_role("link", name="130", exact=True).focus()
        page.evaluate("for (const one of document.querySelectorAll('#rows tr')) one.mine = true")
        page.evaluate("window.slow = true")
        said.append(listed([names[-1], *names[:-1]], "second"))
        page.evaluate(
            f"""() => new Promise(done => {{
                const look = () => {news.format("second")} ? done() : requestAnimationFrame(look);
                look();
                {ask};
            }})"""
        )
        assert page.evaluate(news.format("second")) < 14  # 15 lines are another
        newest = [names[-1], *names[3:-1], "131", *names[:2]]  # without 103
        said.append(listed(newest, "third"))
        page.evaluate(ask)
        until(page, f"{order} === '{','.join(newest)}' && {news.format('third')} === 15")
        assert page.evaluate(news.format("second")) == 0
        assert page.evaluate("document.querySelectorAll('#rows tbody input:checked').length") == 1
        assert page.get_by_label("Job 104", exact=True).is_checked()
        assert page.evaluate("document.activeElement.innerText") == "130"
        fresh = "[...document.querySelectorAll('#rows tbody tr')].filter(one => !one.mine).length"
        assert page.evaluate(fresh) == 1
        page.unroute("**/queue/rows*")


def test_of_an_output_of_two_gigabytes_only_its_end_is_read(
    pages: Pages, daemon: Standin, tmp_path: Path
) -> None:
    """By range: a sparse file, whose last lines alone are written."""

    def read() -> int:
        """Bytes, by the daemon and its pages."""
        pids = (pages.process.pid, daemon.process.pid)
        said = (Path(f"/proc/{pid}/io").read_text() for pid in pids)
        return sum(int(one.split()[1]) for one in said)

    said = tmp_path / "said.txt"
    said.touch()
    os.truncate(said, 2 << 30)
    with said.open("a") as file:
        file.writelines(f"\nline {line}" for line in range(5000))
    asked = {"command": ["true"], "gpus": 1, "output": str(said)}
    job = daemon.client.call("POST", "/v1/jobs", body=asked)["job"]
    cookie, before = pages.cookie(), read()
    text = pages.ask("GET", f"/jobs/{job}/log", cookie).text
    assert "line 4999" in text
    assert len(text) < 1 << 20
    found = pages.ask("GET", f"/jobs/{job}/log?find=4321&from={2 << 30}", cookie).text
    assert "line 4321" in found
    assert 0 < read() - before < 64 << 20
    daemon.client.call("POST", f"/v1/jobs/{job}/cancel")
