"""Which checkpoints of a search are kept: the best and the last, within a disk; nothing that is in
use, and nothing of anybody else."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from ganger.client.answers import JobDetail
from ganger.core.errors import BadInput
from ganger.lab.tuning.checkpoints import (
    Keep,
    Saved,
    keep_of,
    refuse_used,
    size_of,
    superfluous,
    thin,
)
from ganger.mechanisms.tuning.trials import Mode
from lab.test_report_searches import detail_of

PAGE = 1 << 16


def saved(job: int, value: float, *, over: bool = True, size: int = 10) -> Saved:
    """A trial that ended at the time of its number."""
    return Saved(job, over, float(job), value, size)


def gone(trials: list[Saved], keep: Keep, mode: Mode = Mode.MAX) -> list[int]:
    return [trial.job for trial in superfluous(trials, keep, mode)]


def test_the_best_and_the_last_are_kept() -> None:
    trials = [saved(1, 0.5), saved(2, 0.9), saved(3, 0.8), saved(4, 0.1), saved(5, 0.2)]
    assert gone(trials, Keep(best=1, last=2)) == [1, 3]
    assert gone(trials, Keep(best=2)) == [1, 4, 5]
    assert gone(trials, Keep(best=1, last=2), Mode.MIN) == [1, 2, 3]
    assert gone(trials, Keep(last=1)) == [1, 3, 4]  # and the best, whatever is said
    assert gone(trials, Keep(best=9)) == []


def test_what_goes_on_is_kept_and_what_broke_down_is_the_worst() -> None:
    trials = [saved(1, 0.5), saved(2, 0.9, over=False), saved(3, math.nan), saved(4, 0.4)]
    assert gone(trials, Keep(best=1)) == [3, 4]
    assert gone(trials, Keep(best=2)) == [3]


def test_within_a_disk_the_last_go_first_then_the_worst_and_the_best_never() -> None:
    trials = [saved(1, 0.5), saved(2, 0.9), saved(3, 0.8), saved(4, 0.1), saved(5, 0.2, over=False)]
    assert gone(trials, Keep(disk=50)) == []
    assert gone(trials, Keep(disk=49)) == [4]
    assert gone(trials, Keep(disk=20)) == [1, 3, 4]
    assert gone(trials, Keep(disk=1)) == [1, 3, 4]
    assert gone(trials, Keep(best=2, last=1, disk=39)) == [1, 4]


def test_words() -> None:
    assert keep_of("best=1, last=2,disk=20GiB") == Keep(1, 2, 20 << 30)
    for wrong, said in (
        ("best", "does not say what is kept"),
        ("best=1,best=2", "does not say"),
        ("worst=1", "does not say"),
        ("best=-1", "best of '-1'"),
        ("last=99999", "last of '99999'"),
        ("best=0", "it keeps nothing"),
        ("disk=many", "not a valid amount"),
    ):
        with pytest.raises(BadInput, match=said):
            keep_of(wrong)


def trial_folder(folder: Path, number: int) -> Path:
    place = folder / str(number)
    place.mkdir()
    (place / "model.pt").write_bytes(b"x" * PAGE)
    return place


def search(
    folder: Path, states: list[str], recipe: str = "tune.asha", state: str = "RUNNING"
) -> tuple[JobDetail, list[JobDetail]]:
    """A search whose trial n is job n + 2, reported n last, and saves in the folder n."""
    children: list[dict[str, Any]] = [
        {
            "job": n + 2,
            "name": "t",
            "state": each,
            "gpus": 1,
            "params": {},
            "step": 1.0,
            "value": float(n),
            "checkpoint_dir": str(folder / str(n)),
        }
        for n, each in enumerate(states)
    ]
    family = {"children": children, "best": None, "metric": "acc", "more_is_better": True,
              "recipe": recipe}  # fmt: skip
    trials = [
        detail_of(each["job"], state=each["state"], finished=100.0 + each["job"])
        for each in children
    ]
    return detail_of(1, kind="tune", state=state, family=family), trials


def test_a_folder_is_thinned_and_it_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    places = [trial_folder(folder, n) for n in range(4)]
    (folder / "notes.txt").write_text("mine")
    whole, trials = search(folder, ["COMPLETED", "PENDING", "FAILED", "COMPLETED"])
    said = thin(whole, trials, folder, Keep(best=1), act=False)
    assert (said.jobs, said.freed) == ([2, 4], 2 * size_of(places[0]))
    assert all(place.exists() for place in places)
    done = thin(whole, trials, folder, Keep(best=1))
    assert str(done) == (
        "removed checkpoints of 2 trials (jobs 2 4), 128.0 KiB; 128.0 KiB are left"
    )
    assert [place.exists() for place in places] == [False, True, False, True]
    assert (folder / "notes.txt").exists()
    again = thin(whole, trials, folder, Keep(disk=PAGE))
    assert again.jobs == []
    assert "more than 64.0 KiB, since it is in use, or the best" in str(again)


def test_while_trials_may_be_copied_nothing_goes(tmp_path: Path) -> None:
    place = trial_folder(tmp_path, 0)
    states = ["COMPLETED", "COMPLETED"]
    whole, trials = search(tmp_path, states, recipe="tune.pbt")
    assert "copies of others" in str(thin(whole, trials, tmp_path, Keep(best=1)))
    assert place.exists()
    trial_folder(tmp_path, 1)
    whole, trials = search(tmp_path, states, recipe="tune.pbt", state="COMPLETED")
    assert thin(whole, trials, tmp_path, Keep(best=1)).jobs == [2]
    assert not place.exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years")
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "0").symlink_to(precious)
    inside = trial_folder(folder, 1)
    (inside / "away").symlink_to(precious)
    trial_folder(folder, 2)
    whole, trials = search(folder, ["COMPLETED"] * 3)
    assert thin(whole, trials, folder, Keep(best=1)).jobs == [3]  # job 2 has only a link
    assert (precious / "thesis").exists()
    assert not inside.exists()


def test_only_the_users_own_folder_in_which_the_search_saves(tmp_path: Path) -> None:
    folder, other = tmp_path / "kept", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    trial_folder(folder, 0)
    trial_folder(other, 0)
    whole, trials = search(folder, ["COMPLETED"] * 2)
    with pytest.raises(BadInput, match="do not save there"):
        thin(whole, trials, other, Keep(best=1))
    with pytest.raises(BadInput, match="cannot look into it"):
        thin(whole, trials, tmp_path / "none", Keep(best=1))
    folder.chmod(0o777)
    with pytest.raises(BadInput, match="others may change it"):
        thin(whole, trials, folder, Keep(best=1))
    folder.chmod(0o755)
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match=f"others may change {tmp_path}"):
        thin(whole, trials, folder, Keep(best=1))
    tmp_path.chmod(0o700)
    for detail in (detail_of(1, kind="tune"), search(Path("/"), ["COMPLETED"])[0]):
        with pytest.raises(BadInput, match="do not save there"):
            thin(detail, trials, folder, Keep(best=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="WHAT BELONGS TO OTHERS IS NOT TESTED: only root can")
def test_what_belongs_to_another_user_stays(tmp_path: Path) -> None:
    places = [trial_folder(tmp_path, n) for n in range(2)]
    os.chown(places[0], 65534, 65534)
    whole, trials = search(tmp_path, ["COMPLETED"] * 2)
    said = thin(whole, trials, tmp_path, Keep(best=1))
    assert said.jobs == []
    assert "0: it belongs to somebody else" in str(said)
    assert places[0].exists()


def test_a_folder_that_is_used_already_is_refused(tmp_path: Path) -> None:
    refuse_used(tmp_path / "new")
    refuse_used(tmp_path)
    (tmp_path / "0").mkdir()
    with pytest.raises(BadInput, match="holds something already"):
        refuse_used(tmp_path)
