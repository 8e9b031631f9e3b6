"""What lies in the memory of devices: models are loaded, evicted, and lost with their device."""

from __future__ import annotations

from ganger.core.errors import InvariantError
from ganger.core.serving.verbs import OK, Batch, Evict, Load
from ganger.core.serving.world import Lane, World


class Residence:
    """The stores of a world, as orders and ends change them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reserve(self, order: Load) -> None:
        """A load begins: its room is taken. Raises InvariantError where it cannot be."""
        store = self._world.stores[self._world.lanes[order.lane].store]
        size = self._world.models[order.model].bytes
        if order.model in store.resident or order.model in store.loading:
            raise InvariantError(f"model {order.model} is in store {store.number} already")
        if store.used + size > store.capacity:
            raise InvariantError(f"model {order.model} does not fit in store {store.number}")
        store.used += size
        store.loading.add(order.model)

    def loaded(self, order: Load, outcome: str) -> None:
        """A load is over; one that failed gives its room back."""
        store = self._world.stores[self._world.lanes[order.lane].store]
        store.loading.discard(order.model)
        if outcome == OK:
            store.resident[order.model] = self._world.now
        else:
            store.used -= self._world.models[order.model].bytes

    def evict(self, order: Evict) -> None:
        """A model is gone. Raises InvariantError for one that runs, or that is not there."""
        store = self._world.stores[order.store]
        for lane in self._world.lanes:
            if lane.store != order.store or lane.copies:
                continue
            for batch in (lane.running, *lane.queued):
                if isinstance(batch, Batch) and any(p.model == order.model for p in batch.parts):
                    raise InvariantError(f"model {order.model} is evicted while it runs")
        if store.resident.pop(order.model, None) is None:
            raise InvariantError(f"model {order.model} is not in store {order.store}")
        store.used -= self._world.models[order.model].bytes

    def lose(self, lane: Lane) -> None:
        """The device of this lane has failed: nothing lies in its memory any more."""
        if lane.store >= 0 and not lane.copies:
            store = self._world.stores[lane.store]
            for model in store.resident:
                store.used -= self._world.models[model].bytes
            store.resident.clear()
