"""Jobs that share a GPU: real training in torch, through `ganger up` and `ganger submit`."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gpu.conftest import PYTHON, Desk

pytestmark = pytest.mark.gpu
HAS_MPS = shutil.which("nvidia-cuda-mps-control") is not None
ALLOCATES = """
import sys, torch
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
torch.cuda.synchronize()
print("allocated", len(held), "GiB")
"""
BY_DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, at, device = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for gib in (1, 6):
    size = ctypes.c_size_t(gib << 30)
    print(gib, "GiB:", cuda.cuMemAlloc_v2(ctypes.byref(at), size))
"""
"""Allocates without any framework: 0 is success, 2 is out of memory."""


def measured(**figures: float) -> None:
    """Print what a run has measured, for the page that says so."""
    print("measured:", ", ".join(f"{name} {value:.3g}" for name, value in figures.items()))


def output(desk: Desk, job: int) -> str:
    """What a job printed that is over."""
    over = ("COMPLETED", "FAILED")
    desk.until(lambda: desk.json("show", str(job))[0]["state"] in over, f"the end of {job}")
    return desk.said("logs", str(job))


def test_nvml_sees_a_job_and_the_next_one_yields_to_a_production_job_and_comes_back(
    desk: Desk,
) -> None:
    desk.begin("tgs")
    (node,) = desk.json("nodes")
    assert node["gpus"] >= 1
    assert node["sharing"].partition(":")[0] in ("MPS", "time slices")
    assert f"jobs share GPUs by {node['sharing']}" in desk.said("doctor")

    first = desk.train("first")
    desk.under_way("first")
    desk.until(lambda: desk.samples(first), "a Sampled event of it")
    seen = desk.samples(first)[-1].gpu
    assert 0.1 < seen <= 1.0
    alone = desk.pace_now("first")

    loose = desk.train("loose")
    desk.under_way("loose")
    time.sleep(10.0)
    beside, loose_beside = desk.pace_now("first", 5.0), desk.pace_now("loose", 1.0)
    told = desk.json("explain", str(loose))
    mine = told["company"][0]
    assert (mine["standing"], mine["model"]) == ("opportunistic", "net")
    assert mine["rate"] < 1.0
    assert desk.json("show", str(loose))[0]["rate"] < 1.0
    assert beside > 0.85 * alone, (alone, beside)

    desk.finish("first")
    desk.until(lambda: desk.pace_now("loose", 2.0) > 0.8 * alone, "its whole speed")
    freely = desk.pace_now("loose")
    third = desk.train("third")
    begun = desk.until(lambda: "third" in desk.running(), "the production job")
    held = desk.pace("loose", begun + 2.0, begun + 6.0)
    assert held < freely / 4, (freely, held)
    desk.under_way("third")
    back = desk.finish("third")
    again = desk.until(lambda: desk.pace_now("loose", 1.0) > 0.8 * freely, "it, back") - back
    measured(
        utilisation=seen, alone=alone, beside=beside, loose_beside=loose_beside, freely=freely,
        held=held, back_after_seconds=again,
    )  # fmt: skip
    assert desk.json("show", str(third))[0]["state"] == "COMPLETED"


def test_a_guaranteed_job_keeps_its_speed_and_the_other_has_all_once_it_is_over(
    desk: Desk,
) -> None:
    desk.begin("antman")
    firm = desk.train("firm")
    desk.under_way("firm")
    desk.until(lambda: desk.samples(firm), "a Sampled event of it")
    alone = desk.pace_now("firm")
    loose = desk.train("loose")
    desk.under_way("loose")
    time.sleep(10.0)
    beside, had = desk.pace_now("firm", 5.0), desk.pace_now("loose", 1.0)
    assert beside > 0.85 * alone, (alone, beside)
    assert "opportunistic" in desk.said("explain", str(loose))
    over = desk.finish("firm")
    after = desk.pace("loose", over + 2.0, over + 5.0)
    measured(alone=alone, beside=beside, loose_beside=had, after=after)
    assert after > 0.8 * alone


@pytest.mark.skipif(not HAS_MPS, reason="there is no nvidia-cuda-mps-control on the PATH")
def test_under_mps_each_job_has_its_part_of_the_gpu_and_of_its_memory(desk: Desk) -> None:
    desk.begin("space-sharing")
    assert [node["sharing"] for node in desk.json("nodes")] == ["MPS"]
    small = desk.train("small", "--share", "0.25", "--gpu-memory", "8GiB", pause=0.0)
    large = desk.train("large", "--share", "0.5", "--gpu-memory", "8GiB", pause=0.0)
    for name in ("small", "large"):
        desk.under_way(name)
    servers = subprocess.run(["pgrep", "-f", "nvidia-cuda-mps-server"], capture_output=True)
    assert servers.stdout.split(), "they compute through a server"
    slow, fast = desk.pace_now("small"), desk.pace_now("large")
    ratio = desk.processors("small") / desk.processors("large")
    assert 0.4 < ratio < 0.6, "a quarter of the multiprocessors, and half of them"
    assert slow < 0.8 * fast, (slow, fast)

    beyond = ("--share", "0.1", "--gpu-memory", "4GiB")
    by_torch = desk.submit(*beyond, "--", PYTHON, "-c", ALLOCATES, "6")
    by_driver = desk.submit(*beyond, "--", PYTHON, "-c", BY_DRIVER)
    assert "OutOfMemoryError" in output(desk, by_torch)
    assert output(desk, by_driver).split("\n")[:2] == ["1 GiB: 0", "6 GiB: 2"]
    assert desk.pace_now("large") > 0.7 * fast, "it failed in that job alone"

    desk.ganger("cancel", str(small))
    desk.until(lambda: "small" not in desk.running(), "its end")
    after = desk.pace_now("large")
    measured(
        small=slow, large=fast, large_after=after, small_processors=desk.processors("small"),
        large_processors=desk.processors("large"),
    )  # fmt: skip
    assert after > 0.9 * fast, "the end of a client leaves the others"
    assert desk.json("show", str(large))[0]["state"] == "RUNNING"


def test_by_time_slices_torch_is_held_to_the_memory_that_its_job_states(
    desk: Desk,
) -> None:
    desk.env["GANGER_MPS"] = "no"
    desk.begin("fifo")
    (node,) = desk.json("nodes")
    assert node["sharing"] == "time slices: GANGER_MPS says no"
    within = desk.submit("--gpu-memory", "4GiB", "--", PYTHON, "-c", ALLOCATES, "3")
    assert output(desk, within) == "allocated 3 GiB\n"
    beyond = desk.submit("--gpu-memory", "4GiB", "--", PYTHON, "-c", ALLOCATES, "6")
    assert "OutOfMemoryError" in output(desk, beyond)
    free = desk.submit("--", PYTHON, "-c", ALLOCATES, "6")
    assert output(desk, free) == "allocated 6 GiB\n"
    assert not list(Path(desk.home, "agent", "mps").glob("*"))
