"""Systems that ask several models for one answer, on answers that classifiers of digits gave."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor

from effects.common import NO, Effect, effect, mean, shape, verdict
from effects.serving_common import GPU, run, stream
from ganger.lab.serving.trouble import Trouble
from ganger.workloads.models.profiles import Latency, Model, Models, Parity
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import shipped

DIGITS = {"tree": 2, "lda": 4, "logistic": 6, "mlp-16": 8, "forest": 14, "knn": 20, "rbf-svm": 24}
"""Milliseconds of a batch of one; each further input adds a fifth of that."""
SET_UP = (
    "seven classifiers of digits with the answers that were recorded of them; a batch of n takes"
    " 2, 4, 6, 8, 14, 20, 24 ms x (0.8 + 0.2 n), the better ones longer"
)


class Digits(NamedTuple):
    """The classifiers as one family, with latencies by formula; how many inputs recipes may not
    know, half of all, which come first; and which classifier errs least on the others."""

    models: Models
    unseen: int
    best: str


@cache
def digits(seed: int) -> Digits:
    """The inputs are in another order with each seed."""
    found = read_models(shipped("measured")).models
    models, wrong = {}, dict[str, int]()
    for short, milliseconds in DIGITS.items():
        model = found[f"digits-{short}"]
        assert model.predicted is not None
        assert model.labels is not None
        assert model.scores is not None
        order = np.random.default_rng(seed).permutation(len(model.labels))
        half, sizes = len(order) // 2, np.arange(1, 33)
        seconds = np.asarray(milliseconds / 1000 * (0.8 + 0.2 * sizes), np.float64)
        models[model.name] = replace(
            model,
            latency=(Latency(GPU, 1.0, sizes, seconds, 1.1 * seconds),),
            predicted=model.predicted[order],
            labels=model.labels[order],
            scores=model.scores[order],
            calibration=np.arange(len(order)) >= half,
        )
        wrong[model.name] = int((model.predicted != model.labels)[order][half:].sum())
    return Digits(Models(models, {GPU: 0}), half, min(wrong, key=lambda name: wrong[name]))


@effect
def tolerance_tiers() -> Effect:
    """Tiers against the best version for all."""

    def measure(seed: int) -> dict[str, float]:
        models, unseen, best = digits(seed)

        def asked(recipe: str, name: str) -> tuple[float, float, float]:
            requests = stream(12, 250, 10, name, seed=seed, inputs=unseen)
            found = run(requests, models, recipe).metrics
            return (
                100 * (1 - (found["effective_accuracy"] or 0.0)),
                1000 * (found["latency_mean_seconds"] or 0.0),
                100 * (found["utilisation"] or 0.0),
            )

        errors, latency, busy = asked("serve.triton", best)
        rows = {}
        for tier in (0, 0.01, 0.03, 0.1):
            more, took, _ = asked(f"tolerance-tiers(tolerance={tier})", "digits")
            _, _, used = asked(f"tolerance-tiers(tolerance={tier},aim=cost)", "digits")
            rows[f"points of errors more, {tier:g}"] = more - errors
            rows[f"latency, best version / {tier:g}"] = latency / took
            rows[f"device time, best version / {tier:g} for cost"] = busy / used
        return rows

    ours = mean(measure)
    tiers = ("0", "0.01", "0.03", "0.1")
    quick = [ours[f"latency, best version / {tier}"] for tier in tiers]
    return Effect(
        "tolerance-tiers",
        SET_UP + "; one device, Poisson, 12 requests a second; rules of one half of the inputs, the"
        " other half is asked; the best version is the one that errs least on the first half",
        "no tier errs more than it tolerates, and the more it tolerates the quicker or cheaper it"
        " is (in words)",
        ours,
        shape(
            all(ours[f"points of errors more, {tier}"] <= 100 * float(tier) for tier in tiers)
            and quick == sorted(quick)
            and quick[-1] > 1.5
        ),
        costs="tiers know latencies and half of the labelled inputs, the best version nothing",
    )


@effect
def cocktail() -> Effect:
    """An ensemble that shrinks against all models."""

    def measure(seed: int) -> dict[str, float]:
        models, *_ = digits(seed)
        rows = {}
        for name, recipe in (
            ("cocktail", f"cocktail(accuracy={TARGET})"),
            ("all", "clipper(selection=exp4)"),
        ):
            requests = stream(12, 600, 10, "digits", seed=seed, inputs=899)
            found = run(requests, models, recipe, f"{GPU}:4").metrics
            rows[f"right %, {name}"] = 100 * (found["effective_accuracy"] or 0.0)
            rows[f"ms, {name}"] = 1000 * (found["latency_mean_seconds"] or 0.0)
            rows[f"device time %, {name}"] = 100 * (found["utilisation"] or 0.0)
        return rows

    ours = mean(measure)
    return Effect(
        "cocktail",
        SET_UP + f"; four devices, Poisson, 12 requests a second for 10 minutes, target {TARGET:g}",
        "1.45x cheaper and twice as fast as an ensemble of all models, the accuracy kept",
        ours,
        verdict(
            (ours["device time %, all"] / ours["device time %, cocktail"], 1.45),
            (ours["ms, all"] / ours["ms, cocktail"], 2),
        )
        if ours["right %, cocktail"] >= 100 * TARGET
        else NO,
        "all models are asked for the first intervals; the cost is device time, and spot instances"
        " are not part of it",
        "both hear at once what was right; cocktail knows latencies",
    )


TARGET = 0.97
"""How often cocktail is to be right."""


@cache
def coded() -> tuple[Models, float, float]:
    """A net for digits and its parity model for pairs, trained on the sums of 20,000 of them, with
    what one half of the digits gives; how often the net is right, and how often what is decoded."""
    inputs, labels = load_digits(return_X_y=True)
    train, test, right, true = train_test_split(
        inputs / 16, labels, test_size=0.5, random_state=0, stratify=labels
    )
    net = MLPClassifier((64,), max_iter=500, random_state=0).fit(train, right)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(train), (20_000, 2))
    given = net.predict_proba(train)[pairs].sum(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    parity = MLPRegressor(hidden_layer_sizes=(256,), max_iter=60, random_state=0).fit(
        train[pairs].sum(1), given
    )
    layers = tuple(
        np.vstack((weights, added))
        for weights, added in zip(parity.coefs_, parity.intercepts_, strict=True)
    )
    scores = net.predict_proba(test)
    asked = rng.integers(0, len(test), (20_000, 2))
    decoded = parity.predict(test[asked].sum(1)) - scores[asked[:, 1]]
    sizes = np.arange(1, 5)
    seconds = np.asarray(0.008 + 0.002 * sizes, np.float64)
    latency = (Latency(GPU, 1.0, sizes, seconds, 1.1 * seconds),)
    models = {
        "net": Model(
            "net",
            latency=latency,
            predicted=scores.argmax(1),
            labels=true,
            scores=scores,
        ),
        "parity": Model("parity", latency=latency, parity=Parity("net", 2, layers, test)),
    }
    return (
        Models(models, {GPU: 0}),
        float((scores.argmax(1) == true).mean()),
        float((decoded.argmax(1) == true[asked[:, 0]]).mean()),
    )


@effect
def parm() -> Effect:
    """Parity queries against as many replicas that all serve."""
    models, alone, degraded = coded()

    def measure(seed: int) -> dict[str, float]:
        rows = {}
        with tempfile.TemporaryDirectory() as folder:
            slow = Path(folder) / "slow.csv"
            slow.write_text("device,from,to,times\n0,0s,10h,10\n")
            for name, recipe in (("parm", "parm"), ("equal resources", "serve.no-batch")):
                requests = stream(400, 120, 10, "net", seed=seed, inputs=899)
                trouble = Trouble(stragglers=str(slow))
                found = run(requests, models, recipe, f"{GPU}:12", trouble=trouble).metrics
                median, tail = (
                    1000 * (found[f"latency_{part}_seconds"] or 0.0) for part in ("p50", "p999")
                )
                rows[f"p50 ms, {name}"] = median
                rows[f"p99.9 - p50 ms, {name}"] = tail - median
                if name == "parm":
                    rows["right %, parm"] = 100 * (found["effective_accuracy"] or 0.0)
        return rows

    ours = mean(measure) | {"right %, net": 100 * alone, "right %, decoded": 100 * degraded}
    gaps = ours["p99.9 - p50 ms, equal resources"] / ours["p99.9 - p50 ms, parm"]
    kept = ours["p50 ms, parm"] <= 1.02 * ours["p50 ms, equal resources"]
    return Effect(
        "parm",
        "a net for digits and its parity model for pairs, both trained; 10 ms, twelve devices, the"
        " first ten times as slow, Poisson, 400 requests a second; decoded from real scores",
        "the gap between p99.9 and the median up to 3.5x smaller than with as many replicas that"
        " all serve, the median no higher (from memory)",
        ours,
        verdict((gaps, 3.5)) if kept else NO,
        "four of the twelve devices run the parity model; what is decoded is right less often than"
        " what the net gives (`right %, decoded`)",
        "neither knows latencies or which device is slow",
    )
