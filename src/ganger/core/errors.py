"""Errors a user may see: one sentence each, naming the place and the mend."""

from __future__ import annotations


class GangerError(Exception):
    """Anything that a user did or supplied and can mend. The CLI prints it and exits with 2."""


class BadInput(GangerError):  # noqa: N818 - reads as a sentence where it is raised
    """A wrong value in an input: `where` names file, line or field; `mend` says what to do."""

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        self.what, self.where, self.mend = what, where, mend
        super().__init__(
            "".join([f"{where}: " if where else "", what, f" ({mend})" if mend else ""])
        )


class InvariantError(AssertionError):
    """The core caught itself, an engine or a policy in a state that must never be."""
