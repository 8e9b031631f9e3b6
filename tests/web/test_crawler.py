"""Everything on every page is found and used, and axe-core looks at every page, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ganger.client.connection import Client
from ganger.lab.lessons.pieces import LESSONS
from lab.test_report_saved import stands_alone
from waiting import until
from web.crawler import LAST, Crawler, pattern
from web.rig import FORM, Pages, Standin, served
from web.test_browser import browser, pytestmark, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "pytestmark"]

PATHS = (
    "/", "/queue", "/jobs/1", "/jobs/2", "/jobs/4", "/jobs/6", "/jobs/12", "/jobs/13", "/jobs/14",
    "/services", "/experiments", "/whatif", "/whatif/2", "/lab", "/lab/1", "/lessons",
    "/lessons/gavel/3", "/nodes", "/tenants", "/sessions", "/recipes", "/recipes/gavel",
)  # fmt: skip
"""A job that runs, and one that is suspended, over, held, that wrote something; a service; a
search."""
OF_THE_LAB = ("/lab", "/lab/1", "/lessons", "/lessons/gavel", "/lessons/gavel/3")
"""What is gone through where there is nothing but the lab."""
RULES_OFF = ["region"]
"""A toast and the page of a link stand outside of landmarks."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Jobs in all states, a replay of the lab and a comparison that are over."""
    folder = tmp_path_factory.mktemp("crawl")
    daemon = Standin(folder / "home", nodes=2, jobs=11)
    try:
        client = daemon.client
        client.call("PUT", "/v1/policy", body={"recipe": "priority", "inner": "tune.asha"})
        for job, verb in ((6, "hold"), (2, "suspend")):
            client.call("POST", f"/v1/jobs/{job}/{verb}")
        both = {"command": ["true"], "gpus": 1, "priority": 1}
        said = folder / "said.txt"
        said.write_text("".join(f"line {line}\n" for line in range(9000)))
        client.call("POST", "/v1/jobs", body={**both, "name": "says", "output": str(said)})
        client.call("POST", "/v1/jobs", body={**both, "kind": "serve", "name": "chat"})
        values = {"lr": ["0.1", "0.2"]}
        client.call(
            "POST", "/v1/jobs", body={**both, "kind": "tune", "name": "lr", "params": values}
        )
        client.call("POST", "/v1/jobs/4/cancel")  # whose GPUs they take
        client.call("PATCH", "/v1/quotas/vision", body={"budget": 5.0, "beyond": "ask"})
        with served(daemon.home) as made:
            cookie = made.cookie()
            sent = {**cookie, "Content-Type": FORM}
            trace = {"jobs": "6", "kind": "philly", "seed": "1"}
            for path, asked in {
                "/lab": {**trace, "cluster": "1x4xA100", "recipes": "fifo"},
                "/whatif": {"recipe": "las"},
                "/lessons/gavel": {},
            }.items():
                answer = made.ask("POST", path, sent, {"csrf": made.csrf(cookie, path), **asked})
                assert answer.status == 303, answer.text
            yield made
    finally:
        daemon.end()


@pytest.fixture(scope="module")
def with_cards(pages: Pages) -> Pages:
    """The same, with the cards of all recipes; their pictures go on being drawn."""
    cookie = pages.cookie()

    def cards() -> str:
        return pages.ask("GET", "/recipes/cards", cookie).text

    until(lambda: "/recipes/fifo" in cards(), "the recipes' cards", seconds=240)
    return pages


def offences(page: Page, *only: str) -> list[str]:
    """What axe-core has against a page, as lines; by the rules `only`, or by all."""
    from axe_playwright_python.base import AXE_SCRIPT

    options: dict[str, Any] = {"rules": {name: {"enabled": False} for name in RULES_OFF}}
    if only:
        options = {"runOnly": list(only)}
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    script = "options => axe.run(options).then(found => found.violations)"
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in page.evaluate(script, {**options, "resultTypes": ["violations"]})
    ]


def test_a_service_that_has_reported_has_its_charts(pages: Pages) -> None:
    def charts() -> int:
        return pages.ask("GET", "/jobs/13/windows", pages.cookie()).text.count("<svg")

    until(lambda: charts() == 3, "requests, seconds and losses of chat")


