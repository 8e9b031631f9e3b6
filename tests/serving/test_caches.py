"""Which models stay in memory: caches of models, by hand and in shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.serving.requests import requests
from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import Evict, Load
from ganger.core.serving.world import Known, Store, World
from ganger.mechanisms.serving.residency import LoadTime, Residency
from ganger.recipes.registry import make_router
from ganger.sim.requests.trouble import Change
from ganger.workloads.requests.own import write
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import MS, Asked, Seen, model, placed, play, table

EXAMPLES = Path(__file__).parents[2] / "examples/serving"
A, B, C = (model(name, table(1), bytes_=gb, load=gb) for name, gb in (("a", 4), ("b", 4), ("c", 2)))


def served(
    router: str | Router, asks: str, room: int = 8, models: Sequence[Known] = (A, B, C)
) -> Seen:
    """One device; requests for the models that the letters name, 20 ms apart."""
    asked = [Asked(20.0 * at, "abcde".index(each)) for at, each in enumerate(asks)]
    router = make_router(router) if isinstance(router, str) else router
    return play(router, models, placed(1), asked, stores=[Store(0, room)])


def loaded(seen: Seen) -> str:
    """The models that were loaded, in order, as letters."""
    return "".join("abcde"[which] for which, _, _ in seen.loads)


def test_the_least_recently_used_goes_and_the_rest_stays() -> None:
    """Gilman et al.: 8 GB, A and B of 4, C of 2; A was used longest ago, so C takes its place, and
    B is still there."""
    seen = served("cache.lru", "abcb")
    assert loaded(seen) == "abc"
    assert seen.ended == [5, 25, 43, 61]  # load and run; the last is a hit
    assert loaded(served("cache.lru", "abca")) == "abca"
    assert loaded(served("cache.lru", "abcab")) == "abcab"  # B went for A, and C for B


def test_the_least_frequently_used_goes_though_it_was_used_last() -> None:
    assert loaded(served("cache.lfu", "aaabcb")) == "abcb"
    assert loaded(served("cache.lru", "aaabcb")) == "abc"
    assert loaded(served("cache.lfu", "bbaaacbbca")) == "bacbca"  # B's count was kept: 4 to 3


def test_who_knows_the_future_keeps_what_is_asked_for_next() -> None:
    """Belady's example: of three places for four models, the one that is needed last goes."""
    models = [model(name, table(1), bytes_=1, load=1) for name in "abcd"]
    asks = "abcdabdcab"
    clairvoyant, lru = (
        loaded(served(cache, asks, 3, models)) for cache in ("cache.clairvoyant", "cache.lru")
    )
    assert clairvoyant == "abcdc"
    assert lru == "abcdabcab"


def test_what_is_worth_least_by_uses_load_time_size_and_age_goes() -> None:
    """Gilman's rates: A 10/s, B 8/s, C 1/s, A used longest ago. B goes for C (8 < 10), and then C
    for B; under LRU A goes. And what was used often goes at last, if that was long ago."""
    asks = "a" * 10 + "b" * 8 + "cba"
    assert loaded(served("gilman", asks)) == "abcb"
    assert loaded(served("cache.lru", asks)) == "abca"
    small = [model(name, table(1), bytes_=1, load=1) for name in "abc"]
    asks = "aaaaaa" + "bc" * 12
    assert loaded(served("gilman", asks, 2, small)) == "abcbcb"
    assert loaded(served("serve.triton(cache=gdsf)", asks, 2, small)) == "abcbcb"
    assert loaded(served("cache.lfu", asks, 2, small)) == "abcbcbcbcbcbc"


@pytest.mark.parametrize(("load", "size", "goes"), [(9, 4, "a"), (4, 2, "a"), (4, 4, "b")])
def test_what_loads_for_long_or_takes_little_room_stays_though_used_less(
    load: float, size: int, goes: str
) -> None:
    """A is worth 3 uses by 4 ms by 4 bytes; B 2 uses by its load time by its size; C needs 4."""
    models = [A, model("b", table(1), bytes_=size, load=load), model("c", table(1), bytes_=4)]
    seen = served("gilman", "aaabbc" + goes, 4 + size, models)
    assert loaded(seen) == "abc" + goes


