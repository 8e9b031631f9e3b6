"""What a job imports: alone on the path, on old Pythons, and harmless outside Ganger."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engines.conformance import Play, on
from engines.rig import LocalBench
from ganger import sdk
from ganger.core.events import Finished, Progressed, Released
from ganger.core.plan import Start, Stop
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.engines.agent.attempt.launch import Home

USE = """
import signal, sys
from ganger import sdk
sdk.progress(1, 10, loss=0.5); sdk.saved(1)
sdk.on_preempt(lambda: None)
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
assert not sdk.should_checkpoint() and not sdk.inside()
assert (sdk.rank, sdk.local_rank, sdk.world_size) == (0, 0, 1)
assert "numpy" not in sys.modules and "msgspec" not in sys.modules
print(sdk.checkpoint_dir)
"""
OLD_AND_NEW = ("python3.9", "python3.10", "python3.13")
PYTHONS = sorted(
    {
        sys.executable,
        *filter(None, map(shutil.which, OLD_AND_NEW)),
        *(
            str(path)
            for name in OLD_AND_NEW
            for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")
        ),
    }
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """What the agent puts on a job's path."""
    Home(tmp_path).make()
    return tmp_path / "sdk"


def usable(python: str) -> bool:
    """Whether it starts (a version manager may have shims for what is not there)."""
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


@pytest.mark.parametrize("python", PYTHONS)
def test_outside_ganger_nothing_happens(path: Path, tmp_path: Path, python: str) -> None:
    if not usable(python):
        pytest.skip(f"{python} does not start")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        [python, "-S", "-W", "error", "-c", USE],
        cwd=empty,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("checkpoints\n", "")
    assert not list(empty.iterdir())


def test_only_the_sdk_is_on_the_path(path: Path) -> None:
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    names = ("__init__", "ceiling", "hostlist", "replica", "scontrol", "srun", "steps")
    assert files == [f"ganger/sdk/{name}.py" for name in names]


def test_a_keeper_that_is_gone_or_slow_does_not_hold_the_job(path: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 30)  # longer than a socket's path may be
    deep.mkdir()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with short_path(deep, "sdk") as short:
        sock.bind(short)
    text = (
        "from ganger import sdk, sdk as s\nfor i in range(20000): sdk.saved(i)\n"
        "import os; os.unlink(os.environ['GANGER_DIR'] + '/sdk'); sdk.saved(5)"
    )
    env = {"PYTHONPATH": str(path), "GANGER_DIR": str(deep)}
    done = subprocess.run([sys.executable, "-S", "-c", text], env=env, timeout=20, check=False)
    assert done.returncode == 0
    assert json.loads(sock.recv(1000)) == {"saved": 0}
    sock.close()


def run(play: Play, text: str) -> int:
    """A job of this Python text, at work."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(job, sys.executable, "-S", "-c", text, step_micros=0.0)
    play.apply(Start(job, 1, (on(0, 0),)))
    return job


def test_on_preempt_saves_between_two_bytecodes_and_leaves(play: Play) -> None:
    job = run(
        play,
        "import time\nfrom ganger import sdk\n"
        "@sdk.on_preempt\ndef save():\n"
        "    (sdk.checkpoint_dir / 'saved').write_text('x'); return 40\n"
        "for step in range(100000):\n    time.sleep(.01); sdk.progress(step + 1, loss=1.5)",
    )
    told = play.until(Progressed, job)
    assert told.rate == 1.0  # the first measured step defines it
    step_micros = told.work / play.bench.engine.progress[job].step  # type: ignore[attr-defined]
    assert 9_000 < step_micros < 100_000
    assert play.bench.engine.progress[job].metrics == {"loss": 1.5}  # type: ignore[attr-defined]
    play.apply(Stop(job, 1))
    assert play.until(Released, job).kept == pytest.approx(40 * step_micros, rel=0.01)
    homes = play.bench.agents.homes  # type: ignore[attr-defined]
    assert (homes["a"] / "checkpoints" / str(job) / "saved").exists()


def test_a_job_that_reaches_its_total_has_finished_though_it_was_asked_to_leave(
    play: Play,
) -> None:
    job = run(
        play,
        "import time\nfrom ganger import sdk\nsdk.progress(8, 10); time.sleep(.06)\n"
        "sdk.progress(9, 10)\nwhile not sdk.should_checkpoint(): time.sleep(.005)\n"
        "sdk.progress(10, 10)",
    )
    play.until(Progressed, job)
    play.apply(Stop(job, 1))
    play.until(Finished, job)


def test_forks_of_a_job_may_report_too(play: Play) -> None:
    job = run(
        play,
        "import os, time\nfrom ganger import sdk\nsdk.progress(1, 9)\n"
        "if not os.fork():\n    time.sleep(.1); sdk.progress(3, 9); os._exit(0)\n"
        "os.wait()",
    )
    play.until(Finished, job)
    assert play.bench.engine.progress[job].step == 3  # type: ignore[attr-defined]


def test_gradient_statistics_find_the_true_ones() -> None:
    """Gradients of known mean and variance, in batches of 4 on each of 8 workers."""
    rng = np.random.default_rng(0)
    true, spread = np.full(50, 0.3), 2.0
    squares, variances = [], []
    for _ in range(2000):
        own = true + rng.normal(0, spread / 4**0.5, (8, 50))
        small, large = (own**2).sum(1).mean(), (own.mean(0) ** 2).sum()
        square, variance = sdk.gradient_statistics(small, 4, large, 32)
        squares.append(square)
        variances.append(variance)
    assert np.mean(squares) == pytest.approx((true**2).sum(), rel=0.05)
    assert np.mean(variances) == pytest.approx(50 * spread**2, rel=0.02)
    with pytest.raises(ValueError, match="larger"):
        sdk.gradient_statistics(1.0, 8, 1.0, 8)