def test_the_list_of_experiments_has_the_best_value_so_far(pages: Pages) -> None:
    """Which is what the best trial on the page of the search reported last."""
    client = Client(pages.home)

    def best() -> float | None:
        family = client.call("GET", "/v1/jobs/14")[0]["family"] or {"children": [], "best": 0}
        last = {child["job"]: child["value"] for child in family["children"]}
        return last.get(family["best"])

    def shown() -> list[str]:
        text = pages.ask("GET", "/experiments/rows", pages.cookie()).text
        return re.findall(r'data-label="best so far">([^<]+)<', text)

    until(lambda: (value := best()) is not None and shown() == [f"{value:.6g}"], "a best value")


def test_requests_a_second_are_written_out(pages: Pages) -> None:
    """1,200 of them, and not 1.2e+03."""
    until(
        lambda: (
            re.search(
                r'data-label="requests/s">1,[12]\d\d<',
                pages.ask("GET", "/services/rows", pages.cookie()).text,
            )
            is not None
        ),
        "the third window of chat",
    )


def test_a_tenant_sees_what_it_spent_of_its_budget(pages: Pages) -> None:
    text = pages.ask("GET", "/tenants/rows", pages.cookie()).text
    line = text[text.index("vision") :]
    spent = re.search(r"([\d.]+) of 5.00 USD", line[: line.index("</tr>")])
    assert spent is not None
    assert "none of its jobs starts" in line[: line.index("</tr>")]
    assert text.count(" of 5.00 USD") == 1


@pytest.mark.parametrize(("path", "some"), [
    ("/whatif/2", {"las", "priority, as now"}), ("/tenants", {"0"}), ("/jobs/14", {"0.2"}),
])  # fmt: skip
def test_figures_of_pages_are_saved_as_svg_with_what_their_colours_mean(
    browser: Browser, pages: Pages, tmp_path: Path, path: str, some: set[str]
) -> None:
    """Also from a dark page."""
    with visiting(browser, pages, color_scheme="dark") as visitor:
        page = visitor.go(path)
        button = page.get_by_role("button", name="Save as SVG").first
        button.wait_for()
        meant = page.locator("figure:has(.figure) .legend li").all_inner_texts()
        assert bool(meant) == (path != "/whatif/2")
        with page.expect_download() as kept:
            button.click()
        kept.value.save_as(tmp_path / "kept.svg")
        assert stands_alone(tmp_path / "kept.svg", 1) >= {*meant, *some}


def test_axe_finds_nothing(browser: Browser, with_cards: Pages) -> None:
    with visiting(browser, with_cards) as visitor:
        crawler = Crawler(visitor)
        for path in PATHS:
            crawler.open(path)
            for theme, only in (("light", ()), ("dark", ("color-contrast",))):
                script = "name => { document.documentElement.dataset.theme = name }"
                visitor.page.evaluate(script, theme)
                assert offences(visitor.page, *only) == [], f"{path} ({theme})"
        assert crawler.faults == []


def test_a_dead_button_and_a_script_in_the_page_are_found(browser: Browser, pages: Pages) -> None:
    """The crawler and the visitor are no looser than they say."""
    with visiting(browser, pages) as visitor:
        added = '<button type="button">Nothing</button><script>window.told = 1</script></main>'
        answer = pages.ask("GET", "/services", pages.cookie())
        visitor.page.route(
            f"{pages.url}/services",
            lambda route: route.fulfill(
                body=answer.text.replace("</main>", added),
                headers={
                    name: answer.headers[name]
                    for name in ("content-type", "content-security-policy")
                },
            ),
        )
        crawler = Crawler(visitor)
        crawler.open("/services")
        crawler.through("/services")
        assert crawler.faults == ["/services button #main  Nothing does nothing"]
        assert visitor.complaints
        assert all("Content Security Policy" in line for line in visitor.complaints)
        visitor.complaints.clear()


