"""The books: where shapes fit, what they take, and that every change can be undone."""

from __future__ import annotations

import pytest

from ganger.core.books.ledger import Fit, Ledger, Room
from ganger.core.books.succession import take_over
from ganger.core.errors import InvariantError
from ganger.core.plan import Slot
from ganger.core.spec import ClusterSpec, GpuType, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from worlds import cluster, gpus, where


def books(*groups: NodeSpec, types: tuple[GpuType, ...] = ()) -> Ledger:
    """Empty books of such nodes."""
    return Ledger(Nodes(ClusterSpec(groups, types)))


def filled(each: int, *held: int) -> Ledger:
    """One node of `each` GPUs per entry of `held`, with so many of them taken."""
    ledger = Ledger(Nodes(cluster(len(held), each)))
    for node, count in enumerate(held):
        if count:
            ledger.take(node, gpus(count), (Slot(node, (1 << count) - 1, count),))
    return ledger


def found(ledger: Ledger, shape: Shape, **rule: object) -> str | None:
    """Where it fits, in words; the books agree with themselves afterwards."""
    placement = ledger.find(shape, **rule)  # type: ignore[arg-type]
    if placement is not None:
        ledger.take(99, shape, placement)
        ledger.check()
        ledger.give(99)
    ledger.check()
    return None if placement is None else where(placement)


@pytest.mark.parametrize(
    ("held", "size", "fit", "expected"),
    [
        ((0, 2, 3), 1, Fit.BEST, "2:3"),
        ((0, 2, 3), 1, Fit.WORST, "0:0"),
        ((3, 0, 2), 1, Fit.FIRST, "0:3"),
        ((4, 2, 3), 1, Fit.FIRST, "1:2"),
        ((0, 2, 2), 2, Fit.BEST, "1:2,3"),
        ((2, 0, 0), 4, Fit.BEST, "1:0,1,2,3"),
        ((2, 0, 0), 6, Fit.BEST, "1:0,1,2,3 0:2,3"),
        ((2, 0, 0), 5, Fit.FIRST, "0:2,3 1:0,1,2"),
        ((3, 3, 0), 5, Fit.BEST, "2:0,1,2,3 0:3"),
        ((3, 3, 3), 4, Fit.BEST, None),
        ((1, 2, 3), 6, Fit.WORST, "0:1,2,3 1:2,3 2:3"),
    ],
)
def test_three_nodes_of_four_gpus(
    held: tuple[int, ...], size: int, fit: Fit, expected: str | None
) -> None:
    assert found(filled(4, *held), gpus(size), fit=fit) == expected


def test_random_fit_draws_among_the_nodes_that_fit() -> None:
    ledger = filled(4, 4, 0, 2, 0)
    for draw, node in enumerate((1, 2, 3)):
        assert found(ledger, gpus(1), fit=Fit.RANDOM, draw=lambda n, d=draw: d) == (
            f"{node}:{2 if node == 2 else 0}"
        )


@pytest.mark.parametrize(
    ("locality", "size", "expected"),
    [
        (Locality.ISLAND, 2, "0:2,3"),
        (Locality.ISLAND, 3, None),
        (Locality.NODE, 3, "0:1,2,3"),
        (Locality.NODE, 5, None),
        (Locality.RACK, 5, "0:1,2,3 1:0,1"),
        (Locality.RACK, 8, None),
        (Locality.ANY, 8, "2:0,1,2,3 0:1,2,3 1:0"),
    ],
)
def test_locality_tiers(locality: Locality, size: int, expected: str | None) -> None:
    """Racks of two nodes, islands of two GPUs; GPU 0 of nodes 0 and 2,3 of node 1 are taken."""
    ledger = books(NodeSpec(count=3, gpus=4, gpu_type="A", nodes_per_rack=2, island=2))
    ledger.take(1, gpus(1), (Slot(0, 0b1, 1),))
    ledger.take(2, gpus(2), (Slot(1, 0b1100, 2),))
    if expected is not None and locality == Locality.ISLAND:
        # Node 1 is fuller and its free island fits best.
        expected = "1:0,1"
    assert found(ledger, gpus(size, locality=locality)) == expected


def test_types_pools_and_labels_limit_where_a_job_may_go() -> None:
    ledger = books(
        NodeSpec(gpus=2, gpu_type="A"),
        NodeSpec(gpus=2, gpu_type="B", pool="p"),
        NodeSpec(gpus=2, gpu_type="B", labels=("fast", "ssd")),
    )
    for shape, expected in (
        (gpus(1, gpu_types=("B",)), "1:0"),
        (gpus(1, gpu_types=("B", "A"), pool=""), "1:0"),
        (gpus(1, pool="p"), "1:0"),
        (gpus(1, gpu_types=("A",), pool="p"), None),
        (gpus(1, labels=("ssd",)), "2:0"),
        (gpus(1, labels=("ssd", "slow")), None),
        (gpus(3), None),
    ):
        assert found(ledger, shape) == expected, shape


