"""Models files that come with Ganger. A name like `papers` stands for one wherever a models file is
read; a file of one's own has an extension, so the two are never mixed up."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.workloads.files import suffix_of

SHIPPED: Final = ("papers", "measured")
"""Their names."""
_FOLDER: Final = Path(__file__).parent / "files"


def shipped(name: str) -> Path:
    """The path of a models file that comes with Ganger."""
    return _FOLDER / f"{name}.toml"


def resolved(path: str | Path) -> Path:
    """The file that a path or the name of a shipped file stands for. Raises BadInput for a name
    that stands for neither."""
    given = Path(path)
    if str(path) in SHIPPED and not given.exists():
        return shipped(str(path))
    if not suffix_of(given) and not given.exists():
        raise BadInput(
            "no such models file, and none of that name is shipped",
            where=str(path),
            mend=f"name a file, or {' or '.join(SHIPPED)}",
        )
    return given