def test_what_was_evicted_last_does_not_lower_what_all_are_worth() -> None:
    """D needs the room of two. B waits for nothing and goes before A, for which a later request
    waits: the floor is what A was worth (5), though B, worth 1, went last of all before it."""
    cache, store = Residency(LoadTime()), Store(0, 2, 2, {0: 0, 1: 0})
    models = [model(name, table(1), bytes_=1, load=0.001) for name in "ab"]
    world = World([*models, model("d", table(1), bytes_=2, load=1)], placed(1), [store])
    kept = cache.begin(world)
    assert kept is not None
    cache.used(world, kept, 0, 0, 1)
    cache.used(world, kept, 0, 1, 5)
    orders = cache.load(world, kept, world.lanes[1], 2, 0, {0: 1}, ())
    assert orders == [Evict(0, 1), Evict(0, 0), Load(1, 2)]  # what a request waits for goes last
    assert kept.floor == [5.0]


def test_room_that_is_free_is_filled_before_requests_ask() -> None:
    """A goes for C (worth 4, as B is, which is younger), and leaves room for D, too. So D is there
    when it is asked for."""
    models = [A, B, C, model("d", table(1), bytes_=2, load=2)]
    asks = "dcaaaabbbcd"
    ahead, plain = (served(each, asks, 8, models) for each in ("gilman", "gilman(ahead=no)"))
    assert loaded(ahead) == "dcabcd"
    assert (ahead.ended[-1], plain.ended[-1]) == (201, 203)
    assert ahead.ended[:-1] == plain.ended[:-1]


def sized(*sizes: tuple[str, int], run: float = 1) -> list[Known]:
    """Models that load as many milliseconds as they have bytes."""
    return [model(name, table(run), bytes_=size, load=size) for name, size in sizes]


P, Q, R, NEVER_USED = sized(("p", 5), ("q", 4), ("r", 4), ("never", 1))
FAILS = [Change(300 * MS, 0, False), Change(400 * MS, 0, True)]


@pytest.mark.parametrize(("load", "again"), [(5, [1, 2]), (9, [0])])
def test_of_what_fits_that_is_loaded_ahead_which_saves_most_together(
    load: float, again: list[int]
) -> None:
    """The device fails and forgets. P would save three times 5 ms, or 9; Q and R together three
    times 4 and twice 4. A model that nobody asked for is not loaded."""
    models = [model("p", table(1), bytes_=5, load=load), Q, R, NEVER_USED]
    asked = [Asked(20.0 * at, "pqr".index(each)) for at, each in enumerate("qqqppprr")]
    asked.append(Asked(500, again[0]))
    seen = play(
        make_router("gilman"), models, placed(1), asked, stores=[Store(0, 8)], changes=FAILS
    )
    assert [which for which, began, _ in seen.loads if began >= 300] == again


def test_no_two_devices_load_the_same_model_ahead() -> None:
    """One has all three that are used. And when both have failed, they share them: Q and R save
    more than P, and P is what is left for the second."""
    asked = [Asked(20.0 * at, "pqr".index(each)) for at, each in enumerate("qqqpprr")]
    rooms = [Store(0, 13), Store(1, 9)]
    seen = play(make_router("gilman"), [P, Q, R, NEVER_USED], placed(2), asked, stores=rooms)
    assert sorted(which for which, _, _ in seen.loads) == [0, 1, 2]
    fail = [
        Change(at * MS, device, up) for at, up in ((300, False), (400, True)) for device in (0, 1)
    ]
    rooms = [Store(0, 8), Store(1, 8)]
    asked.append(Asked(500, 1))
    seen = play(make_router("gilman"), [P, Q, R], placed(2), asked, stores=rooms, changes=fail)
    assert [load for load in seen.loads if load[1] >= 300] == [
        (1, 400, 404),
        (0, 400, 405),
        (2, 404, 408),
    ]


