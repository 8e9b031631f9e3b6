"""The recipes: a gallery of cards with what each makes of the same example, and a page for each."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ganger.web.background.cards import PLANE_WORDS, Card, said
from ganger.web.background.pool import Work
from ganger.web.door import PREFIX
from ganger.web.pages.frame import choice, fill, html, page, pages_of

OVER: Final = ("", *PLANE_WORDS.values())
KNOWS: Final = {
    "": "anything",
    "nothing": "nothing",
    "durations": "durations",
    "throughputs": "throughputs",
}
"""What a recipe may have to know at the most."""
_YES: Final = ("", "yes")


async def recipes(request: Request) -> Response:
    """The page."""
    view = _view(request)
    return page(
        request,
        "recipes",
        "Recipes",
        view=view,
        over=OVER,
        knows=KNOWS,
        cards=_cards(request, view),
    )


async def recipe_cards(request: Request) -> Response:
    """The cards as far as they are made."""
    return html(request, _cards(request, _view(request)))


def _view(request: Request) -> dict[str, str]:
    """What is looked for."""
    return {
        "find": request.query_params.get("find", "").strip()[:100],
        "over": choice(request, "over", OVER),
        "improves": request.query_params.get("improves", "")[:40],
        "knows": choice(request, "knows", tuple(KNOWS)),
        "elastic": choice(request, "elastic", _YES),
        "types": choice(request, "types", _YES),
    }


def work_of(request: Request) -> Work:
    """The making of cards and drawings: done once for these pages, again where it failed."""
    pages = pages_of(request)
    if pages.gallery is None or pages.gallery.state in ("failed", "ended"):
        pages.gallery = pages.pool.start("gallery", {})
    return pages.gallery


def _cards(request: Request, view: dict[str, str]) -> str:
    before = pages_of(request).gallery
    why = before.why if before is not None and before.state == "failed" else ""
    work = work_of(request)
    every = said(work.parts)
    meant = [card for card in every if is_meant(card, view)]
    query = urlencode({name: value for name, value in view.items() if value})
    return fill(
        "recipe_cards",
        cards=meant,
        total=len(every),
        improves=sorted({word for card in every for word in card.improves}),
        drawn=set(work.parts),
        work=work,
        why=why,
        again=f"{request.scope[PREFIX]}/recipes/cards?{query}",
        prefix=request.scope[PREFIX],
        view=view,
    )


def is_meant(card: Card, view: dict[str, str]) -> bool:
    """Whether a card passes all filters."""
    words = " ".join((card.name, card.summary, card.paper, *card.wants, *card.made)).casefold()
    known = {"": None, "nothing": set(), "durations": {"durations"}}.get(
        view["knows"], {"throughputs"}
    )
    return (
        all(word in words for word in view["find"].casefold().split())
        and view["over"] in ("", card.over)
        and (not view["improves"] or view["improves"] in card.improves)
        and (known is None or set(card.knows) <= known)
        and (not view["elastic"] or card.elastic)
        and (not view["types"] or card.types)
    )


async def recipe(request: Request) -> Response:
    """One recipe."""
    work = work_of(request)
    name = request.path_params["name"]
    every = said(work.parts)
    card = next((each for each in every if each.name == name), None)
    if card is None and every:
        raise HTTPException(404)
    return page(request, "recipe", name, card=card, work=work, drawn=name in work.parts)


async def recipe_schedule(request: Request) -> Response:
    """What a recipe makes of the example, drawn."""
    name = request.path_params["name"]
    drawing = work_of(request).parts.get(name)
    if name == "cards" or not isinstance(drawing, str):
        raise HTTPException(404)
    headers = {"Cache-Control": "private, max-age=300"}
    return Response(drawing, headers=headers, media_type="image/svg+xml")
