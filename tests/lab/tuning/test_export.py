"""What `ganger tune export` writes, where others may write too, and how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.lab.tuning.export import Tried, write


def trial() -> Tried:
    made = Tried("2", {"lr": "0.1"}, ended=True)
    made.hear(1.0, 2.0, {"loss": 0.5})
    return made


def test_a_link_that_somebody_laid_is_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "precious"
    theirs.write_text("keep")
    (tmp_path / ".curves.csv.part").symlink_to(theirs)
    assert write(tmp_path / "curves.csv", [trial()], "loss", more_is_better=False) == 1
    assert theirs.read_text() == "keep"
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".curves.csv.part",
        "curves.csv",
        "precious",
    ]


def test_what_a_killed_export_left_is_not_in_the_way(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    study = tmp_path / "study.db"
    write(study, [trial()], "loss", more_is_better=False)
    study.rename(tmp_path / ".study.db.part")
    assert write(study, [trial()], "loss", more_is_better=False) == 1


def test_many_reports_of_a_trial_are_heard_each_once() -> None:
    made = Tried("2", {"lr": "0.1"}, ended=True)
    for number in range(100_000):
        made.hear(float(number), 1.0, {"loss": 0.5})
    for epoch in (50_000.0, 50_001.0):
        made.hear(epoch, 2.0, {"loss": 0.25})
    assert len(made.reports) == 50_002
    assert list(made.reports)[-2:] == [50_000.0, 50_001.0]


def test_a_study_spreads_by_the_logarithm_what_differs_a_hundredfold(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    points = ({"lr": "0.1", "x": "1"}, {"lr": "0.001", "x": "2"})
    trials = [Tried(str(at), point, ended=True) for at, point in enumerate(points)]
    for each in trials:
        each.hear(1.0, 2.0, {"loss": 0.5})
    write(tmp_path / "study.db", trials, "loss", more_is_better=False)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/study.db")
    among = study.trials[0].distributions
    assert (among["lr"].log, among["x"].log) == (True, False)
