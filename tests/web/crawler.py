"""Goes through pages as somebody would that tries everything: each link is followed, each button
pressed and each field filled in once a kind of page, and something must come of it."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import Request

    from web.test_browser import Visitor

QUIET_MS: Final = 80
"""A page in which nothing has changed for so long, and that waits for no answer, is settled."""
SETTLE_SECONDS: Final = 20.0
MOVING_SECONDS: Final = 1.0
"""A page that waits for nothing and still moves after so long is one that plays something."""
DEAD_SECONDS: Final = 2.0
"""A button of which nothing has come for so long does nothing."""
LAST: Final = "Sign out all"
"""The button that ends the crawl."""
SCRIPT: Final = r"""
window.crawl = (() => {
  const plain = text => (text || "").replace(/[0-9][0-9,]*/g, "N").trim().slice(0, 60);
  const path = address => {
    const url = new URL(address, location.href);
    const names = [...new Set(url.searchParams.keys())].sort().map(name => "?" + name).join("");
    return plain(url.pathname.replace(/\/(recipes|lessons)\/[^/]+/, "/$1/X")) + names;
  };
  const noise = ".live, #log, #cards, #result"; // what changes by itself
  let quiet = performance.now(), moved = false, own = null, stored = '';
  new MutationObserver(all => {
    for (const { target } of all) {
      const one = target.nodeType === 1 ? target : target.parentElement;
      if (!one || one.closest("[data-since]")) continue;
      quiet = performance.now();
      const within = one.closest(noise);
      if (!within || within === own) moved = true;
    }
  }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  const sign = one => {
    const region = (one.closest("[id]:not(a, button, input, select, summary)") || {}).id || "";
    const form = one.form || one.closest("form");
    const to = form ? path(form.getAttribute("action") || form.getAttribute("hx-get") || "") : "";
    const name = one.localName;
    if (name === "a") { // a link of a picture is one in small letters
      const kept = one.hasAttribute("download") ? "download " : "";
      return `link ${kept}${path(one.getAttribute("href"))}`;
    }
    if (name === "button") {
      const order = one.name === "verb" ? one.value : plain(one.textContent);
      return `button #${plain(region)} ${to} ${order}`;
    }
    if (name === "summary") return `summary #${plain(region)} ${plain(one.textContent)}`;
    const value = one.type === "radio" ? "=" + one.value : "";
    const called = one.name || one.id || one.className;
    return `field #${plain(region)} ${to} ${one.type} ${called}${value}`;
  };
  const seen = () => [...document.querySelectorAll(
    "a[href], button, summary, input:not([type=hidden]), select, textarea")]
    .filter(one => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".skip"));
  return {
    seen: () => [...new Set(seen().map(sign))],
    find: name => seen().find(one => sign(one) === name && !one.disabled
      && !one.closest("tr")?.innerText.includes("this one")),
    links: () => seen().filter(one => one.localName === "a" && !one.hasAttribute("download"))
      .map(one => new URL(one.getAttribute("href"), location.href))
      .map(url => [path(url), url.pathname + url.search]),
    begin: one => {
      moved = false; own = one.closest(noise); stored = JSON.stringify(localStorage);
    },
    moved: () => moved || stored !== JSON.stringify(localStorage),
    state: () => [document.readyState === "complete", performance.now() - quiet,
      Boolean(document.querySelector("#result progress"))],
  };
})();
"""


class Crawler:
    """Goes through the pages of a visitor. `seen`: every link, button and field by the kind of page
    that it is on; `used`: those of which something came; `faults`: what is wrong."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.page = visitor, visitor.page
        self.seen, self.used = dict[str, str](), set[str]()
        self.faults = list[str]()
        self.waiting: set[Request] = set()
        self.asked, self.refused = list[str](), list[str]()
        self.patterns, self.after = set[str](), dict[str, str]()
        self.stopped = set[str]()
        self.errors = set[str]()
        """Paths of pages that say what is wrong, with a status of their own."""
        visitor.context.add_init_script(SCRIPT)
        self.page.on("request", self._ask)
        self.page.on("requestfinished", lambda asked: self.waiting.discard(asked))
        self.page.on("requestfailed", lambda asked: self.waiting.discard(asked))
        self.page.on("response", lambda answer: self._answer(answer.status, answer.url))
        self.page.on("dialog", lambda shown: shown.accept())

    def _ask(self, request: Request) -> None:
        if not request.url.partition("?")[0].endswith(("/events", "/worker.js")):
            self.waiting.add(request)
            if request.method == "POST" or request.is_navigation_request():
                self.asked.append(request.url)

    def _answer(self, status: int, url: str) -> None:
        if status >= 400:
            self.refused.append(f"{status} {url.removeprefix(self.visitor.pages.url)}")

    def run(self, paths: Iterable[str]) -> None:
        """Everything on `paths`, and on the pages that they lead to."""
        todo = deque(paths)
        for path in todo:
            self.patterns.add(pattern(path))
        while todo:
            path = todo.popleft()
            self.open(path)
            todo += self.through(path)

    def open(self, path: str) -> None:
        """A page as it is at first, with all that it fetches by itself."""
        self.refused.clear()
        self.page.goto(self.visitor.pages.url + path)
        self.settle()
        if bool(self.refused) != (path in self.errors):
            self.faults.append(f"{path}: {', '.join(self.refused) or 'no error'}")

    def settle(self) -> None:
        """Until nothing has changed in the page for a moment. Of the works of a kind that are begun
        the first is stopped, and the others come to their end."""
        begin = time.monotonic()
        while (spent := time.monotonic() - begin) < SETTLE_SECONDS:
            wait = QUIET_MS / 4
            with navigating():
                ready, quiet, works = self.page.evaluate("crawl.state()")
                rests = quiet > QUIET_MS or spent > MOVING_SECONDS
                waits = not ready or self.waiting or (works and self._area() in self.stopped)
                if rests and not waits:
                    return
                if not rests:
                    wait = max(wait, QUIET_MS - quiet + 1)
            self.page.wait_for_timeout(wait)

    def through(self, path: str) -> list[str]:
        """Use all that is on the page at `path`; the paths of links to other kinds of pages."""
        found, last = self._note(path, ""), ""
        lost = set[str]()
        while (name := self._next(path, lost)) is not None:
            if not self.page.evaluate("name => Boolean(crawl.seen().includes(name))", name):
                lost.add(name)  # something took its place: the way to it is gone once more
                self.open(path)
                for step in self._way(name):
                    self._press(step)
            self._press(name, wanted=True)
            last = name
            if pattern(self._path()) != pattern(path):
                there = self._path()
                if pattern(there) not in self.patterns:
                    self.patterns.add(pattern(there))
                    found += self.through(there)
                self.open(path)
            found += self._note(path, last)
        return found

    def _next(self, path: str, lost: set[str]) -> str | None:
        """What is to be used now: of what is there the newest, then what has gone."""
        kind = f"{kind_of(path)} "
        left = [
            name.removeprefix(kind)
            for name in self.seen
            if name.startswith(kind) and name not in self.used
        ]
        there = self.page.evaluate("crawl.seen()")
        return next(
            (name for name in reversed(left) if name in there and not name.endswith(" Leave it")),
            next((name for name in left if name in there or name not in lost), None),
        )

    def _way(self, name: str) -> list[str]:
        """What was pressed on the page before `name` was there."""
        steps, kind = list[str](), f"{kind_of(self._path())} "
        while (before := self.after.get(kind + name, "")) and before not in steps:
            steps.insert(0, before)
            name = before
        return steps

    def _note(self, path: str, last: str) -> list[str]:
        """Keep what is on the page, `last` having been used; what links lead to."""
        kind, found = f"{kind_of(path)} ", list[str]()
        for where, link in self.page.evaluate("crawl.links()"):
            if where not in self.patterns and not link.endswith(".svg"):
                self.patterns.add(where)
                found.append(link)
        for name in self.page.evaluate("crawl.seen()"):
            if kind + name in self.seen or LAST in name:
                continue
            self.seen[kind + name] = path
            self.after[kind + name] = last
            if name.startswith("link ") and "download" not in name:
                self.used.add(kind + name)  # its page is opened once
        return found

    def _press(self, name: str, *, wanted: bool = False) -> None:
        """Click it or fill it in; of what is `wanted` something must come."""
        key = f"{kind_of(self._path())} {name}"
        self._prepare(name)
        if wanted:
            self.used.add(key)
        if name.endswith(" Stop"):
            self.stopped.add(self._area())
        for _ in range(5):
            one = self.page.evaluate_handle("name => crawl.find(name)", name).as_element()
            if one is None:
                if wanted and not name.endswith(" Stop"):  # or it was over too soon
                    self.faults.append(f"{key} cannot be used")
                return
            with replaced():
                self._use(name, key, one)
                return
        self.faults.append(f"{key} is replaced all the time")

    def _use(self, name: str, key: str, one: Any) -> None:
        self.refused.clear()
        self.asked.clear()
        if name.startswith("link download"):
            with self.page.expect_download() as kept:
                one.click()
            assert Path(kept.value.path()).exists()
            return
        self.page.evaluate("one => crawl.begin(one)", one)
        if name.startswith("field "):
            self._fill(key, one)
            return
        one.click()
        self._wait(key)

    def _prepare(self, name: str) -> None:
        """Tick a job or a node that an order can be given to."""
        boxes = self.page.locator("#rows input[form=orders]")
        if not name.startswith("button #orders ") or not boxes.count():
            return
        rows = self.page.locator("#rows tbody tr", has=self.page.locator("input[form=orders]"))
        held = rows.filter(has_text="it is held")
        free = rows.filter(has_text="pending").filter(has_not_text="it is held")
        some = held if name.endswith("release") and held.count() else free
        (some if some.count() else rows).last.locator("input").check()

    def _fill(self, key: str, one: Any) -> None:
        """Give a field another value: the form that is sent has it, or the page changes."""
        kind = one.evaluate("one => one.type")
        if kind == "select-one":
            values = one.evaluate("one => [...one.options].map(option => option.value)")
            one.select_option(values[-1])
        elif kind in ("checkbox", "radio"):
            one.click()
        elif kind == "file":
            jobs = b"submitted,duration,gpus\n0,60,1\n5,30,2\n"
            one.set_input_files({"name": "jobs.csv", "mimeType": "text/csv", "buffer": jobs})
            self.settle()
        elif kind == "range":
            one.evaluate(
                "one => { one.value = one.min;"
                " one.dispatchEvent(new Event('input', { bubbles: true })) }"
            )
        else:
            one.fill(one.input_value() or ("3" if kind == "number" else "fifo"))
        if not one.evaluate(
            "one => crawl.moved() || Boolean(one.form && one.name)"
            " && (one.matches(':not(:checked)[type=checkbox]')"
            " || new FormData(one.form).has(one.name))"
        ):
            self.faults.append(f"{key} is not sent, and changes nothing")

    def _wait(self, key: str) -> None:
        """Until something has come of what was pressed: not an error."""
        end = time.monotonic() + DEAD_SECONDS
        moved = False
        while not moved and time.monotonic() < end:
            moved = bool(self.asked)
            with navigating():
                moved = moved or self.page.evaluate("crawl.moved()")
            self.page.wait_for_timeout(20)
        if not moved:
            self.faults.append(f"{key} does nothing")
        self.settle()
        self.faults += [f"{key}: {line}" for line in self.refused]

    def _area(self) -> str:
        return self._path().partition("?")[0].split("/")[1]

    def _path(self) -> str:
        return self.page.url.removeprefix(self.visitor.pages.url)


@contextlib.contextmanager
def navigating() -> Iterator[None]:
    """A page that is left just now answers no question."""
    from playwright.sync_api import Error

    try:
        yield
    except Error as error:
        if "context" not in str(error) and "navigat" not in str(error):
            raise


@contextlib.contextmanager
def replaced() -> Iterator[None]:
    """What is live is replaced now and then, also while it is being clicked."""
    from playwright.sync_api import Error

    try:
        yield
    except Error as error:
        if "not attached" not in str(error):
            raise


def pattern(path: str) -> str:
    """A path with the names in its query, numbers, recipes and lessons aside."""
    place, _, query = path.partition("#")[0].partition("?")
    names = sorted({part.partition("=")[0] for part in query.split("&") if part})
    place = re.sub(r"\d+", "N", re.sub(r"/(recipes|lessons)/[^/]+", r"/\1/X", place))
    return place + "".join(f"?{name}" for name in names)


def kind_of(path: str) -> str:
    """The same without the names in its query: what is on such pages is used once."""
    return pattern(path).partition("?")[0]
