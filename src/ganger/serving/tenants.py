"""Whose a request is: keys of tenants, how often each may ask, and how much each may have open.

A key counts by its digest, under a secret of this process: neither a look-up nor a comparison takes
longer for a key that is nearly right. No key is kept, written or named in an error.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ganger.client.strangers import read_secret
from ganger.core.documents import parsed
from ganger.core.errors import BadInput

FORMAT: Final = "ganger.keys/1"
TENANTS_MAX: Final = 10_000
_KEY: Final = re.compile(r"[!-~]{16,256}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_BEARER: Final = b"bearer "
ANYBODY: Final = ""
"""The name of the only tenant of a server without keys."""


class Terms(Struct, frozen=True, forbid_unknown_fields=True):
    """What a keys file states of a tenant. `rate`: inferences a second, 0 for any; `burst`: how
    many at once after a pause, 0 for a second's worth; `open`: inferences under way, 0 for what the
    server grants each of its tenants."""

    keys: tuple[str, ...]
    rate: float = 0.0
    burst: int = 0
    open: int = 0


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    tenants: dict[str, Terms]


class Tenant(Struct, eq=False):
    """A tenant: its `code` as requests have it, its terms, and what it has now."""

    code: int
    name: str
    rate: float = 0.0
    burst: float = 1.0
    limit: int = 0
    """Inferences under way; 0: as the server grants."""
    under_way: int = 0
    tokens: float = 1.0
    at: float = 0.0
    """When `tokens` was counted, in seconds."""

    def take(self, now: float) -> float:
        """Take one inference at that time: 0.0, or the seconds after which there is one to take."""
        if not self.rate:
            return 0.0
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / self.rate


class Tenants:
    """The tenants of a server, by code, and the keys by which they are known. Without a file there
    is one, of whatever key."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._secret = path, secrets.token_bytes(32)
        self._by_digest: Mapping[bytes, tuple[bytes, Tenant]] = {}
        self.all: list[Tenant] = []
        self.names: list[str] = []
        """Of all, by code; one that is gone from the file keeps its code."""
        if path is None:
            self.add(ANYBODY)
        else:
            self.read()

    @property
    def keyed(self) -> bool:
        """Whether a request needs a key."""
        return self._path is not None

    def add(self, name: str) -> Tenant:
        """One more tenant."""
        tenant = Tenant(len(self.all), name)
        self.all.append(tenant)
        self.names.append(name)
        return tenant

    def read(self) -> None:
        """Read the file, again: keys that are no longer there count no more. Raises BadInput, and
        all stays as it was."""
        if self._path is None:
            return
        document = read_keys(self._path)
        by_name = {tenant.name: tenant for tenant in self.all}
        if len({*by_name, *document.tenants}) > TENANTS_MAX:
            raise BadInput(
                f"there were more than {TENANTS_MAX:,} tenants",
                where=str(self._path),
                mend="start the server again",
            )
        by_digest = {}
        for name, terms in document.tenants.items():
            tenant = by_name.get(name) or self.add(name)
            tenant.rate, tenant.limit = terms.rate, terms.open
            tenant.burst = float(terms.burst or max(ceil(terms.rate), 1))
            tenant.tokens = tenant.burst
            for key in terms.keys:
                digest = self._digest(key.encode())
                by_digest[digest[:16]] = digest, tenant
        self._by_digest = by_digest

    def of(self, authorization: bytes) -> Tenant | None:
        """Whose an `Authorization: Bearer KEY` is; None for what is not a key."""
        if authorization[:7].lower() != _BEARER:
            return None
        digest = self._digest(authorization[7:])
        expected, tenant = self._by_digest.get(digest[:16], (b"", None))
        return tenant if hmac.compare_digest(digest, expected) else None

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, key=self._secret, digest_size=32).digest()


def read_keys(path: Path) -> _Document:
    """A keys file. Raises BadInput, without naming a key; also for a file that others may read."""
    where = str(path)
    mend = "see docs/serving-live.md, Keys"
    try:
        document = msgspec.convert(parsed(read_secret(path).decode(), ".toml"), _Document)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), where=where, mend=mend) from None
    except ValueError:
        raise BadInput("it is not valid TOML", where=where, mend=mend) from None
    if document.format != FORMAT:
        raise BadInput(f"it is not a {FORMAT}", where=where, mend=f'write format = "{FORMAT}"')
    if not document.tenants or len(document.tenants) > TENANTS_MAX:
        raise BadInput(
            f"it has {len(document.tenants):,} tenants", where=where, mend="state at least one"
        )
    owners: dict[str, str] = {}
    for name, terms in document.tenants.items():
        at = f"{where}: tenant {name[:63]!r}"
        if not _NAME.fullmatch(name):
            raise BadInput(
                "its name is not a word of at most 63 letters, digits, '.', '_' and '-'",
                where=at,
                mend="give it another",
            )
        _check(terms, at)
        for number, key in enumerate(terms.keys, 1):
            if not _KEY.fullmatch(key):
                raise BadInput(
                    f"key {number} is not 16 to 256 printable letters without spaces",
                    where=at,
                    mend="make one with: openssl rand -hex 32",
                )
            if owners.setdefault(key, name) != name:
                raise BadInput(
                    f"key {number} is also one of {owners[key]!r}",
                    where=at,
                    mend="give each tenant keys of its own",
                )
    return document


def _check(terms: Terms, where: str) -> None:
    if not terms.keys:
        raise BadInput("it has no keys", where=where, mend='write keys = ["..."]')
    if not 0 <= terms.rate <= 1e9:
        raise BadInput(f"its rate is {terms.rate}", where=where, mend="give inferences a second")
    for name, number in (("burst", terms.burst), ("open", terms.open)):
        if not 0 <= number <= 1_000_000_000:
            raise BadInput(f"its {name} is {number}", where=where, mend="give a number from 0 on")
