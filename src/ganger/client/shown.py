"""Text that others wrote, as it may be shown on a terminal or written into a log."""

from __future__ import annotations


def shown(text: str) -> str:
    r"""`text` in one line: what is not printable (control characters, line and direction marks) is
    written as Python writes it in strings, like `\x1b` or `\u2028`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def shown_json(text: str) -> str:
    """A JSON document with the same characters as JSON escapes; line ends stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else _units(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def _units(one: str) -> str:
    data = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[i : i + 4]}" for i in range(0, len(data), 4))
