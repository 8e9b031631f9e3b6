"""Decisions in words: two jobs for one GPU, and one that is preempted."""

from __future__ import annotations

import pytest

from ganger.core.kernel import Kernel
from ganger.core.spec import JobSpec
from ganger.core.units import SECOND
from ganger.lab.lessons.parts import gang_of, one_node, trace_of
from ganger.lab.simulating import decided
from ganger.lab.simulating.decided import DecisionRecorder, named
from ganger.lab.simulation import run_one


def recorded(recipe: str, lasts: list[int]) -> DecisionRecorder:
    made: list[DecisionRecorder] = []

    def journal(kernel: Kernel) -> DecisionRecorder:
        made.append(DecisionRecorder(kernel))
        return made[0]

    specs = [
        JobSpec(name=f"j{at}", submitted=at * SECOND, shape=gang_of(1)) for at in range(len(lasts))
    ]
    run_one(trace_of(specs, lasts, SECOND), one_node(1), recipe, journal=journal)
    return made[0]


def test_a_start_a_wait_and_a_preemption_in_words() -> None:
    """Job 0 needs ten seconds, job 1 comes after one and needs two."""
    first, second = recorded("fifo", [10, 2]).decisions
    assert first == (0.0, "job 0 comes", ["job 0 starts on 1 GPU of node 0"], [])
    assert second == (10.0, "job 0 finished", ["job 1 starts on 1 GPU of node 0"], [])
    _, swap, back = recorded("srtf", [10, 2]).decisions
    assert swap.at == 1.0
    assert swap.did == ["job 0 is stopped (preempted)", "job 1 starts on 1 GPU of node 0"]
    assert back[:3] == (3.0, "job 1 finished", ["job 0 starts on 1 GPU of node 0"])


def test_who_still_waits_has_the_plans_reason() -> None:
    """Of three, the second decision leaves job 2 waiting."""
    _, second, _ = recorded("fifo", [10, 10, 10]).decisions
    (wait,) = second.wait
    assert wait.startswith("job 2: nothing free fits it (the ordered queue)")


def test_decisions_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recorded("fifo", [1] * 5)
    monkeypatch.setattr(decided, "DECISIONS_MAX", 2)
    short = recorded("fifo", [1] * 5)
    assert short.decisions == whole.decisions[:2]
    assert short.skipped == len(whole.decisions) - 2


def test_many_jobs_are_counted() -> None:
    assert named([3]) == "job 3"
    assert named([3, 4, 5]) == "jobs 3, 4 and 5"
    assert named(range(20)) == "jobs 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"
