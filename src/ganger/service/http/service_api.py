"""The endpoints that the front of a service asks: where its replicas are, and how the service
does."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from starlette.requests import Request

from ganger.client.answering.families import ReplicaAnswer
from ganger.client.answers import Changed
from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.service.families import Ends, Scale, refuse_unscaled, rescaled_by
from ganger.service.http.app_context import AppContext
from ganger.service.http.request_helpers import asked, body_of, rows_named, world_of
from ganger.service.reports import families
from ganger.service.windows import MOST

Figure = Literal["arrivals", "answered", "late", "dropped", "ongoing", "queue", "p50", "p99"]


class ServedBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the front of a service tells: `arrivals`, `answered`, `late` and `dropped` since its own
    start, how many requests are `ongoing` and wait in its `queue` now, and latencies in seconds.
    Tell it at least once in each window, also when nothing came."""

    figures: Annotated[
        dict[Figure, Annotated[float, msgspec.Meta(ge=0.0, le=MOST)]], msgspec.Meta(min_length=1)
    ]


def _service(request: Request) -> int:
    """The one job of the path, which the asker owns, or as an administrator. Raises BadInput."""
    row, *others = rows_named(request)
    if others:
        raise BadInput("several jobs are named", where="jobs", mend="name one service")
    return row


async def scale(world: AppContext, services: list[int], ends: Ends) -> None:
    """Change how many replicas services have and may have. Raises BadInput."""
    with world.daemon.lock:
        jobs = world.daemon.kernel.jobs
        for row in services:
            refuse_unscaled(world.daemon.kernel, row)
        shapes = [rescaled_by(jobs.shapes[jobs.shape[row]], ends) for row in services]
    for shape in shapes:
        world.fits(shape)
    await asked(world, Scale(services, ends))


async def list_replicas(request: Request) -> list[ReplicaAnswer]:
    """Where the replicas of the service in the path are reached."""
    daemon, row = world_of(request).daemon, _service(request)
    with daemon.lock:
        return families.replicas(daemon, row)


async def tell_served(request: Request) -> Changed:
    """Take what the front of the service in the path tells. Recipes decide by it at the end of the
    window; at once where a request waits and there is no replica."""
    body = await body_of(request, ServedBody)
    daemon, row = world_of(request).daemon, _service(request)
    with daemon.lock:
        families.refuse_other_than_service(daemon, row)
        if daemon.kernel.jobs.phase[row] != Phase.RUNNING:
            raise BadInput(f"job {row + 1} does not run", where="jobs")
        figures = {str(name): value for name, value in body.figures.items()}
        hurries = daemon.windows.tell(row, figures, daemon.kernel, daemon.now())
    if hurries:
        daemon.engine.post()
    return Changed(jobs=[row + 1])
