"""Tenants: what each holds and has used, its fair share, its limit and budget, what it cost, and
how that went over time."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answers import Quota, Share, Usage
from ganger.web.door import PREFIX
from ganger.web.live import Live
from ganger.web.pages.frame import Pages, choice, fill, html, kept, key_of, page, pages_of, part
from ganger.web.shown.charts import Line, lines
from ganger.web.shown.words import lasting

TENANTS_MAX: Final = 1000
SPANS: Final = {"day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0, "all": 0.0}
"""Of which time the usage is, in seconds; 0: since the journal began."""
PARTS: Final = {"day": 4 * 3600.0, "week": 86400.0, "month": 5 * 86400.0}
"""Seconds of the parts of it that the trend is made of."""
DRAWN: Final = 8
_KEPT_MAX: Final = 64


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
        budgets=any(quota.budget is not None for quota in quotas),
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
    parts = await _trend(pages_of(request), span)
    return html(
        request,
        fill(
            "usage",
            bills=bills[:TENANTS_MAX],
            names=[bill.tenant for bill in bills[:DRAWN]],
            parts=parts,
            picture=drawn([bill.tenant for bill in bills[:DRAWN]], parts),
        ),
    )


async def _trend(pages: Pages, span: str) -> list[tuple[float, dict[str, float]]]:
    """For each part of the span when it ended and how many GPUs each tenant held in the mean. The
    daemon reads its journal for each: what is past is asked once."""
    if span not in PARTS or pages.live.status is None:
        return []
    now, seconds = pages.live.status.now, PARTS[span]
    trend = []
    begin = (now - SPANS[span]) // seconds * seconds + seconds
    while begin < now:
        end = min(begin + seconds, now)
        bills = pages.bills.get((begin, end))
        if bills is None:
            bills = await pages.backend.get(
                "/v1/usage", list[Usage], slow=True, since=begin, until=end
            )
            if end < now:
                if len(pages.bills) >= _KEPT_MAX:
                    pages.bills.clear()
                pages.bills[begin, end] = bills
        hours = max(end - begin, 1.0) / 3600
        trend.append((end, {bill.tenant: bill.gpu_hours / hours for bill in bills}))
        begin += seconds
    return trend


def drawn(names: list[str], parts: list[tuple[float, dict[str, float]]]) -> Markup:
    """The GPUs that these tenants held in each part, drawn."""
    if len(parts) < 2:
        return Markup()
    every = [Line(name, [(end, held.get(name, 0.0)) for end, held in parts]) for name in names]
    last = parts[-1][0]

    def text(at: float) -> str:
        return "now" if at == last else f"{lasting(last - at)} ago"

    return lines(every, "GPUs held in the mean, by tenant", text, from_zero=True)


def _since(live: Live, seconds: float) -> dict[str, float]:
    now = live.status.now if live.status else 0.0
    return {"since": max(now - seconds, 0.0)} if seconds else {}
