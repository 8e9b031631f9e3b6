"""What pilots are asked for: the nodes on which jobs would run that fit nowhere as it is."""

from __future__ import annotations

from bench import Bench, on
from ganger.core.events import NodeDown, Started, Submitted
from ganger.core.plan import Start
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.service.demand import wished
from worlds import Work, job

NODES = ClusterSpec(
    (
        *(NodeSpec(name=f"v{i}", gpus=4, gpu_type="v100") for i in range(3)),
        NodeSpec(name="k0", gpus=2, gpu_type="k80"),
    )
)


def waiting(*works: Work, down: tuple[int, ...] = (0, 1, 2, 3)) -> Bench:
    """These jobs wait, while these nodes are down."""
    bench = Bench(*works, on=NODES)
    bench.feed(
        1, *(NodeDown(node) for node in down), *(Submitted(row) for row in range(len(works)))
    )
    return bench


def test_nobody_waits_and_nothing_is_wished_for() -> None:
    assert wished(waiting().kernel, 4) == []


def test_jobs_share_the_nodes_that_are_wished_for() -> None:
    assert len(wished(waiting(job("a", size=2), job("b", size=2)).kernel, 4)) == 1
    assert len(wished(waiting(job("a", size=3), job("b", size=3)).kernel, 4)) == 2


def test_never_more_than_are_allowed_are_begun() -> None:
    works = [job(name, size=4) for name in "abc"]
    assert len(wished(waiting(*works).kernel, 2)) == 2


def test_who_fits_on_a_node_that_is_up_wishes_for_nothing() -> None:
    assert wished(waiting(job("a", size=4), down=(1, 2, 3)).kernel, 4) == []


def test_a_gang_keeps_the_free_node_that_is_up_and_wishes_for_the_others() -> None:
    found = wished(waiting(job("gang", size=12), down=(1, 2, 3)).kernel, 4)
    assert found == ["v0", "v1", "v2"]


def test_what_runs_takes_room() -> None:
    bench = waiting(job("runs", size=4), job("waits", size=4), down=(1, 2, 3))
    bench.feed(2, then=[Start(0, 1, on(15))])
    bench.feed(3, Started(0, 1))
    (name,) = wished(bench.kernel, 4)
    assert name in ("v1", "v2")


def test_who_can_never_fit_does_not_stop_the_others() -> None:
    assert wished(waiting(job("giant", size=99), job("a", size=1)).kernel, 4) != []
