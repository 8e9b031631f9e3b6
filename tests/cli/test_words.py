"""Words that users type first, without a daemon: suggestions, `-` for standard output, extras."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import ganger
from ganger.cli.lab.recipes import RENAMED
from ganger.cli.main import cli
from ganger.recipes import registry

TRACE = "job,submitted,duration,gpus\nwarm-up,0,15m,1\ntrain,60,1h,4\n"


def typed(folder: Path, *words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """What a command says; never a traceback."""
    (folder / "jobs.csv").write_text(TRACE)
    done = subprocess.run(
        [sys.executable, "-m", "ganger.cli", *words],
        cwd=folder,
        text=True,
        check=False,
        capture_output=True,
        timeout=60,
        env={**os.environ, **env, "COLUMNS": "80"},
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("simulat", "Did you mean ganger simulate?"),
        ("squeue", "Here it is ganger queue."),
        ("sbatch", "Here it is ganger submit."),
        ("srun", "Here it is ganger submit --wait."),
        ("sinfo", "Here it is ganger nodes."),
        ("scancel", "Here it is ganger cancel."),
        ("gqueue", "Here it is ganger queue."),
        ("xyzzy", "`ganger --help` lists the commands."),
    ],
)
def test_a_word_that_is_no_command_gets_a_suggestion(tmp_path: Path, word: str, said: str) -> None:
    done = typed(tmp_path, word, code=2)
    assert f"No such command '{word}'. {said}" in " ".join(done.stderr.split())


def test_groups_suggest_their_own_commands(tmp_path: Path) -> None:
    assert "Did you mean ganger trace convert?" in typed(tmp_path, "trace", "covert", code=2).stderr
    assert "Did you mean ganger job queue?" in typed(tmp_path, "job", "que", code=2).stderr


def test_traces_are_written_to_standard_output(tmp_path: Path) -> None:
    done = typed(tmp_path, "trace", "convert", "jobs.csv", "-")
    assert done.stdout.splitlines()[2:] == ["warm-up,0,900,1", "train,60,3600,4"]
    assert done.stderr == "2 jobs written to standard output\n"
    assert not (tmp_path / "-").exists()
    swf = typed(tmp_path, "trace", "convert", "jobs.csv", "-", "--to-format", "swf").stdout
    assert swf.startswith("; Version: 2.2\n")
    assert typed(tmp_path, "trace", "synth", "poisson", "--jobs", "3", "-o", "-").stdout


def test_parquet_without_pyarrow_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pyarrow.py").write_text("raise ImportError('not there')\n")
    words = ("simulate", "jobs.csv", "--cluster", "1x4xV100", "--per-job")
    done = typed(tmp_path, *words, "x.parquet", code=2, PYTHONPATH=str(tmp_path / "without"))
    assert done.stdout == ""
    assert done.stderr == (
        "ganger: Parquet needs pyarrow (pip install pyarrow, or name a .csv file)\n"
    )
    typed(tmp_path, *words, "x.csv", PYTHONPATH=str(tmp_path / "without"))
    assert (tmp_path / "x.csv").read_text().startswith("job,tenant,gpus,state,")


def test_a_run_is_shown_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    run = ganger.simulate(tmp_path / "jobs.csv", "1x4xV100", "srtf")
    assert repr(run) == "<Run of srtf, seed 0: 2 jobs on 4 GPUs, mean JCT 44m 30s>"
    assert repr(run.jobs) == "<JobTable of 2 jobs>"
    assert repr(run.timeline).startswith("<Timeline of ")
    assert run.table()["job"] == ["warm-up", "train"]


def test_a_converted_trace_can_be_shared(tmp_path: Path) -> None:
    named = TRACE.replace("gpus\n", "gpus,user\n").replace("m,1", "m,1,ann")
    named = named.replace("h,4", "h,4,bob")
    (tmp_path / "named.csv").write_text(named)
    words = ("trace", "convert", "named.csv", "-", "--anonymise")
    once, again = (typed(tmp_path, *words, "--salt", "x").stdout for _ in range(2))
    assert once == again
    assert not [word for word in ("ann", "bob", "warm-up", "train") if word in once]
    assert typed(tmp_path, *words).stdout != typed(tmp_path, *words).stdout
    assert "add --anonymise" in typed(tmp_path, *words[:4], "--salt", "x", code=2).stderr


@pytest.mark.parametrize("old", list(RENAMED))
def test_a_mechanism_by_its_name_of_before_is_found_with_a_warning(old: str) -> None:
    done = CliRunner().invoke(cli, ["recipes", "--mechanism", old, "--json"])
    assert done.exit_code == 0, done.output
    assert done.stderr == f"warning: mechanism {old} is now called {RENAMED[old]}\n"
    assert json.loads(done.stdout)


def without_examples(command: click.Command, *path: str) -> list[str]:
    """The commands from here down whose help shows no example."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        below = [
            (name, command.get_command(context, name)) for name in command.list_commands(context)
        ]
        return [word for name, one in below if one for word in without_examples(one, *path, name)]
    return [] if "Example" in command.get_help(context) else [" ".join(path)]


def test_the_help_of_every_command_has_an_example() -> None:
    assert without_examples(cli) == []


@pytest.mark.parametrize("plane", registry.PLANES)
def test_a_recipe_is_shown_with_a_command_that_runs_it(plane: str) -> None:
    """As it stands there, and with its defaults; and the list names the planes beside its own."""
    for name in registry.recipes(plane):
        shown = CliRunner().invoke(cli, ["recipe", name]).output.rstrip().splitlines()
        words = shlex.split(shown[-1])
        assert shown[-2] == "For example:"
        assert words[0] == "ganger"
        assert words[-2:] == ["--router", "swayam"] or name != "scale.asked"
        option = {"serving": "--serving", "hybrid": "--sharing"}.get(plane, "--recipe")
        spec = words[words.index(option) + 1]
        found, given = registry.parse(spec)
        assert found.name == name
        told = [word for word in found.defaults().values() if word not in ("", "none", "never")]
        assert len(given) == min(1, len(told))
        defaults = inspect.signature(found.make).parameters
        assert all(defaults[key].default == value for key, value in given.items())
    listed = CliRunner().invoke(cli, ["recipes", "--plane", plane])
    assert f"recipes of the plane {plane}. Others: " in listed.stderr
    assert "--plane" not in listed.stdout


LOOKED_FOR = """
import gc, runpy, sys
module, *sys.argv[1:] = {words!r}
seen = []
class Watching:
    def find_spec(self, name, path, target=None):
        if name.startswith({loads!r}):
            seen.append(gc.isenabled())
sys.meta_path.insert(0, Watching())
try:
    runpy.run_module(module, run_name="__main__")
except BaseException:
    pass
print(set(seen), gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize(
    ("words", "loads"),
    [
        (["ganger.cli", "simulate", "--help"], "ganger.workloads."),
        (["ganger.service", "{}"], "ganger.service.http."),
    ],
)
def test_no_garbage_is_looked_for_in_what_is_loaded(words: list[str], loads: str) -> None:
    code = LOOKED_FOR.format(words=words, loads=loads)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "{False} True True", done.stderr
