"""The text of one TOML, YAML or JSON document as plain data."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import msgspec

NODES_MAX: Final = 1_000_000
"""The most values of a YAML document, each as often as its aliases repeat it."""
_LONG_KEY: Final = re.compile(r"""(?:[\w"'-]+[ \t]*\.[ \t]*){200}""")
"""A dotted key that takes tomllib minutes."""


def parsed(text: str, suffix: str) -> Any:
    """What `text` says, by the extension of its file. Raises ValueError, with what is wrong with it
    in one line; LookupError for another extension than .toml, .yaml, .yml and .json."""
    try:
        if suffix == ".toml":
            if _LONG_KEY.search(text):
                raise ValueError("a key has more than 200 parts")
            return tomllib.loads(text)
        if suffix in (".yaml", ".yml"):
            return _yaml(text)
        if suffix == ".json":
            return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    raise LookupError(suffix)


def _yaml(text: str) -> Any:
    import yaml

    class Bounded(yaml.SafeLoader):
        """A loader that counts what aliases stand for: a few lines of them are many gigabytes when
        they are written out (a "billion laughs")."""

        count = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """The next node of the document."""
            self.sizes: dict[int, int] = getattr(self, "sizes", {})
            begin, is_alias = self.count, self.check_event(yaml.AliasEvent)
            node = super().compose_node(parent, index)
            if is_alias:
                if id(node) not in self.sizes:
                    raise ValueError("an anchor holds an alias of itself")
                self.count += self.sizes[id(node)]
            else:
                self.count += 1
                self.sizes[id(node)] = self.count - begin
            if self.count > NODES_MAX:
                raise ValueError(
                    f"it holds more than {NODES_MAX:,} values, each as often as its"
                    " aliases repeat it"
                )
            return node

    try:
        return yaml.load(text, Bounded)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
