"""`srun` inside jobs: the scripts that people bring from Slurm, on two nodes."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

from cli.rig import Shell
from ganger.sdk import steps
from ganger.sdk.hostlist import expand
from ganger.sdk.srun import compressed, parse, spread
from ganger.sdk.steps import Lead, Line, Refused, free_port, proof

SEEN = "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $RANK/$WORLD_SIZE"


GPUS = "4xV100+2xV100"
BOTH = ("--gpus", "6", "--workers", "3")
"""Two workers on the node of four GPUs, and one on the other."""


def run(shell: Shell, *words: str, script: str = "", code: int = 0) -> list[str]:
    """What a job on both nodes prints, line by line, sorted."""
    shell.script("srun.sbatch", f"#!/bin/bash\n#SBATCH --job-name=steps\n{script}\n")
    job = shell.submit(*words, "srun.sbatch")
    shell.ganger("wait", str(job), "--timeout", "50", code=code)
    return sorted(shell.said("logs", str(job)).splitlines())


def test_tasks_start_on_every_node_of_the_job(shell: Shell) -> None:
    lines = run(
        shell,
        *BOTH,
        script="echo once $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE $SLURMD_NODENAME\n"
        f"srun sh -c '{SEEN} $SLURM_STEP_ID $SLURMD_NODENAME'\n"
        "srun -l --ntasks-per-node=2 sh -c 'echo $SLURM_LOCALID; echo err >&2' 2>/dev/null",
    )
    once = next(line for line in lines if line.startswith("once")).split()
    names = once[1].split(",")
    workers = {"box-V100": 2, "box-V100-2": 1}
    assert sorted(names) == sorted(workers)
    assert once[2:] == [f"{workers[names[0]]},{workers[names[1]]}", names[0]]
    places = [(node, i) for node, name in enumerate(names) for i in range(workers[name])]
    assert [line for line in lines if "/" in line] == [
        f"{rank} {local} {node} 3 {rank}/3 0 {names[node]}"
        for rank, (node, local) in enumerate(places)
    ]
    assert [line for line in lines if ":" in line] == ["0: 0", "1: 1", "2: 0", "3: 1"]


def test_one_node_and_the_worst_exit_code(shell: Shell) -> None:
    script = f"srun -n 3 -u sh -c '{SEEN}'\nsrun -n2 sh -c 'exit $((SLURM_PROCID * 7))'"
    lines = run(shell, "--gpus", "1", script=script, code=7)
    assert [line for line in lines if "/" in line] == ["0 0 0 3 0/3", "1 1 0 3 1/3", "2 2 0 3 2/3"]
    code = "echo $?\nsrun -N2 sh -c 'exit $((SLURM_NODEID * 5))'; echo worst $?"
    assert "worst 5" in run(shell, *BOTH, script=code)


def test_a_task_that_fails_ends_the_others_if_asked_to(shell: Shell) -> None:
    began = time.monotonic()
    script = "srun -K -N2 sh -c '[ $SLURM_PROCID = 0 ] && exit 3; exec sleep 60'; echo ended $?"
    lines = run(shell, *BOTH, script=script)
    assert "ended 143" in lines
    assert time.monotonic() < began + 40


def test_what_srun_does_not_know_is_one_clear_line(shell: Shell) -> None:
    (line,) = run(shell, "--gpus", "1", script="srun --gres=gpu:1 true", code=2)
    assert line.startswith("srun: unrecognized arguments: --gres=gpu:1 (inside Ganger's jobs")
    job = shell.submit("--gpus", "2", "--workers", "2", "--per", "worker", "--", "srun", "true")
    shell.ganger("wait", str(job), code=2)
    assert "submit it with --per job" in shell.said("logs", str(job))


def test_a_cancelled_job_leaves_no_task_on_any_node(shell: Shell) -> None:
    mark = shell.cwd / "beats"
    script = f"srun sh -c 'while true; do echo $SLURM_PROCID >> {mark}; sleep 0.05; done'"
    shell.script("srun.sbatch", f"#!/bin/bash\n#SBATCH --gpus=6\n{script}\n")
    job = shell.submit(*BOTH, "srun.sbatch")
    until = time.monotonic() + 20
    while time.monotonic() < until and not (mark.exists() and "2" in mark.read_text()):
        time.sleep(0.05)
    shell.ganger("cancel", str(job))
    shell.ganger("wait", str(job), code=130)
    seen = mark.stat().st_size
    time.sleep(0.3)
    assert mark.stat().st_size == seen


def test_scripts_choose_their_first_node_by_scontrol(shell: Shell) -> None:
    script = (
        "scontrol show hostnames $SLURM_JOB_NODELIST\nscontrol show hostnames\n"
        "scontrol show hostnames 'gpu[09-10,2],login'\nscontrol show hostnames 'gpu[a]'; echo $?\n"
        "PATH=${PATH%%:*}; scontrol requeue 1; echo $?"
    )
    lines = run(shell, *BOTH, "--per", "job", script=script)
    names = ["box-V100", "box-V100-2"]
    assert sorted(line for line in lines if line.startswith("box")) == sorted(2 * names)
    assert {"gpu09", "gpu10", "gpu2", "login"} <= set(lines)
    assert "scontrol: host list: 'a' is not a range" in lines
    assert "scontrol: inside Ganger's jobs scontrol knows: show hostnames [LIST]" in lines
    assert lines.count("2") == 2


def test_what_we_do_not_know_goes_to_the_machines_own_scontrol(shell: Shell) -> None:
    own = shell.cwd / "own"
    own.mkdir()
    (own / "scontrol").write_text("#!/bin/sh\necho own $*\n")
    (own / "scontrol").chmod(0o755)
    lines = run(shell, "--gpus", "1", script=f"PATH=${{PATH%%:*}}:{own}; scontrol requeue 7")
    assert lines == ["own requeue 7"]


def test_a_list_of_hosts_that_would_fill_the_memory_is_refused() -> None:
    assert expand("a[1-2][08-09],b") == ["a108", "a109", "a208", "a209", "b"]
    for text in ("a[1-99999][1-99999]", "a[1-100000000000]", "a[1-90000],b[1-90000]"):
        with pytest.raises(ValueError, match="more than 100000 hosts"):
            expand(text)


def test_how_tasks_are_spread() -> None:
    def counts(words: str, *slots: int) -> list[int]:
        return spread(parse([*words.split(), "x"]), list(slots))

    assert counts("", 2, 1) == [2, 1]
    assert counts("-N1", 2, 1) == [2]
    assert counts("-n1", 2, 1) == [1]
    assert counts("-n 5", 2, 2) == [3, 2]
    assert counts("--ntasks-per-node=3", 1, 1) == [3, 3]
    with pytest.raises(Refused, match="the job has 2"):
        counts("-N3", 1, 1)
    with pytest.raises(Refused, match="more than 1 on each of 2"):
        counts("-n3 --ntasks-per-node=1", 1, 1)
    assert compressed([2, 2, 2, 1]) == "2(x3),1"


def test_only_who_knows_the_secret_joins(tmp_path: Path) -> None:
    port = free_port()
    Lead(2, "the secret", "127.0.0.1", port, str(tmp_path))

    def answered(secret: str, node: int) -> bool:
        line = Line(socket.create_connection(("127.0.0.1", port), 5))
        line.sock.settimeout(5)
        nonce = str((line.receive() or {})["nonce"])
        mine = proof(secret, f"follow {node}", nonce, "ab")
        line.send({"node": node, "nonce": "ab", "proof": mine})
        answer = line.receive()
        line.close()
        return answer is not None and answer["proof"] == proof(secret, "lead", "ab", nonce)

    assert not answered("a guess", 1)
    assert answered("the secret", 1)
    flood = Line(socket.create_connection(("127.0.0.1", port), 5))
    flood.receive()
    with contextlib.suppress(OSError):
        flood.sock.sendall(b"x" * (1 << 20))
    assert flood.receive() is None, "it is not read on before it has proved itself"
    flood.close()


def test_a_port_that_is_taken_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "BIND_SECONDS", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Refused, match="on the job's first node: Address already in use"),
    ):
        Lead(2, "the secret", "127.0.0.1", taken.getsockname()[1], str(tmp_path))
