"""The queue: pages of 200 jobs, found, filtered and sorted by the daemon, and orders for them."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answers import Changed, EffectAnswer, Explanation, JobDetail, JobPage
from ganger.client.why import sentence
from ganger.core.errors import BadInput
from ganger.web.door import PREFIX, form_of, session_of
from ganger.web.pages.frame import (
    back_to,
    choice,
    fill,
    html,
    kept,
    key_of,
    number,
    page,
    pages_of,
    part,
    toast,
)
from ganger.web.sessions import masked
from ganger.web.shown import words

JOBS_A_PAGE: Final = 200
STATES: Final = {
    "active": "Running and waiting",
    "pending": "Waiting",
    "running": "Running",
    "over": "Over",
    "all": "All",
}
SORTS: Final = ("", "priority", "gpus", "submitted", "started", "ran", "user", "tenant")
_BOTH: Final = (*SORTS, *(f"-{name}" for name in SORTS if name))
_DONE: Final = {
    "hold": ("Held", "release"),
    "release": ("Released", "hold"),
    "cancel": ("Cancelled", ""),
    "requeue": ("Put back into the queue", ""),
    "suspend": ("Suspended", "resume"),
    "resume": ("Resumed", "suspend"),
}
_PRIORITY_MAX: Final = (1 << 31) - 1


async def queue(request: Request) -> Response:
    """The page."""
    view = _view(request)
    rows = await kept(request, _key(request, view), lambda: _rows(request, view))
    return page(request, "queue", "Queue", view=view, states=STATES, sorts=SORTS, rows=rows)


async def queue_rows(request: Request) -> Response:
    """The rows of one page of it."""
    view = _view(request)
    return await part(request, _key(request, view), lambda: _rows(request, view))


def _key(request: Request, view: dict[str, str | int]) -> str:
    return key_of("queue", **view, at=request.scope[PREFIX])


def _view(request: Request) -> dict[str, str | int]:
    """What is shown: a state, words to find, an order, a page."""
    return {
        "state": choice(request, "state", tuple(STATES)),
        "find": request.query_params.get("find", "").strip()[:200],
        "sort": choice(request, "sort", _BOTH),
        "page": number(request, "page", 1_000_000),
    }


async def _rows(request: Request, view: dict[str, str | int]) -> str:
    offset = int(view["page"]) * JOBS_A_PAGE
    jobs_page: JobPage = await pages_of(request).backend.get(
        "/v1/jobs",
        JobPage,
        state=view["state"],
        find=view["find"],
        sort=view["sort"],
        offset=offset,
        limit=JOBS_A_PAGE,
    )
    prefix = request.scope[PREFIX]

    def link(**changes: object) -> str:
        kept = {k: v for k, v in {**view, **changes}.items() if v not in ("", 0)}
        return f"{prefix}/queue?{urlencode(kept)}"

    return fill(
        "queue_rows",
        jobs=jobs_page.jobs,
        now=time.time(),
        expected=pages_of(request).expected,
        total=jobs_page.total,
        offset=offset,
        page=int(view["page"]),
        last=max(-(-jobs_page.total // JOBS_A_PAGE) - 1, 0),
        view=view,
        link=link,
        prefix=prefix,
    )


async def why(request: Request) -> Response:
    """Why a job waits, in full, and when it is expected to start."""
    job = request.path_params["job"]
    explanation: Explanation = await pages_of(request).backend.get(
        f"/v1/jobs/{quote(job, safe='')}/explain", Explanation, slow=True
    )
    said = sentence(explanation, lambda at: f"\0{at}\0")  # no word has a zero byte
    return html(request, fill("why", found=explanation, said=_with_times(said), now=time.time()))


def _with_times(said: str) -> list[str]:
    """A sentence in parts, its moments as the pages write them."""
    parts = said.split("\0") if said else []
    return [words.when(float(piece)) if at % 2 else piece for at, piece in enumerate(parts)]


async def orders(request: Request) -> Response:
    """Hold, release, cancel and so on the jobs that are ticked, or give them a priority."""
    form = form_of(request)
    verb, jobs = form.get("verb", [""])[0], form.get("job", [])
    if not jobs:
        raise BadInput("no job is chosen", mend="tick some")
    if not all(_is_job(job) for job in jobs):
        raise BadInput("one of them is not the number of a job")
    if verb == "priority":
        text, undo = await _set_priority(request, jobs, form.get("priority", [""]))
    elif verb in _DONE:
        text, undo = await _ordered(request, verb, jobs)
    else:
        raise BadInput(f"{verb[:40]!r} is not an order for jobs")
    await pages_of(request).live.look()
    if "hx-request" not in request.headers:
        return back_to(request, f"/jobs/{jobs[0]}" if len(jobs) == 1 else "/queue")
    return toast(request, text, **undo)


async def ahead(request: Request) -> Response:
    """What an order would do to the other jobs, with a button that gives it."""
    form = form_of(request)
    verb, jobs = form.get("verb", [""])[0], form.get("job", [])
    if not jobs:
        raise BadInput("no job is chosen", mend="tick some")
    if not all(_is_job(job) for job in jobs):
        raise BadInput("one of them is not the number of a job")
    if verb not in (*_DONE, "priority"):
        raise BadInput(f"{verb[:40]!r} is not an order for jobs")
    stated = form.get("priority", ["0"])[0]
    priority = _level(stated) if verb == "priority" else 0
    effect: EffectAnswer = await pages_of(request).backend.order(
        "POST",
        f"/v1/jobs/{','.join(jobs)}/whatif",
        EffectAnswer,
        {"verb": verb, "priority": priority},
        slow=True,
    )
    session = session_of(request)
    text = fill(
        "ahead",
        effect=effect,
        verb=verb,
        jobs=jobs,
        priority=priority,
        some=_some(jobs),
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session else "",
    )
    answer = html(request, text)
    answer.headers["HX-Retarget"] = "#ahead"
    return answer


def _level(text: str) -> int:
    """A priority. Raises BadInput."""
    try:
        level = int(text)
    except ValueError:
        level = _PRIORITY_MAX + 1
    if abs(level) > _PRIORITY_MAX:
        raise BadInput("a priority is a whole number", mend="write like 5 or -3")
    return level


def _is_job(text: str) -> bool:
    head, _, task = text.partition("_")
    return all(
        digits.isascii() and digits.isdecimal() and len(digits) < 13
        for digits in (head, task or "0")
    )


def _some(jobs: list[int] | list[str]) -> str:
    return f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs"


async def _ordered(request: Request, verb: str, jobs: list[str]) -> tuple[str, dict[str, Any]]:
    """Carry it out; what to say, and the form that takes it back."""
    backend = pages_of(request).backend
    changed: Changed = await backend.order("POST", f"/v1/jobs/{','.join(jobs)}/{verb}", Changed)
    done, back = _DONE[verb]
    if not changed.jobs:
        raise BadInput(f"none of the {len(jobs)} jobs can be changed so now")
    undo = {"path": "/queue/orders", "verb": back, "job": changed.jobs} if back else {}
    return f"{done} {_some(changed.jobs)}.", undo


async def _set_priority(
    request: Request, jobs: list[str], stated: list[str]
) -> tuple[str, dict[str, Any]]:
    """Set the priorities that are stated, one for all or one for each."""
    wanted = [_level(text) for text in stated]
    if len(wanted) not in (1, len(jobs)):
        raise BadInput("a priority is a whole number", mend="write like 5 or -3")
    backend = pages_of(request).backend
    details: list[JobDetail] = await backend.get(f"/v1/jobs/{','.join(jobs)}", list[JobDetail])
    before = {level.job: level.priority for level in details}
    by_value: dict[int, list[str]] = {}
    for at, job in enumerate(jobs):
        by_value.setdefault(wanted[at % len(wanted)], []).append(job)
    changed: list[int] = []
    for value, some in by_value.items():
        path = f"/v1/jobs/{','.join(some)}"
        answer: Changed = await backend.order("PATCH", path, Changed, {"priority": value})
        changed += answer.jobs
    if not changed:
        raise BadInput("none of these jobs can be given another priority now")
    level = f"{wanted[0]}" if len(by_value) == 1 else "what it was"
    undo = {
        "path": "/queue/orders",
        "verb": "priority",
        "job": changed,
        "priority": [before.get(job, 0) for job in changed],
    }
    return f"The priority of {_some(changed)} is {level}.", undo
