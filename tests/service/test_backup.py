"""Backups of the journal, and what is said of one that is damaged, empty or in the wrong place."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.rig import Shell
from ganger.client.places import Places
from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.service import agents
from ganger.service.durable import backup as service_backup
from ganger.service.durable.backup import backup, look_at, restore
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from service.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    with contextlib.suppress(AssertionError):
        made.ganger("down")
    agents.stop(made.home / "agent")


def overwrite(path: Path, *, at: int, size: int = 4096) -> None:
    """A page of noise where a page was."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(os.urandom(size))


def test_a_copy_of_the_file_after_the_end_is_whole(desk: Desk, tmp_path: Path) -> None:
    desk.submit()
    desk.until_quiet()
    desk.close()
    shutil.copy(tmp_path / "journal.db", tmp_path / "copy.db")
    copy = Journal(tmp_path / "copy.db", readonly=True)
    assert check_history(copy) == desk.daemon.kernel.revision
    copy.close()


def test_a_backup_is_made_while_others_write_and_holds_one_moment(
    desk: Desk, tmp_path: Path
) -> None:
    desk.submit()
    desk.journal.db.execute("BEGIN IMMEDIATE")
    desk.journal.db.execute("INSERT INTO settings VALUES ('half', 'done')")
    found = backup(Places(tmp_path), tmp_path / "copy.db")
    desk.journal.db.execute("ROLLBACK")
    assert found.jobs == 1
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    copy = Journal(tmp_path / "copy.db", readonly=True)
    assert (copy.setting("half"), check_history(copy)) == ("", desk.daemon.kernel.revision)
    copy.close()
    assert sorted(path.name for path in tmp_path.glob("*copy*")) == ["copy.db"]


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "token", "daemon.lock"])
def test_a_backup_takes_the_place_of_no_file_of_the_home(
    name: str, desk: Desk, tmp_path: Path
) -> None:
    """The daemon would go on writing into a file that has no name any more."""
    places = Places(tmp_path)
    before = places.journal.stat().st_ino
    with pytest.raises(BadInput, match="uses this file itself"):
        backup(places, tmp_path / name, force=True)
    assert places.journal.stat().st_ino == before


def test_a_backup_takes_the_place_of_plain_files_only(desk: Desk, tmp_path: Path) -> None:
    """As root it would be the end of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("pipe", "link"):
        with pytest.raises(BadInput, match="regular file"):
            backup(Places(tmp_path), tmp_path / name, force=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)


def test_a_folder_that_others_write_in_is_not_where_a_backup_is_made(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite opens its files by name, again and again: another user would put links there."""
    places, worked = Places(tmp_path), []
    for folder, mode in (("own", 0o700), ("theirs", 0o777)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder).chmod(mode)
    monkeypatch.setattr(
        "ganger.service.durable.backup.refuse_others_folder", lambda folder, above: None
    )
    copies = service_backup._copy

    def copy(source: Path, made: Path) -> None:
        worked.append(made)
        copies(source, made)

    monkeypatch.setattr(service_backup, "_copy", copy)
    for folder in ("own", "theirs"):
        backup(places, tmp_path / folder / "copy.db")
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["copy.db"]
        assert look_at(tmp_path / folder / "copy.db").jobs == 0
    assert worked[0].parent.parent == tmp_path / "own"
    assert tmp_path / "theirs" not in worked[1].parents
    assert stat.S_IMODE((tmp_path / "theirs" / "copy.db").stat().st_mode) == 0o600


