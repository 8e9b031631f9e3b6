"""Time is integer microseconds, capacity integer thousandths; text forms are parsed here only."""

from __future__ import annotations

import re
from typing import Final

from ganger.core.errors import BadInput

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
NEVER: Final = 1 << 62
"""A time after every other: 'no deadline', 'runs until stopped'."""
WHOLE: Final = 1000
"""One whole GPU, or one whole CPU core."""

LONGEST_SECONDS: Final = 1e11
"""No time and no moment is longer: all of them, and sums of dozens, are below NEVER."""
MIB_MAX: Final = 1 << 40
"""No amount of memory is larger: an EiB."""
TEXT_MAX: Final = 1000
"""No text of a time or an amount is longer."""
_UNITS = {"us": 1, "ms": 1000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d{1,2}))?(?::(\d{1,2}(?:\.\d+)?))?")


def shown(value: object) -> str:
    """What somebody wrote, for an error: as Python writes it, and no more of it than a line."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 70 else f"{text[:60]}..."


def micros(seconds: float, *, where: str = "") -> int:
    """Seconds as integer microseconds, rounded to nearest; refuses NaN and absurd sizes, naming
    `where`."""
    if not abs(seconds) <= LONGEST_SECONDS:
        raise BadInput(
            f"{shown(seconds)} is not a valid time in seconds",
            where=where,
            mend="give a finite number below 1e11",
        )
    return round(seconds * SECOND)


def seconds(time: float) -> float:
    """Microseconds as seconds."""
    return time / SECOND


def parse_duration(text: str | float, *, where: str = "") -> int:
    """Microseconds of `90`, `90s`, `1h30m`, `2d`, `1-12:00:00`, `12:30:00` or `1h 30m`.

    A bare number is seconds. Raises BadInput, naming `where`.
    """
    mend = "write seconds, or like 90s, 1h30m, 2d, 1-12:00:00"
    try:
        if isinstance(text, int | float) and not isinstance(text, bool):
            value = micros(text, where=where)
        else:
            value = _parse_duration_text(str(text).strip().lower(), where, mend)
    except OverflowError:
        value = NEVER
    if value < 0:
        raise BadInput(f"negative duration {shown(text)}", where=where, mend=mend)
    if value > LONGEST_SECONDS * SECOND:
        raise BadInput(
            f"{shown(text)} is too long", where=where, mend="give less than 1e11 seconds"
        )
    return value


def _parse_duration_text(text: str, where: str, mend: str) -> int:
    if len(text) > TEXT_MAX:
        raise BadInput(f"{shown(text)} is not a valid duration", where=where, mend=mend)
    try:
        return micros(float(text), where=where)
    except ValueError:
        pass
    packed = text.replace(" ", "")
    parts = _PARTS.findall(packed)
    if parts and "".join(n + u for n, u in parts) == packed:
        return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
    clock = _CLOCK.fullmatch(packed)
    if clock and (":" in packed or "-" in packed):
        days, first, second, third = clock.groups()
        if days is not None:  # D-HH[:MM[:SS]]
            hms = (float(first), float(second or 0), float(third or 0))
        elif third is not None:  # HH:MM:SS
            hms = (float(first), float(second), float(third))
        else:  # MM:SS
            hms = (0.0, float(first), float(second))
        return round(int(days or 0) * DAY + hms[0] * HOUR + hms[1] * MINUTE + hms[2] * SECOND)
    raise BadInput(f"{shown(text)} is not a valid duration", where=where, mend=mend)


def format_duration(time: float) -> str:
    """Microseconds for people: `850 ms`, `42.0 s`, `12m 05s`, `3h 20m`, `12d 4h`."""
    sign, time = ("-", -time) if time < 0 else ("", time)
    if time >= NEVER:
        return "never"
    if time < SECOND:
        return f"{sign}{time / 1000:.0f} ms" if time else "0 s"
    if time < MINUTE:
        return f"{sign}{time / SECOND:.1f} s"
    if time < HOUR:
        return f"{sign}{int(time // MINUTE)}m {int(time % MINUTE // SECOND):02d}s"
    if time < 2 * DAY:
        return f"{sign}{int(time // HOUR)}h {int(time % HOUR // MINUTE):02d}m"
    return f"{sign}{int(time // DAY)}d {int(time % DAY // HOUR)}h"


_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib|t|tb|tib)")


def parse_memory(text: str | float, *, where: str = "") -> int:
    """MiB of `16GiB`, `16G`, `512M` or a bare number (MiB). Raises BadInput."""
    match = _MEMORY.fullmatch(str(text).strip().lower()) if len(str(text)) <= TEXT_MAX else None
    if not match:
        raise BadInput(
            f"{shown(text)} is not a valid amount of memory",
            where=where,
            mend="write like 16GiB or 512M",
        )
    number, unit = float(match[1]), match[2][:1] or "m"
    amount = number * {"b": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}[unit]
    if amount > MIB_MAX:
        raise BadInput(f"{shown(text)} is too much", where=where, mend="give at most 1048576T")
    return round(amount)
