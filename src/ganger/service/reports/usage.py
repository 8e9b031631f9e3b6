"""GPU-hours, cost and energy by tenant: what they did, what was lost, what was idle, or of some
days only what they held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ganger.client.answers import Usage
from ganger.core.errors import BadInput
from ganger.core.profiles import Profiles
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.units import HOUR
from ganger.lab.billing.power import Grid, Power, grid_of, sources_in_words
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Journal
from ganger.service.reports.costs import price_of
from ganger.service.reports.rows import gpu_parts


class Rates(NamedTuple):
    """By node: its GPU type, what a GPU of it costs for an hour (None: not known), and the watts
    that its holder answers for, and draws beyond that while it computes. `source`: where watts and
    the grid's intensity come from."""

    kinds: list[str]
    price: list[float | None]
    held: list[float]
    computing: list[float]
    grid: Grid
    source: str


def rates_of(nodes: Nodes, prices: Mapping[str, float]) -> Rates:
    """At these prices of a GPU for an hour, by type; a node's own price counts first. A price that
    changes with time is not known, as nobody says when its time began."""
    power, codes = Power(nodes, Profiles()), nodes.gpu_type[: nodes.n].tolist()
    kinds = [nodes.types[code] for code in codes]
    price = [price_of(nodes, node, prices) for node in range(nodes.n)]
    grid = grid_of(nodes.spec)
    return Rates(
        kinds,
        price,
        power.each,
        [power.above_idle("", code) for code in codes],
        grid,
        " ".join(sources_in_words(power.sources(), grid)),
    )


def nodes_held(journal: Journal, now: int, since: int = 0) -> dict[int, dict[int, float]]:
    """By job: microseconds x GPUs of each node that its attempts had from `since` to `now`."""
    found: dict[int, dict[int, float]] = {}
    for job, one in journal.attempts_between(since, now):
        ended = min(one.ended, now) if one.ended >= 0 else now
        lasted = ended - max(one.started, since)
        mine = found.setdefault(job, {})
        for slot in one.placement or ():
            mine[slot.node] = mine.get(slot.node, 0.0) + lasted * slot.devices.bit_count()
    return found


def usage(
    daemon: Daemon,
    journal: Journal,
    idle_gpu_seconds: Mapping[str, float],
    prices: Mapping[str, float],
) -> list[Usage]:
    """One row per tenant, since the journal began. `prices` by GPU type, of one hour; of what has
    no price the cost is not known. A job that holds GPUs and computes nothing draws what idle ones
    do."""
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
        rates = rates_of(kernel.nodes, prices)
    by_job = nodes_held(journal, now)
    found = []
    for code in sorted(set(tenant.tolist())):
        mine = np.flatnonzero(tenant == code)
        hours: dict[int, float] = {}
        computed: dict[int, float] = {}
        for row in mine.tolist():
            parts = by_job.get(row, {})
            total = sum(parts.values())
            for node, part in parts.items():
                if total:
                    for into, whole in ((hours, held), (computed, served)):
                        into[node] = into.get(node, 0.0) + float(whole[row]) * part / total / HOUR
        ran, gone = float(served[mine].sum()) / HOUR, float(lost[mine].sum()) / HOUR
        idle = min(idle_gpu_seconds.get(names[code], 0.0) / 3600, max(ran - gone, 0.0))
        waited = max(float(held[mine].sum()) / HOUR - ran, 0.0)
        row_of = Usage(
            tenant=names[code],
            jobs=len(mine),
            gpu_hours=ran + waited,
            useful_gpu_hours=max(ran - gone - idle, 0.0),
            lost_gpu_hours=gone,
            idle_gpu_hours=idle + waited,
        )
        _bill(row_of, hours, computed, rates)
        found.append(row_of)
    return found


def usage_between(
    daemon: Daemon, journal: Journal, prices: Mapping[str, float], since: int, until: int
) -> list[Usage]:
    """One row per tenant, of attempts from `since` to `until` (microseconds since the epoch), from
    their starts to their ends. What was useful, lost and idle is not kept by the day: energy is as
    if all GPUs that were held had computed."""
    with daemon.lock:
        jobs = daemon.kernel.jobs
        rates = rates_of(daemon.kernel.nodes, prices)
        until, used = min(until, daemon.now()), gpu_parts(jobs)
        tenant = jobs.tenant[: jobs.n].copy()
        names = [jobs.tenants[code] for code in range(int(tenant.max(initial=-1)) + 1)]
    rows: dict[str, Usage] = {}
    by_tenant: dict[str, dict[int, float]] = {}
    for job, parts in nodes_held(journal, until, since).items():
        name = names[tenant[job]]
        row = rows.setdefault(name, Usage(tenant=name, jobs=0, gpu_hours=0.0))
        row.jobs += 1
        by_node = by_tenant.setdefault(name, {})
        for node, busy in parts.items():
            hours = busy * float(used[job]) / HOUR
            row.gpu_hours += hours
            by_node[node] = by_node.get(node, 0.0) + hours
    for name, row in rows.items():
        _bill(row, by_tenant[name], by_tenant[name], rates)
    return [rows[name] for name in sorted(rows)]


def _bill(
    row: Usage, held: Mapping[int, float], computed: Mapping[int, float], rates: Rates
) -> None:
    """Fill in types, cost and energy, from GPU-hours held and computed by node."""
    cost: float | None = 0.0
    energy = 0.0
    for node, hours in held.items():
        kind, price = rates.kinds[node], rates.price[node]
        row.by_type[kind] = row.by_type.get(kind, 0.0) + hours
        cost = None if price is None or cost is None else cost + price * hours
        energy += rates.held[node] * hours + rates.computing[node] * computed.get(node, 0.0)
    row.cost, row.energy_kwh = cost, energy / 1000
    row.carbon_kg, row.energy_source = energy / 1e6 * rates.grid.grams, rates.source


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
