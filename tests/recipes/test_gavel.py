"""Gavel on its authors' traces: the figures of their public simulator, in its ways."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ganger.core.profiles import Measured, Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from soaking import rarely
from worlds import job, trace_of

ROOT = os.environ.get("GANGER_TRACES", "")
on_traces = pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces")
V100S, EVEN = "36x1xV100", "12x1xV100+12x1xP100+12x1xK80"


def replay(trace: str, cluster: str, recipe: str) -> Run:
    """A run on one of Gavel's physical-cluster traces."""
    folder = Path(ROOT) / "gavel"
    loaded = load_trace(
        folder / f"physical_cluster/{trace}.trace.gz",
        throughputs=folder / "simulation_throughputs.json.gz",
    )
    return run_one(loaded, load_cluster(cluster), recipe, Setup(), record=False)


@on_traces
@pytest.mark.traces
@pytest.mark.parametrize(
    ("trace", "cluster", "how", "jct", "total", "within"),
    [
        ("max_min_fairness", V100S, "fifo", 12722.8, 61512.2, 0.0),
        ("max_min_fairness", EVEN, "fifo", 20396.2, 74154.7, 0.0),
        ("minimize_makespan", EVEN, "fifo", 42981.9, 98361.5, 0.0),
        ("max_min_fairness", V100S, "max-min,agnostic=yes", 10934.0, 63312.2, 0.0),
        ("max_min_fairness", EVEN, "max-min,agnostic=yes", 19145.2, 73788.4, 0.01),
        ("max_min_fairness", EVEN, "max-min", 14981.3, 63438.6, 0.01),
        rarely(("max_min_fairness", EVEN, "ftf", 15839.9, 64754.7, 0.02)),
        ("max_min_fairness", EVEN, "makespan", 27819.7, 61512.5, 0.0),
        ("minimize_makespan", EVEN, "makespan", 71569.9, 72325.1, 0.0),
    ],
)
def test_the_public_simulators_figures(
    trace: str, cluster: str, how: str, jct: float, total: float, within: float
) -> None:
    run = replay(trace, cluster, f"gavel(objective={how},compatible=yes)")
    assert run.jobs.state == ["finished"] * len(run.jobs.state)
    assert run.metrics["jct_mean_seconds"] == pytest.approx(jct, rel=within, abs=0.051)
    # One late job is the whole of the total: among equally good answers it varies more.
    assert run.metrics["makespan_seconds"] == pytest.approx(total, rel=2 * within, abs=0.051)


PRICED = ClusterSpec(
    (NodeSpec(1, 1, "V100"), NodeSpec(1, 1, "K80")),
    (GpuType("V100", price=3.0), GpuType("K80", price=1.0)),
)


def test_cost_prefers_the_cheap_type_unless_a_deadline_forbids() -> None:
    told = Profile(measured=Measured({"V100": {1: 1.0}, "K80": {1: 0.5}}, "V100"))
    setup = Setup(profiles=Profiles({"m": told}))
    free = [job("a", lasts=100, model="m", steps=100)]
    bound = [job("a", lasts=100, model="m", steps=100, deadline=110)]
    plain = run_one(trace_of(free), PRICED, "gavel(objective=cost)", setup)
    assert plain.jobs.finish == pytest.approx([200])
    blind = run_one(trace_of(bound), PRICED, "gavel(objective=cost)", setup)
    assert blind.jobs.finish == pytest.approx([200])
    soon = run_one(trace_of(bound), PRICED, "gavel(objective=cost,deadlines=yes,every=10s)", setup)
    assert soon.jobs.finish[0] <= 115
    hopeless = [job("a", lasts=100, model="m", steps=100, deadline=50)]
    late = run_one(trace_of(hopeless), PRICED, "gavel(objective=cost,deadlines=yes)", setup)
    assert late.jobs.finish == pytest.approx([200])


def test_deadlines_that_cannot_be_met_together_are_left_out_of_the_programme() -> None:
    told = Profile(measured=Measured({"V100": {1: 1.0}}, "V100"))
    setup = Setup(profiles=Profiles({"m": told}))
    works = [job(name, lasts=100, model="m", steps=100, deadline=110) for name in "ab"]
    on = load_cluster("1x1xV100")
    bound, free = (
        run_one(trace_of(works), on, f"gavel(objective=max_sum,every=10s{more})", setup)
        for more in (",deadlines=yes", "")
    )
    assert bound.jobs.finish == pytest.approx(free.jobs.finish)
    assert max(free.jobs.finish) == pytest.approx(200)


def test_a_gang_on_nodes_of_one_gpu_each_is_known_to_be_spread() -> None:
    """Two GPUs in one node do 2 steps per second, on two nodes 0.5: then one type is as good."""
    spread = Profile(
        measured=Measured({"V100": {1: 1.0, 2: 2.0}, "K80": {1: 0.5, 2: 1.0}}, "V100"),
        locality=(1.0, 1.0, 4.0, 4.0),
    )
    setup = Setup(profiles=Profiles({"m": spread}))
    works = [job("a", lasts=100, size=2, model="m", steps=200)]
    on = ClusterSpec((NodeSpec(2, 1, "V100"), NodeSpec(1, 2, "K80")))
    run = run_one(trace_of(works), on, "gavel(every=1000s)", setup)
    assert run.jobs.finish == pytest.approx([200]), "on the slower type, but in one node"


def test_where_the_interior_point_does_not_converge_all_get_their_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("ganger.recipes.training.gavel.interior_point.interior", fails)
    works = [job(name, lasts=100, model="m", steps=100) for name in "ab"]
    told = Profiles({"m": Profile(measured=Measured({"V100": {1: 1.0}}, "V100"))})
    recipe = "gavel(objective=ftf,centred=yes,every=10s)"
    run = run_one(trace_of(works), load_cluster("1x1xV100"), recipe, Setup(profiles=told))
    assert sorted(run.jobs.finish) == pytest.approx([190, 200], abs=10)


def test_a_job_is_never_placed_where_its_model_fails() -> None:
    told = Profile(measured=Measured({"V100": {1: 1.0}, "K80": {1: 0.0}}, "V100"))
    works = [job(f"j{i}", lasts=10, model="m", steps=10) for i in range(3)]
    setup = Setup(profiles=Profiles({"m": told}))
    for recipe in ("fifo", "las", "gavel(compatible=yes)"):
        run = run_one(trace_of(works), PRICED, recipe, setup)
        assert np.isfinite(run.jobs.finish).all()
        assert set(run.jobs.gpu_type) == {"V100"}
