"""The cluster: a map of nodes and GPUs, the load of the last day, and the list of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answering.gpu_map import MapAnswer
from ganger.client.answers import IdleAnswer, NodeAnswer
from ganger.client.connection import NoDaemon
from ganger.core.errors import BadInput
from ganger.web.door import PREFIX, form_of
from ganger.web.live import Live, Sample
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
from ganger.web.shown.map import WAYS, draw

NODES_A_PAGE: Final = 200
POINTS_MAX: Final = 240
_ORDERS: Final = {"drain": "nothing new starts on", "resume": "jobs may start again on"}
_HOURS: Final = 24


async def cluster(request: Request) -> Response:
    """The page."""
    by = choice(request, "by", tuple(WAYS))
    drawn = await kept(request, _map_key(request, by), lambda: _map(request, by))
    load = _load(pages_of(request).live)
    return page(request, "cluster", "Cluster", by=by, ways=WAYS, drawn=drawn, load=load)


async def cluster_map(request: Request) -> Response:
    """The map as it is now."""
    by = choice(request, "by", tuple(WAYS))
    return await part(request, _map_key(request, by), lambda: _map(request, by))


def _map_key(request: Request, by: str) -> str:
    return key_of("map", by=by, at=request.scope[PREFIX])


async def _map(request: Request, by: str) -> str:
    pages = pages_of(request)
    backend = pages.backend
    answer_map: MapAnswer = await backend.get("/v1/map", MapAnswer)
    idle: set[int] = set()
    if by == "use":
        answer: IdleAnswer = await backend.get("/v1/idle", IdleAnswer)
        idle = {job.job for job in answer.jobs if job.told}
    prefix = request.scope[PREFIX]
    drawn = await asyncio.to_thread(draw, answer_map, by, idle, prefix)
    return fill(
        "cluster_map", drawn=drawn, by=by, status=pages.live.status, prefix=prefix, found=answer_map
    )


async def load(request: Request) -> Response:
    """The load of the last day, as a chart's points and as a table."""
    return html(request, _load(pages_of(request).live))


def _load(live: Live) -> str:
    samples = list(live.samples)
    points = thinned(samples, POINTS_MAX)
    hours = thinned(
        [sample for sample in samples if samples[-1].at - sample.at < _HOURS * 3600], _HOURS
    )
    data = [[round(sample.at) for sample in points], [sample.held for sample in points]]
    data += [[sample.gpus for sample in points], [sample.waiting for sample in points]]
    return fill("cluster_load", points=msgspec.json.encode(data).decode(), hours=hours)


def thinned(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """At most `most` of them: means over equal numbers of neighbours, at the time of the last."""
    size = -(-len(samples) // limit) if samples else 1
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    return [
        Sample(
            group[-1].at,
            round(sum(sample.held for sample in group) / len(group)),
            group[-1].gpus,
            round(sum(sample.waiting for sample in group) / len(group)),
        )
        for group in groups
    ]


async def nodes(request: Request) -> Response:
    """The list of nodes: the page around it."""
    find, at, key = _list(request)
    rows = await kept(request, key, lambda: _rows(request, find, at))
    return page(request, "nodes", "Nodes", find=find, at=at, rows=rows)


async def node_rows(request: Request) -> Response:
    """The rows of one page of it."""
    find, at, key = _list(request)
    return await part(request, key, lambda: _rows(request, find, at))


def _list(request: Request) -> tuple[str, int, str]:
    """What is looked for, on which page, and what the part is called that shows it."""
    find, at = request.query_params.get("find", "")[:200], number(request, "page", 100_000)
    return find, at, key_of("nodes", find=find, page=at, at=request.scope[PREFIX])


async def _rows(request: Request, find: str, at: int) -> str:
    nodes: list[NodeAnswer] = await pages_of(request).backend.get("/v1/nodes", list[NodeAnswer])
    part = find.casefold()
    meant = [
        node
        for node in nodes
        if part in node.name.casefold() or part in node.gpu_type.casefold() or part == node.state
    ]
    begin = at * NODES_A_PAGE
    return fill(
        "node_rows",
        nodes=meant[begin : begin + NODES_A_PAGE],
        total=len(meant),
        at=at,
        last=max(-(-len(meant) // NODES_A_PAGE) - 1, 0),
        find=find,
        prefix=request.scope[PREFIX],
    )


async def node_orders(request: Request) -> Response:
    """Drain or resume the nodes that are ticked."""
    form = form_of(request)
    verb, names = form.get("verb", [""])[0], form.get("node", [])
    if verb not in _ORDERS:
        raise BadInput(f"{verb[:40]!r} is not an order for nodes")
    if not names:
        raise BadInput("no node is chosen", mend="tick some")
    pages = pages_of(request)
    path = ",".join(quote(name, safe="") for name in names)
    try:
        await pages.backend.order("POST", f"/v1/nodes/{path}/{verb}", list[NodeAnswer])
    except NoDaemon:
        await pages.live.look()
        raise
    await pages.live.look()
    if "hx-request" not in request.headers:
        return back_to(request, "/nodes")
    undo = "resume" if verb == "drain" else "drain"
    some = names[0] if len(names) == 1 else f"{len(names)} nodes"
    return toast(
        request,
        f"{_ORDERS[verb].capitalize()} {some}.",
        path="/nodes/orders",
        verb=undo,
        node=names,
    )
