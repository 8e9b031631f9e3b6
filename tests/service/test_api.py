"""The HTTP API of a real daemon: what it answers to what should not be asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ganger.client.connection import Client, NoDaemon, Refusal
from ganger.service.durable.journal import Journal
from ganger.service.home import Home
from ganger.service.http.api import openapi
from ganger.service.http.endpoints import ENDPOINTS
from ganger.service.jobs.roles import SETTING as ROLES
from ganger.service.jobs.roles import Roles
from ganger.service.reports.dashboard import dashboard
from service.machines import Machine, wait_for
from waiting import until
from worlds import open_way


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("api") / "home", fresh=True, listen="127.0.0.1:0")
    made.up()
    yield made
    made.end()


@pytest.fixture
def client(machine: Machine) -> Client:
    return machine.client


def asked(
    machine: Machine,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """A raw request over the Unix socket."""
    connection = http.client.HTTPConnection("daemon")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    folder = os.open(machine.root, os.O_RDONLY)
    connection.sock.connect(f"/proc/self/fd/{folder}/daemon.sock")
    os.close(folder)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, data


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'"x"',
    b"\xff\xfe",
    b'{"command": "ls"}',
    b'{"command": [1]}',
    b'{"command": []}',
    b'{"command": ["x"], "gpus": "2"}',
    b'{"command": ["x"], "gups": 2}',
    b'{"command": ["x"], "gpus": 99}',
    b'{"command": ["x"], "gpus": -1}',
    b'{"command": ["x"], "after": ["77"]}',
    b'{"command": ["x"], "after": ["../etc"]}',
    b'{"command": ["x"], "array": "0-999999"}',
    b'{"command": ["x"], "gpu_types": ["Z9"]}',
    b'[{"command": ["x"]}, {"command": ["x"], "gpus": 99}]',
    b'{"command": ["x"], "env": {"=": ""}}',
    b'{"command": ["x\\u0000y"]}',
    b'{"command": ["x"], "time_limit": "NaN"}',
    b'{"command": ["x"], "begin": 1e400}',
    b"[" * 5000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_malformed_submissions_change_nothing(machine: Machine, body: bytes) -> None:
    before = machine.client.call("GET", "/v1/jobs", query={"state": "all"})["total"]
    status, headers, data = asked(machine, "POST", "/v1/jobs", body)
    assert status in (400, 404), data
    assert headers["content-type"] == "application/problem+json"
    problem = json.loads(data)
    assert problem["status"] == status
    assert problem["detail"]
    assert machine.client.call("GET", "/v1/jobs", query={"state": "all"})["total"] == before


WRONG = [
    ("GET", "/v1/jobs/99", 404), ("GET", "/v1/jobs/x", 400), ("GET", "/v1/jobs/1_2_3", 400),
    ("GET", "/v1/jobs?limit=many", 400), ("GET", "/v1/jobs?limit=-1", 400),
    ("GET", "/v1/jobs?state=sleepy", 400), ("GET", "/v1/jobs?offset=1e99", 400),
    ("POST", "/v1/jobs/99/cancel", 404), ("POST", "/v1/jobs/99/explode", 404),
    ("GET", "/v1/jobs/99/logs", 404), ("GET", "/v1/jobs/99/explain", 404),
    ("POST", "/v1/nodes/nowhere/drain", 404), ("DELETE", "/v1/jobs", 405), ("GET", "/v2/jobs", 404),
    ("PUT", "/v1/policy", 400), ("PATCH", "/v1/jobs/99", 400), ("GET", "/v1/events?since=x", 400),
    ("GET", "/v1/jobs/" + "9" * 400, 400), ("GET", "/v1/jobs/%00", 400),
    ("POST", "/v1/whatif", 200), ("GET", "/v1/jobs?limit=nan", 400),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "expected"), WRONG)
def test_wrong_paths_and_queries(machine: Machine, method: str, path: str, expected: int) -> None:
    status, headers, data = asked(machine, method, path)
    assert status == expected, data
    if expected >= 400:
        assert headers["content-type"] == "application/problem+json"


@settings(max_examples=60)
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["gpus", "array", "after", "env", "time_limit", "memory", "x", "warm"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
)
def test_no_body_breaks_it(machine: Machine, body: Any) -> None:
    for method, path in (
        ("POST", "/v1/jobs"),
        ("PUT", "/v1/policy"),
        ("PATCH", "/v1/jobs/1"),
        ("POST", "/v1/whatif"),
        ("POST", "/v1/shutdown"),
    ):
        if path == "/v1/shutdown" and body in ({}, None):
            continue
        status, _, data = asked(machine, method, path, json.dumps(body).encode())
        assert status < 500, data
        if path == "/v1/shutdown":
            assert status == 400


def test_a_history_longer_than_time_is_refused(client: Client) -> None:
    with pytest.raises(Refusal, match=r"<= 36500.*history_days") as refused:
        client.call("POST", "/v1/whatif", body={"history_days": 9.4e298})
    assert refused.value.status == 400


def test_a_submission_too_large_is_refused(machine: Machine) -> None:
    body = b'{"command": ["' + b"x" * (33 << 20) + b'"]}'
    status, _, data = asked(machine, "POST", "/v1/jobs", body)
    assert (status, b"32 MiB" in data) == (400, True)


def test_an_idempotency_key_submits_once(client: Client) -> None:
    body = {"command": ["true"]}
    keyed = {"Idempotency-Key": "one"}
    first = client.call("POST", "/v1/jobs", body=body, headers=keyed)
    assert client.call("POST", "/v1/jobs", body=body, headers=keyed)["job"] == first["job"]
    with pytest.raises(Refusal, match="another request"):
        client.call("POST", "/v1/jobs", body={"command": ["false"]}, headers=keyed)
    wait_for(client, [first["job"]])


def test_pages_are_complete_and_in_order(client: Client) -> None:
    body = {"command": ["true"], "array": "0-24", "hold": True, "name": "paged"}
    made = client.call("POST", "/v1/jobs", body=body)["jobs"]
    seen: list[int] = []
    offset: int | None = 0
    while offset is not None:
        page = client.call("GET", "/v1/jobs", query={"name": "paged", "limit": 7, "offset": offset})
        assert page["total"] == 25
        seen += [job["job"] for job in page["jobs"]]
        offset = page["next"]
    assert seen == made
    client.call("POST", f"/v1/jobs/{made[0]}/cancel")
    assert client.call("GET", "/v1/jobs", query={"name": "paged"})["total"] == 0


def test_tcp_wants_the_token(machine: Machine) -> None:
    address = machine.client.call("GET", "/v1/status")["listen"]
    token_file = machine.root / "token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    token = token_file.read_text().strip()
    assert token not in (machine.root / "journal.db").read_bytes().decode("latin-1")
    for wrong in ("", "x", token[:-1], token + "x"):
        with Client(url=f"http://{address}", token=wrong) as stranger, pytest.raises(Refusal) as no:
            stranger.call("GET", "/v1/status")
        assert no.value.status == 401
    with Client(url=f"http://{address}", token=token) as friend:
        assert (
            friend.call("GET", "/v1/status")["pid"]
            == machine.client.call("GET", "/v1/status")["pid"]
        )


def test_the_socket_and_the_folder_are_the_owners(machine: Machine) -> None:
    assert stat.S_IMODE((machine.root / "daemon.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((machine.root / "journal.db").stat().st_mode) == 0o600


def test_no_shell_reads_names_words_or_variables(client: Client, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/a); `touch {tmp_path}/b` && touch {tmp_path}/c #'\"\\ {{x}}"
    body = {
        "command": ["printf", "%s", evil],
        "name": evil[:100],
        "env": {"E": evil},
        "output": str(tmp_path / "out"),
        "cwd": str(tmp_path),
    }
    job = client.call("POST", "/v1/jobs", body=body)["job"]
    assert wait_for(client, [job])[0]["state"] == "COMPLETED"
    assert (tmp_path / "out").read_text() == evil
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_a_script_runs_as_it_was_when_it_was_submitted(client: Client) -> None:
    script = "#!/bin/sh\necho $1 $GANGER_JOB_NAME\n"
    body = {"script": script, "command": ["hello"], "name": "greets"}
    job = client.call("POST", "/v1/jobs", body=body)["job"]
    text = b"".join(client.stream(f"/v1/jobs/{job}/logs", {"follow": "1"}))
    assert text == b"hello greets\n"


def test_logs_follow_and_tail(client: Client) -> None:
    command = ["sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done; echo oops >&2"]
    job = client.call("POST", "/v1/jobs", body={"command": command})["job"]
    followed = b"".join(client.stream(f"/v1/jobs/{job}/logs", {"follow": "1"}))
    assert followed.startswith(b"line 1\n")
    assert followed.endswith(b"line 5\noops\n")
    wait_for(client, [job])
    assert b"".join(client.stream(f"/v1/jobs/{job}/logs", {"lines": 2})) == b"line 5\noops\n"
    with pytest.raises(Refusal, match="stream"):
        list(client.stream(f"/v1/jobs/{job}/logs", {"stream": "thoughts"}))


def test_events_tell_a_jobs_life(machine: Machine) -> None:
    revision = machine.client.call("GET", "/v1/status")["revision"]
    states: list[str] = []
    done = threading.Event()

    def listen() -> None:
        with Client(machine.root) as listener:
            for chunk in listener.stream("/v1/events", {"since": revision}):
                data = [line[6:] for line in chunk.splitlines() if line.startswith(b"data: ")]
                states.extend(json.loads(line)["state"] for line in data)
                if "COMPLETED" in states:
                    done.set()
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    machine.client.call("POST", "/v1/jobs", body={"command": ["true"]})
    assert done.wait(10)
    thread.join()
    assert states == ["CONFIGURING", "RUNNING", "COMPLETED"]


def test_prometheus_can_read_it(client: Client) -> None:
    wait_for(client, [client.call("POST", "/v1/jobs", body={"command": ["true"]})["job"]])
    text = b"".join(client.stream("/metrics")).decode()
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert set(families) >= {
        "ganger_jobs",
        "ganger_gpus",
        "ganger_job_wait_seconds",
        "ganger_job_slowdown_ratio",
        "ganger_preemptions",
        "ganger_gpu_seconds",
        "ganger_decision_duration_seconds",
        "ganger_plan_refusals",
        "ganger_build_info",
    }
    steps = families["ganger_decision_duration_seconds"]
    counted = next(one.value for one in steps.samples if one.name.endswith("_count"))
    assert counted > 0
    assert {tuple(one.labels) for one in families["ganger_jobs"].samples} == {("phase", "tenant")}
    outcomes = {one.labels["outcome"] for one in families["ganger_gpu_seconds"].samples}
    assert outcomes == {"useful", "lost", "idle"}


def test_every_query_of_the_dashboard_has_its_figures(client: Client) -> None:
    wait_for(client, [client.call("POST", "/v1/jobs", body={"command": ["true"]})["job"]])
    text = b"".join(client.stream("/metrics")).decode()
    assert 'ganger_gpus{kind="simulated",state="free"}' in text
    assert "ganger_job_wait_seconds_bucket" in text
    assert re.search(r'ganger_jobs{[^}]*phase="finished"', text)
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        samples.setdefault(family.name + "_total" * (family.type == "counter"), set())
        for one in family.samples:
            samples.setdefault(one.name, set()).update(one.labels)
    samples["ganger_plan_refusals_total"] = {"reason"}  # nothing was refused yet
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    for query in queries:
        names = re.findall(r"ganger_\w+", query)
        assert names
        labels: set[str] = set()
        for name in names:
            assert name in samples, f"{name} of {query}"
            labels |= samples[name]
        wanted = re.findall(r"by \(([^)]*)\)", query) + re.findall(r"\{(\w+)=", query)
        assert {label.strip() for part in wanted for label in part.split(",")} <= labels, query


def test_openapi_describes_every_endpoint(client: Client) -> None:
    document = client.call("GET", "/openapi.json")
    assert document == json.loads(msgspec.json.encode(openapi()))
    assert document["openapi"] == "3.1.0"
    for one in ENDPOINTS:
        operation = document["paths"][one.path][one.method.lower()]
        assert operation["summary"], one.path
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text
    for reference in set(json.loads(json.dumps(text.split('"#/components/schemas/')[1:]))):
        assert reference.split('"')[0] in document["components"]["schemas"]


def test_a_second_daemon_refuses(machine: Machine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ganger.service", msgspec.json.encode(machine.settings).decode()],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "a daemon runs there already" in done.stderr
    assert "Traceback" not in done.stderr
    assert machine.client.call("GET", "/v1/status")["revision"] >= 0


def test_drain_and_resume(client: Client) -> None:
    node = client.call("GET", "/v1/nodes")[0]["name"]
    assert client.call("POST", f"/v1/nodes/{node}/drain")[0]["state"] == "drained"
    job = client.call("POST", "/v1/jobs", body={"command": ["true"]})["job"]
    found = client.call("GET", f"/v1/jobs/{job}/explain")
    assert found["reason"] == "Resources"
    assert f"Out of use: {node}." in found["lines"]
    client.call("POST", f"/v1/nodes/{node}/resume")
    assert wait_for(client, [job])[0]["state"] == "COMPLETED"


def test_a_policy_is_tried_before_it_decides(client: Client) -> None:
    with pytest.raises(Refusal, match="no recipe"):
        client.call("PUT", "/v1/policy", body={"recipe": "nonsense"})
    with pytest.raises(Refusal, match="give 1 s or more"):
        client.call("PUT", "/v1/policy", body={"recipe": "las(quantum=1us)"})
    trial = client.call("PUT", "/v1/policy", body={"recipe": "srtf", "dry_run": True})
    assert trial["dry_run"]
    assert client.call("GET", "/v1/policy")["recipe"] == "fifo"
    job = client.call("POST", "/v1/jobs", body={"command": ["sleep", "0.3"]})["job"]
    client.call("PUT", "/v1/policy", body={"recipe": "srtf"})
    assert client.call("GET", "/v1/policy")["recipe"] == "srtf"
    assert wait_for(client, [job])[0]["state"] == "COMPLETED"
    client.call("PUT", "/v1/policy", body={"recipe": "fifo"})


def test_a_service_that_a_recipe_scales_is_no_array(client: Client) -> None:
    """Its tasks would hold nothing and have no replicas."""
    body = {"command": ["sleep", "60"], "kind": "serve", "gpus": 1}
    client.call("PUT", "/v1/policy", body={"recipe": "fifo", "serving": "scale.threshold"})
    for tasks in ({"array": "0-1"}, {"params": {"lr": ["1", "2"]}}):
        with pytest.raises(Refusal, match="a service is one job"):
            client.call("POST", "/v1/jobs", body={**body, **tasks})
    client.call("PUT", "/v1/policy", body={"recipe": "fifo", "serving": "none"})


def test_orders_on_running_jobs(client: Client) -> None:
    body = {"command": ["sleep", "60"], "grace": "1s"}
    job = client.call("POST", "/v1/jobs", body=body)["job"]

    def until(state: str) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found: dict[str, Any] = client.call("GET", f"/v1/jobs/{job}")[0]
            if found["state"] == state:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{found['state']}, not {state}")

    until("RUNNING")
    client.call("POST", f"/v1/jobs/{job}/suspend")
    until("SUSPENDED")
    client.call("POST", f"/v1/jobs/{job}/resume")
    until("RUNNING")
    client.call("PATCH", f"/v1/jobs/{job}", body={"priority": 5, "time_limit": "1h"})
    found = client.call("GET", f"/v1/jobs/{job}")[0]
    assert (found["priority"], found["time_limit"]) == (5, 3600.0)
    client.call("POST", f"/v1/jobs/{job}/requeue")
    deadline = time.monotonic() + 10
    while client.call("GET", f"/v1/jobs/{job}")[0]["attempt"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    until("RUNNING")
    client.call("POST", f"/v1/jobs/{job}/cancel")
    assert until("CANCELLED")["exit_code"] == 130


def test_nobody_home(tmp_path: Path) -> None:
    with Client(tmp_path) as client, pytest.raises(NoDaemon, match="ganger up"):
        client.call("GET", "/v1/status")


@pytest.mark.skipif(os.getuid() != 0, reason="two users need root")
def test_in_shared_mode_users_are_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("shared")
    open_way(base)
    machine = Machine(base / "home", shared=True)
    root = machine.up()
    try:
        script = (
            "import json,os,sys,encodings.idna;from pathlib import Path\n"
            "from ganger.client.connection import Client,Refusal\n"
            "os.setgid(65534);os.setuid(int(sys.argv[2]));c=Client(Path(sys.argv[1]));out=[]\n"
            "for m,p,b in json.loads(sys.argv[3]):\n"
            "    try: out.append([200,c.call(m,p,body=b)])\n"
            "    except Refusal as e: out.append([e.status,str(e)])\n"
            "print(json.dumps(out))"
        )

        def as_user(uid: int, *calls: tuple[str, str, Any]) -> list[Any]:
            done = subprocess.run(
                [sys.executable, "-c", script, str(machine.root), str(uid), json.dumps(calls)],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
                cwd="/",
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        body = {"command": ["sh", "-c", "id -u; sleep 30"]}
        ((code, answer),) = as_user(65533, ("POST", "/v1/jobs", body))
        assert code == 200
        job = answer["job"]
        theirs = (f"/v1/jobs/{job}", f"/v1/jobs/{job}/logs", f"/v1/jobs/{job}/explain")
        for code, said in as_user(65532, *(("GET", path, None) for path in theirs)):
            assert code == 403, said
        node = root.call("GET", "/v1/nodes")[0]["name"]
        denied = as_user(
            65532,
            ("POST", f"/v1/jobs/{job}/cancel", None),
            ("POST", "/v1/shutdown", {}),
            ("POST", f"/v1/nodes/{node}/drain", None),
            ("PUT", "/v1/policy", {"recipe": "fifo"}),
        )
        assert [code for code, _ in denied] == [403] * 4
        name = next(one.pw_name for one in pwd.getpwall() if one.pw_uid == 65534)
        root.call("PUT", f"/v1/admins/{name}")
        allowed = as_user(
            65534,
            ("POST", f"/v1/nodes/{node}/drain", None),
            ("POST", f"/v1/nodes/{node}/resume", None),
        )
        assert [code for code, _ in allowed] == [200, 200]
        root.call("DELETE", f"/v1/admins/{name}")
        ((code, _),) = as_user(65534, ("POST", f"/v1/nodes/{node}/drain", None))
        assert code == 403
        deadline = time.monotonic() + 10
        while b"65533\n" not in b"".join(root.stream(f"/v1/jobs/{job}/logs")):
            assert time.monotonic() < deadline, "the job does not run as its submitter"
            time.sleep(0.05)
        stolen = {"command": ["true"], "output": "/etc/shadow"}
        ((_, answer),) = as_user(65533, ("POST", "/v1/jobs", stolen))
        wait_for(root, [answer["job"]])
        denied = as_user(
            65533,
            ("GET", f"/v1/jobs/{answer['job']}/logs", None),
            ("POST", "/v1/whatif", {"recipes": ["/tmp/mine.py:Policy"]}),
            ("POST", "/v1/whatif", {"add": "/etc/shadow"}),
        )
        assert [code for code, _ in denied] == [400, 403, 403]
        log = next((machine.root / "agent" / "logs").glob("*.log"))
        assert stat.S_IMODE(log.stat().st_mode) & 0o077 == 0
        assert as_user(65533, ("POST", f"/v1/jobs/{job}/cancel", None))[0][0] == 200
        wait_for(root, [job])
    finally:
        machine.end()


@pytest.mark.skipif(os.getuid() != 0, reason="two users need root")
def test_roles_over_tcp(tmp_path: Path) -> None:
    open_way(tmp_path)
    machine = Machine(tmp_path / "home", listen="127.0.0.1:0", shared=True)
    owner = machine.up()
    try:
        url = "http://" + owner.call("GET", "/v1/status")["listen"]
        made = {
            role: owner.call("POST", "/v1/tokens", body={"user": name, "role": role})
            for name, role in (("nobody", "user"), ("daemon", "admin"))
        }
        user, admin = (Client(url=url, token=made[role]["token"]) for role in ("user", "admin"))
        sleeps = {"command": ["sleep", "60"], "gpus": 0}
        mine = user.call("POST", "/v1/jobs", body=sleeps)["job"]
        theirs = owner.call("POST", "/v1/jobs", body=sleeps)["job"]
        assert user.call("GET", f"/v1/jobs/{mine}")[0]["user"] == "nobody"
        node = owner.call("GET", "/v1/nodes")[0]["name"]
        for method, path, body in (
            ("POST", f"/v1/jobs/{theirs}/cancel", None),
            ("GET", f"/v1/jobs/{theirs}/logs", None),
            ("POST", f"/v1/nodes/{node}/drain", None),
            ("PUT", "/v1/policy", {"recipe": "las"}),
            ("POST", "/v1/shutdown", {}),
            ("PATCH", "/v1/quotas/x", {"limit": 1}),
            ("POST", "/v1/tokens", {"user": "eve"}),
            ("GET", "/v1/roles", None),
            ("PUT", "/v1/admins/nobody", None),
        ):
            with pytest.raises(Refusal) as refused:
                user.call(method, path, body=body)
            assert refused.value.status == 403, path
        assert user.call("POST", f"/v1/jobs/{mine}/cancel")["jobs"] == [mine]
        assert admin.call("POST", f"/v1/jobs/{theirs}/cancel")["jobs"] == [theirs]
        secret = made["user"]["token"].encode()
        for file in machine.root.rglob("*"):
            assert not file.is_file() or secret not in file.read_bytes(), file
        machine.kill()
        machine.up()
        url = "http://" + owner.call("GET", "/v1/status")["listen"]
        again = Client(url=url, token=made["user"]["token"])
        assert again.call("GET", "/v1/policy")["recipe"] == "fifo"
        left = owner.call("DELETE", f"/v1/tokens/{made['user']['id']}")["tokens"]
        assert [one["user"] for one in left] == ["daemon"]
        assert not any("token" in one for one in left)
        with pytest.raises(Refusal) as refused:
            again.call("GET", "/v1/status")
        assert refused.value.status == 401
        with pytest.raises(Refusal, match="has no user"):
            owner.call("POST", "/v1/tokens", body={"user": "a b"})
        for client in (user, admin, again):
            client.close()
    finally:
        machine.end()


def test_a_token_of_a_personal_daemon_does_everything_or_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home", listen="127.0.0.1:0")
    owner = machine.up()
    try:
        with pytest.raises(Refusal, match="run as the daemon's user"):
            owner.call("POST", "/v1/tokens", body={"user": "ann"})
        with pytest.raises(Refusal, match="not a valid user name"):
            owner.call("POST", "/v1/tokens", body={"user": "a b", "role": "admin"})
        assert owner.call("POST", "/v1/tokens", body={"user": "ann", "role": "admin"})["token"]
        machine.kill()
        with contextlib.closing(Journal(machine.root / "journal.db")) as journal:
            roles, token = Roles.kept(journal).with_token("eve", "user")
            journal.set(ROLES, msgspec.json.encode(roles).decode())  # by a version that made it
        machine.up()
        status = owner.call("GET", "/v1/status")
        assert any(roles.tokens[-1].id in said for said in status["trouble"])
        with Client(url=f"http://{status['listen']}", token=token) as eve:
            with pytest.raises(Refusal) as refused:
                eve.call("GET", "/v1/status")
            assert refused.value.status == 401
    finally:
        machine.end()


def _text(client: Client, job: int, query: dict[str, Any]) -> bytes:
    """A job's output."""
    return b"".join(client.stream(f"/v1/jobs/{job}/logs", query))