@pytest.mark.timeout(300)
def test_everything_on_every_page_is_used(browser: Browser, with_cards: Pages) -> None:
    with visiting(browser, with_cards) as visitor:
        crawler = Crawler(visitor)
        crawler.patterns |= {pattern(path) for path in OF_THE_LAB}
        crawler.run(path for path in PATHS if path not in OF_THE_LAB)
        assert crawler.faults == []
        assert set(crawler.seen) - crawler.used == set()
        assert crawler.patterns >= {"/jobs/N", "/recipes/X", "/whatif/N", "/queue?sort?state"}
        page = visitor.go("/enter")  # who is in goes on
        page.wait_for_url(f"{with_cards.url}/")
        page = visitor.go("/sessions")
        page.get_by_role("button", name=LAST).click()
        page.get_by_text("Come in with a link").wait_for()
        assert page.evaluate("crawl.seen()") == ["link /"]
        assert visitor.complaints == []
        page.get_by_role("link", name="Ganger").click()
        page.get_by_text("Come in with a link").wait_for()
        assert all("401" in line or "403" in line for line in visitor.complaints)
        visitor.complaints.clear()  # a browser writes what was refused into its console


WALL = ("/", "/queue", "/nodes", "/tenants", "/services", "/experiments")
"""What a link that only shows leads to."""


def test_everything_that_a_link_that_only_shows_leads_to_is_used(
    browser: Browser, with_cards: Pages
) -> None:
    """And nothing that it shows leads to where it may not."""
    with visiting(browser, with_cards, shows=True) as visitor:
        crawler = Crawler(visitor)
        crawler.patterns.add("/recipes")  # which are as for everybody, but for the way to the lab
        crawler.run(WALL)
        assert {path.partition("?")[0] for path in crawler.patterns} == {*WALL, "/recipes"}
        crawler.open("/recipes")
        crawler.open("/recipes/fifo")
        assert visitor.page.get_by_role("link", name="in the lab").count() == 0
        assert crawler.faults == []
        assert set(crawler.seen) - crawler.used == set()
        buttons = {name.split(" ", 1)[1] for name in crawler.seen if " button " in name}
        assert {name.rpartition(" ")[2] for name in buttons} <= {"Show", "◐", "SVG", "PNG"}
        assert offences(visitor.page) == []


ERRORS = {"/nowhere": 404, "/jobs/999": 404, "/lab/99": 404, "/recipes/nothing": 404,
          "/lessons/nothing": 404, "/whatif/99": 404, "/queue?sort=nothing": 400,
          "/nodes?page=-1": 400}  # fmt: skip


def test_everything_on_pages_that_say_what_is_wrong_is_used(
    browser: Browser, with_cards: Pages
) -> None:
    with visiting(browser, with_cards) as visitor:
        crawler = Crawler(visitor)
        crawler.errors |= set(ERRORS)
        crawler.patterns |= {pattern(path) for path in PATHS}  # where the menu leads
        crawler.run(ERRORS)
        assert crawler.faults == []
        assert set(crawler.seen) - crawler.used == set()
        assert offences(visitor.page) == []
        cookie = with_cards.cookie()
        for path, status in ERRORS.items():
            answer = with_cards.ask("GET", path, cookie)
            assert answer.status == status
            assert re.search(r"<h1>[^<]+</h1>\s*<p>[^\n]+\.</p>", answer.text), path
        visitor.complaints.clear()  # a browser writes what was refused into its console


@pytest.mark.timeout(300)
def test_everything_of_the_lab_alone_is_used(browser: Browser, tmp_path: Path) -> None:
    """Without a daemon, from its first page on."""
    with served(tmp_path, lab=True) as made, visiting(browser, made) as visitor:
        made.cookie()  # another session, which can be signed out
        crawler = Crawler(visitor)
        crawler.patterns.add("/recipes")  # which are the same beside a daemon
        crawler.run(["/", *(f"/lessons/{name}" for name in LESSONS)])
        assert set(crawler.seen) - crawler.used == set()
        assert crawler.patterns >= {"/lab/N", "/lessons/X/N", "/sessions"}
        crawler.open("/recipes")
        assert crawler.faults == []
        assert offences(visitor.page) == []
