"""Errors of predictors on pairs that they did not see, worked out by hand."""

from __future__ import annotations

import pytest

from ganger.core.profiles import Measured, Profile
from ganger.estimate.sharing.held_out import FITTED, FITTED_FOREST, NOTHING, PLAIN, errors


def measured(uses: dict[str, float], times: dict[tuple[str, str], float]) -> dict[str, Profile]:
    """Models that use so much of the GPU; steps that take so many times as long beside another."""
    return {
        name: Profile(
            utilisation={"gpu": used},
            measured=Measured(
                {"V100": {1: 1.0}},
                "V100",
                beside={
                    other: {"V100": {1: 1 / each}}
                    for (model, other), each in times.items()
                    if model == name
                },
            ),
        )
        for name, used in uses.items()
    }


def test_pairs_by_the_formula_are_predicted_by_it_and_not_by_no_slow_down() -> None:
    """0.5 beside 1.0: 1.5 times as long, of which 1 is off by a third; both ways."""
    told = errors(measured({"a": 0.5, "b": 1.0}, {("a", "b"): 1.5, ("b", "a"): 1.5}))
    assert told[PLAIN][1:] == pytest.approx((0, 0, 0, 0))
    assert told[NOTHING] == pytest.approx((2, 1 / 3, 1 / 3, 1 / 3, -1 / 3))


def test_a_model_is_predicted_without_any_pair_that_it_is_part_of() -> None:
    """All pairs of `odd` take 9 times as long. Without them the others' weight is 1, so that beside
    `odd` both formulas predict 1.25 for itself: 7.75 of 9 too little. For `a` and `b` the pairs
    between `odd` and the other count, and raise the weight."""
    odd = {
        (one, other): 9.0
        for one in ("odd", "a", "b")
        for other in ("odd", "a", "b")
        if "odd" in (one, other)
    }
    plain = {("a", "b"): 1.25, ("b", "a"): 1.25, ("a", "a"): 1.25, ("b", "b"): 1.25}
    uses = dict.fromkeys(("odd", "a", "b"), 0.5)
    alone = errors(
        measured(uses, {pair: each for pair, each in odd.items() if pair[0] == "odd"} | plain)
    )
    assert alone[PLAIN].pairs == 7
    assert alone[PLAIN].mean == pytest.approx(3 * (7.75 / 9) / 7)
    fitted = errors(measured(uses, odd | plain))[FITTED]
    assert fitted.ninth > 1.0, "the weight that `odd` raises is too large for the plain pairs"


def test_the_forest_sees_no_pair_of_the_model_that_is_held_out() -> None:
    """All use alike, so that a forest predicts the mean of what it saw: 1.9 for the steps of `odd`,
    which take 1.5, as it saw the six twins beside each other only. With the pairs in which they
    are beside `odd`, 9, it would be 2.9, off by 0.9. The largest errors are those of the twins
    beside `odd`: the mean of what was seen for 9."""
    twins = [f"twin {at}" for at in range(6)]
    times = {(a, b): 1.9 for a in twins for b in twins}
    times |= {(a, "odd"): 9.0 for a in twins} | {("odd", a): 1.5 for a in twins}
    off = errors(measured(dict.fromkeys([*twins, "odd"], 0.95), times))[FITTED_FOREST]
    alike = (25 * 1.9 + 5 * 9.0 + 5 * 1.5) / 35
    assert off.ninth == pytest.approx(1 - alike / 9, abs=0.03)


def test_models_without_pairs_or_use_have_no_errors() -> None:
    assert errors({"a": Profile(utilisation={"gpu": 1.0})}) == {}
    assert (
        errors({"a": Profile(), "b": Profile(measured=Measured({"V100": {1: 1.0}}, "V100"))}) == {}
    )
