"""The plane of columns and ranges decides as one that handles every request by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganger.core.serving.world import Lane, Store
from ganger.recipes.registry import make_router
from serving.reference import Naive
from serving.rig import CODES, MS, Asked, lanes, placed, play
from serving.test_awkward import MINIS
from serving.test_every_router import MODELS, REQUESTS, ROUTERS
from soaking import examples


def some_lanes(count: int, streams: int) -> list[Lane]:
    """Devices with so many lanes each."""
    return [Lane(at, "gpu", device=at // streams) for at in range(count * streams)]


@pytest.mark.parametrize("recipe", ROUTERS)
@examples(10)
@given(asked=REQUESTS, count=st.integers(3, 4), seed=st.integers(0, 3))
def test_every_router_is_driven_as_by_the_naive_plane(
    recipe: str, asked: list[Asked], count: int, seed: int
) -> None:
    streams = make_router(recipe).can.streams
    naive = Naive(make_router(recipe), MODELS, some_lanes(count, streams), asked, (), seed)
    naive.play()
    seen = play(
        make_router(recipe), MODELS, some_lanes(count, streams), asked, noise=1.0, seed=seed
    )
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended
    assert list(naive.world.requests.by) == seen.by


@examples(10)
@given(asked=REQUESTS, count=st.integers(1, 3), seed=st.integers(0, 3))
def test_so_is_one_that_stops_what_runs(asked: list[Asked], count: int, seed: int) -> None:
    peaks = (0.7, 0.4, 0.3)
    models = [
        replace(each, borders=(0.2, 0.5, 0.8), peaks={("gpu", 1.0): peak})
        for each, peak in zip(MODELS, peaks, strict=True)
    ]
    naive = Naive(make_router("irina"), models, some_lanes(count, 2), asked, (), seed)
    naive.play()
    seen = play(make_router("irina"), models, some_lanes(count, 2), asked, noise=1.0, seed=seed)
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended


def test_a_model_of_small_batches_is_not_waited_for_as_one_of_large_ones() -> None:
    """A batch of model 2 is full with two requests; while one of model 0, whose batches hold four,
    waits for three more, two of model 2 are sent as soon as they come."""
    asked = [Asked(0.0, 0, 4.0), Asked(0.5, 2, 4.0), Asked(0.5, 2, 4.0)]
    seen = play(make_router("serve.fixed-batch"), MODELS, some_lanes(3, 1), asked)
    assert [(batch.model, batch.began) for batch in seen.batches] == [(2, 0.5), (0, 10.0)]


@pytest.mark.parametrize("recipe", [each for each in ROUTERS if make_router(each).can.loads])
@examples(10)
@given(asked=REQUESTS, room=st.integers(50, 130), count=st.integers(1, 3))
def test_so_is_one_that_loads_models(
    recipe: str, asked: list[Asked], room: int, count: int
) -> None:
    stores = [Store(at, room) for at in range(count)]
    naive = Naive(make_router(recipe), MODELS, placed(count), asked, stores, 0)
    naive.play()
    again = [Store(at, room) for at in range(count)]
    seen = play(make_router(recipe), MODELS, placed(count), asked, stores=again, noise=1.0)
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches


@pytest.mark.parametrize("mini", MINIS)
@given(
    asked=st.lists(
        st.builds(
            Asked,
            st.integers(0, 120).map(lambda at: at / 2),
            st.integers(0, 1),
            st.sampled_from([15.0, 60.0, 1e4]),
            st.just(1),
            **CODES,
        ),
        min_size=1,
        max_size=20,
    ),
    seed=st.integers(0, 3),
)
def test_the_awkward_ones_keep_the_rules_and_are_driven_alike(
    mini: str, asked: list[Asked], seed: int
) -> None:
    """The watch holds the rules: see `Seen`."""
    router, loads = MINIS[mini]

    def where() -> tuple[list[Lane], list[Store]]:
        return (placed(2), [Store(at, 90) for at in range(2)]) if loads else (lanes(3), [])

    if loads:
        asked = [one._replace(model=0) for one in asked]
    naive_lanes, naive_stores = where()
    naive = Naive(router(), MODELS[:2], naive_lanes, asked, naive_stores, seed)
    naive.play()
    seen_lanes, seen_stores = where()
    seen = play(router(), MODELS[:2], seen_lanes, asked, stores=seen_stores, noise=1.0, seed=seed)
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended
