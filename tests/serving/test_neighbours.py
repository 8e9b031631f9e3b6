"""Every recipe over requests and for services beside the one that is most like it: they differ."""

from __future__ import annotations

import pytest

from ganger.lab.docs.scaling_pages import SERVICE, scaled
from ganger.recipes.registry import recipes
from serving.test_decided import record

NEIGHBOURS = {
    "cache.clairvoyant": ("cache.lfu", "it knows what will be asked for"),
    "cache.lfu": ("cache.lru", "how often, not when last"),
    "cache.lru": ("cache.random", "when last, not by lot"),
    "cache.random": ("cache.lfu", "by lot, not by how often"),
    "clipper": ("serve.triton", "sizes grow while they keep the SLO"),
    "clockwork": ("nanily", "it plans ahead, and refuses at arrival"),
    "cocktail": ("clipper(selection=exp4,rate=0.4,by_tenant=yes)", "members are dropped"),
    "dybatch": ("serve.no-batch", "requests are cut, and the one that had least goes next"),
    "ebird": ("serve.triton", "batches run beside each other"),
    "gilman": ("cache.lfu", "also by load time, size and age, and ahead of requests"),
    "irina": ("serve.triton", "what ends soonest goes first, also before what runs"),
    "model-switching": ("clipper", "by accuracy and load, not by what answers were worth"),
    "nanily": ("serve.composed", "one queue for all lanes, and all variants alike"),
    "nexus": ("serve.dedicated", "lanes are shared in cycles, by rates"),
    "parm": ("serve.no-batch", "sums of inputs stand in for answers that are late"),
    "serve.bentoml": ("serve.round-robin", "it waits while that shortens the mean latency"),
    "serve.clairvoyant": ("nanily", "it knows what comes"),
    "serve.composed": ("serve.least-loaded", "the earliest deadline first, sizes by slack"),
    "serve.continuous-batching": ("serve.least-loaded", "steps of token models"),
    "serve.dedicated": ("serve.triton", "each model has lanes of its own"),
    "serve.fair": ("serve.continuous-batching", "the tenant that had least goes first"),
    "serve.fixed-batch": ("serve.triton", "it waits until a batch is full"),
    "serve.least-loaded": ("serve.power-of-two", "of all lanes, not of two"),
    "serve.no-batch": ("serve.triton", "one at a time"),
    "serve.power-of-two": ("serve.round-robin", "of two that are drawn, not in turns"),
    "serve.round-robin": ("serve.least-loaded", "in turns, not by load"),
    "serve.triton": ("serve.round-robin", "one queue for all lanes"),
    "tolerance-tiers": ("model-switching", "by how sure a quick model is, not by load"),
    "swayam": ("serve.no-batch", "only the first lanes, as many as are needed"),
}
"""By recipe: the one that is most like it, and in what they differ."""


@pytest.mark.parametrize("recipe", sorted(NEIGHBOURS))
def test_it_runs_other_batches_than_its_nearest_neighbour(recipe: str) -> None:
    """On a day that both can live, by what is on record of both (which `test_decided` holds)."""
    neighbour, _ = NEIGHBOURS[recipe]
    ways = {
        name: {
            day: rest.split()[3]
            for (by, day), rest in record().items()
            if by == name and not rest.startswith("refused")
        }
        for name in (recipe, neighbour)
    }
    both = ways[recipe].keys() & ways[neighbour].keys()
    assert both
    assert any(ways[recipe][day] != ways[neighbour][day] for day in both)


def test_every_recipe_has_a_neighbour() -> None:
    assert sorted(NEIGHBOURS) == sorted(recipes("requests"))
    named = {neighbour.partition("(")[0] for neighbour, _ in NEIGHBOURS.values()}
    assert named <= NEIGHBOURS.keys()


def test_no_two_recipes_for_services_have_the_same_replicas() -> None:
    """On the example of their pages."""
    replicas = {
        name: tuple(scaled(name).service_windows[SERVICE]["replicas"])
        for name in recipes("serving")
    }
    assert len(set(replicas.values())) == len(replicas)
