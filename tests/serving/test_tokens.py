"""Token models by hand: steps, the cache, whole batches, lanes that go."""

from __future__ import annotations

import pytest

from ganger.core.errors import InvariantError
from ganger.core.serving.tokens import Times
from ganger.core.serving.world import World
from ganger.recipes.registry import make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import MS, Asked, Seen, columns, lanes, play, speaker

CURVED = speaker("m", prefill=(3, 0.5, 0.01), decode=((1, 2, 0.5, 0.125), (1e9, 4, 0.25, 0.0625)))
FLAT = speaker("m")
"""A step: 10 ms and 1 for each token of prompts; 5 ms and 1 for each sequence that goes on."""


def test_one_alone_takes_its_prompt_and_a_step_for_each_further_token() -> None:
    """8 tokens: 3 + 4 + 0.64 ms; then steps with 8, 9, 10 tokens in the cache."""
    seen = play(
        make_router("serve.continuous-batching"), [CURVED], lanes(1), [Asked(0, prompt=8, output=4)]
    )
    assert seen.first == [7.64]
    assert seen.ended == [7.64 + 3 * 2.5 + 0.125 * (8 + 9 + 10)]
    assert [(ran.steps, ran.tokens) for ran in seen.batches] == [(4, (8,))]


def test_a_long_prompt_is_read_in_pieces_within_the_budget() -> None:
    """4, 4 and 2 tokens: the base three times, the squares once: 100 in all."""
    seen = play(
        make_router("serve.continuous-batching(max_num_batched_tokens=4)"),
        [CURVED],
        lanes(1),
        [Asked(0, prompt=10, output=1)],
    )
    assert [ran.tokens for ran in seen.batches] == [(4,), (4,), (2,)]
    assert seen.ended == pytest.approx([3 * 3 + 10 * 0.5 + 100 * 0.01])


def test_what_comes_joins_with_the_next_step_and_the_two_share_a_base() -> None:
    """The first is read until 14 ms; then one pass reads two tokens and gives one: 12 + 6 - 5."""
    asked = [Asked(0, prompt=4, output=3), Asked(1, prompt=2, output=6)]
    seen = play(make_router("serve.continuous-batching"), [FLAT], lanes(1), asked)
    assert seen.first == [14, 14 + 13]
    assert seen.ended == [14 + 13 + 7, 14 + 13 + 7 + 4 * 6]


def test_what_comes_at_the_end_of_a_step_joins_at_once() -> None:
    """Alone, steps end at 14, 20, 26, ...; the second comes at 20."""
    asked = [Asked(0, prompt=4, output=9), Asked(20, prompt=1, output=1)]
    seen = play(make_router("serve.continuous-batching"), [FLAT], lanes(1), asked)
    assert seen.ended[1] == 20 + 10 + 1 + 6 - 5


def test_a_full_cache_preempts_the_last_which_is_computed_anew() -> None:
    """Room for 12 tokens. At 42 ms the first has 7 and the second 5, and both lack one. The second
    waits until the first has ended, and then reads its prompt and its three tokens once more."""
    asked = [Asked(0, prompt=4, output=6), Asked(1, prompt=3, output=6)]
    seen = play(make_router("serve.continuous-batching"), [FLAT], lanes(1, cache=12), asked)
    assert [(ran.began, ran.tasks, ran.tokens, ran.steps) for ran in seen.batches] == [
        (0, (0,), (4,), 1),
        (14, (0, 1), (1, 3), 3),
        (42, (0,), (1,), 1),
        (48, (0,), (1,), 1),
        (54, (1,), (6,), 3),
    ]
    assert seen.first == [14, 28]
    assert seen.ended == [54, 54 + 16 + 2 * 6]


def test_nothing_begins_in_a_step_that_preempted() -> None:
    """The same with 4 tokens a step: three tokens of the second would fit at 42 ms already."""
    asked = [Asked(0, prompt=4, output=6), Asked(1, prompt=3, output=6)]
    router = make_router("serve.continuous-batching(max_num_batched_tokens=4)")
    seen = play(router, [FLAT], lanes(1, cache=12), asked)
    assert [(ran.began, ran.tasks, ran.tokens) for ran in seen.batches[2:4]] == [
        (42, (0,), (1,)),
        (48, (0, 1), (1, 3)),
    ]


def test_no_more_sequences_run_than_the_limit() -> None:
    asked = [Asked(0, prompt=1, output=2)] * 3
    seen = play(make_router("serve.continuous-batching(max_num_seqs=2)"), [FLAT], lanes(1), asked)
    assert seen.ended == [12 + 7, 12 + 7, 19 + 11 + 6]


def test_tenants_that_are_named_go_first_and_are_preempted_last() -> None:
    """Of three that wait for one place the one of b goes first; and its cache is not taken."""
    one = "serve.continuous-batching(max_num_seqs=1,first=b)"
    asked = [
        Asked(0, tenant=1, prompt=1, output=3),
        Asked(1, tenant=1, prompt=1, output=1),
        Asked(2, tenant=2, prompt=1, output=1),
    ]
    seen = play(make_router(one), [FLAT], lanes(1), asked)
    assert seen.ended == [23, 45, 34]
    asked = [Asked(0, tenant=1, prompt=4, output=6), Asked(1, tenant=2, prompt=3, output=6)]
    for room in (12, 13):  # at 42 ms the first has none; or one, which it must give back
        for first, order in (("b", [1, 0]), ("a", [0, 1])):
            router = make_router(f"serve.continuous-batching(first={first})")
            seen = play(router, [FLAT], lanes(1, cache=room), asked)
            assert sorted((0, 1), key=seen.ended.__getitem__) == order


