"""Jobs that share a GPU by NVIDIA's MPS: what an agent says, starts, gives to whom, and ends. The
control daemon is a program that answers as NVIDIA's does; `tests/gpu` has the real one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engines.conformance import Play
from engines.rig import Agents, LocalBench
from ganger.core.events import Released
from ganger.core.plan import Slot, Start, Stop
from ganger.core.spec import Needs, NodeSpec, Role, Shape
from ganger.engines.agent.pacing import Pacing
from ganger.engines.agent.protocol import Key, Part, Prepare, Rate, Terms
from ganger.engines.agent.sharing import Mps, Sharing
from ganger.engines.launch import Launch

PROGRAM = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = -f ]; then
    [ -e broken ] && { echo "no device" >&2; exit 1; }
    echo $$ > pid
    exec sleep 60
fi
read -r words
kill -0 "$(cat pid)" 2>/dev/null || { echo "Cannot find MPS control daemon process" >&2; exit 1; }
echo "$words" >> asked
case "$words" in
    quit) kill "$(cat pid)"; rm pid ;;
    *) echo 100.0 ;;
esac
"""
NODE = (NodeSpec(gpus=2, gpu_type="H100", name="box"),)
KEY = Key(3, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the daemon's sockets would be, with its program first on the PATH."""
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("ganger.engines.agent.sharing._SOCKET_BYTES_MAX", 4096)
    yield tmp_path / "mps"
    Mps(tmp_path / "mps").close()


def prepared(needs: Needs, share: int = 0, terms: Terms | None = None, uid: int = -1) -> Prepare:
    """A part on one of two GPUs."""
    launch = Launch(command=("true",), shape=Shape((Role(needs=needs),)), uid=uid)
    return Prepare(KEY, launch, (Part((1,), share=share),), terms=terms)


def bounds(sharing: Sharing, prepare: Prepare) -> tuple[str, str] | None:
    """The percentage of threads and the limits of memory that a part's workers get."""
    given = sharing.variables(prepare)
    if not given:
        return None
    names = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    return (given[0].get(names[0], ""), given[0].get(names[1], ""))


def test_parts_that_share_compute_through_the_daemon_within_what_they_asked_for(
    folder: Path,
) -> None:
    sharing = Sharing(NODE, mps=Mps(folder))
    assert sharing.said == "MPS"
    quarter = Needs(share=250, gpu_memory=8192)
    assert bounds(sharing, prepared(quarter)) == ("25", "0=8192M")
    assert sharing.variables(prepared(quarter))[0]["CUDA_MPS_PIPE_DIRECTORY"] == str(folder)
    assert bounds(sharing, prepared(Needs(), share=500)) == ("", ""), "only booked by a recipe"
    assert bounds(sharing, prepared(Needs())) is None, "it has its GPU for itself"
    others = prepared(quarter, uid=os.getuid() + 1)
    assert bounds(sharing, others) is None, "a daemon serves one user"
    sharing.close()


def test_terms_bound_the_threads_to_the_limit_and_those_of_an_opportunistic_job_not_at_all(
    folder: Path,
) -> None:
    sharing, part = Sharing(NODE, mps=Mps(folder)), Needs(share=400)
    token = prepared(part, terms=Terms(KEY, 0.4, 0.5))
    assert bounds(sharing, token) == ("50", "")
    loose = prepared(part, terms=Terms(KEY, 0.0, 1.0, "step-time"))
    assert bounds(sharing, loose) == ("", "")
    pacing = Pacing()
    pacing.add(KEY, [0], token.terms, 0.0, sharing.threads(token))
    assert pacing.look(0.0) == [Rate(KEY, 1.0)], "what MPS bounds need not be held"
    pacing.add(Key(4, 1), [0], Terms(Key(4, 1), 0.6, 1.0), 1.0)
    assert pacing.look(1.0) == [Rate(KEY, 0.8, True), Rate(Key(4, 1), 0.6, True)]
    sharing.close()


def test_the_daemon_outlives_its_agent_and_the_next_one_takes_it_over(folder: Path) -> None:
    first = Mps(folder)
    assert first.serves()
    (pid,) = first.pids
    second = Mps(folder)
    assert second.serves()
    assert second.pids == set(), "it is not this one's child"
    os.kill(pid, 0)
    second.close()
    first.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_daemon_that_died_is_started_again_for_the_next_part_that_shares(folder: Path) -> None:
    mps = Mps(folder)
    sharing = Sharing(NODE, mps=mps)
    (pid,) = sharing.pids
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sharing.ended(pid)
    assert sharing.pids == set()
    assert sharing.variables(prepared(Needs(share=500)))
    assert sharing.pids != {pid}
    sharing.close()


NVML = """
class NVMLError(Exception): pass
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda i: i
nvmlDeviceGetName = lambda i: "NVIDIA H100 80GB HBM3"
class nvmlDeviceGetUtilizationRates:
    gpu = 50
    def __init__(self, i): pass
"""
CLIENT = """
import os, sys, time
print(os.path.basename(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), flush=True)
with open(sys.argv[1], "w", buffering=1) as beats:
    while True:
        print(time.monotonic(), file=beats)
        time.sleep(.01)
"""


def test_a_client_stands_still_until_its_gpu_is_done_before_a_signal_kills_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here: its last beat is well before its end."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "pynvml.py").write_text(NVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    with TemporaryDirectory(prefix="gg-") as short:
        agents = Agents(Path(short), ["a"], "--gpus", "")
        bench = LocalBench(agents)
        bench.settle()
        play = Play(bench)
        assert [box.hello.sharing for box in bench.engine.boxes.values()] == ["MPS"]
        for job, share, still in ((0, 500, 0.4), (1, 0, 0.0)):
            beats = tmp_path / f"beats-{job}"
            env = {} if share else {"CUDA_MPS_PIPE_DIRECTORY": "/none"}
            command = (sys.executable, "-S", "-c", CLIENT, str(beats))
            bench.launch(job, *command, counted=False, env=env)
            play.apply(Start(job, 1, (Slot(0, 1, share=share),)))
            play.wait(beats.exists, "a beat")
            assert agents.log(job) == ("mps\n" if share else "none\n")
            play.apply(Stop(job, 1, "cancelled"))
            play.until(Released, job)
            stood = time.monotonic() - float(beats.read_text().splitlines()[-1])
            assert stood >= still, "it stood still"
        bench.engine.close()
        agents.close()
        asked = (Path(short) / "a" / "mps" / "asked").read_text().splitlines()
        assert asked[-1] == "quit", "an agent that leaves nothing behind ends the daemon"


def test_without_mps_the_agent_says_why_and_gives_time_slices(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    (folder / "broken").touch()
    broken = Sharing(NODE, mps=Mps(folder))
    assert broken.said.startswith("time slices: nvidia-cuda-mps-control does not answer; see ")
    assert broken.variables(prepared(Needs(share=500))) == {}
    monkeypatch.setattr("ganger.engines.agent.sharing._SOCKET_BYTES_MAX", 100)
    deep = tmp_path / ("x" * 100)
    assert Sharing(NODE, mps=Mps(deep)).said == (
        f"time slices: the path {deep} is too long for its sockets"
    )
    monkeypatch.setenv("GANGER_MPS", "no")
    assert Sharing(NODE, mps=Mps(folder)).said == "time slices: GANGER_MPS says no"
    monkeypatch.delenv("GANGER_MPS")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("ganger.engines.agent.sharing._PATH", "/nowhere")
    assert Sharing(NODE, mps=Mps(folder)).said == (
        "time slices: there is no nvidia-cuda-mps-control on the PATH"
    )
    assert Sharing(NODE, mps=None).said == "", "simulated GPUs"
    assert Sharing((NodeSpec(gpus=0),), mps=Mps(folder)).said == "", "none"
