"""Telling people of events: a real daemon, a real HTTP server, a real SMTP server."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.server
import shutil
import socketserver
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.message import Message as Letter
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from ganger.client.connection import Client
from ganger.core.errors import BadInput
from ganger.service.notices import notify
from ganger.service.notices.messages import Outbox
from ganger.service.notices.notify import Config, Smtp, Webhook, read_config
from ganger.service.notices.outbox import Notifier, mail
from service.desk import Desk
from service.machines import Machine, wait_for
from waiting import until

SECRET = "between us"


class Hook:
    """A server that keeps what is posted, and answers `status` (a list is used up first)."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Keep it."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 204
                hook.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"

    def events(self) -> list[tuple[str, int]]:
        """Event and job of what came."""
        found = [msgspec.json.decode(body) for _, body in self.got]
        return [(one["event"], one["job"]["job"] if one["job"] else 0) for one in found]

    def close(self) -> None:
        """End."""
        self.server.shutdown()
        self.server.server_close()


class Post:
    """An SMTP server that keeps letters, over TLS if `security` says so and `trust` has a
    certificate."""

    def __init__(self, security: str = "none", trust: ssl.SSLContext | None = None) -> None:
        self.letters: list[tuple[list[str], Letter]] = []
        self.logins: list[bytes] = []
        """What was said after AUTH, and only under TLS where there is any."""
        post = self

        class Handler(socketserver.StreamRequestHandler):
            def secure(self) -> None:
                """Go on under TLS. Raises OSError."""
                assert trust is not None
                self.connection = trust.wrap_socket(self.request, server_side=True)
                self.rfile = self.connection.makefile("rb")
                self.wfile = self.connection.makefile("wb", 0)

            def handle(self) -> None:
                """Speak enough SMTP; who hangs up in the middle is gone."""
                with contextlib.suppress(OSError):
                    if security == "tls":
                        self.secure()
                    self.converse()
                for one in (self.rfile, self.wfile, self.connection):
                    one.close()

            def converse(self) -> None:
                """Answer line by line."""
                to: list[str] = []
                secured = security != "starttls"
                self.wfile.write(b"220 here\r\n")
                while line := self.rfile.readline():
                    word = line.split()[0].upper()
                    if word == b"EHLO":
                        more = b"AUTH PLAIN" if secured else b"STARTTLS"
                        self.wfile.write(b"250-here\r\n250 " + more + b"\r\n")
                        continue
                    if word == b"STARTTLS":
                        self.wfile.write(b"220 go on\r\n")
                        self.secure()
                        secured = True
                        continue
                    if word == b"AUTH":
                        assert secured
                        post.logins.append(base64.b64decode(line.split()[2]))
                        self.wfile.write(b"235 welcome\r\n")
                        continue
                    if word == b"RCPT":
                        to.append(line.decode().split("<")[1].split(">")[0])
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        text = b""
                        while (line := self.rfile.readline()) != b".\r\n":
                            text += line
                        post.letters.append((to, message_from_bytes(text)))
                    self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 fine\r\n")
                    if word == b"QUIT":
                        return

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]

    def close(self) -> None:
        """End."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    yield made
    made.end()


def configure(machine: Machine, text: str) -> None:
    """Write notify.toml."""
    machine.root.mkdir(mode=0o700, exist_ok=True)
    path = machine.root / "notify.toml"
    path.touch(mode=0o600)
    path.write_text(text)


def run(client: Client, *command: str, **fields: Any) -> int:
    """Submit and wait."""
    body = {"command": list(command), "gpus": 0, **fields}
    job: int = client.call("POST", "/v1/jobs", body=body)["job"]
    wait_for(client, [job])
    return job


def test_a_webhook_is_told_signed_and_only_what_it_wants(machine: Machine, hook: Hook) -> None:
    configure(
        machine,
        f"""[[webhook]]
