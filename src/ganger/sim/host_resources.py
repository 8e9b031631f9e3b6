"""What the jobs of a node leave each other of its cores and of the bandwidth of its memory.

A policy gives a job its part by the knobs of a Tune: `cpus_per_gpu` and `memory_per_gpu` (of a job
with GPUs), `cpus` (thousandths of a core for each worker of a job without GPUs, which is so much
slower than on what it asks for), and `bandwidth_gbps` (GB/s that it moves on each of its nodes at
most).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ganger.core.plan import Placement
from ganger.core.spec import Kind
from ganger.core.units import NEVER, WHOLE
from ganger.estimate.sharing.host_bandwidth import HostUser, stretch
from ganger.sim.attempts import Attempts

LEAST = 0.001
"""The least factor on a speed: no job stands still for good."""
_TUNE = int(Kind.TUNE)


class HostResources:
    """The cores and the memory bandwidth of all nodes, among the attempts that run there."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._physics = attempts, attempts.physics
        self._given: dict[int, dict[str, float]] = {}
        self._speed: dict[int, float] = {}
        """By job that uses memory bandwidth: its speed if it had all of that which it wants."""
        self._shapes, self._asking = 0, False

    # ------------------------------------------------------------------ who is concerned

    @property
    def crowded(self) -> bool:
        """Whether jobs that ask for cores may leave others too few."""
        shapes = self._attempts.declared.shapes.values
        if self._shapes != len(shapes):
            self._shapes = len(shapes)
            self._asking = any(role.needs.cpus for shape in shapes for role in shape.roles)
        return self._asking and self._physics.fed

    @property
    def shared(self) -> bool:
        """Whether jobs on one node may slow each other down by what they take of the host."""
        physics = self._physics
        return physics.streaming or (physics.fed and self.crowded)

    def start(self, job: int) -> None:
        """A new attempt of the job was given nothing yet."""
        self._given.pop(job, None)

    def give(self, job: int, knobs: Mapping[str, float | bool | str]) -> None:
        """What the running attempt is given from now on."""
        given = self._given.setdefault(job, {})
        given |= {name: float(value) for name, value in knobs.items() if not isinstance(value, str)}

    # ------------------------------------------------------------------ cores

    def supply(self, job: int, placement: Placement) -> float:
        """The factor on the job's speed by the cores and the host memory that it has."""
        attempts, given = self._attempts, self._given.get(job, {})
        if "cpus" in given and not any(slot.devices for slot in placement):
            roles = attempts.declared.shapes[attempts.declared.shape[job]].roles
            asked = max(roles[slot.role].needs.cpus for slot in placement)
            return max(min(given["cpus"] / asked, 1.0), LEAST) if asked else 1.0
        each = self._cpus_each if self._physics.fed and self.crowded else None
        return self._physics.supply(attempts.declared, job, placement, given, each)

    def _cpus_each(self, node: int) -> float:
        """Thousandths of a core that each GPU has on a node whose job asks for none: its part of
        the node, or of what those leave that ask for cores."""
        attempts, nodes = self._attempts, self._physics.nodes
        whole, booked, devices = int(nodes.cpus[node]), 0.0, 0
        declared = attempts.declared
        for job in attempts.on_node[node]:
            if declared.kind[job] == _TUNE:
                continue  # its trials take what it asks for
            roles, given = declared.shapes[declared.shape[job]].roles, self._given.get(job, {})
            for slot in attempts.where[job]:
                if slot.node == node and roles[slot.role].needs.cpus:
                    asked = roles[slot.role].needs.cpus
                    booked += slot.workers * min(asked, given.get("cpus", asked))
                elif slot.node == node:
                    devices |= slot.devices
        remaining = max(whole - booked, 0.0) / max(devices.bit_count(), 1)
        return min(whole / int(nodes.gpus[node]), remaining)

    # ------------------------------------------------------------------ memory bandwidth

    def note(self, job: int, speed: float) -> bool:
        """Keep the speed that the job would have if memory bandwidth held it up nowhere; whether
        that changes what it takes of it."""
        attempts = self._attempts
        model = attempts.declared.models[attempts.declared.model[job]]
        if self._physics.profiles.of(model).host is None or self._speed.get(job) == speed:
            return False
        self._speed[job] = speed
        return True

    def remaining(self, job: int) -> float:
        """What the bandwidth of its nodes leaves of the job's speed: on the node where it has
        least, since workers of a gang wait for each other."""
        where = self._attempts.where.get(job, ())
        factors = [
            user.speed(self._stretch(node))
            for node in {slot.node for slot in where if self._bandwidth(slot.node)}
            if (user := self._user(job, node)) is not None
        ]
        return max(min(factors, default=1.0), LEAST)

    def _bandwidth(self, node: int) -> float:
        return self._physics.nodes.bandwidth[node]

    def _stretch(self, node: int) -> float:
        """How many times as long accesses take on the node."""
        began = self._attempts.began
        here = [job for job in sorted(self._attempts.on_node[node]) if began[job] < NEVER]
        users = [user for job in here if (user := self._user(job, node)) is not None]
        return stretch(tuple(users), self._bandwidth(node))

    def _user(self, job: int, node: int) -> HostUser | None:
        """The job as one that uses the memory of the node; None if it does not."""
        attempts, declared = self._attempts, self._attempts.declared
        use = self._physics.profiles.of(declared.models[declared.model[job]]).host
        if use is None or job not in self._speed or declared.kind[job] == _TUNE:
            return None
        roles, units = declared.shapes[declared.shape[job]].roles, 0.0
        for slot in attempts.where[job]:
            if slot.node == node:
                cores = slot.workers * max(roles[slot.role].needs.cpus / WHOLE, 1.0)
                units += slot.devices.bit_count() or cores
        demand = use.bandwidth * units * self._speed[job]
        limit = self._given.get(job, {}).get("bandwidth_gbps", math.inf)
        return HostUser(demand, use.bound, limit) if demand > 0.0 else None