def _logs_of_another_machine(client: Client, home: Path) -> int:
    """Run a script there, and read what it wrote, as it comes and afterwards; its number."""
    client.call("POST", "/v1/nodes/head/drain")
    script = "#!/bin/sh\necho begun $1 as $0; echo wrong >&2\n" + (
        "while [ ! -e $GANGER_CHECKPOINT_DIR/go ]; do sleep .02; done\necho done\n"
    )
    body = {"script": script, "command": ["well"], "gpus": 1, "error": str(home / "error")}
    job: int = client.call("POST", "/v1/jobs", body=body)["job"]
    followed = client.stream(f"/v1/jobs/{job}/logs", {"follow": "1"})
    first = next(followed)
    assert first.startswith(f"begun well as {home}/attempts/".encode())
    (home / "checkpoints" / str(job - 1) / "go").touch()
    assert b"".join(followed) == b"done\n"
    assert wait_for(client, [job])[0]["state"] == "COMPLETED"
    assert _text(client, job, {}) == first + b"done\n"
    assert _text(client, job, {"lines": 1, "node": "other"}) == b"done\n"
    assert _text(client, job, {"stream": "error"}) == b"wrong\n"
    with pytest.raises(Refusal, match=r"did not run on head .it ran on other"):
        _text(client, job, {"node": "head"})
    return job


