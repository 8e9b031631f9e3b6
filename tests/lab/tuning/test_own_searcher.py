"""A searcher that did not come with Ganger, in a simulated search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from lab.tuning.searches import Searched, experiment, searched, table

CURVES = table(*([float(abs(at - 7))] for at in range(12)))
DOWNHILL = """
class Downhill:
    def __init__(self, space, seed):
        self.names, self.at, self.told = space.names, 0, []

    def ask(self):
        return {self.names[0]: self.at}

    def tell(self, point, epoch, badness):
        self.told.append(badness)
        self.at = point["x"] + (1 if self.told[-1] == min(self.told) else 0)

class NoPoint(Downhill):
    def ask(self):
        return 3

class Outside(Downhill):
    def ask(self):
        return {"x": 99}

class Raises(Downhill):
    def tell(self, point, epoch, badness):
        raise KeyError("x")

class Mute:
    def __init__(self, space, seed):
        pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "mine.py"
    found.write_text(DOWNHILL)
    return found


def search(searcher: str, **more: Any) -> Searched:
    return searched(experiment(searcher=searcher, trials=8, **more), CURVES, "tune.random")


def test_it_is_asked_and_told(file: Path) -> None:
    """It goes one on as long as that is better."""
    tried = [trial.point["x"] for trial in search(f"{file}:Downhill").run.trials]
    assert tried == [0, 1, 2, 3, 4, 5, 6, 7]
    first = [{"x": 5}, {"x": 2}]
    tried = [trial.point["x"] for trial in search(f"{file}:Downhill", points=first).run.trials]
    assert tried[:4] == [5, 2, 3, 4], "points that are listed come first"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NoPoint", "it proposed '3'"),
        ("Outside", "99 is not in the space"),
        ("Raises", "the searcher raised KeyError"),
        ("Mute", "it has no method ask"),
        ("Missing", "it defines no Missing"),
    ],
)
def test_what_is_wrong_with_it_is_said(file: Path, name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        search(f"{file}:{name}")
    with pytest.raises(BadInput, match="No module named"):
        search(f"there.is.none:{name}")
