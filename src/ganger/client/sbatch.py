"""`#SBATCH` lines as a request, for scripts that were written for Slurm."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from typing import Any, Final, NamedTuple

from ganger.core.errors import BadInput

SHORT: Final = {
    "J": "job-name", "G": "gpus", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time",
    "p": "partition", "A": "account", "q": "qos", "a": "array", "d": "dependency", "b": "begin",
    "H": "hold", "o": "output", "e": "error", "D": "chdir", "C": "constraint", "w": "nodelist",
    "x": "exclude", "L": "licenses", "m": "distribution", "k": "no-kill", "O": "overcommit",
    "Q": "quiet", "v": "verbose", "W": "wait",
}  # fmt: skip
FLAGS: Final = (
    "hold", "requeue", "no-requeue", "exclusive", "test-only", "quiet", "verbose", "wait",
    "no-kill", "overcommit", "contiguous", "parsable",
)  # fmt: skip
NOTHING_HERE: Final = (
    "partition", "qos", "exclusive", "comment", "open-mode", "licenses",
    "reservation", "exclude", "nodelist", "test-only", "requeue", "distribution", "ntasks-per-core",
    "hint", "wckey", "threads-per-core", "parsable", "get-user-env", "export-file", "propagate",
    "gpu-bind", "mem-bind", "cpu-freq", "gpu-freq", "no-kill", "overcommit", "contiguous",
    "profile", "switches", "kill-on-invalid-dep", "quiet", "verbose", "wait",
)  # fmt: skip
"""Options that are understood and mean nothing here; the user is told."""
_SILENT = ("requeue", "comment", "parsable", "quiet", "verbose", "wait")
_GPUS = re.compile(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)")
_SIGNAL = re.compile(r"(?:[RB]+:)?[A-Z0-9]+(?:@(\d+))?")
_NOW = re.compile(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?")
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?")
_HOURS: Final = {"midnight": "0:00", "noon": "12:00", "teatime": "16:00"}


class Directives(NamedTuple):
    """What a script's lines ask for: fields of a JobRequest, Slurm's `--export`, and what people
    should know."""

    fields: dict[str, Any]
    export: str | None
    notes: list[str]


def parse(script: str, where: str, over: Iterable[tuple[str, str]] = ()) -> Directives:
    """The `#SBATCH` lines of a script, and options over them. Raises BadInput, naming the line."""
    options: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(script.splitlines(), 1):
        text = line.strip()
        if text.startswith("#SBATCH"):
            place = f"{where}:{number}"
            options |= {name: (value, f"{place}: ") for name, value in _words(text[7:], place)}
        elif text and not text.startswith("#"):
            break  # as Slurm does: directives stand before the first command
    options |= {name: (value, "") for name, value in over}
    found = _fields(options)
    found.fields.setdefault("gpus", 0)
    return Directives(_settle(found.fields, where), *found[1:])


def given(options: Iterable[tuple[str, str]]) -> Directives:
    """Options of sbatch on a command line, by their long names. Raises BadInput."""
    found = _fields({name: (value, "") for name, value in options})
    return Directives(_settle(found.fields, "submit"), *found[1:])


def _words(text: str, where: str) -> list[tuple[str, str]]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(f"{text.strip()!r}: {error}", where=where) from None
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in SHORT:
            name, value = SHORT[word[1]], word[2:].removeprefix("=")
            equals = value
        else:
            raise BadInput(f"{word!r} is not an sbatch option known here", where=where)
        if not equals and name not in FLAGS:
            if at == len(words):
                raise BadInput(f"--{name} wants a value", where=where)
            value, at = words[at], at + 1
        found.append((name, value))
    return found


def _fields(options: dict[str, tuple[str, str]]) -> Directives:
    """What options mean, each with the place where it stands."""
    fields: dict[str, Any] = {}
    notes: list[str] = []
    export = None
    for name, (value, place) in options.items():
        if name == "export":
            export = value
        elif name in _READ:
            try:
                _READ[name](fields, value)
            except (BadInput, ValueError) as error:
                what = error.what if isinstance(error, BadInput) else f"{value!r} is not understood"
                mend = error.mend if isinstance(error, BadInput) else ""
                raise BadInput(what, where=f"{place}--{name}", mend=mend) from None
        elif name in NOTHING_HERE:
            if name not in _SILENT:
                notes.append(f"--{name} has no effect here and is ignored")
        else:
            raise BadInput(
                f"--{name} is not an sbatch option known here", where=place.removesuffix(": ")
            )
    return Directives(fields, export, notes)


def _settle(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Counts per node and per task become counts in all and per worker."""
    nodes = fields.get("nodes", 1)
    per_node, ntasks = fields.pop("_tasks_per_node", 0), fields.pop("_ntasks", 0)
    workers = ntasks or nodes * (per_node or 1)
    gpus_per_node, per_task = fields.pop("_gpus_per_node", 0), fields.pop("_gpus_per_task", 0)
    if gpus_per_node:
        fields["gpus"] = gpus_per_node * nodes
    elif per_task:
        fields["gpus"] = per_task * workers
    gpus = fields.get("gpus", 1) / workers
    if workers > 1:
        fields["workers"] = workers
    if "_cpus_per_gpu" in fields:
        fields["cpus"] = fields.pop("_cpus_per_gpu") * gpus
    tasks_a_node = max(workers // max(nodes, 1), 1)
    if "_memory" in fields:
        from ganger.core.units import parse_memory

        memory, what = fields.pop("_memory")
        amount = parse_memory(memory, where=where)
        factor = {"node": 1 / tasks_a_node, "cpu": fields.get("cpus", 1), "gpu": gpus}[what]
        fields["memory"] = round(amount * factor)
    return fields


def _gpus(field: str) -> Callable[[dict[str, Any], str], None]:
    def read(fields: dict[str, Any], value: str) -> None:
        total, types = 0, []
        for part in value.split(","):
            found = _GPUS.fullmatch(part.strip())
            if not found:
                raise BadInput(
                    f"{part!r} is not a valid number of GPUs", mend="write like 4 or a100:4"
                )
            if found[1] and found[1] != "gpu":
                types.append(found[1])
            total += int(found[2])
        fields[field] = total
        if types:
            fields["gpu_types"] = types

    return read


def _number(field: str) -> Callable[[dict[str, Any], str], None]:
    def read(fields: dict[str, Any], value: str) -> None:
        if not value.isdecimal():
            raise BadInput(f"{value!r} is not a whole number")
        fields[field] = int(value)

    return read


def _text(field: str) -> Callable[[dict[str, Any], str], None]:
    return lambda fields, value: fields.__setitem__(field, value)


def _flag(field: str, meaning: Any) -> Callable[[dict[str, Any], str], None]:
    return lambda fields, value: fields.__setitem__(field, meaning)


def _memory(what: str) -> Callable[[dict[str, Any], str], None]:
    return lambda fields, value: fields.__setitem__("_memory", (value, what))


def _nodes(fields: dict[str, Any], value: str) -> None:
    least, _, most = value.partition("-")
    if most and most != least:
        raise BadInput("a range of nodes is not supported", mend="name one number")
    _number("nodes")(fields, least)


def _time(fields: dict[str, Any], value: str) -> None:
    if value.upper() not in ("INFINITE", "UNLIMITED"):
        fields["time_limit"] = f"{value}m" if value.isdecimal() else value


def when(value: str) -> str:
    """A moment as sbatch has it: `now`, `now+2hours`, `16:00` (the next), `tomorrow`, `noon`; empty
    for now. What is none of these is left as it is."""
    found = _NOW.fullmatch(value)
    if found is not None:
        return f"+{found[1]}{(found[2] or 's')[0]}" if found[1] else ""
    now = datetime.now()
    if value in ("today", "tomorrow"):
        day = now.date() + timedelta(days=value == "tomorrow")
        return datetime.combine(day, time()).isoformat()
    clock = _CLOCK.fullmatch(_HOURS.get(value, value))
    if clock is None:
        return value
    hour, minute, second = (int(part or 0) for part in clock.groups())
    if hour > 23 or minute > 59 or second > 59:
        return value
    then = datetime.combine(now.date(), time(hour, minute, second))
    return (then + timedelta(days=then <= now)).isoformat()


def _moment(field: str) -> Callable[[dict[str, Any], str], None]:
    return lambda fields, value: fields.__setitem__(field, when(value))


def _nice(fields: dict[str, Any], value: str) -> None:
    fields["priority"] = -int(value or 100)


def _signal(fields: dict[str, Any], value: str) -> None:
    found = _SIGNAL.fullmatch(value)
    if not found:
        raise BadInput(f"{value!r} is not a valid signal and time", mend="write like USR1@120")
    if found[1]:
        fields["grace"] = int(found[1])


def _mail_type(fields: dict[str, Any], value: str) -> None:
    on: list[str] = []
    for word in value.upper().split(","):
        if word not in _MAIL_TYPES:
            raise BadInput(f"{word!r} is not known", mend=f"one of {', '.join(_MAIL_TYPES)}")
        on += _MAIL_TYPES[word]
    fields["mail_on"] = list(dict.fromkeys(on))


_END: Final = ("finished", "failed", "cancelled")
_MAIL_TYPES: Final = {
    "NONE": (),
    "BEGIN": ("started",),
    "END": _END,
    "FAIL": ("failed", "cancelled"),
    "REQUEUE": ("preempted",),
    "TIME_LIMIT": ("failed",),
    "ALL": ("started", *_END, "preempted"),
}


def dependencies(fields: dict[str, Any], value: str) -> None:
    """`afterok:1:2,afterany:3` into `after` and `after_any`, `after` (minutes into a span),
    `afternotok`, `aftercorr` and `singleton` likewise; with `?` for the commas one of them is
    enough. Raises BadInput."""
    one = "?" in value
    if one and ("," in value or "singleton" in value):
        raise BadInput(
            f"{value!r}: ? cannot be combined with a comma or singleton",
            where="--dependency",
            mend="write like afterok:12?afterany:14",
        )
    if one:
        fields["after_one"] = True
    for part in value.split("?" if one else ","):
        kind, *jobs = part.strip().split(":")
        if kind == "singleton" and not jobs:
            fields["singleton"] = True
            continue
        if kind.isdecimal():
            kind, jobs = "afterany", [kind, *jobs]
        field = _AFTER.get(kind)
        if field is None or not all(jobs) or not jobs:
            raise BadInput(
                f"{part!r} is not supported",
                where="--dependency",
                mend="write like afterok:12:13,afterany:14,singleton",
            )
        if kind == "after":
            jobs = [_begun(job) for job in jobs]
        fields.setdefault(field, []).extend(jobs)


def _begun(text: str) -> str:
    job, plus, minutes = text.partition("+")
    if plus and not minutes.isdecimal():
        raise BadInput(
            f"{text!r}is not a whole number of minutes",
            where="--dependency",
            mend="write like after:12+10",
        )
    return f"{job}+{minutes}m" if plus else job


_AFTER: Final = {
    "afterok": "after",
    "afterany": "after_any",
    "afternotok": "after_not_ok",
    "aftercorr": "after_each",
    "after": "after_begin",
}
DEPENDENCIES: Final = (*_AFTER.values(), "after_one", "singleton")
"""Fields that say what a job waits for."""

_READ: Final[dict[str, Callable[[dict[str, Any], str], None]]] = {
    "job-name": _text("name"),
    "gpus": _gpus("gpus"),
    "gpus-per-node": _gpus("_gpus_per_node"),
    "gpus-per-task": _gpus("_gpus_per_task"),
    "gres": _gpus("_gpus_per_node"),
    "nodes": _nodes,
    "ntasks": _number("_ntasks"),
    "ntasks-per-node": _number("_tasks_per_node"),
    "cpus-per-task": _number("cpus"),
    "mem": _memory("node"),
    "mem-per-cpu": _memory("cpu"),
    "mem-per-gpu": _memory("gpu"),
    "time": _time,
    "account": _text("tenant"),
    "array": _text("array"),
    "dependency": dependencies,
    "begin": _moment("begin"),
    "cpus-per-gpu": _number("_cpus_per_gpu"),
    "deadline": _moment("deadline"),
    "hold": _flag("hold", True),
    "nice": _nice,
    "priority": lambda fields, value: fields.__setitem__("priority", int(value)),
    "no-requeue": _flag("on_preempt", "never"),
    "signal": _signal,
    "output": _text("output"),
    "error": _text("error"),
    "chdir": _text("cwd"),
    "mail-type": _mail_type,
    "mail-user": lambda fields, value: fields.__setitem__("mail_to", value.split(",")),
    "constraint": lambda fields, value: fields.__setitem__("labels", value.split("&")),
}
