"""axe-core looks at every page, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from web.rig import Pages, Standin, served
from web.test_browser import browser, pytestmark, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "pytestmark"]

PATHS = (
    "/", "/queue", "/jobs/1", "/jobs/2", "/jobs/4", "/jobs/6", "/jobs/12", "/jobs/13", "/services",
    "/experiments", "/recipes", "/whatif", "/lab", "/lessons", "/lessons/gavel", "/nodes",
    "/tenants", "/sessions",
)  # fmt: skip
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


def offences(page: Page) -> list[str]:
    """What axe-core has against a page, as lines."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"rules": {name: {"enabled": False} for name in RULES_OFF}})
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found.response["violations"]
    ]


@pytest.mark.timeout(900)
def test_axe_finds_nothing(browser: Browser, pages: Pages) -> None:
    with visiting(browser, pages) as visitor:
        for path in PATHS:
            page = visitor.go(path)
            page.wait_for_timeout(300)  # parts that a page fetches by itself
            for theme in ("light", "dark"):
                page.evaluate("name => { document.documentElement.dataset.theme = name }", theme)
                assert offences(page) == [], f"{path} ({theme})"
