"""What a step writes into the journal beside its batch and its plan."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent, Evaluated, Failed, Finished, Refused, Released, Started
from ganger.core.kernel import Kernel
from ganger.core.plan import Resize, Start
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.jobs import Jobs
from ganger.core.state.snapshot import Snapshot
from ganger.service.commands import Turn
from ganger.service.durable.journal import SET_ASIDE_MAX, Decided, FullError, Journal, SetAside
from ganger.service.durable.recovery import set_aside_record
from ganger.service.jobs.job_facts import ENCODE
from ganger.service.jobs.limits import CEILINGS, Group, changed_ceilings

log = logging.getLogger("ganger.service")


def write_turn(
    cursor: sqlite3.Cursor,
    turn: Turn,
    happened: Sequence[AnyEvent],
    most: dict[Group, int],
    jobs: Jobs,
    lost_output: Callable[[int, int], str],
) -> None:
    """Keep what was asked for in this turn, and how attempts began and ended. `most`: the ceilings
    before it; `lost_output`: what is missing of the output of an attempt (job, number)."""
    Journal.write_jobs(cursor, turn.jobs)
    for row, facts in turn.changed.items():
        Journal.write_launch(cursor, row, facts)
    for row, held in turn.held.items():
        Journal.write_held(cursor, row, held)
    for key, body, rows in turn.keys:
        Journal.write_key(cursor, key, body, rows)
    for name, value in turn.settings.items():
        Journal.write_setting(cursor, name, value)
    if turn.ceilings:
        changed = changed_ceilings(most, turn.ceilings, jobs)
        text = msgspec.json.encode(list(changed.items())).decode()
        Journal.write_setting(cursor, CEILINGS, text)
    for event in happened:
        if isinstance(event, Started):
            cursor.execute(
                "UPDATE attempts SET started = ? WHERE job = ? AND attempt = ?",
                (turn.at, event.job, event.attempt),
            )
        elif isinstance(event, Evaluated):
            cursor.execute(
                "UPDATE attempts SET reports = reports + 1, step = ?, value = ?"
                " WHERE job = ? AND attempt = ?",
                (event.epoch, event.value, event.job, event.attempt),
            )
            others = msgspec.msgpack.encode(event.metrics) if event.metrics else None
            cursor.execute(
                "INSERT INTO reports (job, revision, at, epoch, value, metrics)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (event.job, turn.kernel.revision + 1, turn.at, event.epoch, event.value, others),
            )
        elif isinstance(event, Finished | Failed | Released | Refused):
            lost = lost_output(event.job, event.attempt)
            cursor.execute(
                "UPDATE attempts SET ended = ?, outcome = ?, note = ?"
                " WHERE job = ? AND attempt = ?",
                (turn.at, outcome(event), lost, event.job, event.attempt),
            )


def refuse_unwritable(turn: Turn, first: int) -> None:
    """Raise BadInput for what was asked beside the events and cannot be written: of `turn` all but
    the first `first` jobs."""
    try:
        for _, facts in turn.jobs[first:]:
            ENCODE(facts)
        for facts in turn.changed.values():
            ENCODE(facts)
        for key, _, _ in turn.keys:
            key.encode()
        for name, value in turn.settings.items():
            (name + value).encode()
        msgspec.json.encode(list(turn.ceilings.items()))
    except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise BadInput(f"it cannot be written: {error}") from None


def in_order(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The events of one batch, as it has them."""
    return sorted(events, key=lambda event: event.rank)


def fit(events: Iterable[AnyEvent], kernel: Kernel) -> tuple[list[AnyEvent], list[SetAside]]:
    """What an engine reports, and apart from it what the kernel could not reduce."""
    found, records = [], []
    for event in events:
        try:
            refuse_unfit((event,), kernel)
        except BadInput as error:
            records.append(set_aside_record(kernel.revision, event, str(error)))
            log.error("%s is set aside: %s", records[-1].what, error)
        else:
            found.append(event)
    return found, records


def keep_aside(journal: Journal, before: list[SetAside], records: list[SetAside]) -> list[SetAside]:
    """Set records aside; the last of all that are."""
    with contextlib.suppress(FullError), journal.writing() as cursor:
        Journal.write_set_aside(cursor, records)
    return [*before, *records][-SET_ASIDE_MAX:]


def write_attempts(cursor: sqlite3.Cursor, record: Decided) -> None:
    """Keep where attempts begin."""
    cursor.executemany(
        "INSERT OR IGNORE INTO attempts (job, attempt, placement) VALUES (?, ?, ?)",
        [
            (action.job, action.attempt, msgspec.msgpack.encode(action.placement))
            for action in record.actions
            if isinstance(action, Start | Resize)
        ],
    )


def plain(snapshot: Snapshot) -> Snapshot:
    """The same, sharing nothing with the kernel that it was taken of."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)


def outcome(event: Finished | Failed | Released | Refused) -> str:
    """How an attempt ended, in a word or a sentence; "" if well."""
    if isinstance(event, Failed):
        return event.why or "Failed"
    if isinstance(event, Refused):
        return f"Refused: {event.why}"
    return "Preempted" if isinstance(event, Released) else ""
