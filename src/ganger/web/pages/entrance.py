"""Coming in and going: the page of a link, the list of sessions, signing out; and the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ganger.web.door import PREFIX, Address, bare, form_of, session_of
from ganger.web.live import STREAMS_MAX, STREAMS_OF_ONE
from ganger.web.pages.frame import back_to, page, pages_of, takes_gzip
from ganger.web.pushed import GZIP_HEAD, deflated, seen_of


async def enter_page(request: Request) -> Response:
    """The page that a link leads to; its script sends the token, which stands behind the #."""
    return page(request, "enter", "Come in", 200 if request.scope["path"] == "/enter" else 401)


async def enter(request: Request) -> Response:
    """A session for the token of a link. 204 with its cookie, or 403. Without a token: 204 if the
    browser has a session, which a page that another site led to cannot know otherwise; and so where
    the link was used already by somebody whose session may do what any link may."""
    pages, session = pages_of(request), session_of(request)
    token = form_of(request).get("token", [""])[0]
    if not token and session is not None:
        return Response(status_code=204)
    agent = request.headers.get("user-agent", "")
    cookie = pages.sessions.redeem(token, agent) if token else None
    if cookie is None and session is not None and not session.read_only:
        return Response(status_code=204)
    if cookie is None:
        return PlainTextResponse("This link was used already, or is older than a minute.\n", 403)
    answer = Response(status_code=204)
    answer.headers["Set-Cookie"] = _cookie(pages.address, request.headers["host"], cookie)
    return answer


def _cookie(address: Address, host: str, value: str) -> str:
    """The header that has a browser keep a session's cookie; with an empty value, lose it."""
    jar: SimpleCookie = SimpleCookie()
    jar[address.cookie] = value
    made = jar[address.cookie]
    made["path"] = f"{address.prefix}/"
    made["httponly"], made["samesite"] = True, "Strict"
    made["secure"] = bare(host) in address.secure
    if not value:
        made["max-age"] = 0
    return made.OutputString()


async def sessions(request: Request) -> Response:
    """Who is signed in."""
    pages = pages_of(request)
    return page(request, "sessions", "Sessions", listed=pages.sessions.listed())


async def end_session(request: Request) -> Response:
    """Sign out one session, or all; one's own ends with its cookie."""
    pages, own = pages_of(request), session_of(request)
    name = form_of(request).get("name", [""])[0]
    pages.sessions.end("" if name == "all" else name or (own.name if own else ""))
    if own is not None and name not in ("", "all", own.name):
        return back_to(request, "/sessions")
    answer = back_to(request, "/enter")
    answer.headers["Set-Cookie"] = _cookie(pages.address, request.headers["host"], "")
    return answer


async def events(request: Request) -> Response:
    """Changes, as server-sent events: one stream for each browser, which its tabs share. It has the
    parts whose addresses stand under `see`, each when it is another than before."""
    pages, session = pages_of(request), session_of(request)
    live, name = pages.live, session.name if session else ""
    if live.streams >= STREAMS_MAX or live.of[name] >= STREAMS_OF_ONE:
        return PlainTextResponse("Too many browsers look at these pages.\n", 503)
    packs = takes_gzip(request)
    seen = seen_of(request.query_params.getlist("see"), request.scope[PREFIX]) if packs else []
    sent: dict[str, int] = {}

    async def news(tick: int) -> AsyncIterator[bytes]:
        if session is None or not pages.sessions.still(session):
            raise EOFError
        for path in seen:
            part = await pages.pushed.get(path, tick, request.scope)
            if part is not None and sent.get(path) != part.mark:
                sent[path] = part.mark
                yield part.packed

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if packs:
        stream = live.stream(news, deflated, GZIP_HEAD, name)
        headers["Content-Encoding"] = "gzip"
    else:
        stream = live.stream(news, session=name)
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")
