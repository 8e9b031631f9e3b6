"""The endpoints: one function each, and the table from which routes and OpenAPI are made."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ganger.client.answers import (
    Changed,
    Explanation,
    FutureAnswer,
    JobDetail,
    JobPage,
    NodeAnswer,
    PolicyAnswer,
    Share,
    Status,
    Submitted,
)  # fmt: skip
from ganger.client.request import JobRequest
from ganger.core.commands import DECLARES
from ganger.core.errors import BadInput
from ganger.core.jobs import Phase
from ganger.core.units import NEVER, SECOND, parse_duration
from ganger.service import rows, tail
from ganger.service.accept import Who, moment, prepare
from ganger.service.asks import Ask, NodeOrder, Order, SetPolicy, Submit
from ganger.service.explain import expect, explain
from ganger.service.facts import Prepared
from ganger.service.states import exit_code
from ganger.service.trial import futures, outlook, try_policy
from ganger.service.world import World
from ganger.workloads.clusters import load_cluster

PAGE_MAX: Final = 1000
BODY_BYTES_MAX: Final = 32 << 20
JOBS_MAX: Final = 100_000
T = TypeVar("T")
Answer = Awaitable[Any]


class Update(msgspec.Struct, forbid_unknown_fields=True):
    """What may be changed of a job that is not over; null leaves it. `never` for no limit."""

    priority: int | None = None
    weight: float | None = None
    time_limit: str | float | None = None
    estimate: str | float | None = None
    deadline: str | float | None = None


class PolicyChange(msgspec.Struct, forbid_unknown_fields=True):
    """Another recipe; with `dry_run` only what it would do at once."""

    recipe: str
    knows: str = ""
    dry_run: bool = False


class WhatIf(msgspec.Struct, forbid_unknown_fields=True):
    """Recipes to compare with the one in force; nodes to `add`, like `1x4xA100`; with
    `history_days` it is played with the jobs that finished in so many days."""

    recipes: list[str] = []
    add: str = ""
    history_days: float = 0.0


class Down(msgspec.Struct, forbid_unknown_fields=True):
    """How to go down: running jobs go on, or with `jobs` are stopped first and put back in line."""

    jobs: bool = False


def world_of(request: Request) -> World:
    """What the server was started with."""
    world: World = request.app.state.world
    return world


def who_of(request: Request) -> Who:
    """Who asks, as the transport says."""
    who: Who = request.scope["ganger.who"]
    return who


async def body_of(request: Request, kind: type[T]) -> T:
    """The body as `kind`. Raises BadInput."""
    found: T = _decode(await _raw(request), kind)
    return found


async def _raw(request: Request) -> bytes:
    size = 0
    parts = []
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BadInput("it is larger than 32 MiB", where="body", mend="submit in parts")
        parts.append(part)
    return b"".join(parts)


def _decode(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(str(error), where="body", mend="see /openapi.json") from None


async def _asked(world: World, ask: Ask) -> Any:
    world.daemon.ask(ask)
    return await asyncio.wrap_future(ask.done)


def _number(request: Request, name: str, default: float, most: float) -> float:
    text = request.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise BadInput(f"{text!r} is not a number from 0 to {most:g}", where=name)
    return value


# ---------------------------------------------------------------------- jobs


async def submit(request: Request) -> Submitted:
    """Accept a job, an array of jobs, or a list of requests; durable when this answers."""
    world, who = world_of(request), who_of(request)
    body = await _raw(request)
    found = _decode(body, JobRequest | list[JobRequest])
    wanted: list[JobRequest] = found if isinstance(found, list) else [found]
    if not wanted:
        raise BadInput("no job is in it", where="body")
    daemon = world.daemon
    now = daemon.now()
    jobs: list[Prepared] = []
    resolve = lambda job: _locked(world, rows.rows_of, job)  # noqa: E731
    for one in wanted:
        one.gpu_types = world.known_types(one.gpu_types)
        jobs += prepare(one, who, now, resolve, world.shared)
        if len(jobs) > JOBS_MAX:
            raise BadInput(f"more than {JOBS_MAX:,} jobs", mend="submit in parts")
    for spec in {job.spec.shape: job.spec for job in jobs}.values():
        world.fits(spec.shape)
    key = request.headers.get("idempotency-key", "")[:200]
    digest = hashlib.sha256(body).digest() if key else b""
    accepted = await _asked(world, Submit(jobs, f"{who.user}:{key}" if key else "", digest))
    with daemon.lock:
        first = rows.job_answer(daemon, accepted[0])
    answer = Submitted(
        job=first.job, jobs=[row + 1 for row in accepted], state=first.state, reason=first.reason,
        nodes=first.nodes, expected_start=first.submitted if first.nodes else None,
    )  # fmt: skip
    if request.query_params.get("expect") and not first.nodes:
        ahead = await asyncio.to_thread(outlook, daemon, accepted[0], interval=False)
        answer.expected_start = ahead.expected / SECOND if ahead else None
    return answer


def _locked(world: World, function: Callable[..., T], *given: Any) -> T:
    with world.daemon.lock:
        return function(world.daemon, *given)


def _rows(request: Request) -> list[int]:
    """The rows that the path's comma-separated jobs stand for, all of which the asker may touch."""
    world, who = world_of(request), who_of(request)
    found: list[int] = []
    with world.daemon.lock:
        for job in request.path_params["jobs"].split(","):
            found += rows.rows_of(world.daemon, job)
        if world.shared and who.uid:
            world.refuse_others(who, found)
    return list(dict.fromkeys(found))