def test_a_gang_is_never_spread_over_two_types_or_pools() -> None:
    ledger = books(NodeSpec(gpus=2, gpu_type="A"), NodeSpec(gpus=2, gpu_type="B"))
    assert found(ledger, gpus(4)) is None


# ---------------------------------------------------------------------- shares


def share(thousandths: int, memory: int = 0, size: int = 1) -> Shape:
    """Workers that each want a part of one GPU."""
    return Shape((Role(size=size, needs=Needs(share=thousandths, gpu_memory=memory)),))


def test_shares_fill_a_started_gpu_before_they_open_another() -> None:
    ledger = books(NodeSpec(gpus=2, gpu_type="A"))
    for job, expected in enumerate(("0:0", "0:0", "0:1", "0:1")):
        placement = ledger.find(share(500))
        assert placement is not None
        assert where(placement) == expected
        ledger.take(job, share(500), placement)
        ledger.check()
    assert ledger.find(share(500)) is None
    assert ledger.free == 0


def test_a_gpu_in_shares_is_whole_again_when_the_last_one_leaves() -> None:
    ledger = books(NodeSpec(gpus=1, gpu_type="A"))
    for job in (1, 2):
        placement = ledger.find(share(300))
        assert placement is not None
        ledger.take(job, share(300), placement)
    ledger.give(1)
    assert ledger.find(gpus(1)) is None
    ledger.give(2)
    assert found(ledger, gpus(1)) == "0:0"
    assert ledger.shared == [{}]


def test_two_jobs_at_30_percent_memory_fit_on_one_gpu_and_three_at_40_do_not() -> None:
    for percent, fitting in ((30, 2), (40, 2), (30, 3)):
        ledger = books(NodeSpec(gpus=1, gpu_type="A"), types=(GpuType("A", 10000),))
        for job in range(fitting):
            placement = ledger.find(share(300, percent * 100))
            assert placement is not None, (percent, job)
            ledger.take(job, share(300, percent * 100), placement)
        assert (ledger.find(share(300, percent * 100)) is None) == (percent == 40 or fitting == 3)


def test_a_place_whose_memory_another_share_has_taken_is_not_free_any_more() -> None:
    ledger = books(NodeSpec(gpus=1, gpu_type="A"), types=(GpuType("A", 10000),))
    placement = ledger.find(share(300, 6000))
    assert placement is not None
    ledger.take(1, share(300, 6000), placement)
    assert not ledger.is_free(share(300, 6000), placement)
    assert ledger.is_free(share(300, 4000), placement)
    with pytest.raises(InvariantError, match="is not free"):
        ledger.take(2, share(300, 6000), placement)
    ledger.check()


def test_a_share_may_not_want_more_memory_than_a_gpu_has() -> None:
    ledger = books(NodeSpec(gpus=1, gpu_type="A"), types=(GpuType("A", 10000),))
    assert ledger.find(share(100, 10001)) is None


def test_each_worker_in_shares_gets_a_gpu_of_its_own() -> None:
    ledger = books(NodeSpec(gpus=2, gpu_type="A"))
    assert found(ledger, share(200, size=2)) == "0:0,1"
    assert found(ledger, share(200, size=3)) is None


# ---------------------------------------------------------------------- hosts and roles


def test_cpus_and_memory_run_out_before_gpus_do() -> None:
    needs = Needs(cpus=3000, memory=1024)
    shape = Shape((Role(size=1, needs=needs),))
    ledger = books(NodeSpec(gpus=4, gpu_type="A", cpus=8000, memory=4096))
    for job in range(2):
        placement = ledger.find(shape)
        assert placement is not None
        ledger.take(job, shape, placement)
    assert ledger.find(shape) is None
    assert found(ledger, gpus(2)) == "0:2,3", "whole GPUs without CPUs still fit"


def test_a_parameter_server_goes_to_a_node_without_gpus_only_if_it_must() -> None:
    ps = Role("ps", 1, needs=Needs(gpus=0, cpus=4000))
    shape = Shape((ps, Role("worker", 2)))
    same = books(NodeSpec(gpus=2, gpu_type="A", cpus=8000))
    placement = same.find(shape)
    assert placement is not None
    assert [(slot.node, slot.devices, slot.role) for slot in placement] == [(0, 0, 0), (0, 3, 1)]


