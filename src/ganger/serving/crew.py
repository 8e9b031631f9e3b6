"""Lanes as threads: each runs one batch, or loads one model, at a time, on cores of its own.

Threads, not processes: onnxruntime lets go of the interpreter while it computes, tensors are
handed over without a copy, and lanes that compute on one core can share what a model needs. What
kills a thread kills all of them; a process for each replica is what guards against that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as changed

from ganger.core.errors import BadInput
from ganger.core.serving.world import Lane
from ganger.serving.runtime import (
    Failure,
    Feeds,
    Given,
    Signature,
    open_session,
    run_batch,
    signature_of,
    warm_up,
)

Work = Callable[[], Any]
Deliver = Callable[[Callable[[Any], None], Any], None]
"""Have a function called with a result, by the thread that drives the plane."""


class Servable(Struct, frozen=True):
    """A model that is served: its file, and what it takes and gives."""

    path: Path
    signature: Signature


def inspect(name: str, path: Path | None, where: str) -> Servable:
    """Look at a model's file. Raises BadInput."""
    if path is None:
        raise BadInput(
            "it names no file to serve", where=where, mend='add onnx = "FILE.onnx" to the model'
        )
    if not path.is_file():
        raise BadInput(
            f"there is no file {path.name}", where=f"{where}: onnx", mend="check the path"
        )
    return Servable(path, signature_of(open_session(path, 1), name, where))


def joint(name: str, variants: Sequence[Servable], where: str) -> Servable:
    """A family as a model: what any of its variants takes and gives. Raises BadInput where they
    differ in that, so that a request could be for one of them only."""
    first = variants[0].signature
    for each in variants[1:]:
        signature = each.signature
        for kind, own, other in (
            ("inputs", first.inputs, signature.inputs),
            ("outputs", first.outputs, signature.outputs),
        ):
            if own != other:
                raise BadInput(
                    f"models {first.name!r} and {signature.name!r} have other {kind}",
                    where=where,
                    mend="give the models of a family the same names, types and shapes",
                )
    batched = all(each.signature.batched for each in variants)
    return Servable(variants[0].path, changed(first, name=name, batched=batched))


class Crew:
    """A thread for each lane. `threads`: cores of each; `cores`: of the machine, which devices take
    in turn. Sessions are kept by store, or by device where memory is not watched, or by none of
    them where each computes on one core: then lanes share them."""

    def __init__(
        self,
        models: Sequence[Servable],
        lanes: Sequence[Lane],
        cores: Sequence[int],
        threads: int,
        deliver: Deliver,
    ) -> None:
        self._models, self._threads, self._deliver = models, threads, deliver
        self._sessions: dict[tuple[int, int], Any] = {}
        self._keys = [
            lane.store if lane.store >= 0 else lane.device if threads > 1 else -1 for lane in lanes
        ]
        self._orders: list[SimpleQueue[tuple[Work, Callable[[Any], None]] | None]] = []
        self._threads_of_lanes: list[threading.Thread] = []
        for lane in lanes:
            first = lane.device * threads
            own = {cores[(first + at) % len(cores)] for at in range(threads)}
            orders: SimpleQueue[tuple[Work, Callable[[Any], None]] | None] = SimpleQueue()
            thread = threading.Thread(
                target=self._live, args=(orders, own), name=f"lane {lane.number}", daemon=True
            )
            self._orders.append(orders)
            self._threads_of_lanes.append(thread)
            thread.start()

    def _live(
        self, orders: SimpleQueue[tuple[Work, Callable[[Any], None]] | None], cores: set[int]
    ) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)  # of this thread, and of those that sessions begin in it
        while (order := orders.get()) is not None:
            work, done = order
            try:
                result = work()
            except Exception as error:
                result = Failure(str(error))
            self._deliver(done, result)

    def run(
        self, lane: int, model: int, jobs: Sequence[Feeds], done: Callable[[list[Given]], None]
    ) -> None:
        """Run requests for a model on a lane."""
        session = self._sessions.get((self._keys[lane], model))
        signature = self._models[model].signature

        def work() -> list[Given]:
            if session is None:
                return [Failure("its model is not loaded")] * len(jobs)
            return run_batch(session, signature, jobs)

        self._orders[lane].put((work, done))

    def load(self, lane: int, model: int, done: Callable[[Any], None]) -> None:
        """Load a model into the store of a lane; the result is None, or a Failure."""
        servable, key = self._models[model], (self._keys[lane], model)

        def work() -> None:
            session = open_session(servable.path, self._threads)
            warm_up(session, servable.signature)
            self._sessions[key] = session

        self._orders[lane].put((work, done))

    def evict(self, store: int, model: int) -> None:
        """Forget a model in a store."""
        self._sessions.pop((store, model), None)

    def load_all(self) -> None:
        """Load every model wherever memory is not watched, and wait for it. Raises BadInput."""
        firsts = {key: lane for lane, key in reversed(list(enumerate(self._keys)))}
        results: SimpleQueue[Any] = SimpleQueue()
        deliver, self._deliver = self._deliver, lambda done, result: results.put(result)
        for lane in firsts.values():
            for model in range(len(self._models)):
                self.load(lane, model, results.put)
        answers = [results.get() for _ in range(len(firsts) * len(self._models))]
        self._deliver = deliver
        for answer in answers:
            if isinstance(answer, Failure):
                raise BadInput(answer.why)

    def close(self) -> None:
        """End every lane after what it does now."""
        for orders in self._orders:
            orders.put(None)
        for thread in self._threads_of_lanes:
            thread.join(timeout=10)
