"""Words that a terminal, a log, a letter, a path or a parser might obey."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks.http_rig import by_socket, eventually, request, sent
from cli.rig import Shell
from ganger.client.request import JobRequest
from ganger.client.shown import shown, shown_json
from ganger.core.errors import BadInput
from ganger.service.jobs.submission import (
    LINKS_MAX,
    LISTED_MAX,
    TEXT_BYTES_MAX,
    Who,
    prepare,
    refuse_too_many,
    size_of,
)
from ganger.service.notices.notify import Config, Webhook
from ganger.service.reports.rows import rows_listed, rows_of
from service.desk import Desk
from service.machines import Machine, wait_for

EVIL = [
    "\x1b[2J\x1b[1;1Hall is well",
    "a\nganger: done", "a\r\nBcc: eve@example.org", "\x9b31m", "\x07",
    "a\u2028b", "a\u2029b", "\u202egnp.exe", "a\u0000b", "\u200bhidden", "\ufeffmark", "\x7f",
]  # fmt: skip
"""What no list may show as it is."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("words") / "home")
    made.up()
    yield made
    made.end()


def asked(machine: Machine, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Over the Unix socket, as it is written."""
    data = b"" if body is None else json.dumps(body).encode()
    return sent(by_socket(machine.root), request(method, path, body=data))


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_names_are_words(machine: Machine, evil: str) -> None:
    for field in ("name", "tenant", "model", "pool"):
        status, said = asked(machine, "POST", "/v1/jobs", {"command": ["true"], field: evil})
        assert (status, field in json.loads(said)["where"]) == (400, True), said
    for field in ("labels", "gpu_types", "warm"):
        status, said = asked(machine, "POST", "/v1/jobs", {"command": ["true"], field: [evil]})
        assert status == 400, said
    status, _ = asked(machine, "POST", "/v1/jobs", {"command": ["true"], "mail_to": [f"a@{evil}"]})
    assert status == 400


def test_what_may_stand_in_a_command_obeys_nobody_on_a_terminal(tmp_path: Path) -> None:
    """A command and its folders may hold anything; lists show it as Python would write it."""
    shell = Shell(tmp_path)
    shell.said("up", "--gpus", "1", "--name", "box")
    try:
        for evil in EVIL[:4]:
            job = shell.submit("--hold", "--output", f"/nowhere/{evil}", "--", "true", evil)
            for words in (
                ("queue",),
                ("queue", "--json"),
                ("show", str(job)),
                ("explain", str(job)),
                ("show", str(job), "--json"),
                ("queue", "-o", "%i %j %Z"),
            ):
                said = shell.ganger(*words, code=2 if "%Z" in words[-1] else 0)
                for text in (said.stdout, said.stderr):
                    assert all(one.isprintable() for one in text.replace("\n", "")), ascii(text)
            assert shell.json("show", str(job))[0]["command"][1] == evil
            assert "\nganger: done" not in shell.said("show", str(job))
            shell.said("cancel", str(job))
        assert "\x1b" not in shell.ganger("show", "\x1b[2J", code=2).stderr
    finally:
        shell.said("down")


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_shown_text_is_one_printable_line_and_json_keeps_its_meaning(evil: str) -> None:
    assert shown(f"é 世 {evil}").isprintable()
    document = json.dumps({"é": evil}, ensure_ascii=False, indent=2)
    assert json.loads(shown_json(document)) == {"é": evil}
    assert shown_json(document).replace("\n", "").isprintable()
    assert shown_json('"\U000e0041"') == '"\\udb40\\udc41"'


PATHS = [
    "/v1/jobs/%2e%2e",
    "/v1/jobs/..%2f..%2fetc%2fpasswd/logs",
    "/v1/../v1/roles/../../etc/passwd",
    "/v1/jobs/1%00",
    "/v1/jobs/1%0d%0aX-Evil:%201",
    "/v1/jobs/%ff%fe",
    "/v1/jobs/1;2",
    "/v1/jobs/" + "1" * 12_000,
    "/v1/jobs/" + "1," * 6_000 + "1/wait",
    "/v1/jobs/-1",
    "/v1/jobs/+1",
    "/v1/jobs/1e3",
    "/v1/jobs/0x1",
    "/v1/jobs/1.0",
    "/v1/jobs/%D9%A1",
    "/v1/jobs/%EF%BC%91",
    "/v1/jobs/1_%D9%A1",
    "/v1/jobs/1_1_1",
    "/v1/jobs/_1",
    "/v1/jobs/1_",
    "/v1/jobs/1__1",
    "/v1/jobs/18446744073709551617",
    "/v1/jobs/,",
    "/v1/jobs/1,,1",
    "/v1/jobs/%20",
    "//v1/status",
    "/v1/nodes/..%2f/drain",
    "/v1/quotas/%0d%0a",
    "/v1/tokens/%2e%2e%2f",
    "/v1/admins/..%2froot",
    "/v1/events?since=" + "9" * 5_000,
    "/v1/events?since=%D9%A1",
    "/v1/jobs?jobs=" + "1," * 7_000,
    "/v1/jobs?limit=1e309",
    "/v1/jobs?offset=nan",
    "/v1/jobs?since=inf",
]


@pytest.mark.parametrize("path", PATHS, ids=[one[:40] for one in PATHS])
def test_tricks_with_paths_and_numbers_get_an_error_and_nothing_else(
    machine: Machine, path: str
) -> None:
    began = time.monotonic()
    for method in ("GET", "POST", "PATCH", "DELETE", "PUT"):
        connection = by_socket(machine.root)
        status, said = sent(connection, request(method, path, body=b"{}"))
        assert 400 <= status < 500 or (status == 200 and path.startswith("/v1/jobs?jobs=")), said
        assert b"\r\nX-Evil" not in said
        assert b"root:" not in said
    assert time.monotonic() - began < 5
    assert machine.client.call("GET", "/v1/status")["pid"]


WIDTHS = ["%99999999999j", "%999999999x", "%{}j".format("9" * 5000), "%100A"]


@pytest.mark.parametrize("width", WIDTHS, ids=[one[:12] for one in WIDTHS])
def test_no_width_in_a_path_takes_memory(tmp_path: Path, width: str) -> None:
    desk = Desk(tmp_path)
    tracemalloc.start()
    try:
        (row,) = desk.submit(output=f"/out/{width[:4000]}.txt", name="x")
        launch = desk.daemon.launch(row)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
        desk.close()
    assert launch.output == f"/out/{width[:4000]}.txt", "it is no pattern, so it stays"


def test_a_path_goes_where_it_says_and_a_name_adds_no_folder(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (row,) = desk.submit(output="/out/%4j-%x.txt", name="../../etc/x")
    assert desk.daemon.launch(row).output == "/out/0001-.._.._etc_x.txt"
    desk.close()


@pytest.mark.parametrize(
    "field", ["output", "error", "cwd", "checkpoint_dir", "script", "command", "env"]
)
def test_texts_have_an_end_and_no_zero_byte(tmp_path: Path, field: str) -> None:
    desk = Desk(tmp_path)
    for text in ("/x\0y", "/" + "x" * (5 << 20)):
        value: Any = {"script": f"#!{text}", "command": [text], "env": {"A": text}}.get(field, text)
        with pytest.raises(BadInput, match=r"zero byte|longer than"):
            desk.submit(**{field: value})
    with pytest.raises(BadInput, match="longer than 2 MiB"):
        desk.submit(env={f"A{i}": "x" * 100_000 for i in range(30)})
    desk.close()


def test_a_submission_waits_for_so_many_and_holds_so_much(tmp_path: Path) -> None:
    """Small requests must not become large ones: arrays after arrays, arrays with long scripts."""
    many = list(range(100_000))

    def ask(**fields: Any) -> None:
        prepare(JobRequest(command=["true"], **fields), Who("ann"), 0, lambda job: many, False)

    for fields in (
        {"after": ["1"] * 100},
        {"after_any": [str(i) for i in range(100)]},
        {"after": ["1"] * 6, "after_not_ok": ["1"] * 6},
    ):
        with pytest.raises(BadInput, match="counted one by one"):
            ask(**fields)
    with pytest.raises(BadInput, match="counted one by one"):
        prepare(
            JobRequest(command=["true"], after=["1"], array="0-99"),
            Who("ann"),
            0,
            lambda job: many[:20_000],
            False,
        )
    request = JobRequest(script="#!" + "x" * (2 << 20), array="0-999")
    with pytest.raises(BadInput, match="exceed 256 MiB"):
        prepare(request, Who("ann"), 0, lambda job: [], False)
    few = JobRequest(command=["true", "xx"], env={"A": "b"}, after=["1"], array="0-9")
    jobs = prepare(few, Who("ann"), 0, lambda job: [0, 1], False)
    assert size_of(jobs, few) == (20, 80)
    for links, text in ((LINKS_MAX + 1, 0), (0, TEXT_BYTES_MAX + 1)):
        with pytest.raises(BadInput):
            refuse_too_many(links, text)  # of many requests together


@pytest.mark.parametrize("field", LISTED_MAX)
def test_lists_of_a_request_are_short(field: str) -> None:
    """A shape of 300,000 GPU types would be compared at every decision; a letter to 100,000
    addresses would be filed for every job of an array."""
    one = {"mail_to": "ann@lab.example", "mail_on": "failed"}.get(field, "A100")
    most = LISTED_MAX[field]
    for number in (most, most + 1):
        request = JobRequest(command=["true"], **{field: [one] * number})  # type: ignore[arg-type]
        if number == most:
            assert prepare(request, Who("ann"), 0, lambda job: [], False)
        else:
            with pytest.raises(BadInput, match=f"more than {most}"):
                prepare(request, Who("ann"), 0, lambda job: [], False)


def test_braces_do_not_grow_without_end(tmp_path: Path) -> None:
    """Values that name other parameters, or a long value put in a million times, would fill the
    memory when the job is launched."""
    desk = Desk(tmp_path)
    long = "x" * 4096
    with pytest.raises(BadInput, match="longer than 2 MiB"):
        desk.submit(command=["echo", "{a}" * 40_000], params={"a": [long]})
    with pytest.raises(BadInput, match="longer than 2 MiB"):
        desk.submit(params={"a": [f"{i}{long[9:]}" for i in range(600)]})
    with pytest.raises(BadInput, match="longer than 2 MiB"):
        desk.submit(kind="tune", command=["echo", "{a}" * 40_000], configurations=[{"a": long}])
    row = desk.submit(command=["echo", "{a}"], params={"a": ["{b}{b}"], "b": ["{name}"]})[0]
    assert desk.daemon.launch(row).command == ("echo", "{b}{b}")
    request = JobRequest(command=["true"], params={"a": [f"{i}" + long[4:] for i in range(500)]})
    jobs = prepare(request, Who("ann"), 0, lambda job: [], False)
    assert size_of(jobs, request)[1] > 2_000_000
    desk.close()


def test_a_search_of_many_trials_holds_so_much_text() -> None:
    """Each configuration is kept written out: 2 MB of parameters were 18 GiB in the journal."""
    params = {"a": [str(number) for number in range(10_000)]}
    params |= {f"p{number}": ["x" * 4000] for number in range(500)}
    with pytest.raises(BadInput, match="exceed 256 MiB"):
        prepare(
            JobRequest(kind="tune", command=["true"], params=params),
            Who("ann"),
            0,
            lambda job: [],
            False,
        )
    request = JobRequest(kind="tune", command=["true"], params={"a": ["1", "22"], "bc": ["333"]})
    jobs = prepare(request, Who("ann"), 0, lambda job: [], False)
    assert jobs[0].facts.family is not None
    listed = JobRequest(
        kind="tune", command=["true"], configurations=list(jobs[0].facts.family.configurations)
    )
    again = prepare(listed, Who("ann"), 0, lambda job: [], False)
    texts = [size_of(jobs, request)[1], size_of(again, listed)[1]]
    assert texts[1] == len("true") + len("a1bc333") + len("a22bc333")
    assert texts[0] == texts[1] + len("a22bc333")  # and the values themselves, once


def test_many_words_and_many_values_are_not_looked_at_word_by_word() -> None:
    """For each word of the command all values were measured again: a request of 3 MB held the
    daemon for many minutes."""
    values = {"a": [str(number) for number in range(50_000)]}
    request = JobRequest(command=["a"] * 500_000, params=values)
    began = time.process_time()
    assert len(prepare(request, Who("ann"), 0, lambda job: [], False)) == 50_000
    assert time.process_time() - began < 60


def test_no_parameter_adds_a_folder_to_a_path(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    row = desk.submit(output="/logs/{a}.txt", params={"a": ["../../etc/passwd"]})[0]
    assert desk.daemon.launch(row).output == "/logs/.._.._etc_passwd.txt"
    desk.close()


def test_an_array_named_many_times_is_one_array(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    rows = desk.submit(array="0-999")
    named = ",".join(["1", "01", " 1", "001"] * 1000)
    assert rows_listed(desk.daemon, named) == rows
    with pytest.raises(BadInput, match="more than 1000 jobs"):
        rows_listed(desk.daemon, ",".join(map(str, range(1, 1500))))
    for odd in ("\u0661", "1_\u0661", "\uff11", "1\u00a0", "1\n2", "²"):
        if odd != "1\u00a0":  # a space, as others around it
            with pytest.raises(BadInput):
                rows_of(desk.daemon, odd)
    desk.close()


def test_tasks_are_found_at_once_and_only_where_they_are(tmp_path: Path) -> None:
    """An array that waits task by task for another one asks for each of its tasks."""
    desk = Desk(tmp_path)
    desk.submit()
    first = desk.submit(array="3-30:3")
    desk.submit()
    second = desk.submit(array="0-4")
    for head, tasks, rows in ((first[0], range(3, 31, 3), first), (second[0], range(5), second)):
        for task in range(40):
            if task in tasks:
                found = rows_of(desk.daemon, f"{head + 1}_{task}")
                assert found == [rows[list(tasks).index(task)]]
            else:
                with pytest.raises(BadInput, match="no job"):
                    rows_of(desk.daemon, f"{head + 1}_{task}")
    desk.close()


def test_lists_of_requests_have_an_end(machine: Machine) -> None:
    for body in (
        b"[" + b",".join([b'{"command":["x"]}'] * 100_001) + b"]",
        b"[]",
        b" [ ] ",
        b'[{"command": ["' + b"x" * (17 << 20) + b'"]}]',
        b'[{"command": ["x"]}, 7]',
        b"[null]",
        b'{"command":["x"]}]',
        b'[{"command":["x"]}',
    ):
        status, said = sent(by_socket(machine.root), request("POST", "/v1/jobs", body=body))
        assert status == 400, said
    whole = b'\n[{"command": ["x"], "gpus": 1.0, "hold": true}]'
    assert sent(by_socket(machine.root), request("POST", "/v1/jobs", body=whole))[0] == 201


def test_an_array_is_submitted_by_itself(machine: Machine) -> None:
    """In a list two of them would have had one number."""
    one = {"command": ["true"], "hold": True}
    for body in ([one, {**one, "array": "0-1"}], [{**one, "array": "0-1"}] * 2):
        status, said = asked(machine, "POST", "/v1/jobs", body)
        assert (status, json.loads(said)["where"]) == (400, "array")
    status, _ = asked(machine, "POST", "/v1/jobs", [{**one, "array": "0-1"}])
    assert status == 201


def test_who_hangs_up_in_the_middle_leaves_no_traceback(machine: Machine) -> None:
    for _ in range(3):
        connection = by_socket(machine.root)
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n"
        connection.sendall(head + b'{"command"')
        connection.close()
    assert machine.client.call("GET", "/v1/status")["pid"]
    assert "Traceback" not in machine.said()


@pytest.mark.parametrize("text", ["0-7%" + "9" * 5000, "0-7%\u0661", "\u0661-\u0663", "0-7%1e3"])
def test_task_lists_are_plain_digits(tmp_path: Path, text: str) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(BadInput, match="tasks"):
        desk.submit(array=text)
    desk.close()


# ---------------------------------------------------------------------- where messages go


class Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends everybody on to another server, that is none of their business."""

    to = ""
    asked: list[str] = []  # noqa: RUF012 - the server makes the handlers

    def do_POST(self) -> None:
        """Redirect, or note that somebody came."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Redirecting.asked.append(self.path)
        self.send_response(307 if self.path == "/hook" else 200)
        self.send_header("Location", f"{self.to}/inside")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Quiet."""


def test_a_webhook_goes_to_the_address_in_the_file_and_nowhere_else(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    Redirecting.to = url
    machine = Machine(tmp_path / "home")
    machine.root.mkdir(mode=0o700)
    (machine.root / "notify.toml").write_text(f'[[webhook]]\nurl = "{url}/hook"\n')
    client = machine.up()
    try:
        job = client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 0})["job"]
        wait_for(client, [job])
        assert eventually(lambda: len(Redirecting.asked) >= 2)
        assert set(Redirecting.asked) == {"/hook"}
        sinks = client.call("GET", "/v1/notify")["sinks"]
        assert sinks[0]["waiting"] >= 1
    finally:
        machine.end()
        server.shutdown()
        server.server_close()


def test_no_request_names_an_address(machine: Machine) -> None:
    """Webhooks stand in a file of the daemon's own folder; the API has no field for them."""
    document = asked(machine, "GET", "/openapi.json")[1].decode()
    assert re.findall(r'"[^"]*(?:url|webhook|callback)[^"]*"\s*:', document, re.IGNORECASE) == []
    mode = (machine.root / "notify.toml").parent.stat().st_mode
    assert not mode & 0o077 or os.getuid() != machine.root.stat().st_uid


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x/",
        "gopher://x:25/",
        "http://",
        "http://[",
        "http://x:99999/",
        "http://x/\r\nX: y",
        "http://x y/",
        "http://x/\x00",
        "unix:///run/x.sock",
        "http://x:0/",
        "//x/",
        "http://\u202ex/",
    ],
)
def test_what_is_no_address_is_refused_when_it_is_read(url: str) -> None:
    with pytest.raises(BadInput, match="not a valid address"):
        Config(webhook=(Webhook(url=url),)).check("notify.toml")
