"""How much of the large counts `make soak` runs: all, or the part that GANGER_SOAK says; and which
cases of a test only it runs."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import given, seed, settings
from hypothesis.strategies import SearchStrategy

_Test = TypeVar("_Test", bound=Callable[..., Any])

PART = float(os.environ.get("GANGER_SOAK", "1"))


def many(count: int) -> int:
    """`count`, or that part of it; at least one."""
    return max(1, round(count * PART))


def examples(count: int) -> Callable[[_Test], _Test]:
    """Over `@given`: `make test` draws so many examples; `make soak` runs the test too, with a
    hundred times as many."""

    def drawn(test: _Test) -> _Test:
        drawing = settings(max_examples=many(100 * count) if "GANGER_SOAK" in os.environ else count)
        marked: _Test = pytest.mark.deep(drawing(test))
        return marked

    return drawn


def alike(count: int, **drawn: SearchStrategy[Any]) -> Callable[[_Test], _Test]:
    """Over a test with many cases: what is `given` to it is drawn so many times, and the same for
    all cases, which must leave it as it is. For one that fails Hypothesis draws it again, and shows
    the least that fails."""

    def shared(test: _Test) -> _Test:
        often, values = settings(max_examples=count), list[dict[str, Any]]()
        soak = "GANGER_SOAK" in os.environ

        def same(test: Any) -> Any:
            return test if soak else seed(0)(test)

        @same
        @often
        @given(**drawn)
        def draw(**some: Any) -> None:
            values.append(some)

        again = same(often(given(**drawn)(test)))

        @functools.wraps(test)
        def each(**case: Any) -> None:
            if not values:
                draw()
            try:
                for some in values:
                    test(**case, **some)
            except Exception:
                again(**case)
                raise

        asked = inspect.signature(test)
        own = [one for name, one in asked.parameters.items() if name not in drawn]
        each.__signature__ = asked.replace(parameters=own)  # type: ignore[attr-defined]
        return each  # type: ignore[return-value]

    return shared


def rarely(case: Any) -> Any:
    """A case that `make test` leaves to `make soak`; several arguments as a tuple."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.soak)


def first(often: int, cases: Iterable[Any]) -> list[Any]:
    """`cases`, of which `make test` has the first `often`, and `make soak` the others."""
    return [case if at < often else rarely(case) for at, case in enumerate(cases)]
