"""What tenants' jobs cost and draw, at the rates of the cluster file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ganger.core.plan import Slot
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer
from ganger.core.state.cluster import Nodes
from ganger.service.reports.usage import nodes_held, rates_of
from service.desk import Desk, header

SPEC = ClusterSpec(
    (
        NodeSpec(gpus=2, gpu_type="V100", watts=100.0),
        NodeSpec(gpus=4, gpu_type="V100", watts=0.0, offer=Offer(price=6.0)),
        NodeSpec(gpus=1, gpu_type="T4", watts=0.0),
        NodeSpec(gpus=1, gpu_type="V100", watts=0.0, offer=Offer(prices=((0, 1.0), (9, 2.0)))),
    ),
    (GpuType("V100", watts=300.0, price=2.0, idle_watts=50.0), GpuType("T4", watts=70.0)),
    carbon=100.0,
)


def test_a_node_has_its_own_price_or_that_of_its_gpus_or_none_that_is_known() -> None:
    rates = rates_of(Nodes(SPEC), {"V100": 2.5})
    assert rates.price == [2.5, 1.5, None, None], "T4 has none; who knows when a series began"
    assert rates_of(Nodes(SPEC), {"V100": 2.5, "T4": 1.0}).price[2] == 1.0


def test_a_holder_answers_for_idle_gpus_and_their_part_of_the_node_and_for_what_it_computes() -> (
    None
):
    rates = rates_of(Nodes(SPEC), {})
    assert rates.held == pytest.approx([100, 50, 10.5, 50])
    assert rates.computing == pytest.approx([250, 250, 59.5, 250])
    assert rates.grid == (100.0, "cluster file")
    assert "V100 300 W (stated), idle 50 W (stated)" in rates.source


def test_attempts_count_for_the_part_of_a_time_that_they_held_in_it(tmp_path: Path) -> None:
    """From 10 to 20, on two GPUs of node 3: what ended before and began after is not even read, as
    a journal of a year is read for each part of a day."""
    desk, held = Desk(tmp_path, header("fifo")), msgspec.msgpack.encode((Slot(3, 0b11),))
    spans = [(0, 10), (5, 15), (12, 14), (18, 30), (15, None), (20, 25), (None, None)]
    desk.journal.db.executemany(
        "INSERT INTO attempts (job, attempt, started, ended, placement) VALUES (?, 1, ?, ?, ?)",
        [(row, *span, held) for row, span in enumerate(spans)],
    )
    assert nodes_held(desk.journal, 20, 10) == {
        1: {3: 10}, 2: {3: 4}, 3: {3: 4}, 4: {3: 10}
    }  # fmt: skip
    assert [row for row, _ in desk.journal.attempts_between(10, 20)] == [1, 2, 3, 4]
    assert [row for row, _ in desk.journal.attempts_between(0, 30)] == [0, 1, 2, 3, 4, 5]
