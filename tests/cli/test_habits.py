"""What Slurm's users are used to, on one daemon."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from cli.rig import Shell


def test_sbatchs_own_options_and_a_script_from_standard_input(shell: Shell) -> None:
    words = (
        "submit",
        "--dry-run",
        "--gres=gpu:V100:2",
        "-p",
        "gpu",
        "--mem-per-gpu",
        "2G",
        "--begin",
        "now+1hour",
        "--wrap",
        "a && b",
    )
    done = shell.ganger(*words)
    assert done.stderr == "ganger: --partition has no effect here and is ignored\n"
    found = json.loads(done.stdout)
    assert {key: found[key] for key in ("command", "gpus", "gpu_types", "memory", "begin")} == {
        "command": ["/bin/sh", "-c", "a && b"],
        "gpus": 2,
        "gpu_types": ["V100"],
        "memory": 4096,
        "begin": "+1h",
    }
    text = "#!/bin/sh\n#SBATCH --gpus=2 --nice=7\necho $1 $CUDA_VISIBLE_DEVICES\n"
    again = shell.ganger("submit", "--parsable", "--priority", "0", stdin=text)
    job = again.stdout.strip()
    shell.ganger("wait", job)
    assert len(shell.said("logs", job).split(",")) == 2
    assert shell.json("show", job)[0]["priority"] == 0, "what is given stands over the script's"


def test_columns_as_slurms_users_ask_for_them(shell: Shell) -> None:
    done = shell.submit("-J", "columns", "--", "sh", "-c", "exit 3")
    shell.ganger("wait", str(done), code=3)
    words = ("-j", str(done), "--format", "JobID,JobName%4,State,ExitCode", "--parsable2")
    assert shell.said("history", *words) == (
        f"JobID|JobName|State|ExitCode\n{done}|colu|FAILED|3:0\n"
    )
    waits = shell.submit("-H", "-J", "columns", "--", "true")
    squeues = shell.said("queue", "-j", f"{done},{waits}", "-o", "%.7i %9P%.4j|%t %R")
    assert (
        squeues
        == f"  JOBID PARTITIONNAME|ST NODELIST(REASON)\n{waits:7} -        colu|PD (JobHeldUser)\n"
    )
    assert shell.said("queue", "--noheader", "-o", "%i", "-n", "columns") == f"{waits}\n"
    shell.ganger("cancel", str(waits))


def test_history_is_what_parsers_of_sacct_expect(shell: Shell) -> None:
    fails = shell.submit("--gpus", "V100:2", "-t", "90s", "--", "sh", "-c", "sleep 1.1; exit 7")
    dies = shell.submit("--gpus", "0", "--", "sh", "-c", "kill -15 $$")
    late = shell.submit("--gpus", "0", "-t", "1s", "--", "sleep", "60")
    shell.ganger("wait", str(fails), code=7)
    shell.ganger("wait", str(dies), str(late), code=143)
    words = ("-j", f"{fails},{dies},{late}", "--parsable2", "--noheader", "--format")
    rows = shell.said("history", *words, "JobID,State,ExitCode,Elapsed,Timelimit,AllocTRES")
    assert sorted(rows.splitlines()) == [
        f"{fails}|FAILED|7:0|00:00:01|00:01:30|gres/gpu=2,gres/gpu:v100=2",
        f"{dies}|FAILED|0:15|00:00:00|UNLIMITED|",
        f"{late}|TIMEOUT|0:0|00:00:01|00:00:01|",
    ]
    forged = shell.submit("--gpus", "0", "-J", "x|COMPLETED|0:0", "--", "false")
    shell.ganger("wait", str(forged), code=1)
    row = shell.said("history", *words[2:], "JobName,State", "-j", str(forged))
    assert row == "x_COMPLETED_0:0|FAILED\n"
    title = shell.said("history", "-P", "--format", "jobid,state,exitcode,elapsed").split("\n")[0]
    assert title == "JobID|State|ExitCode|Elapsed"


def test_our_own_history_is_read_as_a_trace_of_sacct(shell: Shell) -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-slurm.md").read_text()
    format_ = re.search(r"--format=(\S+)", page)
    assert format_
    done = shell.submit("--gpus", "V100:2", "-t", "2m", "-J", "kept", "--", "sleep", "1.1")
    shell.ganger("wait", str(done))
    text = shell.said("history", "-P", "-j", str(done), "--format", format_[1])
    (shell.cwd / "own.txt").write_text(text)
    shell.ganger("trace", "convert", "own.txt", "own.csv")
    lines = [line.split(",") for line in (shell.cwd / "own.csv").read_text().splitlines()[1:]]
    row = dict(zip(*lines, strict=True))
    assert (row["gpus"], row["duration"], row["limit"]) == ("2", "1", "120")


def test_jobs_are_cancelled_by_whose_they_are_and_how_they_are(shell: Shell) -> None:
    runs = shell.submit("-J", "trial", "--", "sleep", "60")
    held = [shell.submit("-H", "-J", name, "--", "true") for name in ("trial", "trial-2")]
    assert shell.said("cancel", "-n", "tria") == "cancelled nothing: no job matches\n"
    assert shell.said("cancel", "--me", "-n", "trial", "-t", "PD") == f"cancelled {held[0]}\n"
    assert shell.said("cancel", "-t", "PD", str(runs), str(held[1])) == f"cancelled {held[1]}\n"
    assert shell.json("show", str(runs))[0]["finished"] is None
    assert shell.json("cancel", "-n", "trial")["jobs"] == [runs]


def test_when_those_that_wait_are_expected_to_start(shell: Shell) -> None:
    holder = shell.submit("--gpus", "V100:4", "-t", "10m", "--", "sleep", "60")
    waits = shell.submit("--gpus", "V100:4", "--", "true")
    row = next(
        line
        for line in shell.said("queue", "--start").splitlines()
        if line.split()[0] == str(waits)
    ).split()
    assert re.fullmatch(r"(\S+T)?\d\d:\d\d:\d\d", row[4]), row
    asked = time.time()
    found = shell.json("queue", "--start")["jobs"]
    job = next(job for job in found if job["job"] == waits)
    assert asked <= job["expected_start_low"] <= job["expected_start"]
    assert job["expected_start"] <= job["expected_start_high"] < time.time() + 700
    shell.ganger("cancel", str(holder), str(waits))


def test_a_share_and_needs_are_shown_as_they_were_asked_for(shell: Shell) -> None:
    half = shell.submit("-H", "--share", "0.5", "-c", "1", "--gpus", "V100:1", "--", "true")
    text = shell.said("show", str(half))
    assert re.search(r"GPUs: +0.5 of 1 V100\nWorkers: +1, each with 1 CPU\n", text), text
    shell.ganger("cancel", str(half))


def test_who_will_never_start_is_told_because_of_whom(shell: Shell) -> None:
    fails = shell.submit("--", "false")
    shell.ganger("wait", str(fails), code=1)
    never = shell.submit("--after", str(fails), "--", "true")
    assert shell.said("explain", str(never)).splitlines() == [
        f"job {never}: CANCELLED (DependencyNeverSatisfied)",
        "  It is over: cancelled (DependencyNeverSatisfied).",
        f"  It waited for job {fails}, which is failed.",
    ]


def test_an_array_is_explained_by_a_task_that_waits(shell: Shell) -> None:
    job = shell.submit("--array", "0-2%1", "--gpus", "V100:1", "--", "sleep", "30")
    text = shell.hears("(JobArrayTaskLimit)", "explain", str(job))
    assert text.startswith(f"job {job}_1: PENDING (JobArrayTaskLimit)")
    shell.ganger("cancel", str(job))
    shell.ganger("wait", str(job), code=130)
