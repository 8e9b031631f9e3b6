"""Optuna's samplers as searchers."""

from __future__ import annotations

import math
from importlib.util import find_spec

import pytest

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Point, Space
from ganger.mechanisms.tuning.searching import samplers
from ganger.mechanisms.tuning.searching.named import searcher_of
from ganger.mechanisms.tuning.searching.samplers import Sampled

SPACE = Space(
    {
        "x": Parameter(low=-4.0, high=4.0),
        "lr": Parameter(low=1e-4, high=1.0, log=True),
        "layers": Parameter("integer", 1, 8),
        "opt": Parameter("choice", values=("sgd", 2, True)),
        "momentum": Parameter(low=0.0, high=1.0, when={"opt": ("sgd",)}),
    }
)


def installed(*names: str) -> bool:
    return all(find_spec(name) for name in names)


NAMES = [
    pytest.param("tpe", marks=pytest.mark.skipif(not installed("optuna"), reason="needs Optuna")),
    pytest.param(
        "cma-es",
        marks=pytest.mark.skipif(not installed("optuna", "cmaes"), reason="needs Optuna and cmaes"),
    ),
    pytest.param(
        "gp",
        marks=pytest.mark.skipif(not installed("optuna", "torch"), reason="needs Optuna and torch"),
    ),
]


def badness(point: Point) -> float:
    x, lr, layers = point["x"], point["lr"], point["layers"]
    assert not isinstance(x, str)
    assert not isinstance(lr, str)
    assert not isinstance(layers, str)
    return (x - 1.0) ** 2 + (math.log10(lr) + 2.0) ** 2 + abs(layers - 3) / 4


def proposed(name: str, seed: int, count: int) -> list[Point]:
    """As two at a time would be tried, of which every seventh breaks down."""
    searcher, going, found = searcher_of(name, SPACE, [], seed), list[Point](), list[Point]()
    for number in range(count):
        found.append(searcher.ask())
        assert SPACE.holds(found[-1])
        going.append(found[-1])
        if len(going) == 2:
            point = going.pop(0)
            searcher.tell(point, 1.0, math.nan if number % 7 == 6 else badness(point))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_learns_and_its_seed_says_all(name: str) -> None:
    learnt = sum(badness(point) for point in proposed(name, 0, 30)[-10:]) / 10
    deaf = sum(badness(point) for point in proposed("random", 0, 400)) / 400
    assert learnt < 0.75 * deaf
    assert proposed(name, 1, 14) == proposed(name, 1, 14) != proposed(name, 2, 14)


@pytest.mark.skipif(not installed("optuna"), reason="needs Optuna")
def test_what_others_tried_counts_too() -> None:
    """Points that the sampler has not proposed: a user's, or those of an earlier search."""
    searcher = Sampled("tpe", SPACE, 0)
    for units in ([0.6, 0.5, 0.3, 0.1, 0.5], [0.1, 0.5, 0.3, 0.9, 0.5]):
        searcher.tell(point := SPACE.point(units), 1.0, badness(point))
    searcher.ask()
    first, second, own = searcher._study.trials
    assert (first.params, second.value) == (SPACE.point([0.6, 0.5, 0.3, 0.1, 0.5]), badness(point))
    assert own.value is None


@pytest.mark.skipif(not installed("optuna"), reason="needs Optuna")
def test_a_trial_that_is_left_behind_is_told_as_pruned_in_time() -> None:
    from optuna.trial import TrialState

    searcher = Sampled("tpe", SPACE, 0)
    short, long, broken = (searcher.ask() for _ in range(3))
    searcher.tell(short, 1.0, 0.5)
    searcher.tell(long, 9.0, 0.2)
    searcher.tell(broken, 1.0, math.nan)
    states = lambda: [trial.state for trial in searcher._study.trials]  # noqa: E731
    searcher.ask()
    assert states()[:3] == [TrialState.RUNNING, TrialState.COMPLETE, TrialState.COMPLETE]
    for _ in range(samplers.BEHIND):
        searcher.ask()
    pruned, _, worst = searcher._study.trials[:3]
    assert (pruned.state, pruned.intermediate_values) == (TrialState.PRUNED, {1: 0.5})
    assert worst.value == samplers.WORST


@pytest.mark.skipif(not installed("optuna"), reason="needs Optuna")
def test_a_proposal_is_what_its_trial_took() -> None:
    """A table has only some points: what is reported of those counts for what was proposed."""
    searcher = Sampled("tpe", SPACE, 0)
    searcher.ask()
    searcher.took(near := SPACE.point([0.1] * 5))
    searcher.tell(near, 1.0, 0.25)
    searcher.ask()
    assert [trial.value for trial in searcher._study.trials] == [0.25, None]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"'gp' needs optuna and torch .install ganger\[optuna\]"):
        searcher_of("gp", SPACE, [], 0)
