"""Lists of hosts in what Slurm answers."""

from __future__ import annotations

from ganger.core.errors import BadInput
from ganger.sdk import hostlist


def expand(text: str) -> list[str]:
    """The host names of `gpu[01-03,7],login`, in order. Raises BadInput."""
    try:
        return hostlist.expand(text)
    except ValueError as wrong:
        raise BadInput(str(wrong), where="host list") from None
