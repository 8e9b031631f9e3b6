"""The endpoints that are about jobs."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ganger.client import grid
from ganger.client.answering.families import ProposalsAnswer, ReportAnswer
from ganger.client.answers import (
    Changed,
    EffectAnswer,
    Explanation,
    JobDetail,
    JobPage,
    OutputPiece,
    Submitted,
)
from ganger.client.request import JobRequest
from ganger.client.states import exit_code
from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.core.state.reducer import DECLARES
from ganger.core.tuning.space import Space
from ganger.core.units import LONGEST_SECONDS, NEVER, SECOND, TEXT_MAX
from ganger.lab.tuning.own_searcher import OUTSIDE
from ganger.service.commands import Order, SetCeiling, Submit
from ganger.service.durable.sandbox import LIST_SECONDS, effects_of, outlook, outlooks, prospects
from ganger.service.families import Ends, portion_of_more
from ganger.service.http.app_context import AppContext
from ganger.service.http.bodies import BODY_BYTES_MAX, LARGE_BYTES, REQUEST_BYTES_MAX
from ganger.service.http.request_helpers import (
    JOBS_MAX,
    PAGE_MAX,
    Answer,
    asked,
    body_of,
    decoded,
    locked,
    number,
    rows_named,
    who_of,
    world_of,
)
from ganger.service.http.service_api import scale
from ganger.service.jobs.again import again
from ganger.service.jobs.families import tried_again
from ganger.service.jobs.job_facts import Prepared, Proposals
from ganger.service.jobs.submission import (
    GPUS_MAX,
    Who,
    moment,
    prepare,
    refuse_too_many,
    size_of,
    span,
)
from ganger.service.reports import families, rows, tail
from ganger.service.reports.explain import expect, explain, spokesman
from ganger.service.searches.births import AddTrials

Time = (
    Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    | Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_SECONDS)]
)
"""A length of time or a moment, in seconds or in words."""


class Update(msgspec.Struct, forbid_unknown_fields=True):
    """What may be changed of a job that is not over; null leaves it. `never` for no limit.
    `throttle` is of an array: how many of its tasks may be in the queue at once, 0 for all. `gpus`,
    `min_gpus` and `max_gpus` are of a service that runs and that a recipe scales: what its replicas
    hold, and may hold; 0: no replica."""

    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] | None = None
    weight: Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)] | None = None
    time_limit: Time | None = None
    estimate: Time | None = None
    deadline: Time | None = None
    throttle: Annotated[int, msgspec.Meta(ge=0, le=JOBS_MAX)] | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1, le=GPUS_MAX)] | None = None
    min_gpus: Annotated[int, msgspec.Meta(ge=0, le=GPUS_MAX)] | None = None
    max_gpus: Annotated[int, msgspec.Meta(ge=0, le=GPUS_MAX)] | None = None


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """An order to try: a verb, and for `priority` which one."""

    verb: Literal["cancel", "hold", "release", "requeue", "suspend", "resume", "priority"]
    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] = 0


class Trials(msgspec.Struct, forbid_unknown_fields=True):
    """More trials of a search: the values of the parameters of each."""

    configurations: Annotated[list[dict[str, str]], msgspec.Meta(min_length=1, max_length=1000)]


Submission = JobRequest | Annotated[list[JobRequest], msgspec.Meta(min_length=1)]
"""What is submitted in one request."""


async def submit(request: Request) -> Submitted:
    """Accept a job, an array of jobs, or a list of requests; durable when this answers."""
    world, who = world_of(request), who_of(request)
    daemon, bodies = world.daemon, world.bodies
    key = request.headers.get("idempotency-key", "")[:200]
    with bodies.of(who.user, BODY_BYTES_MAX) as place:
        body = await place.read(request)
        digest = hashlib.sha256(body).digest() if key else b""
        key = f"{who.user}:{key}" if key else ""
        wanted = _requests(body) if len(body) <= LARGE_BYTES else []
        if wanted and not any(one.array or one.params for one in wanted):
            accepted = await asked(world, Submit(_prepared(world, who, wanted), key, digest))
        else:  # which takes seconds, in which others are answered
            async with bodies.turn:
                wanted = wanted or await asyncio.to_thread(_requests, body)
                jobs = await asyncio.to_thread(_prepared, world, who, wanted)
                accepted = await asked(world, Submit(jobs, key, digest))
    with daemon.lock:
        first = rows.job_answer(daemon, accepted[0])
    answer = Submitted(
        job=first.job,
        jobs=[row + 1 for row in accepted],
        state=first.state,
        reason=first.reason,
        nodes=first.nodes,
        expected_start=first.submitted if first.nodes else None,
        notes=_notes(wanted, world),
    )
    if request.query_params.get("expect") and not first.nodes:
        ahead = await world.looks.look(who, outlook, daemon, accepted[0], interval=False)
        answer.expected_start = ahead.expected / SECOND if ahead else None
    return answer


def _requests(body: bytes) -> list[JobRequest]:
    """The requests of a submission, decoded one by one: other threads have their turn in between.
    Raises BadInput."""
    if body.lstrip()[:1] != b"[":
        parts = [msgspec.Raw(body)]
    else:
        parts = decoded(body, list[msgspec.Raw])
        if not 0 < len(parts) <= JOBS_MAX:
            raise BadInput(
                f"a list of {len(parts):,} requests is not one of 1 to {JOBS_MAX:,}",
                where="body",
                mend="submit in parts",
            )
    if any(len(bytes(part)) > REQUEST_BYTES_MAX for part in parts):
        raise BadInput(
            f"one request is larger than {REQUEST_BYTES_MAX >> 20} MiB",
            where="body",
            mend="keep long texts in files",
        )
    return [decoded(bytes(part), JobRequest) for part in parts]


def _prepared(world: AppContext, who: Who, wanted: list[JobRequest]) -> list[Prepared]:
    """The jobs that a submission asks for. Raises BadInput, or Forbidden."""
    daemon = world.daemon
    now = daemon.now()
    jobs: list[Prepared] = []
    links = text = 0
    resolve = lambda job: locked(world, rows.rows_of, job)  # noqa: E731
    for one in wanted:
        if (one.array or one.params) and len(wanted) > 1:
            raise BadInput(
                "an array is submitted by itself",
                where="array",
                mend="send it in a request of its own",
            )
        world.refuse_beyond(who, one.tenant or who.user, one.priority, one.weight)
        one.gpu_types = world.known_types(one.gpu_types)
        made = prepare(one, who, now, resolve, world.shared, daemon.gates.ahead)
        parents = {job.spec.parent for job in made} - {""}
        with daemon.lock:
            world.refuse_unfit_family(who, one.kind, parents, bool(one.array or one.params))
        size = size_of(made, one)
        links, text = links + size[0], text + size[1]
        refuse_too_many(links, text)
        jobs += made
        if len(jobs) > JOBS_MAX:
            raise BadInput(f"more than {JOBS_MAX:,} jobs", mend="submit in parts")
    for spec in {job.spec.shape: job.spec for job in jobs}.values():
        world.fits(spec.shape)
    return jobs


def _notes(wanted: list[JobRequest], world: AppContext) -> list[str]:
    """What their submitter should know of requests that were accepted."""
    notes = [note for request in wanted if (note := tried_again(request))]
    if any(request.mail_to for request in wanted) and not world.notifier.takes_mail():
        notes.append(
            "no mail is sent: notify.toml has no [smtp] table (see `ganger daemon notify`)"
        )
    return notes


async def list_jobs(request: Request) -> JobPage:
    """Jobs by `state` (words or codes, `active`, `over`, `all`), `user`, `tenant`, part of the
    `name`, of a `kind`, among `jobs` (with commas), with `alone` no trials and no replicas, ended
    after `since` (Unix seconds), with `find` in their name, user or tenant or as their number;
    `limit` of them from `offset` on, in the order of `sort` (gpus, priority, submitted, started,
    ran, user, tenant; with - before it downwards); with `best` the best value of each search; with
    `expect` when those that wait are expected to start."""
    limit = int(number(request, "limit", 100, PAGE_MAX))
    offset = int(number(request, "offset", 0, 1e12))
    filters = {
        key: request.query_params.get(key, "")
        for key in (
            "state", "user", "tenant", "name", "kind", "jobs", "alone", "best", "find", "sort"
        )
    }  # fmt: skip
    filters["since"] = str(number(request, "since", 0, 1e12))
    world = world_of(request)
    page = locked(world, rows.job_page, filters, offset, limit)
    if request.query_params.get("expect"):
        waiting = [one.job - 1 for one in page.jobs if one.state == "PENDING"]
        ahead = await world.looks.look(
            who_of(request), outlooks, world.daemon, waiting, seconds=LIST_SECONDS
        )
        for one in page.jobs:
            rows.foreseen(one, ahead.get(one.job - 1))
    return page


async def show_job(request: Request) -> list[JobDetail]:
    """All about the jobs of the path: one, several with commas between them, or an array."""
    daemon = world_of(request).daemon
    found = rows_named(request)[:PAGE_MAX]
    with daemon.lock:
        return [rows.job_detail(daemon, row) for row in found]


async def list_reports(request: Request) -> list[ReportAnswer]:
    """What a job, or all trials of a search, reported, in order: at most `limit` (1000) beyond the
    report whose id is `after`."""
    daemon, (row, *others) = world_of(request).daemon, rows_named(request)
    if others:
        raise BadInput("reports are listed of one job", where="jobs", mend="name one")
    after = int(number(request, "after", 0, 2**53))
    limit = int(number(request, "limit", PAGE_MAX, 10_000))
    with daemon.lock:
        return families.reports(daemon, row, after, limit)


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
            values[name] = NEVER if field == "never" else span(field, name)
    if found.deadline is not None:
        never = found.deadline == "never"
        values["deadline"] = NEVER if never else moment(found.deadline, now, "deadline", NEVER)
    ends = Ends(found.gpus, found.min_gpus, found.max_gpus)
    if not values and found.throttle is None and ends == Ends():
        raise BadInput("nothing to change", where="body", mend=f"give {', '.join(DECLARES)}")
    found_rows = rows_named(request)
    if found.priority is not None or found.weight is not None:
        _refuse_beyond(request, found_rows, found)
    if ends != Ends():
        await scale(world, found_rows, ends)
    if found.throttle is not None:
        await _throttle(world, found_rows, found.throttle)
    accepted = await asked(world, Order(found_rows, values)) if values else found_rows
    return Changed(jobs=[row + 1 for row in accepted])


def _refuse_beyond(request: Request, found_rows: list[int], update: Update) -> None:
    """Raise Forbidden if a job may not have the priority or the weight."""
    world, who = world_of(request), who_of(request)
    with world.daemon.lock:
        jobs = world.daemon.kernel.jobs
        tenants = {jobs.tenants[code] for code in set(jobs.tenant[found_rows].tolist())}
    for tenant in sorted(tenants):
        world.refuse_beyond(
            who,
            tenant,
            -math.inf if update.priority is None else update.priority,
            -math.inf if update.weight is None else update.weight,
        )


async def _throttle(world: AppContext, found: list[int], throttle: int) -> None:
    with world.daemon.lock:
        arrays = {world.daemon.array_of(row) for row in found}
    if -1 in arrays:
        raise BadInput("one of the jobs is not an array", where="throttle", mend="name the array")
    for head in sorted(arrays):
        await asked(world, SetCeiling(("array", str(head)), throttle or None))


def order(verb: str) -> Callable[[Request], Answer]:
    """An endpoint that orders `verb`."""

    async def endpoint(request: Request) -> Changed:
        world = world_of(request)
        accepted = await asked(world, Order(rows_named(request), {verb: 0.0}))
        changed = Changed(jobs=[row + 1 for row in accepted])
        if verb == "resume":
            with world.daemon.lock:
                phase = world.daemon.kernel.jobs.phase
                asleep = [job for job in changed.jobs if phase[job - 1] == Phase.SUSPENDED]
            changed.waiting = asleep
        return changed

    endpoint.__doc__ = (
        f"Apply `{verb}` to the jobs in the path; returns the jobs that were changed."
    )
    return endpoint


async def try_order(request: Request) -> EffectAnswer:
    """What an order about the jobs in the path would do to the other jobs; nothing is changed."""
    body = await body_of(request, Trial)
    world, named = world_of(request), rows_named(request)
    if body.verb == "priority":
        _refuse_beyond(request, named, Update(priority=body.priority))
    order = Order(named, {body.verb: float(body.priority)})
    return await world.looks.look(who_of(request), effects_of, world.daemon, order)


async def submit_again(request: Request) -> Submitted:
    """Submit the job or the array in the path once more, as it was; the first new job."""
    world, who, named = world_of(request), who_of(request), rows_named(request)
    daemon = world.daemon
    if world.shared:  # it would run as its owner
        with daemon.lock:
            world.refuse_others(who, named)
    with daemon.lock:
        jobs = again(daemon, named)
    for new in jobs:
        spec = new.spec
        world.refuse_beyond(who, spec.tenant, spec.priority, spec.weight)
        with daemon.lock:
            world.refuse_unfit_family(who, spec.kind.name.lower(), (), new.facts.task >= 0)
        world.fits(spec.shape)
    accepted = await asked(world, Submit(jobs))
    with daemon.lock:
        first = rows.job_answer(daemon, accepted[0])
    return Submitted(
        job=first.job,
        jobs=[row + 1 for row in accepted],
        state=first.state,
        reason=first.reason,
        nodes=first.nodes,
    )


async def add_trials(request: Request) -> Changed:
    """Add trials to the search in the path; returns them."""
    body = await body_of(request, Trials)
    world, (row, *others) = world_of(request), rows_named(request)
    if others:
        raise BadInput("trials are added to one search", where="jobs", mend="name one")
    for values in body.configurations:
        grid.check({name: [value] for name, value in values.items()}, 1)
    with world.daemon.lock:
        each = portion_of_more(world.daemon, row)
    accepted = await asked(world, AddTrials(row, body.configurations, each))
    return Changed(jobs=[each + 1 for each in accepted])


def _outside(request: Request) -> tuple[int, Proposals]:
    """The search in the path, for which its own program proposes. Raises BadInput for another."""
    world, (row, *others) = world_of(request), rows_named(request)
    with world.daemon.lock:
        known = world.daemon.reader.facts(row).family
    proposals = known.proposals if known is not None else None
    if others or proposals is None or proposals.searcher != OUTSIDE:
        raise BadInput(
            "nobody is asked what it tries",
            where="jobs",
            mend=f"name one search whose searcher is {OUTSIDE}",
        )
    return row, proposals


async def list_proposals(request: Request) -> ProposalsAnswer:
    """How many configurations the search in the path waits for, which is one of the searcher
    `client`: the program that submitted it proposes them."""
    row, proposals = _outside(request)
    daemon = world_of(request).daemon
    with daemon.lock:
        over = bool(daemon.kernel.jobs.phase[row] >= Phase.FINISHED)
    wanted = 0 if over else daemon.proposing.wanted(row)
    return ProposalsAnswer(wanted=wanted, space=proposals.space, seed=proposals.seed, over=over)


async def propose(request: Request) -> ProposalsAnswer:
    """Propose configurations for the search in the path, no more than are wanted, each a point of
    its space."""
    body = await body_of(request, Trials)
    row, proposals = _outside(request)
    space = Space(proposals.space)
    for values in body.configurations:
        if space.read(values) is None or set(values) - set(proposals.space):
            raise BadInput(
                f"{grid.spoken(values)[:200]!r} is not a point of the space", where="configurations"
            )
    wanted = world_of(request).daemon.proposing.give(row, body.configurations)
    return ProposalsAnswer(wanted=wanted, space=proposals.space, seed=proposals.seed)


async def wait_job(request: Request) -> JobPage:
    """Answer when all jobs of the path are over, or after `timeout` seconds (at most 60)."""
    world, daemon = world_of(request), world_of(request).daemon
    found = rows_named(request)
    until = time.monotonic() + number(request, "timeout", 30, 60)
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
    found = rows_named(request)
    with daemon.lock:
        return {
            rows.label(daemon, row): exit_code(
                Phase(daemon.kernel.jobs.phase[row]), daemon.ends.get(row, "")
            )
            for row in found
        }


async def logs(request: Request) -> Response:
    """What a job wrote, as text: `stream` output or error, of `attempt` (default: the last), on
    `node` (default: its first), the last `lines` of it or all; with `follow` until it is over."""
    world = world_of(request)
    row = rows_named(request)[0]
    stream = _stream(request)
    attempt = int(number(request, "attempt", 0, 1e9))
    lines = int(number(request, "lines", 0, 1e9))
    follow = request.query_params.get("follow", "") in ("1", "true", "yes")
    node = request.query_params.get("node", "")
    source = await tail.Source.opened(world, row, stream, attempt, node)
    text: AsyncIterator[bytes] = source.read(lines, follow, who_of(request).user)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8")


async def output(request: Request) -> OutputPiece:
    """A piece of what a job wrote, at most 256 KiB from byte `at` on, or the last `lines` of it;
    `stream`, `attempt` and `node` as of `logs`."""
    row = rows_named(request)[0]
    stream = _stream(request)
    attempt = int(number(request, "attempt", 0, 1e9))
    lines = int(number(request, "lines", 1, 1e9))
    at = int(number(request, "at", 0, 1e18)) if "at" in request.query_params else -1
    node = request.query_params.get("node", "")
    source = tail.Source(world_of(request), row, stream, attempt, node)
    piece = await source.piece(at, lines)
    return OutputPiece(at=piece.at - len(piece.data), end=piece.at, data=piece.data)


def _stream(request: Request) -> str:
    stream = request.query_params.get("stream", "output")
    if stream not in ("output", "error"):
        raise BadInput(f"{stream!r} is not output or error", where="stream")
    return stream


async def explain_job(request: Request) -> Explanation:
    """Why a job is where it is, and when it is expected to start; of an array its first task that
    waits."""
    daemon = world_of(request).daemon
    named = rows_named(request)
    with daemon.lock:
        row = spokesman(daemon, named)
        found = explain(daemon, row)
    if found.position is not None:
        looks = world_of(request).looks
        there, ahead = await looks.look(who_of(request), prospects, daemon, row)
        with daemon.lock:
            expect(daemon, found, there, ahead)
    return found