async def list_jobs(request: Request) -> JobPage:
    """Jobs by `state` (words or codes, `active`, `over`, `all`), `user`, `tenant`, part of the
    `name`; `limit` of them from `offset` on."""
    limit = int(_number(request, "limit", 100, PAGE_MAX))
    offset = int(_number(request, "offset", 0, 1e12))
    filters = {
        key: request.query_params.get(key, "") for key in ("state", "user", "tenant", "name")
    }
    return _locked(world_of(request), rows.job_page, filters, offset, limit)


async def show_job(request: Request) -> list[JobDetail]:
    """All about the jobs of the path: one, several with commas between them, or an array."""
    daemon = world_of(request).daemon
    found = _rows(request)[:PAGE_MAX]
    with daemon.lock:
        return [rows.job_detail(daemon, row) for row in found]


async def update_job(request: Request) -> Changed:
    """Change what was declared."""
    found = await body_of(request, Update)
    world = world_of(request)
    now = world.daemon.now()
    values: dict[str, float] = {}
    for name in ("priority", "weight"):
        value = getattr(found, name)
        if value is not None:
            values[name] = value
    for name, field in (("limit", found.time_limit), ("estimate", found.estimate)):
        if field is not None:
            values[name] = NEVER if field == "never" else parse_duration(field, where=name)
    if found.deadline is not None:
        never = found.deadline == "never"
        values["deadline"] = NEVER if never else moment(found.deadline, now, "deadline", NEVER)
    if not values:
        raise BadInput("nothing to change", where="body", mend=f"give {', '.join(DECLARES)}")
    if not -(1 << 31) <= values.get("priority", 0) < 1 << 31 or not values.get("weight", 1.0) > 0:
        raise BadInput("priority is a whole number and weight above 0", where="body")
    accepted = await _asked(world, Order(_rows(request), values))
    return Changed(jobs=[row + 1 for row in accepted])


def order(verb: str) -> Callable[[Request], Answer]:
    """An endpoint that orders `verb`."""

    async def endpoint(request: Request) -> Changed:
        accepted = await _asked(world_of(request), Order(_rows(request), {verb: 0.0}))
        return Changed(jobs=[row + 1 for row in accepted])

    endpoint.__doc__ = f"Say `{verb}` of the jobs in the path; answers with those it was said of."
    return endpoint


async def wait_job(request: Request) -> JobPage:
    """Answer when all jobs of the path are over, or after `timeout` seconds (at most 60)."""
    world, daemon = world_of(request), world_of(request).daemon
    found = _rows(request)
    until = time.monotonic() + _number(request, "timeout", 30, 60)
    while time.monotonic() < until:
        with daemon.lock:
            phases = daemon.kernel.jobs.phase[found]
        if (phases >= Phase.FINISHED).all() or world.leaving:
            break
        await world.next_step(until - time.monotonic())
    with daemon.lock:
        answers = [rows.job_answer(daemon, row) for row in found]
    return JobPage(jobs=answers, total=len(answers), offset=0, next=None)


