"""The parts that pages are made of: the map, a job's life, lines of an output, times."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.client.answering.families import ChildAnswer, ServiceAnswer, WindowAnswer
from ganger.client.answering.gpu_map import HeldAnswer, HolderAnswer, MapAnswer, NodeMap
from ganger.client.answers import AttemptAnswer, JobDetail, OutputPiece, Status
from ganger.core.errors import BadInput
from ganger.recipes.registry import find
from ganger.web import backend
from ganger.web.background import gallery
from ganger.web.background.cards import Card
from ganger.web.links import Settings
from ganger.web.live import LOOK_SECONDS, Live, Sample
from ganger.web.pages.cluster import thinned
from ganger.web.pages.families import latency, latest, load, missed, ranked
from ganger.web.pages.frame import fill
from ganger.web.pages.job import orders_for
from ganger.web.pages.recipes import is_meant
from ganger.web.serve import address_of
from ganger.web.shown import charts, logs, words
from ganger.web.shown.map import COLOURS, draw
from ganger.web.shown.timeline import WIDTH, spans


def cluster(*nodes: NodeMap, tenants: int = 2) -> MapAnswer:
    """A map; the jobs are those that hold something."""
    jobs: dict[int, int] = {}
    for node in nodes:
        for hold in node.held:
            jobs[hold.job] = jobs.get(hold.job, 0) + len(hold.gpus)
    holders = [
        HolderAnswer(
            job=job,
            label=str(job),
            name="n",
            user="u",
            tenant=f"t{job % tenants}",
            state="RUNNING",
            gpus=gpus,
        )
        for job, gpus in jobs.items()
    ]
    return MapAnswer(revision=1, nodes=list(nodes), jobs=holders)


def held(job: int, gpus: list[int], share: float = 1.0) -> HeldAnswer:
    return HeldAnswer(job=job, gpus=gpus, share=share)


def node(name: str, gpus: int, *holds: HeldAnswer, state: str = "up", **more: Any) -> NodeMap:
    return NodeMap(
        name=name,
        state=state,
        gpu_type="V100",
        gpus=gpus,
        held=list(holds),
        withheld=more.get("withheld", []),
    )


def test_a_gpu_that_is_shared_is_drawn_in_parts() -> None:
    shared = (held(1, [0], 0.5), held(2, [0], 0.25))
    ((_, gpus, svg),) = draw(cluster(node("a", 2, *shared)), "job", (), "").groups
    assert gpus == 2
    assert re.findall(r'class="(\S+)" x="(\d+)" y="(\S+)" width="10" height="(\S+)"', svg) == [
        ("c1", "0", "0", "5"),
        ("c2", "0", "5", "2.5"),
        ("free", "12", "0", "10"),
    ]


def test_what_nobody_can_use_is_not_drawn_as_free() -> None:
    drawn = draw(
        cluster(node("a", 2, state="down"), node("b", 9, held(7, [8]), withheld=[0])),
        "use",
        {7},
        "/p",
    )
    ((_, _, svg),) = drawn.groups
    assert svg.count('class="out"') == 2
    assert svg.count('class="withheld"') == 1
    assert svg.count('class="free"') == 7
    assert 'href="/p/jobs/7"' in svg
    assert '<rect class="idle" x="0" y="12"' in svg


def test_a_cluster_without_gpus_says_what_can_be_done() -> None:
    def said(gpus: int) -> str:
        drawn = draw(cluster(node("a", gpus)), "job", (), "")
        status = msgspec.convert({**STATUS, "gpus": gpus}, Status)
        found = cluster(node("a", gpus))
        return fill("cluster_map", drawn=drawn, by="job", status=status, prefix="", found=found)

    assert "No GPU was found" not in said(1)
    assert "No GPU was found" in said(0)
    none = msgspec.structs.replace(node("a", 0), gpu_type="")
    assert [kind for kind, *_ in draw(cluster(none), "job", (), "").groups] == ["Without GPUs"]


@pytest.mark.parametrize(("tenants", "grey"), [(COLOURS, 0), (COLOURS + 5, 5)])
def test_tenants_beyond_the_colours_are_grey(tenants: int, grey: int) -> None:
    nodes = [node(f"n{at}", 8, held(at + 1, [*range(8)])) for at in range(tenants)]
    drawn = draw(cluster(*nodes, tenants=tenants), "tenant", (), "")
    colours = [key.colour for key in drawn.legend]
    assert len(colours) + drawn.left_out == tenants
    assert drawn.groups[0][2].count('"c11"') == 8 * grey


JOB: dict[str, Any] = {
    "job": 1, "label": "1", "name": "x", "user": "u", "tenant": "t", "state": "RUNNING",
    "code": "R", "reason": "", "gpus": 1, "gpu_types": [], "priority": 0, "submitted": 100.0,
    "started": 110.0, "finished": None, "ran": 0.0, "time_limit": None, "nodes": [], "attempt": 2,
    "preemptions": 1, "command": [], "script": False, "cwd": "", "output": "", "error": "",
    "cpus": 1.0, "memory": 0, "workers": 1, "least_gpus": 1, "most_gpus": 1, "deadline": None,
    "estimate": None, "begin": None, "after": [], "on_preempt": "kill", "kind": "train",
    "attained_gpu_seconds": 0.0, "pending": 0.0, "retries": 0, "progress": {}, "attempts": [],
}  # fmt: skip


def attempt(number: int, started: float, ended: float | None, outcome: str) -> AttemptAnswer:
    return AttemptAnswer(attempt=number, started=started, ended=ended, outcome=outcome, devices=[])


def test_the_life_of_a_job_is_waits_and_attempts() -> None:
    attempts = [attempt(1, 110.0, 150.0, "Preempted: b"), attempt(2, 160.0, None, "")]
    parts = spans(
        msgspec.convert({**JOB, "attempts": attempts}, JobDetail, from_attributes=True), 200.0
    )
    assert [(part.kind, part.x, part.width) for part in parts] == [
        ("waits", 0.0, 100.0),
        ("preempted", 100.0, 400.0),
        ("waits", 500.0, 100.0),
        ("runs", 600.0, 400.0),
    ]
    never = spans(msgspec.convert(JOB, JobDetail), 100.0)
    assert never == []
    waits = spans(msgspec.convert(JOB, JobDetail), 130.0)
    assert [(part.kind, part.width, part.seconds) for part in waits] == [("waits", WIDTH, 30.0)]


class File:
    """A backend that has one output, which it gives in pieces of `size` bytes."""

    def __init__(self, data: bytes, size: int = 1 << 18) -> None:
        self.data, self.size = data, size

    async def get(self, path: str, kind: Any, **query: Any) -> OutputPiece:
        """A piece of it."""
        if "at" not in query:
            lines = self.data.splitlines(keepends=True)[-query["lines"] :]
            at = len(self.data) - sum(map(len, lines))
        else:
            at = query["at"]
        data = self.data[at : at + self.size]
        return OutputPiece(at=at, end=at + len(data), data=data)


WHERE = logs.Where("1", 0, "output", "")


async def _both_ways(file: Any) -> tuple[list[str], list[str]]:
    """All lines, read from the end backwards, and from the begin forwards."""
    text = await logs.last(file, WHERE)
    back = text.lines
    while text.at:
        text = await logs.before(file, WHERE, text.at)
        back = text.lines + back
    text = await logs.after(file, WHERE, 0)
    on = text.lines
    while text.end < len(file.data):
        text = await logs.after(file, WHERE, text.end)
        on += text.lines
    return back, on


def test_an_output_is_the_same_from_both_ends() -> None:
    lines = [f"line {at} " + "x" * (at % 97) for at in range(30_000)]
    back, on = asyncio.run(_both_ways(File("\n".join([*lines, ""]).encode())))
    assert back == lines
    assert on == lines


def test_a_search_finds_lines_across_pieces_and_says_where() -> None:
    data = b"".join(
        b"row %d %s\n" % (at, b"NaN" if at % 1000 == 7 else b"ok") for at in range(5000)
    )
    found = asyncio.run(logs.search(File(data, 100), WHERE, "nan", 0))  # type: ignore[arg-type]
    assert [text for _, text in found.lines] == [
        f"row {at}007 NaN" if at else "row 7 NaN" for at in range(5)
    ]
    assert all(data[at:].startswith(text.encode()) for at, text in found.lines)
    assert (found.end, found.more) == (len(data), False)


def test_a_search_ends_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SEARCHED", 1000)
    data = b"nothing\n" * 500 + b"there\n"
    file: Any = File(data, 400)
    found = asyncio.run(logs.search(file, WHERE, "there", 0))
    assert (found.more, found.lines) == (True, [])
    while found.more:
        found = asyncio.run(logs.search(file, WHERE, "there", found.end))
    assert [text for _, text in found.lines] == ["there"]


def test_lines_are_shown_without_colours_and_controls() -> None:
    assert logs.plain(b"\x1b[31mred\x1b[0m") == "red"
    assert logs.plain(b" 1%\r 50%\r100%\r") == "100%"
    assert logs.plain(b"a\tb\x07\xff") == "a    b\\x07\ufffd"
    assert logs.plain(b"x" * 5000).endswith("3000 more")


def test_times_and_lengths() -> None:
    assert 'datetime="1970-01-01T00:00:00+00:00"' in words.when(0.0)
    for none in (None, -1.0, 1e15):
        assert words.when(none) == "–"
    assert words.lasting(None) == "–"
    assert words.lasting(7265.0) == "2h 01m"
    assert words.counted(1, "GPU") == "1 GPU"
    assert words.counted(1200, "GPU") == "1,200 GPUs"


@pytest.mark.parametrize(("state", "reason", "orders"), [
    ("PENDING", "Priority", ["hold", "cancel", "priority"]),
    ("PENDING", "JobHeldUser", ["release", "cancel", "priority"]),
    ("RUNNING", "", ["suspend", "requeue", "cancel", "priority"]),
    ("SUSPENDED", "", ["resume", "requeue", "cancel", "priority"]),
    ("FAILED", "", []),
])  # fmt: skip
def test_a_job_can_be_given_the_orders_that_its_state_allows(
    state: str, reason: str, orders: list[str]
) -> None:
    assert (
        orders_for(msgspec.convert({**JOB, "state": state, "reason": reason}, JobDetail)) == orders
    )


class Daemon:
    """A backend whose daemon makes steps when it is told to, and counts questions."""

    def __init__(self) -> None:
        self.asked, self.revision, self.told = 0, 0, asyncio.Event()

    async def steps(self) -> AsyncIterator[None]:
        """Its stream."""
        while True:
            yield
            await self.told.wait()
            self.told.clear()

    async def get(self, path: str, kind: Any, **query: Any) -> Status:
        """How it does."""
        self.asked += 1
        return msgspec.convert({**STATUS, "revision": self.revision}, Status)


async def nothing(tick: int) -> AsyncIterator[bytes]:
    """No part of a page is looked at."""
    empty: tuple[bytes, ...] = ()
    for each in empty:
        yield each


STATUS: dict[str, Any] = {
    "version": "", "mode": "", "home": "", "pid": 1, "listen": "", "recipe": "", "knows": "",
    "since": 0.0, "now": 0.0, "revision": 0, "decisions": 0, "last_decision_seconds": 0.0,
    "slowest_decision_seconds": 0.0, "jobs": {}, "nodes": 1, "gpus": 8, "gpus_free": 8,
    "trouble": [],
}  # fmt: skip


def test_a_daemon_that_does_nothing_is_not_asked_again_and_again() -> None:
    """One that makes a step is asked at once."""

    async def story() -> tuple[int, int]:
        daemon: Any = Daemon()
        live = Live(daemon)
        browser = live.stream(nothing)
        await anext(browser)
        following = asyncio.create_task(live.run())
        await asyncio.sleep(LOOK_SECONDS * 2.5)
        rests = daemon.asked
        daemon.revision = 1
        daemon.told.set()
        message = await asyncio.wait_for(anext(browser), 5.0)
        following.cancel()
        assert f'"tick":{live.tick}' in message.decode()
        return rests, daemon.asked

    rests, after = asyncio.run(story())
    assert rests <= 2
    assert after == rests + 1


class Texts:
    """A client of a daemon whose texts never end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.call = lambda *asked, **more: "answered"
        self.close = self.abort = lambda: None

    def stream(self, path: str, query: dict[str, Any]) -> Iterator[bytes]:
        """One without end."""
        while True:
            yield b"line\n"