def test_nothing_is_loaded_ahead_while_a_request_waits_for_what_is_absent() -> None:
    """C waits until A has run, which D would not have to; D has no claim on the room."""
    models = [*sized(("a", 4), run=50), *sized(("c", 5), ("d", 2), ("e", 8))]
    asked = [Asked(0, 2), Asked(20, 3), Asked(40, 0), Asked(41, 1)]
    seen = play(make_router("gilman"), models, placed(1), asked, stores=[Store(0, 8)])
    assert seen.loads == [(2, 0, 2), (3, 20, 28), (0, 40, 44), (1, 94, 99), (2, 99, 101)]


def test_a_gap_as_large_as_before_is_looked_at_again_after_an_eviction() -> None:
    """2 are free. Then X and Z go for Y, and 2 are free again: X fits."""
    models = sized(("x", 1), ("w", 1), ("z", 4), ("y", 5))
    seen = served("gilman", "abbcd", 8, models)
    assert loaded(seen) == "abcda"


def test_what_a_device_cannot_run_is_not_loaded_ahead_there() -> None:
    """X and Y run on the second device, which has room for one of them; the first has much room."""
    models = [
        *sized(("m", 1)),
        *(model(name, table(1), bytes_=4, load=4, type_="old") for name in "xy"),
    ]
    both = placed(2)
    both[1].type = both[3].type = "old"
    asked = [Asked(20.0 * at, at) for at in range(3)]
    seen = play(make_router("gilman"), models, both, asked, stores=[Store(0, 99), Store(1, 4)])
    assert loaded(seen) == "abc"


def test_any_may_go_where_chance_says_it() -> None:
    models = [model(name, table(1), bytes_=1, load=1) for name in "abcd"]
    first_gone = set()
    for seed in range(30):
        asked = [Asked(20.0 * at, at) for at in range(4)]
        more = [Asked(100.0 + 20 * at, at) for at in range(3)]
        seen = play(
            make_router("cache.random"),
            models,
            placed(1),
            [*asked, *more],
            stores=[Store(0, 3)],
            seed=seed,
        )
        first_gone.add(loaded(seen)[4])
    assert first_gone == {"a", "b", "c"}
    again = loaded(served("cache.random", "abcd" * 20, 3, models))
    assert all(again.count(each) > 3 for each in "abcd")  # not always the same one


def test_what_an_earlier_request_waits_for_is_not_evicted() -> None:
    """While A runs, requests for B and C come. One more place is there: B is loaded, and C waits
    until B has run, though B was used longest ago."""
    models = [
        model("a", table(50), bytes_=4, load=4),
        *(model(name, table(5), bytes_=4, load=4) for name in "bc"),
    ]
    asked = [Asked(0, 0), Asked(10, 1), Asked(11, 2)]
    seen = play(make_router("cache.lru"), models, placed(1), asked, stores=[Store(0, 8)])
    assert seen.loads == [(0, 0, 4), (1, 10, 14), (2, 54, 58)]
    assert seen.ended == [54, 59, 64]


def test_what_a_later_request_waits_for_goes_last() -> None:
    """While A runs, requests for D and B come at once: C goes for D, though B was used before."""
    models = [
        model("a", table(50), bytes_=1, load=1),
        *(model(name, table(5), bytes_=1, load=1) for name in "bcd"),
    ]
    asked = [Asked(0, 1), Asked(20, 2), Asked(40, 0), Asked(60, 3), Asked(60, 1)]
    seen = play(make_router("cache.lru"), models, placed(1), asked, stores=[Store(0, 3)])
    assert loaded(seen) == "bcad"


def test_a_device_with_nothing_to_run_loads_what_another_one_has() -> None:
    """A second request waits for A while it runs: the other device takes it, once it has A."""
    models = [model("a", table(50), bytes_=4, load=4)]
    seen = play(
        make_router("cache.lru"),
        models,
        placed(2),
        [Asked(0), Asked(10), Asked(11)],
        stores=[Store(0, 4), Store(1, 4)],
    )
    assert seen.loads == [(0, 0, 4), (0, 10, 14)]
    assert seen.ended == [54, 64, 104]