def test_a_backup_comes_from_another_disk(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def across(source: Path | str, target: Path | str, **folders: int) -> None:
        if isinstance(source, Path):
            raise OSError(errno.EXDEV, "another disk")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", across)
    backup(Places(tmp_path), tmp_path / "copy.db")
    assert look_at(tmp_path / "copy.db").bytes == (tmp_path / "copy.db").stat().st_size
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*"))


def test_a_backup_overwrites_nothing_unless_told(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("dear")
    with pytest.raises(BadInput, match="--force"):
        backup(Places(tmp_path), tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "dear"
    backup(Places(tmp_path), tmp_path / "copy.db", force=True)
    assert look_at(tmp_path / "copy.db").jobs == 0


def test_a_restore_keeps_what_was_there_and_gives_no_number_twice(
    desk: Desk, tmp_path: Path
) -> None:
    desk.submit(hold=True)
    backup(Places(tmp_path), tmp_path / "copy.db")
    desk.submit(array="0-1")
    begin = desk.daemon.header
    desk.close()
    (tmp_path / "agent" / "attempts" / "4.1.0").mkdir(parents=True)
    found = restore(Places(tmp_path), tmp_path / "copy.db")
    assert look_at(Path(found.kept)).jobs == 3
    again = Desk(tmp_path, begin)
    again.daemon.engine.post()
    assert again.submit() == [5]
    assert [again.phase(row) for row in range(5)] == [Phase.BLOCKED] + [Phase.CANCELLED] * 4
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


@pytest.mark.parametrize("what", ["no journal at all" * 500, "", None])
def test_what_is_no_backup_is_not_restored(desk: Desk, tmp_path: Path, what: str | None) -> None:
    desk.submit()
    desk.close()
    before = (tmp_path / "journal.db").read_bytes()
    if what is not None:
        (tmp_path / "copy.db").write_text(what)
    with pytest.raises(BadInput):
        restore(Places(tmp_path), tmp_path / "copy.db")
    assert (tmp_path / "journal.db").read_bytes() == before


def test_a_daemons_home_is_backed_up_and_restored_by_words(shell: Shell) -> None:
    shell.ganger("up", "--gpus", "2")
    job = shell.submit("-J", "dear", "--", "true")
    shell.ganger("wait", str(job))
    assert "1 job" in shell.said("backup", "copy.db")
    assert "exists already" in shell.ganger("backup", "copy.db", code=2).stderr
    lost = shell.submit("--", "sleep", "60")
    done = shell.ganger("restore", "copy.db", code=2)
    assert "a daemon runs there" in done.stderr
    assert "ganger down" in done.stderr
    shell.ganger("down")
    assert "journal-" in shell.said("restore", "copy.db")
    shell.ganger("up")
    assert shell.json("show", str(job))[0]["name"] == "dear"
    assert shell.submit("--", "true") == lost + 1
    assert shell.json("show", str(lost))[0]["state"] == "CANCELLED"


# ---------------------------------------------------------------------- what is said


def one_sentence(shell: Shell, *said: str, words: tuple[str, ...] = ("up", "--gpus", "2")) -> None:
    """`ganger up` refuses in one line that says all of this, and the log has no traceback."""
    done = shell.ganger(*words, code=2)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for one in said:
        assert one in lines[0]
    log = shell.home / "daemon.log"
    assert not log.is_file() or "Traceback" not in log.read_text()


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A home in which a job ran."""
    shell.ganger("up", "--gpus", "2")
    shell.submit("--wait", "--", "true")
    shell.ganger("down")
    return shell


def test_after_down_the_file_is_all(used: Shell) -> None:
    wal = used.home / "journal.db-wal"
    assert not wal.exists() or not wal.stat().st_size
    shutil.copy(used.home / "journal.db", used.cwd / "copy.db")
    assert look_at(used.cwd / "copy.db").jobs == 1


def test_a_page_that_was_overwritten(used: Shell) -> None:
    journal = used.home / "journal.db"
    for page in range(1, journal.stat().st_size // 4096):
        overwrite(journal, at=4096 * page)
    one_sentence(used, "journal.db", "ganger restore", "ganger doctor")


def test_any_one_page_that_was_overwritten(desk: Desk, tmp_path: Path) -> None:
    desk.submit(array="0-199")
    desk.until_quiet()
    begin = desk.daemon.header
    desk.close()
    pages = (tmp_path / "journal.db").stat().st_size // 4096
    assert pages > 20
    refused = []
    for page in range(pages):
        home = tmp_path / str(page)
        home.mkdir()
        shutil.copy(tmp_path / "journal.db", home)
        overwrite(home / "journal.db", at=4096 * page)
        try:
            journal = Journal(home / "journal.db")
            with contextlib.closing(journal):
                journal.looked_through()
            again = Desk(home, begin)
            again.submit()
            again.close()
        except BadInput as error:
            refused.append(str(error))
    assert len(refused) > pages // 2
    assert all("ganger restore" in said for said in refused)


def test_a_record_that_was_overwritten(used: Shell) -> None:
    with sqlite3.connect(used.home / "journal.db") as db:
        db.execute("UPDATE batches SET events = x'c1c1c1'")
        db.execute("DELETE FROM snapshots")
    db.close()
    one_sentence(used, "the journal is damaged", "ganger restore")


def test_an_empty_journal_beside_an_agent(used: Shell) -> None:
    for path in used.home.glob("journal.db*"):
        path.unlink()
    one_sentence(used, "the agent beside it", "ganger restore")
    (used.home / "journal.db").touch()
    one_sentence(used, "the agent beside it", "ganger restore")


@pytest.mark.parametrize("option", ["--listen", "--agents"])
def test_a_port_that_is_taken(shell: Shell, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one_sentence(
            shell,
            option,
            "in use",
            "port",
            words=("up", "--gpus", "2", option, f"127.0.0.1:{port}"),
        )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    found = tmp_path / "disk"
    found.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", found], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("no disk can be mounted here")
    yield found
    subprocess.run(["umount", "-l", found], check=True)


def test_a_full_disk_and_one_that_cannot_be_written(shell: Shell, disk: Path) -> None:
    shell.env["GANGER_HOME"] = str(disk)
    shell.home = disk
    with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    done = shell.ganger("up", "--gpus", "2", code=2)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "full" in done.stderr or "No space" in done.stderr
    (disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = shell.ganger("up", "--gpus", "2", code=2)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Read-only" in done.stderr
    assert "GANGER_HOME" in done.stderr


def test_what_a_full_disk_lost_of_a_job_s_output_is_told(shell: Shell, disk: Path) -> None:
    shell.ganger("up", "--gpus", "2")
    wrote = 3_000_000
    text = f"import sys; sys.stdout.write('x' * {wrote}); sys.exit(5)"
    log = disk / "out.log"
    shell.ganger("submit", "--output", str(log), "--", sys.executable, "-c", text)
    shell.ganger("wait", "1", code=5)
    lost = f"{wrote - log.stat().st_size} bytes of its output are missing: No space left on device"
    assert shell.ganger("logs", "1").stderr == f"ganger: attempt 1: {lost}\n"
    assert f"exit code 5; {lost}" in shell.ganger("show", "1").stdout
    shell.ganger("down")
    shell.ganger("up", "--gpus", "2")
    assert lost in shell.ganger("explain", "1").stdout
    (detail,) = json.loads(shell.ganger("show", "1", "--json").stdout)
    assert [one["note"] for one in detail["attempts"]] == [lost]
