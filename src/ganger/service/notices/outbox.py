"""Telling people: messages wait in a file of their own until somebody has taken them.

The daemon's loop only sets a flag. One thread makes messages of what happened, and one per sink
sends them, again and again at growing intervals.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import logging
import smtplib
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ganger.client.answers import AsideAnswer, NotifyAnswer, SinkAnswer
from ganger.client.states import state_of
from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Journal
from ganger.service.http.feed import Change
from ganger.service.notices.messages import Outbox
from ganger.service.notices.notify import (
    Config,
    Letter,
    Mail,
    Message,
    Smtp,
    Webhook,
    event_of,
    read_config,
    subject_of,
)
from ganger.service.reports import rows

log = logging.getLogger("ganger.notify")
TIMEOUT_SECONDS: Final = 10.0
SMTP: Final = "smtp"


def _file(sink: Webhook | Mail) -> str:
    """What its messages are filed under; all e-mail goes to one server."""
    return sink.key if isinstance(sink, Webhook) else SMTP


class RefusedError(Exception):
    """The sink wants no more of these: 410."""


class PoisonError(Exception):
    """This message can never be sent, though others can."""


_NOT_THIS: Final = (400, 413, 415, 422)
"""Answers by which an HTTP server refuses what it was sent, rather than who sends it or where."""


def post(hook: Webhook, number: int, body: bytes) -> None:
    """Send to a webhook. `Ganger-Signature: t=TIME,v1=HEX` is the HMAC-SHA256 of `TIME.BODY` with
    its secret. Raises OSError or HTTPException if it should be sent again."""
    parts = urlsplit(hook.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    now = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "ganger",
        "Ganger-Delivery": str(number),
    }
    if hook.secret:
        signed = hmac.digest(hook.secret.encode(), b"%d." % now + body, "sha256").hex()
        headers["Ganger-Signature"] = f"t={now},v1={signed}"
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status == 410:
        raise RefusedError("410 Gone")
    if status in _NOT_THIS:
        raise PoisonError(f"HTTP {status}")
    if not 200 <= status < 300:
        raise OSError(f"HTTP {status}")


def mail(smtp: Smtp, number: int, body: bytes) -> None:
    """Send an e-mail. Raises PoisonError where it can never be sent, and OSError or SMTPException
    if it should be sent again."""
    try:
        letter = _letter(smtp, number, body)
    except Exception as error:
        raise PoisonError(f"{type(error).__name__}: {error}") from error
    with _connected(smtp) as server:
        if smtp.user:
            server.login(smtp.user, smtp.password)
        try:
            server.send_message(letter)
        except smtplib.SMTPRecipientsRefused as error:
            if all(500 <= code < 600 for code, _ in error.recipients.values()):
                raise PoisonError("the server takes no recipient") from None
            raise
        except smtplib.SMTPDataError as error:
            if 500 <= error.smtp_code < 600:
                raise PoisonError(f"the server refuses it: {error.smtp_code}") from None
            raise
        except (smtplib.SMTPNotSupportedError, ValueError) as error:
            raise PoisonError(f"{type(error).__name__}: {error}") from None


def _letter(smtp: Smtp, number: int, body: bytes) -> EmailMessage:
    """The e-mail."""
    to, message = msgspec.structs.astuple(msgspec.json.decode(body, type=Letter))
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = message.subject, smtp.sender, ", ".join(to)
    letter["Date"] = formatdate(message.at)
    letter["Message-ID"] = f"<{number}.{int(message.at)}@{smtp.sender.rpartition('@')[2]}>"
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.text)
    return letter


def _connected(smtp: Smtp) -> smtplib.SMTP:
    """A connection to the server, as secure as was asked for. Raises OSError, SMTPException."""
    if smtp.security == "none":
        return smtplib.SMTP(smtp.host, smtp.port, timeout=TIMEOUT_SECONDS)
    trust = ssl.create_default_context(cafile=smtp.ca or None)
    if smtp.security == "tls":
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=TIMEOUT_SECONDS, context=trust)
    server = smtplib.SMTP(smtp.host, smtp.port, timeout=TIMEOUT_SECONDS)
    try:
        server.starttls(context=trust)
    except (OSError, smtplib.SMTPException):
        server.close()
        raise
    return server


class Notifier:
    """Makes messages of what happens, and sends them. `wake` may be called from any thread."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.path = home / "notify.toml"
        self._box, self._home, self._daemon = home / "outbox.db", home, daemon
        self._config, self._stamp = Config(), -1.0
        self._misread, self._unkept = "", ""
        self._began = self._aside = 0
        self._stepped, self._ended = threading.Event(), threading.Event()
        self._senders: dict[str, _Sender] = {}
        self._extra: list[Message] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    def start(self) -> None:
        """Begin; what was kept before is sent, too. What happens from now on is sent, however late
        the thread comes to it."""
        with self._daemon.lock:
            self._began = self._daemon.kernel.revision
        self._thread.start()
        self.wake()

    @property
    def error(self) -> str:
        """What is wrong now with the file that names the sinks, or with the one of what waits."""
        return self._misread or self._unkept

    def wake(self) -> None:
        """Something may have happened."""
        self._stepped.set()

    def tell(self, message: Message) -> None:
        """Send something that is not a change of a job's state."""
        with self._lock:
            self._extra.append(message)
        self.wake()

    def close(self) -> None:
        """End; what waits is kept."""
        self._ended.set()
        self.wake()
        self._thread.join(TIMEOUT_SECONDS)
        for sender in self._senders.values():
            sender.wake()

    def takes_mail(self) -> bool:
        """Whether there is a mail server to send by."""
        self._reload()
        return self._config.smtp is not None

    def answer(self) -> NotifyAnswer:
        """Which sinks there are, what waits, what went wrong."""
        self._reload()
        waiting: dict[str, tuple[int, str]] = {}
        aside: list[tuple[int, str, bytes, float, str]] = []
        if self._box.exists():
            with contextlib.closing(Outbox(self._box)) as box:
                waiting, aside = box.waiting(), box.aside()
        return NotifyAnswer(
            path=str(self.path),
            error=self.error,
            sinks=[
                SinkAnswer(
                    name=sink.key,
                    events=list(sink.events),
                    tenants=list(sink.tenants),
                    users=list(sink.users),
                    waiting=waiting.get(sink.key, (0, ""))[0],
                    last_error=waiting.get(sink.key, (0, ""))[1],
                )
                for sink in self._config.sinks
            ],
            set_aside=[
                AsideAnswer(number=number, sink=sink, made=made, about=subject_of(body), error=why)
                for number, sink, body, made, why in aside
            ],
        )

    @property
    def trouble(self) -> str:
        """What is wrong now, "" if nothing is: with the file that names the sinks, with the one of
        what waits, or with messages that can never be sent."""
        if self.error or not self._aside:
            return self.error
        return f"{self._aside} messages set aside: see `ganger daemon notify`"

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        seen, caught_up = self._began, False
        while not self._ended.is_set():
            self._stepped.wait()
            self._stepped.clear()
            self._reload()
            if not (self._config.webhook or self._config.smtp):
                with self._daemon.lock:
                    seen, caught_up = self._daemon.kernel.revision, True
                continue
            try:
                with contextlib.closing(Outbox(self._box)) as box:
                    if not caught_up:
                        seen, caught_up = self._catch_up(box), True
                    seen = self._make(box, seen)
                    self._aside = len(box.aside())
                self._unkept = ""
            except Exception as error:
                if not isinstance(error, sqlite3.Error):
                    log.exception("no message can be made")
                self._unkept = f"nothing can be written: {error}"
                self._ended.wait(1.0)
                self.wake()
            for sender in self._senders.values():
                sender.wake()

    def _reload(self) -> None:
        with self._lock:
            try:
                stamp = self.path.stat().st_mtime
            except OSError:
                stamp = 0.0
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._config, self._misread = read_config(self.path), ""
            except BadInput as error:
                self._misread = str(error)
                log.warning(self._misread)
                return
            for sender in self._senders.values():
                sender.end()
            self._senders = {}
            for server in (*self._config.webhook, self._config.smtp):
                if server is not None:
                    sender = _Sender(server, self._box, self._ended, self.wake)
                    self._senders[sender.key] = sender

    def _catch_up(self, box: Outbox) -> int:
        """Tell how the jobs are of steps that were made and not seen before a crash."""
        daemon = self._daemon
        with daemon.lock:
            now = daemon.kernel.revision
        before = box.seen()
        if before is None or before >= now:
            return self._began
        changes: dict[int, Change] = {}
        with contextlib.closing(Journal(daemon.journal.path, readonly=True)) as journal:
            for revision, batch, _ in journal.steps(before, now):
                for event in batch.events:
                    if hasattr(event, "job"):
                        changes[event.job] = self._now(event.job, revision)
        box.put(self._messages(list(changes.values())), now)
        return now

    def _now(self, row: int, revision: int) -> Change:
        daemon = self._daemon
        with daemon.lock:
            kernel, outcome = daemon.kernel, daemon.ends.get(row, "")
            state = state_of(Phase(kernel.jobs.phase[row]), outcome)[0]
            return Change(
                revision,
                kernel.now / SECOND,
                row + 1,
                state,
                int(kernel.jobs.attempt[row]),
                outcome,
            )

    def _make(self, box: Outbox, seen: int) -> int:
        with self._lock:
            extra = list(self._extra)
        with self._daemon.lock:
            changes = list(self._daemon.feed.since(seen))
            revision = self._daemon.kernel.revision
        found = self._messages(changes)
        for message in extra:
            found += self._addressed(message)
        if found or revision > seen:
            box.put(found, revision)
        with self._lock:
            del self._extra[: len(extra)]
        return revision

    def _messages(self, changes: list[Change]) -> list[tuple[str, bytes]]:
        found = []
        for change in changes:
            event = event_of(change)
            if event:
                with self._daemon.lock:
                    job = rows.job_answer(self._daemon, change.job - 1)
                found += self._addressed(
                    Message(
                        event=event,
                        at=change.at,
                        home=str(self._home),
                        job=job,
                        outcome=change.outcome,
                    )
                )
        return found

    def _addressed(self, message: Message) -> list[tuple[str, bytes]]:
        """The message for every sink that wants it, and for who is named in the job itself."""
        config = self._config
        sinks = [
            sink
            for sink in config.sinks
            if message.job is None or sink.wants(message.event, message.job)
        ]
        people = [sink.to for sink in sinks if isinstance(sink, Mail)]
        if message.job is not None and config.smtp is not None:
            with self._daemon.lock:
                facts = self._daemon.reader.facts(message.job.job - 1)
            people += [facts.mail_to] if message.event in facts.mail_on and facts.mail_to else []
        body = msgspec.json.encode(message)
        found = [(sink.key, body) for sink in sinks if isinstance(sink, Webhook)]
        letters = [msgspec.json.encode(Letter(to, message)) for to in dict.fromkeys(people)]
        return found + [(SMTP, letter) for letter in letters]


