"""What holds for every router that is registered, on random requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Known, Latencies, Store
from ganger.recipes.registry import make_router, recipes
from serving.rig import CODES, MS, Asked, OneByOne, Seen, lanes, model, placed, play, table
from soaking import examples

ROUTERS = [
    *recipes("requests"),
    "serve.triton(size=4,delay=7ms,preferred=2;3)",
    "serve.triton(size=2,longest=3)",
    "serve.fixed-batch(size=3,timeout=2ms)",
    "serve.least-loaded(size=4)",
    "serve.power-of-two(size=4)",
    "clockwork(margin=0)",
    "serve.bentoml(size=3,latency=20ms)",
    "serve.fixed-batch(size=3,timeout=2ms,cache=random)",
    "serve.least-loaded(size=4,cache=lfu)",
    "nanily(cache=lru)",
]
MODELS: list[Known] = [
    model("a", table(5, 7, 8, 12, p99=1.3), bytes_=40, load=3),
    model("b", table(9, 9.5, 11, p99=1.1), bytes_=50, load=20),
    model("c", table(1, 2, p99=2), bytes_=30, load=0.5),
]
REQUESTS = st.lists(
    st.builds(
        Asked,
        st.integers(0, 80).map(lambda at: at / 2),
        st.integers(0, 2),
        st.sampled_from([4.0, 12.0, 30.0, 200.0]),
        st.sampled_from([1, 1, 1, 2]),
        **CODES,
    ),
    min_size=1,
    max_size=40,
)


def shown(seen: Seen) -> Any:
    return seen.batches, seen.outcomes, seen.ended


@pytest.mark.parametrize("recipe", ROUTERS)
@examples(10)
@given(asked=REQUESTS, count=st.integers(3, 5), seed=st.integers(0, 3))
def test_it_breaks_no_rule_and_decides_a_range_as_its_rows(
    recipe: str, asked: list[Asked], count: int, seed: int
) -> None:
    """The watch holds the rules: see `Seen`. Twice the same, and in chunks, gives the same."""
    router = make_router(recipe)
    seen = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed)
    for batch in seen.batches:
        measured: Latencies = MODELS[batch.model].latencies["gpu", 1.0]
        whole = [row for row in batch.tasks if row >= 0]  # others are parts of requests
        items = sum(sorted(asked, key=lambda one: one.at)[row].items for row in whole)
        assert items <= measured.largest
        for row in whole:
            assert seen.ended[row] == batch.ended
            assert seen.outcomes[row] == "answered"
            assert seen.by[row] == batch.model == sorted(asked, key=lambda one: one.at)[row].model
    again = play(OneByOne(router), MODELS, lanes(count), asked, noise=1.0, seed=seed)
    assert shown(again) == shown(seen)
    chunks = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed, chunk=3)
    assert shown(chunks) == shown(seen)


@pytest.mark.parametrize("recipe", [each for each in ROUTERS if not make_router(each).can.foresees])
@examples(10)
@given(asked=REQUESTS, cut=st.integers(0, 80).map(lambda at: at / 2))
def test_what_comes_later_changes_no_batch_before(
    recipe: str, asked: list[Asked], cut: float
) -> None:
    router = make_router(recipe)
    early = [one for one in asked if one.at < cut]
    if early:
        all_ = play(router, MODELS, lanes(3), asked, noise=1.0)
        some = play(router, MODELS, lanes(3), early, noise=1.0)
        before = [batch for batch in all_.batches if batch.began < cut]
        assert before == [batch for batch in some.batches if batch.began < cut]


@pytest.mark.parametrize("recipe", [each for each in ROUTERS if make_router(each).can.loads])
@examples(10)
@given(asked=REQUESTS, room=st.integers(50, 130), count=st.integers(1, 3))
def test_models_are_loaded_before_they_run_and_memory_is_never_exceeded(
    recipe: str, asked: list[Asked], room: int, count: int
) -> None:
    """`Seen` looks at the stores after everything that a lane does."""
    both = placed(count)
    stores = [Store(at, room) for at in range(count)]
    seen = play(make_router(recipe), MODELS, both, asked, stores=stores, noise=1.0)
    for batch in seen.batches:
        assert any(
            loaded == batch.model and ended <= batch.began for loaded, _, ended in seen.loads
        )


def test_a_model_is_loaded_for_the_first_request_and_evicted_for_another() -> None:
    both = placed(1)
    asked = [Asked(0, 0, 100), Asked(1, 0, 100), Asked(50, 1, 100), Asked(120, 0, 100)]
    seen = play(make_router("clockwork"), MODELS, both, asked, stores=[Store(0, 60)])
    assert seen.loads == [(0, 0, 3), (1, 50, 70), (0, 120, 123)]
    assert seen.outcomes == ["answered"] * 4
    assert seen.ended == [10, 10, 79, 128]
    assert seen.batches[0].began == 3 * MS / MS
