"""Children that a policy asked for, and trials that people add to a search."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Unable
from ganger.core.plan import Spawn
from ganger.core.spec import Kind
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.jobs import Phase
from ganger.core.tuning.space import Space, spelled
from ganger.mechanisms.tuning.trials import Portion, trial_of
from ganger.service.commands import Ask, Turn
from ganger.service.jobs.families import born, children_of, next_child
from ganger.service.jobs.job_facts import JobFacts, Proposals
from ganger.service.searches.proposing import NotProposed

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


class Bear(Ask):
    """Answer a Spawn: accept the children that a policy asked for. What they run stands in their
    facts, so that the journal is decided again without the searcher that chose it."""

    own = True

    def __init__(
        self, wanted: Spawn, given: Sequence[dict[str, str]] = (), heard: int = -1, why: str = ""
    ) -> None:
        super().__init__()
        self._wanted = wanted
        self._given, self._heard, self._why = given, heard, why
        self.parent = wanted.parent

    def proposed(self, given: Sequence[dict[str, str]], heard: int) -> Bear:
        """The same with these configurations, by a searcher that has heard of reports up to this
        revision."""
        return Bear(self._wanted, given, heard)

    def hopeless(self, why: str) -> Bear:
        """The same, which no child comes of."""
        return Bear(self._wanted, why=why)

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One Accepted each; an Unable for those that cannot be. Raises NotProposed where their
        configurations have to be looked for first."""
        parent, jobs = self._wanted.parent, turn.kernel.jobs
        if jobs.phase[parent] >= Phase.FINISHED:
            return
        facts, kind = daemon.journal.facts(parent), Kind(int(jobs.kind[parent]))
        given = deque(self._given)
        proposals = facts.family.proposals if facts.family is not None else None
        if proposals is not None and self._wanted.copies is None and not self._why:
            self._look(turn, daemon, facts, proposals)
        for left in range(self._wanted.n, 0, -1):
            row = turn.next_row
            spec = msgspec.structs.replace(self._wanted.spec, name=str(row + 1), submitted=turn.at)
            try:
                if facts.family is None:
                    raise BadInput("it was submitted without saying what its children are")
                if self._why:
                    raise BadInput(self._why)
                own, heard, copied, source = None, -1, -1, ""
                if self._wanted.copies is not None:
                    copied = self._wanted.copies[0]
                    own, source = self._near(facts, daemon, copied, row)
                event = Accepted(row, spec, spawned=True)
                refuse_unfit((event,), turn.kernel, len(turn.jobs))
                number = next_child(turn, parent)
            except BadInput as error:
                daemon.proposing.forget(parent)
                turn.events.append(Unable(parent, Spawn.__name__, left, str(error)))
                return
            if own is None and proposals is not None and number >= len(facts.family.configurations):
                own, heard = given.popleft(), self._heard
            turn.jobs.append((row, born(spec, facts, kind, number, own, heard, copied, source)))
            turn.events.append(event)
        if given:
            daemon.proposing.forget(parent)

    @staticmethod
    def _near(facts: JobFacts, daemon: Daemon, copied: int, row: int) -> tuple[dict[str, str], str]:
        """The configuration of a child that begins as a copy of another one, and becomes row `row`,
        and where the checkpoints of that one are. Raises BadInput where there is no space."""
        proposals = facts.family.proposals if facts.family is not None else None
        other = daemon.journal.facts(copied)
        space = Space(proposals.space) if proposals is not None else None
        point = space.read(other.params) if space is not None else None
        if proposals is None or space is None or point is None:
            raise BadInput(
                "nothing says what is near the configuration of a trial, without `space`"
            )
        near = space.near(point, np.random.default_rng([proposals.seed, 0xC0B1, row]))
        words = {name: spelled(value) for name, value in near.items()}
        return words, other.launch.checkpoint_dir or str(copied)

    def _look(self, turn: Turn, daemon: Daemon, facts: JobFacts, proposals: Proposals) -> None:
        """Raise NotProposed unless each child has a configuration."""
        assert facts.family is not None
        rows = children_of(turn.kernel.jobs, self.parent)
        born_yet = turn.born.get(self.parent, len(rows))
        listed = max(len(facts.family.configurations) - born_yet, 0)
        count = max(self._wanted.n - listed, 0)
        if len(self._given) < count:
            if self._given:
                daemon.proposing.forget(self.parent)
            phase = turn.kernel.jobs.phase
            daemon.proposing.forget_over(lambda row: bool(phase[row] >= Phase.FINISHED))
            daemon.proposing.want(self, proposals, rows, turn.kernel.revision, count)
            raise NotProposed("its configuration is being looked for")


class AddTrials(Ask):
    """Accept more trials of a search, each with these values of parameters, on `each`. Answers
    with their rows."""

    def __init__(self, parent: int, configurations: list[dict[str, str]], each: Portion) -> None:
        super().__init__()
        self._parent, self._configurations, self._each = parent, configurations, each
        self.rows: list[int] = []

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One Accepted each."""
        parent, kernel = self._parent, turn.kernel
        if kernel.jobs.phase[parent] >= Phase.FINISHED:
            raise BadInput(f"search {parent + 1} is over", mend="submit another search")
        facts = daemon.journal.facts(parent)
        spec = trial_of(kernel.view, parent, self._each)
        names = _names(facts)
        for values in self._configurations:
            wrong = next((name for name in values if names and name not in names), None)
            if wrong is not None:
                raise BadInput(
                    f"search {parent + 1} has no parameter {wrong!r}",
                    mend=f"it has: {', '.join(sorted(names))}",
                )
            row = turn.next_row
            own = msgspec.structs.replace(spec, name=str(row + 1), submitted=turn.at)
            event = Accepted(row, own)
            refuse_unfit((event,), kernel, len(turn.jobs))
            number = next_child(turn, parent)
            turn.jobs.append((row, born(own, facts, Kind.TUNE, number, values)))
            turn.events.append(event)
            self.rows.append(row)

    def answer(self) -> list[int]:
        """Their rows."""
        return self.rows


def _names(search: JobFacts) -> set[str]:
    """The parameters of a search; none where nothing says what its trials try."""
    family = search.family
    if family is None:
        return set()
    named = {name for values in family.configurations for name in values}
    return named | (set(family.proposals.space) if family.proposals is not None else set())
