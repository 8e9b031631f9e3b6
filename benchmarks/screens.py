"""Pictures of every page in every state, to be looked at: 8 and 4,000 GPUs, empty, loading, error
and without a daemon; on a desktop and a phone, light and dark.

    PYTHONPATH=tests python benchmarks/screens.py FOLDER [--states 8,4000,empty] [--sizes phone]

Each is FOLDER/STATE-PAGE-SIZE-THEME.png; with --sheets those of one state, size and theme stand
side by side in one picture.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from web import rig
from web.rig import Pages, Standin, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

SIZES: Final = {"desktop": (1280, 800), "phone": (390, 844)}
THEMES: Final = ("light", "dark")
PATHS: Final = (
    "/", "/?by=tenant", "/queue", "/nodes", "/tenants", "/services", "/experiments", "/recipes",
    "/whatif", "/lab", "/lessons", "/lessons/gavel", "/sessions", "/jobs/1",
)  # fmt: skip
CLUSTERS: Final = {"8": (1, 9), "4000": (500, 2000), "empty": (1, 0)}
"""Nodes of 8 GPUs, and jobs."""
OTHERS: Final = ("works", "loading", "error", "lost", "alone", "wall")
ALONE: Final = ("/", "/recipes", "/recipes/gavel", "/recipes/serve.orca", "/recipes/tune.asha",
                "/lessons", "/lessons/placement", "/sessions")  # fmt: skip
"""What `ganger lab` leads somebody to who is here for the first time."""
WALL: Final = ("/", "/queue", "/nodes", "/tenants", "/services", "/experiments", "/jobs/1")
REPLAY: Final = {
    "kind": "philly", "jobs": "40", "seed": "1", "cluster": "2x4xV100",
    "recipes": "fifo, srtf, las, tiresias",
}  # fmt: skip
COMPARISON: Final = {"of": "queue", "nodes": "1", "kind": "A100", "others": "las, srtf, pollux"}
PARTS: Final = ("why", "log", "usage", "windows", "children", "cards", "ahead")
"""What a page fetches when it is there."""


def name_of(path: str) -> str:
    """A path as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", path).strip("-") or "cluster"


def filled(daemon: Standin) -> None:
    """A service, a search, a job that is held and one that was cancelled."""
    client = daemon.client
    client.call("PUT", "/v1/policy", body={"recipe": "priority", "inner": "tune.asha"})
    client.call("POST", "/v1/jobs/6/hold")
    both = {"command": ["true"], "gpus": 1, "priority": 1}
    client.call("POST", "/v1/jobs", body={**both, "kind": "serve", "name": "chat"})
    values = {"lr": ["0.1", "0.2"]}
    client.call("POST", "/v1/jobs", body={**both, "kind": "tune", "name": "lr", "params": values})
    client.call("POST", "/v1/jobs/4/cancel")


class Camera:
    """Takes the pictures of one state in one size."""

    def __init__(
        self,
        browser: Browser,
        pages: Pages,
        folder: Path,
        state: str,
        size: str,
        *,
        read_only: bool = False,
    ) -> None:
        wide, high = SIZES[size]
        self.context = browser.new_context(viewport={"width": wide, "height": high})
        self.page: Page = self.context.new_page()
        self.page.goto(f"{pages.url}/enter#token={pages.link(read_only=read_only)}")
        self.page.wait_for_url(f"{pages.url}/")
        self.pages, self.folder, self.state, self.size = pages, folder, state, size

    def take(self, path: str, rest_ms: int = 400, *, whole: bool = False) -> None:
        """A page as it is after a moment."""
        self.page.goto(self.pages.url + path, wait_until="load")
        self.page.wait_for_timeout(rest_ms)
        self.keep(path, whole=whole)

    def keep(self, path: str, *, whole: bool = False) -> None:
        """What is shown now, or all of the page."""
        for theme in THEMES:
            self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            name = f"{self.state}-{name_of(path)}-{self.size}-{theme}.png"
            self.page.screenshot(path=self.folder / name, full_page=whole)

    def work(self, path: str, form: dict[str, str]) -> None:
        """What the form of a page asks for: while it is worked on, and what comes of it."""
        cookie = {one["name"]: one["value"] for one in self.context.cookies()}
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookie.items())}
        asked = {"csrf": self.pages.csrf(sent, path), **form}
        answer = self.pages.ask("POST", path, sent, asked)
        self.page.goto(self.pages.url + answer.headers["location"])
        self.keep(f"{path} works")
        progress = self.page.locator("#result progress")
        progress.wait_for(state="detached", timeout=300_000)
        self.page.wait_for_timeout(400)
        self.keep(f"{path} done", whole=True)

    def moves(self) -> None:
        """A replay of the lab at a decision in its middle, and while it plays."""
        self.page.locator("#time").evaluate(
            "one => { one.value = 400; one.dispatchEvent(new Event('input', { bubbles: true })) }"
        )
        self.page.get_by_role("button", name="Next decision").click()
        self.page.wait_for_timeout(300)
        self.keep("/lab decision", whole=True)
        self.page.get_by_role("button", name="Play").click()
        self.page.wait_for_timeout(700)
        self.keep("/lab plays")

    def looks_ahead(self) -> None:
        """What an order would do, before it is given."""
        self.page.goto(self.pages.url + "/queue")
        self.page.get_by_label("Job 1", exact=True).check()
        self.page.get_by_role("button", name="Cancel").click()
        self.page.locator(".ahead h2").wait_for()
        self.keep("/queue ahead", whole=True)

    def lose(self, daemon: Standin) -> None:
        """The daemon is killed while the cluster is open."""
        self.page.goto(self.pages.url + "/")
        self.page.wait_for_timeout(400)
        daemon.process.kill()
        daemon.process.wait()
        self.page.locator("#lost").wait_for()
        self.keep("/ open")


