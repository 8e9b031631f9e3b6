"""The service over gRPC, in the event loop of the server: the same desk, the same keys and limits.

A deadline of gRPC is the request's, where that states none that is shorter. A client that cancels
gives its place up. What is wrong is one sentence, as the details of the status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import blake2b
from http import HTTPStatus
from math import ceil
from time import monotonic
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ganger import __version__
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND
from ganger.serving.calls import CallIds, trace_of
from ganger.serving.desk import VERSION, Desk, Outcome, Refusal
from ganger.serving.grpc.messages import CLASSES, SERVICE, read, write
from ganger.serving.http.connections import Request
from ganger.serving.http.tls import Certificate
from ganger.serving.tenants import Tenant

try:
    import grpc
    from google.protobuf.message import DecodeError
except ImportError:
    raise BadInput("gRPC needs grpcio", mend="pip install 'ganger[grpc]'") from None

log = logging.getLogger("ganger.serving")
Context: TypeAlias = Any
"""A `grpc.aio.ServicerContext`."""
EXTENSIONS: Final = ["model_repository(index)"]
_OPEN: Final = ("ServerLive", "ServerReady")
_KEY: Final = "a key is needed, as the metadata authorization: Bearer KEY"
_CODES: Final = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
    HTTPStatus.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""As what statuses of HTTP are said here."""


class Address(Struct, frozen=True):
    """Where it listens. `body`: bytes of a message; `calls`: at once."""

    host: str
    port: int
    body: int
    calls: int


def _authorization(metadata: Sequence[tuple[str, Any]]) -> bytes:
    """The only authorization that a call states; empty where there is none, or more than one."""
    values = [value for name, value in metadata if name == "authorization"]
    return values[0].encode() if len(values) == 1 and isinstance(values[0], str) else b""