def test_what_a_preempted_sequence_was_given_in_the_step_goes_to_others() -> None:
    """Room for 13 tokens, 12 in use. The first of three is given the last place and one of four
    tokens; both are taken back for those of tenant b, and three tokens of a prompt are read."""
    asked = [
        Asked(0, tenant=1, prompt=4, output=9),
        Asked(1, tenant=2, prompt=1, output=9),
        Asked(2, tenant=2, prompt=9, output=1),
    ]
    router = make_router("serve.continuous-batching(max_num_batched_tokens=4,first=b)")
    seen = play(router, [FLAT], lanes(1, cache=13), asked)
    assert [(ran.tasks, ran.tokens) for ran in seen.batches[:4]] == [
        ((0,), (4,)),
        ((0, 1, 2), (1, 1, 2)),
        ((0, 1, 2), (1, 1, 2)),
        ((1, 2), (1, 3)),
    ]


def test_two_models_on_a_lane_take_turns_and_do_not_take_the_cache_in_turn() -> None:
    """Either fits alone, both do not: the one that found no room waits until the other is over,
    and does not begin to fill the cache again."""
    asked = [Asked(0, 0, prompt=90, output=5), Asked(0, 1, prompt=90, output=5)]
    router = make_router("serve.continuous-batching(max_num_batched_tokens=10)")
    seen = play(router, [FLAT, FLAT], lanes(1, cache=100), asked)
    assert seen.made == [5, 5]
    assert [ran.model for ran in seen.batches[:10]] == [0, 1] * 5
    assert len(seen.batches) < 2 * (9 + 4) + 9


def test_a_batch_of_whole_requests_takes_the_longest_output() -> None:
    """Prompts of 4 and 2, outputs of 2 and 5: 16 ms, and four steps of two; all end together."""
    asked = [Asked(0, prompt=4, output=2), Asked(0, prompt=2, output=5)]
    seen = play(make_router("serve.triton"), [FLAT], lanes(1), asked)
    assert seen.ended == [16 + 4 * 7] * 2
    assert seen.first == [16, 16]
    assert seen.made == [2, 5]


def test_a_whole_batch_that_does_not_fit_is_done_in_rounds() -> None:
    """Each grows to 6 tokens, and there is room for 13."""
    asked = [Asked(0, prompt=4, output=3)] * 3
    seen = play(make_router("serve.triton"), [FLAT], lanes(1, cache=13), asked)
    assert seen.first == [18, 18, 18 + 14 + 14]
    assert seen.ended == [18 + 14 + 14 + 12] * 3
    with pytest.raises(InvariantError, match="room for 5 tokens, not 6"):
        play(make_router("serve.triton"), [FLAT], lanes(1, cache=5), asked)


def test_a_million_tokens_are_few_orders() -> None:
    world = World([FLAT], lanes(1))
    seen = Seen(world)
    asked = [Asked(0, prompt=5, output=1_000_000), Asked(9_000, prompt=5, output=2)]
    plane = Plane(
        world,
        make_router("serve.continuous-batching"),
        Physics([FLAT]),
        iter([columns(asked)]),
        [seen],
    )
    plane.advance()
    plane.finish()
    assert plane.batches == 3
    assert seen.ended[0] == 15 + (1_000_000 - 1) * 6 + (15 - 5) + 1  # read beside, and a step of 7


@pytest.mark.parametrize("drains", [False, True])
def test_what_a_lane_that_goes_had_is_computed_anew_elsewhere(drains: bool) -> None:
    """The first lane has two. Alone the first steps end at 14 and 27 ms; it goes at 50. Lost, both
    are read anew with the tokens that were put out; drained, it ends the steps until the first is
    over, and only the other is."""
    world = World([FLAT], lanes(2, cache=100))
    seen = Seen(world)
    asked = [
        Asked(0, prompt=4, output=9),
        Asked(1, prompt=4, output=20),
        Asked(2, prompt=2, output=30),
    ]
    plane = Plane(
        world,
        make_router("serve.continuous-batching"),
        Physics([FLAT]),
        iter([columns(asked)]),
        [seen],
    )
    plane.advance(50 * MS)
    plane.turn(0, 50 * MS, up=False, drains=drains)
    plane.advance()
    plane.finish()
    assert seen.outcomes == ["answered"] * 3
    assert seen.made == [9, 20, 30]
    assert seen.first == [14, 15, 27]
    again = [
        (row, ran.tokens[ran.tasks.index(row)])
        for ran in seen.batches
        if ran.lane == 1
        for row in (0, 2)
        if row in ran.tasks and ran.tokens[ran.tasks.index(row)] > 1
    ]
    if drains:
        assert seen.ended[0] == 27 + 7 * 7
        assert again == [(2, 2 + 8)]
    else:
        assert again == [(0, 4 + 5), (2, 2 + 4)]


def test_tables_are_linear_between_points_and_beyond() -> None:
    times = Times(prefill_table=((10, 20), (4.0, 6.0)), decode_table=((1, 4), (2.0, 5.0)))
    assert [times.micros(tokens, 0, 0, 0) for tokens in (1, 10, 15, 30)] == [4, 4, 5, 8]
    assert [times.micros(0, 0, count, 99) for count in (1, 3, 6)] == [2, 4, 7]
    assert times.micros(15, 0, 3, 99) == 5 + 4 - 2
    assert times.whole([10, 10], 3) == 6 + 2 * 3


def test_whole_requests_have_more_behind_them_with_every_step() -> None:
    """1 ms, then two steps with 5 and 7 tokens in the cache."""
    times = Times(prefill=(1, 0, 0), decode=((9, 1, 0, 0.5),))
    assert times.whole([2, 3], 3) == 1 + (1 + 2.5) + (1 + 3.5)
