"""Jobs that state their GPU memory are held to it: by what Python runs before their own code.

The frameworks are modules that record what is asked of them; `tests/gpu` has the real ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engines.conformance import Play
from engines.rig import LocalBench
from ganger.core.events import Finished
from ganger.core.plan import Slot, Start
from ganger.core.spec import Needs, Role, Shape
from ganger.engines.agent.attempt.launch import Home
from ganger.sdk.ceiling import limited

TORCH = """
from types import SimpleNamespace
calls = []
class cuda:
    _lazy_call = staticmethod(calls.append)
    device_count = staticmethod(lambda: 2)
    get_device_properties = staticmethod(lambda i: SimpleNamespace(total_memory=(8 << 30) << i))
    set_per_process_memory_fraction = staticmethod(lambda part, i: print("torch", i, part))
def begin():
    for call in calls: call()
"""
ONNXRUNTIME = """
get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
class InferenceSession:
    def __init__(self, model, sess_options=None, providers=None, provider_options=None, **more):
        print("onnxruntime", model, providers, provider_options, more)
"""
GIB = 1 << 30


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Frameworks, as a job finds them."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, text in {"torch": TORCH, "onnxruntime": ONNXRUNTIME, "jax": "x = 1"}.items():
        (folder / f"{name}.py").write_text(text)
    Home(tmp_path).make()
    return folder


def run(packages: Path, code: str, stated: str = "2048", **env: str) -> tuple[str, str]:
    """What a job's Python prints, and its errors."""
    held = packages.parent / "held"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{held}:{packages}", "GANGER_GPU_MEMORY": stated, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_torch_gets_its_ceiling_once_cuda_begins_and_no_sooner(packages: Path) -> None:
    assert run(packages, "import torch") == ("", "")
    assert run(packages, "import torch; torch.begin()") == ("torch 0 0.25\ntorch 1 0.125\n", "")
    beyond = run(packages, "import torch; torch.begin()", stated="999999")
    assert beyond == ("torch 0 1.0\ntorch 1 1.0\n", "")
    assert run(packages, "import torch; torch.begin()", stated="") == ("", "")
    code = "import torch; print(type(torch.__loader__).__name__, torch.__spec__.loader.path[-8:])"
    assert run(packages, code) == ("SourceFileLoader torch.py\n", ""), "its own loader, as before"


def test_sessions_of_onnxruntime_get_the_option(packages: Path) -> None:
    code = "import onnxruntime as o; o.InferenceSession('m', providers=['CPUExecutionProvider'])"
    assert run(packages, code)[0] == "onnxruntime m ['CPUExecutionProvider'] None {}\n"
    held = f"[('CUDAExecutionProvider', {{'gpu_mem_limit': '{2 * GIB}'}}), 'CPUExecutionProvider']"
    code = "import onnxruntime as o; o.InferenceSession('m', disabled_optimizers=None)"
    said = f"onnxruntime m {held} None {{'disabled_optimizers': None}}\n"
    assert run(packages, code)[0] == said


def test_a_session_may_ask_for_less_but_not_for_more() -> None:
    cuda = "CUDAExecutionProvider"
    assert limited([(cuda, {"gpu_mem_limit": 5, "x": 1})], None, 9) == [
        (cuda, {"gpu_mem_limit": "5", "x": 1})
    ]
    assert limited([cuda, "CPU"], [{"gpu_mem_limit": 99}, {}], 9) == [
        (cuda, {"gpu_mem_limit": "9"}),
        "CPU",
    ]


def test_other_frameworks_are_named_unless_mps_holds_all(packages: Path) -> None:
    named = (
        "ganger: jax is not held to the 2048 MiB of GPU memory that this job states: PyTorch and"
        " onnxruntime are, and under MPS every framework\n"
    )
    assert run(packages, "import jax; print(jax.x)") == ("1\n", named)
    by_mps = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M"}
    assert run(packages, "import jax; print(jax.x)", **by_mps) == ("1\n", "")


def test_a_torch_that_has_changed_is_told_and_does_not_break_the_job(packages: Path) -> None:
    (packages / "torch.py").write_text("x = 1")
    out, error = run(packages, "import torch; print(torch.x)")
    assert out == "1\n"
    assert error.startswith("ganger: torch is not held to the GPU memory that this job states: ")
    (packages / "torch.py").unlink()
    out, error = run(packages, "try:\n    import torch\nexcept ImportError:\n    print('none')")
    assert (out, error) == ("none\n", "")


def test_the_sitecustomize_that_it_hides_is_run_too(packages: Path) -> None:
    (packages / "sitecustomize.py").write_text("print('a site of its own')")
    assert run(packages, "import torch; torch.begin()")[0] == (
        "a site of its own\ntorch 0 0.25\ntorch 1 0.125\n"
    )


def test_an_agent_tells_jobs_that_state_their_memory_and_no_others(alone: LocalBench) -> None:
    play = Play(alone)
    for stated, said in ((2048, "2048 True"), (0, "None False")):
        job = play.number()
        code = "import os, sys; print(os.environ.get('GANGER_GPU_MEMORY'), 'held' in sys.path[1])"
        shape = Shape((Role(needs=Needs(gpu_memory=stated)),))
        alone.launch(job, sys.executable, "-c", code, counted=False, shape=shape)
        play.apply(Start(job, 1, (Slot(0, 1),)))
        play.until(Finished, job)
        assert alone.agents.log(job) == f"{said}\n"
