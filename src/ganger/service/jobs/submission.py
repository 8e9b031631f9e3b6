"""From what is asked for to what the kernel gets: a request becomes specs and launch facts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ganger.client import grid
from ganger.client.request import FORMAT, JobRequest
from ganger.core.books.empty import EmptyCluster
from ganger.core.errors import BadInput
from ganger.core.spec import NONE, JobSpec, Kind, Locality, Needs, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import NEVER, SECOND, WHOLE, micros, parse_duration, parse_memory
from ganger.engines.launch import PER, Launch
from ganger.service.jobs.dependencies import Condition, Dependencies
from ganger.service.jobs.families import family_of, others_of, text_of_trials
from ganger.service.jobs.job_facts import JobFacts, Prepared
from ganger.service.notices.notify import DEFAULT_EVENTS, EVENTS, checked_address

TASKS_MAX: Final = 100_000
GPUS_MAX: Final = 1 << 20
PRIORITY_MAX: Final = 1 << 31
RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("gpus", 0, GPUS_MAX), ("workers", 0, GPUS_MAX), ("nodes", 0, GPUS_MAX),
    ("min_gpus", 0, GPUS_MAX), ("max_gpus", 0, GPUS_MAX), ("share", 0.001, 1.0),
    ("cpus", 0.0, 1e6), ("priority", -PRIORITY_MAX, PRIORITY_MAX - 1), ("weight", 1e-9, 1e9),
    ("steps", 0.0, 1e18), ("retries", 0, 1000),
    ("seed", 0, (1 << 32) - 1),
)  # fmt: skip
"""Fields of a request, the least and the most that they may be."""
NAME_MAX: Final = 200
HIDDEN: Final = (
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""Characters that a terminal would obey, or nobody would see: control characters, marks of lines
and directions, empty ones."""
PATH_MAX: Final = 4096
WORD_MAX: Final = (128 << 10) - 1
"""The longest word of a command, and value of a variable, that Linux starts a program with."""
WORDS_MAX: Final = 2 << 20
"""The most characters of all of them."""
SCRIPT_MAX: Final = 4 << 20
LISTED_MAX: Final[dict[str, int]] = {
    "labels": 256,
    "gpu_types": 256,
    "warm": 256,
    "mail_to": 16,
    "mail_on": 16,
}
"""The most that these lists of a request may hold: a job's shape is looked up at every decision,
and each message is filed with all whom it goes to."""
LINKS_MAX: Final = 1_000_000
"""The most dependencies of all jobs of one submission, each task of an array counted for itself."""
TEXT_BYTES_MAX: Final = 1 << 28
"""The most bytes of all their scripts, commands and variables."""
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_HIDDEN = re.compile(HIDDEN)
_NUMBER = re.compile(r"[0-9]{1,9}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
E = TypeVar("E", bound=IntEnum)

Rows = Callable[[str | int], list[int]]
"""The rows that a job's number, an array's or a task's stands for. Raises BadInput."""


class Who(msgspec.Struct, frozen=True):
    """The user who asks. `uid` is -1 where the transport does not say; an `admin` may order
    anybody's jobs, nodes and the policy, others their own jobs."""

    user: str
    uid: int = -1
    gid: int = -1
    admin: bool = False


def prepare(
    request: JobRequest, who: Who, now: int, rows: Rows, switch_user: bool, ahead: int = 0
) -> list[Prepared]:
    """The jobs that `request` asks for, one per task of its array. Begin times are on the wall
    clock, which is `ahead` of `now`. Raises BadInput."""
    _check(request)
    refuse_too_many(0, text_of_trials(request))
    family = family_of(request, TASKS_MAX)
    shape = shape_of(request)
    rows = _bounded(rows)
    after = () if request.after_one else tuple(row for job in request.after for row in rows(job))
    spec = JobSpec(
        name="",
        shape=shape,
        kind=_word(Kind, request.kind, "kind"),
        tenant=request.tenant or who.user,
        user=who.user,
        priority=request.priority,
        weight=request.weight,
        deadline=moment(request.deadline, now, "deadline", NEVER),
        limit=span(request.time_limit, "time_limit"),
        estimate=span(request.estimate, "estimate"),
        steps=request.steps,
        model=request.model,
        group=request.name,
        on_preempt=_word(OnPreempt, request.on_preempt, "on_preempt"),
        after=tuple(str(row + 1) for row in after),
        parent=_parent(request, rows),
        inner=request.recipe,
    )
    facts = JobFacts(
        name=request.name or _called(request),
        user=who.user,
        script=request.script,
        launch=_launch(request, spec, who, switch_user),
        hold=request.hold,
        begin=moment(request.begin, now + ahead, "begin", 0),
        conditions=_conditions(request, rows),
        singleton=request.singleton,
        family=family,
        mail_to=tuple(request.mail_to),
        mail_on=tuple(request.mail_on or (DEFAULT_EVENTS if request.mail_to else ())),
    )
    if family is not None:
        if spec.kind is Kind.TUNE:  # the limit is that of each trial
            spec = msgspec.structs.replace(spec, limit=NEVER)
        return [Prepared(spec, facts)]
    if request.params:
        return [
            _after_each(spec, _of_grid(facts, task, values), request, rows)
            for task, values in enumerate(grid.combinations(request.params))
        ]
    if not request.array:
        if request.after_each:
            raise BadInput(
                "this is not an array", where="after_each", mend="use --after, or give an array"
            )
        return [Prepared(spec, facts)]
    tasks, throttle = tasks_of(request.array)
    links, text = size_of([Prepared(spec, facts)], request)
    refuse_too_many(links * len(tasks), text * len(tasks))
    facts = msgspec.structs.replace(facts, throttle=throttle)
    return [
        _after_each(spec, msgspec.structs.replace(facts, task=task), request, rows)
        for task in tasks
    ]


def _parent(request: JobRequest, rows: Rows) -> str:
    """The name of the job's parent, as the tables have it; empty for none."""
    if request.parent in ("", None):
        return ""
    found = rows(request.parent)
    if len(found) != 1:
        raise BadInput(f"{request.parent!r} is an array", where="parent", mend="name one job")
    return str(found[0] + 1)


def _bounded(rows: Rows) -> Rows:
    """The same, but for more rows in all than a submission may wait for."""
    count = 0

    def bounded(job: str | int) -> list[int]:
        nonlocal count
        found = rows(job)
        count += len(found)
        refuse_too_many(count, 0)
        return found

    return bounded


def size_of(jobs: list[Prepared], request: JobRequest) -> tuple[int, int]:
    """How many dependencies the jobs of a request have, and how many bytes of text."""
    first = jobs[0]
    links = len(first.spec.after) + len(first.facts.waits_for.rows)
    words = (*request.command, *request.env, *request.env.values(), *request.warm)
    values = sum(len(name) + max(map(len, each)) for name, each in request.params.items())
    text = len(request.script) + sum(map(len, words)) + values
    return links * len(jobs), text * len(jobs) + text_of_trials(request)


def refuse_too_many(links: int, text: int) -> None:
    """Raise BadInput for more of either than a submission may have."""
    if links > LINKS_MAX:
        raise BadInput(
            f"the jobs have more than {LINKS_MAX:,} dependencies, counted one by one",
            where="after",
            mend="state fewer dependencies, or submit in parts",
        )
    if text > TEXT_BYTES_MAX:
        raise BadInput(
            f"scripts, commands and variables of all jobs exceed {TEXT_BYTES_MAX >> 20} MiB",
            where="script",
            mend="keep them in files, or submit in parts",
        )


def checked_text(text: str, where: str) -> str:
    """Words that people will see in lists. Raises BadInput for what a terminal would obey."""
    if len(text) > NAME_MAX or _HIDDEN.search(text):
        raise BadInput(
            f"it is longer than {NAME_MAX} characters, or one of them is not to be seen",
            where=where,
            mend="leave out control characters, and marks of lines and directions",
        )
    return text


def _of_grid(facts: JobFacts, task: int, values: dict[str, str]) -> JobFacts:
    """The facts of one task of a grid, which is named by its values."""
    name = f"{facts.name} {grid.spoken(values)}"
    name = "".join(letter if letter.isprintable() else "?" for letter in name)[:NAME_MAX]
    return msgspec.structs.replace(facts, name=name, task=task, params=values)


def _conditions(request: JobRequest, rows: Rows) -> Dependencies:
    """What is asked of other jobs, but for what the core knows itself: all of `after`."""
    over = [Condition("over", tuple(rows(job))) for job in request.after_any]
    not_ok = [Condition("not_ok", tuple(rows(job))) for job in request.after_not_ok]
    begun = []
    for text in request.after_begin:
        job, plus, delay = str(text).partition("+")
        if plus and not delay:
            raise BadInput(
                f"{text!r} has no valid time", where="after_begin", mend="write like 12+10m"
            )
        span = parse_duration(delay, where="after_begin") if plus else 0
        begun.append(Condition("begun", tuple(rows(job)), span))
    if not request.after_one:
        return Dependencies((*over, *not_ok, *begun))
    finished = [Condition("ok", tuple(rows(job))) for job in request.after]
    return Dependencies(either=(*finished, *over, *not_ok, *begun))


def _after_each(spec: JobSpec, facts: JobFacts, request: JobRequest, rows: Rows) -> Prepared:
    for job in request.after_each:
        if "_" in str(job):
            raise BadInput(f"{job!r} is not an array", where="after_each", mend="write like 12")
    before = [rows(f"{job}_{facts.task}")[0] for job in request.after_each]
    if request.after_one:
        either = (*facts.conditions.either, *(Condition("ok", (row,)) for row in before))
        facts = msgspec.structs.replace(facts, conditions=Dependencies(either=either))
    else:
        after = (*spec.after, *(str(row + 1) for row in before))
        spec = msgspec.structs.replace(spec, after=after)
    return Prepared(spec, facts)


def _check(request: JobRequest) -> None:
    """Raise BadInput for the first field that cannot be."""
    for field, least, most in RANGES:
        value = getattr(request, field)
        if value is not None and not least <= value <= most:
            raise BadInput(f"{value} is not in {least} .. {most}", where=field)
    if request.format != FORMAT:
        raise BadInput(f"{request.format!r} is not {FORMAT}", where="format")
    if not request.command and not request.script:
        raise BadInput("nothing to run", where="command", mend="name a command or a script")
    if request.script and not request.script.startswith("#!"):
        raise BadInput(
            "it does not begin with #!", where="script", mend="begin with #!/bin/sh, for example"
        )
    for field in ("name", "tenant", "model", "pool", "metric"):
        checked_text(getattr(request, field), field)
    for field, most in LISTED_MAX.items():
        if len(getattr(request, field)) > most:
            raise BadInput(f"more than {most}", where=field, mend="name fewer")
    for field in ("labels", "gpu_types", "warm", "metrics"):
        for text in getattr(request, field):
            checked_text(text, field)
    if request.per not in PER:
        raise BadInput(f"{request.per!r} is not one of {', '.join(PER)}", where="per")
    for event in request.mail_on:
        if event not in EVENTS:
            raise BadInput(f"{event!r} is not one of {', '.join(EVENTS)}", where="mail_on")
    for address in request.mail_to:
        checked_address(address, "mail_to")
    grid.check(request.params, TASKS_MAX)
    if request.params and request.array:
        raise BadInput("it contradicts params, which make an array", where="array")
    _check_strings(request)


def _check_strings(request: JobRequest) -> None:
    for name, value in request.env.items():
        if not _VARIABLE.fullmatch(name):
            raise BadInput(f"{name[:80]!r} is not a valid name of a variable", where="env")
        _check_word(value, "env", WORD_MAX)
    for word in request.command:
        _check_word(word, "command", WORD_MAX)
    for field in ("cwd", "output", "error", "checkpoint_dir"):
        _check_word(getattr(request, field), field, PATH_MAX)
    _check_word(request.script, "script", SCRIPT_MAX)
    values = [value for each in request.params.values() for value in each]
    words = (*request.command, *request.env, *request.env.values(), *request.params, *values)
    tried = grid.together(request.params, request.configurations)
    filled = grid.longest(request.command, tried, NAME_MAX)
    if max(sum(map(len, words)) + len(words), filled) > WORDS_MAX:
        raise BadInput(
            f"it and the variables are longer than {WORDS_MAX >> 20} MiB",
            where="command",
            mend="keep that in a file",
        )
    if request.cwd and not request.cwd.startswith("/"):
        raise BadInput(f"{request.cwd!r} is not absolute", where="cwd")


def _check_word(text: str, where: str, most: int) -> None:
    if "\0" in text:
        raise BadInput("it contains a zero byte", where=where)
    if len(text) > most:
        raise BadInput(f"it is longer than {most:,} characters", where=where)


def shape_of(request: JobRequest) -> Shape:
    """Where the job can run. Raises BadInput."""
    gpus, rests = request.gpus, request.kind == "serve" and request.min_gpus == 0
    elastic = bool(request.min_gpus or request.max_gpus or rests)
    apart = elastic or request.kind == "tune"  # what a search holds may lie anywhere
    workers = request.workers or request.nodes or (gpus if apart and gpus else 1)
    if gpus % workers:
        raise BadInput(
            f"{gpus} GPU{'s' if gpus != 1 else ''} cannot be shared evenly by {workers} workers",
            where="gpus",
            mend=f"ask for a multiple of {workers}",
        )
    per_worker, share = gpus // workers, round(request.share * WHOLE)
    if share < WHOLE and per_worker != 1:
        raise BadInput("a share needs one GPU per worker", where="share", mend="ask for --gpus 1")
    cpus = round(request.cpus * WHOLE) or (0 if gpus else WHOLE)  # without GPUs a core at least
    least, most = _range(request, max(per_worker, 1), rests) if elastic else (0, 0)
    needs = Needs(
        per_worker,
        share,
        parse_memory(request.gpu_memory, where="gpu_memory"),
        cpus,
        parse_memory(request.memory, where="memory"),
    )
    return Shape(
        roles=(Role(size=workers, least=least, most=most, needs=needs),),
        gpu_types=tuple(request.gpu_types),
        pool=request.pool,
        labels=tuple(request.labels),
        locality=_word(Locality, request.locality or "any", "locality"),
    )


def _range(request: JobRequest, per_worker: int, rests: bool) -> tuple[int, int]:
    """The least and the most workers of an elastic job; `rests`: it may have none."""
    least, most = 0 if rests else request.min_gpus or request.gpus, request.max_gpus or request.gpus
    if not (rests or least) or not least <= request.gpus <= most:
        raise BadInput(
            f"min_gpus {least} <= gpus {request.gpus} <= max_gpus {most} does not hold",
            where="min_gpus",
        )
    if least % per_worker or most % per_worker:
        raise BadInput(
            f"a worker has {per_worker} GPUs",
            where="min_gpus",
            mend=f"give multiples of {per_worker}",
        )
    return least // per_worker or NONE, most // per_worker


def _launch(request: JobRequest, spec: JobSpec, who: Who, switch_user: bool) -> Launch:
    grace = (
        30 * SECOND if request.grace in (None, "") else parse_duration(request.grace, where="grace")
    )
    return Launch(
        command=tuple(request.command),
        shape=spec.shape,
        per=request.per,
        env=request.env,
        cwd=request.cwd,
        output=_absolute(request.output, request.cwd, "output"),
        error=_absolute(request.error, request.cwd, "error"),
        limit=spec.limit,
        on_preempt=spec.on_preempt,
        grace=grace,
        retries=request.retries,
        checkpoint_dir=_absolute(request.checkpoint_dir, request.cwd, "checkpoint_dir"),
        warm=tuple(request.warm),
        steps=request.per == "job",
        metric=request.metric,
        metrics=others_of(request),
        printed=request.printed,
        uid=who.uid if switch_user else -1,
        gid=who.gid if switch_user else -1,
    )


def _absolute(path: str, cwd: str, where: str) -> str:
    if not path or path.startswith("/"):
        return path
    if not cwd:
        raise BadInput(f"{path!r} is not absolute", where=where, mend="or state cwd")
    return f"{cwd.rstrip('/')}/{path}"


def _called(request: JobRequest) -> str:
    """A name for people, from the command."""
    word = Path(request.command[0]).name if request.command else "script"
    for argument in request.command[1:] if word.startswith("python") else ():
        if argument == "-c":
            break
        if not argument.startswith("-"):  # a script, or what follows -m
            word = Path(argument).name
            break
    return word[:NAME_MAX] if word and not _HIDDEN.search(word) else "job"


def tasks_of(text: str) -> tuple[list[int], int]:
    """`0-7`, `1,3,5-9:2` as numbers, ascending; how many at once after a `%` (0: all).

    Raises BadInput.
    """
    mend = "write like 0-7, 1,3,5, 0-20:5 or 0-99%4"
    listed, percent, most = text.partition("%")
    if percent and not (_NUMBER.fullmatch(most) and 0 < int(most) <= TASKS_MAX):
        raise BadInput(f"%{most} is not a valid number of tasks at once", where="array", mend=mend)
    tasks: set[int] = set()
    for part in listed.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            raise BadInput(f"{text!r} is not a valid list of tasks", where="array", mend=mend)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or step < 1 or (last - first) // step >= TASKS_MAX:
            raise BadInput(f"{part!r} has no tasks, or too many", where="array", mend=mend)
        tasks.update(range(first, last + 1, step))
    if len(tasks) > TASKS_MAX:
        raise BadInput(f"more than {TASKS_MAX:,} tasks", where="array", mend="submit it in parts")
    return sorted(tasks), int(most or 0)


def moment(value: str | float | None, now: int, where: str, default: int) -> int:
    """Microseconds since the epoch of Unix seconds, an ISO date and time, or `+2h`."""
    if value is None or value == "":
        return default
    if isinstance(value, int | float):
        return max(micros(value), 0)
    text = value.strip()
    if text.startswith("+"):
        return now + parse_duration(text[1:], where=where)
    try:
        return max(micros(datetime.fromisoformat(text).timestamp()), 0)
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{value!r} is not a valid time", where=where, mend="write like 2026-05-01T18:00 or +2h"
        ) from None


