"""`ganger up`, `submit`, `queue` and their like, as a user runs them, on one daemon."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.rig import Shell
from ganger.cli.text import clock, day, table
from ganger.cli.words import KNOWS
from ganger.lab.simulating.oracles import PAST


def test_up_twice_is_refused(shell: Shell) -> None:
    done = shell.ganger("up", code=2)
    assert re.fullmatch(r"ganger: .*a daemon runs there already \(pid \d+\).*\n", done.stderr)


def test_status_says_how_it_is(shell: Shell) -> None:
    found = shell.json("status")
    assert (found["up"], found["gpus"], found["mode"]) == (True, 6, "personal")
    assert all(line.startswith("box: ") for line in found["trouble"])  # what its agent cannot do


def test_a_command_its_log_and_its_exit_code(shell: Shell) -> None:
    done = shell.ganger(
        "submit", "--gpus", "2", "--wait", "--", "sh", "-c", "echo seen; exit 9", code=9
    )
    job = re.search(r"submitted job (\d+): starts now on box-", done.stdout)
    assert job
    assert shell.said("logs", job[1]) == "seen\n"
    text = shell.said("show", job[1])
    assert re.search(r"State: +FAILED \(exit code 9\)", text)
    assert re.search(r"Exit code: +9", text)
    shell.ganger("wait", job[1], code=9)


def test_the_submitters_folder_and_choice_of_environment(shell: Shell) -> None:
    shell.env["SECRET"], shell.env["WANTED"] = "s", "w"
    try:
        job = shell.submit(
            "--env",
            "WANTED",
            "-E",
            "X=1",
            "-o",
            "out-%j.txt",
            "--",
            "sh",
            "-c",
            "pwd; echo [$SECRET][$WANTED][$X]",
        )
        shell.ganger("wait", str(job))
        text = (shell.cwd / f"out-{job}.txt").read_text()
        assert text == f"{shell.cwd}\n[][w][1]\n"
        job = shell.submit("--export", "ALL", "--", "sh", "-c", "echo [$SECRET]")
        shell.ganger("wait", str(job))
        assert shell.said("logs", str(job)) == "[s]\n"
        job = shell.submit("--export", "NONE", "--", "/bin/sh", "-c", "echo [$SECRET][$WANTED]")
        shell.ganger("wait", str(job))
        assert shell.said("logs", str(job)) == "[][]\n"
    finally:
        del shell.env["SECRET"], shell.env["WANTED"]


def test_a_script_with_sbatch_lines(shell: Shell) -> None:
    script = shell.script(
        "train.sbatch",
        "#!/bin/bash\n#SBATCH --job-name=trains --gres=gpu:v100:2 --time=10\n"
        "#SBATCH --partition=gpu --array=0-2 -o %A-%a.out\necho $1 $GANGER_ARRAY_INDEX\n"
        "echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l\n",
    )
    done = shell.ganger("submit", script, "word")
    job = re.search(r"submitted array (\d+) of 3 tasks", done.stdout)
    assert job
    assert "--partition has no effect here" in done.stderr
    shell.script(script, "#!/bin/sh\nexit 1\n")  # what was submitted is what runs
    shell.ganger("wait", job[1])
    assert (shell.cwd / f"{job[1]}-2.out").read_text().split() == ["word", "2", "2"]
    found = shell.json("show", f"{job[1]}_2")[0]
    assert (found["name"], found["gpus"], found["time_limit"]) == ("trains", 2, 600.0)
    assert found["gpu_types"] == ["V100"]


def test_a_script_reads_slurms_variables(shell: Shell) -> None:
    script = shell.script(
        "array.sbatch",
        "#!/bin/sh\n#SBATCH --array=3,7 --ntasks=2 --gpus=V100:2 -J vars -o v%a.out\n"
        "echo $SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_NAME"
        " $SLURM_NTASKS $SLURM_NNODES $SLURM_PROCID $SLURM_SUBMIT_DIR [$SLURM_JOBID]\n",
    )
    (job,) = re.findall(r"array (\d+) of 2", shell.said("submit", script))
    shell.ganger("wait", job)
    tail = f"{shell.cwd} []"
    for task, number in ((3, int(job)), (7, int(job) + 1)):
        lines = sorted((shell.cwd / f"v{task}.out").read_text().splitlines())
        assert lines == [f"{number} {job} {task} vars 2 1 {rank} {tail}" for rank in (0, 1)]
    alone = shell.submit(
        "--gpus",
        "0",
        "-c",
        "1",
        "--",
        "sh",
        "-c",
        "echo $SLURM_JOB_ID[$SLURM_ARRAY_JOB_ID]$SLURM_CPUS_PER_TASK",
    )
    shell.ganger("wait", str(alone))
    assert shell.said("logs", str(alone)) == f"{alone}[]1\n"


def test_a_throttled_array_and_what_hangs_on_it(shell: Shell) -> None:
    job = shell.submit("--array", "0-5%2", "--gpus", "0", "--hold", "--", "sleep", "0.2")
    assert shell.said("update", str(job), "--throttle", "3") == (
        "updated " + ", ".join(str(job + i) for i in range(6)) + "\n"
    )
    each = shell.submit("--array", "0-5", "-d", f"aftercorr:{job}", "--gpus", "0", "--", "true")
    never = shell.submit("-d", f"afternotok:{job}", "--gpus", "0", "--", "true")
    late = shell.submit("--singleton", "-J", "sleep", "--gpus", "0", "--", "true")
    assert shell.json("show", str(late))[0]["reason"] == "Dependency"
    shell.said("release", str(job))
    shell.ganger("job", "wait", str(job), str(each), str(late))
    shell.ganger("wait", str(never), code=130)
    assert shell.json("show", str(never))[0]["reason"] == "DependencyNeverSatisfied"
    begin = [task["started"] for task in shell.json("show", str(job))]
    assert max(begin) - min(begin) > 0.15, "not all at once"
    assert "not an array" in shell.ganger("update", str(never), "--throttle", "1", code=2).stderr


def test_a_tenants_quota(shell: Shell) -> None:
    assert "lab" in shell.said("quota", "lab", "--limit", "2", "--quota", "1", "--weight", "3")
    holder = shell.submit("-A", "lab", "--gpus", "2", "--", "sleep", "60")
    waits = shell.submit("-A", "lab", "--gpus", "1", "--", "true")
    assert shell.json("show", str(waits))[0]["reason"] == "AssocGrpGRES"
    assert "lab may have 2 (now 2) GPUs at once" in shell.said("explain", str(waits))
    (found,) = shell.json("policy", "quota", "lab")
    assert found == {
        "tenant": "lab",
        "limit": 2.0,
        "let_in": 2.0,
        "waiting": 1,
        "quota": 1,
        "weight": 3.0,
        "members": {},
        "max_priority": 0,
        "max_weight": 1.0,
        "budget": None,
        "spent": None,
        "beyond": "warn",
    }
    refused = shell.ganger("quota", "lab", "--budget", "5", code=2).stderr
    assert "nothing has a price" in refused
    assert (
        "may hold 2 GPUs"
        in shell.ganger("submit", "-A", "lab", "--gpus", "3", "--", "true", code=2).stderr
    )
    shell.said("quota", "lab", "--limit", "none")
    shell.ganger("wait", str(waits))
    shell.said("cancel", str(holder))
    shell.said("quota", "lab", "--forget")
    assert shell.json("quota") == []
    assert "nothing is set" in shell.ganger("quota", "lab", "--forget", code=2).stderr


def test_usage_in_words_json_and_csv(shell: Shell) -> None:
    shell.ganger("wait", str(shell.submit("-A", "payer", "--gpus", "V100:2", "--", "sleep", "0.7")))

    def of_payer(*command: str) -> Any:
        return next(one for one in shell.json(*command) if one["tenant"] == "payer")

    found = of_payer("usage", "--price", "V100=36000")
    assert found["jobs"] == 1
    assert 1.4 <= found["gpu_hours"] * 3600 < 20
    parts = sum(found[f"{what}_gpu_hours"] for what in ("useful", "lost", "idle"))
    assert parts == pytest.approx(found["gpu_hours"])
    assert found["by_type"] == {"V100": pytest.approx(found["gpu_hours"])}
    assert found["cost"] == pytest.approx(36000 * found["gpu_hours"])
    assert of_payer("policy", "usage")["cost"] is None
    drawn = 95 * found["gpu_hours"] + 255 * (found["gpu_hours"] - found["idle_gpu_hours"])
    assert found["energy_kwh"] * 1000 == pytest.approx(drawn), "four V100 to a node of 200 W"
    assert found["carbon_kg"] == pytest.approx(0.481 * found["energy_kwh"])
    bill = shell.said("usage", "--cost", "--energy", "--price", "V100=36000")
    assert bill.splitlines()[0].split() == ["TENANT", "JOBS", "GPU-HOURS", "COST", "KWH", "CO2-KG"]
    assert "V100 300 W (card), idle 45 W (assumed)" in bill
    assert "No price" not in bill
    lacks = "No price of V100 is known: give --price TYPE=PRICE, or state prices in the cluster"
    assert lacks in shell.said("usage", "--cost")
    assert "TENANT,JOBS,GPU_HOURS,COST".lower() in shell.said("usage", "--cost", "--csv")
    lines = shell.said("usage", "--csv").splitlines()
    assert lines[0] == "tenant,jobs,gpu_hours,useful,lost,idle,types,cost"
    assert any(line.startswith("payer,1,") for line in lines)
    assert "not a valid price" in shell.ganger("usage", "--price", "V100", code=2).stderr
    recent = {one["tenant"]: one for one in shell.json("usage", "--since", "1h")}["payer"]
    assert recent["gpu_hours"] == pytest.approx(found["gpu_hours"], abs=4 / 3600)
    assert (recent["jobs"], recent["useful_gpu_hours"]) == (1, None)
    assert shell.json("usage", "--until", "1h") == []
    halved = shell.json("usage", "--since", "2020-01-01", "--until", "2020-02-01")
    assert halved == []
    assert re.search(r"payer +1 +0\.00\d +- +- +- +V100=", shell.said("usage", "--since", "1h"))
    assert "not before" in shell.ganger("usage", "--since", "1h", "--until", "2h", code=2).stderr
    assert "not a valid duration" in shell.ganger("usage", "--since", "spring", code=2).stderr


def test_metrics_and_their_dashboard(shell: Shell) -> None:
    assert "ganger_build_info{" in shell.said("daemon", "metrics")
    assert json.loads(shell.said("daemon", "metrics", "--grafana"))["title"] == "Ganger"


def test_groups_hold_what_the_top_holds(shell: Shell) -> None:
    top = shell.said("--help")
    assert re.search(r"Groups:\n +job .*\n +node .*\n +policy .*\n +daemon .*\n +service ", top)
    for group in ("job", "node", "policy", "daemon"):
        assert f"ganger {group} " in shell.said(group, "--help")
    assert shell.json("job", "queue") == shell.json("queue")
    assert shell.json("node", "list") == shell.json("nodes")
    assert shell.json("daemon", "status")["up"]
    assert "ExecStart" in shell.said("daemon", "install", "--print")
    assert all(len(line) <= 80 for line in shell.on_a_terminal("--help").splitlines())


def test_completion_knows_commands_jobs_and_recipes(shell: Shell) -> None:
    job = shell.submit("-J", "completed", "--gpus", "0", "--", "sleep", "60")

    def offered(*words: str) -> list[str]:
        env = {
            **shell.env,
            "_GANGER_COMPLETE": "bash_complete",
            "COMP_CWORD": str(len(words)),
            "COMP_WORDS": " ".join(["ganger", *words]),
        }
        done = subprocess.run(
            [sys.executable, "-c", "from ganger.cli.main import main; main()"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split(",")[1] for line in done.stdout.splitlines()]

    assert offered("exp") == ["explain"]
    assert offered("policy", "s") == ["show", "set"]
    assert str(job) in offered("cancel", "")
    assert offered("policy", "set", "tires") == ["tiresias"]
    assert "box-V100" in offered("drain", "box")
    shell.said("cancel", str(job))


def test_a_job_file_and_options_over_it(shell: Shell) -> None:
    (shell.cwd / "job.yaml").write_text(
        "command: [sh, -c, 'echo $A']\ngpus: 2\nname: filed\nenv: {A: '5'}\nhold: true\n"
    )
    job = shell.submit("--gpus", "3", "job.yaml")
    found = shell.json("show", str(job))[0]
    assert (found["name"], found["gpus"], found["reason"]) == ("filed", 3, "JobHeldUser")
    assert shell.said("release", str(job)) == f"released {job}\n"
    shell.ganger("wait", str(job))
    assert shell.said("logs", str(job)) == "5\n"


BAD = [
    (("submit",), "nothing to run"), (("submit", "--gpus", "x", "--", "ls"), "--gpus"),
    (("submit", "--gpus", "99", "--", "ls"), "can never fit"),
    (("submit", "--gpus", "A100:1", "--", "ls"), "no GPU is of type A100"),
    (("submit", "--time", "60", "--", "ls"), "60m or 60s"),
    (("submit", "--time", "soon", "--", "ls"), "time_limit"),
    (("cancel",), "which jobs?"), (("queue", "-j", "999"), "no job 999"),
    (("queue", "-o", "%Z"), "%Z is not a valid column"),
    (("history", "--format", "x"), "'x' is not a valid column"),
    (("update", "1", "--time", "60"), "--time: '60' could be minutes or seconds"),
    (("submit", "nowhere.sbatch"), "nowhere.sbatch: no such file"),
    (("submit", "nowhere.toml"), "nowhere.toml: no such file"),
    (("submit", "--wrap", "ls", "x"), "words after it: x"),
    (("submit", "--gres", "2:2", "--", "ls"), "--gres"),
    (("submit", "--array", "x", "--", "ls"), "array"),
    (("submit", "--after", "999", "--", "ls"), "no job 999"),
    (("submit", "--env", "NOT_SET_ANYWHERE", "--", "ls"), "not set here"),
    (("submit", "-d", "expand:1", "--", "ls"), "--dependency"),
    (("show", "999"), "no job 999"), (("suspend", "00"), "no job 0 "),
    (("logs", "x"), "not a valid job number"),
    (("cancel", "999"), "no job 999"), (("wait", "999"), "no job 999"),
    (("drain", "nowhere"), "no node 'nowhere'"), (("policy", "set", "magic"), "no recipe 'magic'"),
    (("queue", "-t", "sleepy"), "not a valid state"),
    (("whatif", "--add", "many"), "neither a cluster nor a file"),
    (("up", "--dry-run", "--listen", "x"), "--listen"),
    (("policy", "idle", "--after", "30"), "--after: '30' could be minutes or seconds"),
    (("whatif", "--slurm", "--history", "3d"), "name different jobs"),
    (("whatif", "--partition", "gpu"), "only Slurm has partitions"),
    (("update", "1"), "nothing to change"), (("whatif", "--history", "x"), "not a valid duration"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_gets_one_clear_line(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell.ganger(*words, code=2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("ganger: ")
    assert said in line


def test_the_queue_in_eighty_columns_and_in_a_pipe(shell: Shell) -> None:
    name = "a-name-that-is-so-long-that-no-terminal-of-eighty-columns-has-room-for-it"
    holder = shell.submit("--gpus", "V100:4", "-J", "holder", "--", "sleep", "600")
    waits = shell.submit("--gpus", "V100:4", "-J", name, "--", "true")
    narrow = shell.on_a_terminal("queue")
    assert all(len(line) <= 80 for line in narrow.splitlines()), narrow
    assert "JOBID" in narrow
    assert name not in narrow
    wide = shell.said("queue")
    row = next(line for line in wide.splitlines() if name in line)
    assert row.split() == [
        str(waits),
        name,
        row.split()[2],
        "PD",
        "-",
        "-",
        "4",
        "0",
        "(Resources)",
    ]
    listings = (
        "nodes",
        "fairshare",
        "history",
        "status",
        "quota",
        "usage",
        "policy idle",
        "service token",
        "service notify",
        "service --help",
        "submit --help",
    )
    for listing in listings:
        lines = shell.on_a_terminal(*listing.split()).splitlines()
        assert all(len(line) <= 80 for line in lines), lines
    assert all(line.count("~") <= 2 for line in shell.on_a_terminal("history").splitlines())
    silent = shell.ganger("logs", str(waits))
    assert (silent.stdout, silent.stderr) == (
        "",
        f"ganger: job {waits} has not started (Resources)\n",
    )
    text = shell.hears("Expected start:", "explain", str(waits))
    assert f"held by job {holder}" in text
    found = shell.json("whatif", "--recipe", "sjf", "--add", "4xV100")
    assert [one["recipe"] for one in found] == ["backfill", "sjf on more"]
    assert found[1]["wait_mean_seconds"] < found[0]["wait_mean_seconds"]
    shell.ganger("cancel", str(holder))
    shell.ganger("wait", str(waits))


def test_orders_answer_with_what_was_done(shell: Shell) -> None:
    job = shell.submit("--gpus", "4", "--", "sleep", "60")
    for verb, past in (("suspend", "suspended"), ("resume", "resumed")):
        until = time.monotonic() + 10
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "ganger.cli", verb, str(job)],
                env=shell.env,
                text=True,
                capture_output=True,
                check=False,
            )
            if done.returncode == 0 or time.monotonic() > until:
                break
        assert done.stdout == f"{past} {job}\n", done.stderr
    assert shell.said("update", str(job), "--priority", "9", "-t", "never") == f"updated {job}\n"
    assert shell.json("show", str(job))[0]["priority"] == 9
    assert "drained" in shell.said("drain", "box-K80")
    assert "up" in shell.said("resume", "box-K80")
    assert shell.said("cancel", str(job)) == f"cancelled {job}\n"
    shell.ganger("wait", str(job), code=130)
    assert f"job {job} is cancelled" in shell.ganger("hold", str(job), code=2).stderr


def test_a_job_that_sleeps_is_not_called_resumed_and_keeps_its_number_of_gpus(shell: Shell) -> None:
    keeps = ("--gpus", "K80:2", "--gpu-memory", "4GiB", "--", "sleep", "60")

    def runs(job: int) -> None:
        until = time.monotonic() + 10
        while shell.json("show", str(job))[0]["state"] != "RUNNING":
            assert time.monotonic() < until
            time.sleep(0.05)

    first = shell.submit(*keeps)
    runs(first)
    shell.ganger("suspend", str(first))
    second = shell.submit(*keeps)
    runs(second)
    assert "GPUs:         2 K80\n" in shell.said("show", str(first))
    assert shell.said("resume", str(first)) == (
        f"{first} goes on when no other job runs on its GPUs (`ganger explain {first}`)\n"
    )
    assert shell.said("cancel", str(second)) == f"cancelled {second}\n"
    shell.ganger("wait", str(second), code=130)
    runs(first)
    shell.ganger("cancel", str(first))
    shell.ganger("wait", str(first), code=130)


def test_a_rehearsed_preemption_comes_back(shell: Shell) -> None:
    job = shell.submit("--", sys.executable, "-c", SAVES)
    until = time.monotonic() + 10
    while not shell.json("show", str(job))[0]["progress"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "--rehearse" in shell.ganger("preempt", str(job), code=2).stderr
    found = json.loads(shell.said("preempt", str(job), "--rehearse", "--json"))
    assert (found["outcome"], found["state"]) == ("Preempted", "RUNNING")
    assert found["note"] == ""
    assert shell.json("show", str(job))[0]["attempt"] == 2
    assert re.search(r"Preempted: +once; then", shell.said("show", str(job)))
    silent = shell.submit("--", "sleep", "60")
    assert "the job reports no steps" in shell.said("preempt", str(silent), "--rehearse")
    shell.ganger("cancel", str(job), str(silent))


SAVES = """
import time
from contextlib import suppress
from pathlib import Path
from ganger import sdk
step = 0
while True:
    step += 1
    sdk.progress(step, 100000)
    if sdk.should_checkpoint():
        sdk.leave(step)
    time.sleep(0.01)
