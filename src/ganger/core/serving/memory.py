"""What a router remembers as bytes, and back: a router that is restored goes on as if nothing had
been.

Memory is plain: numbers, words, lists, tuples, sets, dictionaries, queues with two ends, and
structs of them. What is the same object in several places is the same again afterwards, as routers
file one queue under several keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from ganger.core.errors import InvariantError

_LARGEST: Final = 1 << 63
"""Integers from here on are written as words."""
_GROUPS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "deque": lambda values: deque(values[1:], values[0]),
}


def stored(memory: Any) -> bytes:
    """The memory of a router, MessagePack. Raises InvariantError for what is not plain."""
    writer = _Writer()
    root = writer.value(memory)
    return msgspec.msgpack.encode((root, writer.nodes))


def restored(data: bytes) -> Any:
    """The memory that was stored. Raises InvariantError where it names a struct that there is not:
    the recipe has to be loaded."""
    root, nodes = msgspec.msgpack.decode(data)
    return _Reader(nodes).value(root)


class _Writer:
    """Objects become nodes, once each; a value is plain, or a list with the number of its node."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self._number: dict[int, int] = {}
        self._alive: list[Any] = []

    def value(self, of: Any) -> Any:
        """How a value is written."""
        if of is None or isinstance(of, bool | float | str):
            return of
        if isinstance(of, int):
            return of if -_LARGEST <= of < _LARGEST else self._node(("int", hex(of)))
        if id(of) not in self._number:
            self._number[id(of)] = len(self.nodes)
            self._alive.append(of)  # so that no other object gets its number
            self.nodes.append(None)
            self.nodes[self._number[id(of)]] = self._content(of)
        return [self._number[id(of)]]

    def _node(self, content: Any) -> list[int]:
        self.nodes.append(content)
        return [len(self.nodes) - 1]

    def _content(self, of: Any) -> Any:
        if isinstance(of, list | tuple | set):
            return type(of).__name__, [self.value(each) for each in of]
        if isinstance(of, deque):
            return "deque", [of.maxlen, *(self.value(each) for each in of)]
        if isinstance(of, dict):
            return "dict", [(self.value(key), self.value(each)) for key, each in of.items()]
        if isinstance(of, Struct):
            fields = [self.value(getattr(of, name)) for name in of.__struct_fields__]
            return f"{type(of).__module__}.{type(of).__qualname__}", fields
        raise InvariantError(f"a router remembers {of!r}, which is not plain")


class _Reader:
    """Nodes become objects, once each."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._structs = {f"{each.__module__}.{each.__qualname__}": each for each in _below(Struct)}

    def value(self, written: Any) -> Any:
        """What was written."""
        if not isinstance(written, list):
            return written
        (number,) = written
        if number not in self._made:
            self._made[number] = self._make(number, *self._nodes[number])
        return self._made[number]

    def _make(self, number: int, kind: str, content: Any) -> Any:
        if kind == "int":
            return int(content, 16)
        if kind == "dict":
            made = self._made[number] = {}
            made.update((self.value(key), self.value(each)) for key, each in content)
            return made
        values = [self.value(each) for each in content]
        group = _GROUPS.get(kind)
        if group is not None:
            return group(values)
        struct = self._structs.get(kind)
        if struct is None:
            raise InvariantError(f"there is no struct {kind}")
        return struct(**dict(zip(struct.__struct_fields__, values, strict=True)))


def _below(of: type[Struct]) -> Iterator[type[Struct]]:
    """All structs that derive from one."""
    for each in of.__subclasses__():
        yield each
        yield from _below(each)
