"""Environments in which every step answers one choice of a game."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec
from ganger.core.units import NEVER, SECOND
from ganger.lab.api import as_cluster, as_trace
from ganger.lab.learning.episode import Episode
from ganger.lab.simulating.setup import Setup
from ganger.mechanisms.learning.growing import Growing
from ganger.mechanisms.learning.placing import Placing
from ganger.mechanisms.learning.starting import Starting
from ganger.mechanisms.learning.stepwise import Game
from ganger.workloads.trace import Trace

try:
    from gymnasium import Env
    from gymnasium.spaces import Box, Discrete
except ImportError as error:
    raise BadInput(
        "Gymnasium is not installed", mend="install it with: pip install 'ganger[envs]'"
    ) from error

Observation = NDArray[np.float32]
Worlds = Callable[[int], Trace]
"""From the seed of an episode to its trace."""


class SchedulingEnv(Env[Observation, np.int64]):
    """A run of `trace` on `cluster` under `game`, from the first job to the last.

    An observation is the rows of the choice: `game.actions` x `game.features` numbers. The action
    is a row. Which are possible is in `info["action_mask"]` and `action_masks()`; one that is not
    counts as the last one that is. The reward is minus the job-seconds in the system since the step
    before, over `scale` (default: the mean true run time of the trace times its jobs), so that a
    whole run gives about minus one for each mean run time of mean JCT. `trace` may be a function
    that makes one from the seed of the episode. Raises BadInput as `ganger.simulate` does, and
    where not a single choice is due in the whole run.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        trace: Trace | str | Worlds,
        cluster: ClusterSpec | str,
        game: Game,
        *,
        setup: Setup | None = None,
        scale: float = 0.0,
    ) -> None:
        if not 0.0 <= scale < math.inf:
            raise BadInput(f"{scale!r} is not a number of 0 or more", where="scale")
        self._cluster, self._game = as_cluster(cluster), game
        self._setup, self._scale = setup, scale
        known = None if callable(trace) else as_trace(trace)
        self._world: Worlds = trace if callable(trace) else lambda seed: _same(known)
        self.episode: Episode | None = None
        """The run, after `reset`."""
        self._unit = 1.0
        self._seen = np.zeros((game.actions, game.features), np.float32)
        self.action_space: Any = Discrete(game.actions)
        self.observation_space = Box(-np.inf, np.inf, self._seen.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a run, by its own seed; without one, by one drawn from the stream of the last."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(1 << 31)) if seed is None else seed
        trace = self._world(number)
        self.episode = episode = Episode(trace, self._cluster, self._game, self._setup)
        if episode.choice is None:
            raise BadInput("there is nothing to choose in this run", mend="give more jobs")
        lasts = trace.duration[: trace.jobs]
        whole = float(np.where(lasts < NEVER, lasts, 0).sum()) / SECOND
        self._unit = self._scale or max(whole, 1.0)
        return self._look(), self._info()

    def step(
        self, action: np.int64 | int
    ) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Answer the choice that is due."""
        episode = self.episode
        assert episode is not None, "call reset first"
        assert episode.choice is not None, "the run is over: call reset"
        mask = episode.choice.mask
        episode.act(int(action) if mask[action] else int(mask.nonzero()[0][-1]))
        over = episode.choice is None
        return self._look(), -episode.waited / self._unit, over, False, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are possible; all of them at the end."""
        assert self.episode is not None, "call reset first"
        choice = self.episode.choice
        return choice.mask.copy() if choice is not None else np.ones(self._game.actions, np.bool_)

    def _look(self) -> Observation:
        assert self.episode is not None
        choice = self.episode.choice
        if choice is None:
            return np.zeros_like(self._seen)
        return choice.rows.astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks()}


class QueueEnv(SchedulingEnv):
    """Which of the first `window` waiting jobs starts next, or that none does for now
    (`mechanisms/learning/starting`)."""

    def __init__(
        self,
        trace: Trace | str | Worlds,
        cluster: ClusterSpec | str,
        *,
        window: int = 50,
        setup: Setup | None = None,
        scale: float = 0.0,
    ) -> None:
        super().__init__(trace, cluster, Starting(window), setup=setup, scale=scale)


class PlacementEnv(SchedulingEnv):
    """Which node gives GPUs to the job at the head of the queue, node by node, or that it waits
    (`mechanisms/learning/placing`). For clusters of at most `window` nodes."""

    def __init__(
        self,
        trace: Trace | str | Worlds,
        cluster: ClusterSpec | str,
        *,
        window: int = 64,
        setup: Setup | None = None,
        scale: float = 0.0,
    ) -> None:
        game, cluster = Placing(window), as_cluster(cluster)
        if sum(group.count for group in cluster.nodes) > window:
            raise BadInput(f"the cluster has more than {window} nodes", mend="give a larger window")
        super().__init__(trace, cluster, game, setup=setup, scale=scale)


class SizingEnv(SchedulingEnv):
    """Which of `window` elastic jobs gets one GPU more, every `every` microseconds, or that none
    does (`mechanisms/learning/growing`)."""

    def __init__(
        self,
        trace: Trace | str | Worlds,
        cluster: ClusterSpec | str,
        *,
        window: int = 20,
        every: int = 1200 * SECOND,
        setup: Setup | None = None,
        scale: float = 0.0,
    ) -> None:
        super().__init__(trace, cluster, Growing(window, every), setup=setup, scale=scale)


def _same(trace: Trace | None) -> Trace:
    assert trace is not None
    return trace