"""


def test_a_shell_inside_a_job(shell: Shell) -> None:
    assert "not a terminal" in shell.ganger("shell", code=2).stderr
    pid, terminal = pty.fork()
    if not pid:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "ganger.cli", "shell", "--gpus", "2", "--", "/bin/sh"],
            shell.env,
        )
    os.write(terminal, b"echo $((6*7)) on [$CUDA_VISIBLE_DEVICES]; exit 3\n")
    text, until = b"", time.monotonic() + 20
    while time.monotonic() < until and select.select([terminal], [], [], 20)[0]:
        try:
            text += os.read(terminal, 4096)
        except OSError:
            break
    os.close(terminal)
    assert re.search(rb"42 on \[\d,\d\]\r\n", text), text
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_a_policy_may_believe_all_that_a_live_one_can(shell: Shell) -> None:
    assert set(KNOWS) == set(PAST)
    assert "change nothing" in shell.said(
        "policy", "set", "pollux", "--knows", "measured", "--dry-run"
    )


def test_a_policy_is_set_while_jobs_run(shell: Shell) -> None:
    job = shell.submit("--", "sleep", "0.5")
    assert "would change nothing" in shell.said("policy", "set", "tiresias", "--dry-run")
    assert shell.said("policy", "set", "tiresias") == (
        "changes nothing at once\nrecipe in force: tiresias\n"
    )
    said = " ".join(shell.said("policy", "set", "helios-ces", "--dry-run").split())
    assert "live, Ganger does not switch machines on or off" in said
    assert shell.said("policy", "show").startswith("tiresias")
    shell.ganger("wait", str(job))
    shell.ganger("policy", "set", "backfill")


def test_history_and_the_journal_agree(shell: Shell) -> None:
    job = shell.submit("-J", "remembered", "--", "true")
    shell.ganger("wait", str(job))
    assert shell.json("history", "-n", "remembered")["jobs"][0]["state"] == "COMPLETED"
    text = shell.said("replay", str(shell.home / "journal.db"), "--check")
    assert re.fullmatch(r"\d+ steps replayed, every plan is the same\n", text)


def has_a_socket(pid: int) -> bool:
    """Whether a process holds one: it has come so far as to ask the daemon."""
    with suppress(OSError):
        return any(
            os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


def test_down_and_up_again_keeps_what_runs(shell: Shell) -> None:
    job = shell.submit("--", "sh", "-c", "sleep 4; echo survived")
    waits = subprocess.Popen(
        [sys.executable, "-m", "ganger.cli", "wait", str(job)], env=shell.env, cwd=shell.cwd
    )
    while waits.poll() is None and not has_a_socket(waits.pid):
        time.sleep(0.05)
    time.sleep(1)  # it has asked
    shell.said("down")
    done = shell.ganger("status", code=1)
    assert "no daemon runs in" in done.stdout
    for words in (
        ("queue",),
        ("usage",),
        ("quota",),
        ("policy", "idle"),
        ("node", "list"),
        ("down",),
        ("daemon", "token"),
        ("daemon", "notify"),
        ("daemon", "metrics"),
        ("job", "show", "1"),
    ):
        (line,) = shell.ganger(*words, code=2).stderr.splitlines()
        assert "start one with `ganger up`" in line, words
    assert "box-V100: 4 GPUs V100" in shell.said("up", "--dry-run")
    done = shell.ganger("up", "--gpus", "2xV100+2xK80", code=2)
    assert "node 'box-V100': it had 4 V100 GPUs and now offers 2 V100" in done.stderr
    shell.said("up")
    assert waits.wait(30) == 0
    assert shell.said("logs", str(job)) == "survived\n"
    assert shell.json("show", str(job))[0]["attempt"] == 1


def test_a_unit_for_systemd(shell: Shell) -> None:
    text = shell.said("install-service", "--print")
    assert f"Environment=GANGER_HOME={shell.home}" in text
    (start,) = re.findall(r"ExecStart=(.*) up --foreground\n", text)
    done = subprocess.run([*start.split(), "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"ganger")
    assert "KillMode=process" in text


def test_tables_and_clocks() -> None:
    text = table(["N", "NAME"], [["1", "a"], ["22", "bb"]])
    assert text == " N  NAME\n 1  a\n22  bb"
    assert [clock(t) for t in (None, 0, 61, 3600, 90061)] == [
        "-",
        "0:00",
        "1:01",
        "1:00:00",
        "1-01:01:01",
    ]
    assert re.fullmatch(r"\d\d-\d\dT\d\d:\d\d", day(1e9))
    now = time.time()
    assert day(now) == time.strftime("%H:%M:%S", time.localtime(now))
