"""What the children that policies ask for truly are: how long they run, and what they report."""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.plan import Spawn
from ganger.core.profiles import Profiles
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, micros


class Searcher(Protocol):
    """Says what a child is that a policy asked for."""

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """The child of that name, of a parent of this `kind`, and how long it truly runs
        (microseconds at the size it asks for). Raises BadInput."""


class AsStated:
    """A child runs as long as its `estimate` says; one without runs until it is stopped."""

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """As the policy wants it. Raises BadInput for a trial of which nothing is known."""
        _refuse_copies(action, name)
        if kind is Kind.TUNE and action.spec.estimate >= NEVER:
            raise BadInput(
                f"nothing says what a trial of {action.spec.parent!r} is",
                where=name,
                mend="give --profiles with `convergence` and `seconds` for some models, which are"
                " the configurations that trials are drawn from",
            )
        return msgspec.structs.replace(action.spec, name=name), action.spec.estimate


class FromCurves(AsStated):
    """A trial is one of the models whose profile says how its training goes and how many seconds an
    epoch takes. Each is drawn once, in a random order by `seed`, before any is drawn again."""

    def __init__(self, profiles: Profiles, seed: int) -> None:
        self._took = {
            model: micros(told.length() * told.seconds)
            for model, profile in profiles.models.items()
            if (told := profile.convergence) is not None and told.seconds
        }
        self._order = np.random.default_rng([seed, 0x7E]).permutation(sorted(self._took)).tolist()
        self._drawn: dict[str, int] = {}

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """The next configuration of that search. Raises BadInput if no profile is one."""
        _refuse_copies(action, name)
        if kind is not Kind.TUNE or action.spec.model or not self._order:
            return super().child(action, kind, name)
        number = self._drawn.get(action.spec.parent, 0)
        self._drawn[action.spec.parent] = number + 1
        model = self._order[number % len(self._order)]
        return msgspec.structs.replace(action.spec, name=name, model=model), self._took[model]


def _refuse_copies(action: Spawn, name: str) -> None:
    """Raise BadInput for a trial that is to begin as a copy of another one."""
    if action.copies is not None:
        raise BadInput(
            "profiles do not say how a copy of another trial goes on",
            where=name,
            mend="simulate an experiment on --curves (docs/tuning.md)",
        )


def born(
    action: Spawn, declared: Declared, searcher: Searcher, now: int
) -> list[tuple[JobSpec, int]]:
    """The children that `action` asks for, each declared as a new row, and how long each truly
    runs. Raises BadInput."""
    parent, found = action.parent, list[tuple[JobSpec, int]]()
    rows, kind = {declared.name(parent): parent}, Kind(int(declared.kind[parent]))
    for _ in range(action.n):
        spec, duration = searcher.child(action, kind, f"{action.spec.name}-{declared.n}")
        found.append((msgspec.structs.replace(spec, submitted=now), duration))
        declared.append(found[-1][0], rows)
    return found
