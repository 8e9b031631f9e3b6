"""A study of Optuna on Ganger's cluster (extra `optuna`): `optimize(study, objective, n_trials=60)`
in place of `study.optimize(objective, n_trials=60)`.

Each trial is a job, a child of a search. The study stays in this process, with its sampler, its
storage and its callbacks: trials ask it over a line (`line`) for every parameter.
"""

from __future__ import annotations

import logging
import pickle
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, Trial, TrialState

from ganger.client.answering.families import ChildAnswer
from ganger.client.answers import JobDetail
from ganger.client.call import Outcome, keep
from ganger.client.connection import Client
from ganger.client.states import OVER
from ganger.core.errors import BadInput
from ganger.integrations.cluster import (
    LOOK_SECONDS,
    cluster,
    elsewhere,
    looked_at,
    most_at_once,
    request_of,
    stop,
    submit,
)
from ganger.integrations.line import Listener
from ganger.lab.tuning.own_recipe import TRIALS_MAX
from ganger.workloads.experiment.document import Resources

log = logging.getLogger("ganger.integrations")
Callback = Callable[[optuna.Study, FrozenTrial], None]
_ASKED: Final = (
    "suggest_float", "suggest_int", "suggest_categorical", "report", "should_prune",
    "set_user_attr", "set_constraint",
)  # fmt: skip
_KNOWN: Final = ("params", "user_attrs", "system_attrs", "constraints")
_TO_THE_END: Final = "tune.random"


def optimize(
    study: optuna.Study,
    func: Callable[[Any], Any],
    n_trials: int | None = None,
    timeout: float | None = None,
    n_jobs: int = 1,
    catch: Iterable[type[Exception]] | type[Exception] = (),
    callbacks: Iterable[Callback] | None = None,
    *,
    recipe: str = "",
    gpus: int = 1,
    retries: int = 0,
    name: str = "",
    tenant: str = "",
) -> None:
    """Run `n_trials` trials of `func`, `n_jobs` at once (-1: as many as fit) on `gpus` GPUs each,
    on the daemon that runs, or else on one that lives as long as this call.

    With a `recipe`, such as `tune.asha(epochs=27)`, that says which trials go on, on the values and
    steps of `trial.report`; without one the study's pruner does. `timeout` (seconds) ends trials
    that run then. An exception of `func` ends the study and is raised here unless it is of `catch`;
    failures of a trial are forgiven `retries` times before. A trial whose process is lost counts as
    failed, and the study goes on. Raises BadInput, and GangerError where no daemon starts.
    """
    catch = (catch,) if isinstance(catch, type) else tuple(catch)
    if n_trials is not None and not 0 < n_trials <= TRIALS_MAX:
        raise BadInput(f"{n_trials} is not in 1 .. {TRIALS_MAX:,}", where="n_trials")
    if recipe and len(study.directions) > 1:
        raise BadInput("a recipe judges by one value, and the study has several", where="recipe")
    slots = (min(n_jobs, n_trials or n_jobs) if n_jobs > 0 else 4) * gpus
    with cluster(slots) as client:
        at_once = most_at_once(client, min(n_jobs, n_trials or n_jobs), Resources(gpus))
        folder = keep(client.places.root, func, (), {})
        trials = StudyTrials(study, folder, own=bool(recipe))
        line = Listener(trials.answer, elsewhere=elsewhere(client))
        try:
            (folder / "line").write_bytes(pickle.dumps(line.address))
            document: dict[str, Any] = {
                "metric": trials.metric,
                "mode": "max" if study.directions[0].name == "MAXIMIZE" else "min",
                "name": name or study.study_name,
                "points": [{"trial": number} for number in range(n_trials or TRIALS_MAX)],
                "parallelism": at_once,
                "trials": n_trials or TRIALS_MAX,
                "resources": {"gpus": gpus},
                "tenant": tenant,
                "command": [sys.executable, "-m", "ganger.integrations.objective", str(folder)],
            }
            if timeout is not None:
                document["deadline"] = f"{timeout}s"
            own = {"printed": False, "warm": ["optuna"], "retries": retries}
            fields = request_of(document, recipe or _TO_THE_END, "optimize") | own
            job = submit(client, fields)
            _follow(client, job, trials, catch, list(callbacks or ()))
        finally:
            line.close()
            shutil.rmtree(folder, ignore_errors=True)


