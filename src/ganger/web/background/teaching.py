"""What is asked of an example of the lecture. Nothing here computes."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct):
    """The example's `name`, and what stands in its inputs."""

    name: str
    values: dict[str, str]
