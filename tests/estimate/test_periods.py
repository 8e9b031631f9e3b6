"""The period of a signal: of waves whose period is known, and of what NVML said of an H100 while
small nets were trained whose step times were measured (`benchmarks/record_nvml.py`; each file says
on which device, when and how)."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.lab.profile import profile
from ganger.core.errors import BadInput
from ganger.estimate.periods import period_of

FOLDER = Path(__file__).parent / "nvml"


def recorded(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moments, watts, and the seconds of each step."""
    lines = gzip.decompress((FOLDER / f"{name}.csv.gz").read_bytes()).decode().splitlines()
    [steps] = [line.partition(":")[2] for line in lines if line.startswith("# steps:")]
    rows = [list(map(float, line.split(","))) for line in lines if line[0].isdigit()]
    table = np.array(rows)
    return table[:, 0], table[:, 1], np.array(list(map(float, steps.split())))


@pytest.mark.parametrize("name", ["lstm", "mlp", "transformer", "cnn-slow", "transformer-slow"])
def test_steps_that_were_measured_are_seen_in_watts_within_5_percent(name: str) -> None:
    at, watts, steps = recorded(name)
    found = period_of(at, watts)
    assert found is not None
    assert found.seconds == pytest.approx(steps.mean(), rel=0.05)


def test_steps_shorter_than_the_driver_shows_are_not_guessed() -> None:
    """The driver renews watts ten times a second; steps of 0.19 s would be seen as others."""
    at, watts, steps = recorded("cnn")
    assert steps.mean() < 0.2
    assert period_of(at, watts) is None


@pytest.mark.parametrize("duty", [0.2, 0.5, 0.8])
def test_neither_two_periods_nor_half_of_one_are_taken_for_one(duty: float) -> None:
    at = np.arange(0.0, 30.0, 0.05)
    noise = np.random.default_rng(0).normal(size=len(at))
    found = period_of(at, np.where(at % 1.3 < duty * 1.3, 300.0, 100.0) + noise)
    assert found is not None
    assert found.seconds == pytest.approx(1.3, rel=0.01)


def test_what_has_no_period_has_none() -> None:
    at = np.arange(0.0, 30.0, 0.05)
    noise = np.random.default_rng(0).normal(size=len(at))
    for values in (noise, np.full(len(at), 5.0), noise * np.nan, at):
        assert period_of(at, values) is None
    assert period_of(at[:5], noise[:5]) is None
    assert period_of(np.zeros(40), noise[:40]) is None
    last = np.zeros(len(at))
    last[-1] = 1.0
    assert period_of(at, last) is None


@pytest.mark.parametrize("wrong", [0.0, 15.0])
def test_moments_that_do_not_rise_are_no_signal(wrong: float) -> None:
    """The last is the first one again, or that of one in the middle."""
    at = np.arange(0.0, 30.0, 0.05)
    values = np.where(at % 1.3 < 0.6, 300.0, 100.0)
    assert period_of(at, values) is not None
    at[-1] = wrong
    assert period_of(at, values) is None


def test_steps_that_become_longer_are_seen_before_and_after() -> None:
    """From the 19th step on they take 0.65 s instead of 0.48 s."""
    at, watts, steps = recorded("lstm-shift")
    shift = steps[:18].sum()
    for some, which in ((steps[:18], at < shift), (steps[18:], at > shift)):
        found = period_of(at[which], watts[which])
        assert found is not None
        assert found.seconds == pytest.approx(some.mean(), rel=0.05)


def test_the_command_line_says_the_step_time_of_a_signal(tmp_path: Path) -> None:
    file = tmp_path / "nvml.csv"
    file.write_bytes(gzip.decompress((FOLDER / "mlp.csv.gz").read_bytes()))
    said = CliRunner().invoke(profile, ["--signal", str(file)])
    assert said.exit_code == 0
    assert float(said.output.split()[0]) == pytest.approx(recorded("mlp")[2].mean(), rel=0.05)
    with pytest.raises(BadInput, match="no period in mhz"):
        CliRunner().invoke(
            profile, ["--signal", str(file), "--column", "mhz"], catch_exceptions=False
        )