class _Sender:
    """Sends one server's messages, in order, from a thread of its own."""

    def __init__(
        self,
        server: Webhook | Smtp,
        box: Path,
        ended: threading.Event,
        on_aside: Callable[[], None],
    ) -> None:
        self.key = server.key if isinstance(server, Webhook) else SMTP
        self._server, self._box, self._ended = server, box, ended
        self._on_aside = on_aside
        self._woken, self._over = threading.Event(), False
        threading.Thread(target=self._run, name=self.key, daemon=True).start()

    def wake(self) -> None:
        """There may be a message."""
        self._woken.set()

    def end(self) -> None:
        """Somebody else sends from now on."""
        self._over = True
        self.wake()

    def _run(self) -> None:
        while not (self._ended.is_set() or self._over):
            try:
                with contextlib.closing(Outbox(self._box)) as box:
                    while not (self._ended.is_set() or self._over):
                        wait = self._once(box)
                        self._woken.wait(wait)
                        self._woken.clear()
            except sqlite3.Error as error:
                log.warning("%s: %s", self.key, error)
                self._ended.wait(1.0)

    def _once(self, box: Outbox) -> float | None:
        """Send what is due; how long nothing will be, None for ever."""
        while (found := box.first(self.key)) is not None:
            number, body, tries, due = found
            wait = due - time.time()
            if wait > 0:
                return wait
            try:
                self._send(number, body)
            except RefusedError as error:
                log.warning("%s: message %d is dropped: %s", self.key, number, error)
            except PoisonError as error:
                log.warning("%s: message %d is set aside: %s", self.key, number, error)
                box.set_aside(number, str(error)[:200])
                self._on_aside()
                continue
            except Exception as error:  # a server that is not there, or one that is set up wrong
                box.failed(number, tries, f"{type(error).__name__}: {error}"[:200])
                continue
            box.taken(number)
            if self._ended.is_set() or self._over:
                return None
        return None

    def _send(self, number: int, body: bytes) -> None:
        if isinstance(self._server, Webhook):
            post(self._server, number, body)
        else:
            mail(self._server, number, body)
