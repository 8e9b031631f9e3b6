"""Which requests come in: the Host, the session, the token against cross-site requests; and the
headers that every answer carries. It wraps the whole application, so that no page is beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ganger.web.connections import know
from ganger.web.sessions import Session, Sessions, is_own

FORM_BYTES_MAX: Final = 64 << 10
TRACE_BYTES_MAX: Final = 1 << 20
"""Of a text that a browser sends to the lab; in a form each byte may take three."""
LARGE_FORMS: Final = {"/lab": 3 * TRACE_BYTES_MAX + FORM_BYTES_MAX}
FIELDS_MAX: Final = 1000
CSRF: Final = "csrf"
"""The field of every form that changes something."""
SESSION: Final = "ganger.session"
FORM: Final = "ganger.form"
PREFIX: Final = "ganger.prefix"
_OPEN: Final = ("/enter", "/static/", "/favicon.ico")
"""What needs no session: the page of a link, and what it is made of."""
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


@dataclass(frozen=True)
class Address:
    """Under which names the pages are reached: `name` is the home's own, `NAME.localhost`; `hosts`
    are those of `--web-host`, of which `secure` ones by https only; `prefix` stands before every
    path, like `/ganger`, or is empty."""

    name: str
    hosts: frozenset[str] = frozenset()
    secure: frozenset[str] = frozenset()
    prefix: str = ""

    def knows(self, host: str) -> bool:
        """Whether a Host header names these pages: loopback at any port, or a stated name."""
        plain = bare(host)
        return plain in ("localhost", "127.0.0.1", "[::1]", self.name) or plain in self.hosts

    @property
    def cookie(self) -> str:
        """What the cookie is called: the pages of two homes do not overwrite each other's."""
        return f"ganger-{self.name.partition('.')[0]}"


def bare(host: str) -> str:
    """A host without its port, in small letters and without a dot at its end."""
    return _PORT.sub("", host).lower().rstrip(".")


class Door:
    """Lets in everybody with a session, and to the page of a link all others."""

    def __init__(self, app: ASGIApp, sessions: Sessions, address: Address) -> None:
        self._app, self._sessions, self._address = app, sessions, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"] = [*message["headers"], *_HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        answer = await self._refusal(scope, receive)
        await (answer or self._app)(scope, receive, with_headers)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        """What is said instead of an answer; None if the request may go on."""
        request = Request(scope, receive)
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._address.knows(hosts[0]):
            return _no(421, "These pages have no such name. Start them with --web-host NAME.")
        prefix = self._address.prefix
        if prefix and (scope["path"] == prefix or scope["path"].startswith(f"{prefix}/")):
            scope["path"] = scope["path"][len(prefix) :] or "/"
        scope[PREFIX] = prefix
        scope[SESSION] = session = self._session(request)
        if session is not None:
            know(scope.get("state", {}), session.name)
        free = scope["path"].startswith(_OPEN)
        if session is None and not free:
            return None if _is_page(request) else _no(401, "Signed out: run `ganger open`.")
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return _no(405, "Only GET and POST.")
        return await self._refuse_post(request, session, free)

    async def _refuse_post(
        self, request: Request, session: Session | None, free: bool
    ) -> Response | None:
        """A change comes from a page of this origin that states the token of its session."""
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _no(403, "This request comes from another site.")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers["host"]:
            return _no(403, "This request comes from another site.")
        form = await _form(request)
        if form is None:
            return _no(413, "The form is too large, or is not a form.")
        request.scope[FORM] = form
        if free:
            return None
        if session is None:
            return _no(401, "Signed out: run `ganger open`.")
        if not is_own(session, form.get(CSRF, [""])[0]):
            return _no(403, "This form is of another session. Load the page again.")
        if session.read_only:
            return _no(403, "This link shows, and changes nothing.")
        return None

    def _session(self, request: Request) -> Session | None:
        for each in request.headers.get("cookie", "")[:4096].split(";"):
            name, _, value = each.strip().partition("=")
            if name == self._address.cookie and (session := self._sessions.of(value)) is not None:
                return session
        return None


def _is_page(request: Request) -> bool:
    """Whether a browser asks for a page as a whole, which may then tell how to come in."""
    return (
        request.method == "GET"
        and "hx-request" not in request.headers
        and ("text/html" in request.headers.get("accept", ""))
    )


async def _form(request: Request) -> dict[str, list[str]] | None:
    """The fields of a form; None if it is too large or no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    limit = LARGE_FORMS.get(request.scope["path"], FORM_BYTES_MAX)
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                return None
    except ClientDisconnect:
        return None
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return None
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def _no(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status, headers={"Connection": "close"})


def session_of(request: Request) -> Session | None:
    """The session that the request belongs to."""
    session: Session | None = request.scope[SESSION]
    return session


def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of the form that was sent."""
    fields: dict[str, list[str]] = request.scope[FORM]
    return fields
