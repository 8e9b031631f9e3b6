"""The table of a run, kept in a folder for the runs after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.world import Known
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.windows.stored import digest, file_of, load, save
from ganger.lab.serving.windows.thinning import Windowed
from ganger.workloads.requests.columns import Requests

if TYPE_CHECKING:  # a run uses this file
    from ganger.lab.serving.run import Setup

_FIRST: Final = 4096
"""Requests by which a log is known."""


class Kept:
    """Where the table of a run is kept; nowhere if `folder` is "". `holds_for`: in words, all that
    its entries depend on besides the requests; `like`: whether it may be of another log."""

    def __init__(
        self,
        folder: str,
        recipe: str,
        fleet: str,
        holds_for: str,
        requests: Requests,
        *,
        like: bool,
    ) -> None:
        self._holds_for, self._like = holds_for, like
        self._path = file_of(Path(folder), recipe, fleet, holds_for) if folder else None
        self._log = _beginning(requests) if folder else ""

    def restore(self, windowed: Windowed) -> None:
        """Begin with what is kept. Raises BadInput for a file that is not such a table."""
        if self._path is None:
            return
        try:
            windowed.restore(load(self._path, self._holds_for, "" if self._like else self._log))
        except ValueError:
            raise BadInput(
                "it is damaged", where=str(self._path), mend="delete it, and it is made again"
            ) from None

    def save(self, windowed: Windowed) -> None:
        """Keep the table as it is now. Raises BadInput."""
        if self._path is not None:
            save(self._path, self._holds_for, self._log, windowed.stored())


def _beginning(requests: Requests) -> str:
    """What tells a log from others, and not from itself once it has gone on: its first requests."""
    for chunk in requests.chunks(_FIRST):
        names = [requests.models[code] for code in chunk.model.tolist()]
        due = b"" if chunk.deadline is None else chunk.deadline.tobytes()
        return digest(f"{chunk.arrival.tobytes()!r}{names}{due!r}")
    return ""


def holds_for(
    recipe: str,
    fleet: Fleet,
    setup: Setup,
    known: Sequence[Known],
    right: Sequence[NDArray[np.bool_] | float | None],
) -> str:
    """In words, all that the table of a run by windows depends on besides the requests."""
    answers = [each.tobytes() if isinstance(each, np.ndarray) else each for each in right]
    plain = replace(setup, table="", like=False, prices=())
    return "\n".join(map(repr, (recipe, str(fleet), plain, known, answers)))
