"""The Open Inference Protocol v2 over HTTP: from a path to an answer.

docs/serving-live.md lists what is offered. What is wrong with a request is one sentence, as
`{"error": "..."}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from ganger import __version__
from ganger.core.errors import BadInput
from ganger.serving.calls import CallIds, trace_of
from ganger.serving.desk import VERSION, Asked, Desk, Outcome, Refusal
from ganger.serving.figures import CONTENT_TYPE, exposition
from ganger.serving.http.connections import Connection, Request, error
from ganger.serving.http.tensors import decode, encode

_TEXT: Final = "text/plain; charset=utf-8"
_EXTENSIONS: Final = ["binary_tensor_data", "feedback", "model_repository(index)", "statistics"]
_OPEN: Final = ("/v2/health/live", "/v2/health/ready")
"""What is answered without a key: balancers have none."""
Reply = tuple[int, list[bytes], Sequence[tuple[str, str]]]
NO_HEADERS: Final[tuple[tuple[str, str], ...]] = ()


class _Feedback(msgspec.Struct):
    id: str
    label: int | str


_FEEDBACK: Final = msgspec.json.Decoder(_Feedback)


class Endpoints:
    """Answers requests over HTTP."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._figures, self._ids = desk, desk.figures, CallIds()

    def admit(self, path: str, headers: Mapping[bytes, bytes]) -> int | None:
        """The code of the tenant of a request of which the head is there; None where it needs a key
        and has none."""
        tenants = self._desk.tenants
        if not tenants.keyed or path in _OPEN:
            return 0
        tenant = tenants.of(headers.get(b"authorization", b""))
        return None if tenant is None else tenant.code

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or once its model has."""
        request.id = self._ids.of(request.headers.get(b"x-request-id", b""))
        traceparent = request.headers.get(b"traceparent")
        if traceparent is not None:
            request.trace = trace_of(traceparent)
        try:
            parts = [unquote(part) for part in request.path.strip("/").split("/")]
            if parts[:2] == ["v2", "models"] and parts[-1] == "infer" and len(parts) in (4, 6):
                _allow(request, "POST")
                self._infer(connection, request, self._model(parts[2:-1]))
                return
            status, body, kind = self._plain(request, parts)
        except Refusal as refusal:
            self._answer(connection, request, *_refused(refusal))
        except BadInput as bad:
            self._answer(connection, request, HTTPStatus.BAD_REQUEST, [error(str(bad))])
        else:
            self._answer(connection, request, status, [body], kind=kind)

    def _answer(
        self,
        connection: Connection,
        request: Request,
        status: int,
        body: list[bytes],
        headers: Sequence[tuple[str, str]] = NO_HEADERS,
        kind: str = "application/json",
    ) -> None:
        connection.reply(request, status, body, [("x-request-id", request.id), *headers], kind)

    # ------------------------------------------------------------------ what is known

    def _plain(self, request: Request, parts: list[str]) -> tuple[int, bytes, str]:
        """Everything but inference."""
        match parts:
            case ["v2", "repository", "index"]:
                _allow(request, "POST", "GET")
                return _json([self._desk.state(at) for at in range(len(self._desk.models))])
            case ["v2", "repository", "models", _, "load" | "unload"]:
                raise self._desk.no_loading()
            case ["v2", "models", *name, "feedback"] if name:
                _allow(request, "POST")
                return self._feedback(request, self._model(name))
        _allow(request, "GET", "HEAD")
        match parts:
            case ["v2", "health", "live"]:
                return HTTPStatus.OK, b"", _TEXT
            case ["v2", "health", "ready"]:
                return self._whether(self._desk.ready)
            case ["v2"]:
                return _json({"name": "ganger", "version": __version__, "extensions": _EXTENSIONS})
            case ["metrics"]:
                return HTTPStatus.OK, exposition(self._figures, self._desk.plane), CONTENT_TYPE
            case ["v2", "models", "stats"]:
                return self._statistics(range(len(self._desk.models)))
            case ["v2", "models", *name, "stats"] if name:
                return self._statistics([self._model(name)])
            case ["v2", "models", *name, "ready"] if name:
                return self._whether(self._desk.is_ready(self._model(name)))
            case ["v2", "models", *name] if name:
                return _json(self._described(self._model(name)))
        raise Refusal(f"there is nothing at {request.path[:200]!r}", HTTPStatus.NOT_FOUND)

    def _whether(self, fine: bool) -> tuple[int, bytes, str]:
        return (HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE), b"", _TEXT

    def _model(self, parts: Sequence[str]) -> int:
        """The code of what is named: M, or M/versions/1."""
        name, *version = parts
        if version and version[:-1] != ["versions"]:
            version = ["/".join(version)]
        return self._desk.code(name, version[-1] if version else "")

    def _described(self, model: int) -> dict[str, Any]:
        signature = self._desk.signature(model)
        return {
            "name": signature.name,
            "versions": [VERSION],
            "platform": self._desk.platform(model),
            **{
                kind: [
                    {"name": each.name, "datatype": each.datatype, "shape": each.shape}
                    for each in group
                ]
                for kind, group in (("inputs", signature.inputs), ("outputs", signature.outputs))
            },
        }

    def _feedback(self, request: Request, model: int) -> tuple[int, bytes, str]:
        """A client says what the right answer to a request is."""
        try:
            given = _FEEDBACK.decode(request.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise BadInput(
                f"it is not valid: {error}", where="body", mend='give {"id": ID, "label": CLASS}'
            ) from None
        tenant = self._desk.tenants.all[request.tenant]
        right = self._desk.feedback(tenant, model, given.id, given.label)
        return _json(
            {"model_name": self._desk.signature(model).name, "id": given.id, "right": right}
        )

    def _statistics(self, models: Sequence[int]) -> tuple[int, bytes, str]:
        return _json({"model_stats": [self._figures.statistics(model) for model in models]})

    # ------------------------------------------------------------------ inference

    def _infer(self, connection: Connection, request: Request, model: int) -> None:
        desk = self._desk
        tenant = desk.tenants.all[request.tenant]
        encoding = request.headers.get(b"content-encoding", b"identity").lower()
        if encoding != b"identity":
            raise Refusal("compressed bodies are not read", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        desk.admit(tenant)
        head = request.headers.get(b"inference-header-content-length", b"")
        given = decode(request.body, _head_bytes(head), desk.signature(model))

        def digest() -> bytes:
            return blake2b(request.body, key=head[:64], digest_size=16).digest()

        asked = desk.asked(model, given, tenant, digest)

        def over(outcome: Outcome) -> None:
            request.gone = None
            request.note = outcome.note
            self._answer(connection, request, *self._reply(asked, outcome))

        request.gone = desk.take(asked, over)

    def _reply(self, asked: Asked, outcome: Outcome) -> Reply:
        """An outcome as HTTP has it."""
        if outcome.refusal is not None or outcome.outputs is None:
            return _refused(outcome.refusal or Refusal("nothing", HTTPStatus.INTERNAL_SERVER_ERROR))
        signature = self._desk.signature(asked.model)
        try:
            body, length = encode(signature, asked.given, outcome.outputs, outcome.parameters)
        except (TypeError, ValueError, UnicodeError):
            why = f"an output of model {signature.name!r} cannot be written"
            return HTTPStatus.INTERNAL_SERVER_ERROR, [error(why)], NO_HEADERS
        if length is None:
            return HTTPStatus.OK, body, NO_HEADERS
        return HTTPStatus.OK, body, [("inference-header-content-length", str(length))]


def _refused(refusal: Refusal) -> Reply:
    headers = [("retry-after", str(refusal.retry))] if refusal.retry else []
    if refusal.reason:
        headers.append(("ganger-reason", refusal.reason))
    return refusal.status, [error(refusal.why)], headers


def _allow(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Refusal(f"use {' or '.join(methods)} here", HTTPStatus.METHOD_NOT_ALLOWED)


def _head_bytes(given: bytes) -> int | None:
    """Of JSON in the body, where binary data follow. Raises BadInput."""
    if not given:
        return None
    if not given.isdigit() or len(given) > 12:
        raise BadInput(
            "it is not a number",
            where="Inference-Header-Content-Length",
            mend="give the bytes of JSON in front",
        )
    return int(given)


def _json(value: Any) -> tuple[int, bytes, str]:
    return HTTPStatus.OK, msgspec.json.encode(value), "application/json"
