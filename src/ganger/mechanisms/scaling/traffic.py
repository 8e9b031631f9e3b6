"""What came to a service, from its windows: rates, traffic envelopes, and the SLO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ganger.core.state.facts import Window
from ganger.core.units import SECOND

_PIECE: Final = "most_in_"


def envelope(windows: Iterable[Window]) -> dict[float, float]:
    """By seconds of a piece, the most requests that came in any one of that length. The window as a
    whole is such a piece. (InferLine, SoCC 2020.)"""
    peaks: dict[float, float] = {}
    for window in windows:
        arrivals = window.figures.get("arrivals")
        whole = {} if arrivals is None else {(window.until - window.since) / SECOND: arrivals}
        for seconds, most in {**whole, **_pieces(window.figures)}.items():
            peaks[seconds] = max(peaks.get(seconds, 0.0), most)
    return dict(sorted(peaks.items()))


def _pieces(figures: Mapping[str, float]) -> dict[float, float]:
    return {
        float(name.removeprefix(_PIECE).removesuffix("s")): most
        for name, most in figures.items()
        if name.startswith(_PIECE)
    }


def peak_rate(window: Window, seconds: float) -> float | None:
    """Requests a second in the fullest piece of at most so many seconds, the longest such; of the
    whole window where it has no such pieces. None where nothing was counted."""
    pieces = envelope((window,))
    if not pieces:
        return None
    length = max((each for each in pieces if each <= seconds), default=max(pieces))
    return pieces[length] / length


def mean_rate(window: Window) -> float | None:
    """Requests a second over a window; None where they were not counted."""
    arrivals = window.figures.get("arrivals")
    return None if arrivals is None else arrivals * SECOND / (window.until - window.since)


def tightest(windows: Iterable[Window]) -> float | None:
    """The least seconds that any request of these windows had; None where none has a deadline."""
    return min([each.figures["slo"] for each in windows if "slo" in each.figures], default=None)
