"""The desk at which inferences are asked for, whatever protocol they came by: it checks them, hands
them to the plane, and answers each client once.

A request with an `id` may be asked again: the same tenant, model, id and bytes get the answer that
the first was given, or wait for it together with the first, and nothing is executed twice. What is
wrong, late or dropped is asked anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from math import ceil
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Truth
from ganger.core.units import NEVER, SECOND
from ganger.serving.crew import Servable
from ganger.serving.figures import Figures
from ganger.serving.kept import Case, Kept, Key, Waiting
from ganger.serving.plane import LivePlane
from ganger.serving.runtime import Array, Feeds, Signature
from ganger.serving.tenants import Tenant, Tenants
from ganger.serving.tickets import UNKNOWN, Ticket
from ganger.serving.truths import Truths

VERSION: Final = "1"
LATE: Final = "the deadline has passed"
_RETRY_SECONDS: Final = 1


class Refusal(Exception):  # noqa: N818 - it is what is answered
    """Something that is not answered as asked. `status`: as of HTTP; `reason`: a word for programs;
    `retry`: seconds after which it may be asked again, 0 where that does not help."""

    def __init__(self, why: str, status: int, reason: str = "", retry: int = 0) -> None:
        super().__init__(why)
        self.why, self.status, self.reason, self.retry = why, status, reason, retry


class Inference(NamedTuple):
    """What a client sent. `outputs`: those that are wanted, by their place, and whether as binary
    data."""

    id: str
    parameters: dict[str, Any]
    feeds: Feeds
    outputs: list[tuple[int, bool]]


class Outcome(Struct, frozen=True):
    """What became of an inference: `outputs`, or a `refusal`. `note`: how it ran; `parameters`: of
    the answer, where a recipe chose the model."""

    outputs: Sequence[Array] | None = None
    refusal: Refusal | None = None
    note: str = ""
    parameters: dict[str, str | int] = {}


class Asked(Struct, frozen=True):
    """An inference that is asked for. `within`: microseconds that it has; NEVER: any. `digest`: of
    all that the client sent, where it may ask again."""

    model: int
    given: Inference
    items: int
    within: int
    tenant: Tenant
    digest: bytes = b""


class Terms(Struct, frozen=True):
    """What holds for all. `slo`: microseconds until the deadline that the recipe sees of requests
    that state none; their answers are given however late. `longest`: microseconds after which any
    request is given up. `kept`: bytes of answers that are kept for clients that ask again."""

    slo: int = NEVER
    longest: int = 60 * SECOND
    kept: int = 32 << 20


class Desk:
    """Takes inferences. It belongs to the thread of its event loop."""

    def __init__(
        self,
        plane: LivePlane,
        models: Sequence[Servable],
        loop: asyncio.AbstractEventLoop,
        tenants: Tenants,
        terms: Terms,
        figures: Figures,
    ) -> None:
        self.figures = figures
        self.plane, self.models, self.tenants = plane, models, tenants
        self._loop, self._terms = loop, terms
        self._codes = {each.signature.name: at for at, each in enumerate(models)}
        world = plane.world
        largest = [
            max((each.largest for each in known.latencies.values()), default=1)
            for known in world.models
        ]
        self._variants = world.variants
        self._largest = [min(largest[each] for each in some) for some in world.variants if some]
        self._kept = Kept(terms.kept, loop.time)
        self._truths = Truths(loop.time)
        self.ready = True

    # ------------------------------------------------------------------ models

    def code(self, name: str, version: str = "") -> int:
        """The code of a model. Raises Refusal where there is none."""
        code = self._codes.get(name)
        if code is None:
            raise Refusal(f"there is no model {name[:200]!r}", HTTPStatus.NOT_FOUND)
        if version and version != VERSION:
            raise Refusal(
                f"model {name!r} has version {VERSION}, nothing else", HTTPStatus.NOT_FOUND
            )
        return code

    def signature(self, model: int) -> Signature:
        """What a model takes and gives."""
        return self.models[model].signature

    def is_ready(self, model: int) -> bool:
        """Whether a request would be taken now: a recipe that loads models loads it for one."""
        known = self.plane.world.models
        return self.ready and any(known[each].latencies for each in self._variants[model])

    def state(self, model: int) -> dict[str, str]:
        """A model as an index has it."""
        state = "READY" if self.is_ready(model) else "UNAVAILABLE"
        return {"name": self.signature(model).name, "version": VERSION, "state": state,
                "reason": ""}  # fmt: skip

    def platform(self, model: int) -> str:
        """What runs a model, or that it is a family."""
        return "onnxruntime_onnx" if model < len(self.plane.world.models) else "ganger_family"

    def no_loading(self) -> Refusal:
        """What is answered to clients that want a model loaded or unloaded."""
        return Refusal(
            "models are not loaded or unloaded by request: the recipe decides",
            HTTPStatus.NOT_IMPLEMENTED,
        )

    # ------------------------------------------------------------------ inferences

    def admit(self, tenant: Tenant) -> None:
        """Count an inference of a tenant, before it is read. Raises Refusal for one too many."""
        wait = tenant.take(self._loop.time())
        if wait:
            raise Refusal(
                f"tenant {tenant.name!r} asks more than {tenant.rate:g} times a second",
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate",
                ceil(wait),
            )
        limit = tenant.limit or (self.plane.limit // 2 if len(self.tenants.all) > 1 else 0)
        if limit and tenant.under_way >= limit:
            raise Refusal(
                f"{tenant.under_way} requests of tenant {tenant.name!r} are under way",
                HTTPStatus.TOO_MANY_REQUESTS,
                "open",
                _RETRY_SECONDS,
            )

    def asked(
        self,
        model: int,
        given: Inference,
        tenant: Tenant,
        digest: Callable[[], bytes],
        within: int = NEVER,
    ) -> Asked:
        """What was read, checked. `digest`: of what the client sent; `within`: microseconds that
        the protocol grants, whatever the request states. Raises BadInput."""
        signature = self.signature(model)
        items = signature.items(given.feeds)
        if items > self._largest[model] and not self.plane.router.can.divides:
            raise BadInput(
                f"it brings {items} items, and model {signature.name!r} runs at most"
                f" {self._largest[model]} together",
                where="inputs",
                mend="send fewer, or measure larger batches",
            )
        return Asked(
            model,
            given,
            items,
            min(_within(given.parameters), within),
            tenant,
            digest() if given.id and self._terms.kept else b"",
        )

    def take(self, asked: Asked, over: Callable[[Outcome], None]) -> Callable[[], None]:
        """Have an inference made: `over` hears its outcome, once, perhaps before this returns. The
        result is called where the client goes away before."""
        key = (asked.tenant.code, asked.model, asked.given.id)
        case = self._kept.of(key, asked.digest) if asked.digest else None
        if case is not None:
            if case.outcome is not None:
                over(case.outcome)
                return _nothing
            return self._wait(case, asked, over)
        plane = self.plane
        within = asked.within if asked.within < NEVER else self._terms.slo
        case = Case()
        ticket = Ticket(
            asked.model,
            asked.given.feeds,
            asked.items,
            min(plane.now() + within, NEVER),
            asked.tenant.code,
            partial(self._over, asked, case),
        )
        if not self.ready or not plane.submit(ticket):
            why = "too many requests are under way" if self.ready else "the server is ending"
            over(Outcome(refusal=_dropped(why)))
            return _nothing
        case.ticket = ticket
        asked.tenant.under_way += 1
        if asked.digest:
            self._kept.begin(key, asked.digest, case)
        return self._wait(case, asked, over)

    def _wait(
        self, case: Case, asked: Asked, over: Callable[[Outcome], None]
    ) -> Callable[[], None]:
        """A client waits for the outcome of a case, as long as it has time."""
        waiting = Waiting(over)
        case.waiting.append(waiting)
        if asked.within < NEVER:
            waiting.timer = self._loop.call_later(
                asked.within / SECOND, self._late, case, asked, waiting
            )
        return partial(self._leave, case, asked, waiting)

    def _late(self, case: Case, asked: Asked, waiting: Waiting) -> None:
        """The time that a client has is over."""
        if waiting not in case.waiting:
            return
        if len(case.waiting) == 1 and case.ticket is not None:
            case.ticket.reason = LATE
        self._leave(case, asked, waiting)
        waiting.over(Outcome(refusal=_late()))

    def _leave(self, case: Case, asked: Asked, waiting: Waiting) -> None:
        """A client waits no more; after the last one the request is given up."""
        if waiting.timer is not None:
            waiting.timer.cancel()
        if waiting not in case.waiting:
            return
        case.waiting.remove(waiting)
        if not case.waiting and case.ticket is not None:
            self.plane.give_up(case.ticket)
            self._end(case, asked)

    def _end(self, case: Case, asked: Asked) -> None:
        """A request is no longer under way."""
        case.ticket = None
        asked.tenant.under_way -= 1
        if asked.digest:
            self._kept.end((asked.tenant.code, asked.model, asked.given.id), case)

    def _over(self, asked: Asked, case: Case, ticket: Ticket) -> None:
        """The plane has done with a request."""
        outcome = self._outcome(ticket)
        if outcome.outputs is not None:
            case.outcome = outcome
            if asked.given.id:
                self._remember((asked.tenant.code, asked.model, asked.given.id), ticket)
        self._end(case, asked)
        clients, case.waiting = case.waiting, []
        for waiting in clients:
            if waiting.timer is not None:
                waiting.timer.cancel()
            waiting.over(outcome)

    def sweep(self) -> None:
        """Give up what has been under way for too long, and forget answers that are old."""
        for ticket in self.plane.overdue(self.plane.now() - self._terms.longest):
            ticket.reason = LATE
            self.plane.give_up(ticket)
            ticket.over(ticket)
        self._kept.sweep()
        self._truths.sweep()

    # ------------------------------------------------------------------ what was right

    def _remember(self, key: Key, ticket: Ticket) -> None:
        """Keep what was answered, until the truth comes."""
        said = ticket.said
        if not said and ticket.outputs is not None:
            said = {ticket.model: self.plane.classes.of(list(ticket.outputs))}
        by = ticket.by if ticket.by in said else next(iter(said), UNKNOWN)
        class_ = ticket.class_ if ticket.class_ != UNKNOWN else said.get(by, UNKNOWN)
        if class_ != UNKNOWN:
            self._truths.keep(key, said, class_)

    def feedback(self, tenant: Tenant, model: int, id_: str, label: int | str) -> bool:
        """What was right of a request that was answered under this id: whether the answer was. The
        recipe learns of it. Raises Refusal where nothing is known of such an answer, BadInput for
        a label that the model cannot give."""
        signature = self.signature(model)
        words = signature.outputs[0].datatype == "BYTES"
        if isinstance(label, str) != words or label == UNKNOWN:
            raise BadInput(
                f"it is {label!r:.100}",
                where="label",
                mend=f"give a {'word' if words else 'class'}",
            )
        answered = self._truths.take((tenant.code, model, id_))
        if answered is None:
            raise Refusal(
                f"no answer of model {signature.name!r} without a label is known under id"
                f" {id_[:100]!r}",
                HTTPStatus.NOT_FOUND,
            )
        right = self.plane.classes.label(label)
        self.figures.labelled(model, answered.said, right, right == answered.class_)
        self.plane.hear(Truth(model, tenant.code, answered.said, right))
        return right == answered.class_

    # ------------------------------------------------------------------ outcomes

    def _outcome(self, ticket: Ticket) -> Outcome:
        """What a ticket that is over is answered with."""
        name, note = self.signature(ticket.model).name, ""
        if ticket.began >= 0:
            by = f" by={self.signature(ticket.by).name!r}" if ticket.by >= 0 else ""
            note = f"model={name!r}{by} batch={ticket.batch} why={ticket.why!r}"
        if ticket.reason == LATE or (ticket.reason and ticket.ended > ticket.deadline):
            return Outcome(None, _late(), note)
        if ticket.reason:
            return Outcome(None, _dropped(ticket.reason), note)
        if ticket.failure or ticket.outputs is None:
            why = f"model {name!r} failed: {ticket.failure or 'it gave nothing'}"
            return Outcome(None, Refusal(why, HTTPStatus.INTERNAL_SERVER_ERROR), note)
        parameters: dict[str, str | int] = {}
        if ticket.by >= 0:
            parameters["model"] = self.signature(ticket.by).name
            if ticket.class_ != UNKNOWN:
                parameters["class"] = ticket.class_
        return Outcome(ticket.outputs, None, note, parameters)


def _nothing() -> None:
    """There is nothing to give up."""


def _late() -> Refusal:
    return Refusal(LATE, HTTPStatus.GATEWAY_TIMEOUT, "late")


def _dropped(why: str) -> Refusal:
    """A request is dropped: the client may try again."""
    word = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in why.lower()).split())
    return Refusal(why, HTTPStatus.SERVICE_UNAVAILABLE, word, _RETRY_SECONDS)


def _within(parameters: dict[str, Any]) -> int:
    """Microseconds that a request has, by `deadline_ms` or by Triton's `timeout`, which is in
    microseconds; NEVER where it states neither. Raises BadInput."""
    for name, each in (("deadline_ms", 1000), ("timeout", 1)):
        given = parameters.get(name)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1e12:
            raise BadInput(
                f"{name} is {given!r:.100}", where="parameters", mend="give a number above 0"
            )
        return max(round(given * each), 1)
    return NEVER
