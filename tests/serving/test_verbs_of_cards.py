"""Every serving card of the catalogue and the orders with which its data half is built.

A card whose half over requests is there, as a recipe or as a small router of the tests, is played:
what it orders is what the table says. The others name what they will be put together from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import pytest
from msgspec.structs import replace

from ganger.core.serving import verbs
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import Batch, Do, Ended, News
from ganger.core.serving.world import Lane, Store, World
from ganger.recipes.registry import make_router, recipes
from serving.rig import Asked, OneByOne, pipeline, placed, play, recorded
from serving.test_awkward import MINIS
from serving.test_every_router import MODELS

ORDERS = {"Batch", "Load", "Evict", "Cancel", "Interrupt", "Retire", "Wait", "Stay"}
PARTS = {
    "tasks",  # a request is several entries of batches
    "models",  # several of them in one batch
    "segments",  # from one operator to another
    "shares",  # lanes of a part of a device
    "beside",  # batches beside each other on a device
    "choice",  # among the models of a family
    "cache",  # answers that are known
    "retire",  # a lane that the router gives back
    "control",  # replicas, layouts and prices come from a policy of the kernel
    "probe",  # configurations are measured
}
"""What a card uses besides the orders."""


class Card(NamedTuple):
    """`by`: the recipe or the small router that shows it; none: the parts are shown by others."""

    orders: str
    parts: str = ""
    by: str = ""


CARDS = {
    "S1 Clipper": Card("Batch", "tasks choice cache", "clipper(selection=exp4)"),
    "S2 Space-Time": Card("Batch Evict", "models segments", "fused batch"),
    "S3 Ease.ml": Card("Batch", "choice control"),
    "S4 HiveMind": Card("Batch", "models segments", "fused batch"),
    "S5 MArk": Card("Batch Wait Load", "control", "functions"),
    "S6 Tolerance Tiers": Card("Batch Cancel", "tasks choice", "tolerance-tiers"),
    "S7 ParM": Card("Batch Cancel Wait", "tasks", "parm"),
    "S8 Gilman": Card("Batch Load Evict", "", "gilman"),
    "S9 Nanily": Card("Batch", "control", "nanily"),
    "S10 RRL": Card("Batch", "probe"),
    "S11 TrIMS": Card("Batch Load Evict", "", "functions"),
    "S12 Ebird": Card("Batch Wait", "beside", "ebird"),
    "S13 GSLICE": Card("Batch", "shares control"),
    "S14 Clockwork": Card("Batch Load Evict", "", "clockwork"),
    "S15 Irina": Card("Batch Interrupt Wait", "segments beside", "irina"),
    "S16 PERSEUS": Card("Batch", "probe control"),
    "S17 AutoDeep": Card("Batch", "segments probe control"),
    "S18 DyBatch": Card("Batch", "tasks", "dybatch"),
    "S19 InferLine": Card("Batch", "tasks control", "pipeline"),
    "S20 INFaaS": Card("Batch", "choice shares control"),
    "S21 Mendoza": Card("Batch", "beside control"),
    "S22 Morphling": Card("Batch", "probe control"),
    "S23 Abacus": Card("Batch", "models segments beside", "fused batch"),
    "S24 MIG-Serving": Card("Batch", "shares control"),
    "S25 Cocktail": Card("Batch Cancel Wait", "tasks choice control", "cocktail"),
    "S26 Nexus": Card("Batch Wait", "tasks models segments control", "nexus"),
    "S27 Model-Switching": Card("Batch", "choice", "model-switching"),
    "S28 PRETZEL": Card("Batch", "tasks segments", "pipeline"),
    "S29 Gillis": Card("Batch Load Wait", "tasks segments", "functions"),
    "S30 AMPS-Inf": Card("Batch Load", "tasks segments", "functions"),
    "S31 BARISTA": Card("Batch", "control"),
    "S32 Swayam": Card("Batch Retire", "retire control", "swayam"),
}


SCORES: list[list[float]] = [[0, 5], [1, 0]]
"""Of the first model: it is sure of the first input, and wrong on the second."""
ANSWERS = [recorded([1, 0] * 400, [1] * 800, SCORES * 400), recorded([1] * 800, [1] * 800)]


class Recorded(OneByOne):
    """Notes the names of all orders and how batches were used."""

    def __init__(self, router: Router) -> None:
        super().__init__(router)
        self.orders: set[str] = set()
        self.parts: set[str] = set()

    def arrive(self, world: World, rows: range) -> None:
        super().arrive(world, rows)
        self.orders |= {"Interrupt"} if world.cut else set()

    def noted(self, world: World, orders: Sequence[Do]) -> Sequence[Do]:
        for order in orders:
            self.orders.add(type(order).__name__)
            if not isinstance(order, Batch):
                continue
            for part in order.parts:
                self.parts |= {"tasks"} if min(part.tasks) < 0 else set()
                self.parts |= {"segments"} if part.first else set()
                self.parts |= {"models"} if len(order.parts) > 1 else set()
        return orders

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        return self.noted(world, super().next(world, idle))

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        return self.noted(world, super().ended(world, done))

    def told(self, world: World, news: News) -> Sequence[Do]:
        return self.noted(world, super().told(world, news))


def test_the_table_has_all_cards_and_names_what_there_is() -> None:
    assert [int(name.split()[0][1:]) for name in CARDS] == list(range(1, 33))
    assert {name for name in ORDERS if not hasattr(verbs, name)} == set()
    assert {each.__name__ for each in get_args(verbs.Do)} == ORDERS
    for name, card in CARDS.items():
        assert set(card.orders.split()) <= ORDERS, name
        assert set(card.parts.split()) <= PARTS, name
        known = card.by in MINIS or card.by.partition("(")[0] in recipes("requests")
        assert known or not card.by, name


def shown(card: Card) -> Recorded:
    """What shows the card, after 120 requests of two models, half of them in a hurry."""
    router = Recorded(MINIS[card.by][0]() if card.by in MINIS else make_router(card.by))
    loads = MINIS[card.by][1] if card.by in MINIS else router.can.loads
    one_model = loads and card.by in MINIS
    asked = [Asked(1.7 * at, 0 if one_model else at % 2, (11, 90)[at % 4 // 2]) for at in range(60)]
    more: dict[str, Any] = {}
    if router.can.chooses:
        more = {
            "families": [("both", (0, 1))],
            "says": [[1], [0]],
            "scores": [SCORES[:1], SCORES[1:]],
        }
        asked += [Asked(0.9 * at, 2, 90, input=0, label=1) for at in range(60)]
    elif router.can.pipelines and "tasks" in card.parts:
        more = {"pipelines": [pipeline("both", [0, 1], (0, 1, 1.0))]}
        asked += [Asked(0.9 * at, 2, 90) for at in range(60)]
        asked += [Asked(900, at // 2 % 2, 500) for at in range(8)]
    if router.can.cuts:  # two that run, and a shorter one that comes
        asked += [Asked(900, 1, 500), Asked(900, 1, 500), Asked(901, 0, 500)]
    stores = [Store(at, 60) for at in range(2)] if loads else []
    on = (
        placed(2)
        if loads
        else [
            Lane(at, "gpu", device=at // router.can.streams) for at in range(2 * router.can.streams)
        ]
    )
    models = [
        replace(each, borders=(0.3, 0.6), layers=("trunk", "", ""), recorded=ANSWERS[at])
        for at, each in enumerate(MODELS[:2])
    ]
    play(router, models, on, asked, stores=stores, noise=1.0, **more)
    return router


@pytest.mark.parametrize("name", [name for name, card in CARDS.items() if card.by])
def test_what_shows_a_card_orders_nothing_that_the_table_does_not_say(name: str) -> None:
    router = shown(CARDS[name])
    assert {"Batch"} <= router.orders <= {"Wait", "Stay", *CARDS[name].orders.split()}
    assert router.parts <= set(CARDS[name].parts.split())
    if name == "S26 Nexus":  # the stages of queries; what models begin with alike
        assert router.parts == {"tasks", "models", "segments"}


def test_every_order_and_every_kind_of_batch_is_shown_by_some_card() -> None:
    routers = [shown(card) for card in CARDS.values() if card.by]
    assert set().union(*(router.orders for router in routers)) == ORDERS
    assert set().union(*(router.parts for router in routers)) == {"tasks", "models", "segments"}
