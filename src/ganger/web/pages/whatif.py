"""What other recipes, or more or fewer GPUs, would make of the present queue or of the last days:
simulated in the background, compared in one chart and one table."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answers import NodeAnswer, PastAnswer
from ganger.client.shown import shown
from ganger.core.errors import BadInput
from ganger.lab.lessons.fields import check_recipe
from ganger.web.background.comparing import Compared, nodes_in_words
from ganger.web.background.pool import Work
from ganger.web.door import PREFIX, form_of, session_of
from ganger.web.pages.frame import back_to, fill, html, page, pages_of
from ganger.web.sessions import masked
from ganger.web.shown.charts import Bar, bars
from ganger.web.shown.words import lasting

OFFERED: Final = ("fifo", "backfill", "sjf", "srtf", "las", "tiresias", "gittins", "drf")
"""Recipes that can be ticked; others are written."""
RECIPES_MAX: Final = 8
JOBS_MAX: Final = 10_000
DAYS_MAX: Final = 365
NODES_MAX: Final = 1000
OBJECTIVES: Final = {"jct": "mean time to the end", "makespan": "time until all are over"}


async def whatif(request: Request) -> Response:
    """The page: what to compare, and what was compared."""
    pages = pages_of(request)
    types: list[str] = []
    if pages.live.up:
        nodes: list[NodeAnswer] = await pages.backend.get("/v1/nodes", list[NodeAnswer])
        types = sorted({node.gpu_type for node in nodes if node.gpus})
    return page(
        request,
        "whatif",
        "What if",
        offered=OFFERED,
        objectives=OBJECTIVES,
        types=types,
        days_max=DAYS_MAX,
        nodes_max=NODES_MAX,
        works=[(work, tried(work)) for work in pages.pool.listed() if work.kind == "compare"],
    )


async def begin(request: Request) -> Response:
    """Simulate what the form asks for."""
    asked = asked_in(form_of(request))
    past: PastAnswer = await pages_of(request).backend.get(
        "/v1/history", PastAnswer, slow=True, days=asked.pop("days") or "", limit=JOBS_MAX
    )
    work = pages_of(request).pool.start(
        "compare",
        {
            **asked,
            "traces": past.traces,
            "without": past.without,
            "cluster": past.cluster,
            "recipe": past.recipe,
            "knows": "noisy" if past.knows == "history" else past.knows,
        },
    )
    return back_to(request, f"/whatif/{work.number}")


def asked_in(form: dict[str, list[str]]) -> dict[str, Any]:
    """What a form asks for. Raises BadInput."""
    written = [word.strip() for word in _split(form.get("others", [""])[0][:1000])]
    recipes = list(dict.fromkeys([*form.get("recipe", []), *(word for word in written if word)]))
    for recipe in recipes:
        check_recipe(recipe)
    if len(recipes) > RECIPES_MAX:
        raise BadInput(f"{len(recipes)} recipes", mend=f"choose at most {RECIPES_MAX}")
    nodes = _whole(form, "nodes", -NODES_MAX, NODES_MAX)
    if not recipes and not nodes:
        raise BadInput("nothing to compare", mend="choose a recipe, or more or fewer nodes")
    objective = form.get("objective", ["jct"])[0]
    if objective not in OBJECTIVES:
        raise BadInput(f"{objective[:40]!r} cannot be compared")
    queue = form.get("of", ["queue"])[0] == "queue"
    return {
        "recipes": recipes,
        "nodes": nodes,
        "kind": form.get("kind", [""])[0][:80],
        "objective": objective,
        "days": 0 if queue else _whole(form, "days", 1, DAYS_MAX),
    }


def _split(text: str) -> list[str]:
    """By commas outside parentheses."""
    return re.split(r",(?![^()]*\))", text)


def _whole(form: dict[str, list[str]], name: str, least: int, ceiling: int) -> int:
    text = form.get(name, ["0"])[0] or "0"
    try:
        value = int(text)
    except ValueError:
        value = ceiling + 1
    if not least <= value <= ceiling:
        raise BadInput(f"{text[:20]!r} is not a number from {least:,} to {ceiling:,}", where=name)
    return value


def _work(request: Request) -> Work:
    """The comparison that the path names."""
    work = pages_of(request).pool.called(request.path_params["number"])
    if work is None or work.kind != "compare":
        raise HTTPException(404)
    return work


async def result(request: Request) -> Response:
    """One comparison: how far it is, or what came of it."""
    work = _work(request)
    title = tried(work)
    return page(request, "whatif_result", title, work=work, body=_body(request, work))


def tried(work: Work) -> str:
    """What a comparison tries, in words."""
    parts = [*work.asked["recipes"], nodes_in_words(work.asked["nodes"])]
    return shown(", ".join(filter(None, parts)))


async def result_now(request: Request) -> Response:
    """The same, without the page around it."""
    return html(request, _body(request, _work(request)))


def _body(request: Request, work: Work) -> str:
    session = session_of(request)
    compared = msgspec.json.decode(work.result, type=Compared) if work.result else None
    return fill(
        "whatif_body",
        work=work,
        found=compared,
        chart=_chart(compared) if compared else "",
        said=sentence(compared) if compared else "",
        more=nodes_in_words(compared.nodes) if compared else "",
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session and not session.read_only else "",
    )


def _chart(compared: Compared) -> str:
    ran = [row for row in compared.rows if not row.why]
    jct = "JCT" in compared.metric
    return bars(
        [
            Bar(row.name, row.jct if jct else row.makespan, first=row.name == compared.pick)
            for row in ran
        ],
        f"{compared.metric} by recipe",
        lasting,
    )


def sentence(compared: Compared) -> str:
    """The recommendation."""
    pick = next(row for row in compared.rows if row.name == compared.pick)
    if pick.ratio is None:
        return f"Nothing that was tried is better than {pick.name}."
    name = pick.name + (f" with {more}" if (more := nodes_in_words(compared.nodes)) else "")
    less = 100.0 * (1.0 - pick.ratio)
    if pick.low is None or pick.high is None:
        return (
            f"{name}: {compared.metric} {less:.0f} % less than now in the one part that there"
            " is; how sure that is, one part does not tell."
        )
    between = f"between {100 * (1 - pick.high):.0f} and {100 * (1 - pick.low):.0f} %"
    if compared.sure:
        return f"Take {name}: {compared.metric} is {less:.0f} % less than now ({between}, 95 %)."
    return (
        f"Keep what is: {name} is the best of those tried, {less:.0f} % less, but that is not"
        f" sure ({between}, 95 %)."
    )


async def end(request: Request) -> Response:
    """Let a comparison be."""
    work = _work(request)
    pages_of(request).pool.end(work)
    return back_to(request, "/whatif")
