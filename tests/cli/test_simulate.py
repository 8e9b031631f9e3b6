"""`ganger simulate`, `replay` and `demo`, as a user runs them: another process, its own folder."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.typed import typed

FOUR_JOBS = """job,submitted,duration,gpus,priority,tenant
a,0,30,1,3,ann
b,0,10,1,1,bob
c,1,25,1,2,ann
d,4,40,1,4,bob
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the lecture's four jobs in `jobs.csv`."""
    (tmp_path / "jobs.csv").write_text(FOUR_JOBS)
    return tmp_path


def runs(place: Path, *words: str) -> list[dict[str, Any]]:
    """The runs that `ganger simulate ... --json` prints."""
    out = typed(place, "simulate", "jobs.csv", "--cluster", "1x2xV100", "--json", *words).stdout
    found: list[dict[str, Any]] = json.loads(out)["runs"]
    return found


def test_json_has_the_promised_form(place: Path) -> None:
    found = runs(place, "--recipe", "fifo,srtf")
    assert [run["recipe"] for run in found] == ["fifo", "srtf"]
    assert found[0]["metrics"]["jct_mean_seconds"] == 35
    assert found[0]["metrics"]["makespan_seconds"] == 70
    assert found[1]["metrics"]["jct_mean_seconds"] == 34
    for name in (
        "jobs_finished",
        "jct_p50_seconds",
        "jct_p99_seconds",
        "queueing_delay_mean_seconds",
        "gpu_allocated_ratio",
        "preemptions",
    ):
        assert name in found[0]["metrics"]
    assert set(found[0]["simulation"]) == {"events", "decisions", "cpu_seconds", "peak_rss_bytes"}
    assert found[0]["seed"] == 0
    assert found[0]["per_job"] is None


def test_the_table_fits_eighty_columns_and_is_plain_when_piped(place: Path) -> None:
    done = typed(place, "simulate", "jobs.csv", "--cluster", "1x2xV100", "-r", "fifo,las,tiresias")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "tiresias" in done.stdout


def test_per_job_times_go_to_a_file_for_each_run(place: Path) -> None:
    found = runs(place, "--recipe", "fifo,srtf", "--per-job", "jobs-{recipe}.csv")
    assert [run["per_job"] for run in found] == ["jobs-fifo.csv", "jobs-srtf.csv"]
    with (place / "jobs-fifo.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["finish_seconds"]) for row in rows] == [30, 10, 35, 70]
    assert {row["nodes"] for row in rows} == {"node-0"}


def test_several_runs_to_one_name_get_names_of_their_own(place: Path) -> None:
    found = runs(place, "--recipe", "fifo", "--seed", "0-1", "--per-job", "out.csv")
    assert [run["per_job"] for run in found] == ["out-fifo-0.csv", "out-fifo-1.csv"]
    found = runs(place, "--recipe", "fifo", "--load", "0.5,0.9", "--per-job", "{recipe}.csv")
    assert [run["per_job"] for run in found] == ["fifo-0-0.5.csv", "fifo-0-0.9.csv"]


def test_workers_change_nothing(place: Path) -> None:
    one = runs(place, "-r", "fifo,srtf,las", "--seed", "0,1", "--workers", "1")
    two = runs(place, "-r", "fifo,srtf,las", "--seed", "0,1", "--workers", "2")
    assert [run["metrics"] for run in one] == [run["metrics"] for run in two]


def test_a_log_replays_to_the_same_plans(place: Path) -> None:
    runs(place, "--recipe", "las(quantum=1s)", "--log", "run.log")
    assert "every plan is the same" in typed(place, "replay", "run.log", "--check").stdout


def test_a_log_that_was_changed_diverges_at_a_named_step(place: Path) -> None:
    runs(place, "--recipe", "fifo", "--log", "run.log")
    lines = (place / "run.log").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"type":"Start"' in line)
    events, actions = lines[at].split('"actions"')
    lines[at] = events + '"actions"' + actions.replace('"job":0', '"job":1', 1)
    (place / "run.log").write_text("\n".join(lines) + "\n")
    done = typed(place, "replay", "run.log", "--check", code=1)
    assert "revision" in done.stderr


def test_a_log_whose_events_contradict_each_other_is_wrong_input(place: Path) -> None:
    runs(place, "--recipe", "fifo", "--log", "run.log")
    lines = (place / "run.log").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"type":"Submitted"' in line)
    (place / "run.log").write_text("\n".join([*lines[: at + 1], lines[at]]) + "\n")
    assert "submitted twice" in typed(place, "replay", "run.log", "--check", code=2).stderr


def test_a_log_says_why_a_job_waited(place: Path) -> None:
    runs(place, "--recipe", "fifo", "--log", "run.log")
    lines = typed(place, "explain", "d", "--log", "run.log").stdout.splitlines()
    assert lines[:2] == [
        "job d at 0:10 of the log: PENDING (Resources)",
        "  It waits for 1 GPU; none is free on node-0; job a is expected to release 1 at 0:30.",
    ]
    asked = typed(place, "explain", "d", "--log", "run.log", "--at", "5s", "--json").stdout
    found = json.loads(asked)
    assert (found["at"], found["reason"], found["ahead"]) == (5, "Resources", 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zz", "--log", "run.log"], "no job 'zz'"),
        (["d", "--log", "run.log", "--at", "2h"], "run.log is from 0 s to 1m 10s"),
        (["d", "--log", "run.log", "--at", "soon"], "'soon' is not a valid duration"),
        (["d", "--log", "jobs.csv"], "jobs.csv:1: format '' is not ganger.log/1"),
        (["d", "--log", "not.db"], "not.db"),
        (["d", "--at", "5s"], "give --log, too"),
        (["d", "--log", "run.log", "--slurm"], "they exclude each other"),
    ],
)
def test_a_log_that_cannot_say_it_is_one_clear_error(
    place: Path, words: list[str], said: str
) -> None:
    runs(place, "--recipe", "fifo", "--log", "run.log")
    (place / "not.db").write_bytes(b"SQLite format 3\0" + b"x" * 4000)
    complaint = typed(place, "explain", *words, code=2).stderr
    assert said in complaint
    assert len(complaint.splitlines()) == 1


