"""`ganger tune` as a user runs it, on one daemon."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.rig import Shell
from ganger.client.connection import Client
from ganger.workloads.curves.reading import read_curves
from warm import script, serving

TRIAL = """
import os, pathlib, sys, time
rate, size = float(sys.argv[1]), int(sys.argv[2])
saved = pathlib.Path(os.environ["GANGER_CHECKPOINT_DIR"])
saved.mkdir(parents=True, exist_ok=True)
(saved / "model").write_text(str(rate))
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


@pytest.fixture(scope="module", autouse=True)
def forked(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Once the daemon is up, commands are forks of a process that has imported what they need."""
    root, own = tmp_path_factory.mktemp("typed"), shell.command
    script(root / "ganger", root / "socket")
    with serving(root / "socket", shell.env):
        shell.command = [str(root / "ganger")]
        yield
        shell.command = own


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


TWO = """
import sys
x = int(sys.argv[1])
print(f"epoch 1: acc={x / 10} latency={0.01 * x * x}")
"""


def test_the_best_keeps_what_it_must_and_others_are_on_the_front(shell: Shell) -> None:
    """Accuracy x / 10, latency x^2 / 100: 5 is the best within 0.3 s, and all up to it are on the
    front."""
    file = Path(shell.cwd) / "two.py"
    file.write_text(TWO)
    words = ["--space", "x=1..9", "--searcher", "grid", "--metric", "acc", "--max", "--trials", "5"]
    words += ["--also", "latency=min", "--constraint", "latency <= 300ms", "--parallel", "4"]
    words += ["--recipe", "tune.random"]
    done = shell.ganger("tune", *words, "--", sys.executable, "-S", str(file), "{x}")
    number = done.stdout.split()[1].rstrip(":")
    assert "(breaks: not latency<=0.3)" in done.stdout
    family = shell.json("tune", "show", number)["family"]
    assert (family["metrics"], family["constraints"]) == ({"latency": "min"}, ["latency<=0.3"])
    tried = {int(each["params"]["x"]): each for each in family["children"]}
    assert sorted(tried) == [1, 3, 5, 7, 9]
    assert [x for x in tried if tried[x]["feasible"]] == [1, 3, 5]
    assert tried[9]["metrics"] == {"latency": pytest.approx(0.81)}
    assert shell.json("tune", "best", number)["params"] == {"x": "5"}
    front = shell.json("tune", "best", number, "--pareto")
    assert [int(each["params"]["x"]) for each in front] == [1, 3, 5]
    assert family["pareto"] == [each["job"] for each in front]
    assert shell.said("tune", "best", number, "--pareto").count("front") == 3
    none = ["--constraint", "latency<=0", "--recipe", "tune.random", "--trials", "2"]
    words = ["--space", "x=1..9", "--metric", "acc", *none, "--parallel", "2"]
    done = shell.ganger("tune", *words, "--", sys.executable, "-S", str(file), "{x}", code=1)
    number = done.stdout.split()[1].rstrip(":")
    said = shell.ganger("tune", "best", number, code=2).stderr
    assert f"no trial of search {number} keeps latency<=0" in said
    with Client(shell.home) as client:
        query = {"kind": "tune", "alone": 1, "state": "all", "best": 1, "sort": "-submitted"}
        listed = client.call("GET", "/v1/jobs", query=query)["jobs"]
    assert [each["best"] for each in listed[:2]] == [None, pytest.approx(0.5)]


MINE = """
import os, pathlib

class Mine:
    def __init__(self, space, seed):
        self.seed, self.best = seed, (float("inf"), 9)
        with open(pathlib.Path(__file__).with_name("pids"), "a") as file:
            print(os.getpid(), seed, file=file)

    def ask(self):
        if self.best[1] < 2:
            os._exit(7)
        return {"x": max(self.best[1] - 1, 1)}

    def tell(self, point, epoch, badness):
        self.best = min(self.best, (badness, point["x"]))
"""


def test_a_searcher_of_ones_own_runs_in_ones_own_process(shell: Shell) -> None:
    """Each proposal is one below the best, 8 to 1. At 1 its process ends; another goes on, which
    has heard of all reports, and what is wrong with it ends the search."""
    folder = Path(shell.cwd)
    (folder / "mine.py").write_text(MINE)
    (folder / "two.py").write_text(TWO)
    words = ["--space", "x=1..9", "--metric", "latency", "--recipe", "tune.random", "--trials"]
    words += ["20", "--parallel", "1", "--searcher", "mine.py:Mine", "--"]
    command = [sys.executable, "-S", str(folder / "two.py"), "{x}"]
    done = shell.ganger("tune", *words, *command, code=7)
    number = done.stdout.split()[1].rstrip(":")
    tried = [
        each["params"]["x"] for each in shell.json("tune", "show", number)["family"]["children"]
    ]
    assert tried == list("87654321")
    assert f"ganger tune follow {number} --searcher" in shell.said("explain", number)
    (folder / "mine.py").write_text(MINE.replace("os._exit(7)", "return {'x': 0}"))
    wrong = shell.ganger("tune", "follow", number, "--searcher", "mine.py:Mine", code=2)
    assert "0 is not in the space" in wrong.stderr
    assert f"search {number} is cancelled" in wrong.stderr
    pids = [line.split() for line in (folder / "pids").read_text().splitlines()]
    assert [seed for _, seed in pids] == ["0", "8"]
    daemon = shell.json("status")["pid"]
    assert str(daemon) not in {pid for pid, _ in pids}
    for wrong_words, said in (
        (["--searcher", "mine.py:None"], "it defines no None"),
        (["--searcher", "missing.py:Mine"], "no such file"),
        (["--searcher", "mine.py:Mine", "--detach"], "runs in this process"),
        (["--searcher", "os:getcwd"], "the searcher raised"),
    ):
        refused = shell.ganger("tune", *words[:8], *wrong_words, "--", *command, code=2)
        assert said in refused.stderr


def check_exports(shell: Shell, search: str, children: list[dict[str, Any]]) -> None:
    """A table that the simulator reads, and a study."""
    folder = Path(shell.cwd)
    assert "6 trials of search" in shell.said("tune", "export", search, "curves.csv")
    table = read_curves(folder / "curves.csv", "")
    assert len(table) == 6
    last = [table.curve(row).values["acc"][-1] for row in range(6)]
    assert last == [each["value"] for each in children]
    assert [table.curve(row).epochs for row in range(6)] == [[1.0, 2.0, 3.0]] * 6
    assert (
        "it is there already" in shell.ganger("tune", "export", search, "curves.csv", code=2).stderr
    )
    assert "unknown format" in shell.ganger("tune", "export", search, "curves.xls", code=2).stderr
    shell.said("tune", "export", search, "curves.parquet")
    rows = pytest.importorskip("pyarrow.parquet").read_table(folder / "curves.parquet").to_pylist()
    assert [row["acc"] for row in rows if row["epoch"] == 3.0] == last
    optuna = pytest.importorskip("optuna")
    quiet = shell.ganger("tune", "export", search, "study.db")
    assert (quiet.stdout, quiet.stderr) == (f"6 trials of search {search} are in study.db\n", "")
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{folder / 'study.db'}")
    assert (study.direction.name, study.best_value) == ("MAXIMIZE", max(last))
    assert {name: f"{value:g}" for name, value in study.best_params.items()} == {
        name: f"{float(value):g}"
        for name, value in children[last.index(max(last))]["params"].items()
    }


def test_a_searcher_that_learns_goes_on_from_an_earlier_search(shell: Shell) -> None:
    words = ["--space", "rate=0.1..0.9,bs=16|32", "--metric", "acc", "--max", "--parallel", "2"]
    words += ["--epochs", "3", "--recipe", "tune.random", "--searcher", "kde", "--trials", "6"]
    command = [sys.executable, trial(shell), "{rate}", "{bs}"]
    done = shell.ganger("tune", *words, "--", *command)
    found = re.match(r"search (\d+): trials of tune\.random\(.*\), proposed by kde", done.stdout)
    assert found
    assert "trials: 6 completed" in done.stdout
    like = shell.said("tune", *words, "--dry-run", "--like", found[1], "--", *command)
    assert f"by 6 trials of search {found[1]}: 20 simulated runs, the median" in like
    assert re.search(r"^time: \d", like, re.MULTILINE)
    assert "--like: it is what a forecast" in shell.ganger("tune", *words, "--like", "1", "--",
        "true", code=2).stderr  # fmt: skip
    words += ["--warm-start", found[1], "--dry-run", "--json", "--checkpoints", "kept"]
    asked = json.loads(shell.said("tune", *words, "--", *command))
    children = shell.json("tune", "show", found[1])["family"]["children"]
    assert [each["value"] for each in asked["earlier"]] == [each["value"] for each in children]
    assert asked["checkpoint_dir"] == str(Path(shell.cwd) / "kept")
    assert (asked["searcher"], asked.get("configurations", [])) == ("kde", [])
    check_exports(shell, found[1], children)
    assert shell.said("tune", "report", found[1], "search.html") == "the report is search.html\n"
    page = (Path(shell.cwd) / "search.html").read_text()
    assert re.search(rf"tune\.random.* \({found[1]}\) found acc 0\.", page)
    assert "the page of a report" in shell.ganger("tune", "report", "1", "x.csv", code=2).stderr
    refused = shell.ganger("tune", *words, "--searcher", "random", "--", "true", code=2)
    assert "learns from no reports" in refused.stderr


def test_a_file_says_it_too_and_a_search_can_be_stopped(shell: Shell) -> None:
    file = Path(shell.cwd) / "experiment.toml"
    file.write_text(EXPERIMENT.format(python=sys.executable, trial=trial(shell)))
    shown = json.loads(shell.said("tune", str(file), "--dry-run", "--json", "--trials", "2"))
    assert len(shown["configurations"]) == 2
    assert shown["recipe"] == "tune.random(mode=max,gpus=1,epochs=3,trials=2)"
    assert shown["forecast"]["bounds"]["trials"] == 2
    keeping = ["--checkpoints", "kept", "--keep", "best=1"]
    done = shell.ganger("tune", str(file), "--name", "again", *keeping)
    number = re.match(r"search (\d+)", done.stdout)
    assert number
    assert "removed checkpoints of" in done.stderr
    best = Path(shell.json("tune", "best", number[1])["checkpoint_dir"])
    assert list(best.parent.iterdir()) == [best]
    kept = shell.said("tune", "prune", number[1], "kept", "--keep", "best=1")
    assert re.fullmatch(r"removed checkpoints of 0 trials, 0 bytes; \S+ KiB are left\n", kept)
    assert "holds something" in shell.ganger("tune", str(file), *keeping, code=2).stderr
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
        (["--metric", "m", "--space", "x=1..9", "--keep", "best=1", "--", "true"], "which folder"),
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


def test_trials_on_shares_run_side_by_side_on_one_gpu(shell: Shell) -> None:
    """Four halves are two GPUs; what makes no whole GPU is refused."""
    words = ["--space", "x=1..9", "--metric", "m", "--share", "0.5", "--trials", "4"]
    made = json.loads(
        shell.said("tune", *words, "--parallel", "4", "--detach", "--json", "--", "sleep", "60")
    )
    search = str(made["job"])
    wait_for(lambda: shell.json("tune", "show", search)["children"] == {"RUNNING": 4})
    assert shell.json("tune", "show", search)["gpus"] == 2
    trials = shell.json("tune", "show", search)["family"]["children"]
    shares = [shell.json("show", str(each["job"]))[0]["share"] for each in trials]
    assert shares == [0.5] * 4
    shell.ganger("tune", "stop", search)
    done = shell.ganger("tune", *words, "--parallel", "3", "--", "sleep", "60", code=2)
    assert "on each of which 2 trials run at once" in done.stderr


WAITS = """
import pathlib, sys, time
here, go = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
for epoch in range(1, 4):
    print(f"epoch={epoch} acc={sys.argv[3]}", flush=True)
    while not go.exists():
        time.sleep(0.02)
"""


def state(shell: Shell, job: int) -> str:
    return str(shell.json("show", str(job))[0]["state"])


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_search_is_paused_and_resumed_and_takes_more_trials(shell: Shell) -> None:
    """Its trials wait for a file. While it is paused another job has its GPUs."""
    file, go = Path(shell.cwd) / "waits.py", Path(shell.cwd) / "go"
    file.write_text(WAITS)
    words = ["--space", "x=1..9", "--metric", "acc", "--max", "--recipe", "tune.random"]
    words += ["--trials", "2", "--epochs", "3", "--parallel", "2", "--detach", "--json", "--"]
    command = [sys.executable, str(file), ".", str(go), "{x}"]
    row = json.loads(shell.said("tune", *words, *command))["job"]

    def trials() -> list[dict[str, object]]:
        family = shell.json("tune", "show", str(row))["family"]
        return list(family["children"]) if family else []

    wait_for(lambda: [each["step"] for each in trials()] == [1.0, 1.0])
    assert "is paused" in shell.said("tune", "pause", str(row))
    wait_for(lambda: state(shell, row) == "PENDING")
    assert {each["state"] for each in trials()} == {"PENDING"}
    other = shell.submit("--gpus", "2", "--", "true")
    wait_for(lambda: state(shell, other) == "COMPLETED")
    shell.said("tune", "resume", str(row))
    wait_for(lambda: {each["state"] for each in trials()} == {"RUNNING"})
    wrong = shell.ganger("tune", "add", str(row), "x=77", "y=78", code=2).stderr
    assert wrong == f"ganger: search {row} has no parameter 'y' (it has: x)\n"
    added = shell.said("tune", "add", str(row), "x=77", "x=78")
    assert f"search {row} has 2 more trials" in added
    go.touch()
    shell.ganger("tune", "follow", str(row))
    assert [each["step"] for each in trials()] == [3.0] * 4
    assert shell.json("tune", "best", str(row))["params"] == {"x": "78"}
    logs = shell.said("tune", "logs", str(row), "-n", "1")
    assert logs.count("==> ") == 4
    assert logs.endswith("(x=78), completed <==\nepoch=3 acc=78\n")
    for asked in (
        ["add", str(row), "x=3"],
        ["pause", str(row)],
        ["resume", str(row)],
        ["stop", str(row)],
    ):
        assert f"search {row} is over" in shell.ganger("tune", *asked, code=2).stderr


def test_a_search_without_reports_says_where_to_look(shell: Shell) -> None:
    words = ["--space", "x=1..9", "--metric", "acc", "--trials", "2", "--recipe", "tune.random"]
    silent = shell.ganger("tune", *words, "--", "true", code=1).stdout
    assert re.search(
        r"^no trial has reported acc: they print acc=NUMBER, .* `ganger logs \d+`$",
        silent,
        re.MULTILINE,
    )
    failed = shell.ganger("tune", *words, "--", "false", code=1).stdout
    assert re.search(
        r"^no trial has reported acc: trials failed; why is in `ganger logs \d+`$",
        failed,
        re.MULTILINE,
    )


def test_a_search_ends_at_its_target(shell: Shell) -> None:
    words = ["--space", "x=1..9", "--metric", "acc", "--max", "--recipe", "tune.random"]
    words += ["--trials", "5", "--epochs", "3", "--parallel", "1", "--target", "0.5"]
    done = shell.ganger("tune", *words, "--", sys.executable, trial(shell), "0.6", "{x}")
    assert "\nended by the target\n" in done.stdout


def test_trials_are_added_only_where_the_recipe_takes_them(shell: Shell) -> None:
    words = ["--space", "x=1..9", "--metric", "m", "--recipe", "tune.sha", "--detach", "--json"]
    row = json.loads(shell.said("tune", *words, "--", "sleep", "60"))["job"]
    for asked, said in (
        (("add", str(row), "x=3"), "tune.sha takes no trials but those that it asks for"),
        (("add", str(row), "x"), "'x' is not a valid value of a parameter"),
        (("resume", str(row)), "is not held"),
    ):
        assert said in shell.ganger("tune", *asked, code=2).stderr
    shell.said("tune", "stop", str(row))
