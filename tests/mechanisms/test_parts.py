"""Which device a part of a GPU comes to: the fullest that can take it, one worker a device."""

from __future__ import annotations

from bench import Bench
from ganger.core.books.share import Sharing
from ganger.core.events import Started, Submitted
from ganger.core.plan import Slot, Start
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from ganger.mechanisms.sharing.share import Parts
from worlds import Work, cluster, job, play


def part(name: str, share: int, size: int = 1, **needs: int) -> Work:
    """A job whose `size` workers each ask for so many thousandths of a GPU."""
    return job(name, shape=Shape((Role(size=size, needs=Needs(share=share, **needs)),)))


def shared(*more: Work, nodes: int = 1) -> Bench:
    """300 thousandths of GPU 0 and 600 of GPU 1 of the first node are in use; rows 2 and on wait.
    Every node has 3 GPUs and 2 CPUs."""
    works = (part("small", 300), part("large", 600), *more)
    bench = Bench(*works, on=cluster(nodes, 3, cpus=2000))
    starts = [Start(0, 1, (Slot(0, 0b001),)), Start(1, 1, (Slot(0, 0b010),))]
    bench.feed(0, *(Submitted(row) for row in range(len(works))), then=starts)
    bench.feed(0, Started(0, 1), Started(1, 1))
    return bench


def test_the_fullest_device_that_can_take_the_part_is_taken() -> None:
    for share, device in ((300, 0b010), (400, 0b010), (500, 0b001), (700, 0b001), (800, 0b100)):
        view = shared(part("next", share)).kernel.view
        found = Parts(mode=Sharing.TIME).find(view, view.ledger, 2)
        assert found == (Slot(0, device),), share


def test_no_more_workers_come_to_a_node_than_its_cpus_let() -> None:
    """Three workers of a CPU each: two on the two CPUs of the first node, one on the second."""
    view = shared(part("next", 100, 3, cpus=1000), nodes=2).kernel.view
    found = Parts(mode=Sharing.TIME).find(view, view.ledger, 2)
    assert found == (Slot(0, 0b011, 2), Slot(1, 0b001, 1))


def test_the_books_take_the_fullest_device_for_a_part_with_memory() -> None:
    shape = Shape((Role(needs=Needs(share=300, gpu_memory=1024)),))
    assert shared().kernel.view.ledger.find(shape) == (Slot(0, 0b010),)


def test_workers_of_two_roles_do_not_share_a_device() -> None:
    """The first role takes the fullest device, the second the next, the third the empty one."""
    roles = tuple(Role(name, needs=Needs(share=200)) for name in ("actor", "learner", "critic"))
    found = shared().kernel.view.ledger.find(Shape(roles))
    assert found == (Slot(0, 0b010, 1, 0), Slot(0, 0b001, 1, 1), Slot(0, 0b100, 1, 2))


def test_roles_come_together_where_their_host_memory_fits() -> None:
    """The fuller node has GPUs enough, but 400 of its 1,000 MiB; the roles ask for 600."""
    asks = job("asks", shape=Shape((Role(needs=Needs(memory=600)),)))
    bench = Bench(asks, on=cluster(2, 3, memory=1000))
    bench.feed(0, Submitted(0), then=[Start(0, 1, (Slot(0, 0b001),))])
    roles = [Role(name, needs=Needs(memory=300)) for name in ("actor", "learner")]
    found = bench.kernel.view.ledger.find(Shape(tuple(roles)))
    assert found == (Slot(1, 0b001, 1, 0), Slot(1, 0b010, 1, 1))


def test_where_the_fullest_gpu_lacks_memory_the_next_one_is_taken() -> None:
    """`a` has 12,000 of the 16,000 MiB of GPU 0, and `b` wants 8,000."""
    on = ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), (GpuType("A", memory=16_000),))
    works = [
        job(name, lasts=9, shape=Shape((Role(needs=Needs(share=share, gpu_memory=memory)),)))
        for name, share, memory in (("a", 500, 12_000), ("b", 300, 8_000))
    ]
    run = play("space-sharing", works, on)
    assert run.text() == "0: start a on 0:0; start b on 0:1"
