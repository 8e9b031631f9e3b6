"""The Open Inference Protocol v2 over HTTP: from a path to an answer.

docs/serving-live.md lists what is offered. What is wrong with a request is one sentence, as
`{"error": "..."}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from itertools import count
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from ganger import __version__
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND
from ganger.serving.crew import Servable
from ganger.serving.figures import CONTENT_TYPE, Figures, exposition
from ganger.serving.http.connections import Connection, Request, error
from ganger.serving.http.tensors import Inference, decode, encode
from ganger.serving.plane import LivePlane, Ticket

_VERSION: Final = "1"
_TEXT: Final = "text/plain; charset=utf-8"
_EXTENSIONS: Final = ["binary_tensor_data", "model_repository(index)", "statistics"]
_RETRY_SECONDS: Final = 1
_ID_MAX: Final = 128
LATE: Final = "the deadline has passed"
Reply = tuple[int, list[bytes], Sequence[tuple[str, str]]]
NO_HEADERS: Final[tuple[tuple[str, str], ...]] = ()


class RequestError(Exception):
    """A request that is answered with an error of its own status."""

    def __init__(self, why: str, status: int = HTTPStatus.NOT_FOUND) -> None:
        super().__init__(why)
        self.status = status


class Endpoints:
    """Answers requests. `slo`: microseconds until the deadline that the recipe sees of requests
    that state none; their answers are given however late. `longest`: microseconds after which any
    request is given up."""

    def __init__(
        self,
        plane: LivePlane,
        models: Sequence[Servable],
        figures: Figures,
        loop: asyncio.AbstractEventLoop,
        slo: int = NEVER,
        longest: int = 60 * SECOND,
    ) -> None:
        self._plane, self._models, self._figures, self._loop = plane, models, figures, loop
        self._slo, self.longest = slo, longest
        self._codes = {each.signature.name: at for at, each in enumerate(models)}
        self._largest = [
            max((each.largest for each in known.latencies.values()), default=1)
            for known in plane.world.models
        ]
        self._prefix, self._numbers = uuid4().hex[:12], count(1)
        self.ready = True

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or once its model has."""
        request.id = self._id_of(request)
        try:
            parts = [unquote(part) for part in request.path.strip("/").split("/")]
            if parts[:2] == ["v2", "models"] and parts[-1] == "infer" and len(parts) in (4, 6):
                _allow(request, "POST")
                self._infer(connection, request, self._model(parts[2:-1]))
                return
            status, body, kind = self._plain(request, parts)
        except RequestError as missing:
            self._answer(connection, request, missing.status, [error(str(missing))])
        except BadInput as bad:
            self._answer(connection, request, HTTPStatus.BAD_REQUEST, [error(str(bad))])
        else:
            self._answer(connection, request, status, [body], kind=kind)

    def _id_of(self, request: Request) -> str:
        given = request.headers.get(b"x-request-id", b"")
        if 0 < len(given) <= _ID_MAX and given.isascii() and given.decode().isprintable():
            return given.decode()
        return f"{self._prefix}-{next(self._numbers)}"

    def _answer(
        self, connection: Connection, request: Request, status: int, body: list[bytes],
        headers: Sequence[tuple[str, str]] = NO_HEADERS, kind: str = "application/json",
    ) -> None:  # fmt: skip
        connection.reply(request, status, body, [("x-request-id", request.id), *headers], kind)

    # ------------------------------------------------------------------ what is known

    def _plain(self, request: Request, parts: list[str]) -> tuple[int, bytes, str]:
        """Everything but inference."""
        match parts:
            case ["v2", "repository", "index"]:
                _allow(request, "POST", "GET")
                return _json([self._state(at) for at in range(len(self._models))])
            case ["v2", "repository", "models", _, "load" | "unload"]:
                raise RequestError(
                    "models are not loaded or unloaded by request: the recipe decides",
                    HTTPStatus.NOT_IMPLEMENTED,
                )
        _allow(request, "GET", "HEAD")
        match parts:
            case ["v2", "health", "live"]:
                return HTTPStatus.OK, b"", _TEXT
            case ["v2", "health", "ready"]:
                return self._whether(self.ready)
            case ["v2"]:
                return _json(
                    {"name": "ganger", "version": __version__, "extensions": _EXTENSIONS}
                )  # fmt: skip
            case ["metrics"]:
                return HTTPStatus.OK, exposition(self._figures, self._plane), CONTENT_TYPE
            case ["v2", "models", "stats"]:
                return self._statistics(range(len(self._models)))
            case ["v2", "models", *name, "stats"] if name:
                return self._statistics([self._model(name)])
            case ["v2", "models", *name, "ready"] if name:
                return self._whether(self._is_ready(self._model(name)))
            case ["v2", "models", *name] if name:
                return _json(self._described(self._model(name)))
        raise RequestError(f"there is nothing at {request.path[:200]!r}")

    def _whether(self, fine: bool) -> tuple[int, bytes, str]:
        return (HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE), b"", _TEXT

    def _model(self, parts: Sequence[str]) -> int:
        """The code of what is named: M, or M/versions/1."""
        name, *version = parts
        code = self._codes.get(name)
        if code is None:
            raise RequestError(f"there is no model {name[:200]!r}")
        if version and version != ["versions", _VERSION]:
            raise RequestError(f"model {name!r} has version {_VERSION}, nothing else")
        return code

    def _is_ready(self, model: int) -> bool:
        """Whether a request would be taken now: a recipe that loads models loads it for one."""
        return self.ready and bool(self._plane.world.models[model].latencies)

    def _state(self, model: int) -> dict[str, str]:
        state = "READY" if self._is_ready(model) else "UNAVAILABLE"
        name = self._models[model].signature.name
        return {"name": name, "version": _VERSION, "state": state, "reason": ""}

    def _described(self, model: int) -> dict[str, Any]:
        signature = self._models[model].signature
        return {
            "name": signature.name,
            "versions": [_VERSION],
            "platform": "onnxruntime_onnx",
            **{
                kind: [
                    {"name": each.name, "datatype": each.datatype, "shape": each.shape}
                    for each in group
                ]
                for kind, group in (("inputs", signature.inputs), ("outputs", signature.outputs))
            },
        }

    def _statistics(self, models: Sequence[int]) -> tuple[int, bytes, str]:
        return _json({"model_stats": [self._figures.statistics(model) for model in models]})

    # ------------------------------------------------------------------ inference

    def _infer(self, connection: Connection, request: Request, model: int) -> None:
        signature = self._models[model].signature
        encoding = request.headers.get(b"content-encoding", b"identity").lower()
        if encoding != b"identity":
            raise RequestError(
                "compressed bodies are not read", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            )  # fmt: skip
        given = decode(request.body, _head_bytes(request), signature)
        items = signature.items(given.feeds)
        if items > self._largest[model] and not self._plane.router.can.divides:
            raise BadInput(
                f"it brings {items} items, and model {signature.name!r} runs at most"
                f" {self._largest[model]} together",
                where="inputs",
                mend="send fewer, or measure larger batches",
            )
        within = _within(given.parameters)
        self._submit(connection, request, Asked(model, given, items, within))

    def _submit(self, connection: Connection, request: Request, asked: Asked) -> None:
        plane, now = self._plane, self._plane.now()
        limit: asyncio.TimerHandle | None = None

        def over(ticket: Ticket) -> None:
            if limit is not None:
                limit.cancel()
            request.gone = None
            status, body, headers = self._outcome(asked, ticket, request)
            self._answer(connection, request, status, body, headers)

        within = asked.within if asked.within < NEVER else self._slo
        ticket = Ticket(
            asked.model, asked.given.feeds, asked.items, min(now + within, NEVER), 0, over
        )
        if not self.ready or not plane.submit(ticket):
            why = "too many requests are under way" if self.ready else "the server is ending"
            self._answer(connection, request, *_dropped(why))
            return

        def gone() -> None:
            if limit is not None:
                limit.cancel()
            plane.give_up(ticket)

        request.gone = gone
        if asked.within < NEVER:
            limit = self._loop.call_later(
                asked.within / SECOND, self._late, connection, request, ticket
            )

    def _late(self, connection: Connection, request: Request, ticket: Ticket) -> None:
        """The time that a request has is over."""
        if ticket.ended >= 0:
            return
        request.gone = None
        ticket.reason = LATE
        self._plane.give_up(ticket)
        status = HTTPStatus.GATEWAY_TIMEOUT
        self._answer(connection, request, status, [error(LATE)], [("ganger-reason", "late")])

    def sweep(self) -> None:
        """Give up what has been under way for too long."""
        for ticket in self._plane.overdue(self._plane.now() - self.longest):
            ticket.reason = LATE
            self._plane.give_up(ticket)
            ticket.over(ticket)

    def _outcome(self, asked: Asked, ticket: Ticket, request: Request) -> Reply:
        """What a ticket that is over is answered with."""
        signature = self._models[ticket.model].signature
        if ticket.began >= 0:
            request.note = f"model={signature.name!r} batch={ticket.batch} why={ticket.why!r}"
        if ticket.reason == LATE or (ticket.reason and ticket.ended > ticket.deadline):
            return HTTPStatus.GATEWAY_TIMEOUT, [error(LATE)], [("ganger-reason", "late")]
        if ticket.reason:
            return _dropped(ticket.reason)
        if ticket.failure or ticket.outputs is None:
            why = f"model {signature.name!r} failed: {ticket.failure or 'it gave nothing'}"
            return HTTPStatus.INTERNAL_SERVER_ERROR, [error(why)], NO_HEADERS
        try:
            body, length = encode(signature, asked.given.id, ticket.outputs, asked.given.outputs)
        except (TypeError, ValueError, UnicodeError):
            why = f"an output of model {signature.name!r} cannot be written"
            return HTTPStatus.INTERNAL_SERVER_ERROR, [error(why)], NO_HEADERS
        if length is None:
            return HTTPStatus.OK, body, NO_HEADERS
        return HTTPStatus.OK, body, [("inference-header-content-length", str(length))]


class Asked(msgspec.Struct, frozen=True):
    """An inference that is asked for. `within`: microseconds that it has; NEVER: any."""

    model: int
    given: Inference
    items: int
    within: int


def _dropped(why: str) -> Reply:
    """A request is dropped: the client may try again."""
    code = "-".join("".join(c if c.isalnum() else " " for c in why.lower()).split())
    headers = [("retry-after", str(_RETRY_SECONDS)), ("ganger-reason", code)]
    return HTTPStatus.SERVICE_UNAVAILABLE, [error(why)], headers


def _allow(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise RequestError(f"use {' or '.join(methods)} here", HTTPStatus.METHOD_NOT_ALLOWED)


def _head_bytes(request: Request) -> int | None:
    """Of JSON in the body, where binary data follow. Raises BadInput."""
    given = request.headers.get(b"inference-header-content-length")
    if given is None:
        return None
    if not given.isdigit() or len(given) > 12:
        raise BadInput(
            "it is not a number",
            where="Inference-Header-Content-Length",
            mend="give the bytes of JSON in front",
        )
    return int(given)


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


def _json(value: Any) -> tuple[int, bytes, str]:
    return HTTPStatus.OK, msgspec.json.encode(value), "application/json"
