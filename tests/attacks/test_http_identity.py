"""Nobody becomes somebody else by what a request says: headers, hosts, proxies, tokens."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.http_rig import EVE, by_port, by_socket, open_folder, request, sent
from service.machines import Machine
from worlds import open_way

FORGED = [
    ("X-Forwarded-For: unix",), ("X-Forwarded-For: unix:0",), ("x-forwarded-for: 10.0.0.1, unix",),
    ("X-Forwarded-For: unix", "X-Forwarded-For: unix"), ("X-Forwarded-For: unix, 127.0.0.1",),
    ("X-Forwarded-For: unix", "X-Forwarded-Proto: unix", "X-Forwarded-Host: daemon"),
    ("Forwarded: for=unix;proto=http",), ("Forwarded: for=\"[unix]\"",), ("X-Real-IP: unix",),
    ("X-Real-IP: 127.0.0.1", "X-Client-IP: 127.0.0.1", "True-Client-IP: 127.0.0.1"),
    ("Remote-User: root", "X-Remote-User: root", "X-Forwarded-User: root"),
    ("ganger.uid: 0", "Ganger-Who: root", "X-Uid: 0"),
    ("Authorization: Bearer",), ("Authorization: Bearer ",), ("Authorization:",),
    ("Authorization: Basic cm9vdDo=",), ("Authorization: Bearer unix",),
    ("Proxy-Authorization: Bearer x", "Cookie: token=x"),
]  # fmt: skip
"""Header lines by which somebody might pass for the local administrator."""
ASKED = ("/v1/status", "/v1/roles", "/v1/jobs", "/metrics", "/openapi.json", "/healthz", "/nothing")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A shared daemon where that can be, else a personal one; both listen."""
    with open_folder() as base:
        made = Machine(base / "home", listen="127.0.0.1:0", shared=os.getuid() == 0)
        made.up()
        yield made
        made.end()


@pytest.fixture(scope="module")
def listen(machine: Machine) -> str:
    """HOST:PORT of its TCP listener."""
    found: str = machine.client.call("GET", "/v1/status")["listen"]
    return found


@pytest.fixture(scope="module")
def token(machine: Machine) -> str:
    """The administrator's token."""
    return (machine.root / "token").read_text().strip()


@pytest.mark.parametrize("headers", FORGED, ids=[one[0] for one in FORGED])
def test_no_header_lets_anybody_in_over_tcp(listen: str, headers: tuple[str, ...]) -> None:
    for path in ASKED:
        status, said = sent(by_port(listen), request("GET", path, *headers))
        assert status == 401, (path, said)
    status, said = sent(by_port(listen), request("POST", "/v1/shutdown", *headers, body=b"{}"))
    assert status == 401, said


@pytest.mark.skipif(os.getuid() != 0, reason="other users need root")
@pytest.mark.parametrize("headers", FORGED, ids=[one[0] for one in FORGED])
def test_no_header_makes_another_user_of_who_is_at_the_socket(
    machine: Machine, token: str, headers: tuple[str, ...]
) -> None:
    for more in (headers, (*headers[:1], f"Authorization: Bearer {token}")):
        status, said = sent(by_socket(machine.root, EVE), request("GET", "/v1/roles", *more))
        assert status == 403, said
    body = b'{"command": ["true"], "hold": true}'
    status, said = sent(
        by_socket(machine.root, EVE), request("POST", "/v1/jobs", *headers, body=body)
    )
    assert status == 201, said
    job = json.loads(said)["job"]
    assert machine.client.call("GET", f"/v1/jobs/{job}")[0]["user"] == str(EVE)
    machine.client.call("POST", f"/v1/jobs/{job}/cancel")


def test_a_token_counts_once_and_only_as_it_was_given(listen: str, token: str) -> None:
    right = f"Authorization: Bearer {token}"
    for lines in (
        (right, "Authorization: Bearer x"),
        ("Authorization: Bearer x", right),
        (right, right),
        (f"Authorization: Basic {token}",),
        (f"Authorization: {token}",),
        (f"Authorization: Bearer {token[:-1]}",),
        (f"Authorization: Bearer {token}x",),
        (f"Authorization: Bearer {token} {token}",),
        (f"Authorization: Bearer {token.upper()}",),
        (f"Authorization: Bearer {token},",),
        (f"Cookie: {token}",),
        (f"X-Token: {token}",),
    ):
        status, said = sent(by_port(listen), request("GET", "/v1/status", *lines))
        assert status == 401, (lines, said)
    for path in (f"/v1/status?token={token}", f"/v1/status?access_token={token}"):
        assert sent(by_port(listen), request("GET", path))[0] == 401
    assert sent(by_port(listen), request("GET", "/v1/status", right))[0] == 200


def test_any_host_is_the_same_without_a_token_and_with_one(listen: str, token: str) -> None:
    """A page in a browser may reach the port under a name of its own (DNS rebinding). It has no
    token, and nothing else lets it in, so that the Host header decides nothing."""
    for host in ("evil.example", "localhost", "127.0.0.1", "unix", "daemon.sock"):
        assert sent(by_port(listen), request("GET", "/v1/status", host=host))[0] == 401
        status, _ = sent(
            by_port(listen),
            request("GET", "/v1/status", f"Authorization: Bearer {token}", host=host),
        )
        assert status == 200


