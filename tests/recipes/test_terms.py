"""Terms on which jobs share GPUs: no more of a device is given out than there is, and none of them
outlive the recipe that gave them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Tune
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import SECOND
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.sim.tenancy import LEAST
from ganger.workloads.trace import Trace
from worlds import Work, job, trace_of

USED = {"p3": 0.3, "p5": 0.5, "p6": 0.6, "p7": 0.7, "all": 1.0}
KNOWN = Profiles({name: Profile(utilisation={"gpu": used}) for name, used in USED.items()})


def box(nodes: int, each: int) -> ClusterSpec:
    """GPUs of one type."""
    return ClusterSpec((NodeSpec(count=nodes, gpus=each, gpu_type="A"),), (GpuType("A"),))


class GivenOut:
    """The largest part of any device that was in use at a time, as the kernel is told of rates: at
    one instant they change one after the other."""

    def __init__(self) -> None:
        self.most = 0.0
        self.plans: list[tuple[float, Plan]] = []
        self._at, self._used = -1, 0.0
        self.kernel: Any = None

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Look at the instant before this one, and at this one."""
        if batch.at > self._at:
            self.most = max(self.most, self._used)
        self._at, jobs = batch.at, self.kernel.jobs
        used: dict[tuple[int, int], float] = {}
        for row, (_, placement) in self.kernel.ledger.holds.items():
            part = USED[jobs.models[int(jobs.model[row])]] * float(jobs.rate[row])
            for slot in placement:
                for device in range(slot.devices.bit_length()):
                    if slot.devices >> device & 1:
                        used[slot.node, device] = used.get((slot.node, device), 0.0) + part
        self._used = max(used.values(), default=0.0)
        if plan is not None:
            self.plans.append((batch.at / SECOND, plan))


class Play:
    """A simulation whose recipe may change."""

    def __init__(self, works: list[Work], on: ClusterSpec, recipe: str, **more: Any) -> None:
        self.trace: Trace = trace_of(works)
        self.nodes = Nodes(on.check())
        self.setup = Setup(profiles=KNOWN, **more)
        physics = Physics(self.nodes, self.setup.profiles, self.setup.costs)
        self.engine = Simulator(self.trace.declared, self.trace.duration, physics, ())
        self.oracle = make_oracle(self.trace, physics, self.setup)
        self.seen = GivenOut()
        self.kernel = self.seen.kernel = Kernel(
            self.nodes,
            self.trace.declared,
            registry.make(recipe),
            oracle=self.oracle,
            journal=self.seen,
            validate=True,
        )

    def switch(self, recipe: str) -> None:
        """As a daemon does it, by way of plain data."""
        kept = msgspec.msgpack.decode(
            msgspec.msgpack.encode(forget(capture(self.kernel))), type=Snapshot
        )
        self.kernel = self.seen.kernel = restore(
            kept,
            self.nodes,
            registry.make(recipe),
            oracle=self.oracle,
            journal=self.seen,
            validate=True,
        )

    def tunes(self, since: float) -> dict[int, dict[str, Any]]:
        """What jobs were given from a time on, seconds."""
        return {
            action.job: dict(action.knobs)
            for at, plan in self.seen.plans
            for action in plan.actions
            if at >= since and isinstance(action, Tune)
        }

    def until(self, seconds: float) -> list[float]:
        """The rates of all jobs then."""
        self.kernel.run(self.engine, round(seconds * SECOND))
        rates: list[float] = self.kernel.jobs.rate[: self.kernel.jobs.n].tolist()
        return rates


@pytest.mark.parametrize("recipe", ["tgs", "tgs(period=5s)", "antman", "antman(beside=2)"])
@pytest.mark.parametrize("seed", range(6))
def test_no_more_of_a_device_is_given_out_than_there_is(recipe: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    works = [
        job(
            f"j{n}",
            float(rng.integers(0, 300)),
            float(rng.integers(20, 900)),
            size=int(rng.choice([1, 1, 2, 3])),
            model=str(rng.choice(list(USED))),
        )
        for n in range(30)
    ]
    costs = Costs(start=20 * SECOND, restore=30 * SECOND) if seed % 2 else Costs()
    run = Play(works, box(2, 4), recipe, costs=costs)
    run.until(1e6)
    assert set(run.kernel.jobs.phase[:30].tolist()) == {7}
    least = 0.0 if recipe.startswith("tgs") else 2 * LEAST  # nobody stands still
    assert 0.9 < run.seen.most <= 1.0 + least + 1e-9


def test_a_gang_has_on_each_gpu_what_the_controller_there_leaves_it() -> None:
    """The second guest comes when the controller of the first has settled, and goes on as it was.
    The gang is as fast as where it has least, so that less than all is given out."""
    works = [job("gang", 0, 5000, size=2, model="p6"), job("a", 10, 5000, model="p7")]
    works.append(job("b", 1010, 5000, model="p7"))
    run = Play(works, box(1, 2), "tgs")
    before = run.until(1009)
    after = run.until(1015)
    assert before[1] == after[1] > after[2]
    assert after[0] == before[0]
    assert run.seen.most <= 1.0 + 1e-9


def one_each() -> list[Work]:
    """A guaranteed job, and one beside it."""
    return [job("first", 0, 4000, model="p6"), job("beside", 0, 4000, model="p7")]


def test_the_next_recipe_puts_jobs_on_its_own_terms() -> None:
    run = Play([*one_each(), job("late", 500, 10, model="all")], box(1, 1), "antman(settle=300s)")
    assert run.until(100) == pytest.approx([1.0, 0.2 / 0.7, 0.0])
    run.switch("tgs")
    firm, loose, _ = run.until(3000)
    given = run.tunes(100)
    assert given[0] == {"request": 1.0, "control": "arrival-rate", "settle_s": 1.0}
    assert given[1] == {"request": 0.0, "control": "arrival-rate", "settle_s": 1.0}
    assert 0.9 < firm < 1.0
    assert 0.3 < loose < 0.43 / 0.7
    run.switch("antman(settle=0s)")
    run.until(3001)
    assert run.until(3500)[:2] == pytest.approx([1.0, 0.4 / 0.7])
    assert run.seen.most <= 1.0 + 1e-9


@pytest.mark.parametrize("recipe", ["antman", "tgs"])
def test_under_a_recipe_without_terms_jobs_are_on_none(recipe: str) -> None:
    """Both as fast then as sharing leaves them."""
    run = Play([*one_each(), job("late", 500, 10, model="all")], box(1, 1), recipe)
    run.until(100)
    run.switch("fifo")
    assert run.until(1000)[:2] == pytest.approx([1 / (1 + 0.6 * 0.7)] * 2)
    assert run.tunes(100) == {0: {"request": -1.0}, 1: {"request": -1.0}}
    run.switch(recipe)
    run.until(1e6)
    assert run.kernel.jobs.phase[:3].tolist() == [7] * 3


def test_tokens_are_given_anew_with_another_limit() -> None:
    shape = Shape((Role(needs=Needs(share=400)),))
    works = [job(name, 0, 4000, model="all", shape=shape) for name in "ab"]
    works.append(job("late", 500, 10, model="all", shape=shape))
    run = Play(works, box(1, 1), "kubeshare")
    assert run.until(100)[:2] == pytest.approx([1.25, 1.25])
    run.switch("kubeshare(limit=0.4)")
    assert run.until(1000)[:2] == pytest.approx([1.0, 1.0])
    run.switch("space-sharing")
    run.until(1001)
    assert run.tunes(1001) == {0: {"request": -1.0}, 1: {"request": -1.0}}
