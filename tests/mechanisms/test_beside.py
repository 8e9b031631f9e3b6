"""A job that shares its GPU runs as it should while its share is the wanted one."""

from __future__ import annotations

import pytest

from bench import Bench
from ganger.core.events import Started, Submitted
from ganger.core.plan import Slot, Start
from ganger.mechanisms.common.reconcile import Want, _runs_so
from worlds import cluster, job


@pytest.mark.parametrize(
    ("want", "so"),
    [
        (Want(0, 1, share=500, beside=1), True),
        (Want(0, 1, share=300, beside=1), False),
        (Want(0, 1), True),
        (Want(0, 2, share=500, beside=1), False),
    ],
    ids=["as it is", "another share", "nothing said of shares", "more GPUs"],
)
def test_half_a_gpu_is_kept_while_half_is_wanted(want: Want, so: bool) -> None:
    bench = Bench(job("a"), job("b"), on=cluster(1, 2))
    half = (Slot(0, 0b1, share=500),)
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, half), Start(1, 1, half)])
    bench.feed(0, Started(0, 1), Started(1, 1))
    assert _runs_so(bench.kernel.view, want) is so
