"""The lab in a browser: a cluster put together by pointer and keys, decisions step by step, charts
that are saved."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from web.rig import Pages, served
from web.test_browser import browser, pytestmark, until, visiting
from web.test_crawler import offences

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "pytestmark"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    home = tmp_path_factory.mktemp("lab") / "home"
    home.mkdir(mode=0o700)
    with served(home, lab=True) as made:
        yield made


def cluster(page: Page) -> str:
    return page.input_value("#cluster")


@pytest.mark.timeout(300)
def test_a_cluster_is_put_together_replayed_and_told(
    browser: Browser, pages: Pages, tmp_path: Path
) -> None:
    with visiting(browser, pages) as visitor:
        page = visitor.go("/lab?jobs=12&seed=3&cluster=2x2xV100&recipes=fifo,srtf")
        page.select_option("#node-type", "K80")
        page.click("#node-add")
        assert cluster(page) == "2x2xV100+1x4xK80"
        page.locator("#rack li").nth(2).press("ArrowLeft")
        assert cluster(page) == "1x2xV100+1x4xK80+1x2xV100"
        page.keyboard.press("Delete")
        assert cluster(page) == "2x2xV100"
        page.drag_and_drop("#node-new", "#rack")
        assert cluster(page) == "2x2xV100+1x4xK80"
        page.drag_and_drop("#rack li:nth-child(3)", "h1")
        assert cluster(page) == "2x2xV100"
        assert page.inner_text("#rack-said") == "2 nodes, 4 GPUs."

        page.click("text=Replay")
        page.wait_for_selector("#player .chart svg")
        assert page.locator(".lane").count() == 2
        assert page.locator("#player .chart svg").count() == 2 * 3
        assert "over: 12" in page.inner_text(".lane .state-line >> nth=0")
        assert offences(page) == []
        _steps(page)
        _saved(page, tmp_path)
        _loaded(page, tmp_path)


def _steps(page: Page) -> None:
    """The first decision of all, the next one, and back again."""
    address = page.get_attribute("#player", "data-decisions")
    script = "address => fetch(address).then((answer) => answer.text())"
    fifo = json.loads(page.evaluate(script, address))[0]["decisions"]
    said = page.locator(".lane .decided >> nth=0")
    page.click("#next")
    until(page, "document.querySelector('.decided').textContent")
    first = said.inner_text()
    assert fifo[0][1][1:] in first
    assert fifo[0][2][0] in first
    assert "over: 0" in page.inner_text(".lane .state-line >> nth=0")
    page.click("#next")
    assert said.inner_text() != first
    page.click("#before")
    assert said.inner_text() == first
    page.click("#before")
    assert said.inner_text() == "Nothing was decided before."
    page.click("#play")
    page.click("#play")
    assert said.inner_text() == ""


def _saved(page: Page, folder: Path) -> None:
    """An SVG with a size on paper and no class or variable left in it; a PNG."""
    with page.expect_download() as got:
        page.click(".lane .save button >> nth=0")
    assert got.value.suggested_filename == "fifo-who-ran-where.svg"
    got.value.save_as(folder / "chart.svg")
    text = (folder / "chart.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.attrib["width"].endswith("mm")
    assert len(root.findall(".//{*}rect")) > 12
    assert "var(" not in text
    assert "class=" not in text
    with page.expect_download() as got:
        page.click(".lane .save button >> nth=1")
    got.value.save_as(folder / "chart.png")
    assert (folder / "chart.png").read_bytes()[:4] == b"\x89PNG"


def _loaded(page: Page, folder: Path) -> None:
    """A file with gzip; of a large one, the lines of its first MiB."""
    head = b"submitted,duration,gpus\n"
    page.click(".overline a")
    assert page.locator("#file-said").inner_text() == ""
    (folder / "large.csv").write_bytes(head + b"5,60,1\n" * 200_000)
    page.set_input_files("#file", folder / "large.csv")
    whole = ((1 << 20) - len(head)) // len(b"5,60,1\n") + 1
    until(page, "document.getElementById('file-said').textContent")
    assert f"The first {whole:,} lines" in page.inner_text("#file-said")
    (folder / "mine.csv.gz").write_bytes(gzip.compress(head + b"0,60,1\n5,30,2\n"))
    page.set_input_files("#file", folder / "mine.csv.gz")
    until(page, "document.getElementById('file-said').textContent === '3 lines.'")
    assert page.input_value("[name=kind]") == "file"
    page.click("text=Replay")
    page.wait_for_selector("#player .chart svg")
    assert page.inner_text("h1") == "mine.csv.gz on 2x2xV100"
    assert "ganger simulate ./mine.csv.gz --cluster 2x2xV100" in page.inner_text("#result")
    assert "over: 2" in page.inner_text(".lane .state-line >> nth=0")


@pytest.mark.timeout(300)
def test_a_piece_is_drawn_with_its_figures(browser: Browser, pages: Pages) -> None:
    with visiting(browser, pages, viewport={"width": 390, "height": 844}) as visitor:
        page = visitor.go("/lessons/trade-off?weight=1")
        assert page.locator("#result").count() == 0
        page.click("text=Work it out")
        page.wait_for_selector("#result .chart svg")
        assert "210" in page.inner_text("#result table tbody tr:last-child td >> nth=0")
        assert page.locator("#result .chart path.line").count() == 3
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, "nothing is wider than a phone"
        assert offences(page) == []
