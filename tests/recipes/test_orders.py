"""A day on which people give orders all the time: what comes of it is on record, too."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.core.events import AnyEvent, Batch, Command, NodeCommand, Withheld
from ganger.core.kernel import Kernel
from ganger.core.state.cluster import Nodes
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import MINUTE
from ganger.lab.simulating.oracles import make_oracle
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from recipes.days import DAYS, Dice
from recipes.recorded import recorded
from worlds import Diary, trace_of

VERBS = (
    "hold",
    "release",
    "requeue",
    "suspend",
    "resume",
    "cancel",
    "priority",
    "weight",
    "limit",
    "estimate",
    "deadline",
)


def orders(jobs: int, nodes: int) -> list[tuple[int, AnyEvent]]:
    """Something is ordered every three minutes."""
    dice, told = Dice(9), list[tuple[int, AnyEvent]]()
    for at in range(3 * MINUTE, 300 * MINUTE, 3 * MINUTE):
        verb, row, node = dice.of(*VERBS), dice.between(0, jobs - 1), dice.between(0, nodes - 1)
        if verb == "cancel" and dice.between(0, 3):
            verb = "resume"
        values = {"priority": dice.between(0, 5), "weight": dice.of(0.5, 2.0)}
        value = values.get(verb, at + dice.between(10, 60) * MINUTE)
        event: AnyEvent = Command(row, verb, float(value))
        if dice.between(0, 5) == 0:
            event = NodeCommand(node, dice.of("drain", "resume", "resume"))
        elif dice.between(0, 7) == 0:
            event = Withheld(node, dice.of(0, 0, 1, 2))
        told.append((at, event))
    return told


class Ordered:
    """A simulator in whose batches people's orders stand at their time."""

    def __init__(self, inner: Any, told: list[tuple[int, AnyEvent]]) -> None:
        self.inner, self.told = inner, told
        self.apply = inner.apply

    def poll(self, until: int) -> Batch | None:
        """What happens next, no later than the next order."""
        due = self.told[0][0] if self.told else until
        batch: Batch | None = self.inner.poll(min(until, due))
        if batch is None or not self.told or batch.at < due:
            return batch
        events = [*batch.events, self.told.pop(0)[1]]
        return Batch(batch.at, sorted(events, key=lambda event: event.rank))


COLUMNS = ("phase", "attempt", "ran", "served", "held", "work", "preemptions", "priority", "weight")


def lived(recipe: str, day: str) -> str:
    """When each job ended, and fingerprints of all plans and of the jobs' table at the end. Every
    hour the kernel is restored from a snapshot, of which another snapshot is the same."""
    world = DAYS[day]()
    trace, nodes = trace_of(world.works), Nodes(world.cluster)
    physics, diary = Physics(nodes, world.setup.profiles, world.setup.costs), Diary()

    def oracle() -> Any:
        return make_oracle(trace, physics, world.setup)

    engine: Any = Ordered(
        Simulator(trace.declared, trace.duration, physics, world.setup.outages),
        orders(len(world.works), nodes.n),
    )
    kernel = Kernel(
        nodes,
        trace.declared,
        registry.make(recipe),
        journal=diary,
        oracle=oracle(),
        seed=world.setup.seed,
        validate=True,
    )
    for hour in range(1, 9):
        kernel.run(engine, hour * 60 * MINUTE)
        kept = msgspec.msgpack.encode(capture(kernel))
        snapshot = msgspec.msgpack.decode(kept, type=Snapshot)
        kernel = restore(
            snapshot,
            Nodes(world.cluster),
            registry.make(recipe),
            journal=diary,
            oracle=oracle(),
            validate=True,
        )
        assert msgspec.msgpack.encode(capture(kernel)) == kept
    plans = b"".join(recorded(plan) for _, plan in diary.steps)
    jobs = kernel.jobs
    table = b"".join(getattr(jobs, name)[: jobs.n].tobytes() for name in COLUMNS)
    prints = [hashlib.sha256(text).hexdigest()[:8] for text in (plans, table)]
    ends = [int(end) // 1_000_000 for end in jobs.finished[: jobs.n]]
    return " ".join(map(str, [*ends, *prints]))


RECORD = Path(__file__).with_name("ordered.txt")
RECIPES = ("fifo", "srtf", "priority", "backfill", "tiresias(thresholds=10m;1h)", "drf", "max-min",
           "gandiva-fair", "themis", "afs", "yarn-cs", "las(quantum=5m)")  # fmt: skip
CASES = [(recipe, day) for recipe in RECIPES for day in ("gangs", "kinds", "crowd")]


@pytest.mark.parametrize(("recipe", "day"), CASES)
def test_what_comes_of_peoples_orders_is_on_record(recipe: str, day: str) -> None:
    rows = (line.split(maxsplit=2) for line in RECORD.read_text().splitlines())
    record = {(recipe, day): rest for recipe, day, rest in rows}
    assert lived(recipe, day) == record[recipe, day]


if __name__ == "__main__":
    RECORD.write_text("".join(f"{' '.join(case)} {lived(*case)}\n" for case in CASES))
