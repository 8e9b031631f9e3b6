"""`ganger tune` as a user runs it, on one daemon."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from cli.rig import Shell

TRIAL = """
import sys, time
rate, size = float(sys.argv[1]), int(sys.argv[2])
for epoch in (1, 2, 3):
    print(f"epoch {epoch}: acc={epoch / 4 - abs(rate - 0.5) - size / 1000}", flush=True)
    time.sleep(.02)
"""
EXPERIMENT = """
format = "ganger.experiment/1"
name = "tiny"
metric = "acc"
mode = "max"
recipe = "tune.random"
parallelism = 2
trials = 3
epochs = 3
command = ["{python}", "{trial}", "{{rate}}", "16"]
[space.rate]
low = 0.1
high = 0.9
"""


def trial(shell: Shell) -> str:
    path = Path(shell.cwd) / "trial.py"
    path.write_text(TRIAL)
    return str(path)


def test_a_search_in_words_is_followed_to_its_best(shell: Shell) -> None:
    words = ["--space", "rate=0.1..0.9,bs=16|32", "--metric", "acc", "--max", "--trials", "4"]
    words += ["--epochs", "3", "--parallel", "2", "--recipe", "tune.random", "--deadline", "1h"]
    done = shell.ganger("tune", *words, "--", sys.executable, trial(shell), "{rate}", "{bs}")
    found = re.match(
        r"search (\d+): up to 4 trials of tune\.random\(.*\); deadline=1h", done.stdout
    )
    assert found
    number = found[1]
    assert "trials: 4 completed" in done.stdout
    assert re.search(
        r"^best: 0\.\d+ after step 3, job \d+ \(rate=\S+ bs=\d+\)$", done.stdout, re.MULTILINE
    )
    assert re.search(r"^Preempted: +never", shell.said("show", number), re.MULTILINE)
    best = shell.json("tune", "best", number)
    detail = shell.json("tune", "show", number)
    values = [child["value"] for child in detail["family"]["children"]]
    assert len(values) == 4
    assert best["value"] == max(values)
    assert shell.said("tune", "best", number).splitlines()[0] == f"rate={best['params']['rate']}"
    assert number in [str(job["job"]) for job in shell.json("tune", "list")]
    assert "tuned" not in shell.said("tune", "list")


def test_a_file_says_it_too_and_a_search_can_be_stopped(shell: Shell) -> None:
    file = Path(shell.cwd) / "experiment.toml"
    file.write_text(EXPERIMENT.format(python=sys.executable, trial=trial(shell)))
    shown = json.loads(shell.said("tune", str(file), "--dry-run", "--trials", "2"))
    assert len(shown["configurations"]) == 2
    assert shown["recipe"] == "tune.random(mode=max,gpus=1,epochs=3,trials=2)"
    done = shell.ganger("tune", str(file), "--name", "again")
    assert "search" in done.stdout.splitlines()[-1] or "best" in done.stdout
    words = ["--space", "x=1..9", "--metric", "m", "--parallel", "1", "--detach", "--json"]
    slow = json.loads(shell.said("tune", *words, "--", "sleep", "60"))
    stopped = shell.ganger("tune", "stop", str(slow["job"]))
    assert stopped.stdout == f"search {slow['job']} is cancelled, and its trials with it\n"
    shell.ganger("tune", "follow", str(slow["job"]), code=1)


def test_what_is_wrong_is_said_in_a_line(shell: Shell) -> None:
    other = shell.submit("--", "true")
    for words, said in (
        (["--space", "x=1..9", "--", "true"], "what are trials judged by"),
        (["--metric", "m", "--", "true"], "there is nothing to try"),
        (["--metric", "m", "--space", "x=1..9"], "what does a trial run"),
        (["--metric", "m", "--space", "x", "--", "true"], "is not a valid parameter"),
        (["--metric", "m", "--space", "x=1..9", "--trials", "0", "--", "true"], "'--trials': 0"),
        (["--metric", "m", "--space", "x=1..9", "--budget", "epochs=0", "--", "true"], "above 0"),
        (["--metric", "m", "--space", "x=1..9", "--budget", "money=5", "--", "true"], "no price"),
        (
            ["--metric", "m", "--space", "x=1..9", "--recipe", "seer(gpu_hours=0.1)", "--", "true"],
            "not one trial comes as far",
        ),
        (["shw", "1"], "Did you mean ganger tune show?"),
        (["missing.toml"], "no such file"),
        (["show", str(other)], "is not a search"),
        (["best", "999999"], "999999"),
    ):
        done = shell.ganger("tune", *words, code=2)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1 or done.stderr.startswith("Usage: ")


def test_no_more_trials_at_once_than_fit_where_nobody_says_how_many(shell: Shell) -> None:
    """Six GPUs are there: one trial of four at a time, and not the four trials of the default."""
    words = ["--space", "x=1..9", "--metric", "m", "--gpus", "4", "--detach", "--json"]
    made = json.loads(shell.said("tune", *words, "--", "sleep", "60"))
    assert shell.json("tune", "show", str(made["job"]))["gpus"] == 4
    shell.ganger("tune", "stop", str(made["job"]))
    done = shell.ganger("tune", *words, "--parallel", "4", "--", "sleep", "60", code=2)
    assert "16" in done.stderr
