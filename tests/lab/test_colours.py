"""The colours of reports and pages, as people see them whose eyes lack a kind of cone."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from ganger.lab.report.drawing import COLOURS as DRAWN
from ganger.lab.report.page import COLOURS

Floats = NDArray[np.float64]
SIGHT: Final = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
"""On linear RGB: Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), severity 1."""
XYZ: Final = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE: Final = np.array([0.95047, 1.0, 1.08883])


def colour(name: str, theme: int) -> Floats:
    """A token in linear RGB; theme 0 is light."""
    css = files("ganger.lab.report").joinpath("tokens.css").read_text(encoding="utf-8")
    found = re.search(rf"--{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\)", css)
    assert found is not None, name
    word = found[1 + theme]
    value = np.array([int(word[at : at + 2], 16) for at in (0, 2, 4)]) / 255
    linear: Floats = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return linear


def lab(linear: Floats) -> Floats:
    """CIE L*a*b*, in which 2 is just seen side by side."""
    part = XYZ @ np.clip(linear, 0.0, 1.0) / WHITE
    f = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_the_measure_itself() -> None:
    assert lab(np.ones(3)) == pytest.approx([100, 0, 0], abs=0.02)
    assert lab(np.array([1.0, 0, 0])) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    red, green = (SIGHT["deuteranopia"] @ lin for lin in (np.array([0.4, 0, 0]), [0, 0.18, 0]))
    seen, real = np.linalg.norm(lab(red) - lab(green)), 2 * 60
    assert seen < real / 2, "red and green are near for those who lack a cone"


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_series_are_told_apart(sight: str, theme: int) -> None:
    """Of the first six, which differ by nothing else; of all twelve, whose lines differ by their
    dashes too."""
    seen = [lab(SIGHT[sight] @ colour(f"s{i}", theme)) for i in range(COLOURS)]
    least = {"all cones": (25, 20), "tritanopia": (12, 8)}.get(sight, (17, 11))
    for i, j in combinations(range(COLOURS), 2):
        apart = float(np.linalg.norm(seen[i] - seen[j]))
        assert apart >= least[max(i, j) >= 6], (i, j, apart)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_series_stand_out_from_the_paper(theme: int) -> None:
    """At least 3 to 1 (WCAG 2.2, 1.4.11)."""
    paper = float(XYZ[1] @ colour("paper", theme))
    for i in range(COLOURS):
        low, high = sorted((float(XYZ[1] @ colour(f"s{i}", theme)), paper))
        assert (high + 0.05) / (low + 0.05) >= 3, i


def test_drawings_and_scripts_have_the_same_colours() -> None:
    """The recipes' pictures those of a light page, in their order; the script as many."""
    as_words = [np.round(255 * _encoded(colour(f"s{i}", 0))).astype(int) for i in range(COLOURS)]
    assert [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in as_words] == list(DRAWN)
    script = files("ganger.lab.report").joinpath("draw.js").read_text(encoding="utf-8")
    assert f"const COLOURS = {COLOURS};" in script


def _encoded(linear: Floats) -> Floats:
    value: Floats = np.where(
        linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return value
