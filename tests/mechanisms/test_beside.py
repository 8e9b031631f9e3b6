"""A job that shares its GPU runs as it should while its share is the wanted one."""

from __future__ import annotations

import numpy as np
import pytest

from bench import Bench, on
from ganger.core.events import Started, Submitted
from ganger.core.plan import Slot, Start
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape
from ganger.mechanisms.common.reconcile import Sizes, Want, _runs_so, towards, towards_sizes
from worlds import cluster, gpus, job


@pytest.mark.parametrize(
    ("want", "so"),
    [
        (Want(0, 1, share=500, beside=(1,)), True),
        (Want(0, 1, share=300, beside=(1,)), False),
        (Want(0, 1), True),
        (Want(0, 2, share=500, beside=(1,)), False),
    ],
    ids=["as it is", "another share", "nothing said of shares", "more GPUs"],
)
def test_half_a_gpu_is_kept_while_half_is_wanted(want: Want, so: bool) -> None:
    bench = Bench(job("a"), job("b"), on=cluster(1, 2))
    half = (Slot(0, 0b1, share=500),)
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, half), Start(1, 1, half)])
    bench.feed(0, Started(0, 1), Started(1, 1))
    assert _runs_so(bench.kernel.view, want) is so


@pytest.mark.parametrize(
    ("want", "so"),
    [
        (Want(0, 2), True),
        (Want(0, 2, "A"), True),
        (Want(0, 2, "B"), False),
        (Want(0, 1), False),
        (Want(0, 3), False),
        (Want(0, 2, nodes=((0, 2),)), True),
        (Want(0, 2, nodes=((1, 2),)), False),
        (Want(0, 2, nodes=((0, 1), (1, 1))), False),
    ],
    ids=str,
)
def test_what_runs_runs_as_wanted_by_size_type_and_nodes(want: Want, so: bool) -> None:
    spec = ClusterSpec((NodeSpec(gpus=4, gpu_type="A"), NodeSpec(gpus=4, gpu_type="B")))
    bench = Bench(job("a", size=2), on=spec)
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(0b11))])
    bench.feed(0, Started(0, 1))
    assert _runs_so(bench.kernel.view, want) is so


def test_a_job_without_gpus_always_runs_as_wanted() -> None:
    cores = Shape((Role(needs=Needs(gpus=0, cpus=1000)),))
    bench = Bench(job("a", shape=cores), on=cluster(1, 1, cpus=4000))
    bench.feed(0, Submitted(0), then=[Start(0, 1, (Slot(0, 0, 1),))])
    bench.feed(0, Started(0, 1))
    assert _runs_so(bench.kernel.view, Want(0, 3))


def test_who_is_wanted_alone_keeps_its_gpu_and_the_one_beside_it_moves_to_its_new_company() -> None:
    """`a` and `b` share GPU 0. From now on `a` is to be alone, and `b` beside `c`."""
    bench = Bench(job("a"), job("b"), job("c"), on=cluster(1, 2))
    half = (Slot(0, 0b1, share=500),)
    starts = [Start(0, 1, half), Start(1, 1, half)]
    bench.feed(0, Submitted(0), Submitted(1), Submitted(2), then=starts)
    bench.feed(0, Started(0, 1), Started(1, 1))
    view = bench.kernel.view
    towards(
        view, [Want(0, 1), Want(1, 1, share=500, beside=(2,)), Want(2, 1, share=500, beside=(1,))]
    )
    held = [view.draft.holds(row) for row in range(3)]
    view.draft.rollback()
    assert held == [half, (Slot(0, 0b10, share=500),), (Slot(0, 0b10, share=500),)]


def test_of_those_that_may_make_way_one_that_finds_no_place_elsewhere_goes_on() -> None:
    """`y` must be on type A. `x` may not be divided among the nodes of type B, of which each has a
    GPU left; `z` may."""
    spec = ClusterSpec((NodeSpec(2, 2, "A"), NodeSpec(2, 2, "B")))
    only = {kind: gpus(1, gpu_types=(kind,)) for kind in "AB"}
    bench = Bench(
        job("k0", shape=only["B"]),
        job("k1", shape=only["B"]),
        job("x", shape=gpus(2, locality=Locality.NODE)),
        job("z", size=2),
        job("y", shape=gpus(2, gpu_types=("A",))),
        on=spec,
    )
    places = [on(0b01, 2), on(0b01, 3), on(0b11, 0), on(0b11, 1)]
    starts = [Start(row, 1, place) for row, place in enumerate(places)]
    bench.feed(0, *map(Submitted, range(5)), then=starts)
    bench.feed(0, *(Started(row, 1) for row in range(4)))
    view = bench.kernel.view
    ids = np.arange(5)
    towards_sizes(view, Sizes(ids, np.array([1, 1, 2, 2, 2])))
    held = [view.draft.holds(row) for row in range(5)]
    view.draft.rollback()
    elsewhere = (Slot(2, 0b10, 1), Slot(3, 0b10, 1))
    assert held == [*places[:3], elsewhere, places[3]]
