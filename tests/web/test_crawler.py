"""Every link, button and field of the pages is found and used: one that does nothing, that is
refused, or that nobody can use fails. axe-core looks at every page, light and dark."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from web.rig import Pages, Standin, served
from web.test_browser import Visitor, browser, pytestmark, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response

__all__ = ["browser", "pytestmark"]

SIGNED = """
(window.ganger_sign = one => {
  const form = one.form || one.closest("form");
  const plain = text => (text || "").replace(/[0-9]+/g, "N");
  const path = address => {
    const url = new URL(address, location.href);
    return plain(url.pathname) + [...url.searchParams.keys()].map(k => "?" + k).sort().join("");
  };
  if (one.tagName.toUpperCase() === "A") { // a link of a picture is one in small letters
    return "link " + (one.download ? "download " : "") + path(one.getAttribute("href"));
  }
  if (one.tagName === "SUMMARY") return "summary " + plain(one.textContent.trim());
  const where = form ? path(form.getAttribute("action") || form.getAttribute("hx-get") || "") : "";
  if (one.tagName === "BUTTON") {
    const what = one.id || one.className || one.getAttribute("aria-label") || "";
    const text = form && one.name ? one.name + "=" + one.value : plain(one.textContent.trim());
    return ["button", where, plain(what), plain(text)].join(" ");
  }
  return ["field", where, one.type, one.name || one.className || one.id].join(" ");
}, window.ganger_seen = () => [...document.querySelectorAll(
  "a[href], button, summary, input:not([type=hidden]), select, textarea")]
  .filter(one => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".skip")),
window.ganger_watched ||= (() => {
  let last = performance.now();
  new MutationObserver(all => {
    if (all.some(one => !one.target.closest?.("[data-since]"))) last = performance.now();
  }).observe(document, { subtree: true, childList: true });
  return () => last;
})());
"""
SKIPPED = {
    "link /#": "to the content of the same page",
    "button /sessions/end  name=all": "ends the session of this test; test_browser signs out",
}
STARTS = (
    "/", "/queue", "/jobs/1", "/jobs/2", "/jobs/4", "/jobs/6", "/jobs/7", "/jobs/12", "/jobs/13",
    "/whatif", "/lab", "/recipes", "/sessions", "/nodes", "/nowhere",
)  # fmt: skip
"""Pages that are looked at whether or not a link leads there: jobs in all states."""
RULES_OFF = ["region"]
"""A toast and the page of a link stand outside of landmarks."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Jobs that run, are suspended, wait, are held and over; a service, a search."""
    daemon = Standin(tmp_path_factory.mktemp("crawl") / "home", nodes=2, jobs=11)
    client = daemon.client
    client.call("PUT", "/v1/policy", body={"recipe": "priority", "inner": "tune.asha"})
    for job, verb in ((6, "hold"), (2, "suspend")):
        client.call("POST", f"/v1/jobs/{job}/{verb}")
    both = {"command": ["true"], "gpus": 1, "priority": 1}
    client.call("POST", "/v1/jobs", body={**both, "kind": "serve", "name": "chat"})
    values = {"lr": ["0.1", "0.2"]}
    client.call("POST", "/v1/jobs", body={**both, "kind": "tune", "name": "lr", "params": values})
    client.call("POST", "/v1/jobs/4/cancel")  # whose GPUs they take
    with served(daemon.home) as made:
        yield made
    daemon.end()


