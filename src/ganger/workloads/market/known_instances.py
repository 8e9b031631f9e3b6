"""Which GPUs the machines have that clouds rent out, by what the clouds call them."""

from __future__ import annotations

from typing import Final

KNOWN_INSTANCES: Final[dict[str, tuple[int, str]]] = {
    "p2.xlarge": (1, "K80"), "p2.8xlarge": (8, "K80"), "p2.16xlarge": (16, "K80"),
    "p3.2xlarge": (1, "V100"), "p3.8xlarge": (4, "V100"), "p3.16xlarge": (8, "V100"),
    "p3dn.24xlarge": (8, "V100-32GB"), "g4dn.xlarge": (1, "T4"), "g4dn.12xlarge": (4, "T4"),
    "g5.xlarge": (1, "A10"), "g5.12xlarge": (4, "A10"), "g5.48xlarge": (8, "A10"),
    "p4d.24xlarge": (8, "A100"), "p4de.24xlarge": (8, "A100-80GB"), "p5.48xlarge": (8, "H100"),
    "NC6": (1, "K80"), "NC12": (2, "K80"), "NC24": (4, "K80"), "NC24r": (4, "K80"),
    "NC6s v2": (1, "P100"), "NC12s v2": (2, "P100"), "NC24s v2": (4, "P100"),
    "NC24rs v2": (4, "P100"), "NC6s v3": (1, "V100"), "NC12s v3": (2, "V100"),
    "NC24s v3": (4, "V100"), "NC24rs v3": (4, "V100"),
}  # fmt: skip
"""Number and type of the GPUs of a machine. A K80 counts as its board's half, as clouds count it.
"""
