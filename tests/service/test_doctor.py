"""`ganger doctor` on a healthy home and on homes that are broken, each in its own way."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.rig import Shell
from ganger.client.places import Places
from ganger.core.events import Command, Failed
from ganger.service import agents
from ganger.service.durable.journal import MIGRATIONS, Journal
from ganger.service.durable.recovery import set_aside_record
from ganger.service.reports.doctor import Finding, examine
from service.desk import Desk, header


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A home whose daemon is down, and in which a job ran."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    desk = Desk(root, header("fifo"))
    desk.submit()
    desk.until_quiet()
    desk.journal.set("cluster", "c1")
    desk.close()
    with sqlite3.connect(root / "journal.db") as db:  # its engine's time is not ours
        db.execute("UPDATE batches SET at = ?", (round(time.time() * 1e6),))
    db.close()
    (root / "agent").mkdir()
    (root / "agent" / "cluster").write_text("c1")
    return Places(root)


def failing(places: Places) -> list[Finding]:
    return [one for one in examine(places) if one.level != "ok" and one.about != "cgroups"]


def test_a_healthy_home(places: Places) -> None:
    assert failing(places) == []
    looked = {one.about for one in examine(places)}
    assert looked == {
        "versions",
        "home",
        "permissions",
        "disk",
        "journal",
        "clock",
        "recipe",
        "daemon",
        "agent",
        "cgroups",
    }


def torn(places: Places) -> None:
    """Noise over half of the journal."""
    with places.journal.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(places.journal.stat().st_size // 2))


def emptied(places: Places) -> None:
    """An empty journal beside an agent that served one."""
    places.journal.write_bytes(b"")


def newer(places: Places) -> None:
    """A journal of a version to come."""
    with sqlite3.connect(places.journal) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()


def poisoned(places: Places) -> None:
    """A record that was set aside."""
    journal = Journal(places.journal)
    with journal.writing() as cursor:
        record = set_aside_record(1, Command(0, "limit", 2.0**63), "OverflowError: too large")
        journal.write_set_aside(cursor, [record])
    journal.close()


def told(places: Places) -> None:
    """A token that all may read."""
    (places.root / "token").write_text("secret")
    (places.root / "token").chmod(0o644)


def opened(places: Places) -> None:
    """A folder that all may write."""
    places.root.chmod(0o777)


def killed(places: Places) -> None:
    """What a daemon left that was killed."""
    places.pid_file.write_text("4194304\n")
    places.socket.touch()


def misread(places: Places) -> None:
    """A file of whom to tell that cannot be read."""
    (places.root / "notify.toml").write_text("[[webhook]\n")


def ahead(places: Places) -> None:
    """A clock that was set back by an hour."""
    with sqlite3.connect(places.journal) as db:
        db.execute("UPDATE batches SET at = at + 3600000000")
    db.close()


def orphaned(places: Places) -> None:
    """A policy of the user's own, whose file is gone."""
    journal = Journal(places.journal)
    journal.begin_segment(header("/nowhere/mine.py"), 1000, None)
    journal.close()


def foreign(places: Places) -> None:
    """An agent that serves another cluster."""
    (places.root / "agent" / "cluster").write_text("c2")


def sited(places: Places) -> None:
    """Jobs on Slurm, on a machine that has no Slurm."""
    journal = Journal(places.journal)
    journal.set("engine", "slurm")
    journal.close()


def gone(places: Places) -> None:
    """No home at all."""
    shutil.rmtree(places.root)


def filed(places: Places) -> None:
    """A file where the home was."""
    shutil.rmtree(places.root)
    places.root.write_text("")


BROKEN: list[tuple[Callable[[Places], None], str, str, str, str]] = [
    (torn, "fail", "journal", "damaged", "ganger restore"),
    (emptied, "fail", "journal", "the agent beside it", "ganger restore"),
    (newer, "fail", "journal", "format", "version of Ganger"),
    (poisoned, "warn", "journal", "Command limit of job 1: OverflowError", "no action is needed"),
    (told, "fail", "permissions", "token (mode 644)", "chmod 600"),
    (opened, "fail", "home", "mode 777", "chmod 700"),
    (killed, "warn", "daemon", "ended without a word", "ganger up"),
    (misread, "fail", "notify", "notify.toml", "docs/notify.md"),
    (ahead, "fail", "clock", "ahead of this machine's clock", "timedatectl"),
    (orphaned, "fail", "recipe", "mine.py", "ganger up --recipe"),
    (foreign, "fail", "agent", "another cluster", "ganger restore"),
    (sited, "fail", "slurm", "sinfo", "Slurm's client commands"),
    (gone, "fail", "home", "not there", "ganger up"),
    (filed, "fail", "home", "not a folder", "GANGER_HOME"),
]


@pytest.mark.parametrize(
    ("spoil", "level", "about", "said", "mend"), BROKEN, ids=[one[0].__name__ for one in BROKEN]
)
def test_a_broken_home(
    places: Places,
    spoil: Callable[[Places], None],
    level: str,
    about: str,
    said: str,
    mend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    spoil(places)
    found = failing(places)
    assert len(found) == 1, found
    assert (found[0].level, found[0].about) == (level, about)
    assert said in found[0].said
    assert mend in found[0].mend


@pytest.mark.parametrize(("free", "level"), [(1 << 12, "fail"), (1 << 26, "warn")])
def test_a_disk_that_is_almost_full(
    places: Places, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    real = os.statvfs(places.root)
    full = SimpleNamespace(
        f_bavail=free // 512, f_frsize=512, f_files=0, f_favail=0, f_flag=real.f_flag
    )
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    (found,) = failing(places)
    assert (found.level, found.about) == (level, "disk")
    assert "make room" in found.mend


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    agents.stop(made.home / "agent")


def test_by_words_beside_a_daemon_and_after_it(shell: Shell) -> None:
    assert "ganger up" in shell.said("doctor", code=1)
    shell.ganger("up", "--gpus", "2", "--core-sets", "--name", "box")
    late = time.monotonic() + 60
    while "ok    sharing" not in (text := shell.said("doctor")):
        assert time.monotonic() < late, text
        time.sleep(0.1)
    assert "jobs share GPUs by core sets, on box" in text
    found = shell.json("doctor")
    assert {one["about"] for one in found} >= {"daemon", "agent", "sockets"}
    assert not [one for one in found if one["level"] == "fail"]
    shell.ganger("down")
    (shell.home / "agent-token").write_text("secret")
    (shell.home / "agent-token").chmod(0o644)
    said = shell.said("doctor", code=1)
    assert "fail  permissions: others may read" in said
    assert "      chmod 600 " in said


def test_what_strangers_reported_obeys_nobody_on_a_terminal(places: Places, shell: Shell) -> None:
    """Of many records the last are shown, each in one line of printable characters."""
    journal = Journal(places.journal)
    with journal.writing() as cursor:
        journal.write_set_aside(
            cursor,
            [
                set_aside_record(1, Failed(0, 1, why="x"), f"\x1b]0;title\x07\nok  {number}")
                for number in range(40)
            ],
        )
    journal.close()
    said = shell.said("doctor")
    assert "\x1b" not in said
    assert "\\x1b]0;title\\x07\\nok  39" in said
    assert said.count("title") == 10
    assert "40 records were set aside" in said
