"""Clusters from a word like `8x8xV100`, from a file, from openb's node list or HiEST's machines.

A file (TOML, YAML or JSON by its extension) says `format = "ganger.cluster/1"` and holds `nodes`:
a list of `count, gpus, gpu_type, cpus` (cores), `memory` (`256GiB`, or MiB), `pool, rack,
nodes_per_rack, island` (GPUs that are joined closely; 0: all of the node), `labels, name, watts`
(beside its GPUs), `memory_bandwidth` (GB/s), and the terms on which they are had: `market, zone,
instance, price` or `prices` (a file), `bid, available` (a file), `notice, billed, rentable`
(`core.spec.Offer`). If wanted it
holds `gpu_types` (`name, memory, watts, idle_watts`, `watts_from`: card, measured, assumed or
stated, `price` in USD an hour, `speed`), `tenants` (`name, quota` in GPUs, `weight, parent`),
`name`, `carbon` (g/kWh) and `network` (`workloads.topology`). HiEST's JSON says of
`machines[number]` `core_per_socket`, `mem_per_socket` and `mem_per_gpu` (GB), `gpu_per_socket` and
`gpu_distance`, whose least is an island's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer, TenantSpec
from ganger.core.units import HOUR, MINUTE, SECOND, WHOLE, parse_duration, parse_memory
from ganger.workloads.documents import entries, figure, json_object, read_document
from ganger.workloads.files import TextFile, open_text, suffix_of
from ganger.workloads.market.known_instances import KNOWN_INSTANCES
from ganger.workloads.rows import Category, Count, Text, read_delimited
from ganger.workloads.topology import Layout, laid_out

FORMAT: Final = "ganger.cluster/1"
_GIB = 1024
KNOWN_GPUS: Final[dict[str, GpuType]] = {
    name: GpuType(name, memory * _GIB, watts, watts_from="card")
    for name, memory, watts in (
        ("K80", 12, 150.0),  # one of the board's two GPUs
        ("P4", 8, 75.0), ("P40", 24, 250.0), ("P100", 16, 300.0), ("V100", 16, 300.0),
        ("V100-32GB", 32, 300.0), ("V100M16", 16, 300.0), ("V100M32", 32, 300.0), ("T4", 16, 70.0),
        ("RTX2080Ti", 11, 250.0), ("RTX3090", 24, 350.0), ("RTX4090", 24, 450.0),
        ("A10", 24, 150.0), ("A30", 24, 165.0), ("A40", 48, 300.0), ("A100", 40, 400.0),
        ("A100-80GB", 80, 400.0), ("L4", 24, 72.0), ("L40S", 48, 350.0), ("H100", 80, 700.0),
        ("H200", 141, 700.0),
    )
}  # fmt: skip
"""GPU types by name: memory and board power as their makers state them; no prices, no speeds."""
_BY_LOWER = {name.lower(): name for name in KNOWN_GPUS}
_PART = re.compile(r"(?:(\d+)x)?(\d+)x((?!x\d)[A-Za-z][\w.-]*)(?:@([\w.-]+))?")
_SHORT = re.compile(rf"{_PART.pattern}(?:\+{_PART.pattern})*")
_MACHINES = "give a machine file of HiEST's gpu-topo-aware"
_MEND = "write like 8x8xV100, 4xT4 for one node, or 4x8xA100@pool+16x4xT4; or name a cluster file"


def is_short(text: str) -> bool:
    """Whether the text states a cluster by itself, and names no file."""
    return _SHORT.fullmatch(text.strip()) is not None


def load_cluster(text_or_path: str | Path, where: str = "cluster") -> ClusterSpec:
    """The cluster that a short form states or that a file holds; `where` it was stated. In a short
    form `8x4xT4` is eight nodes of four T4, and `4xT4` one. Raises BadInput."""
    text = str(text_or_path).strip()
    if isinstance(text_or_path, str) and _SHORT.fullmatch(text):
        return _short(text)
    path = Path(text_or_path)
    if not path.is_file():
        raise BadInput(f"{text!r} is neither a cluster nor a file", where=where, mend=_MEND)
    file = open_text(path)
    if suffix_of(path) == ".csv":
        return _openb_nodes(file)
    raw = json_object(file)
    if raw is not None and "machines" in raw and "format" not in raw:
        return _hiest_machines(raw["machines"], file)
    return _document(file)


def _short(text: str) -> ClusterSpec:
    nodes: list[NodeSpec] = []
    for part in text.split("+"):
        found = _PART.fullmatch(part)
        assert found is not None, "the whole text was matched"
        count, gpus, kind, pool = found.groups()
        nodes.append(
            NodeSpec(
                count=_count(count or "1", text),
                gpus=_count(gpus, text),
                gpu_type=known_type(kind),
                pool=pool or "",
            )
        )
    return describe(ClusterSpec(tuple(nodes), name=text)).check(f"cluster {text!r}")


def _count(digits: str, text: str) -> int:
    if len(digits) > 9:
        raise BadInput(f"{digits[:20]} is too many", where=f"cluster {text!r}", mend=_MEND)
    return int(digits)


def known_type(name: str) -> str:
    """The usual spelling of a GPU type."""
    return _BY_LOWER.get(name.lower(), name)


def describe(spec: ClusterSpec) -> ClusterSpec:
    """The cluster with every GPU type it uses described: as stated, else as known, else plainly."""
    types = {gpu.name: gpu for gpu in spec.gpu_types}
    for node in spec.nodes:
        if node.gpu_type and node.gpu_type not in types:
            types[node.gpu_type] = KNOWN_GPUS.get(node.gpu_type, GpuType(node.gpu_type))
    return msgspec.structs.replace(spec, gpu_types=tuple(types.values()))


class _Node(msgspec.Struct, forbid_unknown_fields=True):
    count: int = 1
    gpus: int = 0
    gpu_type: str = ""
    cpus: float = 0.0
    memory: str | float = 0
    pool: str = ""
    rack: str = ""
    nodes_per_rack: int = 0
    island: int = 0
    labels: list[str] = []
    name: str = ""
    watts: float | None = None
    memory_bandwidth: float = 0.0
    market: Literal["on_demand", "spot", "reserved"] | None = None
    zone: str = ""
    instance: str = ""
    price: float | None = None
    prices: str = ""
    bid: float | None = None
    available: str = ""
    notice: str = "0s"
    billed: Literal["second", "minute", "hour"] = "second"
    rentable: bool = False
    uplink: float | None = None


class _Gpu(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    memory: str | float | None = None
    watts: float | None = None
    price: float = 0.0
    speed: float = 1.0
    idle_watts: float | None = None
    watts_from: Literal["card", "measured", "assumed", "stated"] | None = None
    billed: Literal["second", "minute", "hour"] | None = None
    least: str = "0s"
    clocks: list[float] = []
    memory_clocks: list[float] = []


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    nodes: list[_Node]
    gpu_types: list[_Gpu] = []
    tenants: list[TenantSpec] = []
    name: str = ""
    carbon: float | None = None
    network: Layout | None = None


def _document(file: TextFile) -> ClusterSpec:
    document = read_document(file, FORMAT, _Document, docs="docs/cluster-file.md")
    nodes = tuple(
        _node(node, f"{file.where}: nodes[{i}]", file.path.parent)
        for i, node in enumerate(document.nodes)
    )
    network = None
    if document.network is not None:
        place = f"{file.where}: network"
        nodes, network = laid_out(document.network, nodes, place, file.path.parent)
    spec = ClusterSpec(
        nodes,
        tuple(
            _gpu(gpu, f"{file.where}: gpu_types[{i}]") for i, gpu in enumerate(document.gpu_types)
        ),
        tuple(document.tenants),
        document.name or file.path.name.split(".")[0],
        _stated(document.carbon, f"{file.where}: carbon", "give grams of CO2 for a kWh, 0 or more"),
        network,
    )
    return describe(spec).check(file.where)


def _node(node: _Node, where: str, folder: Path) -> NodeSpec:
    if not 0 <= node.cpus <= 1e6:
        raise BadInput(f"cpus = {node.cpus}", where=where, mend="give cores, 0 to 1e6")
    node = _known_instance(node, where)
    offer = _offer(node, where, folder)
    spot = offer is not None and offer.market == "spot" and SPOT not in node.labels
    return NodeSpec(
        node.count,
        node.gpus,
        node.gpu_type,
        round(node.cpus * WHOLE),
        parse_memory(node.memory, where=f"{where}.memory"),
        node.pool,
        node.rack,
        node.nodes_per_rack,
        node.island,
        (*node.labels, *([SPOT] if spot else [])),
        node.name,
        _stated(node.watts, f"{where}.watts", "give watts of a node beside its GPUs, 0 or more"),
        offer,
        max(
            _stated(node.memory_bandwidth, f"{where}.memory_bandwidth", "give GB/s, 0 or more"), 0.0
        ),
        _stated(node.uplink, f"{where}.uplink", "give GB/s of a node's own link"),
    )


def _known_instance(node: _Node, where: str) -> _Node:
    """With the GPUs of a machine that is known by its `instance`, where the file leaves them out.
    Raises BadInput where it states others."""
    gpus, kind = KNOWN_INSTANCES.get(node.instance, (0, ""))
    if not gpus:
        return node
    stated = (node.gpus or gpus, known_type(node.gpu_type) or kind)
    if stated[0] != gpus or not stated[1].startswith(kind):
        what = f"{node.instance} has {gpus} x {kind}, not {stated[0]} x {stated[1]}"
        raise BadInput(what, where=where, mend="leave gpus and gpu_type out")
    return msgspec.structs.replace(node, gpus=gpus, gpu_type=node.gpu_type or kind)


SPOT: Final = "spot"
"""The label of nodes of the spot market."""
_PER: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR}


def _offer(node: _Node, where: str, folder: Path) -> Offer | None:
    """On what terms the nodes are had; None where the file says nothing of it. Raises BadInput."""
    if node == msgspec.structs.replace(node, **_NO_OFFER):
        return None
    from ganger.workloads.market.availability import read_available
    from ganger.workloads.market.prices import read_prices

    market = node.market or "on_demand"
    if market != "spot" and (node.bid is not None or node.available):
        mend = 'write market = "spot", or leave bid and available out'
        raise BadInput(f"market is {market}", where=where, mend=mend)
    if node.prices and node.price is not None:
        raise BadInput("price beside prices", where=where, mend="give one of them")
    mend = "give the price of a node for an hour, 0 or more"
    return Offer(
        market,
        node.zone,
        _stated(node.price, f"{where}.price", mend),
        read_prices(folder / node.prices, node.instance, node.zone) if node.prices else (),
        _stated(node.bid, f"{where}.bid", mend),
        read_available(folder / node.available) if node.available else (),
        parse_duration(node.notice, where=f"{where}.notice"),
        _PER[node.billed],
        node.rentable,
        node.instance,
    )


_NO_OFFER: Final[dict[str, Any]] = {
    "market": None, "zone": "", "instance": "", "price": None, "prices": "", "bid": None,
    "available": "", "notice": "0s", "billed": "second", "rentable": False,
}  # fmt: skip


def _stated(value: float | None, where: str, mend: str) -> float:
    """A number that may be left out (-1). Raises BadInput."""
    if value is None:
        return -1.0
    if not 0 <= value < 1e9:
        raise BadInput(f"{value} is not valid", where=where, mend=mend)
    return float(value)


def _gpu(gpu: _Gpu, where: str) -> GpuType:
    known = KNOWN_GPUS.get(gpu.name, GpuType(gpu.name))
    watts = known.watts if gpu.watts is None else gpu.watts
    idle = _stated(gpu.idle_watts, f"{where}.idle_watts", "give watts, 0 or more")
    if idle > watts:
        what = f"idle_watts = {idle:g} are more than watts = {watts:g}"
        raise BadInput(what, where=where, mend="state both; watts are those at full load")
    source = gpu.watts_from or (known.watts_from if gpu.watts is None else "stated")
    for name, value in (("watts", watts), ("price", gpu.price), ("speed", gpu.speed)):
        if not 0 <= value < 1e9 or (name == "speed" and value == 0):
            raise BadInput(f"{name} = {value}", where=where, mend="give a number above 0")
    memory = known.memory
    if gpu.memory is not None:
        memory = parse_memory(gpu.memory, where=f"{where}.memory")
    least = parse_duration(gpu.least, where=f"{where}.least")
    per = _PER[gpu.billed] if gpu.billed is not None else 1
    clocks = (
        _clocks(gpu.clocks, f"{where}.clocks"),
        _clocks(gpu.memory_clocks, f"{where}.memory_clocks"),
    )
    if max(len(clocks[0]), 1) * max(len(clocks[1]), 1) > MOST_CLOCKS:
        what = f"{len(clocks[0])} clocks x {len(clocks[1])} memory_clocks"
        mend = f"state those that are worth a try: at most {MOST_CLOCKS} pairs"
        raise BadInput(what, where=where, mend=mend)
    return GpuType(gpu.name, memory, watts, gpu.price, gpu.speed, idle, source, per, least, *clocks)


def _clocks(mhz: list[float], where: str) -> tuple[float, ...]:
    """MHz, ascending. Raises BadInput."""
    rising = all(low < high for low, high in pairwise(mhz))
    if not rising or not all(0 < each < 1e6 for each in mhz):
        raise BadInput("clocks that cannot be", where=where, mend="give MHz above 0, ascending")
    return tuple(mhz)


MOST_CLOCKS: Final = 1024
"""So many clocks of a type can be stated, each with each of its memory: a policy looks at all."""


def _openb_nodes(file: TextFile) -> ClusterSpec:
    """Columns `sn, cpu_milli, memory_mib, gpu, model`; like nodes in a row become one group."""
    model = Category()
    table = read_delimited(
        file,
        {
            "sn": Text(),
            "cpu_milli": Count(0, 10**9),
            "memory_mib": Count(0, 1 << 40),
            "gpu": Count(0, 64),
            "model": model,
        },
    )
    columns = np.stack([table[name] for name in ("cpu_milli", "memory_mib", "gpu", "model")])
    starts = np.flatnonzero(np.r_[True, (columns[:, 1:] != columns[:, :-1]).any(axis=0)])
    counts = np.diff(np.r_[starts, len(table)])
    nodes = [
        NodeSpec(int(count), int(gpus), model.names[kind] if gpus else "", int(cpus), int(memory))
        for count, (cpus, memory, gpus, kind) in zip(counts, columns[:, starts].T, strict=True)
    ]
    spec = ClusterSpec(tuple(nodes), name=file.path.name.split(".")[0])
    return describe(spec).check(file.where)


def _hiest_machines(machines: Any, file: TextFile) -> ClusterSpec:
    """Like machines in a row become one group. The GPUs, whose type is not stated, are taken for
    P100 (IBM Minsky: Amaral et al., SC 2017), GB for GiB; socket distances are not read."""
    where = f"{file.where}: machines"
    found = [
        _hiest_node(entries(machine, f"{where}: {name}", _MACHINES), f"{where}: {name}")
        for name, machine in entries(machines, where, _MACHINES).items()
    ]
    nodes = [
        msgspec.structs.replace(node, count=len(list(alike))) for (node, _), alike in groupby(found)
    ]
    types = {gpu.name: gpu for _, gpu in found}
    spec = ClusterSpec(tuple(nodes), tuple(types.values()), name=file.path.name.split(".")[0])
    return describe(spec).check(file.where)


def _hiest_node(machine: Mapping[str, Any], where: str) -> tuple[NodeSpec, GpuType]:
    cores, memory, gpus, sizes = (
        _numbers(machine.get(field), f"{where}: {field}")
        for field in ("core_per_socket", "mem_per_socket", "gpu_per_socket", "mem_per_gpu")
    )
    count = int(sum(gpus))
    if not 1 <= count <= 64 or count != sum(gpus):
        raise BadInput(f"{sum(gpus):g} GPUs", where=f"{where}: gpu_per_socket", mend="give 1 to 64")
    if len(set(sizes)) != 1:
        raise BadInput("GPUs of several sizes", where=f"{where}: mem_per_gpu", mend=_MACHINES)
    known, size = KNOWN_GPUS["P100"], round(sizes[0] * _GIB)
    kind = (
        known
        if size == known.memory
        else msgspec.structs.replace(known, name=f"P100-{sizes[0]:g}GB", memory=size)
    )
    island = _island(machine.get("gpu_distance"), count, f"{where}: gpu_distance")
    cpus, host = round(sum(cores) * WHOLE), round(sum(memory) * _GIB)
    return NodeSpec(1, count, kind.name, cpus, host, island=island), kind


def _numbers(value: Any, where: str) -> list[float]:
    if not isinstance(value, list) or not value:
        raise BadInput("not a list of numbers", where=where, mend=_MACHINES)
    mend = "give a number up to 1e6"
    return [figure(number, f"{where}[{i}]", mend, most=1e6) for i, number in enumerate(value)]


def _island(distance: Any, gpus: int, where: str) -> int:
    """How many GPUs, numbered one after the other, are at the least distance from each other."""
    rows, numbers = entries(distance, where, _MACHINES), [str(gpu) for gpu in range(gpus)]
    far = np.array([[_distance(rows, one, other, where) for other in numbers] for one in numbers])
    same = np.eye(gpus, dtype=bool)
    near = same | (far <= np.min(far, initial=np.inf, where=~same))
    size = int(near[0].sum())
    island = np.arange(gpus) // size
    if ((island[:, None] == island) != near).any() or gpus % size:
        what = "GPUs at the least distance are not islands of one size, numbered in a row"
        raise BadInput(what, where=where, mend="write a cluster file (docs/cluster-file.md)")
    return size


def _distance(rows: Mapping[str, Any], one: str, other: str, where: str) -> float:
    row = entries(rows.get(one), f"{where}: {one}", _MACHINES)
    return figure(row.get(other), f"{where}: {one}: {other}", "give a distance")
