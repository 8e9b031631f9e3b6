"""Which checkpoints of a search are kept, and the removal of the others: done by the user's own
process, in a folder that the user names, and that nobody else may change."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.answering.families import ChildAnswer
from ganger.client.answers import JobDetail
from ganger.client.states import OVER
from ganger.client.strangers import others_may_change
from ganger.core.errors import BadInput
from ganger.core.units import parse_memory
from ganger.mechanisms.tuning.trials import Mode, badness

COPYING: Final = "tune.pbt"
"""The recipe by which trials begin with what others saved, also others that are over."""
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_MIB: Final = 1 << 20
_NAMES: Final = ("best", "last", "disk")
_MOST: Final = 10_000


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of trials that are over, whose checkpoints are kept: of the `best` so many and of those that
    ended `last` so many (both 0: of all), as far as all together take no more than `disk` bytes
    (0: whatever they take)."""

    best: int = 0
    last: int = 0
    disk: int = 0


def keep_of(text: str, where: str = "--keep") -> Keep:
    """What `best=1,last=2,disk=20GiB` says. Raises BadInput."""
    limits = dict[str, int]()
    for word in text.split(","):
        name, equals, amount = (piece.strip() for piece in word.partition("="))
        if not equals or name not in _NAMES or name in limits:
            raise BadInput(
                f"{word!r} does not say what is kept",
                where=where,
                mend="write like best=1,last=2,disk=20GiB",
            )
        if name == "disk":
            limits[name] = parse_memory(amount, where=f"{where}: disk") * _MIB
        elif not _NUMBER.fullmatch(amount) or int(amount) > _MOST:
            raise BadInput(
                f"{name} of {amount!r}", where=where, mend=f"use a number from 0 to {_MOST:,}"
            )
        else:
            limits[name] = int(amount)
    if not any(limits.values()):
        raise BadInput("it keeps nothing", where=where, mend="keep at least best=1")
    return Keep(**limits)


@dataclass(frozen=True)
class Saved:
    """The checkpoints of one trial: its `job`, whether it is `over`, when it `ended`, what it
    reported last, and the bytes that its folder takes."""

    job: int
    over: bool
    ended: float
    value: float
    size: int


def superfluous(trials: Sequence[Saved], keep: Keep, mode: Mode) -> list[Saved]:
    """Those whose checkpoints are not kept. Of a trial that is not over, and of the best one, they
    always are; where all take more than the disk may, the last ones go first, then the worst."""
    over = [trial for trial in trials if trial.over]
    best = sorted(over, key=lambda trial: (badness(trial.value, mode), trial.job))
    last = sorted(over, key=lambda trial: (-trial.ended, -trial.job))
    named = keep.best or keep.last
    wanted = [*best[: keep.best], *last[: keep.last]] if named else best
    kept = list({trial.job: trial for trial in [*best[:1], *wanted]}.values())
    taken = sum(trial.size for trial in kept) + sum(t.size for t in trials if not t.over)
    while keep.disk and taken > keep.disk and len(kept) > 1:
        taken -= kept.pop().size
    held = {trial.job for trial in kept}
    return [trial for trial in over if trial.job not in held]


@dataclass(frozen=True)
class Removed:
    """What was removed: the trials by job, the bytes that were freed, how many bytes are left, and
    what stands against removing more; empty for nothing."""

    jobs: list[int]
    freed: int
    remaining: int
    why: str = ""

    def __str__(self) -> str:
        """For people."""
        trials = f"{len(self.jobs)} trial{'s' * (len(self.jobs) != 1)}"
        listed = f" (jobs {' '.join(map(str, self.jobs[:20]))}{' ...' * (len(self.jobs) > 20)})"
        said = f"removed checkpoints of {trials}{listed * bool(self.jobs)}, {amount(self.freed)};"
        return f"{said} {amount(self.remaining)} are left{f': {self.why}' * bool(self.why)}"


