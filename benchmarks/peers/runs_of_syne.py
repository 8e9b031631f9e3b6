"""Simulated searches of Syne Tune, in its own environment: asked on stdin, answered on stdout.

The table of curves is a blackbox of the user's, whose one parameter is the number of the
configuration, so that the random searcher proposes rows of it and none twice. Releases from 0.15 on
have neither promotion nor synchronous Hyperband; those before call their schedulers legacy.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pandas as pd
import syne_tune
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend.simulator_backend.simulator_backend import SimulatorConfig
from syne_tune.backend.simulator_backend.simulator_callback import SimulatorCallback
from syne_tune.blackbox_repository import UserBlackboxBackend
from syne_tune.blackbox_repository.blackbox_tabular import BlackboxTabular
from syne_tune.config_space import randint

METRIC, EPOCH, SECONDS = "metric", "epoch", "seconds"


def scheduler(name: str, space: dict[str, Any], longest: int, seed: int, eta: int) -> Any:
    """Their scheduler of that name."""
    try:
        from syne_tune.optimizer import legacy_baselines as legacy
    except ImportError:
        from syne_tune.optimizer.baselines import ASHA

        return ASHA(
            space,
            metric=METRIC,
            do_minimize=False,
            time_attr=EPOCH,
            max_t=longest,
            grace_period=1,
            reduction_factor=eta,
            random_seed=seed,
        )
    common: dict[str, Any] = {
        "metric": METRIC,
        "mode": "max",
        "resource_attr": EPOCH,
        "random_seed": seed,
    }
    if name == "random":
        del common["resource_attr"]
        return legacy.RandomSearch(space, **common)
    if name.startswith("asha"):
        return legacy.ASHA(
            space,
            type="promotion" if name == "asha promote" else "stopping",
            max_t=longest,
            grace_period=1,
            reduction_factor=eta,
            **common,
        )
    return legacy.SyncHyperband(
        space, max_resource_level=longest, grace_period=1, reduction_factor=eta, **common
    )


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """One search: its results, and the CPU seconds that they took."""
    values = np.array(asked["values"])[:, None, : asked["longest"], :]
    space = {"config": randint(0, len(values) - 1)}
    blackbox = BlackboxTabular(
        hyperparameters=pd.DataFrame({"config": range(len(values))}),
        configuration_space=space,
        fidelity_space={EPOCH: randint(1, values.shape[2])},
        objectives_evaluations=values,
        objectives_names=[METRIC, SECONDS],
    )
    exact = SimulatorConfig(0.0, 0.0, 0.0, 0.001, 0.0)  # a trial that starts at once is unknown
    backend = UserBlackboxBackend(
        blackbox=blackbox,
        elapsed_time_attr=SECONDS,
        simulator_config=exact,
        **({"tuner_sleep_time": asked["sleep"]} if asked["sleep"] else {}),
    )
    kept = SimulatorCallback()
    tuner = Tuner(
        trial_backend=backend,
        scheduler=scheduler(asked["name"], space, asked["longest"], asked["seed"], asked["eta"]),
        stop_criterion=StoppingCriterion(
            max_wallclock_time=asked["until"] or None, max_num_trials_started=asked["trials"]
        ),
        n_workers=asked["workers"],
        sleep_time=0,
        callbacks=[kept],
        print_update_interval=1e9,
        save_tuner=False,
        wait_trial_completion_when_stopping=not asked["until"],
    )
    began = time.process_time()
    tuner.run()
    cpu = time.process_time() - began
    rows = sorted((float(each["st_tuner_time"]), float(each[METRIC])) for each in kept.results)
    return {"cpu": cpu, "reports": len(rows), "rows": rows}


def main() -> None:
    """Answer."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SYNETUNE_FOLDER"] = folder
        document = json.load(sys.stdin)
        with contextlib.redirect_stdout(sys.stderr):
            runs = [run({"values": document["values"], **each}) for each in document["runs"]]
    json.dump({"version": syne_tune.__version__, "runs": runs}, sys.stdout)


main()
