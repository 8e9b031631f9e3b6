"""One job: its life, where it runs, what it wrote."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ganger.client.answers import JobDetail, Submitted
from ganger.core.errors import BadInput
from ganger.web.door import PREFIX
from ganger.web.pages.frame import (
    back_to,
    choice,
    fill,
    html,
    key_of,
    number,
    page,
    pages_of,
    part,
)
from ganger.web.shown import logs
from ganger.web.shown.timeline import is_over, spans

_BYTES_MAX: Final = 1 << 60
_DEVICES: Final = re.compile(r"(.+):([0-9,]+|-)")


async def job(request: Request) -> Response:
    """The page."""
    name = request.path_params["job"]
    detail = await _detail(request, name)
    where = _where(request)
    body = await _body(request, detail)
    return page(
        request,
        "job",
        f"Job {detail.label}",
        job=detail,
        body=body,
        where=where,
        over=is_over(detail),
        orders=orders_for(detail),
    )


def orders_for(job: JobDetail) -> list[str]:
    """The orders that make sense for a job as it is now."""
    if is_over(job):
        return []
    held = job.reason == "JobHeldUser"
    by_state = {
        "PENDING": ["release"] if held else ["hold"],
        "SUSPENDED": ["resume", "requeue"],
        "RUNNING": ["suspend", "requeue"],
        "CONFIGURING": ["requeue"],
    }
    return [*by_state.get(job.state, []), "cancel", "priority"]


async def job_now(request: Request) -> Response:
    """What changes while it runs."""
    name = request.path_params["job"]

    async def make() -> str:
        return await _body(request, await _detail(request, name))

    return await part(request, key_of("job", name=name, at=request.scope[PREFIX]), make)


async def _detail(request: Request, name: str) -> JobDetail:
    path = f"/v1/jobs/{quote(name, safe='')}"
    detail: list[JobDetail] = await pages_of(request).backend.get(path, list[JobDetail])
    return detail[0]


async def _body(request: Request, detail: JobDetail) -> str:
    pages = pages_of(request)
    live = pages.live
    now = live.status.now if live.status else time.time()
    places = [
        (node, [] if gpus == "-" else [int(gpu) for gpu in gpus.split(",")])
        for text in (detail.attempts[-1].devices if detail.attempts else [])
        if (named := _DEVICES.fullmatch(text))
        for node, gpus in [named.groups()]
    ]
    sizes: dict[str, int] = {}
    if places and not is_over(detail):
        sizes = await pages.nodes.sizes(node for node, _ in places)
    return fill(
        "job_now",
        job=detail,
        orders=orders_for(detail),
        sizes=sizes,
        spans=spans(detail, now),
        places=places,
        over=is_over(detail),
        prefix=request.scope[PREFIX],
        now=now,
    )


async def again(request: Request) -> Response:
    """Submit it once more, as it was, and go to the new job."""
    name = request.path_params["job"]
    answer: Submitted = await pages_of(request).backend.order(
        "POST", f"/v1/jobs/{quote(name, safe='')}/again", Submitted
    )
    await pages_of(request).live.look()
    if "hx-request" not in request.headers:
        return back_to(request, f"/jobs/{answer.job}")
    return Response(
        status_code=204,
        headers={"HX-Redirect": f"{request.scope[PREFIX]}/jobs/{answer.job}"},
    )


def _where(request: Request) -> logs.Where:
    return logs.Where(
        request.path_params["job"],
        number(request, "attempt", 10**9),
        choice(request, "stream", ("output", "error")),
        request.query_params.get("node", "")[:200],
    )


async def log(request: Request) -> Response:
    """Lines of what it wrote: the last ones, those before or after a byte, or those with a word."""
    where, backend = _where(request), pages_of(request).backend
    link = f"{request.scope[PREFIX]}/jobs/{quote(where.job, safe='')}/log"

    def to(**more: object) -> str:
        return f"{link}?{urlencode({k: v for k, v in where.query(**more).items() if v != ''})}"

    word = request.query_params.get("find", "")[:200]
    if word:
        begin = number(request, "from", _BYTES_MAX)
        result = await logs.search(backend, where, word, begin)
        return html(request, fill("log_found", found=result, word=word, to=to))
    if "before" in request.query_params:
        text = await logs.before(backend, where, number(request, "before", _BYTES_MAX))
        way = "before"
    elif "after" in request.query_params:
        text = await logs.after(backend, where, number(request, "after", _BYTES_MAX))
        way = "after"
    else:
        text, way = await logs.last(backend, where), "last"
    return html(request, fill("log", text=text, to=to, way=way))


async def log_file(request: Request) -> Response:
    """All that it wrote, as a file to keep."""
    where, backend = _where(request), pages_of(request).backend
    if not re.fullmatch(r"[0-9]{1,12}(_[0-9]{1,12})?", where.job):
        raise BadInput(f"{where.job[:40]!r} is not the number of a job")
    pieces = backend.text(f"/v1/jobs/{where.job}/logs", **where.query())
    backend.refuse_text()
    first = await anext(pieces, b"")  # what goes wrong before it is said in a page
    headers = {"Content-Disposition": f'attachment; filename="job-{where.job}-{where.stream}.txt"'}
    text = _whole(first, pieces)
    return StreamingResponse(text, 200, headers, media_type="application/octet-stream")


async def _whole(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):
        yield first
        async for piece in rest:
            yield piece