def amount(size: int) -> str:
    """Bytes for people."""
    for unit, each in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= each:
            return f"{size / each:.1f} {unit}"
    return f"{size} bytes"


def refuse_used(folder: Path) -> None:
    """Raise BadInput for a folder in which there is something: trials would go on from it, and it
    might be removed."""
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(
            "it holds something already",
            where=f"--checkpoints: {folder}",
            mend="with --keep, name a folder that is new or empty",
        )


def thin(
    search: JobDetail, trials: Iterable[JobDetail], folder: Path, keep: Keep, *, act: bool = True
) -> Removed:
    """Remove from `folder` the checkpoints of trials of the search that are not kept; without `act`
    say only which. Nothing goes while trials that go on may begin with a copy of others. Raises
    BadInput for a folder that is not the user's alone, or in which this search does not save."""
    folder = folder.resolve()
    family = search.family
    more = family is not None and family.more_is_better
    mode = Mode.MAX if more else Mode.MIN
    places = {child.job: child for child in family.children} if family is not None else {}
    _refuse_foreign(folder, [child.checkpoint_dir for child in places.values()])
    known = [(job, places[job.job]) for job in trials if job.job in places]
    saved = [entry for job, child in known if (entry := _saved(job, child, folder)) is not None]
    total = sum(each.size for each in saved)
    if family is not None and family.recipe.startswith(COPYING) and search.state not in OVER:
        return Removed([], 0, total, "trials may begin with copies of others until the search ends")
    gone, freed, why = list[int](), 0, ""
    for each in superfluous(saved, keep, mode):
        place = folder / places[each.job].checkpoint_dir.rpartition("/")[2]
        try:
            if act:
                _remove(place)
        except OSError as error:
            why = f"{place.name}: {error.strerror or error}"
            continue
        gone.append(each.job)
        freed += each.size
    remaining = total - freed
    if keep.disk and remaining > keep.disk and not why:
        why = f"more than {amount(keep.disk)}, since it is in use, or the best"
    return Removed(gone, freed, remaining, why)


def _refuse_foreign(folder: Path, stated: Sequence[str]) -> None:
    """Raise BadInput unless each trial that saves in a folder of its own does so in this one, and
    it is the user's, and nobody else may change it: entries could be exchanged."""
    try:
        status = folder.stat()
    except OSError as error:
        raise BadInput(f"cannot look into it: {error.strerror}", where=str(folder)) from None
    if not stat.S_ISDIR(status.st_mode):
        raise BadInput("it is not a folder", where=str(folder))
    if not stated or any(not text or Path(text).parent.resolve() != folder for text in stated):
        raise BadInput(
            "the trials of this search do not save there",
            where=str(folder),
            mend="name the folder of --checkpoints",
        )
    for path in (folder, *folder.parents):
        status = path.stat()
        if status.st_uid not in (0, os.geteuid()) or others_may_change(status):
            raise BadInput(
                f"others may change {'it' if path == folder else path}",
                where=str(folder),
                mend="save in a folder that only you can change",
            )


def _saved(job: JobDetail, child: ChildAnswer, folder: Path) -> Saved | None:
    """What a trial has saved; None where that is no folder of its own there."""
    name = child.checkpoint_dir.rpartition("/")[2]
    if not _NUMBER.fullmatch(name):
        return None
    place = folder / name
    try:
        if not stat.S_ISDIR(place.lstat().st_mode):
            return None
    except OSError:
        return None
    return Saved(
        job=job.job,
        over=job.state in OVER,
        ended=job.finished or 0.0,
        value=float("nan") if child.value is None else child.value,
        size=size_of(place),
    )


def size_of(folder: Path) -> int:
    """The bytes on the disk of all that lies in a folder, in no folder that a link leads to."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
    return size


def _remove(folder: Path) -> None:
    """Remove a folder of the user's own, through no link. Raises OSError."""
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_dev != folder.parent.stat().st_dev:
        raise PermissionError("it belongs to somebody else, or is a disk of its own")
    shutil.rmtree(folder)
