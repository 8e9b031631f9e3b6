"""The line between a program and its trials."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ganger.integrations.line import STRANGERS_MAX, Address, Caller, HungUp, Listener


def doubled(said: dict[str, Any]) -> dict[str, Any]:
    return {"value": 2 * said["value"]}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_who_knows_the_key_is_answered_and_nobody_else(elsewhere: bool) -> None:
    """Also while strangers hold the line and say nothing."""
    heard = []

    def answer(said: dict[str, Any]) -> dict[str, Any]:
        heard.append(said)
        return doubled(said)

    line = Listener(answer, elsewhere=elsewhere)
    try:
        caller = Caller(line.address)
        assert [caller.ask({"value": n})["value"] for n in range(3)] == [0, 2, 4]
        with pytest.raises(HungUp):
            Caller(line.address._replace(key=b"guessed"))
        for said in (b'{"value": 7}\n', b"\n", b"x" * 4096 + b"\n", b'{"proof": "\xc3\xa4"}\n'):
            with stranger(line.address) as unknown, suppress(ConnectionResetError):
                unknown.sendall(said * 2)
                while unknown.recv(4096):
                    pass
        silent = [stranger(line.address) for _ in range(STRANGERS_MAX - 1)]
        with closing(Caller(line.address)) as other:
            assert other.ask({"value": 8}) == {"value": 16}
        for each in silent:
            each.close()
        assert caller.ask({"value": 9}) == {"value": 18}
    finally:
        line.close()
    assert [said["value"] for said in heard] == [0, 1, 2, 8, 9]
    with pytest.raises(HungUp):
        caller.ask({"value": 1})
    caller.close()
    with pytest.raises(HungUp, match="nobody answers"):
        Caller(line.address)


def stranger(address: Address) -> socket.socket:
    """A connection of somebody who proves nothing."""
    if address.path:
        made = socket.socket(socket.AF_UNIX)
        made.connect(address.path)
        return made
    return socket.create_connection((address.host, address.port))


def test_somebody_else_who_answers_is_found_out(tmp_path: Path) -> None:
    """It took the place of the program, and says what that would; it gets to hear nothing."""
    heard = []
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(str(tmp_path / "line"))
        impostor.listen()

        def lie() -> None:
            connection, _ = impostor.accept()
            with connection, connection.makefile("rwb", buffering=0) as file:
                file.write(b'{"nonce": "1"}\n')
                heard.append(file.readline())
                file.write(b'{"proof": "2"}\n')
                heard.append(file.readline())

        thread = threading.Thread(target=lie)
        thread.start()
        with pytest.raises(HungUp, match="somebody else"):
            Caller(Address(str(tmp_path / "line"), "", 0, b"key"))
        thread.join()
    assert heard[0].startswith(b'{"proof"')
    assert heard[1:] == [b""]
