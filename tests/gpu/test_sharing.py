"""Jobs that share a GPU: real training in torch, through `ganger up` and `ganger submit`."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu.conftest import PYTHON, Desk, a_desk

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


def output(desk: Desk, job: int, state: str) -> str:
    """What a job printed that has come to this end."""
    over = "COMPLETED", "FAILED"
    desk.until(lambda: desk.json("show", str(job))[0]["state"] in over, f"the end of {job}")
    text = (desk.home / "agent" / "logs" / f"{job - 1}.1.log").read_text()
    assert desk.json("show", str(job))[0]["state"] == state, text
    return text


def pair(desk: Desk) -> tuple[float, float]:
    """Steps a second of two jobs that ask for half of the GPU each, side by side."""
    for name in ("one", "two"):
        desk.train(name, "--share", "0.5")
    for name in ("one", "two"):
        desk.under_way(name)
    began = time.time()
    both = desk.pace("one", began, began + 5.0), desk.pace("two", began, began + 5.0)
    for name in ("one", "two"):
        desk.finish(name)
    return both


@pytest.fixture(scope="module")
def learned() -> Iterator[Desk]:
    """A home that has seen what a model uses: only such models share a GPU."""
    with a_desk() as desk:
        desk.begin("fifo")
        scout = desk.train("scout")
        desk.under_way("scout")
        desk.until(lambda: desk.samples(scout), "a Sampled event of it")
        desk.finish("scout")
        yield desk


def test_what_nvml_samples_becomes_an_event_and_agents_say_how_gpus_are_shared(
    learned: Desk,
) -> None:
    seen = [one.gpu for one in learned.samples(1)]
    assert all(0.1 < gpu <= 1.0 for gpu in seen), seen
    (node,) = learned.json("nodes")
    assert node["sharing"].partition(":")[0] in ("MPS", "time slices")
    assert f"jobs share GPUs by {node['sharing']}" in learned.said("doctor")
    measured(utilisation=seen[-1])


def test_an_opportunistic_job_yields_to_a_production_job_within_two_seconds_and_comes_back(
    learned: Desk,
) -> None:
    desk = learned
    desk.said("policy", "set", "tgs")
    desk.train("first")
    desk.under_way("first")
    alone = desk.pace_now("first")
    loose = desk.train("loose")
    desk.under_way("loose")
    time.sleep(10.0)
    beside, loose_beside = desk.pace_now("first", 5.0), desk.pace_now("loose", 2.0)
    mine, other = desk.json("explain", str(loose))["company"]
    assert (mine["standing"], mine["model"]) == ("opportunistic", "net")
    assert mine["rate"] is not None
    assert (other["standing"], other["rate"]) == ("guaranteed", 1.0)
    assert other["speed"] > 0.85
    print(desk.said("explain", str(loose)))
    assert beside > 0.85 * alone, (alone, beside)

    desk.finish("first")
    desk.until(lambda: desk.pace_now("loose", 2.0) > 0.8 * alone, "its whole speed")
    freely = desk.pace_now("loose")
    desk.train("third")
    begun = desk.until(lambda: "third" in desk.running(), "the production job")
    told = desk.until(lambda: desk.json("show", str(loose))[0]["rate"] <= 0.1, "word of its rate")
    held = desk.pace("loose", begun + 2.0, begun + 6.0)
    desk.under_way("third")
    over = desk.finish("third")
    back = desk.until(lambda: desk.pace_now("loose", 1.0) > 0.8 * freely, "it, back") - over
    measured(
        alone=alone,
        beside=beside,
        loose_beside=loose_beside,
        freely=freely,
        held=held,
        back_after_seconds=back,
        rate=mine["rate"],
        told_after_seconds=told - begun,
    )
    assert held < freely / 4, (freely, held)
    desk.finish("loose")


def test_a_guaranteed_job_keeps_its_speed_and_the_other_has_all_once_it_is_over(
    learned: Desk,
) -> None:
    desk = learned
    desk.said("policy", "set", "antman")
    desk.train("firm")
    desk.under_way("firm")
    alone = desk.pace_now("firm")
    loose = desk.train("beside")
    desk.under_way("beside")
    time.sleep(10.0)
    beside, had = desk.pace_now("firm", 5.0), desk.pace_now("beside", 2.0)
    assert "opportunistic" in desk.said("explain", str(loose))
    over = desk.finish("firm")
    after = desk.pace("beside", over + 2.0, over + 5.0)
    measured(alone=alone, beside=beside, loose_beside=had, after=after)
    assert beside > 0.85 * alone, (alone, beside)
    assert after > 0.8 * alone, (alone, after)
    desk.finish("beside")


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
    assert "OutOfMemoryError" in output(desk, by_torch, "FAILED")
    assert output(desk, by_driver, "COMPLETED") == "1 GiB: 0\n6 GiB: 2\n"
    assert desk.pace_now("large") > 0.7 * fast, "it failed in that job alone"

    desk.ganger("cancel", str(small))
    desk.until(lambda: "small" not in desk.running(), "its end")
    after = desk.pace_now("large")
    measured(
        small=slow,
        large=fast,
        large_after=after,
        small_processors=desk.processors("small"),
        large_processors=desk.processors("large"),
    )
    assert after > 0.9 * fast, f"the end of a client stops the others\n{desk.told()}"
    assert desk.json("show", str(large))[0]["state"] == "RUNNING"
    desk.finish("large")
    one, two = pair(desk)
    measured(mps_one=one, mps_two=two)


def test_by_time_slices_torch_is_held_to_the_memory_that_its_job_states(
    desk: Desk,
) -> None:
    desk.env["GANGER_MPS"] = "no"
    desk.begin("fifo")
    (node,) = desk.json("nodes")
    assert node["sharing"] == "time slices: GANGER_MPS says no"
    within = desk.submit("--gpu-memory", "4GiB", "--", PYTHON, "-c", ALLOCATES, "3")
    assert output(desk, within, "COMPLETED") == "allocated 3 GiB\n"
    beyond = desk.submit("--gpu-memory", "4GiB", "--", PYTHON, "-c", ALLOCATES, "6")
    assert "OutOfMemoryError" in output(desk, beyond, "FAILED")
    free = desk.submit("--", PYTHON, "-c", ALLOCATES, "6")
    assert output(desk, free, "COMPLETED") == "allocated 6 GiB\n"
    desk.said("policy", "set", "space-sharing")
    one, two = pair(desk)
    measured(slices_one=one, slices_two=two)
    assert not list(Path(desk.home, "agent", "mps").glob("*"))
