"""Why something was not done, in words for the user who asked for it."""

from __future__ import annotations

import logging

from ganger.core.errors import GangerError
from ganger.service.durable.journal import FullError

log = logging.getLogger("ganger.service")


class FullDisk(GangerError):  # noqa: N818 - reads as a sentence
    """Nothing can be accepted: it could not be kept."""


class Bug(GangerError):  # noqa: N818 - reads as a sentence
    """What was asked for met a bug, and was not done."""


def reason(error: Exception) -> Exception:
    """The words for a user who asked for something that could not be done."""
    if isinstance(error, FullError):
        return FullDisk(f"nothing can be written: {error}")
    if not isinstance(error, GangerError):
        log.error("what was asked for met a bug", exc_info=error)
        return Bug(f"a bug in Ganger: {type(error).__name__}: {error}; nothing was done")
    return error
