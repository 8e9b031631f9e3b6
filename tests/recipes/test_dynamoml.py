"""DynamoML: what it makes of its two parts, and that it adds nothing where only one is needed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from anything import World, worlds
from ganger.core.plan import Start, Stop, Tune
from ganger.core.spec import ClusterSpec, GpuType, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.units import WHOLE
from ganger.mechanisms.common.planes import Planes
from ganger.recipes import registry
from worlds import Played, Work, cluster, job, play


def part(share: int, workers: int = 1) -> Shape:
    """Workers that request a part of a GPU each, in thousandths."""
    return Shape((Role(size=workers, needs=Needs(share=share)),))


def gang(size: int, least: int, most: int) -> Shape:
    """An elastic gang."""
    return Shape((Role(size=size, least=least, most=most),))


def done(run: Played) -> list[tuple[int, list[Any]]]:
    """What was done when, but for decisions that did nothing."""
    return [
        (batch.at, [action for action in plan.actions if not isinstance(action, Tune)])
        for batch, plan in run.diary.steps
        if plan is not None and plan.actions
    ]


def wants_parts(work: Work) -> bool:
    """Whether any worker asks for a part of a GPU."""
    needs = [role.needs for role in work.spec.shape.roles if role.needs.gpus]
    return any(need.share < WHOLE for need in needs)


def alone(world: World, recipe: str, *, parts: bool) -> None:
    """On the jobs of one kind alone, it does what the recipe for that kind does."""
    works = [work._replace(spec=_freed(work)) for work in world.works]
    works = [work for work in works if wants_parts(work) == parts]
    runs = [
        play(each, works, world.cluster, world.setup, validate=False)
        for each in ("dynamoml", recipe)
    ]
    assert done(runs[0]) == done(runs[1])


def _freed(work: Work) -> Any:
    """The job without those that it comes after, which may be of the other kind."""
    return msgspec.structs.replace(work.spec, after=())


@settings(max_examples=30)
@given(worlds())
def test_where_nobody_asks_for_parts_it_is_dragon(world: World) -> None:
    alone(world, "dragon", parts=False)


@settings(max_examples=30)
@given(worlds())
def test_where_all_ask_for_parts_it_is_kubeshare(world: World) -> None:
    alone(world, "kubeshare", parts=True)


@settings(max_examples=10)
@given(worlds())
def test_without_one_of_its_parts_it_is_the_other_whatever_the_jobs(world: World) -> None:
    """The card's check."""
    for ours, theirs in (("dynamoml(parts=no)", "dragon"), ("dynamoml(scales=no)", "kubeshare")):
        runs = [
            play(each, world.works, world.cluster, world.setup, validate=False)
            for each in (ours, theirs)
        ]
        assert runs[0].text() == runs[1].text()


WORKS = [
    job("gang", 0, 1000, shape=gang(4, 1, 4)),
    job("p", 10, 100, shape=part(500)),
    job("q", 20, 50, shape=part(400)),
    job("r", 25, 50, shape=part(300)),
]


def test_a_gang_gives_up_a_gpu_for_who_has_waited_for_a_part_and_grows_back() -> None:
    """At 40 s p has waited for 30 s; q finds room beside it, and r has waited at 55 s. When both
    GPUs have been idle for a minute the gang has them again."""
    run = play("dynamoml", WORKS, cluster(1, 4))
    moved = [(at, said) for at, said in run.actions if not said.startswith("tune")]
    assert [(round(at, 3), said.split(" after")[0]) for at, said in moved] == [
        (0, "start gang on 0:0,1,2,3"),
        (40, "resize gang on 0:0,1,2"),
        (40, "start p on 0:3"),
        (40, "start q on 0:3"),
        (55, "resize gang on 0:0,1"),
        (55, "start r on 0:2"),
        (115, "resize gang on 0:0,1,2"),
        (175, "resize gang on 0:0,1,2,3"),
    ]
    assert [said for _, said in run.actions if said.startswith("tune")] == [
        "tune p",
        "tune q",
        "tune r",
    ]


def test_patience_is_that_of_both() -> None:
    run = play("dynamoml(patience=5s)", WORKS, cluster(1, 4))
    assert [round(run.started(name) or 0, 3) for name in "pqr"] == [15, 20, 30]


@pytest.mark.parametrize("least", [1, 4])
def test_nobody_shrinks_below_its_least_for_a_part(least: int) -> None:
    works = [job("gang", 0, 100, shape=gang(4, least, 4)), *WORKS[1:2]]
    begins = play("dynamoml", works, cluster(1, 4)).started("p")
    assert begins == (pytest.approx(40) if least == 1 else 100)


def test_as_many_gpus_are_given_up_as_workers_wait_for_parts() -> None:
    works = [job("gang", 0, 1000, shape=gang(4, 1, 4)), job("p", 10, 100, shape=part(600, 3))]
    run = play("dynamoml", works, cluster(1, 4))
    assert run.started("p") == pytest.approx(40)
    assert "resize gang on 0:0" in [said.split(" after")[0] for _, said in run.actions]


def test_what_is_free_is_not_given_up() -> None:
    """Of three GPUs that are claimed one is free."""
    works = [job("gang", 0, 50, shape=gang(4, 1, 4)), job("p", 10, 100, shape=part(600, 3))]
    run = play("dynamoml", works, cluster(1, 5))
    assert run.started("p") == pytest.approx(40)
    assert "resize gang on 0:0,1" in [said.split(" after")[0] for _, said in run.actions]


def test_its_neighbours_give_gangs_no_other_size_or_parts_no_other_room() -> None:
    """Kubeshare lets p wait for the gang; dragon lets q wait for a GPU of its own."""
    ours, kubeshare, dragon = (
        play(each, WORKS, cluster(1, 4)) for each in ("dynamoml", "kubeshare", "dragon")
    )
    assert kubeshare.started("p") == 1000
    assert dragon.started("q") == 50
    assert ours.started("q") == pytest.approx(40)


def test_beside_services_it_decides_over_the_other_jobs() -> None:
    """A part of a part of the jobs: those that are no services, and of these those of one kind."""
    spec = ClusterSpec((NodeSpec(gpus=4, gpu_type="A"),), (GpuType("A"),))
    service = job("service", 0, None, shape=part(500), kind=Kind.SERVE)
    policy = Planes(registry.make("scale.static-peak"), registry.make("dynamoml"))
    run = play(policy, [service, *WORKS], spec, until=500_000_000)
    begun = {
        run.jobs.name(a.job)
        for _, p in run.diary.steps
        if p is not None
        for a in p.actions
        if isinstance(a, Start)
    }
    assert {"gang", "p", "q", "r"} <= begun
    assert not any(isinstance(a, Stop) for _, p in run.diary.steps if p for a in p.actions)