def test_why_jobs_waited_is_added_up_where_it_is_asked_for(place: Path) -> None:
    words = ("simulate", "jobs.csv", "--cluster", "1x2xV100", "--report", "r.html")
    table = typed(place, *words, "--why").stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert any(line.startswith("nothing free fits it (the ordered queue)") for line in table)
    assert "Why jobs waited" in (place / "r.html").read_text()
    assert "why jobs waited" not in typed(place, *words).stdout
    assert "Why jobs waited" not in (place / "r.html").read_text()
    (found,) = runs(place, "--why")
    assert sum(one["job_hours"] for one in found["waited"]) * 3600 == pytest.approx(9 + 26)
    assert "waited" not in runs(place)[0]


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.95])
def test_a_log_that_was_cut_short_is_one_clear_error(place: Path, cut: float) -> None:
    runs(place, "--recipe", "fifo", "--log", "run.log")
    data = (place / "run.log").read_bytes()
    (place / "run.log").write_bytes(data[: int(len(data) * cut)])
    done = typed(place, "replay", "run.log", "--check", code=2)
    assert "run.log" in done.stderr
    assert len(done.stderr.splitlines()) == 1


MINE = '''
class Lottery:
    """Start waiting jobs in random order."""
    name = "lottery"

    def decide(self, view, memory):
        for job in view.rng("lottery").permutation(view.pending).tolist():
            placement = view.ledger.find(view.draft.shape(job))
            if placement is not None:
                view.draft.start(job, placement)
        return view.draft.plan(), memory
'''


def test_a_users_own_policy_runs_under_the_same_invariants(place: Path) -> None:
    (place / "mine.py").write_text(MINE)
    found = runs(place, "--recipe", "mine.py:Lottery", "--validate")
    assert found[0]["metrics"]["jobs_finished"] == 4


