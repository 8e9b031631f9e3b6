"""Searches with their trials, and services with their replicas and windows."""

from __future__ import annotations

import math
import time
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ganger.client.answering.families import ChildAnswer, ReportAnswer, ServiceAnswer
from ganger.client.answers import JobDetail, JobPage
from ganger.web.door import PREFIX
from ganger.web.pages.frame import fill, html, kept, key_of, number, page, pages_of, part
from ganger.web.shown.charts import Line, lines
from ganger.web.shown.words import lasting

SEARCHES_A_PAGE: Final = 50
CHILDREN_MAX: Final = 200
CURVES: Final = 8
LATENCIES: Final = ("p50", "p99")
_POINTS_MAX: Final = 1000


async def experiments(request: Request) -> Response:
    """The searches: the page around them."""
    key, at = _searches_key(request)
    rows = await kept(request, key, lambda: _searches(request, at))
    return page(request, "experiments", "Experiments", at=at, rows=rows)


async def experiment_rows(request: Request) -> Response:
    """One page of searches."""
    key, at = _searches_key(request)
    return await part(request, key, lambda: _searches(request, at))


def _searches_key(request: Request) -> tuple[str, int]:
    at = number(request, "page", 100_000)
    return key_of("experiments", page=at, at=request.scope[PREFIX]), at


