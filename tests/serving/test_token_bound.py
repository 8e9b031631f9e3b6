"""The bound on goodput of token models: never below what any batching of steps could reach."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.serving.tokens import Times
from ganger.core.serving.world import Known, Latencies
from ganger.core.units import NEVER
from ganger.lab.serving.yardsticks.bound import Bound, bounded
from ganger.lab.serving.yardsticks.rates import Rates, Talking

pytestmark = pytest.mark.long


class Talk(NamedTuple):
    """A request, in microseconds."""

    at: int
    within: int
    prompt: int
    output: int


class Row(NamedTuple):
    """How far a request is: what was put out and when first, on which lane so many tokens of it
    were computed, and whether it runs (a step that ends gives it so many)."""

    made: int = 0
    first: int = 0
    lane: int = -1
    computed: int = 0


def known(name: str, times: dict[str, Times], each: int = 1) -> Known:
    """A token model; what whole requests take is of no account here."""
    whole = Latencies([0, 1], [0, 1])
    return Known(name, {(type_, 1.0): whole for type_ in times}, tokens=times, cache_bytes=each)


def bound(
    lanes: list[Times],
    asked: list[Talk],
    room: int = -1,
    ttft: int = NEVER,
    tpot: int = NEVER,
    chunk: int = 100,
) -> Bound:
    """With lanes of types of their own, but for those that are alike."""
    types = list(dict.fromkeys(lanes))
    names = {times: f"type{at}" for at, times in enumerate(types)}
    counts = [(names[times], lanes.count(times)) for times in types]
    rooms = {} if room < 0 else dict.fromkeys(names.values(), room)
    model = known("m", {name: times for times, name in names.items()})
    rates = Rates([model], counts, [(0,)], talking=Talking(rooms, slo_ttft=ttft, slo_tpot=tpot))
    rows = sorted(asked)
    some = (rows[at : at + chunk] for at in range(0, len(rows), chunk))
    return bounded(map(columns, some), rates)


def columns(asked: list[Talk]) -> dict[str, list[int]]:
    """As the plane takes them."""
    return {
        "arrival": [one.at for one in asked],
        "deadline": [min(one.at + one.within, NEVER) for one in asked],
        "model": [0] * len(asked),
        "prompt": [one.prompt for one in asked],
        "output": [one.output for one in asked],
    }


def optimum(
    lanes: list[Times], asked: list[Talk], room: int = -1, ttft: int = NEVER, tpot: int = NEVER
) -> int:
    """The most in time, by trying whatever each step of each lane may be made of, and giving up
    what a lane keeps of a request at any time."""
    rows = sorted(asked)

    def step(lane: int, counts: dict[int, int], state: tuple[Row, ...]) -> int:
        tokens = squares = sequences = context = 0
        for at, count in counts.items():
            before = state[at].computed if state[at].lane == lane else 0
            if count == 1 and before:
                sequences, context = sequences + 1, context + before
            else:
                tokens, squares = tokens + count, squares + (before + count) ** 2 - before**2
        return max(round(lanes[lane].micros(tokens, squares, sequences, context)), 1)

    def in_time(at: int, row: Row, now: int) -> bool:
        given = max(row.made - 1, 1)
        return (
            now <= rows[at].at + rows[at].within
            and row.first - rows[at].at <= ttft
            and (row.made < 2 or round((now - row.first) / given) <= tpot)
        )

    @cache
    def most(
        now: int,
        idle_from: int,
        busy: tuple[tuple[int, tuple[tuple[int, int], ...]], ...],
        state: tuple[Row, ...],
    ) -> int:
        """Lanes before `idle_from` have been asked what they do now."""
        running = {at for _, counts in busy for at, _ in counts}
        for lane in range(idle_from, len(lanes)):
            if busy[lane][1]:
                continue
            found = most(now, lane + 1, busy, state)
            free = [
                at
                for at, row in enumerate(state)
                if rows[at].at <= now <= rows[at].at + rows[at].within
                and at not in running
                and row.made < rows[at].output
            ]
            options = []
            for at in free:
                row = state[at]
                have = row.computed if row.lane == lane else 0
                lacks = rows[at].prompt + row.made - have
                mine = [(have, count) for count in range(lacks + 1)]
                if have and len(rows) < 3:  # or it is given up, and computed anew
                    mine += [(0, count) for count in range(1, have + lacks + 1)]
                options.append(mine)
            for chosen in product(*options):
                counts = {at: count for at, (_, count) in zip(free, chosen, strict=True) if count}
                if not counts:
                    continue
                after = list(state)
                for at, (have, _) in zip(free, chosen, strict=True):
                    if at in counts:
                        after[at] = state[at]._replace(lane=lane, computed=have)
                held = sum(row.computed for row in after if row.lane == lane)
                if 0 <= room < held + sum(counts.values()):
                    continue
                took = step(lane, counts, tuple(after))
                doing = (*busy[:lane], (now + took, tuple(counts.items())), *busy[lane + 1 :])
                found = max(found, most(now, lane + 1, doing, tuple(after)))
            return found
        times = [until for until, these in busy if these]
        times += [one.at for one in rows if one.at > now]
        if not times:
            return 0
        then, done, after = min(times), 0, list(state)
        left: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        for until, these in busy:
            if not these or until > then:
                left.append((until, these) if these else (0, ()))
                continue
            left.append((0, ()))
            for at, count in these:
                row = after[at]._replace(computed=after[at].computed + count)
                if row.computed == rows[at].prompt + row.made:
                    row = row._replace(made=row.made + 1, first=row.first or then)
                if row.made == rows[at].output:
                    done += in_time(at, row, then)
                    row = row._replace(lane=-1, computed=0)
                after[at] = row
        return done + most(then, 0, tuple(left), tuple(after))

    return most(0, 0, ((0, ()),) * len(lanes), (Row(),) * len(rows))


small = st.floats(0, 6, allow_nan=False, width=16)
lines = st.builds(
    lambda base, token, squared, start, each, context, later: Times(
        (base, token, squared / 8),
        ((2, start, each, context / 4), (1e18, later, each, context / 4)),
    ),
    small,
    small,
    small,
    small,
    small,
    small,
    small,
)
rising = st.lists(st.integers(1, 9), min_size=2, max_size=3).map(
    lambda steps: tuple(float(sum(steps[: at + 1])) for at in range(len(steps)))
)
tables = st.builds(
    lambda reads, gives: Times(
        prefill_table=((1, 2, 4)[: len(reads)], reads),
        decode_table=((1, 2, 3)[: len(gives)], gives),
    ),
    rising,
    rising,
)


def talks(output: int) -> st.SearchStrategy[Talk]:
    """Requests with at most so many tokens of output."""
    slack = st.integers(1, 30)
    return st.builds(Talk, st.integers(0, 9), slack, st.integers(1, 2), st.integers(1, output))


slos: dict[str, Any] = {
    "ttft": st.one_of(st.just(NEVER), st.integers(1, 20)),
    "tpot": st.one_of(st.just(NEVER), st.integers(1, 12)),
}


@settings(max_examples=25)
@given(
    times=st.one_of(lines, tables),
    asked=st.one_of(
        st.lists(talks(3), min_size=1, max_size=2), st.lists(talks(2), min_size=3, max_size=3)
    ),
    room=st.one_of(st.just(-1), st.integers(4, 8)),
    **slos,
)
def test_it_is_never_below_the_optimum_of_one_lane(
    times: Times, asked: list[Talk], room: int, ttft: int, tpot: int
) -> None:
    found = bound([times], asked, room, ttft, tpot)
    assert found.in_time >= optimum([times], asked, room, ttft, tpot) - 1e-6


@settings(max_examples=8)
@given(
    lanes=st.lists(st.one_of(lines, tables), min_size=2, max_size=2),
    asked=st.lists(talks(2), min_size=1, max_size=2),
    room=st.one_of(st.just(-1), st.integers(4, 6)),
    **slos,
)
def test_it_is_never_below_the_optimum_of_two_types(
    lanes: list[Times], asked: list[Talk], room: int, ttft: int, tpot: int
) -> None:
    found = bound(lanes, asked, room, ttft, tpot)
    assert found.in_time >= optimum(lanes, asked, room, ttft, tpot) - 1e-6


SLOW, QUICK = (Times((4, 1, 0), ((1e18, start, 1, 0),)) for start in (10, 5))


def test_the_start_of_a_step_is_shared_by_the_tokens_that_the_cache_holds() -> None:
    """Four tokens are read at 1 us; two are given, 1 us each and a part of the start of 9.5 us (a
    step may be rounded): 4 and 5 of the 20 tokens that have room."""
    asked = [Talk(0, 1000, 4, 3)] * 200
    assert bound([SLOW], asked, room=20).in_time == pytest.approx(
        1000 / (4 + 2 + 9.5 * (4 + 5) / 20), rel=0.02
    )
    assert bound([SLOW], asked).in_time == pytest.approx(1000 / (4 + 2), rel=0.02)


def test_tokens_that_must_come_quickly_allow_small_batches_only() -> None:
    """12 us for a token, or 12.5 as times are rounded, are steps of up to three: a third of one."""
    asked = [Talk(0, 1000, 20, 21)] * 100
    hurried = bound([SLOW], asked, tpot=12).in_time
    assert hurried == pytest.approx(1000 / (20 + 20 * 12.5 / 3), rel=0.02)
    assert bound([SLOW], asked).in_time == pytest.approx(1000 / (20 + 20), rel=0.02)
    assert bound([SLOW], asked, tpot=9).in_time == 0


def test_prompts_alone_decide_where_first_tokens_are_wanted_early() -> None:
    """100 prompts of 10 tokens at 1 us a token, all at once: 20 are read in 200 us."""
    asked = [Talk(0, NEVER, 10, 2)] * 100
    assert bound([SLOW], asked, ttft=200).in_time == pytest.approx(20, rel=0.02)
    assert bound([SLOW, QUICK], asked, ttft=200).in_time == pytest.approx(40, rel=0.02)


def test_what_has_no_deadline_is_in_time() -> None:
    assert bound([SLOW], [Talk(0, NEVER, 10, 9)] * 50).attainment == 1
    assert bound([SLOW], [Talk(0, 5, 10, 9), Talk(0, NEVER, 10, 9)]).in_time == 1
