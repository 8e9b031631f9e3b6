"""A decision taken step by step: a game asks, and a player says what is chosen.

The same game is played by a net inside a recipe, and by a program that learns, through the
environments of `ganger.envs`. So what was learned there decides here as it did there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from ganger.core.plan import Plan
from ganger.core.view import View
from ganger.solve.learn.nets import Floats, Mask


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


Player: TypeAlias = Callable[[Choice], int]


@dataclass(frozen=True)
class Stepwise:
    """A policy that plays `game` as `player` says."""

    name: str
    game: Game
    player: Player

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Play to the end."""
        play = self.game.play(view)
        try:
            choice = next(play)
            while True:
                choice = play.send(self.player(choice))
        except StopIteration as over:
            plan: Plan = over.value
            return plan, None
