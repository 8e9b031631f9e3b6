"""Partial back-propagation by hand, and what never happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.profiles import Passes
from ganger.estimate.sharing.partial_backprop import part_of_step, together, worth

PASSES = Passes(1.0, 2.0, 0.4)


def test_a_partial_worker_does_its_forward_pass_and_a_part_of_the_other() -> None:
    assert part_of_step(PASSES, 0.5) == pytest.approx(2 / 3)
    assert part_of_step(PASSES, 0.0) == pytest.approx(1 / 3)
    assert part_of_step(PASSES, 1.0) == 1.0


def test_steps_that_are_lost_grow_with_the_layers_that_are_left_out() -> None:
    """Two workers, of which one leaves out half: a quarter; four, of which three do: 0.375."""
    assert worth(PASSES, 0.5, 2) == pytest.approx(1 / 1.1)
    assert worth(PASSES, 0.5, 4) == pytest.approx(1 / 1.15)
    assert worth(PASSES, 1.0, 4) == worth(PASSES, 0.5, 1) == worth(Passes(1, 1), 0, 4) == 1.0


@pytest.mark.parametrize(
    ("iterations", "workers", "does"),
    [([3.0, 3.0], 2, 6 / 5), ([3.0] * 3, 2, 9 / 8), ([3.0] * 3, 3, 9 / 7), ([3.0, 3.0], 1, 1.0),
     ([3.0], 2, 1.0), ([3.0, 1.0], 2, 4 / (2 + 2 / 3 + 1))],
)  # fmt: skip
def test_what_jobs_do_together_by_hand(iterations: list[float], workers: int, does: float) -> None:
    plain = [Passes(1.0, 2.0)] * len(iterations)
    assert together(iterations, plain, 0.5, workers) == pytest.approx(does)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1,
             max_size=5),
    st.integers(0, 10),
    st.integers(1, 6),
)  # fmt: skip
def test_together_they_do_no_less_than_in_turns_and_no_gpu_works_longer_than_a_round(
    drawn: list[tuple[int, int, int]], tenths: int, workers: int
) -> None:
    passes = [Passes(float(f), float(b)) for _, f, b in drawn]
    iterations = [float(seconds) for seconds, _, _ in drawn]
    does = together(iterations, passes, tenths / 10, workers)
    assert does >= 1.0 - 1e-9
    least = sum(
        seconds * part_of_step(each, tenths / 10)
        for seconds, each in zip(iterations, passes, strict=True)
    )
    assert sum(iterations) / does >= least - 1e-9
