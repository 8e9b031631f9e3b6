"""Studies of Optuna on the cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ganger.client.answers import JobDetail, JobPage
from ganger.client.connection import Client
from ganger.core.errors import BadInput
from integrations import objectives

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def study_of(**more: Any) -> Any:
    return optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1), **more)


def optimize(*args: Any, **more: Any) -> None:
    from ganger.integrations.optuna import optimize as run

    run(*args, **more)


def last_search(client: Client) -> JobDetail:
    """The search that was submitted last."""
    query = {"state": "all", "kind": "tune", "limit": 1}
    page: JobPage = client.call("GET", "/v1/jobs", JobPage, query=query)
    found: JobDetail = client.call("GET", f"/v1/jobs/{page.jobs[0].job}", list[JobDetail])[0]
    return found


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_trials_are_jobs_and_a_recipe_prunes_them(daemon: Client) -> None:
    """One that the recipe ended is pruned for the study; its pruner, which would end all, is not
    asked."""
    study = study_of(pruner=optuna.pruners.ThresholdPruner(upper=0.0))
    optimize(study, objectives.outdone, n_trials=9, n_jobs=3, recipe="tune.asha(epochs=9)")
    assert len(study.trials) == 9
    assert states(study)[0] == "COMPLETE"
    assert states(study)[3:] == ["PRUNED"] * 6
    whole = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert study.best_value == min(trial.value for trial in whole)
    assert all(trial.user_attrs == {"layers": trial.params["layers"]} for trial in whole)
    search = last_search(daemon)
    assert (search.state, search.gpus) == ("COMPLETED", 3)
    assert search.family is not None
    assert [child.params["trial"] for child in search.family.children] == list("012345678")
    values = {child.value for child in search.family.children}
    assert {trial.value for trial in whole} <= values
    assert not list((daemon.places.root / "calls").iterdir())


def test_a_trial_that_is_set_aside_for_good_is_pruned(daemon: Client) -> None:
    """Of three, one goes on from each rung; the others stay where they are until the end."""
    study = study_of()
    optimize(study, objectives.patient, n_trials=3, n_jobs=3, recipe="tune.sha(epochs=3)")
    assert sorted(states(study)) == ["COMPLETE", "PRUNED", "PRUNED"] or set(states(study)) == {
        "PRUNED"
    }, "the one that goes on is ended after its third epoch, unless it is faster"
    search = last_search(daemon)
    assert search.family is not None
    assert [child.state for child in search.family.children].count("SET_ASIDE") == 2


def test_without_a_recipe_the_studys_own_pruner_is_asked(daemon: Client) -> None:
    study = study_of(pruner=optuna.pruners.ThresholdPruner(upper=0.0))
    optimize(study, objectives.parabola, n_trials=2, n_jobs=2)
    assert states(study) == ["PRUNED"] * 2
    assert [trial.last_step for trial in study.trials] == [1, 1]


def test_what_an_objective_raises_ends_the_study_and_is_raised_here(
    daemon: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/tmp")
    monkeypatch.setattr("ganger.client.environment._KEPT", ("PATH", "HOME", "MARK"))
    monkeypatch.setenv("MARK", str(tmp_path / "first"))
    study = study_of()
    with pytest.raises(ZeroDivisionError, match="as it does"):
        optimize(study, objectives.fails_at_two, n_trials=60)
    assert states(study)[2] == "FAIL"
    assert len(study.trials) < 60
    while (state := last_search(daemon).state) == "COMPLETING":  # its trials are ending
        time.sleep(0.05)
    assert state == "CANCELLED"
    monkeypatch.setenv("MARK", str(tmp_path / "second"))
    study = study_of()
    optimize(study, objectives.fails_at_two, n_trials=4, catch=ZeroDivisionError)
    assert states(study) == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    monkeypatch.setenv("MARK", str(tmp_path / "third"))
    study = study_of()
    optimize(study, objectives.fails_at_two, n_trials=4, retries=1)
    assert [trial.value for trial in study.trials] == [0, 1, 2, 3], "the third was tried again"


def test_a_trial_that_is_killed_counts_as_failed_and_the_study_goes_on(daemon: Client) -> None:
    study, heard = study_of(), []
    optimize(
        study,
        objectives.killed_at_one,
        n_trials=3,
        callbacks=[lambda _, trial: heard.append(trial.number)],
    )
    assert states(study) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert heard == [0, 1, 2]


def test_a_callback_stops_the_study_which_may_have_several_values(daemon: Client) -> None:
    study = study_of(directions=["minimize", "maximize"])
    optimize(
        study,
        objectives.two_values,
        n_trials=50,
        callbacks=[optuna.study.MaxTrialsCallback(2)],
    )
    assert 2 <= states(study).count("COMPLETE") < 50
    assert study.best_trials
    assert last_search(daemon).state == "CANCELLED"
    with pytest.raises(BadInput, match="the study has several"):
        optimize(study, objectives.two_values, n_trials=2, recipe="tune.sha")


def test_what_cannot_be_is_said_before_anything_runs(daemon: Client) -> None:
    study = study_of()
    for words, said in (
        ({"n_trials": 0}, "n_trials"),
        ({"n_trials": 2, "recipe": "tune.nothing"}, "tune.nothing"),
        ({"n_trials": 2, "gpus": 64}, "the cluster has 4"),
        ({"n_trials": 2, "recipe": "tune.hyperband(epochs=81)"}, "starts 143 trials"),
    ):
        with pytest.raises(BadInput, match=said):
            optimize(study, objectives.parabola, **words)
    assert not study.trials


SCRIPT = """
import optuna
from ganger.integrations.optuna import optimize

def objective(trial):
    return trial.suggest_float("x", 0, 1)

{guard}
    study = optuna.create_study()
    optimize(study, objective, n_trials=2, n_jobs=2, catch={catch})
    print(len(study.trials), study.best_value == min(each.value for each in study.trials))
"""


@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_a_script_needs_no_daemon(tmp_path: Path, guard: str) -> None:
    """It has its own, and nothing is left of that. A script that would begin another study in each
    of its trials is told so."""
    file, home, temporary = tmp_path / "mine.py", tmp_path / "home", tmp_path / "tmp"
    temporary.mkdir()
    file.write_text(SCRIPT.format(guard=guard, catch="()"))
    environment = {"PATH": "/usr/bin:/bin", "GANGER_HOME": str(home), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if guard == "if True:":
        assert "put that under `if __name__" in done.stderr
    else:
        assert done.stdout == "2 True\n", done.stderr
    assert not home.exists()
    assert not list(temporary.iterdir())
