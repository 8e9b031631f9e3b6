"""Bodies of requests about the cluster: its tenants, its recipes and its rules."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from ganger.core.errors import BadInput
from ganger.service.idle import Action
from ganger.service.jobs.rights import PLAIN_PRIORITY, PLAIN_WEIGHT, TenantRights, with_members
from ganger.service.jobs.submission import PRIORITY_MAX

DAYS_MAX: Final = 36_500


class QuotaChange(msgspec.Struct, forbid_unknown_fields=True):
    """What a tenant may have from now on; what is left out stays, null takes it away. `limit`: GPUs
    that its jobs may hold under any recipe; `quota` (GPUs) and `weight` are for recipes that know
    them. `budget`: USD that what its jobs hold may cost in all, and `beyond`, what follows then:
    `warn`, `ask` (its jobs wait until somebody gives more) or `stop` (those that run are stopped,
    too). `members` may submit to it from now on, each with a priority of at most so much (null: of
    `max_priority`), and those of `without` no longer; `max_priority` and `max_weight` are the most
    that its jobs may state."""

    limit: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] | msgspec.UnsetType | None = msgspec.UNSET
    quota: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | msgspec.UnsetType | None = msgspec.UNSET
    weight: float | msgspec.UnsetType | None = msgspec.UNSET
    budget: float | msgspec.UnsetType | None = msgspec.UNSET
    beyond: Literal["warn", "ask", "stop"] | msgspec.UnsetType | None = msgspec.UNSET
    members: dict[str, int | None] = {}
    without: list[str] = []
    max_priority: int | msgspec.UnsetType | None = msgspec.UNSET
    max_weight: float | msgspec.UnsetType | None = msgspec.UNSET

    def rights_after(self, before: TenantRights) -> TenantRights:
        """What the tenant's jobs may state after this. Raises BadInput."""
        for name, value in (
            ("max_priority", self.max_priority),
            *(("members", priority) for priority in self.members.values()),
        ):
            if isinstance(value, int) and not -PRIORITY_MAX <= value < PRIORITY_MAX:
                raise BadInput(
                    f"{value} is not in {-PRIORITY_MAX} .. {PRIORITY_MAX - 1}", where=name
                )
        rights = with_members(before, self.members, self.without)
        if self.max_priority is not msgspec.UNSET:
            highest = PLAIN_PRIORITY if self.max_priority is None else self.max_priority
            rights = msgspec.structs.replace(rights, max_priority=highest)
        if self.max_weight is not msgspec.UNSET:
            heaviest = PLAIN_WEIGHT if self.max_weight is None else self.max_weight
            rights = msgspec.structs.replace(rights, max_weight=heaviest)
        return rights


class RuleChange(msgspec.Struct, forbid_unknown_fields=True):
    """What may be changed of the rule for idle jobs; null leaves it."""

    action: Action | None = None
    after: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None
    gpu: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    cores: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] | None = None


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """Whose the token is, and whether its bearer is a `user` or an `admin`."""

    user: str
    role: str = "user"


class PolicyChange(msgspec.Struct, forbid_unknown_fields=True):
    """Other recipes: `recipe` for jobs, `inner` for trials inside what their search holds,
    `serving` for services; null leaves one as it is, `none` takes it away. With `dry_run` only what
    they would do at once."""

    recipe: str | None = None
    inner: str | None = None
    serving: str | None = None
    knows: str = ""
    dry_run: bool = False


class WhatIf(msgspec.Struct, forbid_unknown_fields=True):
    """Recipes to compare with the one in force; nodes to `add`, like `1x4xA100`; with
    `history_days` it is played with the jobs that finished in so many days."""

    recipes: list[str] = []
    add: str = ""
    history_days: Annotated[float, msgspec.Meta(ge=0.0, le=DAYS_MAX)] = 0.0


class Down(msgspec.Struct, forbid_unknown_fields=True):
    """How to go down: running jobs go on, or with `jobs` are stopped first and put back in line."""

    jobs: bool = False
