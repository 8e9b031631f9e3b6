"""Where a report comes from: the command, the files that it read, the moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Origin:
    """What was asked for, and from what. `inputs`: each file with the SHA-256 of its bytes."""

    command: str = ""
    inputs: tuple[tuple[str, str], ...] = ()
    made: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Titles and texts for a table; what is not known is left out."""
        files = "; ".join(f"{name} (SHA-256 {digest})" for name, digest in self.inputs)
        found = [("Command", self.command), ("Inputs", files), ("Made", self.made)]
        return [(title, text) for title, text in found if text]


def origin_of(command: str, paths: Iterable[str | Path]) -> Origin:
    """The origin of what `command` makes now of those `paths` that are files."""
    files = [Path(path) for path in dict.fromkeys(map(str, paths))]
    inputs = tuple((str(path), _digest(path)) for path in files if path.is_file())
    return Origin(command, inputs, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