url = "{hook.url}"
secret = "{SECRET}"
events = ["started", "finished", "failed"]
tenants = ["lab"]
""",
    )
    client = machine.up()
    run(client, "true", tenant="else")
    good = run(client, "true", tenant="lab")
    bad = run(client, "sh", "-c", "exit 3", tenant="lab", name="bad one")
    until(lambda: ("failed", bad) in hook.events())
    assert hook.events() == [
        ("started", good),
        ("finished", good),
        ("started", bad),
        ("failed", bad),
    ]
    headers, body = hook.got[-1]
    told = dict(part.split("=", 1) for part in headers["ganger-signature"].split(","))
    signed = hmac.digest(SECRET.encode(), f"{told['t']}.".encode() + body, "sha256").hex()
    assert told["v1"] == signed
    assert abs(time.time() - int(told["t"])) < 60
    found = msgspec.json.decode(body)
    assert (found["job"]["name"], found["job"]["reason"]) == ("bad one", "exit code 3")
    assert len({headers["ganger-delivery"] for headers, _ in hook.got}) == 4
    assert SECRET not in machine.said()


def test_a_server_that_fails_gets_it_again_and_one_that_is_gone_does_not(
    machine: Machine, hook: Hook
) -> None:
    configure(machine, f'[[webhook]]\nurl = "{hook.url}"\nname = "a"\n')
    hook.answers = [500, 503, 204, 410]
    client = machine.up()
    first, second = run(client, "true"), run(client, "true")
    until(lambda: len(hook.got) == 4)
    assert hook.events() == [("finished", first)] * 3 + [("finished", second)]
    assert len({headers["ganger-delivery"] for headers, _ in hook.got[:3]}) == 1
    until(lambda: client.call("GET", "/v1/notify")["sinks"][0]["waiting"] == 0)


def test_what_could_not_be_sent_outlives_the_daemon(machine: Machine, hook: Hook) -> None:
    port = hook.server.server_port
    configure(machine, '[[webhook]]\nurl = "http://127.0.0.1:1/"\nname = "a"\n')
    client = machine.up()
    job = run(client, "true")
    until(lambda: client.call("GET", "/v1/notify")["sinks"][0]["last_error"])
    (sink,) = client.call("GET", "/v1/notify")["sinks"]
    assert sink["waiting"] == 1
    assert "ConnectionRefused" in sink["last_error"]
    machine.kill()
    configure(machine, f'[[webhook]]\nurl = "http://127.0.0.1:{port}/"\nname = "a"\n')
    machine.up()
    until(lambda: hook.events() == [("finished", job)])


def test_what_happened_before_a_crash_and_was_not_seen_is_told(
    machine: Machine, hook: Hook
) -> None:
    configure(machine, f'[[webhook]]\nurl = "{hook.url}"\n')
    client = machine.up()
    job = run(client, "true")
    until(lambda: len(hook.got) == 1)
    machine.kill()
    box = Outbox(machine.root / "outbox.db")
    box.put([], 0)  # as if the crash had come before anything was noted
    box.close()
    machine.up()
    until(lambda: hook.events() == [("finished", job)] * 2)


def test_what_happens_before_the_thread_has_begun_is_told(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notify.toml").write_text(f'[[webhook]]\nurl = "{hook.url}"\n')
    busy, read = threading.Event(), Notifier._reload

    def late(self: Notifier) -> None:
        busy.wait()
        read(self)

    monkeypatch.setattr(Notifier, "_reload", late)
    desk = Desk(tmp_path)
    notifier = Notifier(desk.daemon, tmp_path)
    notifier.start()
    (row,) = desk.submit()
    desk.until_quiet()
    busy.set()
    until(lambda: hook.events() == [("finished", row + 1)])
    notifier.close()


def test_a_box_that_was_locked_for_a_while_loses_nothing(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notify.toml").write_text(f'[[webhook]]\nurl = "{hook.url}"\n')
    fails, put = [True], Outbox.put

    def locked(self: Outbox, messages: Iterable[tuple[str, bytes]], revision: int | None) -> None:
        if fails and fails.pop():
            raise sqlite3.OperationalError("database is locked")
        put(self, messages, revision)

    desk = Desk(tmp_path)
    notifier = Notifier(desk.daemon, tmp_path)
    monkeypatch.setattr(Outbox, "put", locked)
    notifier.start()
    (row,) = desk.submit()
    desk.until_quiet()
    notifier.wake()
    until(lambda: hook.events() == [("finished", row + 1)])
    assert not fails
    until(lambda: not notifier.error)
    notifier.close()


def test_a_new_box_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    wrong: list[sqlite3.Error] = []

    def open_it(path: Path, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            Outbox(path).close()
        except sqlite3.Error as error:
            wrong.append(error)

    for turn in range(100):
        barrier = threading.Barrier(3)
        threads = [
            threading.Thread(target=open_it, args=(tmp_path / f"{turn}.db", barrier))
            for _ in range(barrier.parties)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_slow_server_holds_up_nothing(machine: Machine, hook: Hook) -> None:
    silent = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    try:  # it never accepts: whoever posts there waits for ten seconds
        configure(
            machine,
            f"""[[webhook]]
