"""Estimators of scikit-learn, searched by Ganger's recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ganger.client.connection import Client
from ganger.core.errors import BadInput

pytest.importorskip("sklearn")
from scipy.stats import loguniform, randint
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from ganger.integrations.sklearn import GangerSearchCV

pytestmark = pytest.mark.long
X, Y = make_classification(120, 6, random_state=0)


class Known(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Scores `height` less 1 / `epochs`; remembers what it was trained on."""

    def __init__(self, height: float = 0.0, epochs: int = 1) -> None:
        self.height, self.epochs = height, epochs

    def fit(self, X: Any, y: Any) -> Known:
        self.classes_, self.samples_ = np.unique(y), len(X)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[0])

    def score(self, X: Any, y: Any) -> float:
        return float(self.height - 1 / self.epochs + len(X) * 0.0)


def expected(estimator: Any) -> dict[str, str]:
    """The one check that scikit-learn's own searches fail, too, where their estimator takes a y of
    two dimensions."""
    own = "as that of GridSearchCV: DataConversionWarning not caught"
    return {"check_supervised_y_2d": own} if isinstance(estimator.estimator, Ridge) else {}


@pytest.mark.filterwarnings("default")  # some checks make fits fail
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        GangerSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, n_iter=2, cv=2),
        GangerSearchCV(
            Ridge(), {"alpha": "log:1e-2..1e2"}, n_iter=2, cv=2, error_score="raise",
            resource="max_iter", max_resources=3, random_state=0,
        ),
    ],
    expected_failed_checks=expected,
)  # fmt: skip
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    """Once with every configuration fitted once, once with a recipe."""
    check(estimator)


def search(**more: Any) -> GangerSearchCV:
    space = {"height": [0.1 * step for step in range(9)]}
    words = {"n_iter": 9, "searcher": "grid", "resource": "epochs", "max_resources": 9, "cv": 2}
    return GangerSearchCV(Known(), **{"space": space, **words, **more})


def test_a_recipe_gives_more_to_the_best_and_the_best_of_those_is_chosen() -> None:
    """By hand, nine candidates and thirds of them: 9 with 1 epoch, 3 with 3, and 1 with 9."""
    found = search(recipe="tune.sha").fit(X, Y)
    rows = found.cv_results_
    by = [(int(n), int(t)) for n, t in zip(rows["n_resources"], rows["trial"], strict=True)]
    assert sorted(by) == [*((1, t) for t in range(9)), (3, 6), (3, 7), (3, 8), (9, 8)]
    assert found.best_params_ == {"height": pytest.approx(0.8), "epochs": 9}
    assert found.best_score_ == pytest.approx(0.8 - 1 / 9)
    assert found.best_estimator_.epochs == 9
    assert found.n_resources_ == [1, 3, 9]
    assert found.score(X, Y) == pytest.approx(found.best_score_)


def test_a_trial_with_few_epochs_is_not_the_best_however_well_it_does() -> None:
    """The scores of this one fall with the epochs."""
    overfits = search(scoring=lambda estimator, X, y: estimator.height - estimator.epochs)
    found = overfits.set_params(recipe="tune.sha").fit(X, Y)
    assert found.best_params_["epochs"] == 9


def test_samples_are_a_resource_and_tests_stay_whole() -> None:
    seen = []

    def scoring(estimator: Any, X: Any, y: Any) -> float:
        seen.append((estimator.samples_, len(X)))
        return float(estimator.height)

    words = {"resource": "n_samples", "max_resources": 120, "min_resources": 30, "factor": 2}
    found = search(**words, recipe="tune.sha", scoring=scoring).fit(X, Y)
    assert sorted(set(seen)) == [(15, 60), (30, 60), (60, 60)]
    assert found.best_params_ == {"height": pytest.approx(0.8)}


@pytest.mark.parametrize("recipe", ["tune.asha", "tune.median", "tune.hyperband", "hyperdrive"])
def test_what_is_tried_does_not_depend_on_processors_or_the_clock(recipe: str) -> None:
    space = {"height": loguniform(0.1, 1.0)}
    words = {"space": space, "searcher": "random", "recipe": recipe, "random_state": 3}
    one, other = (search(**words, n_jobs=n).fit(X, Y).cv_results_ for n in (1, 2))
    for name in ("trial", "n_resources", "mean_test_score"):
        assert list(one[name]) == list(other[name])
    assert max(one["n_resources"]) == 9


def test_spaces_are_lists_distributions_or_words() -> None:
    space = {
        "max_depth": randint(1, 4), "max_features": loguniform(0.2, 0.9),
        "criterion": ["gini", "entropy"], "min_samples_leaf": "1..3",
        "class_weight": [None, {0: 2}],
    }  # fmt: skip
    forest = RandomForestClassifier(3, random_state=0)
    found = GangerSearchCV(forest, space, n_iter=16, cv=2, random_state=1).fit(X, Y)
    tried = found.cv_results_["params"]
    assert {type(each["max_depth"]) for each in tried} == {int}
    assert {each["max_depth"] for each in tried} == {1, 2, 3}
    assert all(0.2 <= each["max_features"] <= 0.9 for each in tried)
    assert {str(each["class_weight"]) for each in tried} == {"None", "{0: 2}"}
    assert clone(found).fit(X, Y).best_params_ == found.best_params_


def test_of_several_scores_refit_names_the_one_that_counts() -> None:
    several = search(scoring=["accuracy", "f1"], refit="f1", recipe="tune.asha").fit(X, Y)
    assert {"mean_test_accuracy", "mean_test_f1", "rank_test_f1"} <= set(several.cv_results_)
    assert several.best_score_ == several.cv_results_["mean_test_f1"][several.best_index_]
    with pytest.raises(BadInput, match="which score are trials judged by"):
        search(scoring=["accuracy", "f1"], refit=False).fit(X, Y)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"resource": "trees"}, "has no parameter 'trees'"),
        ({"resource": "epochs", "max_resources": None}, "up to how much epochs"),
        ({"space": {"epochs": [1]}}, "it is in the space"),
        ({"space": {}}, "it names no parameter"),
        ({"space": {"height": 3}}, "int is neither a list of values"),
        ({"recipe": "tune.pbt"}, "cannot go on with other parameters"),
        ({"recipe": "fifo"}, "does not decide over the trials"),
        ({"searcher": "luck"}, "there is no searcher 'luck'"),
        ({"n_iter": 0}, "trials"),
        ({"factor": 1}, "is below 2"),
        ({"min_resources": 10}, "from 10 to 9"),
    ],
)
def test_what_cannot_be_is_said(words: dict[str, Any], said: str) -> None:
    with pytest.raises((BadInput, ValueError), match=said):
        search(**words).fit(X, Y)


def test_each_fit_is_a_job_on_the_cluster(daemon: Client) -> None:
    """Of three candidates on two folds; scores are those that they have here."""
    words = {"n_iter": 3, "cv": StratifiedKFold(2), "random_state": 0}
    here = GangerSearchCV(LogisticRegression(), {"C": [0.01, 1.0, 9.0]}, **words)
    there = clone(here).set_params(cluster={"name": "fold"})
    before = daemon.call("GET", "/v1/jobs", query={"state": "all"})["total"]
    scores = there.fit(X, Y).cv_results_["mean_test_score"]
    assert list(scores) == list(here.fit(X, Y).cv_results_["mean_test_score"])
    jobs = daemon.call("GET", "/v1/jobs", query={"state": "all"})
    assert jobs["total"] == before + 6
    assert {job["name"] for job in jobs["jobs"][:6]} == {"fold"}
    assert there.predict(X).shape == Y.shape
