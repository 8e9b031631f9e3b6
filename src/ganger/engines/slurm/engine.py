"""The Slurm engine: attempts are Slurm jobs on nodes that the policy chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ganger.core.plan import AnyAction, Placement, Plan, Resize, Resume, Start, Stop, Suspend
from ganger.core.spec import NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.launch import Home
from ganger.engines.agent.protocol import Hello
from ganger.engines.clock import Clock
from ganger.engines.gang import Hold
from ganger.engines.launch import Launch
from ganger.engines.local import DOES, FleetEngine
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.fleet import SlurmFleet
from ganger.engines.slurm.machines import Machines, spec_of

PATIENCE: Final = 60 * SECOND


def discover(client: Client) -> tuple[NodeSpec, ...]:
    """The nodes that Ganger can use, by name. Raises BadInput, Away."""
    specs = (spec_of(node) for node in sorted(client.nodes(), key=lambda node: node.name))
    return tuple(spec for spec in specs if spec is not None)


class SlurmEngine(FleetEngine):
    """Executes plans as Slurm jobs.

    `home` is a folder that all nodes share. `launch_of` says how to launch a job; `admit` gives the
    kernel's numbers of the nodes of a Hello; either may raise BadInput. `cluster` distinguishes
    this Ganger's jobs from another's. `patience` (microseconds): a start that Slurm has not begun
    by then is Refused. `warn` gets what is wrong with a node, or with `Slurm`, or that nothing is
    any more. Raises BadInput, Away.

    Slurm's own suspension keeps the GPUs: an attempt that is to be suspended saves, leaves and is
    Released. Slurm gives devices to one of its jobs, so that a job cannot hold some for its
    children.
    """

    capabilities = msgspec.structs.replace(
        DOES, actions=DOES.actions - {"Tune"}, grants=False, reports=False, suspends=False
    )

    def __init__(
        self,
        client: Client,
        home: Path,
        launch_of: Callable[[int], Launch],
        admit: Callable[[Hello], Sequence[int]],
        *,
        cluster: str = "",
        clock: Clock | None = None,
        patience: int = PATIENCE,
        progress_every: int = 5 * SECOND,
        warn: Callable[[str, Sequence[str]], None] = lambda name, wrong: None,
    ) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        Home(home).make()
        self._places: dict[tuple[int, int], Placement] = {}
        machines = Machines(admit, warn)
        machines.update(client.nodes(), ())
        self._fleet = SlurmFleet(
            client, home, machines, self._places, cluster=cluster, patience=patience, warn=warn
        )
        super().__init__(self._fleet, launch_of, clock, patience, progress_every)
        self._fleet.first_look(client.jobs())

    def apply(self, plan: Plan, now: int) -> None:
        """Set the plan's actions going. An attempt that was started is not started again."""
        actions: list[AnyAction] = []
        for action in plan.actions:
            if isinstance(action, Start | Resize):
                self._places[action.job, action.attempt] = action.placement
            if isinstance(action, Suspend):
                action = Stop(action.job, action.attempt)
            if not isinstance(action, Resume):  # what was suspended is leaving
                actions.append(action)
        super().apply(Plan(actions), now)

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Take over what a restored kernel believes to hold devices. Before the first `poll`."""
        holds = [
            hold._replace(phase=Phase.STOPPING) if hold.phase == Phase.SUSPENDED else hold
            for hold in holds
        ]
        self._places.update({(hold.job, hold.attempt): hold.placement for hold in holds})
        super().adopt(holds)

    def devices(self, job: int, attempt: int) -> dict[str, tuple[int, ...]]:
        """The indices of the devices that Slurm gave an attempt, by node."""
        return self._fleet.devices((job, attempt))