def test_taking_what_is_not_free_changes_nothing() -> None:
    """A refused take must leave the books as they were, CPUs and shares too."""
    busy = Shape((Role(size=1, needs=Needs(cpus=2000)),))
    ledger = books(NodeSpec(gpus=2, gpu_type="A", cpus=5000, memory=10))
    ledger.take(1, busy, (Slot(0, 0b01, 1),))
    before = state(ledger)
    for shape, slot in (
        (busy, Slot(0, 0b01, 1)),
        (Shape((Role(size=1, needs=Needs(cpus=4000)),)), Slot(0, 0b10, 1)),
        (Shape((Role(size=1, needs=Needs(memory=11)),)), Slot(0, 0b10, 1)),
        (share(500, size=2), Slot(0, 0b11, 2)),
        (gpus(1), Slot(0, 0b100, 1)),
    ):
        assert not ledger.is_free(shape, (slot,))
        with pytest.raises(InvariantError):
            ledger.take(2, shape, (slot,))
        assert state(ledger) == before


def state(ledger: Ledger) -> object:
    """All that the books say."""
    return (
        list(ledger.free_mask),
        list(ledger.free_count),
        list(ledger.free_cpus),
        list(ledger.free_memory),
        [dict(shared) for shared in ledger.shared],
        dict(ledger.holds),
        {n: sorted(gone) for n, gone in ledger.leaving.items()},
        [(list(cell.by_free), cell.free, cell.total) for cell in ledger.cells],
        list(ledger.up),
    )


# ---------------------------------------------------------------------- leaving, up and down


def test_what_is_leaving_can_be_planned_with_but_is_waited_for() -> None:
    ledger = Ledger(Nodes(cluster(1, 4)))
    ledger.take(1, gpus(2), (Slot(0, 0b0011, 2),))
    left = ledger.give(1, leaving=True)
    assert ledger.free == 4
    assert ledger.waits((Slot(0, 0b0110, 2),)) == (1,)
    assert ledger.waits((Slot(0, 0b1100, 2),)) == ()
    ledger.gone(1, left)
    assert ledger.waits((Slot(0, 0b0110, 2),)) == ()


def test_on_a_node_behind_one_that_nobody_leaves_who_is_leaving_is_waited_for() -> None:
    ledger = Ledger(Nodes(cluster(3, 2)))
    there = tuple(Slot(node, 0b11, 2) for node in range(3))
    for job, slot in ((5, there[2]), (3, there[1])):
        ledger.take(job, gpus(2), (slot,))
        ledger.give(job, leaving=True)
    assert ledger.waits(there) == (3, 5)


def test_who_does_not_fit_any_more_keeps_no_later_one_from_its_place() -> None:
    """Of three in order the second holds what the first has."""
    ledger = Ledger(Nodes(cluster(1, 4)))
    held = {1: (Slot(0, 0b0011, 2),), 2: (Slot(0, 0b0110, 2),), 3: (Slot(0, 0b1100, 2),)}
    shaped = {job: (gpus(2), placement) for job, placement in held.items()}
    assert take_over(ledger, shaped, set()) == [1, 3]
    assert ledger.free == 0


@pytest.mark.parametrize(("cores", "waits"), [(8, (1,)), (12, ())])
def test_cpus_that_are_leaving_are_waited_for_where_there_are_no_others(
    cores: int, waits: tuple[int, ...]
) -> None:
    spec = ClusterSpec((NodeSpec(gpus=2, gpu_type="V100", cpus=1000 * cores, memory=100),))
    ledger = Ledger(Nodes(spec))
    shape = Shape((Role(needs=Needs(cpus=6000, memory=50)),))
    ledger.take(1, shape, (Slot(0, 0b01, 1),))
    left = ledger.give(1, leaving=True)
    there = (Slot(0, 0b10, 1),)
    ledger.take(2, shape, there)
    assert ledger.waits(there, shape) == waits
    ledger.gone(1, left)
    assert ledger.waits(there, shape) == ()


def test_a_node_that_is_down_takes_nothing_and_is_not_counted() -> None:
    ledger = Ledger(Nodes(cluster(2, 2)))
    ledger.switch(0, up=False)
    assert (ledger.free, ledger.total) == (2, 2)
    assert found(ledger, gpus(1)) == "1:0"
    assert found(ledger, gpus(3)) is None
    assert not ledger.is_free(gpus(1), (Slot(0, 1, 1),))
    ledger.switch(0, up=True)
    ledger.switch(0, up=True)
    assert found(ledger, gpus(3)) == "0:0,1 1:0"


def test_undoing_works_on_a_node_that_went_down() -> None:
    ledger = Ledger(Nodes(cluster(1, 2)))
    ledger.take(1, gpus(2), (Slot(0, 0b11, 2),))
    ledger.switch(0, up=False)
    before, mark = state(ledger), ledger.mark()
    ledger.give(1, leaving=True)
    ledger.rollback(mark)
    assert state(ledger) == before
    ledger.check()


