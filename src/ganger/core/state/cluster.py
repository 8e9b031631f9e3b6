"""The cluster as columns: one row per node, expanded from its spec."""

from __future__ import annotations

from ganger.core.spec import ClusterSpec, GpuType
from ganger.core.state.names import Names
from ganger.core.state.table import I32, I64, Table


class Nodes(Table):
    """One row per node. `gpu_type`, `pool`, `rack` and `labels` are codes; `island` is the number
    of GPUs in one socket or NVLink island (equal to `gpus` if all are one)."""

    gpus: I32
    gpu_type: I32
    cpus: I64
    memory: I64
    pool: I32
    rack: I32
    island: I32
    labels: I32

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(sum(group.count for group in spec.nodes))
        self.spec = spec
        self.offers = [group.offer for group in spec.nodes for _ in range(group.count)]
        """By node: on what terms it is had; None: it is there."""
        self.bandwidth = [group.bandwidth for group in spec.nodes for _ in range(group.count)]
        """By node: GB/s of its memory; 0: not stated."""
        self.names: list[str] = []
        self.types: Names[str] = Names()
        self.pools: Names[str] = Names([""])
        self.racks: Names[str] = Names([""])
        self.label_sets: Names[tuple[str, ...]] = Names([()])
        for group in spec.nodes:
            for i in range(group.count):
                self._add(group.name, i, group.count)
                row = self.n
                rack = group.rack
                if group.nodes_per_rack:
                    rack = f"{group.rack or 'rack'}-{row // group.nodes_per_rack}"
                self.extend(
                    1,
                    gpus=group.gpus,
                    gpu_type=self.types.code(group.gpu_type),
                    cpus=group.cpus,
                    memory=group.memory,
                    pool=self.pools.code(group.pool),
                    rack=self.racks.code(rack),
                    labels=self.label_sets.code(group.labels),
                    island=min(group.island or group.gpus, group.gpus),
                )
        described = {gpu.name: gpu for gpu in spec.gpu_types}
        self.type_specs = [described.get(name, GpuType(name)) for name in self.types]

    def _add(self, prefix: str, i: int, count: int) -> None:
        name = f"{prefix}-{i}" if prefix and count > 1 else prefix or f"node-{self.n}"
        self.names.append(name)

    @property
    def rentable(self) -> list[int]:
        """The nodes that are off until a policy switches them on."""
        return [row for row, offer in enumerate(self.offers) if offer and offer.rentable]

    @property
    def total_gpus(self) -> int:
        """All GPUs of all nodes, up or not."""
        return int(self.gpus[: self.n].sum())
