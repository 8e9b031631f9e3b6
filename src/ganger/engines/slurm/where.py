"""On which nodes a Slurm job may run: its node list, the nodes that it excludes, its constraint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganger.engines.slurm.calls.answers import Node
from ganger.engines.slurm.calls.hostlist import expand

_FEATURE: Final = r"[^&|*\[\](),\s]+"
_ALL: Final = re.compile(rf"{_FEATURE}(&{_FEATURE})*")
_ANY: Final = re.compile(rf"{_FEATURE}(\|{_FEATURE})*")


class Where(msgspec.Struct, frozen=True):
    """The values of `sbatch --nodelist`, `--exclude` and `--constraint`; empty for none."""

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    constraint: str = ""

    def is_open(self, nodes: int) -> bool:
        """Whether a job of so many nodes may run anywhere, as far as this is understood."""
        lists = self.excluded or (self.required and len(self.required) >= nodes)
        return not lists and (not self.constraint or self._groups() is None)

    def allows(self, node: Node, nodes: int) -> bool:
        """Whether a job of so many nodes may run there, as far as this is understood."""
        if node.name in self.excluded:
            return False
        if self.required and len(self.required) >= nodes and node.name not in self.required:
            return False
        groups = self._groups()
        return groups is None or any(group <= set(node.features) for group in groups)

    def not_understood(self, nodes: int) -> str:
        """What of it is ignored, in words; empty if nothing is."""
        if self.required and len(self.required) < nodes:
            return "its node list, which names fewer nodes than it asks for"
        if self.constraint and self._groups() is None:
            return f"its constraint {self.constraint}"
        return ""

    def lines(self) -> list[str]:
        """It in sentences."""
        said = (
            ("It asks for the nodes {}.", self.required),
            ("It excludes {}.", self.excluded),
            ("It asks for nodes with {}.", (self.constraint,) if self.constraint else ()),
        )
        return [text.format(", ".join(names)) for text, names in said if names]

    def _groups(self) -> list[set[str]] | None:
        """Sets of features of which a node must have one whole; None where it is not understood:
        counts (`a*2`), one feature for all nodes (`[a|b]`), both signs in one."""
        if not self.constraint:
            return None
        if _ALL.fullmatch(self.constraint):
            return [set(self.constraint.split("&"))]
        if _ANY.fullmatch(self.constraint):
            return [{one} for one in self.constraint.split("|")]
        return None


def where_of(row: Mapping[str, Any]) -> Where:
    """What a row of `squeue --json` says of it."""
    constraint = row.get("features")
    return Where(
        tuple(expand(row.get("required_nodes") or "")),
        tuple(expand(row.get("excluded_nodes") or "")),
        constraint if isinstance(constraint, str) else "",
    )
