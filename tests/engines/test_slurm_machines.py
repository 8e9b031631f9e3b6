"""Nodes that come, go and change, and GPUs that others hold, without any Slurm."""

from __future__ import annotations

import pytest

from ganger.core.errors import BadInput
from ganger.engines.agent.protocol import Hello, Used
from ganger.engines.machines import Box
from ganger.engines.slurm.calls.answers import Job, Node
from ganger.engines.slurm.calls.client import options_of
from ganger.engines.slurm.machines import Machines


def node(name: str, gpus: int = 4, *, used: int = 0, state: str = "IDLE", **more: int) -> Node:
    """A node as Slurm tells of it; `more` GPUs by type."""
    kinds = {"v100": gpus, **more}
    return Node(name, name, kinds, 16000, 16000, ("main",), frozenset({state}), gpus_used=used)


def running(name: str, *devices: int) -> Job:
    """A job that holds devices of a node."""
    return Job(7, "theirs", "", frozenset({"RUNNING"}), "", (name,), 0, {name: devices})


class Told:
    """What was told of machines, in words."""

    def __init__(self, refuses: str = "") -> None:
        self.said: list[str] = []
        self.wrong: dict[str, list[str]] = {}
        self.refuses = refuses
        self.machines = Machines(
            self.admit, lambda name, wrong: self.wrong.update({name: [*wrong]})
        )

    def admit(self, hello: Hello) -> list[int]:
        if hello.name == self.refuses:
            raise BadInput("nobody asked for it")
        return [len(self.machines.boxes)]

    def lost(self, box: Box) -> None:
        self.said.append(f"{box.hello.name} lost")

    def closed(self, box: Box) -> None:
        self.said.append(f"{box.hello.name} closed")

    def opened(self, box: Box) -> None:
        box.down = False
        self.said.append(f"{box.hello.name} opened")

    def withheld(self, box: Box, gpus: int) -> None:
        self.said.append(f"{box.hello.name} {gpus} withheld")

    def used(self, box: Box, message: Used) -> None:
        """Of no interest here."""

    def evict(self, node: int, why: str) -> None:
        raise AssertionError("Slurm's nodes are closed or lost")

    def welcomed(self, box: Box) -> None:
        raise AssertionError("that is the fleet's")

    def told(self, box: Box, message: object) -> None:
        raise AssertionError("that is the fleet's")

    def look(self, *nodes: Node, jobs: tuple[Job, ...] = (), seen: bool = True) -> list[str]:
        """One look at the cluster; `seen`: `jobs` are shown to us. What was told of it."""
        shown = jobs if seen else ()
        new = self.machines.update(nodes, shown)
        self.said = [f"{box.hello.name} new" for box in new]
        self.machines.tell(self, shown)
        return self.said


def test_nodes_come_and_go_and_come_back() -> None:
    told = Told()
    assert told.look(node("a")) == ["a new"]
    assert told.look(node("a"), node("b")) == ["b new"]
    assert told.look(node("b")) == ["a lost"]
    assert told.look(node("b")) == []
    assert told.look(node("a"), node("b")) == ["a opened"]
    assert told.look(node("a", state="DRAINING"), node("b")) == ["a closed"]
    assert told.look(node("a", state="DOWN"), node("b")) == ["a lost"]
    assert told.look(node("a"), node("b")) == ["a opened"]


def test_a_node_whose_gpus_changed_is_not_used_until_they_are_back() -> None:
    told = Told()
    told.look(node("a"))
    assert told.look(node("a", 2)) == ["a lost"]
    assert told.wrong == {"a": ["its GPUs are not what they were: not used"]}
    assert told.look(node("a")) == ["a opened"]
    assert told.wrong == {"a": []}


def test_nodes_that_cannot_be_used_are_named() -> None:
    told = Told(refuses="c")
    assert told.look(node("a"), node("b", k80=2), node("c")) == ["a new"]
    assert told.wrong == {"b": ["it has GPUs of two types: left out"], "c": ["nobody asked for it"]}


def test_what_others_hold_is_counted_gpu_by_gpu() -> None:
    told = Told()
    told.look(node("a"))
    assert told.look(node("a", used=2), jobs=(running("a", 0, 3),)) == ["a 2 withheld"]
    assert told.look(node("a", used=3), jobs=(running("a", 0, 3), running("a", 1))) == [
        "a 3 withheld"
    ]
    assert told.look(node("a")) == ["a 0 withheld"]


def test_what_a_site_hides_from_us_is_seen_on_the_node_after_some_looks() -> None:
    told = Told()
    told.look(node("a"))
    theirs = (running("a", 0),)
    looks = [told.look(node("a", used=1), jobs=theirs, seen=False) for _ in range(3)]
    assert looks == [[], [], ["a 1 withheld"]]
    assert told.look(node("a")) == ["a 0 withheld"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-A vision", "not a long option"),
        ("--account='vision", "No closing quotation"),
        ("--nodes=3", "for Ganger to give"),
        ("rm -rf", "not a long option"),
    ],
)
def test_options_that_sbatch_must_not_get_from_people(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        options_of(text)


def test_options_for_sbatch_may_hold_blanks() -> None:
    assert options_of("--account=vision --constraint='a100 & nvlink'") == (
        "--account=vision",
        "--constraint=a100 & nvlink",
    )