FAULTS = {
    "raise ValueError('boom\\nand more')": "line 4: decide raised ValueError: boom (fix",
    "raise SystemExit(0)": "line 4: decide raised SystemExit: 0",
    "return 1 // 0, memory": "line 4: decide raised ZeroDivisionError",
    "return None": "decide returned NoneType, not (Plan, memory)",
    "return view.draft.plan()": "decide returned Plan, not (Plan, memory)",
    "return view.draft.plan(wake=view.now), memory": "woken at 0, which is not later than now",
    "return view.draft.plan(wake=view.now + 6e7), memory": "which is not later than now",
    "return view.draft.plan(wake=None), memory": "woken at None",
    "return view.draft.plan(), object()": "its memory cannot be kept",
    "view.draft.start(10**6, (Slot(0, 1),))": "raised InvariantError: there is no job",
    "view.draft.stop(view.pending[0])": "line 4: decide raised InvariantError: job 0 holds no dev",
    "view.jobs.gpus[0] = 1": "raised ValueError: assignment destination is read",
    "view.draft.start(0, (Slot(0, 1),)); view.draft.start(1, (Slot(0, 1),))": "is not free",
    "return Plan([Start(0, 1, (Slot(0, 1),)), Start(2, 1, (Slot(0, 1),))]), memory": "is not free",
    "return Plan([Start(77, 1, (Slot(0, 1),))]), memory": "Start names job 77, which there is not",
    "return Plan([Start(0, 7, (Slot(0, 1),))]), memory": "on a job that is PENDING",
    "return Plan([Start(0, 1, (Slot(9, 1),))]), memory": "node 9 as role 0, which there is not",
    "return Plan([Start(0, 1, (Slot(0, 3),))]), memory": "job 'a' gets 2 GPUs on node 0 for",
    "return Plan([Start(3, 1, (Slot(0, 1),))]), memory": "which is DECLARED",
    "view.ledger.take(0, view.draft.shape(0), (Slot(0, 1),))": "cannot write the books: draw a",
    "view.draft.start(0, (Slot(0, 1),)); view.ledger.give(0)": "cannot write the books: draw a",
    "view.ledger.switch(0, up=False)": "cannot write the books: draw a plan by view.draft",
    "view.draft.start(0, (Slot(0, 1),)); view.ledger.settle()": "cannot write the books: draw a",
    "return Plan([Stop(0, 0)]), memory": "Stop on job 'a', which is PENDING",
    "return Plan(['start']), memory": "str is not an action",
    "return Plan([Start(1, 1, (Slot(0, 1),))]), memory": "a gang runs whole or not at all",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_users_faulty_policy_is_one_error_that_says_where(place: Path, fault: str) -> None:
    """Without --validate, too: half a gang, a device twice, a job that there is not."""
    (place / "mine.py").write_text(
        "from ganger.core.plan import Plan, Slot, Start, Stop\n"
        "class Mine:\n"
        "    def decide(self, view, memory):\n"
        f"        {fault}\n"
        "        return view.draft.plan(), memory\n"
    )
    (place / "gangs.csv").write_text(
        "job,submitted,duration,gpus,nodes\na,0,60,1,1\nb,0,60,2,2\nc,0,60,1,1\nd,9,60,1,1\n"
    )
    words = ("simulate", "gangs.csv", "--cluster", "2x1xV100", "-r", "mine.py:Mine")
    said = typed(place, *words, code=2).stderr.splitlines()
    assert len(said) == 1
    assert said[0].startswith("ganger: mine.py: Mine: ")
    assert FAULTS[fault] in said[0]


@pytest.mark.parametrize(
    ("text", "spec", "said"),
    [
        ("def (", "mine.py:A", "SyntaxError"),
        ("import nosuchthing", "mine.py:A", "ModuleNotFoundError"),
        ("", "mine.py:A", "it defines no A"),
        ("", "mine.py:", "which class? (write mine.py:Class)"),
        ("class A: pass", "mine.py:A", "A has no method decide"),
        ("class A:\n    def __init__(self, k): pass", "mine.py:A", "made without arguments"),
    ],
)
def test_a_file_that_holds_no_policy(place: Path, text: str, spec: str, said: str) -> None:
    (place / "mine.py").write_text(text)
    words = ("simulate", "jobs.csv", "--cluster", "1x2xV100", "-r", spec)
    assert said in typed(place, *words, code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recipe", "fifoo"], "did you mean fifo"),
        (["--recipe", "fifo(wlk=skip)"], "it has: walk"),
        (["--recipe", "fifo(walk=zigzag)"], "is not one of strict, skip"),
        (["--recipe", "las(quantum=soon)"], "not a valid duration"),
        (["--recipe", "nowhere.py:X"], "no such file"),
        (["--cluster", "8xx8"], "8xx8"),
        (["--seed", "x"], "not a valid seed"),
        (["--seed", "4-0"], "runs backwards"),
        (["--seed", "0-99999999999999999"], "at most 1000"),
        (["--seed", "9" * 5000], "not a valid seed"),
        (["--recipe", ","], "--recipe: it names none"),
        (["--recipe", "fifo,las(quantum=1h"], "unbalanced parentheses"),
        (["--recipe", "las(quantum=1h,quantum=2h)"], "las(quantum): it is listed twice"),
        (["--report", "nowhere/r.html"], "--report: no folder 'nowhere'"),
        (["--per-job", "nowhere/r.csv"], "--per-job: no folder 'nowhere'"),
        (["--per-job", "jobs.xlsx"], "--per-job: cannot write jobs to 'jobs.xlsx'"),
        (["--load", "-1"], "load"),
        (["--cluster", "1x1xV100", "--recipe", "fifo", "--log", "a", "--seed", "0,1"], "one run"),
        (["--restore-cost", "-5"], "negative"),
        (["--noise", "nan", "--knows", "noisy"], "nan"),
    ],
)
def test_wrong_options_are_one_clear_error(place: Path, words: list[str], said: str) -> None:
    cluster = [] if "--cluster" in words else ["--cluster", "1x2xV100"]
    done = typed(place, "simulate", "jobs.csv", *cluster, *words, code=2)
    assert said in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("a,0,30,1", "a,0,30,9"), "asks for 9 x 1 GPUs and can never fit"),
        (("a,0,30,1", "a,-5,30,1"), "jobs.csv"),
        (("b,0,10", "a,0,10"), "a"),
        (("a,0,30", "a,0,nan"), "jobs.csv"),
    ],
)
def test_wrong_traces_name_the_file(place: Path, change: tuple[str, str], said: str) -> None:
    (place / "jobs.csv").write_text(FOUR_JOBS.replace(*change))
    done = typed(place, "simulate", "jobs.csv", "--cluster", "1x2xV100", code=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_such_trace(place: Path) -> None:
    assert (
        "none.csv" in typed(place, "simulate", "none.csv", "--cluster", "1x2xV100", code=2).stderr
    )


def test_files_are_written_though_nobody_reads_what_is_printed(place: Path) -> None:
    """As with `| head`: the other end of the pipe is gone."""
    read, write = os.pipe()
    os.close(read)
    words = ("simulate", "jobs.csv", "--cluster", "1x2xV100", "--report", "r.html")
    done = subprocess.run(
        [sys.executable, "-m", "ganger.cli", *words, "--per-job", "j.csv"],
        cwd=place,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.stderr == "report: r.html\n"
    assert (place / "r.html").stat().st_size > 10_000
    assert (place / "j.csv").exists()


def test_the_report_is_written(place: Path) -> None:
    done = typed(
        place,
        "simulate",
        "jobs.csv",
        "--cluster",
        "1x2xV100",
        "-r",
        "fifo,srtf",
        "--report",
        "r.html",
    )
    assert "r.html" in done.stderr
    assert "</html>" in (place / "r.html").read_text()


SACCT = """JobIDRaw|Submit|Start|ElapsedRaw|TimelimitRaw|ReqTRES|State
1|2026-05-01T10:00:00|2026-05-01T10:00:00|627|10|gres/gpu=1|TIMEOUT
2|2026-05-01T10:00:00|2026-05-01T10:00:00|60|10|gres/gpu=1|COMPLETED
3|2026-05-01T10:00:00|Unknown|0|10|gres/gpu=1|CANCELLED by 7
4|2026-05-01T10:00:00|2026-05-01T10:00:00|x|10|gres/gpu=1|COMPLETED
"""


def test_rows_that_became_no_job_are_counted_wherever_figures_are_shown(place: Path) -> None:
    (place / "sacct.txt").write_text(SACCT)
    words = ("sacct.txt", "--cluster", "1x1xV100", "--skip-bad")
    done = typed(place, "simulate", *words, "-r", "fifo,las", "--report", "r.html")
    count = (
        "2 of 4 rows of sacct are not simulated: 1 (the jobs never started), 1 (they are malformed)"
    )
    assert count in " ".join(done.stdout.split())
    page = (place / "r.html").read_text()
    assert count in page
    assert "<dt>Command</dt><dd>ganger simulate sacct.txt" in page
    assert re.search(r"<dt>Inputs</dt><dd>sacct.txt \(SHA-256 [0-9a-f]{64}\)</dd>", page)
    found = json.loads(typed(place, "simulate", *words, "--json").stdout)["runs"][0]
    assert found["rows"] == 4
    assert found["rows_left_out"] == {"the jobs never started": 1, "they are malformed": 1}
    told = json.loads(typed(place, "recommend", *words, "--json", code=1).stdout)
    assert any(note.startswith(count) for note in told["notes"])
    info = json.loads(typed(place, "trace", "info", "sacct.txt", "--skip-bad", "--json").stdout)
    assert sum(info["rows_left_out"].values()) == 2


def test_the_demo_compares_eight_recipes(place: Path) -> None:
    found = json.loads(typed(place, "demo", "--seed", "0", "--json").stdout)["runs"]
    assert len(found) == 8
    assert all(run["metrics"]["jobs_finished"] == 400 for run in found)
    picture = (Path(__file__).parents[2] / "docs/report.png").read_bytes()
    (text,) = re.findall(rb"tEXtComment\0(\{.*?\}\})", picture)
    drawn = json.loads(text)["jct_mean_seconds"]
    now = {run["recipe"]: run["metrics"]["jct_mean_seconds"] for run in found}
    assert now == drawn, "run python benchmarks/picture.py"


@pytest.mark.parametrize(
    "command", [[], ["simulate"], ["demo"], ["replay"], ["recipes"], ["recipe"]]
)
def test_help_shows_examples(place: Path, command: list[str]) -> None:
    assert "ganger " in typed(place, *command, "--help").stdout


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], ["numpy", "scipy", "rich", "msgspec"]),
        (["status"], ["numpy", "scipy", "rich"]),
        (["submit", "true"], ["numpy", "scipy", "rich"]),
        (["queue"], ["numpy", "scipy", "rich"]),
    ],
)
def test_what_people_type_all_day_loads_nothing_heavy(
    words: list[str], heavy: list[str], tmp_path: Path
) -> None:
    code = (
        "import sys; from ganger.cli.main import main\n"
        f"sys.argv[1:] = {words!r}\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([module for module in {heavy!r} if module in sys.modules])"
    )
    env = {**os.environ, "GANGER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_recipe_can_be_shown(place: Path) -> None:
    for entry in json.loads(typed(place, "recipes", "--json").stdout):
        assert entry["summary"]
        assert entry["paper"]
    shown = typed(place, "recipe", "tiresias").stdout
    assert "NSDI 2019" in shown
    assert "thresholds" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(place: Path, shell: str) -> None:
    assert "_GANGER_COMPLETE" in typed(place, "completion", shell).stdout


def test_three_lines_of_python(place: Path) -> None:
    code = (
        "import ganger\n"
        "run = ganger.simulate('jobs.csv', '1x2xV100', 'fifo')\n"
        "print(run.metrics['jct_mean_seconds'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "35.0"


@pytest.mark.parametrize(("by", "rows"), [("tenant", "ann"), ("gpus", "1"), ("gpu_type", "V100")])
def test_a_table_by_tenant_size_or_type(place: Path, by: str, rows: str) -> None:
    done = typed(place, "simulate", "jobs.csv", "--cluster", "1x2xV100", "--by", by)
    assert f"fifo, by {by.replace('_', ' ')}" in done.stdout
    assert any(line.split()[:1] == [rows] for line in done.stdout.splitlines())
