"""Prefix batching of Nexus: layers that models begin with alike run once for a batch of them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganger.cli.lab.serving.requests import requests
from ganger.core.serving.verbs import Part
from ganger.core.serving.world import Known, World
from ganger.core.units import NEVER
from ganger.recipes.registry import make_router
from ganger.recipes.serving.nexus.prefix import alike, parts, planned, took
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.reference import Naive
from serving.rig import (
    MS,
    Asked,
    OneByOne,
    Seen,
    affine,
    columns,
    lanes,
    model,
    pipeline,
    play,
    table,
)
from serving.test_every_router import shown
from serving.test_nexus import hurried
from serving.test_pipelines import REQUESTS


def layered(name: str, *layers: str, base: float = 10, each: float = 1, largest: int = 8) -> Known:
    """A model of layers that take equal parts of `base` + `each` n ms; "" is like no other."""
    borders = [at / len(layers) for at in range(1, len(layers))]
    return replace(model(name, affine(base, each, largest), borders=borders), layers=layers)


CAR, FACE = layered("car", "a", "b", "c", "car"), layered("face", "a", "b", "c", "face")


def tables(*models: Known) -> dict[int, list[int]]:
    """Microseconds by model and inputs."""
    return {at: list(known.latencies["gpu", 1.0].mean) for at, known in enumerate(models)}


def ways(models: list[Known]) -> list[tuple[int, ...]]:
    """What a batch of one input for each runs: for which models, from which layer, before which."""
    every = parts(models, tables(*models), dict.fromkeys(range(len(models)), 1))
    return [(*part.tasks, part.first, part.last) for part in every]


def test_what_two_models_have_in_common_runs_once() -> None:
    """Three of four layers of 10 + n ms: eight inputs take 13.5 ms there; the fourth layer of each
    takes 3.5 for its four. Apart they would take 28 ms."""
    both = [CAR, FACE]
    assert parts(both, tables(*both), {0: 4, 1: 4}) == [
        Part(0, [0, 1], 8, 0, 3),
        Part(0, [0], 4, 3, 0),
        Part(1, [1], 4, 3, 0),
    ]
    assert took(both, tables(*both), {0: 4, 1: 4}) == 20_500
    assert took(both, tables(*both), {1: 4}) == 14_000


def test_those_that_share_more_run_more_together() -> None:
    """The third leaves the others after the first layer, and has a second like nobody's."""
    three = [CAR, layered("plate", "a", "", "c", "plate"), FACE]
    assert ways(three) == [(0, 1, 2, 0, 1), (0, 2, 1, 3), (0, 3, 0), (2, 3, 0), (1, 1, 0)]


def test_a_model_that_is_the_beginning_of_another_ends_there() -> None:
    both = [layered("whole", "a", "b"), layered("beginning", "a", base=5, each=0.5)]
    assert ways(both) == [(0, 1, 0, 1), (0, 1, 0), (1, 1, 0)]
    assert took(both, tables(*both), {0: 1, 1: 1}) == 12 * MS / 2 + 11 * MS / 2


def test_models_are_alike_if_their_first_layer_is_and_they_run_on_the_same_devices() -> None:
    other = replace(FACE, latencies={("cpu", 1.0): FACE.latencies["gpu", 1.0]})
    nobody = layered("nobody", "", "b")
    assert alike([CAR, FACE, nobody, nobody, other]) == [[0, 1], [0, 1], [2], [3], [4]]


def test_a_session_of_several_is_planned_by_how_often_each_is_asked_for() -> None:
    """Three of four inputs are cars; there is no time for the seventh."""
    both = [CAR, FACE]
    found = planned(both, tables(*both), {0: 3.0, 1: 1.0}, [0, 1], 17_000)
    assert found[4] == took(both, tables(*both), {0: 3, 1: 1})
    assert all(a <= b for a, b in pairwise(found))
    assert found[-2] <= 17_000 < found[-1]


GRAPHS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=4),
        st.floats(0.5, 20),
        st.floats(0.1, 5),
    ),
    min_size=1,
    max_size=4,
)


