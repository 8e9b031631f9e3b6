"""Tenants: what each holds and has used, its fair share, its limit, and what it cost."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answers import Quota, Share, Usage
from ganger.web.door import PREFIX
from ganger.web.live import Live
from ganger.web.pages.frame import choice, fill, html, kept, key_of, page, pages_of, part

TENANTS_MAX: Final = 1000
SPANS: Final = {"day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0, "all": 0.0}
"""Of which time the usage is, in seconds; 0: since the journal began."""


async def tenants(request: Request) -> Response:
    """The page."""
    rows = await kept(request, _key(request), lambda: _rows(request))
    return page(request, "tenants", "Tenants", rows=rows, spans=SPANS)


async def tenant_rows(request: Request) -> Response:
    """The tenants as they are now."""
    return await part(request, _key(request), lambda: _rows(request))


def _key(request: Request) -> str:
    return key_of("tenants", at=request.scope[PREFIX])


async def _rows(request: Request) -> str:
    backend = pages_of(request).backend
    shares: list[Share] = await backend.get("/v1/fairshare", list[Share])
    quotas: list[Quota] = await backend.get("/v1/quotas", list[Quota])
    limits = {quota.tenant: quota for quota in quotas}
    ordered = sorted(shares, key=lambda share: (-share.gpus, -share.gpu_hours, share.tenant))
    silent = sorted(set(limits) - {share.tenant for share in shares})
    return fill(
        "tenant_rows",
        shares=ordered[:TENANTS_MAX],
        left_out=len(ordered[TENANTS_MAX:]),
        limits=limits,
        silent=silent,
        prefix=request.scope[PREFIX],
    )


async def usage(request: Request) -> Response:
    """What tenants used in a span of time, which the daemon works out from its journal."""
    span = choice(request, "span", tuple(SPANS))
    query = _since(pages_of(request).live, SPANS[span])
    bills: list[Usage] = await pages_of(request).backend.get(
        "/v1/usage", list[Usage], slow=True, **query
    )
    bills.sort(key=lambda bill: (-bill.gpu_hours, bill.tenant))
    return html(request, fill("usage", bills=bills[:TENANTS_MAX], prefix=request.scope[PREFIX]))


def _since(live: Live, seconds: float) -> dict[str, float]:
    now = live.status.now if live.status else 0.0
    return {"since": max(now - seconds, 0.0)} if seconds else {}
