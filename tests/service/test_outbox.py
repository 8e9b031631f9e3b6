"""Messages that can never be sent: set aside, shown, and in nobody's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ganger.client.answers import JobAnswer
from ganger.service.notices import notify, outbox
from ganger.service.notices.messages import Outbox
from ganger.service.notices.notify import Smtp, Webhook
from service.machines import Machine
from service.test_notify import Hook, Post, configure, run
from waiting import until


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    yield made
    made.end()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Queue:
    """The daemon's messages to one sink, and the thread that sends them."""

    def __init__(self, home: Path, server: Webhook | Smtp) -> None:
        self.path = home / "outbox.db"
        self.box, self._ended = Outbox(self.path), threading.Event()
        self._sender = outbox._Sender(server, self.path, self._ended, lambda: None)
        self.key = self._sender.key

    def put(self, *bodies: bytes) -> None:
        """Have them sent."""
        self.box.put([(self.key, body) for body in bodies], None)
        self._sender.wake()

    def close(self) -> None:
        """Send no more."""
        self._ended.set()
        self._sender.wake()
        self.box.close()


def letter_about(name: str, to: str = "ann@lab.example") -> bytes:
    job = msgspec.convert({**JOB, "name": name}, JobAnswer)
    message = notify.Message(event="finished", at=1.0, home="/lab", job=job)
    return msgspec.json.encode(notify.Letter((to,), message))


JOB = {
    "job": 1,
    "label": "1",
    "user": "ann",
    "tenant": "ann",
    "state": "COMPLETED",
    "code": "CD",
    "reason": "",
    "gpus": 1,
    "gpu_types": [],
    "priority": 0,
    "submitted": 1.0,
    "started": 2.0,
    "finished": 3.0,
    "ran": 1.0,
    "time_limit": None,
    "nodes": ["box"],
    "attempt": 1,
    "preemptions": 0,
}


@pytest.mark.parametrize("name", ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb", "\u202eba", "a\x1cb"])
def test_a_name_that_no_header_can_hold_stops_no_mail(tmp_path: Path, name: str) -> None:
    post = Post()
    queue = Queue(tmp_path, Smtp(host="127.0.0.1", port=post.port, sender="g@lab.example"))
    try:
        queue.put(letter_about(name), letter_about("next"))
        until(lambda: len(post.letters) == 2)
        assert queue.box.aside() == []
    finally:
        queue.close()
        post.close()


@pytest.mark.parametrize("to", ["\u00e4nn@lab.example", "ann@l\u00e4b.example", "a\nb@lab.example"])
def test_a_letter_that_can_never_be_sent_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path, to: str
) -> None:
    post = Post()
    queue = Queue(tmp_path, Smtp(host="127.0.0.1", port=post.port, sender="g@lab.example"))
    try:
        queue.put(letter_about("poison", to), b"no letter at all", letter_about("next"))
        until(lambda: len(post.letters) == 1)
        assert "next" in post.letters[0][1]["Subject"]
        until(lambda: len(queue.box.aside()) == 2)
        assert [notify.subject_of(body) for _, _, body, _, _ in queue.box.aside()] == [
            "ganger: job 1 poison finished",
            "",
        ]
        until(lambda: queue.box.waiting() == {})  # the letter has come before it is struck off
    finally:
        queue.close()
        post.close()


def test_what_was_set_aside_is_shown(machine: Machine, hook: Hook) -> None:
    configure(machine, f'[[webhook]]\nurl = "{hook.url}"\nname = "a"\n')
    hook.answers = [422, 204]
    client = machine.up()
    first, second = run(client, "true"), run(client, "true")
    until(lambda: hook.events() == [("finished", first), ("finished", second)])
    until(lambda: client.call("GET", "/v1/notify")["set_aside"])
    (aside,) = client.call("GET", "/v1/notify")["set_aside"]
    assert (aside["sink"], aside["error"]) == ("webhook a", "HTTP 422")
    assert f"job {first}" in aside["about"]
    assert any(
        "1 messages set aside" in line for line in client.call("GET", "/v1/status")["trouble"]
    )
