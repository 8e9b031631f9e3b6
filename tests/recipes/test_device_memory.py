"""GPU memory that profiles state: no recipe that shares GPUs puts a job where it does not fit."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.core.plan import Plan, Slot
from ganger.core.profiles import Measured, Memory, Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.view import View
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from worlds import gpus, job, trace_of

BOTH, LARGE, NONE = {0, 1}, {1}, set[int]()
SHARING = [  # where jobs share that fit in pairs on GPUs of both types, and on the large ones only
    ("antman", BOTH, LARGE),
    ("tgs", BOTH, LARGE),
    ("co-scheml", BOTH, LARGE),
    ("yeung", BOTH, LARGE),
    ("horus", BOTH, LARGE),
    ("lucid(busy=0,limit=5s)", LARGE, LARGE),  # the other node is for profiling
    ("gandiva(quantum=5s)", BOTH, LARGE),
    ("muri-s(every=5s)", BOTH, NONE),  # a group has to pay on all types where its jobs may go
    ("muri-l(every=5s)", BOTH, NONE),
    ("gavel(space_sharing=true,every=5s)", BOTH, LARGE),
]
CLUSTER = ClusterSpec(
    (NodeSpec(gpus=2, gpu_type="small"), NodeSpec(gpus=2, gpu_type="large")),
    (GpuType("small", memory=8000), GpuType("large", memory=16_000)),
)


def known(mib: float) -> Profiles:
    """A model that leaves others almost all of a GPU, and needs so much of its memory."""
    apart = {kind: {1: 1.0} for kind in ("small", "large")}
    beside = {"light": {kind: {1: 0.99} for kind in apart}}
    return Profiles(
        {
            "light": Profile(
                utilisation={"gpu": 0.1},
                measured=Measured(apart, "large", beside=beside),
                memory=Memory(mib - 100, 100),
            )
        }
    )


def ran(recipe: Any, mib: float, many: int = 12, **more: Any) -> Run:
    """More jobs than GPUs, of that model."""
    works = [job(f"j{n}", 0, 60, model="light", **more) for n in range(many)]
    return run_one(trace_of(works), CLUSTER, recipe, Setup(profiles=known(mib)))


def together(run: Run) -> set[int]:
    """On which nodes jobs ever were on a GPU together, by their number."""
    return {
        one.node
        for one, other in combinations(run.segments or [], 2)
        if one.node == other.node
        and one.devices & other.devices
        and max(one.start_seconds, other.start_seconds) < min(one.end_seconds, other.end_seconds)
    }


@pytest.mark.parametrize(("recipe", "fits", "large"), SHARING)
def test_jobs_share_the_gpus_that_have_memory_for_them_and_no_others(
    recipe: str, fits: set[int], large: set[int]
) -> None:
    assert together(ran(recipe, 4000)) == fits
    assert together(ran(recipe, 4001)) == large
    crowded = ran(recipe, 8001, 6)
    assert together(crowded) == NONE
    assert set(crowded.jobs.gpu_type) == {"large"}
    assert set(crowded.jobs.state) == {"finished"}


def test_a_job_that_fits_nowhere_is_refused_with_what_it_needs() -> None:
    needs = r"'light' runs on 1 GPUs of no type there, and needs 16001 MiB of each"
    for recipe in ("fifo", "antman"):
        with pytest.raises(BadInput, match=needs):
            ran(recipe, 16_001)
    with pytest.raises(BadInput, match="needs 8001 MiB"):
        ran("fifo", 8001, shape=gpus(1, gpu_types=("small",)))


class Careless:
    """Puts everybody on half of the same GPU."""

    name = "careless"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Without a look at their memory."""
        for each in view.pending.tolist():
            view.draft.start(each, (Slot(1, 1, 1, share=500),))
        return view.draft.plan(), None


def test_a_policy_that_puts_too_much_on_a_gpu_is_told_which_jobs() -> None:
    assert ran(Careless(), 8000, 2).jobs.state == ["finished"] * 2
    with pytest.raises(BadInput, match="jobs 0, 1 need more than the memory of the large"):
        ran(Careless(), 8001, 2)