class _Keys(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Turns calls without a key away before their message is read."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

        async def refuse(messages: AsyncIterator[bytes], context: Context) -> bytes:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, _KEY)
            return b""

        self._refusing = grpc.stream_unary_rpc_method_handler(refuse)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The handler of a call."""
        tenants = self._desk.tenants
        method = details.method.rpartition("/")[2]
        if tenants.keyed and method not in _OPEN:
            authorization = _authorization(details.invocation_metadata)
            if tenants.of(authorization) is None:
                return self._refusing
        return await continuation(details)


class GrpcService:
    """Answers calls. `answered` hears of each: what it was, its status as of HTTP, its seconds."""

    def __init__(
        self, desk: Desk, answered: Callable[[Request | None, int, float], None], ids: CallIds
    ) -> None:
        self._desk, self._answered, self._ids = desk, answered, ids
        self._loop = asyncio.get_running_loop()
        self._server: Any = None

    async def start(self, address: Address, certificate: Certificate | None = None) -> int:
        """Listen: the port. Raises BadInput."""
        size = [(f"grpc.max_{way}_message_length", address.body) for way in ("receive", "send")]
        options = [*size, ("grpc.so_reuseport", 0), ("grpc.max_metadata_size", 32 << 10)]
        self._server = grpc.aio.server(
            interceptors=[_Keys(self._desk)],
            options=options,
            maximum_concurrent_rpcs=address.calls,
        )
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._handler(name, answer))
            for name, answer in self._methods().items()
        }
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, handlers)]
        )
        host = f"[{address.host}]" if ":" in address.host else address.host
        place = f"{host}:{address.port}"
        try:
            if certificate is None:
                port = self._server.add_insecure_port(place)
            else:
                port = self._server.add_secure_port(place, _credentials(certificate))
        except RuntimeError:
            raise BadInput(
                f"{place} cannot be listened at", where="--grpc-port", mend="use another port"
            ) from None
        await self._server.start()
        return int(port)

    async def stop(self, seconds: float) -> None:
        """Take nothing new, and end after what is under way, or so many seconds."""
        await self._server.stop(seconds)

    # ------------------------------------------------------------------ calls

    def _handler(
        self, name: str, answer: Callable[[Any, Tenant, Context, Request], Awaitable[Any]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        kind = CLASSES[f"{name}Request"]

        async def handle(data: bytes, context: Context) -> bytes:
            call = self._call(name, data, context)
            status, refusal = int(HTTPStatus.OK), None
            try:
                tenant = self._desk.tenants.all[call.tenant]
                response: bytes = (
                    await answer(kind.FromString(data), tenant, context, call)
                ).SerializeToString()
            except DecodeError:
                refusal = Refusal("the message is not valid", HTTPStatus.BAD_REQUEST)
            except BadInput as bad:
                refusal = Refusal(str(bad), HTTPStatus.BAD_REQUEST)
            except Refusal as reason:
                refusal = reason
            except asyncio.CancelledError:
                status = 499  # as servers of HTTP log a client that is gone
                raise
            except Exception:
                log.exception("%s", call.path)
                refusal = Refusal("a fault inside", HTTPStatus.INTERNAL_SERVER_ERROR)
            finally:
                status = status if refusal is None else refusal.status
                self._answered(call, status, monotonic() - call.began)
            context.set_trailing_metadata(_metadata(call, refusal))
            if refusal is not None:
                code = _CODES.get(HTTPStatus(refusal.status), grpc.StatusCode.UNKNOWN)
                await context.abort(code, refusal.why)
            return response

        return handle

    def _call(self, name: str, data: bytes, context: Context) -> Request:
        """A call, as logs have it."""
        metadata = context.invocation_metadata() or ()
        plain = {key: value.encode() for key, value in metadata if isinstance(value, str)}
        call = Request("GRPC", f"/{SERVICE}/{name}", {}, data, monotonic(), keeps=True)
        call.id = self._ids.of(plain.get("x-request-id", b""))
        if "traceparent" in plain:
            call.trace = trace_of(plain["traceparent"])
        tenants = self._desk.tenants
        if tenants.keyed and name not in _OPEN:
            tenant = tenants.of(_authorization(metadata))
            call.tenant = 0 if tenant is None else tenant.code
        return call

    def _methods(self) -> dict[str, Callable[[Any, Tenant, Context, Request], Awaitable[Any]]]:
        return {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._load,
        }

    async def _live(self, given: Any, tenant: Tenant, context: Context, call: Request) -> Any:
        return CLASSES["ServerLiveResponse"](live=True)

    async def _ready(self, given: Any, tenant: Tenant, context: Context, call: Request) -> Any:
        return CLASSES["ServerReadyResponse"](ready=self._desk.ready)

    async def _model_ready(
        self, given: Any, tenant: Tenant, context: Context, call: Request
    ) -> Any:
        code = self._desk.code(given.name, given.version)
        return CLASSES["ModelReadyResponse"](ready=self._desk.is_ready(code))

    async def _server_metadata(
        self, given: Any, tenant: Tenant, context: Context, call: Request
    ) -> Any:
        return CLASSES["ServerMetadataResponse"](
            name="ganger", version=__version__, extensions=EXTENSIONS
        )

    async def _model_metadata(
        self, given: Any, tenant: Tenant, context: Context, call: Request
    ) -> Any:
        code = self._desk.code(given.name, given.version)
        signature = self._desk.signature(code)
        tensors = [
            [{"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in group]
            for group in (signature.inputs, signature.outputs)
        ]
        return CLASSES["ModelMetadataResponse"](
            name=signature.name,
            versions=[VERSION],
            platform=self._desk.platform(code),
            inputs=tensors[0],
            outputs=tensors[1],
        )

    async def _index(self, given: Any, tenant: Tenant, context: Context, call: Request) -> Any:
        states = [self._desk.state(code) for code in range(len(self._desk.models))]
        shown = [each for each in states if each["state"] == "READY" or not given.ready]
        return CLASSES["RepositoryIndexResponse"](models=shown)

    async def _load(self, given: Any, tenant: Tenant, context: Context, call: Request) -> Any:
        raise self._desk.no_loading()

    # ------------------------------------------------------------------ inference

    async def _infer(self, given: Any, tenant: Tenant, context: Context, call: Request) -> Any:
        desk = self._desk
        model = desk.code(given.model_name, given.model_version)
        desk.admit(tenant)
        signature = desk.signature(model)
        asked = desk.asked(
            model,
            read(given, signature),
            tenant,
            lambda: blake2b(call.body, digest_size=16).digest(),
            _within(context),
        )
        future: asyncio.Future[Outcome] = self._loop.create_future()
        gone = desk.take(asked, lambda outcome: None if future.done() else _set(future, outcome))
        try:
            outcome = await future
        except asyncio.CancelledError:
            gone()
            raise
        call.note = outcome.note
        if outcome.refusal is not None:
            raise outcome.refusal
        try:
            return write(asked, outcome, signature)
        except (TypeError, ValueError, UnicodeError):
            why = f"an output of model {signature.name!r} cannot be written"
            raise Refusal(why, HTTPStatus.INTERNAL_SERVER_ERROR) from None


def _credentials(certificate: Certificate) -> Any:
    """Each new connection is served by the files as they were read last."""

    def latest() -> Any:
        return grpc.ssl_server_certificate_configuration([certificate.pair])

    return grpc.dynamic_ssl_server_credentials(latest(), latest, False)


def _set(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    future.set_result(outcome)


def _within(context: Context) -> int:
    """Microseconds until the deadline of a call; NEVER where it has none."""
    seconds: float | None = context.time_remaining()
    if seconds is None or seconds > NEVER / SECOND / 2:
        return NEVER
    return max(ceil(seconds * SECOND), 1)


def _metadata(call: Request, refusal: Refusal | None) -> tuple[tuple[str, str], ...]:
    """What goes along with an answer."""
    metadata = [("x-request-id", call.id)]
    if refusal is not None and refusal.reason:
        metadata.append(("ganger-reason", refusal.reason))
    if refusal is not None and refusal.retry:
        metadata.append(("retry-after", str(refusal.retry)))
    return tuple(metadata)
