"""A search whose trials report what is measured when they are asked: recipes decide as in a
simulation, in which an epoch takes a second, and nobody waits for time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ganger.core.errors import InvariantError
from ganger.core.kernel import Kernel
from ganger.core.profiles import Profiles
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.units import NEVER, SECOND
from ganger.lab.simulating.policies import blame
from ganger.lab.tuning.recipes import Chosen
from ganger.lab.tuning.run import Told, own_cluster
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.sim.reports import CurveReports, Draws, FromDraws
from ganger.workloads.experiment.reading import Experiment

_RUNNING: Final = int(Phase.RUNNING)


class AsMeasured:
    """What one trial reports: after these `epochs`, what `measure` says of each when it is wanted,
    by the number of the report."""

    def __init__(self, epochs: list[float], metric: str, measure: Callable[[int], float]) -> None:
        self.epochs = epochs
        self.ends = [round(epoch * SECOND) for epoch in epochs]
        self.values = {metric: _Wanted(measure, len(epochs))}


class _Wanted(list[float]):
    """Values that are measured when they are asked for."""

    def __init__(self, measure: Callable[[int], float], count: int) -> None:
        super().__init__([float("nan")] * count)
        self._measure = measure

    def __getitem__(self, number: int) -> float:  # type: ignore[override]
        return self._measure(number)


def race(
    experiment: Experiment,
    choice: Chosen,
    draws: Draws,
    reports: CurveReports,
    begin: Callable[[Callable[[int], bool]], object],
) -> None:
    """Run the search to its end. `begin` gets a function that tells whether a trial runs now.
    Raises BadInput."""
    document = experiment.document
    cluster = own_cluster(experiment)
    nodes, profiles = Nodes(cluster.check()), Profiles()
    asked = document.resources.held(document.parallelism)
    shape = Shape((Role(size=asked, least=1, most=asked),))
    search = declare([JobSpec(name=document.name, kind=Kind.TUNE, shape=shape, restore=0)])
    kernel = Kernel(
        nodes,
        search,
        TwoLevel(registry.make("fifo"), choice.policy),
        oracle=Told(profiles.default, reports if choice.needs_durations else None),
        seed=document.seed,
    )
    begin(lambda job: bool(kernel.jobs.phase[job] == _RUNNING))
    physics = Physics(nodes, profiles, Costs())
    engine = Simulator(search, np.array([NEVER]), physics, evaluations=reports)
    engine.searcher = FromDraws(draws, reports, search.n)
    try:
        kernel.run(engine)
    except InvariantError as error:
        raise blame(choice.policy, error) from error