def test_no_host_that_somebody_named_is_told_to_anybody(machine: Machine) -> None:
    """A redirect to it would carry on what the client sends with it."""
    for path in ("/v1/status/", "/v1/jobs/", "/metrics/", "//evil.example/", "/v1/tokens/x/"):
        connection = by_socket(machine.root)
        connection.sendall(request("GET", path, host="evil.example"))
        answer = b""
        while part := connection.recv(65536):
            answer += part
        connection.close()
        assert answer.startswith(b"HTTP/1.1 404"), answer
        assert b"evil" not in answer.partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize(
    "head",
    [
        b"PROXY UNKNOWN\r\nGET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET unix:///v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://unix/v1/status HTTP/1.1\r\nHost: unix\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer x\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: x\r\n Authorization: Bearer x\r\n\r\n",
        b"GET /v1/status HTTP/0.9\r\n\r\n",
        b"CONNECT unix:0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_plain_request_gets_nothing(listen: str, head: bytes) -> None:
    assert sent(by_port(listen), head)[0] in (0, 400, 401, 501)


# ---------------------------------------------------------------------- a real proxy


def _missing() -> str:
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        return ""
    absent = "NO NGINX HERE: WHAT A PROXY PASSES ON IS NOT TESTED (apt-get install nginx-light)"
    if os.environ.get("GANGER_REQUIRE_NGINX"):
        pytest.fail(absent)
    return absent


CONF = """
daemon off; pid {root}/nginx.pid; error_log {root}/error.log; worker_processes 1; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
  fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{listen}; }} }}
  server {{ listen 127.0.0.1:{socket_port};
            location / {{ proxy_pass http://unix:{home}/daemon.sock:; }} }}
}}
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def proxies(
    machine: Machine, listen: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """HOST:PORT of an nginx before the port, and of one before the Unix socket."""
    if missing := _missing():
        pytest.skip(missing)
    root: Path = tmp_path_factory.mktemp("nginx")
    open_way(root)
    port, socket_port = _free_port(), _free_port()
    entry = pwd.getpwnam("nobody")
    user = f"user {entry.pw_name} {grp.getgrgid(entry.pw_gid).gr_name};"
    root.joinpath("nginx.conf").write_text(
        CONF.format(
            root=root,
            listen=listen,
            port=port,
            socket_port=socket_port,
            user=user if os.getuid() == 0 else "",
            home=machine.root,
        )
    )
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    words = [shutil.which("nginx", path=path) or "nginx", "-p", str(root), "-c", "nginx.conf"]
    with (root / "said").open("wb") as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=said, cwd=root)
    found = f"127.0.0.1:{port}", f"127.0.0.1:{socket_port}"
    until = time.monotonic() + 20
    while True:
        try:
            by_port(found[1]).close()
            break
        except ConnectionRefusedError:
            assert process.poll() is None, (root / "said").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
    yield found
    process.terminate()
    process.wait(20)


@pytest.mark.parametrize("headers", FORGED, ids=[one[0] for one in FORGED])
def test_nothing_gets_through_a_plain_nginx(
    proxies: tuple[str, str], headers: tuple[str, ...]
) -> None:
    for path in ASKED:
        assert sent(by_port(proxies[0]), request("GET", path, *headers))[0] == 401, path


def test_a_token_gets_through_nginx_beside_any_header(proxies: tuple[str, str], token: str) -> None:
    lines = ("X-Forwarded-For: unix", "Forwarded: for=unix", f"Authorization: Bearer {token}")
    assert sent(by_port(proxies[0]), request("GET", "/v1/status", *lines))[0] == 200


@pytest.mark.skipif(os.getuid() != 0, reason="other users need root")
@pytest.mark.parametrize("headers", FORGED, ids=[one[0] for one in FORGED])
def test_before_the_socket_everybody_is_the_proxys_user_and_no_more(
    proxies: tuple[str, str], headers: tuple[str, ...]
) -> None:
    assert sent(by_port(proxies[1]), request("GET", "/v1/roles", *headers))[0] == 403


@pytest.mark.skipif(os.getuid() != 0, reason="other users need root")
def test_a_users_token_is_that_user_and_no_more(machine: Machine, listen: str) -> None:
    name = pwd.getpwnam("nobody").pw_name
    made = machine.client.call("POST", "/v1/tokens", body={"user": name, "role": "user"})
    mine = f"Authorization: Bearer {made['token']}"
    for path in ("/v1/roles", "/v1/notify"):
        for headers in FORGED[:11]:
            status, said = sent(by_port(listen), request("GET", path, mine, *headers))
            assert status == 403, said
    machine.client.call("DELETE", f"/v1/tokens/{made['id']}")
    assert sent(by_port(listen), request("GET", "/v1/status", mine))[0] == 401
