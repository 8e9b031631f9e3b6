"""Liquid: what a place costs, where jobs go one by one and together, and what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import Audit
from bench import Bench
from ganger.core.plan import Start
from ganger.core.profiles import Graph, Profile, Profiles, Steps
from ganger.core.spec import ClusterSpec, GpuType, Locality, Needs, NodeSpec, Role, Shape
from ganger.estimate.sharing.gpu_use import drawn, forest_use, predicted_memory, roofline
from ganger.recipes.training.sharing.regrouping import Room, Search, Talk, Worker, talk
from worlds import Played, Work, cluster, job, play

BATCH, ALONE = "liquid", "liquid(batch=no)"


def apart(node: int, other: int) -> float:
    """Nodes 0 and 1 are in one rack, 2 in another of their domain, 3 in another domain."""
    if node == other:
        return 0.0
    return {1: 1.0, 5: 40.0}.get(
        abs((0, 1, 3, 8)[node] - (0, 1, 3, 8)[other]), 4.0 if 3 not in (node, other) else 40.0
    )


def with_servers(workers: int, servers: int = 1, **more: Any) -> Shape:
    """Parameter servers, which need a core each, and workers with a GPU each."""
    ps = Role("ps", servers, needs=Needs(gpus=0, cpus=1000))
    return Shape((ps, Role("worker", workers)), **more)


def nodes(run: Played) -> dict[str, list[tuple[int, int, int]]]:
    """Of each job, how many workers of which role are on which node: (role, node, workers)."""
    return {
        run.jobs.name(action.job): sorted((s.role, s.node, s.workers) for s in action.placement)
        for _, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Start)
    }


# ---------------------------------------------------------------------- what a place costs


@pytest.mark.parametrize(("second", "cost"), [(0, 0), (1, 1), (2, 4), (3, 40)])
def test_a_server_and_two_workers_cost_what_the_card_says(second: int, cost: float) -> None:
    workers = {0: 2} if second == 0 else {0: 1, second: 1}
    assert Talk({0: 1}, workers, 1.0).cost(apart) == cost
    assert Talk({0: 1}, workers, 2.5).cost(apart) == 2.5 * cost


def test_servers_talk_to_every_worker_and_without_any_all_workers_to_each_other() -> None:
    assert Talk({0: 2, 1: 1}, {1: 3}, 1.0).cost(apart) == 2 * 3
    assert Talk({}, {0: 2, 1: 1, 2: 1}, 1.0).cost(apart) == 2 * 1 + 2 * 4 + 1 * 4
    assert Talk({}, {0: 4}, 1.0).cost(apart) == 0


def test_workers_of_one_role_on_a_node_are_counted_together() -> None:
    """In two parts on node 0, as a place may have them; a server is apart from them."""
    bench = Bench(job("a", shape=with_servers(4)))
    said = talk(bench.kernel.view, 0, [(0, 1, 1), (1, 0, 2), (1, 1, 1), (1, 0, 1)])
    assert (said.servers, said.workers) == ({1: 1}, {0: 3, 1: 1})


# ---------------------------------------------------------------------- one by one


RACKS = NodeSpec(count=8, gpus=2, gpu_type="A", cpus=8000, memory=64_000, nodes_per_rack=2)


@pytest.mark.parametrize(
    ("size", "busy", "expected"),
    [
        (2, [], [0]),
        (4, [], [0, 1]),
        (4, [0], [2, 3]),
        (8, [0], [4, 5, 6, 7]),
        (6, [], [0, 1, 2]),
        (6, [0], [1, 2, 3]),
        (12, [], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_workers_are_as_near_to_each_other_as_can_be(
    size: int, busy: list[int], expected: list[int]
) -> None:
    """Eight nodes of two GPUs, two in a rack and two racks in a domain. A gang of eight needs a
    domain of its own."""
    works = [job(f"busy{node}", 0, 1000, size=1) for node in busy]
    run = play("liquid(racks=2)", [*works, job("gang", 1, 10, size=size)], ClusterSpec((RACKS,)))
    assert sorted({node for _, node, _ in nodes(run)["gang"]}) == expected


def test_a_job_that_asks_for_a_rack_gets_one_or_waits() -> None:
    works = [job("a", 0, 10, size=1), *(job(f"b{n}", 0, 10, size=2) for n in range(6))]
    near = job("near", 1, 10, shape=Shape((Role(size=4),), locality=Locality.RACK))
    run = play(BATCH, [*works, near], ClusterSpec((RACKS,)))
    assert run.started("near") == 10


# ---------------------------------------------------------------------- together

TWO = ClusterSpec((NodeSpec(gpus=3, gpu_type="A"), NodeSpec(gpus=2, gpu_type="A")))
JAM = [job("a", 0, 10), job("b", 0, 10, size=2), job("c", 0, 10, size=2)]


def test_jobs_that_start_at_once_are_placed_together() -> None:
    """The first, by best fit, goes to the node of two GPUs, and the last spans both. Together the
    first is beside one of the others, on three."""
    assert nodes(play(ALONE, JAM, TWO)) == {
        "a": [(0, 1, 1)],
        "b": [(0, 0, 2)],
        "c": [(0, 0, 1), (0, 1, 1)],
    }
    found = nodes(play(BATCH, JAM, TWO))
    assert found["a"] == [(0, 0, 1)]
    assert all(len(found[name]) == 1 for name in "abc")
    assert nodes(play("liquid(generations=1,population=1)", JAM, TWO)).keys() == found.keys()


@pytest.mark.parametrize(("others", "nodes_of_c"), [(59, 1), (60, 2)])
def test_as_many_as_64_workers_are_placed_together(others: int, nodes_of_c: int) -> None:
    """Beside a gang that fills a third node; of 65 workers the last job stays over two nodes."""
    spec = ClusterSpec((*TWO.nodes, NodeSpec(gpus=others, gpu_type="A")))
    run = play("liquid(population=8,generations=40)", [job("big", 0, 10, size=others), *JAM], spec)
    assert len({node for _, node, _ in nodes(run)["c"]}) == nodes_of_c


def test_a_parameter_server_goes_where_its_workers_are() -> None:
    """Both servers find a core on the node of one GPU; only one of the pairs of workers fits on a
    node with a core to spare."""
    spec = ClusterSpec(
        (
            NodeSpec(gpus=2, gpu_type="A", cpus=1000, memory=1),
            NodeSpec(gpus=2, gpu_type="A", cpus=1000, memory=1),
        )
    )
    works = [job("a", 0, 10, shape=with_servers(2)), job("b", 0, 10, shape=with_servers(2))]
    found = nodes(play(BATCH, works, spec))
    assert [len({node for _, node, _ in found[name]}) for name in "ab"] == [1, 1]


def test_jobs_that_must_stay_do_while_others_are_regrouped() -> None:
    """c wants a node; it does not begin, and there is nothing to regroup."""
    works = [*JAM[:2], job("c", 0, 10, shape=Shape((Role(size=2),), locality=Locality.NODE))]
    run = play(BATCH, works, TWO)
    assert run.started("c") == 10
    assert nodes(run)["a"] == [(0, 1, 1)]


def test_a_job_that_wants_a_label_keeps_its_node() -> None:
    spec = ClusterSpec(
        (NodeSpec(gpus=3, gpu_type="A"), NodeSpec(gpus=2, gpu_type="A", labels=("fast",)))
    )
    works = [job("a", 0, 10, shape=Shape((Role(),), labels=("fast",))), *JAM[1:]]
    assert nodes(play(BATCH, works, spec))["a"] == [(0, 1, 1)]


def test_jobs_of_other_gpu_types_keep_theirs() -> None:
    """d needs both nodes of its type."""
    spec = ClusterSpec((*TWO.nodes, NodeSpec(count=2, gpus=1, gpu_type="B")))
    works = [
        job(name, 0, 10, shape=Shape((Role(size=size),), gpu_types=("A",)))
        for name, size in (("a", 1), ("b", 2), ("c", 2))
    ]
    works.append(job("d", 0, 10, shape=Shape((Role(size=2),), gpu_types=("B",))))
    found = nodes(play(BATCH, works, spec))
    assert found["d"] == [(0, 2, 1), (0, 3, 1)]
    assert found["a"] == [(0, 0, 1)]
    assert nodes(play(BATCH, [works[0], works[3]], spec))["d"] == [(0, 2, 1), (0, 3, 1)]


def test_jobs_that_start_beside_each_other_stay_so_and_those_that_move_may_be_joined() -> None:
    """x and y share the GPU of the last node; the others are regrouped, and z joins a where that
    has gone."""
    known = Profiles({"m": Profile(utilisation={"gpu": 0.4})})
    spec = ClusterSpec((*TWO.nodes, NodeSpec(gpus=1, gpu_type="A")))
    works = [job("x", 0, 10, model="m"), job("y", 0, 10, model="m")]
    jam = [job("a", 0, 10, model="m"), job("b", 0, 10, size=2), job("c", 0, 10, size=2)]
    three = play(BATCH, [*works, *jam], spec, profiles=known)
    assert nodes(three)["x"] == nodes(three)["y"] == [(0, 2, 1)]
    Audit(three).walk()
    late = [*works, *jam, job("z", 1, 10, model="m")]
    run = play("liquid(share=2,limit=0.8)", late, spec, profiles=known)
    assert run.started("z") == 1
    assert len(nodes(run)["c"]) == 1


needs = st.sampled_from([Needs(), Needs(gpus=2), Needs(gpus=0, cpus=1000), Needs(cpus=500)])
gangs = st.lists(st.lists(needs, min_size=1, max_size=4), min_size=2, max_size=5)
rooms = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(0, 4), st.integers(0, 4000), st.just(0)), min_size=1
)


@given(gangs, rooms, st.integers(0, 5))
def test_the_search_never_takes_what_costs_more_or_what_is_not_there(
    drawn_gangs: list[list[Needs]], room: Room, seed: int
) -> None:
    workers = [
        Worker(number, int(need.gpus > 0), need)
        for number, gang in enumerate(drawn_gangs)
        for need in gang
    ]
    start: list[int] = []
    left = dict(room)
    for worker in workers:  # first fit; a job that does not fit is not there
        for node, free in left.items():
            rest = (free[0] - worker.needs.gpus, free[1] - worker.needs.cpus, 0)
            if min(rest) >= 0:
                start.append(node)
                left[node] = rest
                break
        else:
            return

    def cost(number: int, placed: Sequence[tuple[int, int, int]]) -> float:
        groups: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for role, node, many in placed:
            groups[role][node] = groups[role].get(node, 0) + many
        return Talk(*groups, 1.0).cost(apart)

    search = Search(workers, room, cost)
    found = search.best(tuple(start), np.random.default_rng(seed), 6, 12)
    assert search.cost(found) <= search.cost(tuple(start))
    for node, (gpus, cpus, _) in room.items():
        here = [worker.needs for worker, at in zip(workers, found, strict=True) if at == node]
        assert sum(need.gpus for need in here) <= gpus
        assert sum(need.cpus for need in here) <= cpus
    assert len(found) == len(workers)


def test_the_child_has_whole_nodes_of_its_father() -> None:
    """Four workers on two nodes each way. The father's workers on some nodes are where he has them;
    of the others those stay where the mother has them whom no such node has lost."""
    workers = [Worker(at, 1, Needs()) for at in range(4)]
    search = Search(workers, {0: (4, 0, 0), 1: (4, 0, 0), 2: (4, 0, 0)}, lambda job, placed: 0.0)
    mother, father = (0, 0, 1, 1), (1, 0, 2, 2)
    children = {search.crossed(mother, father, np.random.default_rng(seed)) for seed in range(30)}
    assert len(children) > 2
    for child in children:
        assert child is not None
        assert any(
            all(
                (child[at] == father[at])
                if father[at] in taken
                else (mother[at] in taken or child[at] == mother[at])
                for at in range(4)
            )
            for taken in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
        )


def test_a_mutant_is_made_anew_of_the_jobs_of_one_node_or_two() -> None:
    """Jobs 0 and 1 are on node 0, job 2 on node 1 and job 3 on node 2, where there is no room to
    spare: who is put back first has the choice."""
    workers = [Worker(at, 1, Needs()) for at in range(4)]
    search = Search(workers, {0: (2, 0, 0), 1: (1, 0, 0), 2: (1, 0, 0)}, lambda job, placed: 0.0)
    start = (0, 0, 1, 2)
    mutants = {search.mutated(start, np.random.default_rng(seed)) for seed in range(40)}
    assert len(mutants) > 3
    for mutant in mutants:
        assert mutant is not None
        assert sorted(mutant) == [0, 0, 1, 2]
        moved = {node for node, was in zip(mutant, start, strict=True) if node != was}
        assert len(moved) <= 2


# ---------------------------------------------------------------------- what is predicted


def test_the_forest_says_what_the_generator_says_of_graphs_that_it_has_not_seen() -> None:
    graphs = drawn(300, seed=1)
    missed = [abs(forest_use(graph) - roofline(graph)) for graph in graphs]
    assert np.mean(missed) < 0.1


def test_needs_are_predicted_instead_of_stated() -> None:
    """Light graphs share a GPU though nobody states their use; two whose memory is too much, or of
    which one is not known, do not."""
    light = Graph(1.0, 1000, 5.0, 10.0, 8)
    assert forest_use(light) < 0.5
    known = Profiles({"light": Profile(graph=light, utilisation={"gpu": 1.0})})
    small = predicted_memory(light)
    for memory, starts in ((2 * small, 1), (2 * small - 1, 10)):
        spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), (GpuType("A", memory=memory),))
        works = [job("a", 0, 10, model="light"), job("b", 1, 10, model="light")]
        assert play(BATCH, works, spec, profiles=known).started("b") == starts
        stranger = [works[0], job("b", 1, 10, model="other")]
        assert play(BATCH, stranger, spec, profiles=known).started("b") == 10


def test_bandwidth_is_gradients_over_the_time_of_a_step() -> None:
    """Two jobs of two compete for one node of two GPUs; the one with more to say gets it, although
    it comes second."""
    quiet = Profile(steps=Steps(1.0, 0.001, (10.0, 10.0, 1.0, 1.0)))
    loud = Profile(steps=Steps(0.1, 1.0, (10.0, 10.0, 1.0, 1.0)))
    spec = ClusterSpec(tuple(NodeSpec(gpus=gpus, gpu_type="A") for gpus in (2, 1, 1)))
    works = [job("a", 0, 10, size=2, model="quiet"), job("b", 0, 10, size=2, model="loud")]
    known = Profiles({"quiet": quiet, "loud": loud})
    one, both = (nodes(play(each, works, spec, profiles=known)) for each in (ALONE, BATCH))
    assert (len(one["a"]), len(one["b"])) == (1, 2)
    assert (len(both["a"]), len(both["b"])) == (2, 1)
    near = Shape((Role(size=2),), locality=Locality.NODE)
    works = [job("a", 0, 10, shape=near, model="quiet"), works[1]]
    assert len(nodes(play(BATCH, works, spec, profiles=known))["a"]) == 1, "it wants a node"


def test_its_neighbours_place_jobs_one_by_one_or_share_nothing() -> None:
    """Horus shares as it does, but takes the first place; fifo has no sharing."""
    known = Profiles({"m": Profile(utilisation={"gpu": 0.4})})
    pair: list[Work] = [job("a", 0, 10, model="m"), job("b", 0, 10, model="m")]
    starts = {
        name: play(name, pair, cluster(1, 1), profiles=known).started("b")
        for name in (BATCH, "horus", "fifo")
    }
    assert starts == {BATCH: 0, "horus": 0, "fifo": 10}
    spans = {
        name: max(len(each) for each in nodes(play(name, JAM, TWO)).values())
        for name in (BATCH, ALONE, "horus", "topology-aware")
    }
    assert spans[BATCH] == 1
    assert spans[ALONE] == spans["horus"] == 2