def test_agents_of_other_machines_join(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    machine = Machine(tmp_path / "home", agents=f"127.0.0.1:{port}", name="head")
    client = machine.up()
    command = [
        sys.executable,
        "-m",
        "ganger.cli",
        "agent",
        "--join",
        f"127.0.0.1:{port}",
        "--gpus",
        "4",
        "--token-file",
        str(machine.root / "agent-token"),
        "--name",
        "other",
        "--home",
        str(tmp_path / "other"),
    ]
    agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 15
        while len(client.call("GET", "/v1/nodes")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        words = ["sh", "-c", "echo $RANK of $WORLD_SIZE > $0.$RANK", str(tmp_path / "rank")]
        body = {"command": words, "gpus": 8, "nodes": 2}
        job = client.call("POST", "/v1/jobs", body=body)["job"]
        assert wait_for(client, [job])[0]["state"] == "COMPLETED"
        assert [(tmp_path / f"rank.{i}").read_text() for i in (0, 1)] == ["0 of 2\n", "1 of 2\n"]
        far = _logs_of_another_machine(client, tmp_path / "other")
        machine.kill()  # the grown cluster is there again after a restart
        assert [node["name"] for node in machine.up().call("GET", "/v1/nodes")] == ["head", "other"]
        client.call("POST", "/v1/nodes/head/resume")
        job = client.call("POST", "/v1/jobs", body=body)["job"]
        assert wait_for(client, [job])[0]["state"] == "COMPLETED"
        agent.terminate()
        agent.wait()
        with pytest.raises(Refusal, match=r"machine 'other'.*away"):
            _text(client, far, {})
    finally:
        agent.terminate()
        agent.wait()
        machine.end()


def test_a_killed_daemons_home_is_taken_once_its_last_child_lets_go(tmp_path: Path) -> None:
    held = "import fcntl, sys, time; file = open(sys.argv[1], 'ab'); fcntl.flock(file, 2); print(1)"
    child = subprocess.Popen(
        [sys.executable, "-uc", held + "; time.sleep(.5)", str(tmp_path / "daemon.lock")],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "daemon.pid").write_text(f"{gone.pid}\n")
    home = Home(tmp_path)
    home.take()
    assert home.pid() == os.getpid()
    home.leave()
    child.communicate()


def test_a_machine_grows_between_two_starts(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home", gpus="2xV100+1xK80", name="box")
    client = machine.up()
    runs = client.call("POST", "/v1/jobs", body={"command": ["sleep", "1"], "gpus": 1})["job"]
    more = {"command": ["true"], "gpus": 4, "gpu_types": ["A100"]}
    with pytest.raises(Refusal, match="no GPU is of type A100"):
        client.call("POST", "/v1/jobs", body=more)
    until(lambda: client.call("GET", f"/v1/jobs/{runs}")[0]["state"] == "RUNNING")
    machine.kill()
    client = machine.up(gpus="2xV100+1xK80+4xA100")
    deadline = time.monotonic() + 10
    while len(client.call("GET", "/v1/nodes")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job = client.call("POST", "/v1/jobs", body=more)["job"]
    found = wait_for(client, [runs, job])
    assert [(one["state"], one["attempt"]) for one in found] == [("COMPLETED", 1)] * 2
    machine.end()
