"""The lab: a made-up trace under several recipes, side by side as Gantt charts that move."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ganger.core.errors import BadInput
from ganger.web.background.playing import Played
from ganger.web.background.pool import Work
from ganger.web.door import PREFIX, form_of, session_of
from ganger.web.pages.frame import back_to, fill, html, page, pages_of
from ganger.web.sessions import masked
from ganger.web.shown.gantt import Gantt, gantt

KINDS: Final = ("poisson", "philly", "helios", "gavel")
RECIPES_MAX: Final = 6
JOBS_MAX: Final = 200
DEFAULT: Final = {
    "kind": "poisson", "jobs": "40", "seed": "0", "cluster": "2x4xV100",
    "recipes": "fifo, backfill, srtf, las",
}  # fmt: skip
_RECIPE: Final = re.compile(r"[\w.-]{1,60}(\([^()/]{0,200}\))?")
_CLUSTER: Final = re.compile(r"[0-9]{1,3}x[0-9]{1,3}x[A-Za-z0-9-]{1,20}")


async def lab(request: Request) -> Response:
    """The set-up, as its address has it. Nothing starts before a click."""
    view = {
        name: request.query_params.get(name, default)[:300] for name, default in DEFAULT.items()
    }
    works = [work for work in pages_of(request).pool.listed() if work.kind == "lab"]
    return page(request, "lab", "Lab", view=view, kinds=KINDS, jobs_max=JOBS_MAX, works=works)


async def begin(request: Request) -> Response:
    """Replay it."""
    asked = asked_in({name: each[0] for name, each in form_of(request).items()})
    work = pages_of(request).pool.start("lab", asked)
    return back_to(request, f"/lab/{work.number}")


def asked_in(form: dict[str, str]) -> dict[str, Any]:
    """What a form asks for. Raises BadInput."""
    words = re.split(r",(?![^()]*\))", form.get("recipes", "")[:1000])
    recipes = list(dict.fromkeys(word.strip() for word in words if word.strip()))
    for recipe in recipes:
        if not _RECIPE.fullmatch(recipe) or ".py" in recipe:
            raise BadInput(f"{recipe[:60]!r} is not a recipe", mend="write like las or gavel(x=1)")
    if not 1 <= len(recipes) <= RECIPES_MAX:
        raise BadInput(f"{len(recipes)} recipes", mend=f"name one to {RECIPES_MAX}")
    kind, cluster = form.get("kind", ""), form.get("cluster", "").strip()
    if kind not in KINDS:
        raise BadInput(
            f"{kind[:40]!r} is not a kind of trace", mend=f"choose of {', '.join(KINDS)}"
        )
    if not _CLUSTER.fullmatch(cluster):
        raise BadInput(f"{cluster[:40]!r} is not a cluster", mend="write like 2x4xV100")
    return {
        "kind": kind,
        "jobs": _whole(form, "jobs", 1, JOBS_MAX),
        "seed": _whole(form, "seed", 0, 10**9),
        "cluster": cluster,
        "recipes": recipes,
    }


def _whole(form: dict[str, str], name: str, least: int, ceiling: int) -> int:
    text = form.get(name, "")
    if not (
        text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= ceiling
    ):
        raise BadInput(f"{text[:20]!r} is not a number from {least} to {ceiling:,}", where=name)
    return int(text)


def _work(request: Request) -> Work:
    text = request.path_params["number"]
    work = pages_of(request).pool.get(int(text)) if text.isascii() and text.isdecimal() else None
    if work is None or work.kind != "lab":
        raise HTTPException(404)
    return work


def command(asked: dict[str, Any]) -> str:
    """The command line that has the same figures."""
    return (
        f"ganger simulate {asked['kind']}:{asked['jobs']}:{asked['seed']}"
        f" --cluster {asked['cluster']} --recipe '{','.join(asked['recipes'])}'"
    )


async def result(request: Request) -> Response:
    """One replay: how far it is, or its charts."""
    work = _work(request)
    shared = {**work.asked, "recipes": ", ".join(work.asked["recipes"])}
    return page(
        request,
        "lab_result",
        "Lab",
        work=work,
        body=_body(request, work),
        shared=urlencode(shared),
        command=command(work.asked),
    )


async def result_now(request: Request) -> Response:
    """The same, without the page around it."""
    return html(request, _body(request, _work(request)))


def _body(request: Request, work: Work) -> str:
    played = msgspec.json.decode(work.result, type=Played) if work.result else None
    charts: list[Gantt] = gantt(played) if played else []
    session = session_of(request)
    return fill(
        "lab_body",
        work=work,
        played=played,
        charts=charts,
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session and not session.read_only else "",
    )


async def csv(request: Request) -> Response:
    """The figures of a replay as CSV."""
    work = _work(request)
    if not work.result:
        raise HTTPException(404)
    played = msgspec.json.decode(work.result, type=Played)
    names = list(played.runs[0].figures)
    lines = [",".join(("recipe", *names))]
    for run in played.runs:
        recipe = run.recipe.replace('"', '""')
        lines.append(",".join((f'"{recipe}"', *(repr(run.figures[name]) for name in names))))
    headers = {"Content-Disposition": f'attachment; filename="lab-{work.number}.csv"'}
    return Response("\n".join(lines) + "\n", headers=headers, media_type="text/csv")


async def end(request: Request) -> Response:
    """Let a replay be."""
    work = _work(request)
    pages_of(request).pool.end(work)
    return back_to(request, "/lab")