url = "http://127.0.0.1:{silent.server_address[1]}/"
name = "slow"
[[webhook]]
url = "{hook.url}"
name = "quick"
""",
        )
        client = machine.up()
        began = time.monotonic()
        jobs = [run(client, "true") for _ in range(3)]
        until(lambda: hook.events() == [("finished", job) for job in jobs])
        assert time.monotonic() - began < 8
    finally:
        silent.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate of its own for `localhost`, in one file."""
    path = tmp_path / "own.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            str(path),
            "-out",
            str(tmp_path / "own.crt"),
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + (tmp_path / "own.crt").read_text())
    return path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_letters_and_passwords_go_to_servers_that_are_trusted(
    certificate: Path, security: Literal["starttls", "tls"]
) -> None:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate)
    post = Post(security, trust)
    server = Smtp(
        host="localhost",
        sender="g@lab.example",
        port=post.port,
        security=security,
        user="ganger",
        password="secret",
        ca=str(certificate.with_name("own.crt")),
    )
    message = notify.Message(event="test", at=1.0, home="/lab")
    body = msgspec.json.encode(notify.Letter(("ann@lab.example",), message))
    try:
        mail(server, 1, body)
        assert [(to, letter["Subject"]) for to, letter in post.letters] == [
            (["ann@lab.example"], message.subject)
        ]
        assert post.logins == [b"\0ganger\0secret"]
        for other in ({"ca": ""}, {"host": "127.0.0.1"}):  # unknown, and known by another name
            with pytest.raises(ssl.SSLCertVerificationError):
                mail(msgspec.structs.replace(server, **other), 2, body)
        assert len(post.logins) == 1
    finally:
        post.close()


def test_people_get_letters(machine: Machine) -> None:
    post = Post()
    try:
        configure(
            machine,
            f"""[smtp]
host = "127.0.0.1"
port = {post.port}
sender = "ganger@lab.example"
[[mail]]
to = ["boss@lab.example", "desk@lab.example"]
events = ["failed"]
""",
        )
        client = machine.up()
        run(client, "true")
        run(
            client,
            "sh",
            "-c",
            "exit 2",
            name="tr\u00e4ning",
            mail_to=["ann@lab.example"],
            mail_on=["started", "failed"],
        )
        until(lambda: len(post.letters) == 3)
        got = [(to, letter["Subject"].split()[-1]) for to, letter in post.letters]
        assert sorted(got) == [
            (["ann@lab.example"], "failed"),
            (["ann@lab.example"], "started"),
            (["boss@lab.example", "desk@lab.example"], "failed"),
        ]
        letter = post.letters[-1][1]
        assert letter["From"] == "ganger@lab.example"
        text = letter.get_payload(decode=True)
        assert isinstance(text, bytes)
        assert "State: FAILED (exit code 2)" in text.decode()
        client.call("POST", "/v1/notify/test")
        until(lambda: len(post.letters) == 4)
    finally:
        post.close()


def test_the_file_may_change_while_the_daemon_runs(machine: Machine, hook: Hook) -> None:
    client = machine.up()
    run(client, "true")
    configure(machine, f'[[webhook]]\nurl = "{hook.url}"\n')
    assert len(client.call("GET", "/v1/notify")["sinks"]) == 1
    job = run(client, "true")
    until(lambda: ("finished", job) in hook.events())
    configure(machine, "[[webhook]]\nurl = 5\n")
    assert "url" in client.call("GET", "/v1/notify")["error"]
    assert any("notify.toml" in line for line in client.call("GET", "/v1/status")["trouble"])


BAD = [
    ('[[webhook]]\nurl = "ftp://x"', "not a valid address"),
    ('[[mail]]\nto = ["a@b"]', "needs a mail server"),
    ('[[webhook]]\nurl = "http://x"\nevents = ["born"]', "'born' is not one of"),
    ('[smtp]\nhost = "x"\nsender = "y"\n[[mail]]\nto = ["a, b@c"]', "not a valid e-mail address"),
    ("[[webhook]", "notify.toml"), ("[webhok]", "webhok"),
    ('[[webhook]]\nurl = "http://x"\n[[webhook]]\nurl = "http://x"', "listed twice"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said for _, said in BAD])
def test_what_cannot_be_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "notify.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_config(path)


def test_a_file_with_secrets_is_for_one_pair_of_eyes(tmp_path: Path) -> None:
    path = tmp_path / "notify.toml"
    assert read_config(path) == Config()
    path.write_text('[[webhook]]\nurl = "http://x"\nsecret = "s"')
    path.chmod(0o640)
    with pytest.raises(BadInput, match="others may read"):
        read_config(path)
    path.chmod(0o600)
    assert read_config(path).webhook == (Webhook(url="http://x", secret="s"),)
