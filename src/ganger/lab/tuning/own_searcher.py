"""Searchers that did not come with Ganger: `FILE.py:Class`, or `module:Class`, made with the space
and a seed. They run in the process of the user who names them, simulated and live: a daemon is
given their proposals over its API, and never runs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ganger.client.answering.families import ProposalsAnswer, ReportAnswer
from ganger.client.answers import Changed, JobDetail
from ganger.client.connection import Client, Refusal
from ganger.core.errors import BadInput
from ganger.core.tuning.goals import feasible, read_constraint
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Point, Space, spelled
from ganger.lab.simulating.user_policy import in_a_line, loaded
from ganger.mechanisms.tuning.searching.model_free import Listed
from ganger.mechanisms.tuning.searching.named import searcher_of
from ganger.mechanisms.tuning.trials import Mode, badness

OUTSIDE: Final = "client"
"""The searcher of a search on a daemon for which the program proposes that submitted it."""
Make = Callable[[Space, int], Any]


def is_own(name: str) -> bool:
    """Whether a searcher's name is that of a class of the user's."""
    return ":" in name


def searcher_for(name: str, space: Space, points: Sequence[Point], seed: int) -> Searcher:
    """The searcher of that name, as `searcher_of`, or the user's own. Raises BadInput."""
    if not is_own(name):
        return searcher_of(name, space, points, seed)
    own = Own(make_of(name), name, space, seed)
    return Listed(points, own) if points else own


def make_of(name: str) -> Make:
    """The class that `FILE.py:Class` or `module:Class` names. Its file runs. Raises BadInput."""
    file, _, called = name.rpartition(":")
    if file.endswith(".py"):
        made: Make = loaded(Path(file), called)
        return made
    try:
        maker = getattr(import_module(file), called, None)
    except Exception as error:
        raise BadInput(in_a_line(error), where=name, mend="write FILE.py:Class") from error
    if maker is None:
        raise BadInput(f"it defines no {called}", where=file, mend="check the name")
    return maker  # type: ignore[no-any-return]


class Own:
    """A user's searcher, of which every proposal is checked. It has `ask()`, and may have
    `tell(point, epoch, badness)` and `took(point)`. What it raises is raised as BadInput."""

    def __init__(self, make: Make, name: str, space: Space, seed: int) -> None:
        self._name, self._space = name, space
        self._own = self._call(make, space, seed)
        if not callable(getattr(self._own, "ask", None)):
            raise BadInput("it has no method ask()", where=name, mend="see docs/tuning.md")

    def _call(self, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            raise BadInput(
                f"the searcher raised {in_a_line(error)}", where=self._name, mend="mend it"
            ) from error

    def ask(self) -> Point:
        """Its next point. Raises BadInput for one that is not of the space."""
        point = self._call(self._own.ask)
        if not isinstance(point, dict):
            raise BadInput(
                f"it proposed {str(point)[:80]!r}", where=self._name, mend="return a dictionary"
            )
        return self._space.check(point, self._name)

    def took(self, point: Point) -> None:
        """The trial of its last proposal has this point."""
        if hasattr(self._own, "took"):
            self._call(self._own.took, point)

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """A trial reported."""
        if hasattr(self._own, "tell"):
            self._call(self._own.tell, point, epoch, badness)


class Asked:
    """A user's searcher beside a search that waits for its proposals. It hears of all reports of
    the trials so far, in order, before it is asked: so another process may go on with it."""

    def __init__(self, client: Client, job: int, make: Make, name: str) -> None:
        """Raises BadInput for a search that is not of the searcher `client`."""
        self._client, self._path = client, f"/v1/jobs/{job}"
        answer = self._proposals()
        self._space = Space(answer.space)
        trials = self._detail().children
        self._searcher = Own(make, name, self._space, answer.seed + sum(trials.values()))
        self._points: dict[int, Point | None] = {}
        self._after = 0

    def look(self) -> None:
        """Propose what is wanted now. Raises BadInput, and NoDaemon."""
        wanted = self._proposals().wanted
        if wanted <= 0:
            return
        self._hear()
        proposed = []
        for _ in range(min(wanted, 1000)):
            words = {name: spelled(value) for name, value in self._searcher.ask().items()}
            point = self._space.read(words)
            if point is not None:
                self._searcher.took(point)
            proposed.append(words)
        body = {"configurations": proposed}
        self._client.call("POST", f"{self._path}/proposals", ProposalsAnswer, body=body)

    def _proposals(self) -> ProposalsAnswer:
        proposals: ProposalsAnswer = self._client.call(
            "GET", f"{self._path}/proposals", ProposalsAnswer
        )
        return proposals

    def _detail(self) -> JobDetail:
        detail: JobDetail = self._client.call("GET", self._path, list[JobDetail])[0]
        return detail

    def _hear(self) -> None:
        """Of the reports since."""
        path = f"{self._path}/reports"
        family = None
        while reports := self._client.call(
            "GET", path, list[ReportAnswer], query={"after": self._after}
        ):
            family = family or self._detail().family
            if family is None:
                return
            for child in family.children:
                self._points.setdefault(child.job, self._space.read(child.params))
            mode = Mode.MAX if family.more_is_better else Mode.MIN
            bounds = [read_constraint(each, "constraints") for each in family.constraints]
            for report in reports:
                self._after = report.id
                point = self._points.get(report.job)
                if point is not None:
                    kept = report.value is not None and feasible(bounds, report.metrics)
                    value = report.value if kept and report.value is not None else math.nan
                    self._searcher.tell(point, report.step, badness(value, mode))


def stopped_with(client: Client, job: int, error: BadInput) -> BadInput:
    """The same error, after the search is ended that can get no more proposals."""
    try:
        client.call("POST", f"/v1/jobs/{job}/cancel", Changed)
    except Refusal:
        return error
    return BadInput(f"{error.what}; search {job} is cancelled", where=error.where, mend=error.mend)
