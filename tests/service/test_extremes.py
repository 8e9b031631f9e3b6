"""Any order of requests with extreme values in any field, and restarts at random: the daemon stays
up, every job that was accepted is there, and the journal is decided again to the same state."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.client.answers import Submitted
from ganger.client.request import JobRequest
from ganger.core.state.snapshot import capture
from ganger.core.units import SECOND
from ganger.engines.testing.fake import Script
from ganger.service.durable.recovery import check_history, guard_of
from ganger.service.http.api import application
from ganger.service.http.app_context import AppContext
from ganger.service.http.endpoints import ENDPOINTS, Endpoint
from ganger.service.jobs.submission import Who
from service.desk import Desk, header
from soaking import many

pytestmark = pytest.mark.long

EDGES = [
    sign * (edge + near)
    for edge in (0, 1 << 31, 1 << 32, 1 << 53, 1 << 62, 1 << 63, 1 << 64)
    for near in (-1, 0, 1)
    for sign in (1, -1)
]
NUMBERS: list[Any] = [
    *EDGES,
    10**30,
    0.5,
    -0.0,
    1e-320,
    1e18,
    1e308,
    -1e308,
    2.0**63,
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    None,
]
CATEGORIES = sorted({unicodedata.category(chr(code)) for code in range(0x3000)} | {"Cs", "Co"})
of_a_category = {
    one: st.text(st.characters(categories=[one]), min_size=1, max_size=4)  # type: ignore[list-item]
    for one in CATEGORIES
}
MEGABYTE = "x" * 1_000_000
odd_texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\u2028",
            "a\u2029b",
            "\x00",
            "\ud800",
            "\udfff",
            "\x85",
            "\r\n",
            "\u202e",
            "0",
            "-1",
            "never",
            "nan",
            "inf",
            "1e400",
            "9" * 400,
            "9" * 5000,
            "1_" + "9" * 5000,
            "+" + "9" * 25 + "d",
            "150000000d",
            "9999-12-31",
            "0001-01-01T00:00:00+14:00",
            "99999999999999999999:00",
            "0-99999999",
            "1%0",
            "1,1",
            "1-1:0",
            "#!/bin/sh\n\x00",
            "/",
            MEGABYTE,
        ]
    ),
    st.sampled_from(CATEGORIES).flatmap(of_a_category.__getitem__),
    st.sampled_from(EDGES).map(str),
    st.tuples(st.sampled_from(EDGES), st.sampled_from(["d", "s", "us", "w", "G", "T", ":00"])).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
)
odd_values = st.one_of(
    st.sampled_from(NUMBERS),
    odd_texts,
    st.lists(odd_texts, max_size=2),
    st.dictionaries(odd_texts, odd_texts, max_size=2),
    st.lists(st.sampled_from(NUMBERS), max_size=2),
)


def fitting(annotation: Any) -> st.SearchStrategy[Any]:
    """Extreme values that are of a field's type, by the most part."""
    kinds = {annotation, *get_args(annotation)}
    texts = str in kinds or any("str" in str(one) for one in kinds)
    numbers = any(one in kinds for one in (int, float))
    lists = "list" in str(annotation)
    even_texts = st.sampled_from(["1", "1h", "+1h", "never", "vision"])
    chosen: list[st.SearchStrategy[Any]] = []
    if lists:
        chosen += [st.lists(odd_texts, max_size=2), st.lists(even_texts, max_size=2)]
    elif texts:
        chosen += [odd_texts, even_texts]
    if numbers:
        chosen += [st.sampled_from(NUMBERS), st.integers(0, 3)]
    return st.one_of(*chosen, *chosen, odd_values) if chosen else odd_values


