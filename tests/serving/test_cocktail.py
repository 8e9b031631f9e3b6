"""Cocktail: how many models vote, whose vote counts how much, and how often that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ganger.core.errors import BadInput
from ganger.core.serving.world import Known, World
from ganger.recipes.registry import make_router
from ganger.recipes.serving.ensembles.cocktail import Cocktail, Groups, Start, voted_accuracy
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import shipped
from serving.rig import Asked, Seen, lanes, model, play, table


def test_the_formula_promises_more_the_more_independent_voters_there_are() -> None:
    """Voters that are right in seven of ten cases: a target of 83 % needs five."""
    promised = [round(voted_accuracy(count, 0.7), 3) for count in (1, 3, 5, 7)]
    assert promised == [0.7, 0.784, 0.837, 0.874]
    models = [replace(model(name, table(2)), accuracy=0.7) for name in "abcdefg"]
    assert members(models, "cocktail(start=formula,accuracy=0.83)") == 5
    assert members(models, "cocktail(start=formula,accuracy=0.87)") == 7
    assert members(models, "cocktail(start=formula,accuracy=0.95)") == 7  # there are no more
    assert members(models, "cocktail") == 7


def members(models: list[Known], recipe: str) -> int:
    """How many models answer the first request."""
    family = [("all", tuple(range(len(models))))]
    seen = play(make_router(recipe), models, lanes(1), [Asked(0, len(models))], families=family)
    return len({batch.model for batch in seen.batches})


def digits(*names: str) -> tuple[list[Known], list[list[int]], list[int]]:
    """Classifiers of digits with the answers that were recorded of them, and the true classes."""
    stored = read_models(shipped("measured")).models
    some = [stored[f"digits-{name}"] for name in names]
    models = [
        replace(model(each.name, table(1, 1.5, 2, 2.5)), accuracy=each.accuracy) for each in some
    ]
    labels = some[0].labels
    assert labels is not None
    return (
        models,
        [each.predicted.tolist() for each in some if each.predicted is not None],
        labels.tolist(),
    )


def ask(recipe: str, *names: str, times: int = 1) -> tuple[Seen, int]:
    """The requests for all recorded inputs, in an order by lot, and how many answers are wrong."""
    models, says, labels = digits(*names)
    order = np.random.default_rng(4).permutation(np.tile(np.arange(len(labels)), times)).tolist()
    asked = [
        Asked(4.0 * at, len(models), 200, input=each, label=labels[each])
        for at, each in enumerate(order)
    ]
    family = [("all", tuple(range(len(models))))]
    seen = play(make_router(recipe), models, lanes(3), asked, families=family, says=says)
    classes = [
        each if each >= 0 else says[by][given]
        for each, by, given in zip(seen.said, seen.by, order, strict=True)
    ]
    return seen, sum(each != labels[given] for each, given in zip(classes, order, strict=True))


def test_a_real_trio_votes_worse_than_its_best_member_and_than_the_formula_promises() -> None:
    """Classifiers that are right in 95.8, 96.4 and 98.8 of 100 cases: by the formula three of them
    are right in 99.7. They err on the same inputs, so the vote is right less often than the best
    of them."""
    names = "logistic", "mlp-16", "rbf-svm"
    models, says, labels = digits(*names)
    best = max(each.accuracy for each in models)
    promised = voted_accuracy(3, sum(each.accuracy for each in models) / 3)
    votes = np.array([np.bincount(column).argmax() for column in np.array(says).T])
    assert (votes == labels).mean() < best < 0.99 < promised
    seen, wrong = ask("cocktail(start=formula,accuracy=0.99)", *names)
    assert members(models, "cocktail(start=formula,accuracy=0.99)") == 3
    assert 1 - wrong / len(labels) < 0.99
    assert len({batch.model for batch in seen.batches}) == 3


def test_fewer_models_are_as_often_right_as_all_of_them() -> None:
    """Of seven real classifiers most are dropped; each request begins with all of them."""
    every = (
        "bayes", "tree", "lda", "logistic", "mlp-16", "forest", "rbf-svm",
    )  # fmt: skip
    few, wrong = ask("cocktail(accuracy=0.97,every=1s)", *every, times=2)
    all_, wrong_of_all = ask("cocktail(accuracy=0.97,every=100s)", *every, times=2)
    late = 1200 * 4.0
    tasks = [
        sum(len(batch.tasks) for batch in seen.batches if batch.began >= late)
        for seen in (few, all_)
    ]
    assert tasks[0] < 0.5 * tasks[1]
    assert 1 - wrong / len(few.by) >= 0.97
    assert wrong <= 1.1 * wrong_of_all + 5


SURE = 4
TRIO = [replace(model(name, table(at + 1)), accuracy=0.9) for at, name in enumerate("abcd")]


def memory_of(*rows: tuple[int, int, int, int]) -> Groups:
    return Groups(counts={(which, given): [right, judged] for which, given, right, judged in rows})


def test_a_vote_counts_by_how_often_its_model_was_right_when_it_gave_that_class() -> None:
    """The first is right about class 7 only, so it outvotes two that are often wrong there, and is
    outvoted elsewhere."""
    choice, world = Cocktail(0.9, 10, 1, Start.ALL), World(TRIO, lanes(1))
    memory = memory_of((0, 7, 98, 98), (0, 5, 0, 98), (1, 3, 8, 18), (2, 3, 8, 18), (1, 6, 18, 18))
    assert choice.combine(world, memory, 0, {0: 7, 1: 3, 2: 3}) == (0, 7)  # 0.99 to 0.9
    assert choice.combine(world, memory, 0, {0: 5, 1: 6}) == (1, 6)
    assert choice.combine(world, memory, 0, {0: 8, 1: 9}) == (0, 8)  # neither was judged: a half


def changed(says: list[list[int]], accuracy: float, every: str = "1s") -> list[set[str]]:
    """The members of the ensemble in the 1st, 2nd, ... second of requests whose class is 1."""
    asked = [Asked(10.0 * at, SURE, 500, input=at % 10, label=1) for at in range(500)]
    seen = play(
        make_router(f"cocktail(accuracy={accuracy},every={every},least=50)"),
        TRIO,
        lanes(4),
        asked,
        families=[("all", (0, 1, 2, 3))],
        says=says,
    )
    return [
        {"abcd"[batch.model] for batch in seen.batches if second <= batch.began / 1000 < second + 1}
        for second in range(5)
    ]


def test_the_model_that_is_least_often_right_goes_until_no_more_agree_than_have_to() -> None:
    """Four agree where three suffice; three agree where two suffice; of two both have to."""
    says = [[1] * 10, [1] * 10, [1] * 9 + [0], [1] * 8 + [0, 0]]
    assert changed(says, 0.9) == [set("abcd"), set("abc"), set("ab"), set("ab"), set("ab")]


def test_a_model_comes_back_where_the_others_are_not_right_often_enough() -> None:
    """Nobody is right on one input in ten: all that there are do not suffice, so none goes."""
    says = [[0] + [1] * 9] * 4
    assert changed(says, 0.95) == [set("abcd")] * 5
    quick, slow = "cocktail(start=formula,accuracy=0.95,every=1s,least=50)", [[0] + [1] * 9] * 3
    asked = [Asked(10.0 * at, SURE, 500, input=at % 10, label=1) for at in range(500)]
    seen = play(
        make_router(quick),
        [replace(each, accuracy=0.96 if at < 1 else 0.9) for at, each in enumerate(TRIO)],
        lanes(4),
        asked,
        families=[("all", (0, 1, 2, 3))],
        says=[*slow, [1] * 10],
    )
    first = {which: min(b.began for b in seen.batches if b.model == which) for which in range(4)}
    assert [first[which] // 1000 for which in range(4)] == [0, 1, 2, 3]


def test_without_labels_nothing_changes() -> None:
    asked = [Asked(10.0 * at, SURE, 500, input=at % 10) for at in range(500)]
    says: Any = [[1] * 10] * 4
    seen = play(
        make_router("cocktail(every=1s)"),
        TRIO,
        lanes(4),
        asked,
        families=[("all", (0, 1, 2, 3))],
        says=says,
    )
    assert len([batch for batch in seen.batches if batch.began >= 4000]) == 400


def test_only_models_that_leave_time_are_asked() -> None:
    """1, 2, 3 and 4 ms: within 2.5 ms two can answer; where none can, the quickest is asked."""
    for within, count in ((2.5, 2), (100, 4), (0.5, 1)):
        asked = [Asked(0, SURE, within)]
        seen = play(
            make_router("cocktail"), TRIO, lanes(4), asked, families=[("all", (0, 1, 2, 3))]
        )
        assert {batch.model for batch in seen.batches} == set(range(count))


def test_the_formula_wants_accuracies() -> None:
    bare = [replace(each, accuracy=float("nan")) for each in TRIO]
    with pytest.raises(BadInput, match="the accuracy of model 'a' is not known"):
        members(bare, "cocktail(start=formula)")
