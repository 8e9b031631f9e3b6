"""Squishy bin packing: how few GPUs serve sessions within their SLOs, and in which batches.

Shen et al.: Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis, SOSP 2019,
sections 4.1 and 6.1. Times are microseconds, rates requests a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganger.core.units import NEVER, SECOND

_HAIR: Final = 1e-9
"""What sums of floats may be off by, as a part."""
_NOTHING: Final = 1e-6
"""Requests a second that are none."""
_STEPS: Final = 14
"""Of each search for the largest rates that fit."""


class Session(Struct, frozen=True):
    """Requests for one model with one SLO, at a rate. `latency`: by batch, from 0 up."""

    number: int
    latency: Sequence[int]
    slo: int
    rate: float


class Share(Struct, frozen=True):
    """A session's part of a GPU: the rate that it has there, in batches of so many."""

    session: Session
    batch: int

    @property
    def took(self) -> int:
        """Microseconds of its batch."""
        return self.session.latency[self.batch]


class Node(Struct, frozen=True):
    """A GPU that runs a batch of each of its sessions once in every `duty` cycle."""

    duty: float
    shares: tuple[Share, ...]

    @property
    def took(self) -> int:
        """The execution cycle: microseconds of a batch of each."""
        return sum(share.took for share in self.shares)

    @property
    def occupancy(self) -> float:
        """The part of the time in which it is busy."""
        return self.took / self.duty


def largest_batch(latency: Sequence[int], slo: int) -> int:
    """The largest batch of which two in a row keep the SLO: a request that just misses one waits
    for it, and is in the next. 1 where only a single request alone keeps it; 0 where none does."""
    found = bisect_right(latency, slo // 2 if slo < NEVER else NEVER) - 1
    return found if found > 0 else int(latency[1] <= slo)


def throughput(latency: Sequence[int], slo: int) -> float:
    """Requests a second that a GPU serves within the SLO if it has nothing else to do."""
    batch = largest_batch(latency, slo)
    return batch * SECOND / latency[batch] if batch else 0.0


def residue(session: Session) -> Node:
    """A GPU for what does not fill one: the largest batch that is gathered and executed within the
    SLO (none that a whole GPU would not run), and how often there is one. Only for a session that
    keeps its SLO alone."""
    latency, gap = session.latency, SECOND / session.rate

    def spent(batch: int) -> float:
        return (batch - 1) * gap + latency[batch]

    sizes = range(1, largest_batch(latency, session.slo) + 1)
    batch = max(bisect_right(sizes, session.slo * (1 + _HAIR), key=spent), 1)
    duty = min(session.slo - latency[batch], batch * gap)
    return Node(max(duty, latency[batch]), (Share(session, batch),))


def merged(one: Node, other: Node) -> Node | None:
    """Both on one GPU: the shorter cycle, with batches of what comes in it; None where they do not
    fit into it."""
    duty = min(one.duty, other.duty)
    both = Node(
        duty,
        tuple(
            Share(share.session, max(ceil(duty * share.session.rate / SECOND * (1 - _HAIR)), 1))
            for share in (*one.shares, *other.shares)
        ),
    )
    return both if both.took <= duty * (1 + _HAIR) else None


def pack(sessions: Sequence[Session]) -> list[Node]:
    """GPUs for all sessions that keep their SLO at all. Whole ones first; of what is left over the
    greatest occupancy first, each where the occupancy is highest after merging, or on a new one."""
    nodes: list[Node] = []
    rest: list[Node] = []
    for session in sessions:
        batch = largest_batch(session.latency, session.slo)
        if not batch or session.rate <= _NOTHING:
            continue
        most = batch * SECOND / session.latency[batch]
        count = int(session.rate / most * (1 + _HAIR))
        full = Node(session.latency[batch], (Share(replace(session, rate=most), batch),))
        nodes += [full] * count
        left = session.rate - count * most
        if left > max(_NOTHING, session.rate * _HAIR):
            rest.append(residue(replace(session, rate=left)))
    shared: list[Node] = []
    for node in sorted(rest, key=lambda node: -node.occupancy):
        best, where = node, len(shared)
        for at, other in enumerate(shared):
            both = merged(other, node)
            if both is not None and (where == len(shared) or both.occupancy > best.occupancy):
                best, where = both, at
        shared[where : where + 1] = [best]
    return nodes + shared


def scaled(sessions: Sequence[Session], factor: float) -> list[Session]:
    """The sessions with so many times their rates."""
    return [replace(session, rate=session.rate * factor) for session in sessions]


def fitted(sessions: Sequence[Session], count: int, *, fill: bool) -> tuple[list[Node], float]:
    """The packing for `count` GPUs, and how many times the rates it serves: less than once where
    they are too few; with `fill` as often as they can, else once at most. What cannot be packed on
    so few at any rate is put on those that are least busy."""
    best, factor = pack(sessions), 1.0
    if len(best) > count or (fill and best):
        low, high = 0.0, 1.0
        if len(best) <= count:
            low = 1.0
            while high < 1 << 10 and len(more := pack(scaled(sessions, 2 * high))) <= count:
                best, low, high = more, 2 * high, 2 * high
            high *= 2
        for _ in range(_STEPS):
            middle = (low + high) / 2
            found = pack(scaled(sessions, middle))
            if len(found) <= count:
                best, low = found, middle
            else:
                high = middle
        factor = low
        if not low:  # at no rate
            factor = high
            best = _squeezed(pack(scaled(sessions, high)), count)
    return best, factor


def _squeezed(nodes: Sequence[Node], count: int) -> list[Node]:
    """On so few GPUs, whatever the SLOs say."""
    found: list[list[Node]] = [[] for _ in range(count)]
    for node in sorted(nodes, key=lambda node: -node.occupancy):
        min(found, key=lambda some: sum(each.occupancy for each in some)).append(node)
    return [
        Node(
            max(min(each.duty for each in some), sum(each.took for each in some)),
            tuple(share for each in some for share in each.shares),
        )
        for some in found
        if some
    ]