class StudyTrials:
    """The trials of a study that have begun, by the number that their jobs know them by. Every
    function may be called from any thread."""

    def __init__(self, study: optuna.Study, folder: Path, *, own: bool) -> None:
        self.study, self.folder = study, folder
        self.metric = (getattr(study, "metric_names", None) or ["value"])[0]
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of trials in the study, as they end."""
        self._own = own
        """Whether a recipe prunes, and not the study's pruner."""
        self._lock = threading.RLock()
        self._trials: dict[int, Trial] = {}
        self._over: set[int] = set()
        self._steps: set[tuple[int, int]] = set()
        """Trials and steps of which the study was told."""

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        """The answer to what a trial asks."""
        try:
            with self._lock:
                return self._answer(int(said["trial"]), str(said["call"]), said)
        except Exception as error:  # the trial raises it
            return {"error": type(error).__name__, "why": str(error)}

    def _answer(self, asked: int, call: str, said: dict[str, Any]) -> dict[str, Any]:
        if call == "begin":
            if asked not in self._trials:
                self._trials[asked] = self.study.ask()
            number = self._trials[asked].number
            return {"number": number, "metric": self.metric, "over": asked in self._over}
        trial = self._trials[asked]
        if call == "tell":
            values = said["values"]
            self.settle(asked, values=values if len(values) > 1 else values[0])
            return {"value": None}
        if call == "pruned":
            self.settle(asked, TrialState.PRUNED)
            return {"value": None}
        if call == "should_prune" and self._own:
            return {"value": False}
        if call == "report":  # one that was set aside begins again, and says the same
            step = (asked, int(said["args"][1]))
            if step in self._steps:
                return {"value": None}
            self._steps.add(step)
        if call in _ASKED:
            return {"value": getattr(trial, call)(*said["args"], **said["kwargs"])}
        if call == "distributions":
            by_name = trial.distributions
            return {"value": {name: distribution_to_json(each) for name, each in by_name.items()}}
        if call == "datetime_start":
            at = trial.datetime_start
            return {"value": at.isoformat() if at else None}
        if call in _KNOWN:
            return {"value": getattr(trial, call)}
        raise ValueError(f"trials do not answer {call!r}")

    def settle(self, asked: int, state: TrialState | None = None, values: Any = None) -> None:
        """Tell the study how a trial ended, unless it knows."""
        with self._lock:
            if asked in self._over or asked not in self._trials:
                return
            self._over.add(asked)
            trial = self._trials[asked]
            self.study.tell(trial, values, state)
            self.ended.put(trial.number)

    def lost(self, child: ChildAnswer) -> Exception | None:
        """The job of a trial is over: one that says nothing was ended by its recipe, or failed;
        what it raised."""
        asked = int(child.params["trial"])
        with self._lock:
            if asked in self._over or asked not in self._trials:
                return None
            self.settle(asked, TrialState.PRUNED if child.state in _ENDED else TrialState.FAIL)
        if child.state in _ENDED:
            return None
        try:
            outcome: Outcome = pickle.loads((self.folder / f"error-{asked}").read_bytes())
        except FileNotFoundError:
            log.warning("trial %d is lost: job %d is %s", asked, child.job, child.state.lower())
            return None
        except Exception as error:  # what cannot be unpickled here
            return RuntimeError(f"trial {asked} raised what cannot be read here: {error}")
        return outcome.error if isinstance(outcome.error, Exception) else None

    def give_up(self) -> None:
        """No trial runs any more."""
        with self._lock:
            for asked in list(self._trials):
                self.settle(asked, TrialState.FAIL)

    def call_back(self, callbacks: list[Callback]) -> bool:
        """Let callbacks hear of trials that ended; whether one of them stopped the study."""
        local = self.study._thread_local
        while not self.ended.empty():
            number = self.ended.get()
            local.in_optimize_loop, self.study._stop_flag = True, False
            try:
                with self._lock:
                    for callback in callbacks:
                        callback(self.study, self.study.trials[number])
            finally:
                local.in_optimize_loop = False
            if self.study._stop_flag:
                return True
        return False


_ENDED: Final = ("COMPLETED", "CANCELLED", "SET_ASIDE")
"""States of trials that a recipe, a limit or a person ended."""


def _follow(
    client: Client,
    job: int,
    trials: StudyTrials,
    catch: tuple[type[Exception], ...],
    callbacks: list[Callback],
) -> None:
    """Until the search is over. Raises what an objective raised."""
    over = stopped = False
    try:
        while not over:
            detail = looked_at(client, job)
            over = detail.state in OVER and not _running(detail)
            for error in _errors(detail, trials):
                if not isinstance(error, catch):
                    raise error
                log.warning("a trial failed: %s: %s", type(error).__name__, error)
            if trials.call_back(callbacks) and not stopped:
                stopped = True
                stop(client, job)
            if not over:
                _PAUSE.wait(max(LOOK_SECONDS, len(trials.study.trials) / 1000))
    finally:
        if not over:
            stop(client, job)
        trials.give_up()
        trials.call_back(callbacks)


_PAUSE: Final = threading.Event()


def _running(detail: JobDetail) -> bool:
    """Whether a trial is still about to end."""
    children = detail.family.children if detail.family is not None else ()
    return any(child.state not in OVER for child in children)


def _errors(detail: JobDetail, trials: StudyTrials) -> Iterable[Exception]:
    """What the trials raised whose jobs are over since."""
    for child in detail.family.children if detail.family is not None else ():
        if child.state in OVER and (error := trials.lost(child)) is not None:
            yield error
