"""What changed in the books since the last look is what differs between two copies of them."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from ganger.core.plan import Placement, Slot
from ganger.core.spec import Shape
from ganger.mechanisms.common.holdings_delta import HoldingsDelta

Books = dict[int, tuple[Shape, Placement]]
STEP = st.tuples(st.sampled_from(["take", "give", "move", "undo", "look"]), st.integers(0, 5))


@given(st.lists(STEP, max_size=40))
def test_changes_are_the_difference_between_two_looks(steps: list[tuple[str, int]]) -> None:
    seen, holds, before = HoldingsDelta(), Books(), Books()
    for at, (verb, job) in enumerate([*steps, ("look", 0)]):
        placement = (Slot(at, 1, 1),)
        if verb == "take":
            holds.setdefault(job, (Shape(), placement))
        elif verb == "give":
            holds.pop(job, None)
        elif verb == "move" and job in holds:
            del holds[job]
            holds[job] = Shape(), placement
        elif verb == "undo" and job in holds:
            holds[job] = holds.pop(job)  # given and taken back: the same, at another place
        elif verb == "look":
            gone, come = seen.changes(SimpleNamespace(holds=holds))  # type: ignore[arg-type]
            where = {job: held for job, (_, held) in holds.items()}
            was = {job: held for job, (_, held) in before.items()}
            assert sorted(gone) == sorted(job for job in was if was[job] != where.get(job))
            assert sorted(come) == sorted(
                (job, held) for job, held in where.items() if held != was.get(job)
            )
            before = dict(holds)
