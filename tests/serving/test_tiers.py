"""Tolerance tiers: which versions are asked, and how often their answers may be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import CANCELLED, OK
from ganger.core.serving.world import Recorded
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import known_of
from ganger.recipes.registry import make_router
from ganger.recipes.serving.ensembles.tiers import Aim, Rule, Tier, ruled, tried
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import shipped
from serving.rig import Asked, lanes, model, play, recorded, scored, table

PAIR = [("pair", (0, 1))]
ASK = 2
"""The code of the family."""


def drawn(count: int, seed: int) -> dict[int, Recorded]:
    """A quick version that errs in about 12 of 100 and a slow one in 8. The quick one is sure of
    little that it errs on, and half of what the slow one errs on both do."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    hard = rng.random(count)
    slow = (hard < 0.04) | (rng.random(count) < 0.04)
    quick = (hard < 0.1) | (rng.random(count) < 0.02)
    sure = np.where(quick, rng.exponential(0.6, count), rng.exponential(2.0, count))
    said = [np.where(wrong, 1 - labels, labels) for wrong in (quick, slow)]
    scores = np.zeros((count, 2))
    scores[np.arange(count), said[0]] = sure
    return {0: Recorded(said[0], labels, scores), 1: Recorded(said[1], labels)}


TIMES = {0: 20_000, 1: 80_000}


def errors(of: dict[int, Recorded], rule: Rule) -> Any:
    """By input, whether the answer of the rule is wrong."""
    first = of[rule.first]
    said = first.gave
    if rule.second >= 0:
        assert first.scores is not None
        sure = np.abs(first.scores[:, 0] - first.scores[:, 1])
        said = np.where(sure < rule.threshold, of[rule.second].gave, said)
    return said != first.labels


def test_nine_in_a_hundred_are_met_by_the_cheapest_threshold_and_by_neither_version() -> None:
    """20 ms with 12 % of errors, 80 ms with 8 %: the quick one, and the slow one where it is not
    sure. With a confidence of a half the bound is about what is counted."""
    of = drawn(4000, 1)
    most = 0.09 - errors(of, Rule(1)).mean()
    assert errors(of, Rule(0)).mean() > 0.09
    (found,) = ruled(of, TIMES, [Tier(most, Aim.COST)], 400, 0.5)
    assert (found.first, found.second, found.both) == (0, 1, False)
    assert errors(of, found).mean() <= 0.09
    cheaper = [
        each.rule.threshold
        for each in tried(of, TIMES)
        if each.rule.second == 1 and not each.rule.both and each.rule.threshold < found.threshold
    ]
    assert cheaper
    assert all(errors(of, Rule(0, 1, each)).mean() > 0.089 for each in cheaper)
    (quick,) = ruled(of, TIMES, [Tier(most, Aim.LATENCY)], 400, 0.5)
    assert quick == replace(found, both=True)  # both at once are as often right, and sooner


def test_no_tolerance_errs_as_the_best_version_and_more_of_it_is_never_slower() -> None:
    """On the digits that ship with Ganger, as ten classifiers really answer them."""
    models = [
        known_of(each, read_fleet("cpu-1:1"))
        for each in read_models(shipped("measured")).models.values()
        if each.family == "digits"
    ]
    of = {at: each.recorded for at, each in enumerate(models) if each.recorded is not None}
    assert len(of) == 10
    times = {at: 1000 + 500 * at for at in of}  # worse ones are quicker
    tiers = [Tier(each, Aim.LATENCY) for each in (0.0, 0.01, 0.02, 0.04, 0.08, 0.2)]
    rules = ruled(of, times, tiers, 1000, 0.999)
    by_rule = {each.rule: each for each in tried(of, times)}
    least = min((each.gave != each.labels).mean() for each in of.values())
    assert by_rule[rules[0]].wrong.mean() == least
    assert rules[0] == Rule(9)
    latencies = [by_rule[rule].latency for rule in rules]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[-1] < latencies[0] / 3
    for rule, tier in zip(rules, tiers, strict=True):
        assert by_rule[rule].wrong.mean() <= least + tier.tolerance


