"""Objectives of studies, as users write them. Jobs import them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import optuna


def parabola(trial: Any) -> float:
    """Best at x = 1 and kind a. Reports nine times."""
    x = trial.suggest_float("x", -3, 3)
    floor = (x - 1) ** 2 + (trial.suggest_categorical("kind", ["a", "b"]) == "b")
    for step in range(1, 10):
        trial.report(floor + 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr("layers", trial.suggest_int("layers", 1, 4))
    return float(floor)


def outdone(trial: Any) -> float:
    """The earlier a trial begins the better it is. After its first report each but the first three
    waits until it is ended: those before it have reported what is better."""
    trial.suggest_float("x", -3, 3)
    for step in range(1, 10):
        trial.report(trial.number + 1 / step, step)
        if trial.number > 2:
            time.sleep(60)
            raise AssertionError("nobody ended it")
    trial.set_user_attr("layers", trial.suggest_int("layers", 1, 4))
    return float(trial.number)


def patient(trial: Any) -> float:
    """The later a trial begins the better it is, and the later it reports first. It reports three
    times, and rests after each, so that it can be set aside there."""
    time.sleep(trial.number)
    for step in range(1, 4):
        trial.report(1 / step - trial.number, step)
        for _ in range(50):
            if trial.should_prune():
                raise optuna.TrialPruned
            time.sleep(0.02)
    return float(-trial.number)


def fails_at_two(trial: Any) -> float:
    """Its third trial raises; where it is tried again, that goes well."""
    if trial.number == 2 and not (mark := Path(os.environ["MARK"])).exists():
        mark.touch()
        raise ZeroDivisionError("as it does")
    return float(trial.number)


def killed_at_one(trial: Any) -> float:
    """The process of its second trial is killed."""
    if trial.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(trial.suggest_int("n", 5, 5) + trial.number)


def two_values(trial: Any) -> tuple[float, float]:
    """Two objectives that contradict each other."""
    x = trial.suggest_float("x", 0, 1)
    return x, 1 - x
