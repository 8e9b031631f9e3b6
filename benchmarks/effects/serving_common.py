"""What effects of serving share: models by formula, requests, and runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import ServingRun, Setup, serve
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated

GPU = "gpu"


@cache
def affine(
    *models: tuple[str, float, float, int],
    beside: tuple[float, ...] = (),
    family: str = "",
    accuracy: tuple[float, ...] = (),
) -> Models:
    """Models (name, base and each in ms, largest) whose batch of n takes base + each n on a `gpu`,
    with a 99th percentile of 1.1 times that; `beside`, and `family` and `accuracy` of all of them,
    as in a models file."""
    lines = ['format = "ganger.models/1"', f'devices = [{{ name = "{GPU}" }}]']
    for at, (name, base, each, largest) in enumerate(models):
        lines += ["[[models]]", f'name = "{name}"', f'family = "{family}"']
        lines += [f"accuracy = {accuracy[at]}"] if accuracy else []
        lines += [
            "[[models.latency]]",
            f'device = "{GPU}"',
            f"base = {base / 1000}",
            f"each = {each / 1000}",
            f"largest = {largest}",
            "p99_over_mean = 1.1",
            f"beside = {list(beside)}",
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.toml"
        path.write_text("\n".join(lines) + "\n")
        return read_models(path)


def stream(
    rate: float,
    seconds: float,
    slo: float,
    *names: str,
    seed: int = 0,
    cv: float = 1.0,
    curve: Any = None,
    **mix: Any,
) -> Requests:
    """Requests for these models, alike, each with `slo` seconds."""
    what = Mix(models=len(names), names=names, slo=round(slo * SECOND), **mix)
    return generated(curve or constant(rate), seed=seed, duration=seconds, cv=cv, mix=what)


def run(
    requests: Requests, models: Models, recipe: str, fleet: str = f"{GPU}:1", **setup: Any
) -> ServingRun:
    """Serve them."""
    return serve(requests, models, read_fleet(fleet), recipe, Setup(**setup))


def in_time(found: ServingRun) -> float:
    """The part in time, in per cent."""
    return 100 * (found.metrics["attainment"] or 0.0)


def most(keeps: Callable[[float], bool], low: float, high: float, steps: int = 7) -> float:
    """The largest load between the two that it keeps, to a hundredth of their distance."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
