"""A trial of an Optuna study, as a job: `python -m ganger.integrations.objective FOLDER`.

The study stays in the program that asked. This process calls the objective with a trial that asks
that program over a line for every parameter, and tells Ganger what it reports.
"""

from __future__ import annotations

import builtins
import datetime
import math
import pickle
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution

from ganger import sdk
from ganger.client.call import Outcome, kept, leave
from ganger.integrations.line import Address, Caller, HungUp


class RemoteTrial(optuna.trial.BaseTrial):
    """A trial whose study is in another process: it suggests what that study's sampler does."""

    def __init__(self, line: Caller, number: int, metric: str, asked: int) -> None:
        self._line, self._number, self._metric, self._asked = line, number, metric, asked
        self.set_aside = False
        """Whether Ganger asked it to end, and not the study's pruner."""

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What the study's own trial answers. Raises what that raises, and HungUp."""
        said = {"trial": self._asked, "call": method, "args": args, "kwargs": kwargs}
        answer = self._line.ask(said)
        if "error" in answer:
            kind = getattr(builtins, answer["error"], RuntimeError)
            raise kind(answer["why"])
        return answer["value"]

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """As Optuna's."""
        return float(self._call("suggest_float", name, low, high, step=step, log=log))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """As Optuna's."""
        return int(self._call("suggest_int", name, low, high, step=step, log=log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """As Optuna's. Choices are numbers, texts, booleans or None."""
        for choice in choices:
            if not isinstance(choice, str | int | float | bool | None):
                raise TypeError(f"{name}: {choice!r} does not travel; use texts or numbers")
        return self._call("suggest_categorical", name, list(choices))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """As Optuna's, which calls it old."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """As Optuna's, which calls it old."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """As Optuna's, which calls it old."""
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        """Tell the study and Ganger."""
        self._call("report", float(value), int(step))
        metrics: dict[str, Any] = {self._metric: float(value)}
        sdk.report(step, **metrics)

    def should_prune(self) -> bool:
        """Whether the trial should end: its recipe says so, or the study's pruner, or another job
        needs the GPUs."""
        if sdk.should_checkpoint():
            self.set_aside = True
            return True
        return bool(self._call("should_prune"))

    def set_user_attr(self, key: str, value: Any) -> None:
        """As Optuna's."""
        self._call("set_user_attr", key, value)

    def set_constraint(self, key: str, value: float) -> None:
        """As Optuna's, from its version 5 on."""
        self._call("set_constraint", key, float(value))

    @property
    def params(self) -> dict[str, Any]:
        """What was suggested."""
        return dict(self._call("params"))

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Of what was suggested."""
        written: Mapping[str, str] = self._call("distributions")
        return {name: json_to_distribution(each) for name, each in written.items()}

    @property
    def user_attrs(self) -> dict[str, Any]:
        """As Optuna's."""
        return dict(self._call("user_attrs"))

    @property
    def system_attrs(self) -> dict[str, Any]:
        """As Optuna's, which calls it old."""
        return dict(self._call("system_attrs"))

    @property
    def constraints(self) -> dict[str, float]:
        """As Optuna's, from its version 5 on."""
        return dict(self._call("constraints"))

    @property
    def datetime_start(self) -> datetime.datetime | None:
        """When the study began it."""
        begun = self._call("datetime_start")
        return datetime.datetime.fromisoformat(begun) if begun else None

    @property
    def number(self) -> int:
        """Its number in the study."""
        return self._number


def _run(folder: Path) -> int:
    """The exit code of the trial."""
    address: Address = pickle.loads((folder / "line").read_bytes())
    asked = int(sdk.configuration["trial"])
    with closing(Caller(address)) as line:
        return _tried(folder, line, asked)


def _tried(folder: Path, line: Caller, asked: int) -> int:
    begun = line.ask({"trial": asked, "call": "begin"})
    if begun["over"]:
        return 0
    trial = RemoteTrial(line, begun["number"], begun["metric"], asked)
    try:
        objective, _, _ = kept(folder)
        values = objective(trial)
    except optuna.TrialPruned:
        if trial.set_aside:  # set aside, and perhaps to go on: the program finds out which
            return sdk.PREEMPTED
        line.ask({"trial": asked, "call": "pruned"})
        return 0
    except HungUp:
        raise
    except Exception as error:
        leave(folder / f"error-{asked}", Outcome(b"", error))
        raise
    listed = list(values) if isinstance(values, Sequence) else [values]
    said = line.ask({"trial": asked, "call": "tell", "values": [_number(each) for each in listed]})
    if "error" in said:
        raise ValueError(said["why"])
    first = _number(listed[0])
    if first is not None and math.isfinite(first):
        sdk.report(sdk.reported or 1.0, final=True, **{trial._metric: first})
    return 0


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
