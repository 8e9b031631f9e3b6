"""Ease.ml: which user is served next, and which model is trained for that one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.plan import AskAt, Plan, Spawn
from ganger.core.protocols import Policy
from ganger.core.state.jobs import Phase
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK
from ganger.mechanisms.tuning.trials import (
    CHANGES,
    Mode,
    Portion,
    badness,
    broke,
    may_start,
    search_of,
    trial_of,
    why_waiting,
)
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Paper, Part, Positive, recipe

EASEML = Paper(
    "Ease.ml: Towards Multi-tenant Resource Sharing for Machine Learning Workloads",
    "Li et al.",
    "PVLDB 11(5)",
    2018,
    "best metric, fairness",
)
Trained: TypeAlias = Annotated[int, Within(1, 1000)]
"""Of more, what is believed would take long to work out."""
Failure: TypeAlias = Annotated[float, Within(0.001, 0.5)]
"""A probability."""
Floats: TypeAlias = NDArray[np.float64]
_NOISE = 1e-3
"""Variance of a value beside that of values."""
_RUNNING, _FINISHED = int(Phase.RUNNING), int(Phase.FINISHED)


class Serves(Enum):
    """Which user is served next."""

    HYBRID = "hybrid"
    GREEDY = "greedy"
    TURNS = "turns"


class Arms(NamedTuple):
    """Trials: for which user each is, which model it trains, both as numbers, and what it costs
    beside the mean of all."""

    users: NDArray[np.int64]
    models: NDArray[np.int64]
    costs: Floats


def arms_of(labels: Sequence[str], costs: Floats) -> Arms:
    """What is trained is called `user/model`, or just `model`. Users in order of their first
    trials; what nobody knows the cost of costs as much as the others."""
    split = [label.rpartition("/") for label in labels]
    users, models = (
        {name: at for at, name in enumerate(dict.fromkeys(each))}
        for each in ([part[0] for part in split], [part[2] for part in split])
    )
    known = costs[np.isfinite(costs)]
    mean = float(known.mean()) if len(known) and known.mean() > 0 else 1.0
    return Arms(
        np.array([users[part[0]] for part in split], np.int64),
        np.array([models[part[2]] for part in split], np.int64),
        np.maximum(np.nan_to_num(costs, nan=mean, posinf=mean) / mean, 1e-9),
    )


def _alike(arms: Arms, some: Sequence[int], others: Sequence[int], alike: float) -> Floats:
    """The covariance of what trials reach: of all those of a user, of the same model for several
    users, and of its own, each with variance 1."""
    users, models = (each[list(some)][:, None] == each[list(others)] for each in arms[:2])
    covariance: Floats = 1.0 * users + alike * models + (1.0 - alike) * (users & models)
    return covariance


def expectations(
    arms: Arms,
    asked: Sequence[int],
    known: dict[int, float],
    running: Sequence[int],
    alike: float,
) -> tuple[Floats, Floats]:
    """What trials will reach, by number, the more the better, and how unsure that is (standard
    deviation), by a Gaussian process. `known`: what trials have reached; `running`: trials of which
    it will be known, so that less is to be learnt near them."""
    values = np.array(list(known.values()), np.float64)
    level = float(values.mean()) if known else 0.0
    scale = (float(values.std()) if known else 0.0) or 1.0
    seen = [*known, *running]
    if not seen:
        return np.full(len(asked), level), np.full(len(asked), math.sqrt(2.0))
    cross = _alike(arms, asked, seen, alike)
    among = _alike(arms, seen, seen, alike) + _NOISE * np.eye(len(seen))
    variance = 2.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(among, cross.T))
    n = len(known)
    mean = level + cross[:, :n] @ np.linalg.solve(among[:n, :n], values - level)
    return mean, scale * np.sqrt(np.maximum(variance, 0.0))


def potential(best: dict[int, float], bounds: dict[int, float]) -> int:
    """The user whose best value may rise the most: by the upper bound of what one more trial
    reaches. Users without a trained model come first."""
    return max(bounds, key=lambda user: bounds[user] - best.get(user, -math.inf))


class ServedMemory(msgspec.Struct, frozen=True):
    """The trials of the search; the user of the last ones, how many in a row these are, and the
    best value of that user when they began; and whether users take turns from now on."""

    trials: list[int] = []
    user: int = -1
    row: int = 0
    best: float | None = None
    turns: bool = False


@dataclass(frozen=True)
class Tenants:
    """Where there is room, a trial starts of the user whose best may rise the most (see `easeml`).
    Every trial is asked for at once, and waits until its turn comes."""

    trials: int
    epochs: float
    serves: Serves
    patience: int
    alike: float
    delta: float
    mode: Mode
    gpus: int
    name = "easeml"
    orders = (Spawn,)

    def decide(self, view: View, memory: ServedMemory | None) -> tuple[Plan, ServedMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        search = search_of(view, self.name)
        begins, memory = memory is None, memory or ServedMemory()
        known = set(memory.trials)
        came = [job for job in view.pending.tolist() if job not in known]
        for job in came:
            view.draft.act(AskAt(job, self.epochs))
        trials = sorted([*memory.trials, *came])
        memory = msgspec.structs.replace(memory, trials=trials)
        if begins and len(trials) < self.trials:
            missing = self.trials - len(trials)
            view.draft.act(Spawn(search, trial_of(view, search, Portion(self.gpus)), missing))
        self._retire(view, trials)
        waits = False
        if not view.spawning.get(search, 0) and not (begins and len(trials) < self.trials):
            memory, waits = self._start(view, search, memory)
        return view.draft.plan(
            [why_waiting("Tenants", self.gpus)] if waits else [], until=CHANGES
        ), memory

    def over(self, view: View, memory: ServedMemory) -> bool:
        """Whether all trials have been trained."""
        phase = view.at.phase
        coming = view.spawning.get(view.within, 0) or not memory.trials
        return not coming and all(phase[job] >= _FINISHED for job in memory.trials)

    def _retire(self, view: View, trials: Sequence[int]) -> None:
        """End those that have trained to their end, or broke down."""
        for job in trials:
            curve = view.trials.get(job)
            if curve is None or view.at.phase[job] != _RUNNING or view.draft.holds(job) is None:
                continue
            if curve.final or curve.last >= self.epochs or broke(curve):
                view.draft.retire(job)

    def _start(self, view: View, search: int, memory: ServedMemory) -> tuple[ServedMemory, bool]:
        """Start trials while there is room; whether some wait."""
        trials, draft = memory.trials, view.draft
        running = [
            at
            for at, job in enumerate(trials)
            if view.at.phase[job] < _FINISHED and draft.holds(job) is not None
        ]
        room = (int(view.at.size[search]) - self._held(view, trials)) // self.gpus
        waiting = [
            at for at, job in enumerate(trials) if may_start(view, job) and draft.holds(job) is None
        ]
        if room <= 0 or not waiting:
            return memory, bool(waiting)
        models, model = view.jobs.models, view.at.model
        costs = view.oracle.duration(view, np.array(trials))
        arms = arms_of([models[model[job]] for job in trials], costs)
        known = self._known(view, trials)
        while room > 0 and waiting:
            memory, at = self._next(arms, known, running, waiting, memory)
            placement = PACK.find(view, view.ledger, trials[at])
            if placement is None:
                return memory, True
            draft.start(trials[at], placement)
            waiting.remove(at)
            running.append(at)
            room -= 1
        return memory, bool(waiting)

    def _held(self, view: View, trials: Sequence[int]) -> int:
        """The GPUs that trials have, also those that are about to let go of them."""
        held = (view.draft.holds(job) for job in trials if view.at.phase[job] < _FINISHED)
        return sum(slot.devices.bit_count() for each in held if each for slot in each)

    def _known(self, view: View, trials: Sequence[int]) -> dict[int, float]:
        """By number what each trial that is over has reached; one that failed or broke down has
        reached as little as any."""
        known, failed = dict[int, float](), list[int]()
        for at, job in enumerate(trials):
            over = view.at.phase[job] >= _FINISHED
            leaves = view.at.phase[job] == _RUNNING and view.draft.holds(job) is None
            curve = view.trials.get(job)
            if curve is not None and curve.values and (over or leaves):
                bad = min(badness(value, self.mode) for value in curve.values)
                if not broke(curve) and bad < math.inf:
                    known[at] = -bad
                    continue
            if over or leaves:
                failed.append(at)
        return known | dict.fromkeys(failed, min(known.values(), default=0.0))

    def _next(
        self,
        arms: Arms,
        known: dict[int, float],
        running: Sequence[int],
        waiting: Sequence[int],
        memory: ServedMemory,
    ) -> tuple[ServedMemory, int]:
        """The trial that starts next."""
        asked = [*waiting, *running]
        mean, sigma = expectations(arms, asked, known, running, self.alike)
        users = arms.users.tolist()
        best = dict[int, float]()
        for at, value in known.items():
            best[users[at]] = max(best.get(users[at], -math.inf), value)
        for at, value in zip(running, mean[len(waiting) :].tolist(), strict=True):
            best.setdefault(users[at], value)  # it is being served, though nothing is known yet
        tried = np.bincount(arms.users[[*known, *running]], minlength=max(users) + 1)
        number, models = tried[arms.users[waiting]] + 1, int(arms.models.max()) + 1
        beta = 2.0 * np.log(math.pi**2 * models * number**2 / (6.0 * self.delta))
        bounds, first = dict[int, float](), dict[int, int]()
        n = len(waiting)
        upper = mean[:n] + sigma[:n] * np.sqrt(beta / arms.costs[waiting])
        for at, bound in zip(waiting, upper.tolist(), strict=True):
            if bound > bounds.get(users[at], -math.inf):
                bounds[users[at]], first[users[at]] = bound, at
        memory = self._user(memory, bounds, best)
        return memory, first[memory.user]

    def _user(
        self, memory: ServedMemory, bounds: dict[int, float], best: dict[int, float]
    ) -> ServedMemory:
        """Who is served next."""
        turns = memory.turns or self.serves is Serves.TURNS
        if turns:
            later = sorted(user for user in bounds if user > memory.user)
            user = later[0] if later else min(bounds)
            return msgspec.structs.replace(memory, user=user)
        user = potential(best, bounds)
        now = best.get(user)
        same = user == memory.user and now == memory.best
        row = memory.row + 1 if same else 1
        turns = self.serves is Serves.HYBRID and row > self.patience and len(bounds) > 1
        after = msgspec.structs.replace(memory, user=user, row=row, best=now)
        if turns:
            return self._user(msgspec.structs.replace(after, turns=True), bounds, best)
        return after


@recipe(
    EASEML,
    needs="durations",
    reconstructed="what models reach is believed by a Gaussian process without a history of earlier"
    " users: users differ in level, and a model that does well for one is believed to do well for"
    " others; formulas are from memory of the paper; its winner is not deployed",
)
def easeml(
    trials: Trained = 100,
    epochs: Positive = 81.0,
    serves: Serves = Serves.HYBRID,
    patience: Count = 10,
    alike: Part = 0.5,
    delta: Failure = 0.1,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
) -> Policy:
    """Trials of several users who share a search: served next is the user whose best may rise the
    most, with the model that is believed to be best for its cost.

    A configuration is called `user/model`. A model's upper bound is what it is believed to reach
    plus how unsure that is times the square root of beta / cost; beta = 2 log(pi^2 K t^2 / 6
    `delta`) for K models, when t have been trained for the user. `greedy`: the user whose highest
    bound is the furthest above its best so far; `hybrid`: the same, until the same user was served
    `patience` times in a row without success, from when on users take `turns`. `alike`: how far
    what a model reaches for one user says what it reaches for others.
    """
    return Tenants(trials, epochs, serves, patience, alike, delta, mode, gpus)