@given(graphs=GRAPHS, counts=st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_no_batch_takes_less_than_its_inputs_at_their_best(
    graphs: list[tuple[list[str], float, float]], counts: list[int]
) -> None:
    """So the bound on goodput holds for it, and each model runs once from begin to end."""
    models = [layered("m", *names, base=base, each=each) for names, base, each in graphs]
    some = {at: n for at, n in zip(range(len(models)), counts, strict=False) if n}
    if not some:
        return
    best = {at: min(t / n for n, t in enumerate(each) if n) for at, each in tables(*models).items()}
    whole = took(models, tables(*models), some)
    assert whole >= sum(n * best[at] for at, n in some.items()) - 1
    assert whole >= max(tables(*models)[at][1] for at in some) - 1
    for at in some:
        mine = [part for part in parts(models, tables(*models), some) if at in part.tasks]
        assert mine[0].first == 0
        assert [part.last for part in mine[:-1]] == [part.first for part in mine[1:]]
        assert mine[-1].last == 0


def test_requests_for_both_are_one_batch_of_one_session() -> None:
    """While the lane runs the first, two of each come; all are answered when the batch ends."""
    asked = [Asked(0, 0, 100), *(Asked(1, at % 2, 100) for at in range(4))]
    seen = play(make_router("nexus(profile=1)"), [CAR, FACE], lanes(1), asked)
    assert [(each.model, each.tasks, each.began, each.ended) for each in seen.batches[1:]] == [
        (0, (1, 2, 3, 4), 11, 27.5),
        (0, (1, 3), 11, 27.5),
        (1, (2, 4), 11, 27.5),
    ]
    assert seen.ended == [11, *[27.5] * 4]
    assert seen.by == [0, 0, 1, 0, 1]
    apart = [replace(each, layers=()) for each in (CAR, FACE)]
    two = play(make_router("nexus(profile=1)"), apart, lanes(1), asked)
    assert max(two.ended) == 11 + 12 + 12


def test_it_drops_by_what_the_batch_at_hand_takes() -> None:
    """Two of one model take 12 ms together; one of each takes 14.5."""
    for second, outcome in ((0, "answered"), (1, "it could not be answered in time")):
        asked = [Asked(0, 0, 100), Asked(1, 0, 24), Asked(1, second, 24)]
        seen = play(make_router("nexus(profile=1)"), [CAR, FACE], lanes(1), asked)
        assert seen.outcomes == ["answered", outcome, "answered"]


def test_fewer_lanes_serve_what_has_most_in_common() -> None:
    """Four specialised models of 20 + n ms, 100 requests a second each, 100 ms: apart two of them
    fill a lane (28 of 72 ms each), together a lane is enough (47 of 53 ms for 21)."""
    some = [layered(name, *"123456789", name, base=20, largest=32) for name in "abcd"]
    asked = [Asked(at * 10 + which, which, 100) for at in range(300) for which in range(4)]
    used = {}
    for word, models in (("shared", some), ("apart", [replace(each, layers=()) for each in some])):
        seen = play(make_router("nexus(profile=1,fill=no)"), models, lanes(6), asked)
        late = [each for each in seen.batches if each.began > 1500]
        used[word] = len({each.lane for each in late})
        in_time = sum(
            ended <= one.at + one.within for one, ended in zip(asked, seen.ended, strict=True)
        )
        assert in_time > 0.98 * len(asked)
    assert used == {"shared": 1, "apart": 2}


TRIO = [
    replace(model("a", table(5, 7, 8, 12, p99=1.3), borders=(0.5, 0.8)), layers=("x", "y", "a")),
    replace(model("b", table(9, 9.5, 11, p99=1.1), borders=(0.7,)), layers=("x", "b")),
    replace(model("c", table(1, 2, p99=2.0), borders=(0.2, 0.9)), layers=("x", "y", "c")),
]
QUERIES = [
    pipeline("query", [0, 1, 2], (0, 1, 0.7), (0, 2, 1.3)),
    pipeline("chain", [1, 2], (0, 1, 2.0)),
]


@given(asked=REQUESTS, count=st.integers(1, 3), seed=st.integers(0, 3), fill=st.booleans())
def test_it_breaks_no_rule_and_is_driven_as_by_the_naive_plane(
    asked: list[Asked], count: int, seed: int, fill: bool
) -> None:
    router = hurried(fill=fill)
    seen = play(router, TRIO, lanes(count), asked, noise=1.0, seed=seed, pipelines=QUERIES)
    again = play(
        OneByOne(router), TRIO, lanes(count), asked, noise=1.0, seed=seed, pipelines=QUERIES
    )
    assert shown(again) == shown(seen)
    naive = Naive(router, TRIO, lanes(count), asked, (), seed, QUERIES)
    naive.play()
    assert sorted(naive.ran) == sorted(seen.batches)
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended


@given(
    asked=REQUESTS,
    turns=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 1), st.booleans()), max_size=6),
)
def test_what_a_lane_loses_is_run_again_once(
    asked: list[Asked], turns: list[tuple[int, int, bool]]
) -> None:
    world = World(TRIO, lanes(2), pipelines=QUERIES)
    seen = Seen(world)
    plane = Plane(world, hurried(), Physics(TRIO, noise=0), iter([columns(asked)]), [seen])
    for at, lane, up in [*sorted(turns), (1000, 0, True), (1000, 1, True)]:
        plane.advance(at * MS)
        plane.turn(lane, at * MS, up=up)
    plane.advance(NEVER - 1)
    plane.finish()
    assert len(seen.outcomes) == len(asked)


FILE = """format = "ganger.models/1"
devices = [{name = "T4"}]
"""
NET = """[[models]]
name = "NAME"
parameters = [{id = "trunk", bytes = 90}, {id = "NAME", bytes = 10}]
operators = [{name = "trunk", time = 0.9, parameters = "TRUNK"}, {name = "head", time = 0.1, parameters = "NAME"}]
latency = [{device = "T4", base = 0.010, each = 0.001, largest = 32}]
"""  # noqa: E501


@pytest.mark.parametrize(("trunk", "in_time"), [("trunk", (0.9, 1.0)), ("NAME", (0.0, 0.8))])
def test_the_models_file_says_what_models_have_in_common(
    tmp_path: Path, trunk: str, in_time: tuple[float, float]
) -> None:
    """Four heads over one trunk, or four networks: 550 requests a second on one device."""
    names = ("cars", "faces", "dogs", "cats")
    nets = (NET.replace("TRUNK", trunk).replace("NAME", name) for name in names)
    (tmp_path / "m.toml").write_text(FILE + "".join(nets))
    asked = ((at / 550, names[at * 7 // 3 % 4]) for at in range(1100))
    rows = "".join(f"{at},{name},{at + 0.1}\n" for at, name in asked)
    (tmp_path / "r.csv").write_text("arrival,model,deadline\n" + rows)
    words = ["simulate", str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml"),
             "--fleet", "T4:1", "--recipe", "nexus", "--json"]  # fmt: skip
    (run,) = json.loads(CliRunner().invoke(requests, words).stdout)["runs"]
    low, high = in_time
    assert low <= run["metrics"]["attainment"] <= high
    answered = run["metrics"]["batches"] * run["metrics"]["batch_mean"]
    assert answered == pytest.approx(run["metrics"]["answered"])  # each is counted once