async def _searches(request: Request, at: int) -> str:
    answer: JobPage = await pages_of(request).backend.get(
        "/v1/jobs",
        JobPage,
        kind="tune",
        alone=1,
        best=1,
        state="all",
        sort="-submitted",
        offset=at * SEARCHES_A_PAGE,
        limit=SEARCHES_A_PAGE,
    )
    last = max(-(-answer.total // SEARCHES_A_PAGE) - 1, 0)
    return fill(
        "experiment_rows",
        jobs=answer.jobs,
        total=answer.total,
        at=at,
        last=last,
        now=time.time(),
        prefix=request.scope[PREFIX],
    )


async def services(request: Request) -> Response:
    """The services: the page around them."""
    rows = await kept(request, _services_key(request), lambda: _services(request))
    return page(request, "services", "Services", rows=rows)


async def service_rows(request: Request) -> Response:
    """The services as they are now."""
    return await part(request, _services_key(request), lambda: _services(request))


def _services_key(request: Request) -> str:
    return key_of("services", at=request.scope[PREFIX])


async def _services(request: Request) -> str:
    running: list[ServiceAnswer] = await pages_of(request).backend.get(
        "/v1/services", list[ServiceAnswer]
    )
    return fill(
        "service_rows",
        services=running,
        figures={service.job: latest(service) for service in running},
        load={service.job: load(service) for service in running},
        prefix=request.scope[PREFIX],
    )


def latest(service: ServiceAnswer) -> dict[str, float]:
    """Figures of the last window: requests a second, the part of them that was late or dropped, the
    99th percentile of latency in seconds; those that are known."""
    if not service.windows:
        return {}
    window = service.windows[-1]
    figures, seconds = window.figures, window.until - window.since
    known = {str(name): figures[name] for name in ("p99", "queue", "busy") if name in figures}
    arrivals = figures.get("arrivals")
    if arrivals is not None and seconds > 0:
        known["rate"] = arrivals / seconds
    if arrivals:
        known["missed"] = (figures.get("late", 0.0) + figures.get("dropped", 0.0)) / arrivals
    return known


def load(service: ServiceAnswer) -> str:
    """Requests a second over its windows, drawn."""
    points = [
        (window.until, window.figures["arrivals"] / (window.until - window.since))
        for window in service.windows
        if "arrivals" in window.figures and window.until > window.since
    ]
    return _over_time(
        [Line(service.name, points)], f"Requests a second of {service.name}, up to now"
    )


def latency(service: ServiceAnswer) -> str:
    """The median and the 99th percentile of latency in seconds over its windows, drawn."""
    every = [
        Line(
            name,
            [
                (window.until, window.figures[name])
                for window in service.windows
                if name in window.figures
            ],
        )
        for name in LATENCIES
    ]
    return _over_time(every, f"Seconds until {service.name} answers, up to now")


def missed(service: ServiceAnswer) -> str:
    """The part of requests that was late or dropped over its windows, drawn."""
    points = [
        (
            window.until,
            (window.figures.get("late", 0.0) + window.figures.get("dropped", 0.0)) / arrivals,
        )
        for window in service.windows
        if (arrivals := window.figures.get("arrivals"))
        and ("late" in window.figures or "dropped" in window.figures)
    ]
    title = f"The part of requests that {service.name} answered late or dropped, up to now"
    return _over_time([Line(service.name, points)], title)


def _over_time(every: list[Line], title: str) -> str:
    ends = [point[0] for line in every for point in line.points]
    if len(set(ends)) < 2:
        return ""
    end = max(ends)
    return lines(
        every,
        title,
        lambda at: "now" if at == end else f"{lasting(end - at)} ago",
        from_zero=True,
    )


async def children(request: Request) -> Response:
    """The trials of a search, the best first, or the replicas of a service."""
    name = request.path_params["job"]

    async def make() -> str:
        backend = pages_of(request).backend
        details: list[JobDetail] = await backend.get(
            f"/v1/jobs/{quote(name, safe='')}", list[JobDetail]
        )
        job = details[0]
        family = job.family
        if family is None:
            return ""
        ordered = ranked(family.children, more_is_better=family.more_is_better)
        curves, labels = "", list[str]()
        if job.kind == "tune":
            reported = [child for child in ordered if child.value is not None][:CURVES]
            curves, labels = await _curves(request, reported, family.metric)
        return fill(
            "children",
            job=job,
            family=family,
            children=ordered[:CHILDREN_MAX],
            left_out=len(ordered[CHILDREN_MAX:]),
            params=sorted({key for child in ordered for key in child.params}),
            curves=curves,
            labels=labels,
            prefix=request.scope[PREFIX],
        )

    return await part(request, key_of("children", name=name, at=request.scope[PREFIX]), make)


def ranked(every: list[ChildAnswer], *, more_is_better: bool) -> list[ChildAnswer]:
    """The best value first; then those that reported none, the latest first."""
    sign = -1.0 if more_is_better else 1.0

    def key(child: ChildAnswer) -> tuple[bool, float, int]:
        known = child.value is not None and math.isfinite(child.value)
        return (
            not known,
            sign * child.value if known and child.value is not None else 0.0,
            -child.job,
        )

    return sorted(every, key=key)


async def _curves(
    request: Request, trials: list[ChildAnswer], metric: str
) -> tuple[str, list[str]]:
    """What the best trials reported, drawn; and whose each line is."""
    every = []
    for trial in trials:
        reports: list[ReportAnswer] = await pages_of(request).backend.get(
            f"/v1/jobs/{trial.job}/reports", list[ReportAnswer], limit=_POINTS_MAX
        )
        points = [(report.step, report.value) for report in reports if report.value is not None]
        if points:
            every.append(Line(f"job {trial.job}", points))
    picture = lines(every, f"{metric or 'What the best trials reported'} by step")
    return picture, [line.label for line in every]


async def windows(request: Request) -> Response:
    """The windows of one service, as a table and drawn."""
    name = request.path_params["job"]
    running: list[ServiceAnswer] = await pages_of(request).backend.get(
        "/v1/services", list[ServiceAnswer]
    )
    mine = next((service for service in running if name in (service.label, str(service.job))), None)
    pictures = (
        [
            ("Requests a second", load(mine), ()),
            ("Seconds until they are answered", latency(mine), LATENCIES),
            ("Part of them that was late or dropped", missed(mine), ()),
        ]
        if mine
        else []
    )
    return html(
        request,
        fill("windows", service=mine, pictures=pictures, names=_names(mine)),
    )


def _names(service: ServiceAnswer | None) -> list[str]:
    """Which figures its windows have, the usual ones first."""
    usual = ("arrivals", "answered", "late", "dropped", "queue", "busy", "batch", "p50", "p99")
    measured = {name for window in service.windows for name in window.figures} if service else set()
    return [name for name in usual if name in measured]