def span(value: str | float | None, where: str) -> int:
    """Microseconds of a length of time above zero; NEVER where none is stated. Raises BadInput."""
    if value is None or value == "":
        return NEVER
    found = parse_duration(value, where=where)
    if not found:
        raise BadInput("it is zero", where=where, mend="leave it out for no limit")
    return found


def _word(enum: type[E], word: str, where: str) -> E:
    try:
        return enum[word.upper()]
    except KeyError:
        known = ", ".join(member.name.lower() for member in enum)
        raise BadInput(f"{word!r} is not one of {known}", where=where) from None


class Fits:
    """Which shapes could ever run on a cluster."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._empty = EmptyCluster(nodes)

    def check(self, shape: Shape) -> None:
        """Raise BadInput if not even the empty cluster has room for it."""
        types = self._nodes.types.values
        for gpu_type in shape.gpu_types:
            if gpu_type not in types:
                known = ", ".join(t for t in types if t) or "no GPU"
                raise BadInput(
                    f"no GPU is of type {gpu_type}",
                    where="gpu_types",
                    mend=f"the types are {known}",
                )
        least = tuple(role.range[0] for role in shape.roles)
        if not self._empty.fits(shape, least):
            mend = "ask for less; `ganger nodes` shows what there is"
            if shape.roles[0].needs.gpus > int(self._nodes.gpus.max(initial=0)):
                mend = (
                    "the GPUs of a worker are in one node: ask for more workers "
                    "(--nodes), or fewer GPUs"
                )
            raise BadInput(f"{shape} can never fit in this cluster", where="gpus", mend=mend)
