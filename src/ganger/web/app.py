"""The application: which path leads to which page."""

from __future__ import annotations

import gzip
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ganger import __version__
from ganger.client.connection import NoDaemon
from ganger.core.errors import BadInput, GangerError
from ganger.web.door import session_of
from ganger.web.pages import (
    cluster,
    entrance,
    families,
    job,
    lab,
    lessons,
    queue,
    recipes,
    tenants,
    whatif,
)
from ganger.web.pages.frame import Pages, failed, page, pages_of
from ganger.web.pushed import Pushed

Handler = Callable[[Request], Awaitable[Response]]
_TYPES: Final = {
    ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".LICENSE": "text/plain",
}  # fmt: skip
_OWN: Final = ("ganger.web", "static")
_SCRIPTS: Final = (
    "app.js", "theme.js", "worker.js", "load.js", "enter.js", "lab.js", "charts.js", "cluster.js",
    "figure.js", "file.js",
)  # fmt: skip
_VENDOR: Final = ("htmx.min.js", "uplot.min.js", "uplot.min.css", "htmx.LICENSE", "uplot.LICENSE")
_FILES: Final = {
    **dict.fromkeys(("style.css", "icon.svg", *_SCRIPTS), _OWN),
    **dict.fromkeys((f"vendor/{name}" for name in _VENDOR), _OWN),
    **dict.fromkeys(("tokens.css", "charts.css", "draw.js", "save.js"), ("ganger.lab.report", "")),
}
"""What browsers get as it is, and where it lies: no request names a file."""

_NOTHING_HERE: Final = "Nothing is at this address; the menu leads to all that there is."


def application(pages: Pages) -> Starlette:
    """The application over `pages`."""
    get, post = ["GET"], ["POST"]
    routes = [Route("/", _seen(lab.lab, full=True), methods=get)] if pages.lab else _of_a_daemon()
    routes += [
        Route("/events", _seen(entrance.events), methods=get),
        Route("/static/{name:path}", static, methods=get),
        Route("/recipes", _seen(recipes.recipes), methods=get),
        Route("/recipes/cards", _seen(recipes.recipe_cards), methods=get),
        Route("/recipes/{name}", _seen(recipes.recipe), methods=get),
        Route("/recipes/{name}/schedule.svg", _seen(recipes.recipe_schedule), methods=get),
        Route("/sessions", _seen(entrance.sessions, full=True), methods=get),
        Route("/sessions/end", _seen(entrance.end_session), methods=post),
        Route("/enter", entrance.enter_page, methods=get),
        Route("/enter", entrance.enter, methods=post),
        Route("/favicon.ico", _nothing, methods=get),
        Route("/lab", _seen(lab.lab, full=True), methods=get),
        Route("/lab", _seen(lab.begin), methods=post),
        Route("/lab/{number}", _seen(lab.result, full=True), methods=get),
        Route("/lab/{number}/now", _seen(lab.result_now, full=True), methods=get),
        Route("/lab/{number}/figures.csv", _seen(lab.csv, full=True), methods=get),
        Route("/lab/{number}/decisions.json", _seen(lab.decisions, full=True), methods=get),
        Route("/lab/{number}/end", _seen(lab.end), methods=post),
    ]
    routes += [
        Route("/lessons", _seen(lessons.lessons, full=True), methods=get),
        Route("/lessons/{name}", _seen(lessons.lesson, full=True), methods=get),
        Route("/lessons/{name}", _seen(lessons.begin), methods=post),
        Route("/lessons/{name}/{number}", _seen(lessons.result, full=True), methods=get),
        Route("/lessons/{name}/{number}/now", _seen(lessons.result_now, full=True), methods=get),
        Route("/lessons/{name}/{number}/tables.csv", _seen(lessons.csv, full=True), methods=get),
        Route("/lessons/{name}/{number}/end", _seen(lessons.end), methods=post),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http})
    app.router.redirect_slashes = False
    app.state.pages = pages
    pages.pushed = Pushed(app)
    return app


