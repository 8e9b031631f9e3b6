"""Attacks on a model server: without a key, with nearly one, as another tenant, before TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.serving.http.tls import SHAKES_MAX, Certificate, Reception
from ganger.serving.server import Server as LiveServer
from ganger.serving.server import Settings
from ganger.serving.tenants import Tenants
from serving.live.nets import models_file, times
from serving.live.room import ASK, Room, answer, keys_file, play
from serving.live.server import read, request, serving

ANN, BOB = "ann-s-key-0123456789", "bob-s-key-0123456789"
TENANTS = {"ann": f'keys = ["{ANN}"]\nrate = 1000', "bob": f'keys = ["{BOB}"]'}
with_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    times(tmp_path / "double.onnx", 2)
    return models_file(tmp_path, ["double"])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return keys_file(tmp_path, **TENANTS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "c.pem", folder / "k.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            str(key),
            "-out",
            str(chain),
            "-days",
            "2",
            "-subj",
            "/CN=here",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return chain, key


# ---------------------------------------------------------------------- keys


def test_without_a_key_nothing_but_health_is_answered(file: Path, keys: Path) -> None:
    async def story(room: Room) -> None:
        for method, path in [
            ("GET", "/v2"),
            ("GET", "/metrics"),
            ("GET", "/v2/models/double"),
            ("GET", "/v2/models/stats"),
            ("POST", "/v2/repository/index"),
            ("POST", "/v2/models/double/infer"),
            ("GET", "/v2/health/ready/../../models/double"),
            ("GET", "//v2/health/live"),
            ("GET", "/nothing"),
        ]:
            refused = await room.ask(method, path)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer"), path
        assert (await room.ask("GET", "/v2/health/live")).status == 200
        assert (await room.ask("GET", "/v2/health/ready?x=1")).status == 200

    play(lambda: Room(file, keys=keys), story)


def test_a_key_counts_once_whole_and_in_its_place(file: Path, keys: Path) -> None:
    async def story(room: Room) -> None:
        async def status(*lines: str, path: str = "/v2") -> int:
            head = "".join(f"{line}\r\n" for line in (f"GET {path} HTTP/1.1", *lines))
            return (await room.send(head.encode() + b"\r\n")).status

        for lines in [
            (f"authorization: {ANN}",),
            (f"authorization: Bearer {ANN[:-1]}",),
            (f"authorization: Bearer {ANN}x",),
            (f"authorization: Bearer  {ANN}",),
            (f"authorization: Bearer {ANN},",),
            (f"authorization: Bearer {ANN.upper()}",),
            (f"authorization: Basic {ANN}",),
            ("authorization: Bearer ",),
            (f"authorization: Bearer {ANN}", f"authorization: Bearer {BOB}"),
            (f"authorization: Bearer {ANN}", f"authorization: Bearer {ANN}"),
            (f"x-api-key: {ANN}",),
            (f"cookie: authorization=Bearer {ANN}",),
            (f"x-forwarded-authorization: Bearer {ANN}", "x-forwarded-for: 127.0.0.1"),
        ]:
            assert await status(*lines) == 401, lines
        assert await status(path=f"/v2?authorization=Bearer%20{ANN}") == 401
        assert await status(f"authorization: Bearer {ANN}") == 200
        assert await status(f"Authorization: bEARER {ANN}") == 200

    play(lambda: Room(file, keys=keys), story)


def test_a_body_without_a_key_is_not_read(file: Path, keys: Path) -> None:
    """It is answered at its head, and holds no memory, however much was announced."""

    async def story(room: Room) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(b"POST /v2/models/double/infer HTTP/1.1\r\ncontent-length: 50000000\r\n\r\n")
        assert (await answer(reader)).status == 401
        assert await reader.read() == b""
        assert room.door.held == 0
        writer.close()
        # nor one that comes with its head, behind a request that has a key
        good = request("GET", "/v2", headers={"authorization": f"Bearer {ANN}"})
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(good + request("POST", "/v2/models/double/infer", b"x" * 10_000))
        statuses = [
            int(line.split()[1])
            for line in (await reader.read()).split(b"HTTP/1.1")[1:]
            for line in [b"x" + line]
        ]
        assert statuses == [200, 401]
        writer.close()

    play(lambda: Room(file, keys=keys), story)


def test_no_key_is_compared_letter_by_letter(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared are digests of one length under a secret of the process, in constant time;
    which of them are compared says nothing of how near a key was."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    one, other = Tenants(keys), Tenants(keys)
    for tenants in (one, other):
        assert tenants.of(f"Bearer {ANN}".encode()) is not None
        assert tenants.of(f"Bearer {ANN[:-1]}".encode()) is None
    right, wrong, elsewhere, _ = compared
    assert right[0] == right[1]
    assert len(right[0]) == 32
    assert right[0] != elsewhere[0]
    assert wrong[1] == b""  # no digest begins alike, so there is none to compare with
    assert not any(ANN.encode() in each for pair in compared for each in pair)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_keys_that_others_may_read_are_not_used(keys: Path, mode: int) -> None:
    keys.chmod(mode)
    with pytest.raises(BadInput, match="it has secrets, and others may read it"):
        Tenants(keys)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_keys_of_another_user_are_not_used(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(keys, 12345, 12345)
    with pytest.raises(BadInput, match="it is another user's"):
        Tenants(keys)


# ---------------------------------------------------------------------- tenants


def test_nothing_that_is_kept_goes_to_another_tenant(file: Path, keys: Path) -> None:
    """The same id and the same bytes of another tenant are executed anew, under way or over; and
    no flood of one drives out what is kept for the other."""

    async def story(room: Room) -> None:
        same = {**ASK, "id": "mine"}
        both = [await room.infer(same, key) for key in (ANN, BOB)]
        assert [each.status for each in both] == [200, 200]
        assert len(room.batches()) == 2
        body = json.dumps({**ASK, "id": "again"}).encode()
        path = "/v2/models/double/infer"
        heads = [{"authorization": f"Bearer {key}"} for key in (ANN, BOB)]
        writers = [await asyncio.open_connection("127.0.0.1", room.port) for _ in heads]
        for head, (_, writer) in zip(heads, writers, strict=True):  # so that one is under way
            writer.write(request("POST", path, body, head))
        for reader, writer in writers:
            assert (await answer(reader)).status == 200
            writer.close()
        assert sum(count for _, count in room.batches()) == 4
        for at in range(300):
            await room.infer({**ASK, "id": f"{at}"}, BOB)
        before = len(room.batches())
        await room.infer(same, ANN)
        assert len(room.batches()) == before

    play(lambda: Room(file, keys=keys, terms=None), story)


# ---------------------------------------------------------------------- the whole server


@with_openssl
def test_no_key_is_written_anywhere_and_keys_are_read_again(
    file: Path, keys: Path, certificate: tuple[Path, Path]
) -> None:
    """A server with keys, TLS and an access log: what it writes names tenants, never a key."""
    chain, key = certificate
    options = ["--keys", str(keys), "--tls-cert", str(chain), "--tls-key", str(key)]
    trust = ssl.create_default_context(cafile=str(chain))
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    def send(data: bytes) -> Any:
        sock = server.connect()
        with trust.wrap_socket(sock, server_hostname="127.0.0.1") as safe:
            safe.sendall(data)
            return read(safe)

    def ask(bearer: str, path: str = "/v2", **headers: str) -> Any:
        head = {"authorization": f"Bearer {bearer}", **headers}
        return send(request("GET", path, headers=head))

    with serving(file, *options, "--access-log") as server:
        assert ask(ANN, traceparent=trace).status == 200
        assert ask(ANN + "x").status == 401
        assert ask(ANN, f"/v2/models/{'x' * 300}").status == 404
        twice = f"GET /v2 HTTP/1.1\r\nauthorization: Bearer {ANN}\r\nno header {BOB}\r\n\r\n"
        assert send(twice.encode()).status == 400
        body = json.dumps({"inputs": [], "id": "x"}).encode()
        path = "/v2/models/double/infer"
        wrong = send(request("POST", path, body, {"authorization": f"Bearer {BOB}"}))
        assert wrong.status == 400
        # nothing but TLS is spoken, and what is not TLS leaves no traceback
        with contextlib.suppress(ConnectionResetError), server.connect() as plain:
            plain.sendall(request("GET", "/v2", headers={"authorization": f"Bearer {ANN}"}))
            assert b"HTTP" not in plain.recv(1000)
        keys_file(keys.parent, ann=f'keys = ["{BOB}"]')
        server.process.send_signal(signal.SIGHUP)
        for _ in range(200):
            if ask(ANN).status == 401:
                break
            time.sleep(0.02)
        assert (ask(ANN).status, ask(BOB).status) == (401, 200)
        keys.write_text(f'[{ANN}\n"{BOB}"')
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        assert ask(BOB).status == 200
    text = (file.parent / "stderr").read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert lines[0] | {"span": "", "ms": 0, "time": 0} == {
        "time": 0,
        "id": lines[0]["id"],
        "method": "GET",
        "path": "/v2",
        "note": "",
        "ms": 0,
        "tenant": "ann",
        "trace": trace[3:35],
        "parent": trace[36:52],
        "span": "",
        "status": 200,
    }
    assert {each["tenant"] for each in lines} == {"", "ann", "bob"}
    assert "what was read before stays in force" in text
    assert ANN not in text
    assert BOB not in text


# ---------------------------------------------------------------------- TLS


@with_openssl
def test_handshakes_that_never_end_shut_nobody_out(
    file: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that say nothing are not the door's: only so many are held, and the oldest makes
    way."""
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    monkeypatch.setattr("ganger.serving.http.tls.SHAKES_MAX", 8)
    assert SHAKES_MAX > 8

    async def story(room: Room) -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        reception = Reception(room.door, sock, Certificate(*certificate))
        reception.start()
        room.port = sock.getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", room.port) for _ in range(30)]
        assert (await room.send(request("GET", "/v2"), trust)).status == 200
        for reader, _ in silent[:20]:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        assert (await room.send(request("GET", "/v2"), trust)).status == 200
        reception.close()
        for _, writer in silent:
            writer.close()

    play(lambda: Room(file), story)


@with_openssl
def test_a_key_of_tls_that_others_may_read_is_not_used(certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    loose = key.with_name("loose.pem")
    loose.write_bytes(key.read_bytes())
    loose.chmod(0o644)
    with pytest.raises(BadInput, match="it has secrets, and others may read it"):
        Certificate(chain, loose)
    loose.chmod(0o640)
    assert Certificate(chain, loose).context.minimum_version == ssl.TLSVersion.TLSv1_2
    loose.write_text("nothing")
    with pytest.raises(BadInput, match="are not a certificate and its key"):
        Certificate(chain, loose)


def test_a_certificate_needs_its_key(file: Path) -> None:
    from ganger.lab.serving.live import Machine, prepared
    from ganger.workloads.models.reading import read_models

    served = prepared(read_models(file), "serve.triton", Machine())
    settings = Settings(certificate=file)
    with pytest.raises(BadInput, match="give both --tls-cert and --tls-key"):
        LiveServer(served.world, served.router, served.models, settings)
