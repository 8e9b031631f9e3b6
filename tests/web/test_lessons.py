"""The lecture's pieces as pages: asked as a browser would, worked out in a process of their own."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote, urlencode

import pytest
from click.testing import CliRunner

from ganger.cli.lab.lesson import lesson as command_line
from ganger.lab.lessons.pieces import LESSONS
from ganger.web.pages.lessons import command
from web.rig import Answer, Pages, served

Cookie = dict[str, str]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    home = tmp_path_factory.mktemp("lab") / "home"
    home.mkdir(mode=0o700)
    with served(home, lab=True) as made:
        yield made


@pytest.fixture(scope="module")
def cookie(pages: Pages) -> Cookie:
    return pages.cookie()


def over(pages: Pages, cookie: Cookie, path: str) -> Answer:
    """The page at `path` when the work is done."""
    end = time.monotonic() + 100
    while "<progress" in (answer := pages.ask("GET", f"{path}/now", cookie)).text:
        assert time.monotonic() < end
        time.sleep(0.1)
    return answer


def test_a_piece_is_worked_out_as_the_command_line_does(pages: Pages, cookie: Cookie) -> None:
    """Every cell of its CSV is the figure of `ganger lesson`, to the last digit."""
    given = {"types": "1 K80, 2 V100", "rates": "A 10 80; B 50 70", "yours": "V100, K80"}
    sent = {"csrf": pages.csrf(cookie, "/lessons/gavel"), **given}
    answer = pages.ask("POST", "/lessons/gavel", cookie, sent)
    assert answer.status == 303, answer.text
    path = answer.headers["location"]
    text = over(pages, cookie, path).text
    whole = unescape(pages.ask("GET", path, cookie).text)
    line = command(LESSONS["gavel"], given)
    assert f"<code>{line}</code>" in whole
    assert f"/lessons/gavel?types={quote('1 K80, 2 V100').replace('%20', '+')}" in whole
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    printed = CliRunner().invoke(command_line, ["gavel", *words, "--json"]).stdout
    parts = json.loads(printed)["parts"]
    rows = list(csv.reader(pages.ask("GET", f"{path}/tables.csv", cookie).text.splitlines()))
    wanted = [
        [each if isinstance(each, str) else repr(each) for each in row]
        for part in parts
        if "table" in part
        for row in (part["columns"], *part["rows"], [])
    ]
    assert rows == wanted
    assert "data-drawn" in text
    assert text.count("<table") == sum("table" in part for part in parts)


def test_a_replay_that_is_over_can_be_looked_at_again(pages: Pages, cookie: Cookie) -> None:
    """Its page with set-up, charts, reasons and figures; and its line in the list."""
    form = {"kind": "poisson", "jobs": "5", "seed": "1", "cluster": "1x2xV100", "recipes": "fifo"}
    sent = {"csrf": pages.csrf(cookie, "/lab"), **form}
    path = pages.ask("POST", "/lab", cookie, sent).headers["location"]
    over(pages, cookie, path)
    text = unescape(pages.ask("GET", path, cookie).text)
    assert "<h1>5 poisson jobs on 1x2xV100</h1>" in text
    assert "ganger simulate poisson:5:1:2 --cluster 1x2xV100 --recipe fifo" in text
    assert f'href="/lab?{urlencode(form)}"' in text
    assert "fifo on 1x2xV100" in unescape(pages.ask("GET", "/lab", cookie).text)
    (run,) = json.loads(pages.ask("GET", f"{path}/decisions.json", cookie).text)
    assert run["decisions"][0][2][0].startswith("job 0 starts on")
    head, row = pages.ask("GET", f"{path}/figures.csv", cookie).text.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["jobs_finished"] == "5"


def test_an_address_fills_the_fields_and_starts_nothing(pages: Pages, cookie: Cookie) -> None:
    before = pages.ask("GET", "/lessons/step-time", cookie).text
    assert 'value="100"' in before
    query = "?compute=7&gradients=%3Cscript%3E&links=" + "x" * 5000
    shown = pages.ask("GET", f"/lessons/step-time{query}", cookie).text
    assert 'value="7"' in shown
    assert "<script>alert" not in shown
    assert 'value="&lt;script&gt;"' in shown
    assert "x" * 1001 not in shown
    assert "<progress" not in shown


def test_a_wrong_input_is_one_sentence_and_no_process(pages: Pages, cookie: Cookie) -> None:
    csrf = pages.csrf(cookie, "/lessons/queue")
    for wrong in ({"gpus": "0"}, {"jobs": "../etc/passwd"}, {"recipe": "mine.py:X"}, {"x": "1"}):
        answer = pages.ask("POST", "/lessons/queue", cookie, {"csrf": csrf, **wrong})
        assert answer.status == 400, wrong
        assert "This did not work" in answer.text
    assert pages.ask("POST", "/lessons/queue", cookie, {"gpus": "4"}).status == 403
    for path in ("/lessons/nothing", "/lessons/queue/99", "/lessons/queue/x/now"):
        assert pages.ask("GET", path, cookie).status == 404, path


def test_a_piece_is_at_its_own_address_only(pages: Pages, cookie: Cookie) -> None:
    csrf = pages.csrf(cookie, "/lessons/gang")
    path = pages.ask("POST", "/lessons/gang", cookie, {"csrf": csrf}).headers["location"]
    number = path.rpartition("/")[2]
    assert pages.ask("GET", f"/lessons/queue/{number}", cookie).status == 404
    assert pages.ask("GET", f"/lab/{number}", cookie).status == 404
    assert pages.ask("POST", f"{path}/end", cookie, {"csrf": csrf}).status == 303
    assert pages.ask("GET", f"{path}/tables.csv", cookie).status in (200, 404)


def test_every_piece_has_a_page(pages: Pages, cookie: Cookie) -> None:
    index = pages.ask("GET", "/lessons", cookie).text
    for name, piece in LESSONS.items():
        assert f'href="/lessons/{name}"' in index
        text = unescape(pages.ask("GET", f"/lessons/{name}", cookie).text)
        assert piece.reading in text
        assert all(f'name="{field.name}"' in text for field in piece.fields)
        assert all(line in text for line in piece.formula)