def test_downloads_that_are_paused_hold_up_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser may pause one for hours."""
    monkeypatch.setattr(backend, "Client", Texts)

    async def story() -> str:
        daemon = backend.Backend(Path("/nowhere"))
        paused = [daemon.text("/v1/jobs/1/logs") for _ in range(backend.TEXTS_MAX)]
        for one in paused:
            daemon.refuse_text()
            await anext(one)
        with pytest.raises(BadInput, match="already"):
            daemon.refuse_text()
        answer: str = await asyncio.wait_for(daemon.get("/v1/explain", Any, slow=True), 5.0)
        for one in paused:
            await one.aclose()
        daemon.refuse_text()
        return answer

    assert asyncio.run(story()) == "answered"


def test_trials_stand_with_the_best_first() -> None:
    def trial(job: int, value: float | None) -> ChildAnswer:
        return ChildAnswer(job=job, name="", state="", gpus=1, params={}, step=1.0, value=value)

    every = [trial(1, 0.5), trial(2, None), trial(3, 0.2), trial(4, 0.9), trial(5, None)]
    assert [one.job for one in ranked(every, more_is_better=False)] == [3, 1, 4, 5, 2]
    assert [one.job for one in ranked(every, more_is_better=True)] == [4, 1, 3, 5, 2]


def test_a_service_shows_its_last_window() -> None:
    def window(begin: float, **figures: float) -> WindowAnswer:
        return WindowAnswer(since=begin, until=begin + 10.0, figures=figures)

    windows = [window(0, arrivals=10.0), window(10, arrivals=50.0, late=4.0, dropped=1.0, p99=0.3)]
    chat = ServiceAnswer(
        job=1,
        label="1",
        name="chat",
        user="u",
        tenant="u",
        state="RUNNING",
        gpus=1,
        replicas={},
        windows=windows,
    )
    assert latest(chat) == {"p99": 0.3, "rate": 5.0, "missed": 0.1}
    assert 'points="58.0,163.3 546.0,40.7"' in load(chat)  # 1 and 5 a second, from 0 to 6
    assert latency(chat) == missed(chat) == ""  # of one window nothing is known over time
    late = [window(0, arrivals=10.0, late=0.0, p50=0.1), *windows[1:]]
    chat = msgspec.structs.replace(chat, windows=late)
    assert 'points="58.0,194.0 546.0,10.0"' in missed(chat)  # none, then a tenth
    assert ">p50</title>" in latency(chat)
    assert latest(msgspec.structs.replace(chat, windows=[])) == {}


def test_a_chart_has_round_ticks_and_leaves_out_what_is_not_finite() -> None:
    drawn = charts.lines([charts.Line("<a>", [(0, 13.0), (1, math.nan), (2, 42.0)])], "t")
    assert re.findall(r'text-anchor="end">([^<]+)<', drawn)[:4] == ["10", "20", "30", "40"]
    assert len(re.findall(r"points=\"([^\"]+)", drawn)[0].split()) == 2
    assert "<a>" not in drawn
    assert charts.lines([charts.Line("a", [(0, math.inf)])], "t") == ""
    wide = [charts.Bar("short", 1.0), charts.Bar("long", 4.0, 3.0, 5.0, first=True)]
    drawn = charts.bars(wide, "t")
    assert re.findall(r'width="([0-9.]+)%" height="18"', drawn) == ["15.2", "60.8"]
    assert re.findall(r'x1="([0-9.]+)%" y1="75" x2="([0-9.]+)%"', drawn) == [("45.6", "76.0")]


CARD = Card(
    "fifo",
    "jobs",
    "First come.",
    "",
    "The lecture",
    0,
    ["jct"],
    [],
    "",
    [],
    False,
    False,
    ["ordering/queue (QueuePolicy)"],
    {},
    "",
)


@pytest.mark.parametrize(("asked", "meant"), [
    ({}, True), ({"find": "QUEUEpolicy lecture"}, True), ({"find": "queue nothing"}, False),
    ({"over": "services"}, False), ({"improves": "fairness"}, False), ({"knows": "nothing"}, True),
    ({"elastic": "yes"}, False),
])  # fmt: skip
def test_recipes_are_found_by_what_their_cards_say(asked: dict[str, str], meant: bool) -> None:
    none = dict.fromkeys(("find", "over", "improves", "knows", "elastic", "types"), "")
    assert is_meant(CARD, {**none, **asked}) == meant
    knowing = msgspec.structs.replace(CARD, knows=["durations"])
    assert not is_meant(knowing, {**none, "knows": "throughputs"})


def test_every_recipe_has_a_card_and_those_over_jobs_a_drawing() -> None:
    every = gallery.card(find("tiresias"))
    assert (every.over, every.knows, every.year) == ("jobs", [], 2019)
    assert "ordering/queue (QueuePolicy)" in every.made
    assert gallery.drawing("fifo").startswith("<svg")
    assert gallery.drawing("tune.asha") == ""


def test_the_load_is_thinned_by_means() -> None:
    samples = [Sample(float(at), at, 8, 2 * at) for at in range(1000)]
    few = thinned(samples, 100)
    assert len(few) == 100
    assert (few[0].at, few[0].held, few[0].waiting) == (9.0, 4, 9)
    assert thinned(samples[:5], 100) == samples[:5]
    assert thinned([], 100) == []


def test_hosts_and_prefixes_are_names_and_paths() -> None:
    def made(**stated: Any) -> Any:
        return address_of(msgspec.convert({"home": "/h", **stated}, Settings), "n.localhost")

    address = made(hosts=["https://GPU.example.org", "box:80"], prefix="/a/b/")
    assert (address.hosts, address.secure) == ({"gpu.example.org", "box"}, {"gpu.example.org"})
    assert address.prefix == "/a/b"
    for wrong in ("a", "/a//b", "/..", "/a b", '/"', "/é", "/" + "a" * 300):
        with pytest.raises(BadInput):
            made(prefix=wrong)
    for wrong in ("", "ftp://x", "http://", "x/y"):
        with pytest.raises(BadInput):
            made(hosts=[wrong])


def test_what_stands_between_backticks_is_code_and_the_rest_is_escaped() -> None:
    assert words.coded("run `a < b`, <i>") == "run <code>a &lt; b</code>, &lt;i&gt;"
    assert words.prose("One `two`.\n\nThree.") == "<p>One <code>two</code>.</p><p>Three.</p>"
    said = fill(
        "toast", text="no daemon (`ganger up`)", mend="write `ganger up`", undo=None, failed=True
    )
    assert said.count("<code>ganger up</code>") == 2