async def exit_codes(request: Request) -> dict[str, int | None]:
    """The exit code of each job of the path; null while it is not over."""
    daemon = world_of(request).daemon
    found = _rows(request)
    with daemon.lock:
        return {
            rows.label(daemon, row): exit_code(
                Phase(daemon.kernel.jobs.phase[row]), daemon.ends.get(row, "")
            )
            for row in found
        }


async def logs(request: Request) -> Response:
    """What a job wrote, as text: `stream` output or error, of `attempt` (default: the last), the
    last `lines` of it or all; with `follow` until the attempt is over."""
    world = world_of(request)
    row = _rows(request)[0]
    stream = request.query_params.get("stream", "output")
    if stream not in ("output", "error"):
        raise BadInput(f"{stream!r} is not output or error", where="stream")
    attempt = int(_number(request, "attempt", 0, 1e9))
    lines = int(_number(request, "lines", 0, 1e9))
    follow = request.query_params.get("follow", "") in ("1", "true", "yes")
    source = tail.Source(world, row, stream, attempt)
    text: AsyncIterator[bytes] = source.read(lines, follow)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8")


async def explain_job(request: Request) -> Explanation:
    """Why a job is where it is, and when it is expected to start."""
    daemon = world_of(request).daemon
    row = _rows(request)[0]
    with daemon.lock:
        found = explain(daemon, row)
    if found.position is not None:
        expect(found, await asyncio.to_thread(outlook, daemon, row))
    return found


# ---------------------------------------------------------------------- nodes and policy


async def list_nodes(request: Request) -> list[NodeAnswer]:
    """All nodes."""
    return _locked(world_of(request), rows.node_answers)


def node_order(verb: str) -> Callable[[Request], Answer]:
    """An endpoint that drains or resumes nodes."""

    async def endpoint(request: Request) -> list[NodeAnswer]:
        world = world_of(request)
        world.refuse_users(who_of(request))
        names = world.daemon.kernel.nodes.names
        wanted = request.path_params["nodes"].split(",")
        for name in wanted:
            if name not in names:
                raise rows.NoSuch(f"no node {name!r}", mend="`ganger nodes` lists them")
        await _asked(world, NodeOrder([names.index(name) for name in wanted], verb))
        return [node for node in _locked(world, rows.node_answers) if node.name in wanted]

    endpoint.__doc__ = f"Say `{verb}` of the nodes in the path."
    return endpoint


async def whatif(request: Request) -> list[FutureAnswer]:
    """What other recipes, or more nodes, would make of the present queue or of the past."""
    found = await body_of(request, WhatIf)
    if "/" in found.add or any(".py" in recipe for recipe in found.recipes):
        world_of(request).refuse_users(who_of(request))  # files are read, and run, as the daemon
    add = load_cluster(found.add).nodes if found.add else ()
    expanded = [msgspec.structs.replace(node, count=1) for node in add for _ in range(node.count)]
    return await asyncio.to_thread(
        futures, world_of(request).daemon, found.recipes, expanded, found.history_days
    )


async def show_policy(request: Request) -> PolicyAnswer:
    """The recipe in force."""
    header = world_of(request).daemon.header
    return PolicyAnswer(recipe=header.policy, knows=header.knows)


async def set_policy(request: Request) -> PolicyAnswer:
    """Decide by another recipe from now on, or see what it would do."""
    found = await body_of(request, PolicyChange)
    world = world_of(request)
    world.refuse_users(who_of(request))
    knows = found.knows or world.daemon.header.knows
    trial = await asyncio.to_thread(try_policy, world.daemon, found.recipe, knows)
    if found.dry_run or trial.error:
        if trial.error and not found.dry_run:
            raise BadInput(f"it fails on the present state: {trial.error}", where=found.recipe)
        return trial
    await _asked(world, SetPolicy(found.recipe, knows))
    return msgspec.structs.replace(trial, dry_run=False)


async def fairshare(request: Request) -> list[Share]:
    """What each tenant has used and holds."""
    return _locked(world_of(request), rows.shares)


