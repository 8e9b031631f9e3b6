"""Homes, journals, logs, backups and recipes that another user wrote, or may change: nothing that
they name runs as whoever looks at them.

Needs root, to give files away: without it these tests are skipped, and say so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.rig import Shell
from ganger.client.places import Places
from ganger.client.strangers import others_may_change, refuse_others_file
from ganger.core.errors import BadInput
from ganger.service.durable.backup import backup, restore
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from ganger.service.reports.doctor import examine
from service.desk import Desk, header

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="FILES OF A SECOND USER ARE NOT TESTED: only root can make them"
)
NOBODY = 65534
RECIPE = """
from pathlib import Path
Path({mark!r}).touch()
from ganger.recipes import registry
def Mine():
    return registry.make("fifo")
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe of one's own that leaves a mark where it runs."""
    path = tmp_path / "own" / "mine.py"
    path.parent.mkdir()
    path.write_text(RECIPE.format(mark=str(mark_of(tmp_path))))
    return path


def mark_of(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "shell").mkdir()
    return Shell(tmp_path / "shell")


@pytest.fixture
def places(tmp_path: Path, recipe: Path) -> Places:
    """A home whose daemon is down, and ran the recipe; the mark of that is gone."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    desk = Desk(root, header(f"{recipe}:Mine"))
    desk.submit()
    desk.until_quiet()
    desk.journal.set("cluster", "c1")
    desk.close()
    (root / "agent").mkdir()
    (root / "agent" / "cluster").write_text("c1")
    mark_of(tmp_path).unlink()
    return Places(root)


def given(path: Path) -> None:
    """Another user wrote it."""
    os.chown(path, NOBODY, NOBODY)


def opened(path: Path) -> None:
    """Everybody may change it."""
    path.chmod(0o777)


def lent(path: Path) -> None:
    """A group of others may change it."""
    os.chown(path, -1, NOBODY)
    path.chmod(0o770)


def in_an_open_folder(path: Path) -> None:
    """Everybody may put another file in its place."""
    path.parent.chmod(0o777)


def in_a_given_folder(path: Path) -> None:
    """Another user may put another file in its place."""
    given(path.parent)


STRANGE: list[Callable[[Path], None]] = [given, opened, lent]
"""What makes a file one that a stranger decides of."""


def replayed(places: Places) -> int:
    journal = Journal(places.journal, readonly=True)
    try:
        return check_history(journal)
    finally:
        journal.close()


def failed(places: Places, about: str) -> bool:
    return any(one.level == "fail" and one.about == about for one in examine(places))


def test_the_owners_own_recipe_runs(places: Places, tmp_path: Path) -> None:
    assert replayed(places) > 0
    assert mark_of(tmp_path).exists()
    assert not failed(places, "recipe")


@pytest.mark.parametrize("strange", [*STRANGE, in_an_open_folder, in_a_given_folder])
def test_no_recipe_that_a_stranger_decides_of_runs_because_a_journal_names_it(
    places: Places, recipe: Path, tmp_path: Path, strange: Callable[[Path], None]
) -> None:
    strange(recipe)
    with pytest.raises(BadInput, match="what runs here"):
        replayed(places)
    assert failed(places, "recipe")
    with pytest.raises(BadInput, match="what runs here"):
        Desk(places.root, header(f"{recipe}:Mine"))
    assert not mark_of(tmp_path).exists()


def test_nor_one_behind_a_link_of_ones_own(places: Places, recipe: Path, tmp_path: Path) -> None:
    there = tmp_path / "theirs.py"
    recipe.rename(there)
    given(there)
    recipe.symlink_to(there)
    with pytest.raises(BadInput, match="another user's"):
        replayed(places)
    assert not mark_of(tmp_path).exists()


@pytest.mark.parametrize("strange", STRANGE)
def test_nothing_runs_because_a_strangers_journal_names_it(
    places: Places, tmp_path: Path, strange: Callable[[Path], None]
) -> None:
    strange(places.journal)
    with pytest.raises(BadInput, match="what runs here"):
        replayed(places)
    assert failed(places, "journal")
    with pytest.raises(BadInput, match="what runs here"):
        backup(places, tmp_path / "copy.db")
    with pytest.raises(BadInput, match="what runs here"):
        Journal(places.journal)
    assert not mark_of(tmp_path).exists()


@pytest.mark.parametrize("strange", STRANGE)
def test_nothing_in_a_home_that_a_stranger_writes_is_opened(
    places: Places, tmp_path: Path, strange: Callable[[Path], None]
) -> None:
    strange(places.root)
    assert failed(places, "home")
    looked = {one.about for one in examine(places)}
    assert looked <= {"versions", "home", "permissions"}
    assert not mark_of(tmp_path).exists()


@pytest.mark.parametrize("strange", STRANGE)
def test_no_backup_of_a_stranger_is_put_back(
    places: Places, tmp_path: Path, strange: Callable[[Path], None]
) -> None:
    copy = tmp_path / "copy.db"
    backup(places, copy)
    before = places.journal.read_bytes()
    strange(copy)
    with pytest.raises(BadInput, match="what runs here"):
        restore(places, copy)
    assert places.journal.read_bytes() == before
    os.chown(copy, 0, 0)
    copy.chmod(0o600)
    assert restore(places, copy).jobs == 1


@pytest.mark.parametrize("strange", STRANGE)
def test_nothing_runs_because_a_strangers_log_names_it(
    recipe: Path, tmp_path: Path, shell: Shell, strange: Callable[[Path], None]
) -> None:
    trace, log = tmp_path / "jobs.csv", tmp_path / "run.log"
    trace.write_text("submitted,gpus,duration\n0,1,60\n")
    words = ["--cluster", "1x4xV100", "--recipe", f"{recipe}:Mine", "--log", str(log)]
    shell.ganger("simulate", str(trace), *words)
    mark_of(tmp_path).unlink()
    strange(log)
    refused = shell.ganger("replay", str(log), code=2)
    assert "what runs here" in refused.stderr
    assert not mark_of(tmp_path).exists()


@pytest.mark.parametrize("strange", STRANGE)
def test_nothing_runs_because_a_strangers_scenario_names_it(
    recipe: Path, tmp_path: Path, shell: Shell, strange: Callable[[Path], None]
) -> None:
    scenario = tmp_path / "scenario.toml"
    (tmp_path / "jobs.csv").write_text(
        "submitted,gpus,duration,kind,model\n0,1,60,train,\n0,1,60,serve,resnet50\n"
    )
    scenario.write_text(
        'format = "ganger.scenario/1"\nmodels = "papers"\nrouters = ["serve.triton"]\n'
        'cluster = "1x4xT4"\n[[services]]\nname = "resnet50"\n'
        'generate = {kind = "poisson", rate = 1, duration = "9s"}\n'
        f'[training]\ntrace = "jobs.csv"\nrecipes = ["{recipe}:Mine"]\n'
        'scaling = "scale.threshold"\n'
    )
    strange(scenario)
    refused = shell.ganger("simulate", str(scenario), code=2)
    assert "what runs here" in refused.stderr
    assert not mark_of(tmp_path).exists()


def test_a_strangers_log_of_a_published_recipe_is_read(tmp_path: Path, shell: Shell) -> None:
    trace, log = tmp_path / "jobs.csv", tmp_path / "run.log"
    trace.write_text("submitted,gpus,duration\n0,1,60\n")
    words = ["--cluster", "1x4xV100", "--recipe", "fifo", "--log", str(log)]
    shell.ganger("simulate", str(trace), *words)
    given(log)
    assert "every plan is the same" in shell.said("replay", str(log))


def test_a_group_in_which_the_owner_is_alone_is_no_stranger(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.touch()
    path.chmod(0o664)  # as a umask of 002 makes it
    assert not others_may_change(path.stat())
    assert refuse_others_file(path) == path
    os.chown(path, 0, NOBODY)
    assert others_may_change(path.stat())