def test_a_grant_is_a_cluster_of_its_own() -> None:
    nodes = Nodes(cluster(3, 4))
    grant = Ledger(nodes, {1: Room(0b0110), 2: Room(0b1000)})
    assert (grant.free, grant.total) == (3, 3)
    assert found(grant, gpus(2)) == "1:1,2"
    assert found(grant, gpus(3)) == "1:1,2 2:3"
    assert found(grant, gpus(4)) is None


def test_the_check_notices_cooked_books() -> None:
    ledger = filled(4, 2)
    ledger.free_mask[0] ^= 0b1000
    with pytest.raises(InvariantError):
        ledger.check()
    ledger = filled(4, 2)
    ledger.cells[0].free += 1
    with pytest.raises(InvariantError):
        ledger.check()


def test_a_gang_of_two_roles_stays_in_one_rack() -> None:
    """Each rack has two nodes of two GPUs; one of rack 0 is taken, so that only rack 1 has room."""
    spec = ClusterSpec((NodeSpec(count=4, gpus=2, gpu_type="A", cpus=8000, nodes_per_rack=2),))
    ledger = Ledger(Nodes(spec))
    gang = Shape(
        (Role("ps", 1, needs=Needs(gpus=0, cpus=1000)), Role("worker", 3)), locality=Locality.RACK
    )
    ledger.take(0, gpus(2), ledger.find(gpus(2)) or ())
    found = ledger.find(gang)
    assert found is not None
    assert {slot.node for slot in found} == {2, 3}


# ---------------------------------------------------------------------- undone


def test_a_job_that_was_to_keep_what_it_was_leaving_leaves_it_after_all() -> None:
    ledger = books(NodeSpec(gpus=4, gpu_type="A"))
    there = (Slot(0, 0b11, 2),)
    ledger.take(7, gpus(2), there)
    ledger.give(7, leaving=True)
    before = {node: list(jobs) for node, jobs in ledger.leaving.items()}
    mark = ledger.mark()
    ledger.regain(7, gpus(2), there)
    assert not ledger.leaving.get(0)
    ledger.rollback(mark)
    assert {node: list(jobs) for node, jobs in ledger.leaving.items()} == before
    assert before[0]
    assert 7 not in ledger.holds


def test_a_gang_with_cpus_fits_at_a_size_at_which_less_is_free_than_it_asks_for() -> None:
    ledger = books(NodeSpec(gpus=4, gpu_type="A", cpus=64000))
    wide = Shape((Role(size=4, needs=Needs(cpus=1000)),))
    ledger.take(1, gpus(2), (Slot(0, 0b11, 2),))
    assert ledger.find(wide) is None
    assert where(ledger.find(wide, (2,)) or ()) == "0:2,3"


def test_workers_that_ask_for_no_cpus_fit_where_no_cpu_is_left() -> None:
    ledger = books(NodeSpec(count=2, gpus=2, gpu_type="A", cpus=2000, memory=64))
    for node in (0, 1):
        hog = Shape((Role(needs=Needs(cpus=2000)),))
        ledger.take(node, hog, (Slot(node, 0b1, 1),))
    gang = Shape((Role(size=2, needs=Needs(memory=10)),))
    assert where(ledger.find(gang) or ()) == "0:1 1:1"


def test_a_placement_that_is_not_free_as_a_whole_takes_nothing() -> None:
    ledger = filled(4, 0, 4)
    for shape in (gpus(4), Shape((Role(size=4, needs=Needs(cpus=0, memory=0)),))):
        with pytest.raises(InvariantError, match="is not free"):
            ledger.take(7, shape, (Slot(0, 0b11, 2), Slot(1, 0b11, 2)))
        ledger.check()
        assert (ledger.free, 7 in ledger.holds) == (4, False)


def test_a_shape_of_which_one_role_fits_nowhere_has_no_cell() -> None:
    ledger = books(NodeSpec(count=2, gpus=4, gpu_type="A", cpus=8000))
    fits, never = Role("ps", needs=Needs(cpus=1000)), Role("worker", needs=Needs(cpus=9000))
    assert ledger.cells_for(Shape((fits,)))
    assert not ledger.cells_for(Shape((fits, never)))


def test_a_node_that_states_no_memory_has_none_to_give() -> None:
    ledger = books(NodeSpec(gpus=4, gpu_type="A"))
    assert ledger.find(Shape((Role(needs=Needs(memory=1)),))) is None


def test_a_part_of_a_gpu_may_ask_for_all_of_its_memory_and_for_no_more() -> None:
    ledger = books(NodeSpec(gpus=1, gpu_type="A"), types=(GpuType("A", 16384),))
    assert where(ledger.find(share(500, 16384)) or ()) == "0:0"
    assert ledger.find(share(500, 16385)) is None
    assert not ledger.cells_for(share(500, 16385))
