"""Which nodes, and how many GPUs of them, can be planned with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ganger.core.books.ledger import Ledger
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    NodeCommand,
    NodeDown,
    NodeUp,
    Withheld,
)


class Usable:
    """Nodes that are down or drained, and GPUs that are used outside Ganger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.down: set[int] = set()
        self.drained: set[int] = set()
        self.withheld: dict[int, int] = {}
        """By node: how many of its GPUs are used outside Ganger."""
        self.owing: set[int] = set()
        """Nodes of which our jobs hold GPUs that are withheld."""

    def put_back(
        self,
        down: Iterable[int],
        drained: Iterable[int],
        withheld: Mapping[int, tuple[int, int]],
        going: Mapping[int, int],
    ) -> None:
        """What a snapshot says; `withheld` by node: GPUs, and the devices that are out of the
        books; `going`: those of `down` that will be gone, and when."""
        self._ledger.going.update(going)
        self.down.update(down)
        self.drained.update(drained)
        for node in self.down | self.drained:
            self._ledger.switch(node, up=False)
        for node, (gpus, devices) in withheld.items():
            self.withheld[node] = gpus
            self._ledger.count_out(node, devices)
            if devices.bit_count() < gpus:  # the rest is taken at the next step, as it would be
                self.owing.add(node)

    def barred(self, node: int) -> str:
        """Why nothing starts on a node: `down`, `drained`, or ""."""
        return "down" if node in self.down else "drained" if node in self.drained else ""

    # Each handler returns the kinds of change it made (bits of `events`).

    def node_down(self, event: NodeDown) -> int:
        """A node failed, or will be gone."""
        if event.by:
            self._ledger.going[event.node] = event.by
        else:
            self._ledger.going.pop(event.node, None)
        return self._bar(event.node, self.down, True)

    def node_up(self, event: NodeUp) -> int:
        """A node is there again."""
        self._ledger.going.pop(event.node, None)
        return self._bar(event.node, self.down, False)

    def node_command(self, event: NodeCommand) -> int:
        """A person drains a node, or lifts that."""
        return self._bar(event.node, self.drained, event.verb == "drain") | COMMANDED

    def withhold(self, event: Withheld) -> int:
        """GPUs of a node are used outside Ganger."""
        node, before = event.node, self.withheld.get(event.node, 0)
        self.withheld[node] = event.gpus
        if not event.gpus:
            del self.withheld[node]
        self._settle(node)
        return CAPACITY_LOST if event.gpus > before else CAPACITY_FREED

    def settle(self) -> None:
        """Take out of the books what our jobs have left by now."""
        for node in sorted(self.owing):
            self._settle(node)

    def _settle(self, node: int) -> None:
        owed = self._ledger.withhold(node, self.withheld.get(node, 0))
        (self.owing.add if owed else self.owing.discard)(node)

    def _bar(self, node: int, barred: set[int], bar: bool) -> int:
        """Bar a node for one reason, or lift that; it is used while no reason stands."""
        (barred.add if bar else barred.discard)(node)
        self._ledger.switch(node, up=node not in self.down and node not in self.drained)
        back = max(self._ledger.full[node].bit_count(), 1)  # CPUs and memory, if no GPU
        self._ledger.cell_of[node].returned += 0 if bar else back
        return CAPACITY_LOST if bar else CAPACITY_FREED
