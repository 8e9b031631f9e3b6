"""How fast a model runs on what: small tables, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.profiles import Convergence, Goodput, Measured, Profile, Sensitivity, Steps
from ganger.core.spec import Locality

TIERS = list(Locality)
STEPS = Steps(0.2, 0.4, (50.0, 12.0, 10.0, 5.0))
PROFILES = {
    "linear": Profile({"B": 0.5}, (1.0, 1.1, 1.5, 2.0)),
    "level": Profile(scaling=(1.0, 1.8, 2.4)),
    "ring": Profile(steps=STEPS, locality=(1.0, 1.0, 1.0, 9.0)),
    "servers": Profile({"B": 2.0}, steps=Steps(0.2, 0.4, (50.0, 12.0, 10.0, 5.0), 2, split=True)),
    "measured": Profile(
        locality=(1.0, 1.0, 1.25, 2.0), measured=Measured({"A": {1: 4.0, 2: 7.0, 4: 12.0}}, "A", {})
    ),
}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("gpu_type", ["A", "B"])
def test_rates_of_many_are_the_rates_of_each(name: str, asked: int, gpu_type: str) -> None:
    profile, sizes = PROFILES[name], [1, 2, 4]
    gpus = np.array([[size] * 4 for size in sizes])
    tiers = np.array([[int(tier) for tier in TIERS]] * 3)
    many = profile.rates(gpu_type, 3.0, gpus, asked, tiers)
    each = [[profile.rate(gpu_type, 3.0, size, asked, tier) for tier in TIERS] for size in sizes]
    assert many.tolist() == pytest.approx(np.array(each))


def test_a_rate_is_the_types_speed_times_the_speedup_over_the_slowdown() -> None:
    assert PROFILES["linear"].rate("B", 3.0, 4, 2, Locality.RACK) == 0.5 * 2 / 1.5
    assert PROFILES["linear"].rate("A", 3.0, 4, 2, Locality.ANY) == 3.0 * 2 / 2.0
    assert PROFILES["level"].rate("A", 1.0, 3, 1, Locality.NODE) == pytest.approx(2.4)
    assert PROFILES["level"].speedup(9, 2) == pytest.approx(2.4 / 1.8), "level past its end"
    assert PROFILES["level"].speedup(0, 2) == 0.0
    assert PROFILES["measured"].rate("A", 1.0, 4, 2, Locality.RACK) == pytest.approx(12 / 7 / 1.25)
    assert PROFILES["linear"].speedup(5, 0) == 1.0, "who asks for no GPU has no other speed"


def test_spreading_slows_a_job_by_the_parts_of_its_step() -> None:
    near = 0.2 + 2 * 3 / 4 * 0.4 / 50
    far = 0.2 + 2 * 3 / 4 * 0.4 / 5
    assert PROFILES["ring"].slowdown(Locality.ANY, 4) == pytest.approx(far / near)
    assert PROFILES["ring"].slowdown(Locality.ANY, 0) == 9.0, "no GPUs, no steps: the table's word"
    assert PROFILES["linear"].slowdown(Locality.RACK, 4) == 1.5


def test_a_model_is_known_to_fail_only_where_it_was_measured_to() -> None:
    fails = Profile(measured=Measured({"A": {1: 0.0, 2: 3.0}}, "A", {}))
    assert not fails.runs_on("A", 1)
    assert fails.runs_on("A", 2)
    assert fails.runs_on("B", 1), "nobody tried"
    assert Profile().runs_on("A", 1)


def test_demand_is_the_fewest_cpus_and_then_the_least_memory_for_nearly_all_speed() -> None:
    table = Sensitivity(
        (1000, 2000, 4000), (0, 100, 200), ((0.1, 0.2, 0.3), (0.5, 0.991, 1.0), (0.6, 1.0, 1.0))
    )
    assert table.demand() == (2000, 100)
    assert table.demand(1.0) == (2000, 200)
    assert table.demand(0.5) == (2000, 0)
    assert table.demand(0.3) == (1000, 200)


def test_the_epochs_of_a_job_end_at_its_target_or_when_nothing_changes() -> None:
    falling = Convergence((1.0, 4.0), (4.0, 1.0), target=2.0)
    assert falling.length() == 3, "4, 3, 2"
    rising = Convergence((1.0, 4.0), (0.2, 0.8), "accuracy", target=0.6)
    assert rising.length() == 3
    assert rising.falling(0.75) == 0.25
    flat = Convergence((1.0, 3.0, 9.0), (4.0, 2.0, 2.0), change=0.05, window=2)
    assert flat.length() == 3, "from the third epoch on, two more change nothing"
    assert Convergence((1.0, 4.0), (4.0, 1.0), target=0.5).length() == 4, "never: the last one"


def test_a_goodput_job_takes_its_examples_in_batches_at_its_step_time() -> None:
    from ganger.core.profiles import StepModel, StepTimes

    fitted = Goodput(100, 400, (10, 100), 1e4, model=StepModel(0.05, 0.002))
    assert fitted.alone() == pytest.approx(0.25)
    assert fitted.seconds() == pytest.approx(25.0)
    told = {"1": StepTimes((50.0, 150.0), (0.1, 0.3), (0.0, 0.0))}
    assert Goodput(100, 400, (10, 100), 1e4, times=told).alone() == pytest.approx(0.2)