async def status(request: Request) -> Status:
    """How the daemon does."""
    return world_of(request).status()


async def shutdown(request: Request) -> dict[str, bool]:
    """Go down."""
    found = await body_of(request, Down)
    world = world_of(request)
    world.refuse_users(who_of(request))
    if found.jobs:
        with world.daemon.lock:
            active = [row for row, *_ in world.daemon.holds()]
        if active:
            await _asked(world, Order(active, {"requeue": 0.0, "hold": 0.0}))
        while world.daemon.holds():
            await world.next_step(1.0)
    world.go_down()
    return {"down": True}


async def events(request: Request) -> Response:
    """Changes of jobs' states as server-sent events; `since` (or Last-Event-ID) is the revision
    after which to begin, by default now."""
    world, who = world_of(request), who_of(request)
    daemon = world.daemon
    begin = request.headers.get("last-event-id") or request.query_params.get("since", "")
    if begin and not begin.isdecimal():
        raise BadInput(f"{begin!r} is no revision", where="since")

    async def changes() -> AsyncIterator[bytes]:
        seen = int(begin) if begin else daemon.kernel.revision
        yield b": changes of jobs\n\n"
        while not world.leaving:
            with daemon.lock:
                found = list(daemon.feed.since(seen))
                seen = daemon.kernel.revision
                if world.shared and who.uid:
                    found = [one for one in found if world.owns(who, one.job - 1)]
            for one in found:
                yield b"id: %d\nevent: job\ndata: %s\n\n" % (
                    one.revision, msgspec.json.encode(one)
                )  # fmt: skip
            await world.next_step(1.0)

    return StreamingResponse(changes(), media_type="text/event-stream")


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    from ganger.service.metrics import CONTENT_TYPE, exposition

    return Response(exposition(world_of(request)), media_type=CONTENT_TYPE)


# ---------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Endpoint:
    """One row of the table. `body` and `answer` are types that OpenAPI is made of."""

    method: str
    path: str
    handler: Callable[[Request], Answer]
    answer: Any
    body: Any = None
    query: tuple[str, ...] = ()
    code: int = 200


_JOBS = "/v1/jobs/{jobs}"
ENDPOINTS: Final = (
    Endpoint("GET", "/v1/status", status, Status),
    Endpoint("POST", "/v1/jobs", submit, Submitted, JobRequest | list[JobRequest],
             query=("expect",), code=201),
    Endpoint("GET", "/v1/jobs", list_jobs, JobPage,
             query=("state", "user", "tenant", "name", "offset", "limit")),
    Endpoint("GET", _JOBS, show_job, list[JobDetail]),
    Endpoint("PATCH", _JOBS, update_job, Changed, Update),
    *(Endpoint("POST", f"{_JOBS}/{verb}", order(verb), Changed)
      for verb in ("cancel", "hold", "release", "requeue", "suspend", "resume")),
    Endpoint("GET", f"{_JOBS}/wait", wait_job, JobPage, query=("timeout",)),
    Endpoint("GET", f"{_JOBS}/codes", exit_codes, dict[str, int | None]),
    Endpoint("GET", f"{_JOBS}/logs", logs, str,
             query=("stream", "attempt", "lines", "follow")),
    Endpoint("GET", f"{_JOBS}/explain", explain_job, Explanation),
    Endpoint("GET", "/v1/nodes", list_nodes, list[NodeAnswer]),
    *(Endpoint("POST", f"/v1/nodes/{{nodes}}/{verb}", node_order(verb), list[NodeAnswer])
      for verb in ("drain", "resume")),
    Endpoint("GET", "/v1/policy", show_policy, PolicyAnswer),
    Endpoint("PUT", "/v1/policy", set_policy, PolicyAnswer, PolicyChange),
    Endpoint("POST", "/v1/whatif", whatif, list[FutureAnswer], WhatIf),
    Endpoint("GET", "/v1/fairshare", fairshare, list[Share]),
    Endpoint("POST", "/v1/shutdown", shutdown, dict[str, bool], Down),
    Endpoint("GET", "/v1/events", events, str, query=("since",)),
    Endpoint("GET", "/metrics", metrics, str),
)  # fmt: skip
