"""Protocol buffers' text format, without a schema: fields by name, each with the line that it
stands on. Enough of it to read a `config.pbtxt`: scalars, messages, lists, comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ganger.core.errors import BadInput

_TOKEN: Final = re.compile(
    r"(?P<blank>[\s]+|#[^\n]*)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)f?)"
    r"|(?P<mark>[{}<>\[\]:,;])"
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_DEPTH_MAX: Final = 32
BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Word:
    """A name that stands for a value: an enum's, or true and false."""

    name: str


@dataclass
class Message:
    """Fields, in order: name, value and line."""

    fields: list[tuple[str, Value, int]] = field(default_factory=list)

    def all(self, name: str) -> Iterator[tuple[Value, int]]:
        """The values of a field, and where they stand."""
        for each, value, line in self.fields:
            if each == name:
                yield value, line


Value: TypeAlias = "str | int | float | Word | Message"


def parse_text(text: str, where: str) -> Message:
    """The fields of a file. Raises BadInput, with the line."""
    if len(text) > BYTES_MAX:
        raise BadInput(f"it is longer than {BYTES_MAX:,} letters", where=where)
    reader = _Reader(text, where)
    return reader.message("", 0)


class _Reader:
    """A file, token by token."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where = text, where
        self._at, self._line = 0, 1
        self._kind, self._word = "", ""
        self._next()

    def _next(self) -> None:
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise self._wrong(f"{self._text[self._at]!r} is not expected")
            self._at = match.end()
            self._kind, self._word = str(match.lastgroup), match[0]
            if self._kind != "blank":
                return
            self._line += match[0].count("\n")
        self._kind, self._word = "end", "the end of the file"

    def _wrong(self, what: str) -> BadInput:
        return BadInput(what, where=f"{self._where}: line {self._line}")

    def message(self, closing: str, depth: int) -> Message:
        """Fields up to `closing`, or to the end of the file."""
        if depth > _DEPTH_MAX:
            raise self._wrong("messages are nested too deeply")
        made = Message()
        while self._word != closing or self._kind != "mark":
            if self._kind == "end" and not closing:
                return made
            if self._kind != "word":
                raise self._wrong(f"{self._word!r} is not the name of a field")
            name, line = self._word, self._line
            self._next()
            for value in self._values(depth):
                made.fields.append((name, value, line))
            if self._kind == "mark" and self._word in ",;":
                self._next()
        return made

    def _values(self, depth: int) -> list[Value]:
        if self._kind == "mark" and self._word == ":":
            self._next()
        elif self._kind != "mark" or self._word not in "{<[":
            raise self._wrong(f"{self._word!r} is where a value should be")
        if self._kind != "mark" or self._word != "[":
            return [self._value(depth)]
        self._next()
        values = list[Value]()
        while self._word != "]" or self._kind != "mark":
            values.append(self._value(depth))
            if self._kind == "mark" and self._word == ",":
                self._next()
            elif self._word != "]":
                raise self._wrong(f"{self._word!r} is where , or ] should be")
        self._next()
        return values

    def _value(self, depth: int) -> Value:
        kind, word = self._kind, self._word
        if kind == "mark" and word in "{<":
            self._next()
            message = self.message("}" if word == "{" else ">", depth + 1)
            self._next()
            return message
        if kind == "text":
            parts = []
            while self._kind == "text":
                parts.append(_unescaped(self._word[1:-1]))
                self._next()
            return "".join(parts)
        if kind == "number":
            self._next()
            return _number(word)
        if kind == "word":
            self._next()
            return Word(word)
        raise self._wrong(f"{word!r} is where a value should be")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def _number(word: str) -> int | float:
    try:
        return int(word, 0)
    except ValueError:
        return float(word.rstrip("f"))
