"""A service of real processes: its front finds the replicas over the API, and tells how it does."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganger.client.connection import Client, Refusal
from service.machines import Machine
from waiting import until

SERVER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    with listener.accept()[0] as sock: sock.sendall(os.environ["GANGER_CHILD"].encode())
"""
SERVICE = {
    "kind": "serve",
    "command": [sys.executable, "-S", "-c", SERVER, "{port}"],
    "env": {"GANGER_DRAIN": "1"},
    "name": "web",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A daemon with windows of a second."""
    machine = Machine(tmp_path / "home", serving="scale.reactive(up_delay=0)", window="1s")
    yield machine.up()
    machine.end()


def replicas(client: Client, service: int) -> list[dict[str, Any]]:
    """What a front is told."""
    found: list[dict[str, Any]] = client.call("GET", f"/v1/jobs/{service}/replicas")
    return found


def answer(replica: dict[str, Any]) -> str:
    """What a replica answers; empty if it does not."""
    try:
        with socket.create_connection((replica["host"], replica["port"]), 2) as sock:
            return sock.recv(9).decode()
    except OSError:
        return ""


def test_a_front_finds_the_replicas_and_what_it_tells_brings_another(client: Client) -> None:
    service = client.call("POST", "/v1/jobs", body={**SERVICE, "gpus": 1, "max_gpus": 2})["job"]
    (first,) = until(lambda: [one for one in replicas(client, service) if one["port"]])
    assert (first["host"], first["state"], first["attempt"]) == ("127.0.0.1", "RUNNING", 1)
    assert until(lambda: answer(first)) == "0"
    counted = {"arrivals": 9, "answered": 4, "ongoing": 5, "queue": 3, "p99": 0.5}

    def both() -> list[dict[str, Any]]:
        client.call("POST", f"/v1/jobs/{service}/served", body={"figures": counted})
        ready = [one for one in replicas(client, service) if one["port"] and answer(one)]
        return ready if len(ready) == 2 else []

    assert [answer(one) for one in until(both)] == ["0", "1"]
    (shown,) = client.call("GET", "/v1/services")
    figures = shown["windows"][0]["figures"]
    assert figures == {**{name: float(one) for name, one in counted.items()}, "replicas": 1.0}
    client.call("PATCH", f"/v1/jobs/{service}", body={"min_gpus": 1, "max_gpus": 1})

    def goes() -> list[dict[str, Any]]:
        return [one for one in replicas(client, service) if one["leaving"]]

    (last,) = until(goes)
    assert answer(last) == "1", "it goes on until its front knows"
    assert (last["node"], last["host"]) == (first["node"], first["host"])
    until(lambda: replicas(client, service) == [first])
    assert not answer(last)
    client.call("POST", f"/v1/jobs/{service}/cancel")
    until(lambda: client.call("GET", f"/v1/jobs/{service}")[0]["state"] == "CANCELLED")
    with pytest.raises(Refusal, match="is over"):
        replicas(client, service)
    until(lambda: not answer(first))
