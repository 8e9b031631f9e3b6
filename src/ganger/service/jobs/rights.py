"""Which users may submit to which tenant, and with which priority: what administrators of a shared
daemon state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ganger.service.durable.journal import Journal
from ganger.service.jobs.roles import Forbidden, checked_name
from ganger.service.jobs.submission import Who

SETTING: Final = "rights"
PLAIN_PRIORITY: Final = 0
PLAIN_WEIGHT: Final = 1.0


class TenantRights(msgspec.Struct, frozen=True, omit_defaults=True):
    """What jobs of one tenant may state. `members` may submit to it beside the user of its name,
    each up to a priority of their own, or (None) up to `max_priority` as all do; `max_weight` is
    the most that a job's weight may be."""

    members: dict[str, int | None] = {}
    max_priority: int = PLAIN_PRIORITY
    max_weight: float = PLAIN_WEIGHT


class Rights(msgspec.Struct, frozen=True):
    """The rights of tenants. For a tenant without an entry it holds: the user of that name submits
    there, with priority 0 at most and weight 1 at most."""

    tenants: dict[str, TenantRights] = {}

    @classmethod
    def kept(cls, journal: Journal) -> Rights:
        """What a journal keeps."""
        return msgspec.json.decode(journal.setting(SETTING) or "{}", type=cls)

    def of(self, tenant: str) -> TenantRights:
        """What holds for a tenant."""
        return self.tenants.get(tenant, TenantRights())

    def refuse_beyond(self, who: Who, tenant: str, priority: float, weight: float) -> None:
        """Raise Forbidden unless the user, if not an administrator, may have jobs of this tenant,
        with this priority and weight."""
        rights = self.of(tenant)
        if tenant != who.user and who.user not in rights.members:
            raise Forbidden(
                f"{who.user} is not a member of the tenant {tenant!r}",
                where="tenant",
                mend=f"leave it out for {who.user!r}, or have an administrator say: ganger quota"
                " TENANT --member USER",
            )
        own = rights.members.get(who.user)
        most = rights.max_priority if own is None else own
        if priority > most:
            raise Forbidden(
                f"{priority} is above {most}, the highest that {who.user} may state in the "
                f"tenant {tenant!r}",
                where="priority",
            )
        if weight > rights.max_weight:
            raise Forbidden(
                f"{weight:g} is above {rights.max_weight:g}, the highest in the tenant {tenant!r}",
                where="weight",
            )

    def changed(self, tenant: str, rights: TenantRights) -> Rights:
        """With other rights for a tenant."""
        others = {name: one for name, one in self.tenants.items() if name != tenant}
        return Rights(others if rights == TenantRights() else {**others, tenant: rights})


def with_members(
    rights: TenantRights, new: Mapping[str, int | None], without: list[str]
) -> TenantRights:
    """With these members, and without those. Raises BadInput."""
    members = {**rights.members, **{checked_name(user): most for user, most in new.items()}}
    for user in without:
        members.pop(checked_name(user), None)
    return msgspec.structs.replace(rights, members=dict(sorted(members.items())))