def _of_a_daemon() -> list[Route]:
    """The pages over a daemon. A request looks at one after the other: first stands what every open
    page asks for again and again."""
    get, post = ["GET"], ["POST"]
    return [
        Route("/queue/rows", _seen(queue.queue_rows), methods=get),
        Route("/cluster/map", _seen(cluster.cluster_map), methods=get),
        Route("/jobs/{job}/now", _seen(job.job_now, full=True), methods=get),
        Route("/jobs/{job}/log", _seen(job.log, full=True), methods=get),
        Route("/nodes/rows", _seen(cluster.node_rows), methods=get),
        Route("/tenants/rows", _seen(tenants.tenant_rows), methods=get),
        Route("/experiments/rows", _seen(families.experiment_rows), methods=get),
        Route("/services/rows", _seen(families.service_rows), methods=get),
        Route("/", _seen(cluster.cluster), methods=get),
        Route("/cluster/load", _seen(cluster.load), methods=get),
        Route("/nodes", _seen(cluster.nodes), methods=get),
        Route("/nodes/orders", _seen(cluster.node_orders), methods=post),
        Route("/tenants", _seen(tenants.tenants), methods=get),
        Route("/tenants/usage", _seen(tenants.usage), methods=get),
        Route("/queue", _seen(queue.queue), methods=get),
        Route("/queue/orders", _seen(queue.orders), methods=post),
        Route("/queue/ahead", _seen(queue.ahead), methods=post),
        Route("/jobs/{job}", _seen(job.job, full=True), methods=get),
        Route("/jobs/{job}/why", _seen(queue.why, full=True), methods=get),
        Route("/jobs/{job}/log/file", _seen(job.log_file, full=True), methods=get),
        Route("/jobs/{job}/again", _seen(job.again), methods=post),
        Route("/jobs/{job}/children", _seen(families.children, full=True), methods=get),
        Route("/jobs/{job}/windows", _seen(families.windows, full=True), methods=get),
        Route("/experiments", _seen(families.experiments), methods=get),
        Route("/services", _seen(families.services), methods=get),
        Route("/whatif", _seen(whatif.whatif, full=True), methods=get),
        Route("/whatif", _seen(whatif.begin), methods=post),
        Route("/whatif/{number}", _seen(whatif.result, full=True), methods=get),
        Route("/whatif/{number}/now", _seen(whatif.result_now, full=True), methods=get),
        Route("/whatif/{number}/end", _seen(whatif.end), methods=post),
    ]


def _seen(handler: Handler, *, full: bool = False) -> Handler:
    """The page, or why there is none. Who has no session is told how to come in. `full`: a link
    that only shows does not lead here: there are commands, folders and outputs."""

    async def respond(request: Request) -> Response:
        session = session_of(request)
        if session is None:
            return await entrance.enter_page(request)
        if full and session.read_only:
            return page(
                request,
                "error",
                "Not with this link",
                403,
                what="This link shows the cluster and the queue only.",
                mend="",
            )
        pages_of(request).live.used = time.monotonic()
        try:
            return await handler(request)
        except HTTPException:
            raise
        except NoDaemon as error:
            await pages_of(request).live.look()
            return failed(request, error)
        except GangerError as error:
            return failed(request, error)
        except Exception as error:
            _log_once(error)
            what = f"A bug in these pages: {type(error).__name__}."
            mend = "Their log has more; please report it."
            return failed(request, BadInput(what, mend=mend), 500)

    return respond


_logged: Final[set[tuple[str, int]]] = set()


def _log_once(error: Exception) -> None:
    """Write where a bug is, once for each place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = last.filename, last.lineno or 0
    if place not in _logged:
        _logged.add(place)
        traceback.print_exception(error)


async def static(request: Request) -> Response:
    """A file of the pages; a browser keeps it until the version changes."""
    name = request.path_params["name"]
    if name not in _FILES:
        raise HTTPException(404)
    kind = next(kind for end, kind in _TYPES.items() if name.endswith(end))
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    if request.query_params.get("v") != __version__ and name != "worker.js":
        headers = {"Cache-Control": "no-cache"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(_packed(name), 200, headers, media_type=kind)
    return Response(_asset(name), 200, headers, media_type=kind)


@cache
def _asset(name: str) -> bytes:
    package, folder = _FILES[name]
    return files(package).joinpath(folder, name).read_bytes()


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(_asset(name), 9, mtime=0)


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = _NOTHING_HERE if error.status_code == 404 else error.detail
    if session_of(request) is None:
        return Response(f"{text}\n", error.status_code, media_type="text/plain")
    return page(request, "error", "No such page", error.status_code, what=text, mend="")
