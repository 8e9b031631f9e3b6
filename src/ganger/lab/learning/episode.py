"""One run of the simulator that stops wherever a choice is due: no Gymnasium in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.lab.simulating.answering import profiles_of
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulating.setup import Setup
from ganger.mechanisms.learning.stepwise import Choice, Game, Play
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace


class Episode:
    """A trace on a cluster under `game`; `choice` is what is due, None at the end.

    `waited`: job-seconds that jobs have been in the system since the choice before, that is the
    number of unfinished jobs, added up over time; over a whole run it is the sum of all JCTs.
    """

    def __init__(
        self, trace: Trace, cluster: ClusterSpec, game: Game, setup: Setup | None = None
    ) -> None:
        setup = setup or Setup()
        nodes, self._asks = Nodes(cluster.check()), _Asks(game)
        physics = Physics(nodes, profiles_of(setup, trace), setup.costs)
        self.kernel = Kernel(
            nodes,
            trace.declared,
            self._asks,
            oracle=make_oracle(trace, physics, setup),
            seed=setup.seed,
            validate=setup.validate,
        )
        self.trace = trace
        self.waited = 0.0
        self.choice: Choice | None = None
        self._engine = Simulator(trace.declared, trace.duration, physics, setup.outages)
        self._batch, self._until = Batch(0, []), setup.until
        self._go_on()

    def act(self, action: int) -> None:
        """Answer the choice that is due, and go on to the next one."""
        play = self._asks.play
        assert play is not None, "the episode is over"
        self.waited = 0.0
        try:
            self.choice = play.send(action)
        except StopIteration as over:
            self._apply(self.kernel.finish(self._batch, over.value))
            self._go_on()

    def _go_on(self) -> None:
        kernel, engine, view = self.kernel, self._engine, self.kernel.view
        while True:
            before, present = kernel.now, view.present
            batch = engine.poll(min(kernel.wake, self._until))
            at = self._until if batch is None else min(batch.at, self._until)
            if batch is not None or at < NEVER:
                self.waited += present * max(at - before, 0) / SECOND
            if batch is None or at >= self._until:
                self.choice = self._asks.play = None
                return
            self._batch = batch
            try:
                plan = kernel.step(batch)
            except _Due as due:
                self.choice = due.choice
                return
            self._apply(plan)

    def _apply(self, plan: Plan | None) -> None:
        if plan is not None and plan.actions:
            self._engine.apply(plan, self._batch.at)

    def completed(self) -> NDArray[np.int64]:
        """When each job finished, microseconds; NEVER where it has not."""
        jobs = self.kernel.jobs
        over = jobs.phase[: jobs.n] == Phase.FINISHED
        return np.where(over, jobs.finished[: jobs.n], NEVER)


class _Due(Exception):  # noqa: N818 - nothing is wrong
    """The policy has begun to play, and a choice is due."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice


class _Asks:
    """A policy that leaves its choices to who drives the kernel. `play`: the last that began."""

    name = "episode"

    def __init__(self, game: Game) -> None:
        self.play: Play | None = None
        self._game = game

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Play until the first choice. Raises `_Due` with it."""
        self.play = self._game.play(view)
        try:
            choice = next(self.play)
        except StopIteration as over:
            plan: Plan = over.value
            return plan, None
        raise _Due(choice)
