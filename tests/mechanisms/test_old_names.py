"""What people's own policies import by names of before goes on, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from ganger.lab.simulating.user_policy import load_own
from worlds import cluster, job, play

MINE = """
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.order import By
from ganger.mechanisms.queue import QueuePolicy


def widest_first(view, ids):
    return -view.jobs.gpus[ids]


MyPolicy = QueuePolicy("widest-first", By((widest_first,)), Walk.SKIP)
"""


@pytest.mark.parametrize("name", ["admit", "order", "queue"])
def test_a_name_of_before_says_the_name_of_now(name: str) -> None:
    sys.modules.pop(f"ganger.mechanisms.{name}", None)
    with pytest.warns(FutureWarning, match=f"is now ganger.mechanisms.ordering.{name}"):
        old = import_module(f"ganger.mechanisms.{name}")
    now = import_module(f"ganger.mechanisms.ordering.{name}")
    public = [each for each in vars(now) if not each.startswith("_")]
    assert all(getattr(old, each) is getattr(now, each) for each in public)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_policy_that_was_written_for_the_version_before_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    policy = load_own(tmp_path / "mine.py", "MyPolicy")
    works = [job("a", 0, 10, size=1), job("b", 1, 10, size=1), job("c", 2, 10, size=4)]
    assert play(policy, works, cluster(1, 4)).jct() == play("fifo", works, cluster(1, 4)).jct()
