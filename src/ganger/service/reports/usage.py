"""GPU-hours and cost by tenant: what they did, what was lost, what was idle, or of some days only
what they held."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ganger.client.answers import Usage
from ganger.core.errors import BadInput
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.units import HOUR
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Journal
from ganger.service.reports.rows import gpu_parts


def types_held(
    journal: Journal, kinds: list[str], now: int, since: int = 0
) -> dict[int, dict[str, float]]:
    """By job: microseconds x GPUs of each type that its attempts had from `since` to `now`.
    `kinds`: type by node."""
    found: dict[int, dict[str, float]] = {}
    for job, one in journal.all_attempts():
        if one.placement is None or one.started < 0:
            continue
        ended = min(one.ended, now) if one.ended >= 0 else now
        lasted = ended - max(one.started, since)
        if lasted <= 0:
            continue
        mine = found.setdefault(job, {})
        for slot in one.placement:
            kind = kinds[slot.node]
            mine[kind] = mine.get(kind, 0.0) + lasted * slot.devices.bit_count()
    return found


def usage(
    daemon: Daemon,
    journal: Journal,
    idle_gpu_seconds: Mapping[str, float],
    prices: Mapping[str, float],
) -> list[Usage]:
    """One row per tenant, since the journal began. `prices` by GPU type, of one hour; of what has
    no price the cost is not known."""
    with daemon.lock:
        now, kernel = daemon.now(), daemon.kernel
        jobs, n = kernel.jobs, kernel.jobs.n
        tenant, phase = jobs.tenant[:n].copy(), jobs.phase[:n]
        holding = np.isin(phase, [int(one) for one in HOLDS_DEVICES])
        lately = np.where(
            holding & (jobs.held_since[:n] >= 0), (now - jobs.held_since[:n]) * jobs.size[:n], 0
        )
        used = gpu_parts(jobs)
        lasting = np.where(phase == Phase.RUNNING, now - jobs.since[:n], 0)
        held = (jobs.held[:n] + lately) * used
        served = (jobs.served[:n] + lasting * jobs.size[:n]) * used
        lost = np.minimum(jobs.lost[:n] * jobs.gpus[:n] * used, served)
        names = [jobs.tenants[code] for code in range(int(tenant.max(initial=-1)) + 1)]
        nodes = kernel.nodes
        kinds = [nodes.types[nodes.gpu_type[node]] for node in range(nodes.n)]
    by_job = types_held(journal, kinds, now)
    found = []
    for code in sorted(set(tenant.tolist())):
        mine = np.flatnonzero(tenant == code)
        hours: dict[str, float] = {}
        for row in mine.tolist():
            parts = by_job.get(row, {})
            total = sum(parts.values())
            for kind, part in parts.items():
                if total:
                    hours[kind] = hours.get(kind, 0.0) + float(held[row]) * part / total / HOUR
        ran, gone = float(served[mine].sum()) / HOUR, float(lost[mine].sum()) / HOUR
        idle = min(idle_gpu_seconds.get(names[code], 0.0) / 3600, max(ran - gone, 0.0))
        waited = max(float(held[mine].sum()) / HOUR - ran, 0.0)
        known = all(kind in prices for kind in hours)
        found.append(
            Usage(
                tenant=names[code],
                jobs=len(mine),
                gpu_hours=ran + waited,
                useful_gpu_hours=max(ran - gone - idle, 0.0),
                lost_gpu_hours=gone,
                idle_gpu_hours=idle + waited,
                by_type=hours,
                cost=sum(prices[kind] * hours[kind] for kind in hours) if known else None,
            )
        )
    return found


def usage_between(
    daemon: Daemon, journal: Journal, prices: Mapping[str, float], since: int, until: int
) -> list[Usage]:
    """One row per tenant, of attempts from `since` to `until` (microseconds since the epoch), from
    their starts to their ends. What was useful, lost and idle is not kept by the day."""
    with daemon.lock:
        jobs, nodes = daemon.kernel.jobs, daemon.kernel.nodes
        kinds = [nodes.types[nodes.gpu_type[node]] for node in range(nodes.n)]
        until, used = min(until, daemon.now()), gpu_parts(jobs)
        tenant = jobs.tenant[: jobs.n].copy()
        names = [jobs.tenants[code] for code in range(int(tenant.max(initial=-1)) + 1)]
    found: dict[str, Usage] = {}
    for job, parts in types_held(journal, kinds, until, since).items():
        name = names[tenant[job]]
        row = found.setdefault(name, Usage(tenant=name, jobs=0, gpu_hours=0.0))
        row.jobs += 1
        for kind, busy in parts.items():
            hours = busy * float(used[job]) / HOUR
            row.gpu_hours += hours
            row.by_type[kind] = row.by_type.get(kind, 0.0) + hours
    for row in found.values():
        if all(kind in prices for kind in row.by_type):
            row.cost = sum(prices[kind] * hours for kind, hours in row.by_type.items())
    return [found[name] for name in sorted(found)]


def prices_of(daemon: Daemon) -> dict[str, float]:
    """What an hour of each GPU type costs, where the cluster says so."""
    return {one.name: one.price for one in daemon.header.cluster.gpu_types if one.price > 0}


def parse_prices(text: str) -> dict[str, float]:
    """`A100=2.5,V100=1` as prices of an hour. Raises BadInput."""
    found = {}
    for part in text.split(",") if text else ():
        kind, _, price = part.partition("=")
        try:
            found[kind.strip()] = float(price)
        except ValueError:
            found[kind.strip()] = -1.0
        if not (kind.strip() and 0 <= found[kind.strip()] < 1e9):
            raise BadInput(
                f"{part!r} is not a valid price", where="prices", mend="write like A100=2.5"
            )
    return found
