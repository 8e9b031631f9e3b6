"""The links of a cluster file: capacities by layer, and what is below which switch.

`network` holds `node` and `rack` (GB/s each way of their links to what is above them), `contention`
and `switches` (`name, above, bandwidth`), as of `core.spec.Network`. Or it names a `topology`: the
table of hosts of Alibaba's Lingjun cluster (`ip, DSW, PSW, ASW`: host, core, aggregation and rack
switch), which states no capacities: `pod` is that of aggregation switches. Numbers of rack
switches are taken as counted below each aggregation switch.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import msgspec

from ganger.core.errors import BadInput
from ganger.core.spec import Network, NodeSpec, Switch
from ganger.workloads.files import open_text
from ganger.workloads.rows import Text, read_delimited


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`network` of a cluster file."""

    node: float
    rack: float = 0.0
    pod: float = 0.0
    contention: float = 0.0
    switches: list[Switch] = []
    topology: str = ""


def laid_out(
    layout: Layout, nodes: tuple[NodeSpec, ...], where: str, folder: Path
) -> tuple[tuple[NodeSpec, ...], Network]:
    """The nodes, each in the rack that the layout says, and the network. Raises BadInput."""
    if not layout.topology:
        if layout.pod:
            mend = "list the switches between racks and the top"
            raise BadInput("pod without topology", where=where, mend=mend)
        switches = tuple(layout.switches)
        return nodes, Network(layout.node, layout.rack, switches, layout.contention)
    if layout.switches:
        mend = "give one of them"
        raise BadInput("switches beside topology", where=where, mend=mend)
    file = open_text(folder / layout.topology)
    table = read_delimited(file, {name: Text() for name in ("ip", "DSW", "PSW", "ASW")})
    hosts = sorted(zip(*(map(str, table[name]) for name in ("DSW", "PSW", "ASW")), strict=True))
    if sum(group.count for group in nodes) != len(hosts):
        what = f"{sum(group.count for group in nodes)} nodes, {len(hosts)} in {layout.topology}"
        raise BadInput(what, where=where, mend=f"make the counts of nodes {len(hosts)} in all")
    racks = iter([f"{psw}/{asw}" for _, psw, asw in hosts])
    placed = [
        msgspec.structs.replace(group, count=len(list(alike)), rack=rack, nodes_per_rack=0)
        for group in nodes
        for rack, alike in groupby([next(racks) for _ in range(group.count)])
    ]
    known_switches = dict[str, Switch]()
    for core, pod, rack in dict.fromkeys(hosts):
        names = (f"{pod}/{rack}", pod, core)
        above = (pod, core, "")
        for name, higher, wide in zip(names, above, (layout.rack, layout.pod, 0.0), strict=True):
            known = known_switches.setdefault(name, Switch(name, higher, wide))
            if known.above != higher:
                what = f"{name} is below {known.above} and {higher}"
                raise BadInput(what, where=file.where, mend="each switch has one above it")
    return tuple(placed), Network(
        layout.node, layout.rack, tuple(known_switches.values()), layout.contention
    )
