"""Fragmentation gradient descent: the card's figures by hand, sums beside the definition, ties."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ganger.cli.lab.replay import replay
from ganger.cli.lab.simulate import simulate
from ganger.core.books.ledger import Ledger
from ganger.core.errors import BadInput
from ganger.core.plan import Placement, Slot
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND, WHOLE
from ganger.core.view import View
from ganger.lab.simulating.policies import load_policy, resolved
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.training.placement.fragmentation import (
    CellFragments,
    LeastFragmentation,
    Task,
    TaskClass,
    WorkloadFragments,
    class_of,
    covering,
    read_class,
    written,
)
from worlds import Work, cluster, gpus, job, play, where

HALVES = {TaskClass(0, 1, 500): 1}
HALVES_AND_WHOLES = {TaskClass(0, 1, 500): 1, TaskClass(0, 1): 1}
NOWHERE = 1 << 62


def share(thousandths: int, **more: Any) -> Shape:
    """A task that takes a part of one GPU."""
    return Shape((Role(needs=Needs(share=thousandths, **more)),))


def part(name: str, thousandths: int, at: float = 0, lasts: float = 99, **more: Any) -> Work:
    """A job that takes a part of one GPU."""
    return job(name, at, lasts, shape=share(thousandths, **more))


def one_node() -> Ledger:
    """Two GPUs, one of them with 0.4 left."""
    ledger = Ledger(Nodes(cluster(1, 2)))
    ledger.take(0, share(600), (Slot(0, 0b10, 1),))
    return ledger


def grown(ledger: Ledger, classes: dict[TaskClass, int], device: int) -> int:
    """By how much fragmentation grows if 0.3 of one device is taken."""
    fragments = CellFragments(ledger, ledger.cells[0], classes)
    before = int(fragments.fragmentation()[0])
    ledger.take(1, share(300), (Slot(0, 1 << device, 1),))
    return int(fragments.fragmentation()[0]) - before


# ---------------------------------------------------------------------- the card's hand check


def test_of_1_0_and_0_4_only_0_4_is_no_use_to_halves() -> None:
    ledger = one_node()
    assert CellFragments(ledger, ledger.cells[0], HALVES).fragmentation().tolist() == [400]


def test_0_3_of_the_device_with_0_4_takes_fragment_away_and_of_the_whole_one_leaves_it() -> None:
    assert grown(one_node(), HALVES, device=1) == -300
    assert grown(one_node(), HALVES, device=0) == 0


def test_with_half_of_the_workload_whole_a_whole_gpu_is_worth_more() -> None:
    """Of the mean over two tasks: -0.30 and +0.35."""
    assert grown(one_node(), HALVES_AND_WHOLES, device=1) == 2 * -300
    assert grown(one_node(), HALVES_AND_WHOLES, device=0) == 2 * 350


@pytest.mark.parametrize(("classes", "by"), [(HALVES, -300), (HALVES_AND_WHOLES, -600)])
def test_it_goes_to_the_partly_used_one(classes: dict[TaskClass, int], by: int) -> None:
    ledger = one_node()
    growth, device = CellFragments(ledger, ledger.cells[0], classes).growth(Task(0, 0, 300))
    assert (growth.tolist(), device.tolist()) == ([by], [1])


# ---------------------------------------------------------------------- beside the definition


def by_definition(
    free: list[int], whole: list[bool], cpus: int, classes: dict[TaskClass, int], gpu_type: str
) -> int:
    """Fragmentation, class by class, device by device."""
    total = 0
    for kind, count in classes.items():
        allowed = kind.gpu_types in ((), (gpu_type,)) and kind.cpus <= cpus
        if kind.share < WHOLE:
            runs = allowed and max(free) >= kind.share
            lost = sum(each for each in free if each < kind.share)
        else:
            runs = allowed and 0 < kind.gpus <= sum(whole)
            lost = sum(each for each, is_whole in zip(free, whole, strict=True) if not is_whole)
        total += count * (lost if runs else sum(free))
    return total


CLASSES = {
    TaskClass(0, 0): 3,
    TaskClass(2000, 1, 250): 5,
    TaskClass(4000, 1, 250): 2,
    TaskClass(4000, 1, 600): 4,
    TaskClass(1000, 1, 999, ("T4",)): 7,
    TaskClass(1000, 1, 300, ("V100",)): 9,
    TaskClass(3000, 1): 6,
    TaskClass(6000, 2): 8,
    TaskClass(8000, 3): 1,
}


def state(ledger: Ledger, node: int) -> tuple[list[int], list[bool], int]:
    """What is free on each device of a node, which are whole, and the CPUs."""
    whole = [bool(ledger.free_mask[node] >> at & 1) for at in range(3)]
    shared = ledger.shared[node]
    free = [WHOLE if whole[at] else WHOLE - shared[at][0] if at in shared else 0 for at in range(3)]
    return free, whole, ledger.free_cpus[node]


def after(ledger: Ledger, node: int, task: Task) -> list[tuple[int, int, int]]:
    """(growth, left on the device, device) of every way to place the task on a node."""
    free, whole, cpus = state(ledger, node)
    before, found = by_definition(free, whole, cpus, CLASSES, "V100"), []
    ways = [[at] for at in range(3) if task.share < WHOLE and free[at] >= max(task.share, 1)] or [
        [at for at in range(3) if whole[at]][: task.gpus]
    ] * (task.share == WHOLE)
    for way in ways:
        left, still = list(free), list(whole)
        if task.share == WHOLE and len(way) < task.gpus:
            continue
        for at in way:
            left[at], still[at] = left[at] - task.share, False
        grown = by_definition(left, still, cpus - task.cpus, CLASSES, "V100") - before
        found.append((grown, free[way[0]], way[0]) if task.share < WHOLE else (grown, 0, 0))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_growth_is_that_of_the_definition_whatever_came_and_went(seed: int) -> None:
    """One set of books is followed all along, another is looked at afresh."""
    rng = random.Random(seed)
    ledger = Ledger(Nodes(cluster(4, 3, cpus=10_000)))
    followed = CellFragments(ledger, ledger.cells[0], CLASSES)
    tasks = [
        Task(2000, 0, 250), Task(1000, 0, 600), Task(0, 0, 999), Task(3000, 1, WHOLE),
        Task(6000, 2, WHOLE), Task(4000, 0, WHOLE),
    ]  # fmt: skip
    for number in range(40):
        if ledger.holds and rng.random() < 0.4:
            ledger.give(rng.choice(sorted(ledger.holds)))
        else:
            shape = rng.choice([share(250, cpus=2000), share(600), share(350), gpus(1), gpus(2)])
            place = ledger.find(shape, draw=rng.randrange)
            if place is not None:
                ledger.take(number, shape, place)
        task = rng.choice(tasks)
        growth, devices = followed.growth(task)
        for node in range(4):
            ways = after(ledger, node, task)
            least = min(ways, default=(NOWHERE, 0, 0))
            assert growth[node] == least[0]
            assert not ways or devices[node] == least[2]
        fresh = CellFragments(ledger, ledger.cells[0], CLASSES)
        assert fresh.fragmentation().tolist() == followed.fragmentation().tolist()
        assert followed.fragmentation().tolist() == [
            by_definition(*state(ledger, node), CLASSES, "V100") for node in range(4)
        ]


def test_a_gang_wider_than_a_node_counts_as_much_of_it_as_a_node_holds() -> None:
    """Of 6 GPUs with 12 CPUs the 2 of a node with 4 CPUs: those of a node with 3.999 are of no
    use to it."""
    both = ClusterSpec(
        (NodeSpec(1, 2, "V100", cpus=4000), NodeSpec(1, 2, "V100", cpus=3999)),
    )
    ledger = Ledger(Nodes(both))
    fragments = CellFragments(ledger, ledger.cells[0], {TaskClass(12_000, 6): 1})
    assert fragments.fragmentation().tolist() == [0, 2000]


def test_classes_of_another_pool_or_type_have_no_use_for_a_node() -> None:
    ledger = Ledger(Nodes(cluster(1, 1, pool="night")))
    cell = ledger.cells[0]
    for kind, lost in (
        (TaskClass(0, 1, pool="night"), 0),
        (TaskClass(0, 1, pool="day"), 1000),
        (TaskClass(0, 1, WHOLE, ("T4", "V100")), 0),
        (TaskClass(0, 1, WHOLE, ("T4",)), 1000),
        (TaskClass(0, 0), 1000),
    ):
        assert CellFragments(ledger, cell, {kind: 1}).fragmentation().tolist() == [lost], kind


def test_a_device_that_lacks_memory_takes_no_part() -> None:
    ledger = Ledger(Nodes(cluster(1, 2)))
    size = ledger.device_memory(0)
    ledger.take(0, share(100, gpu_memory=size - 10), (Slot(0, 0b01, 1),))
    fragments = CellFragments(ledger, ledger.cells[0], HALVES)
    assert fragments.growth(Task(0, 0, 200, 10))[1].tolist() == [0]
    assert fragments.growth(Task(0, 0, 200, 11))[1].tolist() == [1]
    assert fragments.growth(Task(0, 0, 200, size + 1))[0].tolist() == [NOWHERE]


# ---------------------------------------------------------------------- which classes count


def test_a_gang_is_one_task_and_parts_are_each_one() -> None:
    worker = Needs(gpus=2, cpus=3000, memory=5)
    assert class_of(Shape((Role(size=4, needs=worker),)), 7) == (TaskClass(12_000, 8), 7)
    parts = Shape((Role(size=3, needs=Needs(share=400, cpus=2000)),), ("V100", "A100"), "night")
    kind = TaskClass(2000, 1, 400, ("A100", "V100"), "night")
    assert class_of(parts, 7) == (kind, 21)
    servers = Role(size=2, needs=Needs(gpus=0, cpus=500))
    assert class_of(Shape((servers, Role(size=2))), 1) == (TaskClass(0, 2), 1)
    assert class_of(Shape((servers,)), 1) == (TaskClass(500, 0), 2)


def test_the_most_frequent_classes_cover_a_part() -> None:
    a, b, c = (TaskClass(cpus, 1) for cpus in (1, 2, 3))
    classes = {a: 2, b: 5, c: 3}
    assert covering(classes, 1.0) == {b: 5, c: 3, a: 2}
    assert covering(classes, 0.8) == {b: 5, c: 3}
    assert covering(classes, 0.81) == {b: 5, c: 3, a: 2}
    assert covering(classes, 0.5) == {b: 5}
    assert covering(classes, 0.0) == {b: 5}
    assert covering({a: 1, b: 1}, 0.5) == {a: 1}, "the first of equals"


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("25*1x300@4/V100|T4", TaskClass(4000, 1, 300, ("T4", "V100")), 25),
        ("3*8@96.125", TaskClass(96_125, 8), 3),
        ("1*0@8", TaskClass(8000, 0), 1),
        ("2*1x1", TaskClass(0, 1, 1), 2),
        ("2*1x999/G2#night", TaskClass(0, 1, 999, ("G2",), "night"), 2),
        ("2*16#night", TaskClass(0, 16, WHOLE, (), "night"), 2),
    ],
)
def test_a_class_is_read_and_written(text: str, kind: TaskClass, count: int) -> None:
    assert read_class(text) == (kind, count)
    assert read_class(written(kind, count)) == (kind, count)


@pytest.mark.parametrize("text", ["", "8", "0*1", "1*2x300", "1*0x300", "1*1x0", "1*1@x", "@f"])
def test_what_is_no_class_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"not a valid class of tasks.*\(write count\*GPUs"):
        read_class(text)


def test_the_workload_is_that_of_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    pods = ["a,4000,1,1,300", "b,8000,1,2,1000", "c,8000,2,2,1000"]
    file.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *pods, ""]))
    policy = load_policy(f"fgd(workload=@{file}, covers=0.9)")
    assert isinstance(policy, QueuePolicy)
    workload = ((TaskClass(8000, 2), 2), (TaskClass(4000, 1, 300), 1))
    assert policy.place == LeastFragmentation(workload=workload, covers=0.9)


def test_what_is_wrong_with_an_option_is_said_of_that_option() -> None:
    with pytest.raises(BadInput, match=r"covers.*give 0 to 1\)"):
        resolved("fgd(workload=@none.csv, covers=nan)")
    with pytest.raises(BadInput, match=r"no file after the @ \(write @FILE\)"):
        load_policy("fgd(workload=@)")
    with pytest.raises(BadInput, match="files are read for simulations only") as refused:
        load_policy("fgd(workload=@jobs.csv)", recorded=True)  # as a daemon does
    assert "@FILE" not in str(refused.value)


def test_a_workload_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.csv"):
        load_policy(f"fgd(workload=@{tmp_path / 'none.csv'})")


# ---------------------------------------------------------------------- where jobs go


def places(works: list[Work], on: ClusterSpec, recipe: str = "fgd", **more: Any) -> list[str]:
    """Where each job is in the end."""
    run = play(recipe, works, on, until=10 * SECOND, **more)
    holds = run.kernel.ledger.holds
    return [where(holds[at][1]) if at in holds else "-" for at in range(len(works))]


def test_it_keeps_a_gpu_whole_where_best_fit_takes_it() -> None:
    """Best fit looks at one GPU type after another, at this one among all: 0.3 goes to the device
    that is in use and of no use to halves."""
    of_t4 = Shape((Role(needs=Needs(share=600)),), ("T4",))
    works = [job("a", 0, 99), job("b", 1, 99, shape=of_t4), part("late", 300, at=2)]
    on = ClusterSpec((NodeSpec(1, 2, "V100"), NodeSpec(1, 2, "T4")))
    assert places(works, on, "fgd(workload=1*1x500;1*1)") == ["0:0", "1:0", "1:0"]
    assert places(works, on, "fifo") == ["0:0", "1:0", "0:1"]


def test_a_device_with_more_left_is_taken_where_less_becomes_useless() -> None:
    """Halves are left room for: 0.3 beside 0.5 and 0.2 beside that would leave less than one."""
    works = [part("a", 500), part("b", 300, at=1), part("c", 200, at=2)]
    assert places(works, cluster(1, 2), "fgd(workload=1*1x500)") == ["0:0", "0:1", "0:1"]
    assert places(works, cluster(1, 2), "fifo") == ["0:0", "0:0", "0:0"]


def test_ties_go_to_the_fullest_node_or_to_the_lowest() -> None:
    """Whole GPUs are no fragment wherever they are taken from."""
    works = [job("a", 0, 99, shape=gpus(1, gpu_types=("T4",))), job("late", 1, 99)]
    on = ClusterSpec((NodeSpec(1, 2, "V100"), NodeSpec(1, 2, "T4"), NodeSpec(1, 2, "A100")))
    assert places(works, on, "fgd(workload=1*1)") == ["1:0", "1:1"]
    assert places(works, on, "fgd(workload=1*1, ties=lowest)") == ["1:0", "0:0"]
    assert places(works[:1], on, "fgd(workload=1*1)") == ["1:0"]
    assert places([job("any", 0, 99)], on, "fgd(workload=1*1)") == ["0:0"], "then to the lowest"


def test_growth_goes_before_how_full_a_node_is() -> None:
    """A pair would lose the last two of node 1: the lone GPU of the emptier node 0 is not one."""
    works = [job("a", 0, 99, 2, shape=gpus(2, labels=())), job("late", 1, 99)]
    on = ClusterSpec((NodeSpec(1, 3, "V100"), NodeSpec(1, 2, "T4")))
    assert places(works[1:], on, "fgd(workload=1*2)") == ["0:0"]
    assert places(works[1:], on, "fgd(workload=1*1)") == ["1:0"]


def test_cpus_host_memory_and_labels_limit_where_a_job_goes() -> None:
    on = ClusterSpec(
        (
            NodeSpec(1, 1, "V100", cpus=7999, memory=64),
            NodeSpec(1, 1, "V100", cpus=8000, memory=63),
            NodeSpec(1, 1, "V100", cpus=8000, memory=64),
            NodeSpec(1, 1, "V100", cpus=8000, memory=64, labels=("nvme",)),
        )
    )
    asks = Shape((Role(needs=Needs(cpus=8000, memory=64)),))
    assert places([job("a", 0, 99, shape=asks)], on) == ["2:0"]
    labelled = Shape((Role(needs=Needs(cpus=8000)),), labels=("nvme",))
    assert places([job("a", 0, 99, shape=labelled)], on) == ["3:0"]
    pair = Shape((Role(size=2, needs=Needs(cpus=4000, memory=32)),), locality=Locality.NODE)
    two = ClusterSpec(
        (
            NodeSpec(1, 2, "V100", cpus=7999, memory=64),
            NodeSpec(1, 2, "V100", cpus=9000, memory=63),
            NodeSpec(1, 2, "V100", cpus=8000, memory=64),
        )
    )
    assert places([job("a", 0, 99, shape=pair)], two) == ["2:0,1"]


def test_a_gang_that_no_node_holds_is_spread_by_best_fit() -> None:
    assert places([job("gang", 0, 99, 3)], cluster(2, 2)) == ["0:0,1 1:0"]


def test_the_first_1_2_4_jobs_count_and_no_others() -> None:
    """The third job is placed as of the first two, also if all come at once. The fourth counts when
    it is placed itself."""
    seen: dict[int, list[dict[TaskClass, int]]] = {}

    class Watching(LeastFragmentation):
        def find(self, view: View, ledger: Ledger, job: int, *more: Any) -> Placement | None:
            seen.setdefault(job, []).append(dict(self.known(view).classes))
            return super().find(view, ledger, job, *more)

    def watched(works: list[Work]) -> list[dict[TaskClass, int]]:
        seen.clear()
        play(QueuePolicy("watching", place=Watching()), works, cluster(2, 2), until=10 * SECOND)
        return [classes[0] for _, classes in sorted(seen.items())]

    works = [job("a", 0, 99), job("b", 1, 99), part("c", 100, at=2), part("d", 200, at=3)]
    four = {TaskClass(0, 1): 2, TaskClass(0, 1, 100): 1, TaskClass(0, 1, 200): 1}
    one, two = {TaskClass(0, 1): 1}, {TaskClass(0, 1): 2}
    assert watched(works) == [one, two, two, four]
    assert watched([job("a", 0, 99), job("b", 0, 99), part("c", 100)]) == [two] * 3


def test_the_books_of_a_search_do_not_pile_up() -> None:
    """Drafts of books come and go; what is known of them is dropped."""
    known = WorkloadFragments()
    known.classes = HALVES
    for _ in range(12):
        ledger = one_node()
        assert known.of(ledger, ledger.cells[0]).fragmentation().tolist() == [400]
        assert known.of(ledger, ledger.cells[0]) is known.of(ledger, ledger.cells[0])
        assert len(known.cells) <= 5


def test_what_is_recorded_holds_the_classes_and_no_file(tmp_path: Path) -> None:
    """The file may change or go: a log replays without it, and nothing recorded reads a file."""
    file, log = tmp_path / "pods.csv", tmp_path / "l.log"
    pods = ["a,4000,1,1,300", "b,8000,1,2,1000", "c,8000,2,2,1000"]
    file.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *pods, ""]))
    spec = f"fgd(workload=@{file}, covers=0.9)"
    assert resolved(spec) == "fgd(workload=2*2@8.000;1*1x300@4.000, covers=0.9)"
    assert resolved("fgd(workload=25*1x300@4)") == "fgd(workload=25*1x300@4)"
    assert resolved("own@home.py:Mine") == "own@home.py:Mine"
    with pytest.raises(BadInput, match="not a valid class"):
        load_policy(spec, recorded=True)
    (tmp_path / "t.csv").write_text("job,submitted,gpus,duration\na,0,1,5\nb,1,2,5\n")
    words = [str(tmp_path / "t.csv"), "--cluster", "1x2xV100", "-r", spec, "--log", str(log)]
    assert CliRunner().invoke(simulate, [*words, "--quiet"]).exit_code == 0
    file.unlink()
    assert CliRunner().invoke(replay, [str(log), "--check"]).exit_code == 0


def test_no_more_than_a_thousand_classes_count() -> None:
    """Tables grow with them: a trace in which every job is of its own kind may not fill memory."""
    classes = {TaskClass(cpus, 1): 1 for cpus in range(1500)}
    assert list(covering(classes, 1.0)) == list(classes)[:1000]
