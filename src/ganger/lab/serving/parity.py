"""Requests that are served live and simulated, side by side: the same requests, models and recipe;
`ganger serve` on one core, the client on another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.loading.driving import load, target_of
from ganger.lab.serving.run import Setup, serve
from ganger.recipes.registry import make_router
from ganger.serving.outliving import command_of
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated

RECIPES: Final = (
    "serve.fixed-batch(size=8,timeout=5ms)", "clipper", "clockwork", "nexus", "model-switching",
)  # fmt: skip
LATE_SECONDS: Final = 0.005
"""A run is void in which the client itself lagged by more (p99)."""
COMPARED: Final = ("batch_mean", "latency_p50_seconds", "attainment", "goodput_per_second")
GOODPUT_OFF: Final = 0.01
_WARM_SECONDS: Final = 1.0
_START_SECONDS: Final = 60.0
Figures = Mapping[str, float | int | None]


@dataclass(frozen=True)
class Pair:
    """A recipe: the medians of its runs, live and simulated, and how many runs counted; the rest is
    void. `rate`: requests a second."""

    recipe: str
    rate: float
    live: dict[str, float]
    simulated: dict[str, float]
    counted: int
    void: int

    def off(self, name: str) -> float:
        """By how much the simulator is off: points of attainment, else a part of the live
        figure."""
        live, simulated = self.live[name], self.simulated[name]
        if name == "attainment":
            return abs(live - simulated)
        return abs(live - simulated) / live if live else float(simulated != live)

    @property
    def good(self) -> bool:
        """Whether mean batch is within 10 %, p50 within 15 %, attainment within 3 points."""
        bounds = {"batch_mean": 0.10, "latency_p50_seconds": 0.15, "attainment": 0.03}
        return bool(self.counted) and all(self.off(name) <= bound for name, bound in bounds.items())


def goodput_off(pairs: Sequence[Pair]) -> float:
    """By which part of the requests that came goodput is off, on average over recipes."""
    parts = [
        abs(pair.live["goodput_per_second"] - pair.simulated["goodput_per_second"]) / pair.rate
        for pair in pairs
        if pair.counted
    ]
    return sum(parts) / len(parts) if parts else float("nan")


@dataclass(frozen=True)
class Study:
    """What is played. `file`: a models file, measured on one core of this machine alone, so that
    its latencies are of a whole device; `load`: requests that come for each that batches of one
    could serve; `slo`: microseconds; `seconds`: of each run; `cores`: of the client and of the
    server."""

    file: Path
    load: float = 0.6
    slo: int = SECOND // 10
    seconds: float = 20.0
    seed: int = 0
    cores: tuple[int, int] = (0, 1)

    def run(self, recipes: Sequence[str], runs: int, tell: Callable[[str], None]) -> list[Pair]:
        """Every recipe, so many runs of each; one that is void is played again, up to twice as many
        times more. Raises BadInput."""
        models = read_models(str(self.file))
        pairs = []
        for recipe in recipes:
            names = self._names(models, recipe)
            rate = self.load / self._alone(models, names)
            live, simulated, void = list[Figures](), list[Figures](), 0
            while len(live) < runs and void <= 2 * runs:
                seed = self.seed + len(live)
                tell(f"{recipe}: run {len(live) + 1} of {runs}, {rate:.1f} requests a second")
                figures = self._live(recipe, self._requests(names, rate, seed))
                late = figures["sent_late_p99_seconds"] or 0.0
                if late > LATE_SECONDS:
                    void += 1
                    tell(f"{recipe}: void, the client lagged by {late * 1000:.1f} ms")
                    continue
                live.append(figures)
                simulated.append(self._simulated(models, recipe, names, rate, seed))
            both = [_medians(each) for each in (live, simulated)]
            pairs.append(Pair(recipe, rate, both[0], both[1], len(live), void))
        return pairs

    def _names(self, models: Models, recipe: str) -> tuple[str, ...]:
        """What requests ask for: the family under a recipe that switches, else all models."""
        families = {model.family for model in models.models.values() if model.family}
        if make_router(recipe).name != "model-switching":
            return tuple(models.models)
        if len(families) != 1:
            raise BadInput(
                f"it has {len(families)} families",
                where=str(self.file),
                mend="give its models one family, with accuracies, for model-switching",
            )
        return tuple(families)

    def _alone(self, models: Models, names: Sequence[str]) -> float:
        """Seconds of a request alone, on average over what is asked for."""
        device = next(iter(models.devices))
        alone = [
            profile.mean_seconds(np.array([1]))[0]
            for name, model in models.models.items()
            if (name in names or model.family in names)
            and (profile := model.on(device, 1.0)) is not None
        ]
        if not alone or len(alone) < len(models.models):
            raise BadInput(
                "not every model was measured on a whole device",
                where=str(self.file),
                mend="measure on one core: taskset -c 1 ganger profile ...",
            )
        return float(sum(alone) / len(alone))

    def _requests(
        self, names: tuple[str, ...], rate: float, seed: int, seconds: float = 0.0
    ) -> Requests:
        mix = Mix(models=len(names), names=names, slo=self.slo)
        duration = seconds or self.seconds
        return generated(constant(rate), seed=seed, duration=duration, mix=mix)

    def _simulated(
        self, models: Models, recipe: str, names: tuple[str, ...], rate: float, seed: int
    ) -> Figures:
        fleet = Fleet(((next(iter(models.devices)), 1),))
        setup = Setup(slo=self.slo, seed=seed)
        return serve(self._requests(names, rate, seed), models, fleet, recipe, setup).metrics

    def _live(self, recipe: str, requests: Requests) -> Figures:
        client, server = self.cores
        before = os.sched_getaffinity(0)
        with _server(self.file, recipe, server) as url:
            os.sched_setaffinity(0, {client})
            try:
                target = target_of(url, mine=False)
                names = tuple(requests.models.values)
                warm = self._requests(names, 50.0, self.seed, _WARM_SECONDS)
                load(warm, target, slo=self.slo)
                return load(requests, target, slo=self.slo).metrics
            finally:
                os.sched_setaffinity(0, before)


@contextmanager
def _server(file: Path, recipe: str, core: int) -> Iterator[str]:
    """`ganger serve` on one core: its URL. Raises BadInput where it does not serve."""
    words = ["serve", str(file), "--port", "0", "--recipe", recipe]
    process = subprocess.Popen(command_of(words), stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {core})
    try:
        assert process.stdout is not None
        place = re.search(r"http://\S+", process.stdout.readline())
        if place is None:
            raise BadInput("it does not serve", where=recipe, mend="see the error above")
        yield place[0]
        process.send_signal(signal.SIGTERM)
        process.wait(_START_SECONDS)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _medians(runs: Sequence[Figures]) -> dict[str, float]:
    """Of each figure that is compared."""
    return {
        name: float(median(each[name] or 0.0 for each in runs)) if runs else float("nan")
        for name in COMPARED
    }
