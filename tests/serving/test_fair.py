"""Shares of tenants: one that floods, one that is modest, one that comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ganger.core.errors import BadInput
from ganger.core.serving.world import Known, World
from ganger.recipes.registry import make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import Asked, Seen, columns, lanes, model, play, speaker, table

PLAIN, TOKENS = model("m", table(10)), speaker("m", prefill=(5, 0, 0), decode=((1e9, 5, 0, 0),))
"""A request takes 10 ms of the lane; of the token model, with one further token."""
FLOOD, MODEST = 1, 2


def asks(at: float, tenant: int) -> Asked:
    return Asked(at, 0, 60.0, tenant=tenant, prompt=4, output=2)


def modest(recipe: str, known: Known, asked: Sequence[Asked]) -> tuple[float, float]:
    """Of the modest tenant: the part in time, and the longest that any took."""
    rows = sorted(asked, key=lambda one: one.at)
    seen = play(make_router(recipe), [known], lanes(1), rows)
    took = [seen.ended[at] - one.at for at, one in enumerate(rows) if one.tenant == MODEST]
    return sum(each <= 60 for each in took) / len(took), max(took)


@pytest.mark.parametrize(
    ("known", "without"),
    [
        (PLAIN, "serve.triton"),
        (TOKENS, "serve.continuous-batching(max_num_seqs=1)"),
    ],
)
def test_a_tenant_that_floods_costs_another_no_more_than_what_runs(
    known: Known, without: str
) -> None:
    """The modest one asks for less than half, 10 ms every 25. Alone it has all in 10 ms; beside 400
    requests it waits for the one that runs, and is in time as it is alone."""
    mine = [asks(5 + 25 * at, MODEST) for at in range(100)]
    both = [*mine, *(asks(0, FLOOD) for _ in range(400))]
    fair = "serve.fair(max_num_seqs=1)"
    assert modest(fair, known, mine) == (1, 10)
    in_time, longest = modest(fair, known, both)
    assert in_time == 1
    assert longest <= 30
    assert modest(without, known, both)[0] < 0.05


@pytest.mark.parametrize("known", [PLAIN, TOKENS])
@pytest.mark.parametrize(
    ("weights", "share"), [("", 1 / 2), (",weights=a:2", 2 / 3), (",weights=a:0.5;b:1.5", 1 / 4)]
)
def test_tenants_that_both_want_all_have_it_by_their_weights(
    known: Known, weights: str, share: float
) -> None:
    both = [asks(0, tenant) for tenant in (FLOOD, MODEST) for _ in range(120)]
    seen = play(make_router(f"serve.fair(max_num_seqs=1{weights})"), [known], lanes(1), both)
    first = sorted(range(240), key=seen.ended.__getitem__)[:60]
    assert sum(row < 120 for row in first) == pytest.approx(60 * share, abs=1)


@pytest.mark.parametrize("known", [PLAIN, TOKENS])
def test_a_tenant_that_comes_back_has_no_claim_on_what_it_left(known: Known) -> None:
    """It asked once, was away for 50 requests of the other, and comes with 40: from then on each
    has every second, where without the lift it had the next forty."""
    both = [
        asks(0, MODEST),
        *(asks(0, FLOOD) for _ in range(200)),
        *(asks(500, MODEST) for _ in range(40)),
    ]
    seen = play(make_router("serve.fair(max_num_seqs=1)"), [known], lanes(1), both)
    after = sorted((row for row in range(241) if seen.ended[row] > 520), key=seen.ended.__getitem__)
    assert sum(row > 200 for row in after[:20]) == pytest.approx(10, abs=1)


def test_a_tenant_is_lifted_to_the_last_that_waited_where_none_does() -> None:
    """a and b have each their request taken, one after the other, and nobody waits; then c comes
    with three, and a once more: c is lifted to what b had, so that a waits for one of c only."""
    asked = [
        Asked(0, tenant=1, prompt=40, output=2),
        Asked(1, tenant=2, prompt=40, output=2),
        *[Asked(15, tenant=3, prompt=10, output=2)] * 3,
        Asked(16, tenant=1, prompt=1, output=2),
    ]
    seen = play(make_router("serve.fair(max_num_seqs=1)"), [TOKENS], lanes(1), asked)
    order = sorted(range(6), key=seen.ended.__getitem__)
    assert order.index(5) == 3  # the first of c runs when a comes


@pytest.mark.parametrize(("write", "share"), [(2, 1 / 3), (0.5, 4 / 9)])
def test_outputs_count_as_they_are_made(write: float, share: float) -> None:
    """Prompts of 4 from both; outputs of 1 and 4 tokens: 4 + w to 4 + 4 w each."""
    asked = [
        Asked(0, tenant=tenant, prompt=4, output=output)
        for tenant, output in ((FLOOD, 4), (MODEST, 1))
        for _ in range(60)
    ]
    seen = play(make_router(f"serve.fair(max_num_seqs=1,write={write})"), [TOKENS], lanes(1), asked)
    first = sorted(range(120), key=seen.ended.__getitem__)[:60]
    expected = (4 + write) / (8 + 5 * write)
    assert sum(row < 60 for row in first) == pytest.approx(60 * expected, abs=1)
    assert expected == pytest.approx(share, abs=0.05)


def test_what_is_computed_anew_is_not_counted_again() -> None:
    """The cache has room for 12 tokens, so the second is preempted. It is lifted to the 4 tokens
    that the first was given when it came, and has 3 of its prompt and 6 that count twice."""
    known = [speaker("m")]
    world = World(known, lanes(1, cache=12), tenants=("", "a", "b"))
    asked = [
        Asked(0, tenant=1, prompt=4, output=6),
        Asked(1, tenant=2, prompt=3, output=6),
    ]
    seen = Seen(world)
    plane = Plane(world, make_router("serve.fair"), Physics(known), iter([columns(asked)]), [seen])
    plane.advance()
    plane.finish()
    assert any(6 in ran.tokens for ran in seen.batches)
    assert world.memory.turns.had == {(True, 1): 4 + 12, (True, 2): 4 + 3 + 12}


def test_models_that_share_a_lane_are_taken_by_who_had_least() -> None:
    """The flood goes to two models, the modest tenant asks a third: a third of its requests would
    be taken in turn; by counters it has half."""
    models = [model(name, table(10)) for name in "abc"]
    asked = [
        *(Asked(0, at % 2, tenant=FLOOD) for at in range(80)),
        *[Asked(0, 2, tenant=MODEST)] * 40,
    ]
    seen = play(make_router("serve.fair(max_num_seqs=1)"), models, lanes(1), asked)
    first = sorted(range(120), key=seen.ended.__getitem__)[:40]
    assert sum(row >= 80 for row in first) == pytest.approx(20, abs=1)


@pytest.mark.parametrize("text", ["a", "a:x", ":2", "a:0", "a:nan"])
def test_a_weight_is_written_with_its_tenant(text: str) -> None:
    with pytest.raises(BadInput, match="is not a tenant and a weight"):
        make_router(f"serve.fair(weights={text})")