def bodies(kind: type[msgspec.Struct], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with extreme values in some fields."""
    fields = {one.name: one.type for one in msgspec.structs.fields(kind)}
    one_field = st.sampled_from(sorted(fields)).flatmap(
        lambda name: st.tuples(st.just(name), fitting(fields[name]))
    )
    return st.lists(one_field, max_size=most).map(dict)


TIMES = ["time_limit", "estimate", "deadline", "begin", "grace"]
AMOUNTS = [
    "memory",
    "gpu_memory",
    "cpus",
    "priority",
    "weight",
    "steps",
    "retries",
    "share",
    "gpus",
]
edges_of_time = st.one_of(
    st.sampled_from(EDGES).map(lambda edge: f"{edge}us"),
    st.sampled_from(["150000000d", "+150000000d", "30000000w", "2562047788:00:00", 9.3e12, 1e11]),
)


SLOW = {"/v1/shutdown", "/v1/events", "/v1/jobs/{jobs}/wait"}
"""One ends the daemon, the others wait for something."""
OTHERS = [one for one in ENDPOINTS if one.path not in SLOW and one.path != "/v1/jobs"]
plain_jobs = st.fixed_dictionaries(
    {"command": st.just(["true"])},
    optional={
        "gpus": st.integers(0, 4),
        "hold": st.booleans(),
        "array": st.sampled_from(["0-2", "1%1"]),
        "after": st.just([1]),
        "after_any": st.just(["1"]),
        "singleton": st.booleans(),
        "name": st.sampled_from(["a", "b"]),
        "begin": st.just("+3s"),
        "tenant": st.just("t"),
        "time_limit": st.sampled_from(["99999999999", 1e11, "1us"]),
        "kind": st.sampled_from(["tune", "serve", "train"]),
        "parent": st.just(1),
        "params": st.just({"lr": ["0.1", "0.2"]}),
        "metric": st.just("loss"),
        "configurations": st.just([{"lr": "1"}]),
        "min_gpus": st.just(1),
        "max_gpus": st.just(4),
    },
)


class Driver:
    """A daemon over a fake engine, and its HTTP application, in this process."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.world = AppContext(desk.daemon, desk.root)
        self.app = application(self.world)

    def call(
        self, method: str, path: str, query: str = "", body: bytes = b"", key: bytes = b""
    ) -> tuple[int, bytes]:
        """Ask, while the daemon steps; status and body of the answer."""
        return asyncio.run(self._call(method, path, query, body, key))

    async def _call(
        self, method: str, path: str, query: str, body: bytes, key: bytes
    ) -> tuple[int, bytes]:
        status, parts, given = [0], [b""], [body]

        async def receive() -> dict[str, Any]:
            if not given:
                await asyncio.Event().wait()  # it stays to hear the answer to its end
            return {"type": "http.request", "body": given.pop(), "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            else:
                parts.append(message.get("body", b""))

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode(),
            "headers": [(b"idempotency-key", key)] if key else [],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("here", 80),
            "client": ("unix", 0),
            "root_path": "",
            "ganger.who": Who("ann", 1000, 1000, True),
        }
        asking = asyncio.ensure_future(self.app(scope, receive, send))
        while not asking.done():
            await asyncio.sleep(0)
            if self.desk.daemon._inbox:
                self.desk.daemon.once()
        await asking
        return status[0], b"".join(parts)


def raw(value: Any) -> bytes:
    """JSON as some clients write it: NaN and lone surrogates included."""
    return json.dumps(value).encode()


class Extremes(RuleBasedStateMachine):
    """What a stranger may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        script = lambda job, attempt: Script(  # noqa: E731
            runs=(job % 3 + 1) * SECOND, fails="code 1" if job % 4 == 3 else ""
        )
        begin = msgspec.structs.replace(
            header("backfill"), inner="tune.sha(trials=3)", serving="scale.threshold"
        )
        self.driver = Driver(Desk(self.root, begin, script))
        self.accepted: set[int] = set()

    def teardown(self) -> None:
        desk = self.driver.desk
        desk.until_quiet()
        assert check_history(desk.journal) == desk.daemon.kernel.revision
        desk.close()
        shutil.rmtree(self.root)

    def ask(
        self, method: str, path: str, query: str = "", value: Any = None, key: bytes = b""
    ) -> Any:
        """Ask; no answer is the server's fault."""
        status, body = self.driver.call(
            method, path, query, raw(value) if value is not None else b"", key
        )
        assert 200 <= status < 500 or status == 503, (method, path, query, value, body[:2000])
        return status, body

    @rule(body=plain_jobs, key=st.sampled_from([b"", b"", b"k", b"\xff"]))
    def submit(self, body: dict[str, Any], key: bytes) -> None:
        status, answer = self.ask("POST", "/v1/jobs", "", body, key)
        if status == 201:
            self.accepted |= set(json.loads(answer)["jobs"])

    @rule(body=plain_jobs, more=bodies(JobRequest, 3), listed=st.booleans(), expect=st.booleans())
    def submit_something(
        self, body: dict[str, Any], more: dict[str, Any], listed: bool, expect: bool
    ) -> None:
        value = {**body, **more}
        status, answer = self.ask(
            "POST", "/v1/jobs", "expect=1" if expect else "", [value, value] if listed else value
        )
        if status == 201:
            self.accepted |= set(json.loads(answer)["jobs"])

    @rule(
        edge=st.one_of(
            st.tuples(st.sampled_from(TIMES), edges_of_time),
            st.tuples(st.sampled_from(AMOUNTS), st.sampled_from(EDGES)),
        )
    )
    def submit_at_an_edge(self, edge: tuple[str, Any]) -> None:
        value = {"command": ["true"], "hold": True, edge[0]: edge[1]}
        status, answer = self.ask("POST", "/v1/jobs", "", value)
        if status == 201:
            self.accepted |= set(json.loads(answer)["jobs"])

    @precondition(lambda self: self.accepted)
    @rule(
        data=st.data(),
        field=st.sampled_from(["time_limit", "estimate", "deadline", "priority"]),
        edge=st.one_of(edges_of_time, st.sampled_from(EDGES)),
    )
    def update_at_an_edge(self, data: st.DataObject, field: str, edge: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.accepted)))
        self.ask("PATCH", f"/v1/jobs/{job}", "", {field: edge})

    @rule(data=st.data(), one=st.sampled_from(OTHERS))
    def do_something(self, data: st.DataObject, one: Endpoint) -> None:
        known = st.sampled_from([str(job) for job in sorted(self.accepted)] or ["1"])
        path, query = one.path, ""
        for name in ("jobs", "nodes", "tenant", "token", "user"):
            if "{" + name + "}" in path:
                there = {"jobs": known, "nodes": st.just("box"), "tenant": st.just("t")}
                texts = odd_texts.filter(lambda text: "/" not in text and len(text) < 10_000)
                chosen = data.draw(st.one_of(there.get(name, st.just("ann")), texts))
                path = path.replace("{" + name + "}", chosen.encode(errors="ignore").decode())
        for name in data.draw(st.lists(st.sampled_from(["", *one.query]), max_size=2)):
            if name not in ("", "follow"):
                text = data.draw(odd_texts.filter(lambda text: len(text) < 10_000))
                query += f"&{name}={quote(text, errors='replace')}"
        value = data.draw(bodies(one.body, 3)) if one.body else None
        if one.path == "/v1/whatif" and value:
            value.pop("recipes", None)  # simulations of every recipe take their time
        status, answer = self.ask(one.method, path, query.lstrip("&"), value)
        if status == 201 and one.answer is Submitted:  # the same once more
            self.accepted |= set(json.loads(answer)["jobs"])

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), change=bodies(ENDPOINTS[4].body, 2))
    def update(self, data: st.DataObject, change: dict[str, Any]) -> None:
        job = data.draw(st.sampled_from(sorted(self.accepted)))
        self.ask("PATCH", f"/v1/jobs/{job}", "", change)

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        self.driver.desk.steps(steps)

    @rule()
    def restart(self) -> None:
        desk = self.driver.desk
        before = msgspec.msgpack.encode(capture(desk.daemon.kernel))
        header_before = desk.daemon.header
        self.driver = Driver(desk.again())
        daemon = self.driver.desk.daemon
        assert msgspec.msgpack.encode(capture(daemon.kernel)) == before
        assert daemon.header == header_before
        assert guard_of(daemon.kernel).differed == 0

    @invariant()
    def every_accepted_job_is_there(self) -> None:
        daemon = self.driver.desk.daemon
        jobs = daemon.kernel.jobs
        spawned = {row + 1 for row in range(jobs.n) if jobs.parent[row] >= 0}
        assert self.accepted | spawned == set(range(1, jobs.n + 1))
        assert len(daemon.names) == daemon.kernel.jobs.n

    @invariant()
    def nothing_had_to_be_set_aside(self) -> None:
        assert self.driver.desk.daemon.set_aside == []
        assert guard_of(self.driver.desk.daemon.kernel).error == ""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A bug that was caught is a failure here, too."""
    yield
    assert not [one for one in caplog.records if one.exc_info], caplog.text


def run_machine(examples: int, steps: int) -> None:
    Extremes.TestCase.settings = settings(
        settings.default,
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    Extremes.TestCase("runTest").runTest()


def test_whatever_is_asked_in_any_order() -> None:
    run_machine(30, 25)


@pytest.mark.soak
def test_whatever_is_asked_for_long() -> None:
    run_machine(many(2000), 60)