def later(route: Route) -> None:
    """An answer that never comes."""


@contextlib.contextmanager
def cluster(nodes: int, jobs: int) -> Iterator[tuple[Standin, Pages]]:
    """A daemon and its pages."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Standin(Path(folder) / "home", nodes, 8, jobs)
        try:
            if jobs:
                filled(daemon)
            with served(daemon.home) as pages:
                yield daemon, pages
        finally:
            if daemon.process.poll() is None:
                daemon.end()


def taken(browser: Browser, folder: Path, states: list[str], sizes: list[str]) -> None:
    """All pictures."""
    if "alone" in states:
        alone(browser, folder, sizes)
    for state, (nodes, jobs) in CLUSTERS.items():
        if state not in states:
            continue
        with cluster(nodes, jobs) as (_, pages):
            for size in sizes:
                camera = Camera(browser, pages, folder, state, size)
                family = (f"/jobs/{jobs + 1}", f"/jobs/{jobs + 2}")  # a service, and a search
                for path in (*PATHS, *family) if jobs else PATHS[:-1]:
                    camera.take(path)
                camera.context.close()
    if not set(OTHERS) & set(states):
        return
    with cluster(*CLUSTERS["8"]) as (daemon, pages):
        for size in sizes if "works" in states else []:
            camera = Camera(browser, pages, folder, "works", size)
            camera.take("/jobs/4")  # which was cancelled
            camera.keep("/jobs/4 whole", whole=True)
            camera.work("/lab", REPLAY)
            camera.moves()
            camera.work("/whatif", COMPARISON)
            camera.work("/lessons/policies", {})
            camera.looks_ahead()
            camera.context.close()
        for size in sizes if "loading" in states else []:
            camera = Camera(browser, pages, folder, "loading", size)
            for part in PARTS:
                camera.page.route(f"**/{part}", later)
            for path in ("/jobs/1", "/tenants", "/recipes"):
                camera.take(path)
            camera.context.close()
        for size in sizes if "error" in states else []:
            camera = Camera(browser, pages, folder, "error", size)
            for path in ("/nowhere", "/jobs/999", "/queue?sort=nothing", "/recipes/nothing"):
                camera.take(path)
            camera.context.close()
        for size in sizes if "wall" in states else []:
            camera = Camera(browser, pages, folder, "wall", size, read_only=True)
            for path in WALL:
                camera.take(path)
            camera.context.close()
        if "lost" not in states:
            return
        cameras = [Camera(browser, pages, folder, "lost", size) for size in sizes]
        for camera in cameras:
            camera.page.goto(pages.url + "/queue")
        cameras[0].lose(daemon)
        for camera in cameras:
            camera.page.locator("#lost").wait_for()
            camera.keep("/queue open")
            for path in PATHS:
                camera.take(path)


def alone(browser: Browser, folder: Path, sizes: list[str]) -> None:
    """The lab on an empty home, from its first page to a replay, once recipes are drawn."""
    with tempfile.TemporaryDirectory() as home, served(Path(home), lab=True) as pages:
        for size in sizes:
            camera = Camera(browser, pages, folder, "alone", size)
            camera.take("/recipes")
            camera.page.locator("#cards .gallery").wait_for(timeout=60_000)
            drawn = camera.page.locator("#cards [role=status]").filter(has_not_text="drawn")
            drawn.wait_for(timeout=600_000)
            for path in ALONE:
                camera.take(path, whole=path != "/recipes")
            camera.work("/lab", REPLAY)
            camera.work("/lessons/queue", {})
            camera.context.close()


def sheets(browser: Browser, folder: Path) -> None:
    """The pictures of one state, size and theme side by side."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(folder.glob("*-*-*.png")):
        parts = file.stem.split("-")
        groups.setdefault("-".join((parts[0], *parts[-2:])), []).append(file)
    page = browser.new_page(viewport={"width": 1700, "height": 900})
    for name, files in groups.items():
        wide = 210 if "phone" in name else 550
        pictures = "".join(f'<img src="{file.as_uri()}" width="{wide}">' for file in files)
        list_of = folder / f"{name}.html"
        list_of.write_text(f"<body style='margin:0;background:#888'>{pictures}")
        page.goto(list_of.as_uri(), wait_until="load")
        page.screenshot(path=folder / f"sheet_{name}.png", full_page=True)
        list_of.unlink()


def main() -> None:
    """Take them."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--states", default=",".join((*CLUSTERS, *OTHERS)))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--sheets", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rig.START_SECONDS = 600.0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        taken(browser, given.folder, given.states.split(","), given.sizes.split(","))
        if given.sheets:
            sheets(browser, given.folder.absolute())
        browser.close()


if __name__ == "__main__":
    main()
