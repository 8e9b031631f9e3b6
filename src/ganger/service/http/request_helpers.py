"""What endpoints share: the user who asks, the jobs that are meant, and having the order carried
out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from ganger.core.errors import BadInput
from ganger.service.commands import Ask
from ganger.service.http.app_context import AppContext
from ganger.service.http.bodies import SMALL_BYTES_MAX
from ganger.service.jobs.submission import Who
from ganger.service.reports import rows

PAGE_MAX: Final = 1000
JOBS_MAX: Final = 100_000
T = TypeVar("T")
Answer = Awaitable[Any]


def world_of(request: Request) -> AppContext:
    """What the server was started with."""
    world: AppContext = request.app.state.world
    return world


def who_of(request: Request) -> Who:
    """The user who asks, as the transport says."""
    who: Who = request.scope["ganger.who"]
    return who


async def body_of(request: Request, kind: type[T]) -> T:
    """The body as `kind`. Raises BadInput."""
    with world_of(request).bodies.of(who_of(request).user, SMALL_BYTES_MAX) as body:
        found: T = decoded(await body.read(request), kind)
    return found


def decoded(data: bytes, kind: Any) -> Any:
    """JSON as `kind`; 4.0 is a whole number, too. Raises BadInput."""
    try:
        try:
            return msgspec.json.decode(data or b"{}", type=kind)
        except msgspec.ValidationError:
            return msgspec.convert(_whole(msgspec.json.decode(data)), kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(error), where="body", mend="see /openapi.json") from None


def _whole(value: Any) -> Any:
    """What JSON holds, with integers for numbers that are whole."""
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


async def asked(world: AppContext, ask: Ask) -> Any:
    """Have it done in the next step; its answer."""
    world.daemon.ask(ask)
    return await asyncio.wrap_future(ask.done)


def number(request: Request, name: str, default: float, most: float) -> float:
    """A number of the query, from 0 to `most`. Raises BadInput."""
    text = request.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise BadInput(f"{text!r} is not a number from 0 to {most:g}", where=name)
    return value


def locked(world: AppContext, function: Callable[..., T], *given: Any) -> T:
    """What `function` says of the daemon, between two steps."""
    with world.daemon.lock:
        return function(world.daemon, *given)


def rows_named(request: Request) -> list[int]:
    """The rows that the path's comma-separated jobs stand for, all of which the asker may touch."""
    world, who = world_of(request), who_of(request)
    with world.daemon.lock:
        found = rows.rows_listed(world.daemon, request.path_params["jobs"])
        if not who.admin:
            world.refuse_others(who, found)
    return found
