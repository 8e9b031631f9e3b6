"""What the installed BentoML does in the states that come on standard input; JSON on standard
output. It runs in BentoML's environment, and needs nothing of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from bentoml._internal.marshal import dispatcher as real
from bentoml._internal.utils import alg

logging.disable()


class Looked(BaseException):
    """The dispatcher would sleep until its next look, or has sent a batch."""


class Queued:
    """Stands for the condition on which the dispatcher waits for requests: it never waits here."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def wait_for(self, predicate: Any) -> None:
        if not predicate():
            raise Looked


async def look(dispatcher: Any) -> None:
    """Once through the dispatcher's own loop."""
    with contextlib.suppress(Looked):
        await dispatcher.controller()


async def decided(state: dict[str, Any]) -> list[int]:
    """How many requests are given up, and how many are sent: at the last look while a batch runs,
    and at the one right after it. The real loop runs; only clock, sleep and batch are stood for."""
    sent: list[int] = []
    dropped: list[int] = []

    async def asleep(seconds: float) -> None:
        raise Looked

    async def trained(*_: int) -> None: ...

    def outbound(jobs: tuple[Any, ...]) -> None:
        sent.append(len(jobs))
        raise Looked

    made = real.CorkDispatcher(
        state["latency_ms"], state["size"], fallback=lambda: None, get_batch_size=lambda _: 1
    )
    made.train_optimizer, made.outbound_call = trained, outbound
    made.__dict__["_wake_event"] = Queued()
    optimizer = made.optimizer
    optimizer.o_a, optimizer.o_b, optimizer.wait = state["each"], state["base"], state["wait"]
    real.time = SimpleNamespace(time=lambda: state["now"])
    real.asyncio = SimpleNamespace(
        sleep=asleep, get_event_loop=asyncio.get_event_loop, Future=asyncio.Future
    )
    future = SimpleNamespace(cancel=lambda: dropped.append(1))
    made._queue.extend(real.Job(at, None, future) for at in state["came"])
    made._sema.acquire()
    await look(made)
    made._sema.release()
    await look(made)
    return [len(dropped), sum(sent)]


def fitted(state: dict[str, Any]) -> list[float]:
    """The line, and the mean wait, after batches: (when it ended, requests, waited, took)."""
    clock = SimpleNamespace(time=lambda: now)
    now = 0.0
    alg.time = clock
    optimizer = real.Optimizer(state["latency_ms"] / 1000)
    for at, requests, waited, took in state["batches"]:
        now = at
        optimizer.log_outbound(requests, waited, took)
    return [float(optimizer.o_a), float(optimizer.o_b), float(optimizer.wait)]


async def main() -> None:
    asked = json.load(sys.stdin)
    json.dump(
        {
            "version": version("bentoml"),
            "decided": [await decided(state) for state in asked["decide"]],
            "fitted": [fitted(state) for state in asked["fit"]],
        },
        sys.stdout,
    )


asyncio.run(main())
