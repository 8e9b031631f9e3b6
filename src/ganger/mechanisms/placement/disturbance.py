"""Whether jobs on one node are known to slow each other down, whichever GPUs they hold."""

from __future__ import annotations

from ganger.core.view import View


class _Disturbed:
    """Whether any of the first so many models is known to be slowed down by another: a cache."""

    __slots__ = ("anybody", "models")

    def __init__(self) -> None:
        self.models, self.anybody = 0, False


def anybody_disturbs(view: View) -> bool:
    """Whether any model of the jobs so far is known to be slowed down by another."""
    known, models = view.cached(_Disturbed), view.jobs.models
    if known.models != len(models):
        known.models = len(models)
        known.anybody = any(view.oracle.profile(model).disturbed for model in models)
    return known.anybody
