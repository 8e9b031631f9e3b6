"""How much of what each job gets: the one type between allocators and `rounds`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec


class Share(NamedTuple):
    """One row: `jobs` (one, or several that share the GPUs) run on `gpus` GPUs of `gpu_type`
    ("" for any) for the fraction `amount` of the time; where the allocator decides the place too,
    `nodes` says how many on which node."""

    jobs: tuple[int, ...]
    gpu_type: str
    gpus: int
    amount: float
    nodes: tuple[tuple[int, int], ...] = ()


class Allocation(msgspec.Struct):
    """Rows of `Share`, in order of preference. Plain data: part of a policy's memory."""

    rows: list[Share] = []

    def add(
        self,
        jobs: tuple[int, ...],
        gpu_type: str,
        gpus: int,
        amount: float,
        nodes: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """One more row; rows of nothing are left out."""
        if amount > 0 and gpus > 0:
            self.rows.append(Share(jobs, gpu_type, gpus, amount, nodes))

    def of(self, job: int) -> list[Share]:
        """The rows that `job` is in."""
        return [row for row in self.rows if job in row.jobs]

    def __iter__(self) -> Iterator[Share]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
