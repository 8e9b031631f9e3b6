"""What a user tries in the first hour, on one daemon."""

from __future__ import annotations

import json
import re

from cli.rig import Shell


def test_a_python_file_by_itself_is_refused_with_the_mend(shell: Shell) -> None:
    shell.script("train.py", "print(1)\n")
    for word in ("train.py", "./train.py"):
        done = shell.ganger("submit", word, "--lr", "0.1", code=2)
        assert done.stderr == (
            f"ganger: {word}: the file is not executable"
            f" (write like: ganger submit -- python {word} --lr 0.1)\n"
        )
    assert (
        "write like: ganger submit -- sh run"
        in shell.ganger("submit", shell.script("run", "echo\n"), code=2).stderr
    )
    assert "trian.py: no such file" in shell.ganger("submit", "trian.py", code=2).stderr
    assert shell.ganger("submit", "-H", "--", "no-such-program").stderr == (
        "ganger: no-such-program is not on the PATH of this machine\n"
    )


def test_an_executable_file_is_run_from_the_folder_that_it_is_in(shell: Shell) -> None:
    name = shell.script("greet.py", "#!/bin/sh\necho hello $1\n")
    (shell.cwd / name).chmod(0o755)
    job = shell.submit(name, "there")
    shell.ganger("wait", str(job))
    assert shell.said("logs", str(job)) == "hello there\n"


def test_jobs_find_the_daemon_that_started_them(shell: Shell) -> None:
    job = shell.submit("--", "sh", "-c", "echo $GANGER_HOME")
    shell.ganger("wait", str(job))
    assert shell.said("logs", str(job)) == f"{shell.home}\n"


def test_shares_are_shown_as_what_they_are(shell: Shell) -> None:
    words = ("--share", "0.5", "--gpus", "V100:1", "-J", "shares", "--", "sleep", "60")
    jobs = [shell.submit(*words), shell.submit(*words)]
    jobs.append(shell.submit("--gpus", "V100:3", "-J", "shares", "--", "sleep", "60"))
    shown = shell.said("queue", "-n", "shares", "-o", "%i %b", "--noheader").split("\n")
    assert sorted(shown)[1:] == [f"{jobs[0]} 0.5", f"{jobs[1]} 0.5", f"{jobs[2]} 3"]
    rows = [line.split() for line in shell.said("queue", "-n", "shares").splitlines()]
    assert sum(float(row[rows[0].index("GPUS")]) for row in rows[1:]) == 4
    assert sum(share["gpus"] for share in shell.json("fairshare")) == 4
    shell.ganger("cancel", *map(str, jobs))
    shell.ganger("wait", *map(str, jobs), code=130)


def test_an_address_without_a_mail_server_is_said(shell: Shell) -> None:
    done = shell.ganger("submit", "--mail-to", "ann@mail.example", "--", "true")
    assert "no mail is sent: notify.toml has no [smtp] table" in done.stderr
    settings = shell.home / "notify.toml"
    settings.write_text('[smtp]\nhost = "127.0.0.1"\nport = 9\nsender = "g@mail.example"\n')
    try:
        done = shell.ganger("submit", "--mail-to", "ann@mail.example", "--", "true")
        assert done.stderr == ""
    finally:
        settings.unlink()


def test_a_grid_of_parameters_is_an_array_with_names(shell: Shell) -> None:
    words = ("--param", "lr=0.1,0.01", "--param", r"opt=sgd,a\,b", "-o", "{lr}-{opt}.txt", "--",
             "sh", "-c", "echo $0 $1 $GANGER_PARAM_LR $GANGER_PARAM_OPT {array} {other}",
             "{lr}", "{opt}")  # fmt: skip
    shown = shell.ganger("submit", "--dry-run", *words)
    assert json.loads(shown.stdout)["params"] == {"lr": ["0.1", "0.01"], "opt": ["sgd", "a,b"]}
    assert shown.stderr.splitlines()[3].startswith("ganger: task 3: lr=0.01 opt=a,b: sh -c echo")
    done = shell.said("submit", *words)
    (job,) = re.findall(r"array (\d+) of 4 tasks", done)
    shell.ganger("wait", job)
    written = [
        (shell.cwd / f"{lr}-{opt}.txt").read_text()
        for lr in ("0.1", "0.01")
        for opt in ("sgd", "a,b")
    ]
    assert written == [
        "0.1 sgd 0.1 sgd 0 {other}\n",
        "0.1 a,b 0.1 a,b 1 {other}\n",
        "0.01 sgd 0.01 sgd 2 {other}\n",
        "0.01 a,b 0.01 a,b 3 {other}\n",
    ]
    names = [one["name"] for one in shell.json("show", job)]
    assert names == [
        "sh lr=0.1 opt=sgd",
        "sh lr=0.1 opt=a,b",
        "sh lr=0.01 opt=sgd",
        "sh lr=0.01 opt=a,b",
    ]
    for wrong, why in (
        (("--param", "lr"), "write like lr=0.1,0.01"),
        (("--param", "job=1,2"), "cannot name a parameter"),
        (("--param", "a=1,1"), "a has a value twice"),
        (("--param", "a=1,2", "--array", "0-3"), "it contradicts params"),
    ):
        assert why in shell.ganger("submit", *wrong, "--", "true", code=2).stderr