class Crawler:
    """Goes through the pages of a visitor. `used`: signatures of all that was found and used;
    `faults`: what is wrong."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.page = visitor, visitor.page
        self.used, self.faults = dict[str, str](), list[str]()
        self.answers: list[Response] = []
        self.page.on("response", lambda answer: self.answers.append(answer))
        self.page.on("dialog", lambda asked: asked.accept())
        self.todo = deque(STARTS)
        self.patterns = {self.pattern(path) for path in STARTS}

    @staticmethod
    def pattern(path: str) -> str:
        """A path and the names in its query, numbers and recipes aside."""
        place, _, query = path.partition("?")
        names = sorted(part.partition("=")[0] for part in query.split("&") if part)
        place = re.sub(r"/recipes/[^/]+", "/recipes/X", re.sub(r"\d+", "N", place))
        return place + "".join(f"?{name}" for name in names)

    def open(self, path: str) -> None:
        """A page as it is at first, with all that it fetches by itself."""
        self.page.goto(self.visitor.pages.url + path)
        self.settle()

    def settle(self) -> None:
        """Until nothing has changed in the page for a moment."""
        self.page.wait_for_load_state()
        self.page.evaluate(SIGNED)
        for _ in range(60):
            if self.page.evaluate("performance.now() - ganger_watched()") > 150.0:
                break
            self.page.wait_for_timeout(50)

    def seen(self) -> list[str]:
        """The signatures of what can be used now."""
        found: list[str] = self.page.evaluate("ganger_seen().map(ganger_sign)")
        return list(dict.fromkeys(found))

    def handle(self, signature: str) -> Any:
        """The first element of that signature that can be used."""
        script = "name => ganger_seen().find(one => ganger_sign(one) === name && !one.disabled)"
        return self.page.evaluate_handle(script, signature).as_element()

    def run(self) -> None:
        """All pages."""
        while self.todo:
            path = self.todo.popleft()
            self.open(path)
            self.note_links()
            self.look(path)
            for signature in self.seen():
                if signature not in self.used and not signature.startswith("link "):
                    self.chain(path, [signature])

    def note_links(self) -> None:
        """Follow links to pages of a kind that was not looked at; a link is used by that."""
        links: list[str] = self.page.evaluate(
            "ganger_seen().filter(one => one.tagName.toUpperCase() === 'A' && !one.download)"
            ".map(one => new URL(one.getAttribute('href'), location.href))"
            ".map(url => url.pathname + url.search)"
        )
        for link in links:
            if self.pattern(link) not in self.patterns and not link.endswith(".svg"):
                self.patterns.add(self.pattern(link))
                self.todo.append(link)
        for signature in self.seen():
            if signature.startswith("link download"):
                if signature not in self.used:
                    self.used[signature] = self.page.url
                    with self.page.expect_download() as kept:
                        self.handle(signature).click()
                    assert Path(kept.value.path()).exists()
            elif signature.startswith("link "):
                self.used.setdefault(signature, self.page.url)

    def look(self, path: str) -> None:
        """What axe finds, light and dark."""
        for theme in ("light", "dark"):
            self.page.evaluate("name => { document.documentElement.dataset.theme = name }", theme)
            for line in offences(self.page):
                self.faults.append(f"{path} ({theme}): {line}")

    def chain(self, path: str, steps: list[str]) -> None:
        """Use the last of `steps` after the others, and then what it has brought."""
        last = steps[-1]
        self.used[last] = path
        print(path, *steps, sep=" > ", flush=True)
        if any(last.startswith(name) for name in SKIPPED):
            return
        self.open(path)
        for step in steps[:-1]:
            if not self.use(step, note=False):
                self.faults.append(f"{path}: {' > '.join(steps)}: {step} is gone")
                return
        before = set(self.seen())
        if not self.use(last):
            return
        if self.page.url != self.visitor.pages.url + path:
            self.page.evaluate(SIGNED)
            self.note_links()
            link = self.page.url.removeprefix(self.visitor.pages.url)
            if self.pattern(link) not in self.patterns:
                self.patterns.add(self.pattern(link))
                self.todo.append(link)
            return
        for new in self.seen():
            if new not in before and new not in self.used and not new.startswith("link "):
                self.chain(path, [*steps, new])
        self.note_links()

    def use(self, signature: str, *, note: bool = True) -> bool:
        """Click it or fill it in, and see that something comes of it."""
        page = self.page
        self.prepare(signature)
        one = self.handle(signature)
        if one is None:
            if note:
                self.faults.append(f"{page.url}: {signature} cannot be used")
            return False
        self.answers.clear()
        page.evaluate(
            "() => { window.ganger_moved = 0;"
            " new MutationObserver(() => { window.ganger_moved = 1 }).observe(document,"
            " { subtree: true, childList: true, attributes: true, characterData: true }) }"
        )
        if signature.startswith("field "):
            return self.fill(signature, one)
        one.click()
        self.wait(signature)
        return True

    def prepare(self, signature: str) -> None:
        """Tick what an order can be given of."""
        if "/orders" not in signature or not self.page.locator("input[form=orders]").count():
            return
        state = "running" if "requeue" in signature else "pending"
        rows = self.page.locator("#rows tbody tr", has=self.page.locator("input[form=orders]"))
        held = rows.filter(has_text="it is held")
        if "release" in signature and held.count():
            held.first.locator("input").check()
        elif rows.filter(has_text=state).filter(has_not_text="it is held").count():
            rows.filter(has_text=state).filter(has_not_text="it is held").last.locator(
                "input"
            ).check()
        else:
            rows.first.locator("input").check()

    def fill(self, signature: str, one: Any) -> bool:
        """Give a field another value: the form that is sent has it, or the page changes."""
        kind, tag = one.evaluate("one => [one.type, one.tagName]")
        if tag == "SELECT":
            values = one.evaluate("one => [...one.options].map(option => option.value)")
            one.select_option(values[-1])
        elif kind in ("checkbox", "radio"):
            one.click()
        elif kind == "number":
            one.fill(one.get_attribute("max") or "3")
        else:
            one.fill("fifo" if "whatif" in signature else "gpu")
        name = one.get_attribute("name")
        form = one.evaluate("one => Boolean(one.form)")
        if name and form:
            sent = one.evaluate("one => new FormData(one.form).has(one.name) || !one.checked")
            if not sent:
                self.faults.append(f"{self.page.url}: {signature} is not sent")
        elif kind not in ("checkbox", "radio"):
            self.faults.append(f"{self.page.url}: {signature} belongs to no form")
        return True

    def wait(self, signature: str) -> None:
        """Until an answer is there or the page is another one; neither may be an error."""
        page = self.page
        for _ in range(100):
            page.wait_for_timeout(40)
            try:
                moved = page.evaluate("window.ganger_moved !== 0")
            except Exception:  # it goes to another page just now
                moved = True
            if moved:
                break
        else:
            self.faults.append(f"{page.url}: {signature} does nothing")
            return
        self.settle()
        for answer in self.answers:
            if answer.status >= 400:
                self.faults.append(f"{page.url}: {signature}: {answer.status} {answer.url}")


def offences(page: Page) -> list[str]:
    """What axe-core has against a page, as lines."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"rules": {name: {"enabled": False} for name in RULES_OFF}})
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found.response["violations"]
    ]


@pytest.mark.timeout(900)
def test_everything_can_be_used_and_axe_finds_nothing(browser: Browser, pages: Pages) -> None:
    with visiting(browser, pages) as visitor:
        crawler = Crawler(visitor)
        crawler.run()
        visitor.complaints[:] = [
            line for line in visitor.complaints if "404" not in line  # /nowhere
        ]  # fmt: skip
        assert not crawler.faults, "\n".join(crawler.faults)
        kinds = {name.partition(" ")[0] for name in crawler.used}
        assert kinds == {"link", "button", "field", "summary"}
        assert len(crawler.used) > 70
