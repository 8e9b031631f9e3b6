"""Nodes that fail while a trace is replayed: from a file, or drawn."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec
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
