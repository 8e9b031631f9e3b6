"""A decision taken step by step: a game asks, and a program says what is chosen.

The program stands outside: it comes through the environments of `ganger.envs`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.plan import Plan
from ganger.core.view import View

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
WINDOW_MAX: Final = 4096
"""Choices of more actions than that fill memory, and nothing learns from them."""


class Choice(NamedTuple):
    """What can be chosen now. `rows`: numbers about each action, in about -1 to 1; `mask`: which of
    them are possible, at least one. They are valid until the player has answered."""

    rows: Floats
    mask: Mask


Play: TypeAlias = Generator[Choice, int, Plan]
"""One decision: choices come out, actions go in, and a plan is returned."""


class Game(Protocol):
    """How a decision is divided into choices."""

    @property
    def actions(self) -> int:
        """How many actions there are, the same in every choice."""
        ...

    @property
    def features(self) -> int:
        """How many numbers there are about each."""
        ...

    def play(self, view: View) -> Play:
        """Decide at the instant of `view`. Only actions that are possible may be sent."""
        ...


def check_whole(value: object, least: int, limit: int, where: str) -> None:
    """Raise BadInput where a value is not a whole number from `least` to `limit`."""
    if not isinstance(value, int) or not least <= value <= limit:
        raise BadInput(f"{value!r} is not a whole number from {least} to {limit}", where=where)


@dataclass(frozen=True)
class Windowed:
    """A game with an action for each place of a window, and a last one. Raises BadInput where
    `window` is not a number from 1 to `WINDOW_MAX`."""

    window: int

    def __post_init__(self) -> None:
        check_whole(self.window, 1, WINDOW_MAX, "window")

    @property
    def actions(self) -> int:
        """The places of the window, and the last action."""
        return self.window + 1
