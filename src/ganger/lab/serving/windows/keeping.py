"""The table of a run, kept in a folder for the runs after it."""

from __future__ import annotations

from pathlib import Path

from ganger.core.errors import BadInput
from ganger.lab.serving.windows.stored import file_of, load, save
from ganger.lab.serving.windows.thinning import Windowed


class Kept:
    """Where the table of a run is kept; nowhere if `folder` is "". `holds_for`: in words, all that
    its entries depend on besides the requests."""

    def __init__(self, folder: str, recipe: str, fleet: str, holds_for: str) -> None:
        self._holds_for = holds_for
        self._path = file_of(Path(folder), recipe, fleet, holds_for) if folder else None

    def restore(self, windowed: Windowed) -> None:
        """Begin with what is kept. Raises BadInput for a file that is not such a table."""
        if self._path is None:
            return
        try:
            windowed.restore(load(self._path, self._holds_for))
        except ValueError:
            raise BadInput(
                "it is damaged", where=str(self._path), mend="delete it, and it is made again"
            ) from None

    def save(self, windowed: Windowed) -> None:
        """Keep the table as it is now. Raises BadInput."""
        if self._path is not None:
            save(self._path, self._holds_for, windowed.stored())
