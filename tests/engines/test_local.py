"""The local engine with real processes passes the suite."""

from __future__ import annotations

from engines.conformance import Conformance


class TestLocal(Conformance):
    """The suite."""
