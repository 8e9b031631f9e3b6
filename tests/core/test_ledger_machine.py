"""Whatever is taken, given, left, switched and rolled back, the books agree and undo exactly."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.core.books.ledger import Fit, Ledger
from ganger.core.books.occupancy import may_doze
from ganger.core.errors import InvariantError
from ganger.core.plan import Placement
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from worlds import gpus

CLUSTER = ClusterSpec(
    (
        NodeSpec(count=2, gpus=4, gpu_type="A", cpus=8000, memory=4096, island=2, nodes_per_rack=1),
        NodeSpec(count=2, gpus=2, gpu_type="A", cpus=1000, memory=1024, nodes_per_rack=2),
        NodeSpec(count=1, gpus=3, gpu_type="B", pool="p", cpus=4000),
        NodeSpec(count=1, cpus=4000, memory=2048),
    )
)


def one_role(size: int, needs: Needs) -> Shape:
    """Workers of one sort."""
    return Shape((Role(size=size, needs=needs),))


SHAPES = [
    *(gpus(size) for size in (1, 2, 3, 5)),
    gpus(2, locality=Locality.ISLAND),
    gpus(3, locality=Locality.NODE),
    gpus(2, pool="p"),
    one_role(1, Needs(share=400, gpu_memory=6000)),
    one_role(3, Needs(share=250)),
    one_role(1, Needs(gpu_memory=6000)),
    one_role(3, Needs(gpu_memory=9000, cpus=500, memory=300)),
    one_role(2, Needs(cpus=1500, memory=700)),
    one_role(1, Needs(memory=1500)),
    one_role(1, Needs(gpus=0, cpus=3000)),
    Shape((Role("ps", 1, needs=Needs(gpus=0, cpus=500)), Role("worker", 3))),
]


class Books(RuleBasedStateMachine):
    """Random dealings with one ledger, and what it looked like at every mark."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(Nodes(CLUSTER))
        self.next = 0
        self.left: list[tuple[int, Shape, Placement]] = []
        self.marks: list[tuple[int, object, list[tuple[int, Shape, Placement]]]] = []

    def look(self) -> object:
        """All that the books say."""
        ledger = self.ledger
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
            list(ledger.full),
            set(ledger.asleep),
            [cell.dozing for cell in ledger.cells],
        )

    @rule(shape=st.sampled_from(SHAPES), fit=st.sampled_from([Fit.BEST, Fit.WORST, Fit.FIRST]))
    def take(self, shape: Shape, fit: Fit) -> None:
        """Wherever it fits."""
        before = self.look()
        placement = self.ledger.find(shape, fit=fit)
        self.agrees_with_the_rule(shape, fit)
        assert self.look() == before, "looking changes nothing"
        if placement is not None:
            returned = [cell.returned for cell in self.ledger.cells]
            assert self.ledger.is_free(shape, placement)
            assert self.look() == before, "asking changes nothing"
            assert [cell.returned for cell in self.ledger.cells] == returned
            self.ledger.take(self.next, shape, placement)
            self.next += 1

    def emptiness(self, node: int) -> int:
        """Thousandths of GPUs free on a node; of cores, if it has no GPU."""
        ledger = self.ledger
        if not ledger.full[node]:
            return ledger.free_cpus[node]
        parts = sum(1000 - used for used, _ in ledger.shared[node].values())
        return 1000 * ledger.free_count[node] + parts

    def agrees_with_the_rule(self, shape: Shape, fit: Fit) -> None:
        """The first node in the fit's order that has room for all roles; and whole GPUs are placed
        as by the search that knows only GPUs, however many nodes they take."""
        ledger, sizes = self.ledger, tuple(role.size for role in shape.roles)
        sign = {Fit.BEST: 1, Fit.WORST: -1, Fit.FIRST: 0}[fit]
        for cell in ledger.cells_for(shape):
            fits = [
                node
                for node in sorted(cell.nodes, key=lambda node: (sign * self.emptiness(node), node))
                if ledger.up[node] and ledger._roles_on([node], shape.roles, sizes) is not None
            ]
            if fits and shape.locality is Locality.ANY and not shape.is_plain:
                found = ledger.find(shape, fit=fit, cells=[cell])
                assert found is not None
                assert {slot.node for slot in found} == {fits[0]}
            if not shape.is_plain or any(ledger.shared[node] for node in cell.nodes):
                continue
            known = ledger._known[id(shape)]
            for within in Locality:
                if within is Locality.ISLAND and fit is not Fit.BEST:
                    continue
                short = None
                if sizes[0] <= cell.free:
                    short = ledger._find_plain(cell, sizes[0], fit, within, None)
                assert ledger._find_roles(cell, known, sizes, fit, within, None) == short

    @rule(shape=st.sampled_from(SHAPES), parts=st.sampled_from([(500, 500), (300, 600, 200)]))
    def join(self, shape: Shape, parts: tuple[int, ...]) -> None:
        """Several on the same whole devices, as many as their parts allow."""
        found = self.ledger.find(shape)
        if found is None or any(role.needs.share < 1000 for role in shape.roles):
            return
        used = 0
        for share in parts:
            placement = tuple(msgspec.structs.replace(slot, share=share) for slot in found)
            free = self.ledger.is_free(shape, placement)
            if any(slot.devices for slot in found):
                assert not free or used + share <= 1000
                assert free or used
            if free:
                self.ledger.take(self.next, shape, placement)
                self.next, used = self.next + 1, used + share
        if any(slot.devices for slot in found):
            assert not self.ledger.is_free(shape, found)

    @precondition(lambda self: self.ledger.holds)
    @rule(data=st.data(), leaving=st.booleans())
    def give(self, data: st.DataObject, leaving: bool) -> None:
        """Somebody ends, or is told to go."""
        job = data.draw(st.sampled_from(sorted(self.ledger.holds)))
        shape = self.ledger.holds[job][0]
        asleep = job in self.ledger.asleep
        placement = self.ledger.give(job, leaving=leaving)
        if asleep:  # is always waited for, and may sleep on after all
            assert not any(slot.devices for slot in placement) or self.ledger.waits(placement)
            self.ledger.regain(job, shape, placement, asleep=True)
            assert job in self.ledger.asleep
            self.ledger.give(job)
        if leaving or asleep:
            self.left.append((job, shape, placement))
            if any(slot.devices for slot in placement):
                assert job in self.ledger.waits(placement)

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def regain(self, data: st.DataObject) -> None:
        """Somebody who was told to go may stay after all."""
        at = data.draw(st.integers(0, len(self.left) - 1))
        job, shape, placement = self.left[at]
        if self.ledger.is_free(shape, placement):
            self.ledger.regain(job, shape, placement)
            del self.left[at]
            assert self.ledger.holds[job] == (shape, placement)

    @precondition(lambda self: self.ledger.holds and not self.marks)
    @rule(data=st.data())
    def doze(self, data: st.DataObject) -> None:
        """Somebody keeps only memory, if he says how much, and wakes also where the node takes no
        others; never inside a draft."""
        ledger, job = self.ledger, data.draw(st.sampled_from(sorted(self.ledger.holds)))
        shape, placement = ledger.holds[job]
        ledger.settle()
        if job in ledger.asleep or not may_doze(shape):
            before = self.look()
            with pytest.raises(InvariantError):
                ledger.doze(job)
            assert self.look() == before
            return
        before = self.look()
        for _ in range(2):
            ledger.doze(job)
            assert ledger.holds[job] == (shape, placement)
            assert job in ledger.asleep
            if data.draw(st.booleans()):
                return
            assert ledger.wake(job)
            assert self.look() == before

    @precondition(lambda self: self.ledger.asleep and not self.marks)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        """Somebody computes again where his memory is, if nobody else does."""
        job, before = data.draw(st.sampled_from(sorted(self.ledger.asleep))), self.look()
        returned = [cell.returned for cell in self.ledger.cells]
        self.ledger.settle()
        if self.ledger.wake(job):
            assert job not in self.ledger.asleep
        else:
            assert self.look() == before
        assert [cell.returned for cell in self.ledger.cells] == returned

    @rule()
    def mark(self) -> None:
        """Remember this."""
        self.marks.append((self.ledger.mark(), self.look(), list(self.left)))

    @precondition(lambda self: self.marks)
    @rule()
    def rollback(self) -> None:
        """Everything since the last mark never was."""
        mark, before, left = self.marks.pop()
        self.ledger.rollback(mark)
        assert self.look() == before
        self.left = left

    @rule()
    def settle(self) -> None:
        """What was done stands."""
        self.ledger.settle()
        self.marks.clear()

    @precondition(lambda self: not self.marks)
    @rule(node=st.integers(0, 5), up=st.booleans())
    def switch(self, node: int, up: bool) -> None:
        """A node goes or comes; never inside a draft."""
        self.ledger.settle()
        self.ledger.switch(node, up=up)

    @precondition(lambda self: not self.marks)
    @rule(node=st.integers(0, 5), gpus=st.integers(0, 5))
    def withhold(self, node: int, gpus: int) -> None:
        """Others hold some of a node's GPUs; as many are out as nobody of ours holds."""
        self.ledger.settle()
        held = self.ledger.full[node] & ~self.ledger.free_mask[node]
        owed = self.ledger.withhold(node, gpus)
        out = self.ledger.withheld(node)
        assert out.bit_count() == gpus - owed
        assert not out & held
        assert not owed or not self.ledger.free_mask[node]

    @invariant()
    def agrees(self) -> None:
        """The books agree with themselves."""
        self.ledger.check()
        assert min(self.ledger.free_cpus) >= 0
        assert min(self.ledger.free_memory) >= 0
        assert 0 <= self.ledger.free <= self.ledger.total


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=40)