@pytest.mark.parametrize("seed", range(4))
def test_tolerances_hold_on_inputs_that_nobody_saw(seed: int) -> None:
    """Rules of 900 inputs, on 40,000 others."""
    others = drawn(40_000, 100 + seed)
    best = errors(others, Rule(1)).mean()
    tiers = [Tier(each, aim) for each in (0.005, 0.01, 0.02, 0.03) for aim in Aim]
    for rule, tier in zip(ruled(drawn(900, seed), TIMES, tiers, 1000, 0.999), tiers, strict=True):
        assert errors(others, rule).mean() - best <= tier.tolerance


SAYS = [[0, 0, 1, 1], [0, 1, 1, 0]]
"""By model and input; the second is right."""
SCORES = [scored(SAYS[0], [5, 0.1, 5, 0.1]), scored(SAYS[1], [1] * 4)]
MODELS = [
    replace(each, recorded=recorded(said * 400, SAYS[1] * 400, scores * 400))
    for each, said, scores in zip(
        [model("quick", table(2, 3)), model("slow", table(9, 10))], SAYS, SCORES, strict=True
    )
]


def served(recipe: str, *asked: Asked) -> Any:
    return play(
        make_router(recipe), MODELS, lanes(2), asked, families=PAIR, says=SAYS, scores=SCORES
    )


def test_the_slow_version_follows_where_the_quick_one_is_not_sure() -> None:
    asked = [Asked(20.0 * at, ASK, input=at) for at in range(4)]
    seen = served("tolerance-tiers(tolerance=0.01,aim=cost)", *asked)
    assert seen.by == [0, 1, 0, 1]
    assert seen.ended == [2, 31, 42, 71]
    assert len(seen.batches) == 6


def test_both_begin_at_once_and_the_slow_one_is_cancelled_where_the_quick_one_is_sure() -> None:
    asked = [Asked(20.0 * at, ASK, input=at) for at in range(4)]
    seen = served("tolerance-tiers(tolerance=0.01)", *asked)
    assert seen.by == [0, 1, 0, 1]
    assert seen.ended == [2, 29, 42, 69]
    slow = [(each.began, each.ended, each.outcome) for each in seen.batches if each.model == 1]
    assert slow == [(0, 2, CANCELLED), (20, 29, OK), (40, 42, CANCELLED), (60, 69, OK)]


def test_what_others_still_wait_for_is_not_cancelled() -> None:
    """The slow version runs for a request that is answered and for one that is not."""
    asked = [Asked(0, ASK, input=0), Asked(0, ASK, input=1)]
    seen = served("tolerance-tiers(tolerance=0.01)", *asked)
    assert seen.by == [0, 1]
    assert seen.ended == [3, 10]
    assert all(each.outcome == OK for each in seen.batches)


def test_at_its_deadline_a_request_has_what_the_quick_version_said() -> None:
    seen = served(
        "tolerance-tiers(tolerance=0.01,aim=cost)",
        Asked(0, ASK, 5, input=1),
        Asked(30, ASK, input=0),
    )
    assert (seen.by, seen.ended) == ([0, 0], [5, 32])


def test_each_tenant_has_its_tier() -> None:
    """All others may err in half of all, which the quick version alone does."""
    asked = [Asked(20.0 * at, ASK, input=1, tenant=at) for at in range(3)]
    recipe = "tolerance-tiers(tolerance=0.6,confidence=0.5,tiers=a:0.01:cost;b:0.01)"
    assert served("tolerance-tiers(tolerance=1)", *asked).by == [0, 0, 0]
    seen = served(recipe, *asked)
    assert seen.by == [0, 1, 1]
    assert [seen.ended[1] - 20, seen.ended[2] - 40] == [11, 9]


@pytest.mark.parametrize("tiers", ["a", "a:", ":0.1", "a:2", "a:-0.1", "a:0.1:speed", "a:cost"])
def test_a_tier_that_is_none_is_refused(tiers: str) -> None:
    with pytest.raises(BadInput, match="is not a tenant and a tolerance"):
        make_router(f"tolerance-tiers(tiers={tiers})")


def test_a_tenant_has_one_tier() -> None:
    with pytest.raises(BadInput, match="a tenant has two tiers"):
        make_router("tolerance-tiers(tiers=gold:0;gold:1)")


def test_versions_whose_answers_nobody_recorded_are_refused() -> None:
    bare = [replace(each, recorded=None) for each in MODELS]
    with pytest.raises(BadInput, match="no answers of model 'quick' were recorded"):
        play(make_router("tolerance-tiers"), bare, lanes(1), [Asked(0, ASK)], families=PAIR)
