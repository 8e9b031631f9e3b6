"""Nodes that fail while a trace is replayed: from a file, or drawn."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, Offer
from ganger.core.state.cluster import Nodes
from ganger.core.units import DAY, NEVER, parse_duration
from ganger.sim.rows import Outage
from ganger.workloads.trace import Trace

_MEND = "write a CSV file with the columns node,down,up, or like mtbf=30d,mttr=4h"


def read_outages(text: str, cluster: ClusterSpec, trace: Trace, seed: int) -> tuple[Outage, ...]:
    """The outages that `text` means, times counted from the trace's start of time.

    Either a CSV file with the columns `node` (its name or number), `down` and `up` (durations
    since the trace began, `up` empty for never), or `mtbf=30d,mttr=4h`: every node by itself fails
    after exponential times of that mean and is repaired after exponential times of the other,
    until twice the span of arrivals and a day. Raises BadInput.
    """
    nodes = Nodes(cluster)
    if Path(text).is_file():
        return _from_file(Path(text), nodes)
    if "=" not in text:
        raise BadInput(f"no file {text!r}", where="--outages", mend=_MEND)
    return _drawn(text, nodes, trace, seed)


def with_revocations(outages: tuple[Outage, ...], nodes: Nodes) -> tuple[Outage, ...]:
    """The outages, and when spot nodes cannot be had: while their price is above the bid, or while
    there are too few of them. What overlaps is one outage, of which the first notice counts."""
    revoked: list[Outage] = []
    first = 0
    for group in nodes.spec.nodes:
        if group.offer is not None and group.offer.market == "spot":
            revoked += [
                Outage(first + place, *span, group.offer.notice)
                for place in range(group.count)
                for span in _without(group.offer, place)
            ]
        first += group.count
    if not revoked:
        return outages
    apart: list[Outage] = []
    for outage in sorted((*outages, *revoked)):
        before = apart[-1] if apart and apart[-1].node == outage.node else Outage(-1, -1, -1)
        if outage.down <= before.up:
            apart[-1] = before._replace(up=max(before.up, outage.up))
        else:  # there is no notice of a node that is not there
            notice = min(outage.notice, outage.down - before.up - 1)
            apart.append(outage._replace(notice=notice))
    return tuple(apart)


def _without(offer: Offer, place: int) -> Iterator[tuple[int, int]]:
    """When the node at that place of its group cannot be had."""
    too_dear = [(at, price > offer.bid >= 0) for at, price in offer.prices]
    too_few = [(at, count <= place) for at, count in offer.available]
    for series in (too_dear, too_few):
        begun = -1
        for at, lacking in ((0, series[0][1]), *series[1:]) if series else ():
            if lacking and begun < 0:
                begun = at
            elif not lacking and begun >= 0:
                yield begun, at
                begun = -1
        if begun >= 0:
            yield begun, NEVER


def _from_file(path: Path, nodes: Nodes) -> tuple[Outage, ...]:
    found: list[Outage] = []
    names = {name: row for row, name in enumerate(nodes.names)}
    for where, row in read_spans(path, ("node", "down", "up"), _MEND):
        name = row["node"].strip()
        number = int(name) if name.isdecimal() and int(name) < nodes.n else -1
        node = names.get(name, number)
        if node < 0:
            raise BadInput(f"no node {name!r}", where=f"{where}: node", mend="see the cluster")
        found.append(Outage(node, *span_of(row, ("down", "up"), where)))
    return _apart(found, str(path))


def read_spans(
    path: Path, columns: tuple[str, ...], mend: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file that has at least these columns, each with where it stands. Raises
    BadInput."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.DictReader(file)
        missing = set(columns) - set(rows.fieldnames or ())
        if missing:
            raise BadInput(f"no column {min(missing)!r}", where=f"{path}:1", mend=mend)
        for row in rows:
            yield f"{path}:{rows.line_num}", {name: row[name] or "" for name in columns}


def span_of(row: dict[str, str], names: tuple[str, str], where: str) -> tuple[int, int]:
    """When something begins and ends: microseconds; NEVER for an end that is not stated. Raises
    BadInput."""
    first, last = names
    begins = parse_duration(row[first], where=f"{where}: {first}")
    ends = parse_duration(row[last], where=f"{where}: {last}") if row[last] else NEVER
    if ends <= begins:
        raise BadInput(
            f"it is {last} before it is {first}", where=where, mend=f"swap {first} and {last}"
        )
    return begins, ends


def _apart(found: list[Outage], where: str) -> tuple[Outage, ...]:
    ordered = sorted(found)
    for one, other in itertools.pairwise(ordered):
        if one.node == other.node and other.down <= one.up:
            raise BadInput(
                f"two outages of node {one.node} overlap", where=where, mend="make them one"
            )
    return tuple(ordered)


def _drawn(text: str, nodes: Nodes, trace: Trace, seed: int) -> tuple[Outage, ...]:
    fails, repaired = parse_means(text, ("mtbf", "mttr"), "--outages", _MEND)
    declared = trace.declared
    end = 2 * int(declared.submitted[: declared.n].max(initial=0)) + DAY
    rng = np.random.default_rng([seed, 0x0FF])
    found: list[Outage] = []
    for node in range(nodes.n):
        at = 0
        while (down := at + 1 + round(rng.exponential(fails))) < end:
            at = down + 1 + round(rng.exponential(repaired))
            found.append(Outage(node, down, at))
    return tuple(found)


def parse_means(text: str, names: tuple[str, ...], where: str, mend: str) -> list[int]:
    """Mean times (microseconds), by these names, from `mtbf=30d,mttr=4h`. Raises BadInput."""
    given = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in names:
            raise BadInput(f"{part!r} is not a valid time between failures", where=where, mend=mend)
        given[key] = parse_duration(value, where=f"{where}: {key}")
        if given[key] <= 0:
            raise BadInput(f"{key} must be longer than 0", where=where, mend=mend)
    if len(given) != len(names):
        raise BadInput(f"it needs {' and '.join(names)}", where=where, mend=mend)
    return [given[name] for name in names]
