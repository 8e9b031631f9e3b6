"""Which models stay in memory where not all of them fit."""

from __future__ import annotations

from enum import Enum

from ganger.core.serving.router import Router
from ganger.mechanisms.serving.batching import Single
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.residency import (
    Chance,
    Frequency,
    LastUse,
    LoadTime,
    NextUse,
    Residency,
    Worth,
)
from ganger.recipes.registry import Paper, recipe

CACHE = Paper("A cache of models in device memory", "a baseline", objective="latency")
GILMAN = Paper(
    "Challenges and Opportunities of DNN Model Execution Caching",
    "Gilman et al.",
    "DIDL",
    2019,
    "latency, throughput",
)
BELADY = Paper(
    "A study of replacement algorithms for a virtual-storage computer",
    "Belady",
    "IBM Systems Journal",
    1966,
    "latency",
)


class Cache(Enum):
    """What goes first from a memory in which not all models fit."""

    LRU = "lru"
    LFU = "lfu"
    RANDOM = "random"
    GDSF = "gdsf"


_WORTH: dict[Cache, Worth] = {
    Cache.LRU: LastUse(),
    Cache.LFU: Frequency(),
    Cache.RANDOM: Chance(),
    Cache.GDSF: LoadTime(),
}


def cached(cache: Cache | None) -> Residency | None:
    """The slot of a composed router."""
    return None if cache is None else Residency(_WORTH[cache])


@recipe(CACHE, name="cache.lru")
def lru() -> Router:
    """Where not all models fit in memory, the least recently used goes for one that is missing.

    Requests run one at a time, first come, first served. While a model is loaded, others run that
    are there.
    """
    return Composed("cache.lru", Single(), residency=cached(Cache.LRU))


@recipe(CACHE, name="cache.lfu")
def lfu() -> Router:
    """Where not all models fit in memory, the least frequently used goes for one that is missing.

    All requests that ran so far count, also those before a model was evicted. Requests run one at a
    time, first come, first served.
    """
    return Composed("cache.lfu", Single(), residency=cached(Cache.LFU))


@recipe(CACHE, name="cache.random")
def random() -> Router:
    """Where not all models fit in memory, one drawn at random goes for one that is missing.

    Requests run one at a time, first come, first served.
    """
    return Composed("cache.random", Single(), residency=cached(Cache.RANDOM))


@recipe(BELADY, name="cache.clairvoyant", needs="future")
def clairvoyant() -> Router:
    """Where not all models fit in memory, the one that is asked for latest goes for one that is
    missing.

    It knows which requests will come, so it is a bound and nothing that can be deployed. No
    cache loads less often where all models have one size and one device serves. Requests run one at
    a time, first come, first served.
    """
    return Composed("cache.clairvoyant", Single(), residency=Residency(NextUse()))


@recipe(
    GILMAN,
    needs="latencies",
    reconstructed="the score is greedy dual size frequency, which is ours; accuracy does not count;"
    " what is loaded ahead of requests fills room that is free, and evicts nothing",
)
def gilman(ahead: bool = True) -> Router:
    """Where not all models fit in memory, what loads quickly for its size and is used seldom goes.

    A model is worth its requests so far, times the time that it loads, by its size, on top of what
    the dearest model was worth that had been evicted when it was last used: so what was used often,
    long ago, goes at last. With `ahead`, when no request waits for a model that is absent, those
    are loaded into the room that is free which save most, by requests so far and time to load, and
    which lie in no memory of the devices that serve the same models. Requests run one at a time,
    first come, first served.
    """
    return Composed("gilman", Single(), residency=Residency(LoadTime(), ahead))
