"""Every recipe over an engine that loses, repeats, delays, refuses, halves and goes away: what must
hold holds, in the kernel's books and on the machines, and no job is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anything import World, worlds
from audit import Audit
from engines.weather import turn
from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.spec import OnPreempt
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import OVER
from ganger.core.units import NEVER, SECOND
from ganger.engines.reconciliation import believed
from ganger.engines.testing.chaos import Chaos
from ganger.lab.simulating.oracles import make_oracle
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from recipes.test_invariants import MAY_WAIT_FOR_EVER, every_recipe
from soaking import many
from worlds import Diary, Played

pytestmark = pytest.mark.long

LOOK = 30 * SECOND
"""Between two questions for what truly runs."""
HORIZON = 20_000 * SECOND


class Seen:
    """An engine, and a diary of what truly happens there."""

    def __init__(self, engine: Simulator) -> None:
        self._engine, self.diary = engine, Diary()
        self._at = 0

    def poll(self, until: int) -> Batch | None:
        """As the engine does."""
        batch = self._engine.poll(until)
        if batch is not None:
            self._at = batch.at
            self.diary.append(0, batch, None, None)
        return batch

    def apply(self, plan: Plan, now: int) -> None:
        """As the engine does."""
        self.diary.append(0, Batch(self._at, []), plan, None)
        self._engine.apply(plan, now)


def storm(recipe: str, world: World, seed: int) -> tuple[Kernel, Seen, Chaos, bool]:
    """Run it until all jobs are over and nothing is left to be said, or the horizon; whether it
    was the former."""
    trace, nodes = world.trace, Nodes(world.cluster)
    physics = Physics(nodes, world.setup.profiles, world.setup.costs)
    kernel = Kernel(
        nodes,
        trace.declared,
        registry.make(recipe),
        seed=seed,
        validate=True,
        oracle=make_oracle(trace, physics, world.setup),
    )
    seen = Seen(Simulator(trace.declared, trace.duration, physics, world.setup.outages))
    engine = Chaos(seen, seed)
    look, quiet = LOOK, max((outage.up for outage in world.setup.outages), default=0)
    while kernel.now < HORIZON:
        if (at := turn(kernel, engine, look)) >= look:
            look = at + LOOK
            same = engine.reconcile(believed(kernel))
            over = all(phase in OVER for phase in kernel.jobs.phase[: kernel.jobs.n].tolist())
            if same and over and at > quiet:
                return kernel, seen, engine, True
    return kernel, seen, engine, False


def check(recipe: str, world: World, seed: int) -> dict[str, int]:
    """All that can be said of one run; what was done to it."""
    kernel, seen, engine, calm = storm(recipe, world, seed)
    played: Any = Played(kernel, seen.diary, None)  # type: ignore[arg-type]
    Audit(played).walk()
    jobs, n = kernel.jobs, kernel.jobs.n
    killed = (jobs.on_preempt[:n] == OnPreempt.KILL).any()  # these may lose their work for ever
    if not killed and recipe not in MAY_WAIT_FOR_EVER:
        assert calm, f"not every job ends: {believed(kernel)}, {kernel.jobs.phase[:n]}"
        assert not kernel.letting_go
        assert kernel.ledger.free == kernel.nodes.total_gpus
        limited = world.trace.declared.limit[:n] < NEVER
        followers = [row in jobs.after for row in range(n)]
        assert ((jobs.phase[:n] == 7) | limited | followers).all()
    return engine.done


@every_recipe
@settings(max_examples=3)
@given(world=worlds(), seed=st.integers(0, 1 << 30))
def test_a_bad_engine_costs_time_and_nothing_else(recipe: str, world: World, seed: int) -> None:
    check(recipe, world, seed)


@pytest.mark.soak
@every_recipe
@settings(max_examples=many(1000))
@given(world=worlds(jobs=30), seed=st.integers(0, 1 << 30))
def test_a_bad_engine_costs_time_and_nothing_else_for_long(
    recipe: str, world: World, seed: int
) -> None:
    check(recipe, world, seed)
