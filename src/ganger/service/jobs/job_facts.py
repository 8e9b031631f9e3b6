"""What the daemon keeps of a live job beside its spec: how it is launched, and what gates it."""

from __future__ import annotations

from typing import Final

import msgspec

from ganger.client.request import EarlierTrial
from ganger.core.spec import JobSpec
from ganger.core.tuning.goals import Constraint
from ganger.core.tuning.space import Parameter
from ganger.engines.launch import Launch
from ganger.mechanisms.tuning.trials import Mode
from ganger.service.jobs.dependencies import Condition, Dependencies


class Proposals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the configurations of a search come from that are not listed: the searcher, its seed
    and its space, which values the recipe over the trials likes, and what is known before."""

    searcher: str
    space: dict[str, Parameter]
    seed: int = 0
    mode: Mode = Mode.MIN
    earlier: tuple[EarlierTrial, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    """A report that breaks one counts as that of a trial that broke down."""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the children of a search or a service are: each runs its parent's command; child i is
    given configuration i, and after the last what a searcher proposes, or the first again."""

    configurations: tuple[dict[str, str], ...] = ()
    metrics: dict[str, str] = {}
    """Of a search: metrics that count beside the one that judges, each with `min` or `max`."""
    proposals: Proposals | None = None


class JobFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Launch facts of one job, written once. Times in microseconds.

    `name` is for people; `begin`: not before that time (0: none); `after_any`: rows that must be
    over first; `conditions`: what else must have become of others; `singleton`: earlier jobs of its
    name and user must be over; `array` and `task`: the row of the first task of its array and its
    own number (-1: none), `throttle`: how many tasks of it may be in the queue at once (0: all);
    `params`: of a task of a grid, its values by name; `family`: of a search or a service, what its
    children are; `child`: its number among the children of its parent, from 0 (-1: it has none);
    `heard`: of a trial that a searcher proposed, the revision up to which that had heard of reports
    (-1: none did); `copied`: the row of the trial that it began as a copy of (-1: of none);
    `script`: the text of its script, or ""; `mail_to` gets mail about events `mail_on`.
    """

    name: str
    launch: Launch
    user: str = ""
    begin: int = 0
    after_any: tuple[int, ...] = ()
    after_not_ok: tuple[int, ...] = ()
    """Rows that must have ended badly; of older journals, now they are `conditions`."""
    conditions: Dependencies = Dependencies()
    singleton: bool = False
    mail_to: tuple[str, ...] = ()
    mail_on: tuple[str, ...] = ()
    throttle: int = 0
    hold: bool = False
    array: int = -1
    task: int = -1
    params: dict[str, str] = {}
    script: str = ""
    family: Family | None = None
    child: int = -1
    heard: int = -1
    copied: int = -1

    @property
    def waits_for(self) -> Dependencies:
        """All that must have become of other jobs, but for what the core itself waits for."""
        over = (Condition("over", self.after_any),) if self.after_any else ()
        not_ok = (Condition("not_ok", (row,)) for row in self.after_not_ok)
        return Dependencies((*over, *not_ok, *self.conditions.every), self.conditions.either)


class Prepared(msgspec.Struct, frozen=True):
    """A job that may be accepted: all but its number is settled."""

    spec: JobSpec
    facts: JobFacts


ENCODE: Final = msgspec.msgpack.Encoder().encode
DECODE: Final = msgspec.msgpack.Decoder(JobFacts).decode
