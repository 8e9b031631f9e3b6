"""The HTTP application: routes from the table, errors as problem+json, the identity of the user who
asks, OpenAPI 3.1."""

from __future__ import annotations

import pwd
import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ganger import __version__
from ganger.client.answers import Problem
from ganger.core.errors import GangerError
from ganger.service.errors import Bug, FullDisk
from ganger.service.http.app_context import AppContext
from ganger.service.http.bodies import Busy
from ganger.service.http.connections import CONNECTION, PROBLEM, Connection
from ganger.service.http.endpoints import ENDPOINTS, Endpoint
from ganger.service.http.schema import tightened
from ganger.service.jobs.roles import Forbidden
from ganger.service.jobs.submission import Who
from ganger.service.reports.rows import NoSuch

_JSON = msgspec.json.Encoder()
_PARAMETER = re.compile(r"\{(\w+)\}")


def application(world: AppContext) -> Starlette:
    """The application over `world`."""
    routes = [
        Route(one.path, _answering(one), methods=[one.method], name=f"{one.method} {one.path}")
        for one in ENDPOINTS
    ]
    document = _JSON.encode(openapi())

    async def description(request: Request) -> Response:
        return Response(document, media_type="application/json")

    async def health(request: Request) -> Response:
        return Response(b'{"ok":true}', media_type="application/json")

    routes += [Route("/openapi.json", description), Route("/healthz", health)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http, Exception: _bug})
    app.router.redirect_slashes = False  # it would send people on to whatever Host they named
    app.state.world = world
    return app


def _answering(one: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            answer = await one.handler(request)
        except GangerError as error:
            return problem(error)
        if isinstance(answer, Response):
            return answer
        return Response(_JSON.encode(answer), one.code, media_type="application/json")

    return respond


_STATUS: Final[dict[type[GangerError], tuple[int, str]]] = {
    NoSuch: (404, "Not found"), Forbidden: (403, "Not allowed"),
    FullDisk: (507, "The disk is full"), Busy: (429, "Too many requests at once"),
    Bug: (500, "A bug in Ganger"),
}  # fmt: skip


def problem(error: GangerError) -> Response:
    """An error of the request."""
    status, title = _STATUS.get(type(error), (400, "Bad input"))
    if "going down" in str(error):
        status, title = 503, "Going down"
    return _problem(
        Problem(
            title=title,
            status=status,
            detail=getattr(error, "what", str(error)),
            where=getattr(error, "where", ""),
            mend=getattr(error, "mend", ""),
        )
    )


def _problem(found: Problem) -> Response:
    return Response(_JSON.encode(found), found.status, media_type="application/problem+json")


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(Problem(title=error.detail, status=error.status_code, mend="see /openapi.json"))


async def _bug(request: Request, error: Exception) -> Response:
    return _problem(
        Problem(title="A bug in Ganger", status=500, detail=f"{type(error).__name__}: {error}")
    )


# ---------------------------------------------------------------------- who asks


@cache
def user_of(uid: int) -> tuple[str, int]:
    """A user's name and main group."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return str(uid), -1
    return found.pw_name, found.pw_gid


class Identify:
    """Identifies the user who asks: by the connection's Unix socket, or over TCP by the token. No
    other header and no address matters."""

    def __init__(self, app: ASGIApp, world: AppContext) -> None:
        self._app, self._world = app, world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection: Connection = scope["state"][CONNECTION]
        found: Who | None
        if connection.uid >= 0:
            name, gid = user_of(connection.uid)
            found = self._world.someone(name, connection.uid, gid)
        else:
            found = self._bearer(scope)
        if found is None:
            answer = _problem(
                Problem(
                    title="This request has no valid token",
                    status=401,
                    mend="send Authorization: Bearer TOKEN",
                )
            )
            answer.headers["WWW-Authenticate"] = "Bearer"
            answer.headers["Connection"] = "close"  # what else is sent is not read
            await answer(scope, receive, send)
            return
        if not connection.serves(found.user):
            answer = Response(
                PROBLEM,
                429,
                {"Retry-After": "1", "Connection": "close"},
                media_type="application/problem+json",
            )
            await answer(scope, receive, send)
            return
        scope["ganger.who"] = found
        await self._app(scope, receive, send)

    def _bearer(self, scope: Scope) -> Who | None:
        """Who bears the token of the only Authorization header."""
        stated = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(stated) != 1:
            return None
        kind, _, token = stated[0].partition(b" ")
        return self._world.bearer(token.strip()) if kind.lower() == b"bearer" else None


# ---------------------------------------------------------------------- OpenAPI


def openapi() -> dict[str, Any]:
    """The description of all endpoints, from their table."""
    types = [one.answer for one in ENDPOINTS] + [one.body for one in ENDPOINTS if one.body]
    schemas, components = msgspec.json.schema_components(
        [*types, Problem], ref_template="#/components/schemas/{name}"
    )
    components["JobRequest"] = tightened(components["JobRequest"])
    found = iter(schemas)
    answers = {id(one): next(found) for one in ENDPOINTS}
    bodies = {id(one): next(found) for one in ENDPOINTS if one.body}
    error = {
        "description": "An error",
        "content": {"application/problem+json": {"schema": next(found)}},
    }
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        text = one.answer is str
        kind = "text/plain" if text else "application/json"
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(one.path)
        ] + [{"name": name, "in": "query", "schema": {"type": "string"}} for name in one.query]
        operation: dict[str, Any] = {
            "summary": " ".join((one.handler.__doc__ or "").split()),
            "parameters": parameters,
            "responses": {
                str(one.code): {
                    "description": "Done",
                    "content": {kind: {"schema": answers[id(one)]}},
                },
                "default": error,
            },
        }
        if one.body:
            content = {"application/json": {"schema": bodies[id(one)]}}
            operation["requestBody"] = {"required": True, "content": content}
        if one.path == "/v1/jobs" and one.method == "POST":
            parameters.append(
                {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
            )
        paths.setdefault(one.path, {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ganger", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
