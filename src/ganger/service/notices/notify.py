"""Which sinks hear of what: `notify.toml` in the daemon's folder, and the words of messages.

[[webhook]]
name = "chat"
url = "https://chat.example/hook"
secret = "..."                    # signs what is sent
events = ["finished", "failed"]

[smtp]
host = "mail.example"
sender = "ganger@mail.example"

[[mail]]
to = ["ann@mail.example"]
tenants = ["vision"]
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from ganger.client.answers import JobAnswer
from ganger.core.documents import parsed
from ganger.core.errors import BadInput
from ganger.service.http.feed import Change

EVENTS: Final = (
    "submitted",
    "started",
    "suspended",
    "preempted",
    "finished",
    "failed",
    "cancelled",
    "idle",
)
"""What can be told of a job."""
DEFAULT_EVENTS: Final = ("finished", "failed", "cancelled")
_BY_STATE: Final = {
    "RUNNING": "started", "SUSPENDED": "suspended", "COMPLETED": "finished", "FAILED": "failed",
    "TIMEOUT": "failed", "OUT_OF_MEMORY": "failed", "NODE_FAIL": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


class _Sink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all have: `events` that are told; of all tenants and users, or of these."""

    events: tuple[str, ...] = DEFAULT_EVENTS
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def wants(self, event: str, job: JobAnswer) -> bool:
        """Whether this is sent there."""
        return (
            event in self.events
            and (not self.tenants or job.tenant in self.tenants)
            and (not self.users or job.user in self.users)
        )


class Webhook(_Sink, frozen=True, kw_only=True):
    """An HTTP server that wants a POST."""

    url: str
    name: str = ""
    secret: str = ""

    @property
    def key(self) -> str:
        """What its messages are filed under."""
        return f"webhook {self.name or urlsplit(self.url).hostname}"


class Mail(_Sink, frozen=True, kw_only=True):
    """People who want an e-mail."""

    to: tuple[str, ...]

    @property
    def key(self) -> str:
        """What people call it by."""
        return f"mail {','.join(self.to)}"


class Smtp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server that takes e-mail. `security`: TLS after STARTTLS, from the start, or none; the
    server's certificate must be one that this machine trusts, or `ca` (a PEM file)."""

    host: str
    sender: str
    port: int = 25
    security: Literal["none", "starttls", "tls"] = "none"
    ca: str = ""
    user: str = ""
    password: str = ""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `notify.toml` says."""

    webhook: tuple[Webhook, ...] = ()
    mail: tuple[Mail, ...] = ()
    smtp: Smtp | None = None

    @property
    def sinks(self) -> tuple[Webhook | Mail, ...]:
        """The sinks that it names."""
        return (*self.webhook, *self.mail)

    def check(self, where: str) -> Config:
        """This, or BadInput for the first thing that cannot be."""
        for sink in self.sinks:
            for event in sink.events:
                if event not in EVENTS:
                    raise BadInput(f"{event!r} is not one of {', '.join(EVENTS)}", where=where)
        for hook in self.webhook:
            if not _is_address(hook.url):
                raise BadInput(
                    f"{hook.url!r} is not a valid address", where=where, mend="write https://..."
                )
        if self.mail and self.smtp is None:
            raise BadInput("e-mail needs a mail server", where=where, mend="write an [smtp] table")
        for address in [one for mail in self.mail for one in mail.to]:
            checked_address(address, where)
        keys = [sink.key for sink in self.sinks]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise BadInput(f"{twice.pop()!r} is listed twice", where=where, mend="name one of them")
        return self


def _is_address(url: str) -> bool:
    """Whether a request can be sent there: what cannot be is found here, not when it is due."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def checked_address(address: str, where: str) -> str:
    """An e-mail address. Raises BadInput."""
    name, at, host = address.rpartition("@")
    if not (at and name and host) or not address.isprintable() or set(address) & set(' ,;<>"'):
        raise BadInput(f"{address[:80]!r} is not a valid e-mail address", where=where)
    return address


def read_config(path: Path) -> Config:
    """What the file says; no receiver is configured without one. Raises BadInput, also for a file
    with secrets that others may read."""
    try:
        data = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise BadInput(f"cannot read it: {error.strerror}", where=str(path)) from None
    try:
        found = msgspec.convert(parsed(data.decode(), ".toml"), Config)
    except (ValueError, msgspec.ValidationError) as error:
        raise BadInput(str(error), where=str(path), mend="see docs/notify.md") from None
    secret = any(hook.secret for hook in found.webhook) or (found.smtp and found.smtp.password)
    if secret and mode & 0o077:
        raise BadInput(
            "the file has secrets, and others may read it",
            where=str(path),
            mend=f"chmod 600 {path}",
        )
    return found.check(str(path))


def event_of(change: Change) -> str:
    """What a change is called here, "" if no sink hears of it."""
    if change.state == "PENDING":
        if change.attempt == 0:
            return "submitted"
        return "preempted" if change.outcome == "Preempted" else ""
    return _BY_STATE.get(change.state, "")


class Letter(msgspec.Struct, frozen=True):
    """An e-mail that waits for the server."""

    to: tuple[str, ...]
    message: Message


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook gets as JSON, and what an e-mail is written of. `event` is one of `EVENTS`, or
    `test`; `at` in Unix seconds."""

    event: str
    at: float
    home: str
    job: JobAnswer | None = None
    outcome: str = ""

    @property
    def subject(self) -> str:
        """A line for people."""
        if self.job is None:
            return "ganger: a test"
        return one_line(f"ganger: job {self.job.label} {self.job.name} {self.event}")

    @property
    def text(self) -> str:
        """An e-mail's text."""
        if self.job is None:
            return "This is a test of what ganger sends.\n"
        job = self.job
        lines = [
            one_line(f"Job {job.label} ({job.name}) of {job.user}: {self.event}."),
            "",
            f"State: {job.state}" + (f" ({job.reason})" if job.reason else ""),
            f"Tenant: {job.tenant}",
            f"GPUs: {job.gpus}",
            f"Ran: {job.ran:.0f} s in {job.attempt} attempts, {job.preemptions} preemptions",
        ]
        if job.nodes:
            lines.append(f"Nodes: {', '.join(job.nodes)}")
        return "\n".join([*lines, "", f"Look: ganger show {job.label}", ""])


def one_line(text: str) -> str:
    """The text as a header may hold it: no separators of lines, of whatever script, and nothing
    that cannot be printed."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in words)


def subject_of(body: bytes) -> str:
    """What a message is about, of a webhook or an e-mail."""
    try:
        return msgspec.json.decode(body, type=Letter).message.subject
    except msgspec.MsgspecError:
        pass
    try:
        return msgspec.json.decode(body, type=Message).subject
    except msgspec.MsgspecError:
        return ""
