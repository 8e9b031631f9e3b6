"""What others find in the daemon's folder, and where it refuses to live."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from attacks.http_rig import EVE
from ganger.core.errors import BadInput
from ganger.service.home import Home
from ganger.service.serve import _make_private
from service.machines import Machine, wait_for
from worlds import open_way


@pytest.mark.parametrize("shared", [False, True])
def test_nobody_else_can_open_any_file_of_the_daemon(tmp_path: Path, shared: bool) -> None:
    if shared and os.getuid():
        pytest.skip("other users need root")
    open_way(tmp_path)
    before = os.umask(0)
    try:
        machine = Machine(
            tmp_path / "home", shared=shared, listen="127.0.0.1:0", agents="127.0.0.1:0"
        )
        machine.root.mkdir()
        (machine.root / "notify.toml").write_text('[[webhook]]\nurl = "http://127.0.0.1:9/"\n')
        (machine.root / "notify.toml").chmod(0o600)
        (machine.root / "daemon.lock").touch(mode=0o666)
        client = machine.up()
        wait_for(client, [client.call("POST", "/v1/jobs", body={"command": ["true"]})["job"]])
        client.call("GET", "/v1/notify")
        machine.kill()
        machine.up()
    finally:
        os.umask(before)
    try:
        found = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in machine.root.iterdir()
            if not path.is_dir()
        }
        assert {"daemon.lock", "daemon.pid", "journal.db", "token", "agent-token"} <= set(found)
        assert found.pop("daemon.sock") == (0o666 if shared else 0o600)
        assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
        assert stat.S_IMODE(machine.root.stat().st_mode) == (0o711 if shared else 0o700)
    finally:
        machine.end()


@pytest.mark.skipif(os.getuid() != 0, reason="other users need root")
def test_a_folder_that_another_user_could_exchange_is_refused(tmp_path: Path) -> None:
    open_way(tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, EVE, EVE)
    with pytest.raises(BadInput, match="belongs to another user"):
        Home(theirs).take(shared=True)
    with pytest.raises(BadInput, match="belongs to another user"):
        Home(theirs / "ganger").take(shared=True)
    link = tmp_path / "link"
    link.symlink_to(theirs)
    with pytest.raises(BadInput, match="belongs to another user"):
        Home(link / "ganger").take(shared=True)
    with pytest.raises(BadInput, match="belongs to another user"):
        Home(theirs).take()
    common = tmp_path / "common"
    common.mkdir()
    common.chmod(0o777)
    with pytest.raises(BadInput, match="can be written by others"):
        Home(common / "ganger").take(shared=True)
    common.chmod(0o1777)
    home = Home(common / "ganger")
    home.take(shared=True)
    home.leave()


def test_a_folder_that_others_wrote_in_is_closed_to_them(tmp_path: Path) -> None:
    root = tmp_path / "home"
    root.mkdir()
    root.chmod(0o777)
    home = Home(root)
    home.take()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    home.leave()


def test_a_link_in_the_folder_is_not_followed_into_another_file(tmp_path: Path) -> None:
    """Only its owner can put one there, so that this is about accidents."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    (root / "daemon.pid").symlink_to(victim)
    home = Home(root)
    with pytest.raises(OSError, match="symbolic"):
        home.take()
    home.leave()
    assert victim.read_text() == "precious"


def test_the_shared_folder_is_the_daemons_own(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        _make_private(tmp_path / "a" / "shared")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "shared").stat().st_mode) == 0o700
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o770)
    with pytest.raises(BadInput, match="others can write"):
        _make_private(open_to_all)


def test_the_socket_is_never_open_wider_than_it_shall_be(tmp_path: Path) -> None:
    """Bound and made as it stays: there is no moment in between."""
    from ganger.service.http.server import unix_socket

    for shared, mode in ((False, 0o600), (True, 0o666)):
        home = Home(tmp_path)
        sock = unix_socket(home, shared)
        assert sock.family == socket.AF_UNIX
        assert stat.S_IMODE(home.socket.stat().st_mode) == mode
        sock.close()