def test_a_request_of_a_model_that_fits_nowhere_is_refused() -> None:
    seen = served("cache.lru", "ab", 8, [A, model("huge", table(1), bytes_=9, load=1)])
    assert seen.outcomes == ["answered", "no lane runs its model"]


def test_batches_form_while_their_model_is_loaded() -> None:
    models = [model("a", table(5, 6, 7, 8), bytes_=4, load=4)] * 2
    asked = [Asked(0, 0), Asked(1, 0), Asked(2, 0)]
    seen = play(
        make_router("serve.triton(cache=lru)"), models, placed(1), asked, stores=[Store(0, 4)]
    )
    assert [(each.began, each.tasks) for each in seen.batches] == [(4, (0, 1, 2))]


CACHES = ("cache.clairvoyant", "cache.lfu", "cache.lru", "cache.random")


@pytest.mark.parametrize(("zipf", "room"), [*product((0.8, 1.2), (5, 10))])
def test_the_better_a_cache_guesses_the_less_it_loads(zipf: float, room: int) -> None:
    """Twenty models of one size, asked for by Zipf's law, seldom enough for one at a time: misses
    of the clairvoyant <= LFU <= LRU <= random."""
    models = [model(f"m{at}", table(1), bytes_=1, load=1) for at in range(20)]
    rows = generated(constant(1.0), seed=3, most=1500, mix=Mix(models=20, zipf=zipf)).gather()
    asked = [Asked(20.0 * at, which) for at, which in enumerate(rows.model.tolist())]
    misses = [
        len(play(make_router(cache), models, placed(1), asked, stores=[Store(0, room)]).loads)
        for cache in CACHES
    ]
    assert misses == sorted(misses)
    assert misses[0] < 0.8 * misses[2] < 0.8 * misses[3]
    gilman = len(
        play(make_router("gilman"), models, placed(1), asked, stores=[Store(0, room)]).loads
    )
    assert misses[0] < gilman < misses[2]  # clairvoyant, gilman, LRU


def test_only_the_clairvoyant_is_told_the_future() -> None:
    both = placed(1)
    world = World([A, B], both, [Store(0, 4)])
    with pytest.raises(BadInput, match="it does not know which requests will come"):
        make_router("cache.clairvoyant").begin(world)
    assert not any(make_router(each).can.foresees for each in CACHES[1:])


def simulated(folder: Path, *words: str) -> Result:
    """`ganger requests simulate` over a few seconds of requests for twelve models, of which four
    fit."""
    mix = Mix(models=12, zipf=1.0, slo=200_000)
    write(generated(constant(40.0), seed=1, duration=6.0, mix=mix), folder / "r.csv")
    tight = str(EXAMPLES / "tight.toml")
    told = ["simulate", str(folder / "r.csv"), "--models", tight, "--quiet", *words]
    return CliRunner().invoke(requests, told)


def test_the_table_counts_loads_and_says_who_needs_the_future(tmp_path: Path) -> None:
    """The cache that knows what comes is named as one that cannot be deployed, there and in JSON;
    the future it is told is that of the load that runs."""
    words = ("--fleet", "T4-slice:1", "-r", "cache.lru,cache.clairvoyant")
    shown = simulated(tmp_path, *words).stdout
    assert "loads" in shown
    assert shown.replace("\n", " ").count("cache.clairvoyant needs the future") == 1
    assert "cache.lru needs" not in shown
    runs = json.loads(simulated(tmp_path, *words, "--faster", "0.01", "--json").stdout)["runs"]
    assert [run["needs"] for run in runs] == [None, "future"]
    lru, best = (run["metrics"]["loads"] for run in runs)
    assert 0.5 * lru < best < 0.9 * lru


def test_who_keeps_no_models_is_told_which_recipes_do(tmp_path: Path) -> None:
    result = simulated(tmp_path, "--fleet", "T4-slice:1", "-r", "serve.triton")
    assert isinstance(result.exception, BadInput)
    assert "clockwork or cache.lru" in str(result.exception)
    assert "serve.triton(cache=lru)" in str(result.exception)
