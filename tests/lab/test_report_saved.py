"""Charts of a report are saved as pictures that stand for themselves."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ganger
from ganger.lab.report import write_report

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def chromium() -> str:
    chromium = shutil.which("chromium")
    if not chromium:
        absent = "NO CHROMIUM HERE: NO CHART OF A REPORT IS SAVED (apt-get install chromium)"
        if os.environ.get("GANGER_REQUIRE_BROWSER"):
            pytest.fail(absent)
        pytest.skip(absent)
    return chromium


def test_the_last_time_of_an_axis_is_not_cut_off(tmp_path: Path, chromium: str) -> None:
    """A job of ten minutes: the Gantt chart ends where its axis says 10 min."""
    from playwright.sync_api import sync_playwright

    (tmp_path / "t.csv").write_text("job,submitted,duration,gpus\na,0,10m,4\n")
    write_report([ganger.simulate(tmp_path / "t.csv", "1x4xV100", "fifo")], tmp_path / "r.html")
    beyond = """texts => texts.filter(text => text.textContent == "10 min").map(text =>
        text.getBoundingClientRect().right - text.ownerSVGElement.getBoundingClientRect().right)"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto((tmp_path / "r.html").as_uri())
            edges = page.locator(".chart:visible svg text").evaluate_all(beyond)
            assert edges
            assert max(edges) <= 1, width
        browser.close()


def test_every_chart_is_saved_as_svg_for_paper(tmp_path: Path, chromium: str) -> None:
    """Also in the dark, and where one chart is several pictures."""
    from playwright.sync_api import sync_playwright

    from ganger.workloads.synthetic import synthesize

    trace = synthesize("poisson", 20, 1, gpus=8)
    runs = [ganger.simulate(trace, "2x4xV100", recipe) for recipe in ("fifo", "srtf")]
    write_report(runs, tmp_path / "r.html")
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text))
        page.goto((tmp_path / "r.html").as_uri())
        shown = page.locator(".chart:visible")
        buttons = page.locator(".save:visible button:first-child")
        assert buttons.count() == shown.count() >= 6
        for at in range(buttons.count()):
            with page.expect_download() as got:
                buttons.nth(at).click()
            got.value.save_as(tmp_path / f"{at}.svg")
            stands_alone(tmp_path / f"{at}.svg", shown.nth(at).locator("svg").count())
        assert page.evaluate("document.documentElement.dataset.theme") is None
        with page.expect_download() as got:
            page.locator(".save:visible button:last-child").first.click()
        got.value.save_as(tmp_path / "0.png")
        browser.close()
    assert (tmp_path / "0.png").read_bytes().startswith(b"\x89PNG")
    assert complaints == []


def stands_alone(path: Path, pictures: int) -> set[str]:
    """What is written in a saved picture, which is for paper and needs nothing else."""
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.attrib["width"].endswith("mm")
    assert root.attrib["height"].endswith("mm")
    assert len(root.findall(f"{SVG}svg")) == pictures >= 1
    assert root.findtext(f"{SVG}title")
    assert "var(" not in text
    assert "class=" not in text
    paper = root.find(f"{SVG}rect")
    assert paper is not None
    assert paper.attrib["fill"] == "#ffffff"
    fills = [each.get("fill", "") for each in root.iter(f"{SVG}text") if each.text]
    numbers = [[int(n) for n in re.findall(r"\d+", fill)[:3]] for fill in fills]
    assert sum(max(rgb) < 160 for rgb in numbers if rgb) >= 2, "the axis is that of a light page"
    return {each.text for each in root.iter(f"{SVG}text") if each.text}
