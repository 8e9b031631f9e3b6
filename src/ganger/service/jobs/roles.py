"""Which users may do what: administrators by name, tokens by their hash."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from typing import Final

import msgspec

from ganger.core.errors import BadInput
from ganger.service.durable.journal import Journal

SETTING: Final = "roles"
ROLES: Final = ("user", "admin")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,63}")


class Forbidden(BadInput):
    """Only somebody else may do that."""


class Token(msgspec.Struct, frozen=True):
    """What is kept of a token: its hash, whose it is, what its bearer may do, when it was made
    (Unix seconds)."""

    digest: str
    user: str
    role: str
    made: float

    @property
    def id(self) -> str:
        """What people call it by."""
        return self.digest[:8]


class Roles(msgspec.Struct, frozen=True):
    """All users with an entry. An administrator orders anybody's jobs, nodes and the policy; a user
    orders their own jobs."""

    admins: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = ()

    @classmethod
    def kept(cls, journal: Journal) -> Roles:
        """What a journal keeps."""
        return msgspec.json.decode(journal.setting(SETTING) or "{}", type=cls)

    def with_token(self, user: str, role: str) -> tuple[Roles, str]:
        """With a new token; it is shown here and nowhere else. Raises BadInput."""
        if role not in ROLES:
            raise BadInput(f"{role!r} is not one of {', '.join(ROLES)}", where="role")
        token = secrets.token_urlsafe(32)
        made = Token(digest(token.encode()), checked_name(user), role, time.time())
        return msgspec.structs.replace(self, tokens=(*self.tokens, made)), token

    def without_token(self, id_: str) -> Roles:
        """With one token less. Raises BadInput."""
        left = tuple(one for one in self.tokens if one.id != id_)
        if len(left) == len(self.tokens):
            raise BadInput(f"no token {id_!r}", mend="`ganger daemon token` lists them")
        return msgspec.structs.replace(self, tokens=left)

    def with_admin(self, user: str, is_admin: bool) -> Roles:
        """With or without this administrator. Raises BadInput."""
        others = {one for one in self.admins if one != checked_name(user)}
        return msgspec.structs.replace(
            self, admins=tuple(sorted(others | ({user} if is_admin else set())))
        )

    def bearer(self, token: bytes) -> Token | None:
        """Whose token that is."""
        told = digest(token)
        for one in self.tokens:
            if hmac.compare_digest(told, one.digest):
                return one
        return None


def digest(token: bytes) -> str:
    """What is kept of a token: it is random and long, so that a plain hash is enough."""
    return hashlib.sha256(token).hexdigest()


def checked_name(user: str) -> str:
    """A user's name. Raises BadInput."""
    if not _NAME.fullmatch(user):
        raise BadInput(f"{user[:80]!r} is not a valid user name", where="user")
    return user
