"""What policies keep between decisions: one cache of a kind for those who compete for one grant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Ledger
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.view import Scope, View


class Seen:
    """A cache."""

    def __init__(self, most: int) -> None:
        self.most = most


class Other(Seen):
    """Another kind."""


def look(*parents: int) -> View:
    """At a cluster without jobs, some of which were granted to `parents`."""
    nodes = Nodes(ClusterSpec((NodeSpec(gpus=4), NodeSpec(gpus=4))))
    view = View.__new__(View)
    view._scopes = {parent: Scope(Ledger(nodes)) for parent in (-1, *parents)}
    view._see(view._scopes[-1])
    return view


def test_a_cache_is_made_once_a_kind_and_anew_when_all_are_dropped() -> None:
    view = look()
    seen = view.cached(Seen, 3)
    assert view.cached(Seen, most=5) is seen
    assert (seen.most, view.cached(Other, 7).most) == (3, 7)
    view.forget()
    assert view.cached(Seen, 5).most == 5
    view.scratch.clear()
    assert view.cached(Seen, 6).most == 6


def test_every_grant_has_its_own() -> None:
    view = look(4)
    view.at = SimpleNamespace(phase=[int(Phase.RUNNING)] * 5)  # type: ignore[assignment]
    inner = view.inside(4)
    assert inner is not None
    assert inner.cached(Seen, 1) is not view.cached(Seen, 2)


@pytest.mark.parametrize("again", range(2))
def test_what_fits_when_nothing_runs(again: int) -> None:
    kinds = ("A", "B")
    nodes = Nodes(ClusterSpec(tuple(NodeSpec(gpus=4, gpu_type=kind, cpus=8000) for kind in kinds)))
    empty = EmptyCluster(nodes)
    four, six = Shape((Role(size=4),)), Shape((Role(size=6),))
    wide = Shape((Role(size=2, needs=Needs(gpus=1, cpus=5000)),))
    for _ in range(again + 1):
        assert empty.fits(four, within=Locality.NODE)
        assert empty.fits(four, (4,), cells=(1,))
        assert not empty.fits(four, (5,), cells=(1,))
        assert not empty.fits(six, within=Locality.NODE)
        assert not empty.fits(wide, within=Locality.NODE)
        assert empty.fits_on(Shape((Role(size=4),), gpu_types=("A",)), "A")
        assert not empty.fits_on(Shape((Role(size=4),), gpu_types=("A",)), "B")


def test_answers_are_remembered_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = EmptyCluster(Nodes(ClusterSpec((NodeSpec(gpus=4, gpu_type="A"),))))
    asked: list[Shape] = []
    find = Ledger.find

    def count(ledger: Ledger, shape: Shape, *rest: Any, **more: Any) -> Any:
        asked.append(shape)
        return find(ledger, shape, *rest, **more)

    monkeypatch.setattr(Ledger, "find", count)
    monkeypatch.setattr("ganger.core.books.empty._KEPT", 3)
    one, *others = [Shape((Role(size=n),)) for n in range(1, 7)]
    assert empty.fits(one)
    assert empty.fits(one)
    assert asked == [one]
    assert [empty.fits(each) for each in others] == [True, True, True, False, False]
    assert len(empty._known) <= 3
    assert len(empty.ledger._known) <= 4, "the books remember shapes, too"
    assert empty.fits(one)
