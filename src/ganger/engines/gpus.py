"""What this machine offers: GPUs by NVML or simulated ones, cores, memory."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.spec import NodeSpec
from ganger.core.units import WHOLE
from ganger.engines.launch import MIB

SIMULATED: Final = "simulated"
_GPUS_MAX: Final = 64
_PART = re.compile(r"(\d+)(?:x([A-Za-z][\w.-]*))?")


def find_nodes(gpus: str = "", name: str = "") -> tuple[NodeSpec, ...]:
    """This machine as nodes: one, or one per GPU type (a node has GPUs of one type), which then
    share its cores and memory by their numbers of GPUs.

    `gpus`: empty to ask NVML; `8` or `8xV100+4xK80` for simulated devices, which exist in
    CUDA_VISIBLE_DEVICES only. Raises BadInput.
    """
    counts = _parse(gpus) if gpus else _ask_nvml()
    total = sum(count for _, count in counts)
    cpus, memory = machine()
    kinds = [kind for kind, _ in counts]
    return tuple(
        NodeSpec(
            gpus=count,
            gpu_type=kind,
            name=called,
            cpus=cpus * count // total if total else cpus,
            memory=memory * count // total if total else memory,
        )
        for (kind, count), called in zip(counts, _names(name, kinds), strict=True)
    )


def _names(name: str, kinds: list[str]) -> list[str]:
    """A name for each node: the machine's, with the type where there are several, and numbered
    where several are of one type."""
    if len(kinds) == 1:
        return [name]
    return [
        f"{name}-{kind}" + (f"-{number + 1}" if (number := kinds[:i].count(kind)) else "")
        for i, kind in enumerate(kinds)
    ]


def machine() -> tuple[int, int]:
    """Thousandths of cores that this process may use, and MiB of memory of the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    return len(os.sched_getaffinity(0)) * WHOLE, memory


def core_sets(devices: int) -> tuple[frozenset[int], ...]:
    """Cores of this process for each of so many simulated devices: as even as can be, and apart
    unless there are more devices than cores."""
    cores = sorted(os.sched_getaffinity(0))
    if devices > len(cores):
        return tuple(frozenset((cores[i % len(cores)],)) for i in range(devices))
    ends = [i * len(cores) // devices for i in range(devices + 1)]
    return tuple(frozenset(cores[a:b]) for a, b in pairwise(ends))


def _parse(text: str) -> list[tuple[str, int]]:
    counts: list[tuple[str, int]] = []
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if not match or len(match[1]) > 4:
            raise BadInput(
                f"{text!r} is not a valid number of GPUs", mend="write like 8 or 8xV100+4xK80"
            )
        counts.append((match[2] or SIMULATED, int(match[1])))
    return _checked(counts)


def _checked(counts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    if any(count > _GPUS_MAX for _, count in counts):
        raise BadInput(f"more than {_GPUS_MAX} GPUs in a node", mend="give fewer")
    return [("" if not count else kind, count) for kind, count in counts]


def _ask_nvml() -> list[tuple[str, int]]:
    """GPU types and their numbers in the order of NVML, which is that of the PCI bus; types that
    are not in one run cannot be numbered, so there is one entry per run."""
    try:
        import pynvml
    except ImportError:
        return [("", 0)]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [("", 0)]
    runs: list[tuple[str, int]] = []
    try:
        for i in range(pynvml.nvmlDeviceGetCount()):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))
            kind = short_name(name if isinstance(name, str) else name.decode())
            if runs and runs[-1][0] == kind:
                runs[-1] = kind, runs[-1][1] + 1
            else:
                runs.append((kind, 1))
    finally:
        pynvml.nvmlShutdown()
    return _checked(runs or [("", 0)])


def short_name(name: str) -> str:
    """`A100`, `V100`, `RTX4090` of NVML's `NVIDIA A100-SXM4-40GB`, `Tesla V100-PCIE-16GB`,
    `NVIDIA GeForce RTX 4090`; 80 GB versions of the A100 keep their memory."""
    words = [word for word in name.split() if word not in ("NVIDIA", "Tesla", "GeForce")]
    head = words[0] if words else "GPU"
    if head in ("RTX", "GTX", "Quadro") and len(words) > 1:
        return "".join(words[:2]) + ("Ti" if words[2:] == ["Ti"] else "")
    kind = head.split("-")[0]
    return f"{kind}-80GB" if kind == "A100" and "80GB" in name else kind
