"""What all pages share: templates, answers, errors, and the state of the process."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ganger import __version__
from ganger.client.answers import Usage
from ganger.client.connection import NoDaemon, Refusal
from ganger.client.shown import shown
from ganger.core.errors import BadInput, GangerError
from ganger.web.backend import Backend, Fragments
from ganger.web.background.pool import Pool, Work
from ganger.web.door import PREFIX, Address, session_of
from ganger.web.expected import Expected
from ganger.web.live import Live
from ganger.web.pushed import Pushed
from ganger.web.sessions import Sessions, masked
from ganger.web.shown import words
from ganger.web.shown.nodes import Nodes

_COMPRESSED_FROM: Final = 1400
"""An answer that fits into one packet is sent as it is."""


@dataclass
class Pages:
    """What the process holds: the daemon, its changes, sessions, the parts that are kept."""

    backend: Backend
    live: Live
    sessions: Sessions
    address: Address
    home: str
    lab: bool = False
    fragments: Fragments = field(default_factory=Fragments)
    pool: Pool = field(default_factory=Pool)
    gallery: Work | None = None
    bills: dict[tuple[float, float], list[Usage]] = field(default_factory=dict)
    """What tenants used in parts of the past, from and to Unix seconds."""
    expected: Expected = field(init=False)
    nodes: Nodes = field(init=False)
    pushed: Pushed = field(init=False)
    """Set by the application over these."""

    def __post_init__(self) -> None:
        self.nodes = Nodes(self.backend)
        self.expected = Expected(self.backend, self.live)


def pages_of(request: Request) -> Pages:
    """What the process was started with."""
    pages: Pages = request.app.state.pages
    return pages


@cache
def environment() -> Environment:
    """The templates; everything that is put into them is escaped."""
    made = Environment(
        loader=PackageLoader("ganger.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        when=words.when,
        lasting=words.lasting,
        since=words.since,
        reason=words.reason,
        counted=words.counted,
        coded=words.coded,
        prose=words.prose,
        shown=shown,
    )
    made.globals.update(version=__version__)
    return made


def fill(template: str, **values: Any) -> str:
    """A template with these values."""
    return environment().get_template(f"{template}.html.j2").render(**values)


def page(request: Request, template: str, title: str, status: int = 200, **values: Any) -> Response:
    """A whole page."""
    pages, session = pages_of(request), session_of(request)
    text = fill(
        template,
        title=title,
        here=request.scope["path"],
        prefix=request.scope[PREFIX],
        session=session,
        csrf=masked(session) if session else "",
        tick=pages.live.tick,
        up=pages.live.up,
        home=pages.home,
        lab=pages.lab,
        **values,
    )
    return html(request, text, status)


def html(request: Request, text: str, status: int = 200) -> Response:
    """HTML, compressed where that is worth it."""
    data = text.encode()
    if len(data) < _COMPRESSED_FROM or not takes_gzip(request):
        return Response(data, status, media_type="text/html")
    return _packed(gzip.compress(data, 5, mtime=0), status)


def json(request: Request, value: Any) -> Response:
    """Data for a script, compressed where that is worth it."""
    data = msgspec.json.encode(value)
    if len(data) < _COMPRESSED_FROM or not takes_gzip(request):
        return Response(data, media_type="application/json")
    return _packed(gzip.compress(data, 5, mtime=0), kind="application/json")


def _packed(data: bytes, status: int = 200, kind: str = "text/html") -> Response:
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(data, status, headers, media_type=kind)


def takes_gzip(request: Request) -> bool:
    """Whether the browser reads what is compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


async def kept(request: Request, key: str, make: Callable[[], Awaitable[str]]) -> str:
    """A part of a page as text, to stand in a whole page; while no daemon answers, that."""
    pages = pages_of(request)
    if not pages.live.up:
        return fill("unknown", home=pages.home)
    return (await pages.fragments.get(key, pages.live.tick, make)).text


async def part(request: Request, key: str, make: Callable[[], Awaitable[str]]) -> Response:
    """A part of a page that looks the same to everybody. `key`: its name and what it depends on."""
    pages = pages_of(request)
    made = await pages.fragments.get(key, pages.live.tick, make)
    if takes_gzip(request):
        return _packed(made.packed)
    return Response(made.text, media_type="text/html")


def key_of(name: str, /, **values: object) -> str:
    """The name of a part, with what it depends on."""
    return f"{name}?{urlencode({k: v for k, v in values.items() if v not in ('', 0)})}"


def failed(request: Request, error: GangerError, status: int = 400) -> Response:
    """What somebody sees whose request came to nothing."""
    status = error.status if isinstance(error, Refusal) else status
    if isinstance(error, NoDaemon):
        status = 503
    what, mend = shown(getattr(error, "what", str(error))), shown(getattr(error, "mend", ""))
    if status == 404:  # the daemon speaks to the command line
        mend = "The queue has all jobs, also those that are over, under Show: All."
    if "hx-request" in request.headers:
        return toast(request, what, mend=mend, status=status)
    title = "The daemon does not answer" if status == 503 else "This did not work"
    return page(request, "error", title, status, what=what, mend=mend)


def toast(request: Request, text: str, status: int = 200, mend: str = "", **undo: Any) -> Response:
    """One sentence about what was done. `undo`: the fields of the form that takes it back."""
    session = session_of(request)
    sentence = fill(
        "toast",
        text=text,
        mend=mend,
        failed=status >= 400,
        undo=undo,
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session and undo else "",
    )
    answer = html(request, sentence, status)
    if status < 400:
        answer.headers["HX-Trigger"] = "ganger:done"
    return answer


def back_to(request: Request, path: str) -> Response:
    """Go on at another page of these."""
    return RedirectResponse(f"{request.scope[PREFIX]}{path}", 303)


def number(request: Request, name: str, limit: int) -> int:
    """A whole number of the query, from 0. Raises BadInput."""
    text = request.query_params.get(name, "0") or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= limit):
        raise BadInput(f"{text[:40]!r} is not a number from 0 to {limit:,}", where=name)
    return int(text)


def choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """A word of the query that is one of `choices`, the first by default. Raises BadInput."""
    text = request.query_params.get(name, "") or choices[0]
    if text not in choices:
        raise BadInput(
            f"{text[:40]!r} is not one of {', '.join(filter(None, choices))}", where=name
        )
    return text
