"""InferLine: the plan of a pipeline's stages, its tuner, and services that are pipelines."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.plan import Start
from ganger.core.serving.answering import BatchTimes, Step
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.facts import Window
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.scaling.fleets import Course, Instance, Outlook
from ganger.mechanisms.serving.on_time import ends_of
from ganger.recipes.serving.planning.inferline import (
    Chosen,
    Estimate,
    InferLine,
    exceeded,
    planned,
    response_times,
    shares,
    wanted_replicas,
)
from ganger.workloads.models.profiles import Latency, Model, Models, Pipeline
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace
from worlds import Diary


def affine(base: float, each: float, largest: int) -> BatchTimes:
    """Batches of n take base + n x each seconds, always."""
    mean = tuple(base + each * size for size in range(1, largest + 1))
    return BatchTimes(mean, mean)


TWO = (Step("a", ((1, 0.5),)), Step("b"))
OPTIONS = {
    "a": [
        Instance("gpu", 0.9, affine(0.01, 0.004, 8), 16, "a"),
        Instance("small", 0.1, affine(0.04, 0.02, 4), 40, "a"),
    ],
    "b": [
        Instance("gpu", 0.9, affine(0.02, 0.01, 8), 16, "b"),
        Instance("small", 0.1, affine(0.1, 0.05, 4), 40, "b"),
    ],
}
SAMPLE = np.random.default_rng(0).exponential(1 / 60, 800).cumsum().tolist()


def test_a_burst_of_180_wants_four_replicas_where_two_were_planned_for_100() -> None:
    """60 a second each: two are loaded by 0.833; 180 / (60 x 0.833) is 3.6."""
    load = 100 / (60 * 2)
    assert wanted_replicas(180, 1.0, 60, load) == 4
    assert wanted_replicas(100, 1.0, 60, load) == 2
    assert wanted_replicas(180, 0.5, 60, load) == 2, "a stage that half of them need"
    assert wanted_replicas(0, 1.0, 60, load) == 1


def test_stages_work_on_what_they_are_handed() -> None:
    diamond = (Step("a", ((1, 2.0), (2, 0.5))), Step("b", ((3, 1.0),)), Step("c", ((3, 1.0),)),
               Step("d"))  # fmt: skip
    assert shares(diamond) == [1, 2, 0.5, 2]
    assert shares(TWO) == [1, 0.5]


def test_a_free_lane_takes_all_that_waits() -> None:
    """Two, then one; a second lane; a largest batch of two."""
    assert ends_of([(0, 5, 6)], [0, 1, 2, 3]) == [5, 11, 11, 16]
    assert ends_of([(0, 5, 6), (0, 5, 6)], [0, 1, 2, 3]) == [5, 6, 11, 11]


def test_a_request_is_answered_when_all_its_stages_are() -> None:
    """1 s, then 2 s for the two items that it hands on, one after another; a join waits for both
    ways."""
    one = Chosen(Instance("g", 1.0, BatchTimes((1.0,), (1.0,)), 1), 1, 1)
    two = Chosen(Instance("g", 1.0, BatchTimes((2.0,), (2.0,)), 1), 1, 1)
    assert response_times((Step("a", ((1, 2.0),)), Step("b")), [one, two], [0.0]) == [5.0]
    assert response_times(
        (Step("a", ((1, 2.0),)), Step("b")), [one, two._replace(replicas=2)], [0.0]
    ) == [3.0]
    join = (Step("a", ((2, 1.0),)), Step("b", ((2, 1.0),)), Step("c"))
    assert response_times(join, [one, two, one], [0.0, 10.0]) == [3.0, 3.0]
    assert response_times((Step("a", ((1, 0.0),)), Step("b")), [one, two], [0.0]) == [1.0]


@pytest.mark.parametrize(
    ("slo", "dollars", "least"), [(0.6, 0.6, 0.6), (0.3, 1.1, 1.1), (0.15, 1.8, 1.6)]
)
def test_the_planner_finds_what_exhaustive_search_finds_or_the_gap_is_known(
    slo: float, dollars: float, least: float
) -> None:
    """Of two stages on two types. Greedy is not always best: at 0.15 s it pays an eighth more."""
    estimate = Estimate(TWO, SAMPLE, slo)
    plan = planned(TWO, OPTIONS, estimate)
    every = [
        [
            Chosen(each, batch, count)
            for each in OPTIONS[model]
            for batch in (1, 2, 4, 8)
            if batch <= len(each.times.mean)
            for count in range(1, 9)
        ]
        for model in ("a", "b")
    ]
    pairs = sorted(product(*every), key=lambda pair: pair[0].cost + pair[1].cost)
    best = next(pair for pair in pairs if estimate.keeps(pair))
    assert plan is not None
    assert [sum(each.cost for each in some) for some in (plan, best)] == [
        pytest.approx(dollars),
        pytest.approx(least),
    ]
    assert planned(TWO, OPTIONS, Estimate(TWO, SAMPLE, 0.04)) is None, "0.044 s even alone"


def test_a_router_that_forms_small_batches_is_planned_for() -> None:
    """At 0.6 s batches of 4 and 2 pay; one request at a time takes more replicas."""
    estimate = Estimate(TWO, SAMPLE, 0.6)
    single = planned(TWO, OPTIONS, estimate, 1)
    assert single is not None
    assert [each.batch for each in single] == [1, 1]
    assert sum(each.cost for each in single) > 0.6


def test_no_single_change_of_a_plan_is_cheaper_and_keeps_the_slo() -> None:
    estimate = Estimate(TWO, SAMPLE, 0.3)
    plan = planned(TWO, OPTIONS, estimate)
    assert plan is not None
    for at, chosen in enumerate(plan):
        if chosen.replicas > 1:
            fewer = chosen._replace(replicas=chosen.replicas - 1)
            assert not estimate.keeps([*plan[:at], fewer, *plan[at + 1 :]])


# ---------------------------------------------------------------------- the tuner

ONE = [Instance("gpu", 1.0, BatchTimes((1 / 60,), (1 / 60,)), 20)]


def window(at: int, rate: float, burst: float = 0.0) -> Window:
    """Five seconds, of which the fullest one has `burst` a second, if that is more."""
    peaks = {"most_in_1s": max(rate, burst), "arrivals": 5 * rate}
    return Window(at * 5 * SECOND, (at + 1) * 5 * SECOND, peaks)


def tuned(rates: list[tuple[float, float]], slo: float = 0.2) -> list[int]:
    """Replicas of a service of one stage after each window from the second on."""
    planner, course = InferLine(2, 3600 * SECOND, 15 * SECOND, 30 * SECOND), Course({"gpu": 2})
    windows, counts, means = list[Window](), list[int](), list[float]()
    for at, (rate, burst) in enumerate(rates):
        windows.append(window(at, rate, burst))
        means.append(rate)
        outlook = Outlook((at + 1) * 5 * SECOND, list(means), slo, ONE, 0.0, windows)
        course.wanted = dict(planner.plan(outlook, course))
        counts.append(course.wanted["gpu"])
    return counts[1:]


def test_the_tuner_adds_at_once_and_gives_up_after_a_calm() -> None:
    """Planned at 300 a second. A second with 540, then windows of 150."""
    planned_for = tuned([(300, 0), (300, 0)])[0]
    counts = tuned([(300, 0), (300, 0), (300, 540), *[(150, 0)] * 9])
    burst = wanted_replicas(540, 1.0, 60, 300 / (60 * planned_for))
    assert counts[0] == planned_for
    assert counts[1:4] == [burst] * 3, "for 15 s nothing goes"
    assert counts[-1] == wanted_replicas(150, 1.0, 60, 300 / (60 * planned_for)) < planned_for
    assert sorted(counts[1:], reverse=True) == counts[1:]


def test_only_pieces_that_are_longer_than_a_request_and_fuller_than_the_sample_count() -> None:
    notes = {"alone": 0.5, "in 0.25": 10.0, "in 1.0": 20.0, "in 2.0": 30.0}
    assert exceeded(notes, {0.25: 99.0, 1.0: 20.0, 2.0: 30.0, 4.0: 999.0}) == 0.0
    assert exceeded(notes, {0.25: 99.0, 1.0: 21.0, 2.0: 40.0}) == 21.0
    assert exceeded(notes, {1.0: 19.0, 2.0: 32.0}) == 16.0


# ---------------------------------------------------------------------- carried out


def model(name: str, **latency: tuple[float, float]) -> Model:
    """By type, seconds of a batch of one and of four."""
    sizes = np.array([1, 4])
    took = tuple(
        Latency(device, 1.0, sizes, np.array(some), 1.1 * np.array(some))
        for device, some in latency.items()
    )
    return Model(name, bytes=1, load={"host": 5.0}, latency=took)


A = model("a", gpu=(0.05, 0.1), small=(0.2, 0.4))
B = model("b", gpu=(0.1, 0.2), small=(0.5, 1.2))
CHAIN = Pipeline("p", (("first", "a"), ("second", "b")), (("first", "second", 0.5),))


def run(
    serving: str,
    *stages: Model,
    router: str = "serve.least-loaded(size=4)",
    minutes: int = 3,
    rate: float = 4.0,
    most: int = 12,
) -> tuple[Run, Any, Diary]:
    """A pipeline as a service of one replica at first, 4 requests a second, 2 s each."""
    models = Models(
        {each.name: each for each in stages or (A, B)}, {"gpu": 0, "small": 0}, {"p": CHAIN}
    )
    web = JobSpec(name="web", kind=Kind.SERVE, model="p", shape=Shape((Role(least=1, most=most),)))
    trace = Trace(declare([web]), np.array([minutes * MINUTE]), name="web")
    where = ClusterSpec(
        (NodeSpec(gpus=4, gpu_type="gpu"), NodeSpec(gpus=9, gpu_type="small")),
        (GpuType("gpu", price=0.9), GpuType("small", price=0.1)),
    )
    mix = Mix(names=("p",), slo=2 * SECOND)
    asked = generated(constant(rate), seed=1, duration=60.0 * minutes - 10, mix=mix)
    traffic = Traffic(asked, models, router, yardsticks=True)
    setup = Setup(serving=serving, traffic=traffic, window=5 * SECOND, validate=True)
    diary, kernels = Diary(), list[Any]()

    def journal(kernel: Any) -> Diary:
        kernels.append(kernel)
        return diary

    return run_one(trace, where, "fifo", setup, journal=journal), kernels[0], diary


def test_every_stage_has_replicas_of_its_own_on_the_type_that_the_plan_says() -> None:
    found, kernel, diary = run("inferline")
    jobs = kernel.jobs
    began = [
        (
            batch.at // SECOND,
            jobs.models[jobs.model[action.job]],
            jobs.shapes[jobs.shape[action.job]].gpu_types,
        )
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Start) and action.job
    ]
    assert began[:2] == [(0, "a", ("gpu",)), (0, "b", ("gpu",))]
    after = {(name, types) for at, name, types in began if at >= 30}
    assert after == {("a", ("small",)), ("b", ("small",))}
    assert found.services["web"]["attainment"] > 0.85
    assert found.account is not None
    assert found.account.costs["services"] < 0.5 * 2 * 0.9 * 3 / 60


def test_a_replica_that_names_the_pipeline_runs_all_of_it() -> None:
    found, kernel, _ = run("scale.static-peak(replicas=2)")
    jobs = kernel.jobs
    assert {jobs.models[code] for code in jobs.model[: jobs.n].tolist()} == {"p"}
    assert set(found.service_windows["web"]["replicas"][3:-1]) == {2}
    web = found.services["web"]
    assert 0.85 < web["attainment"] <= web["clairvoyant"]["attainment"] <= web["attainment_bound"]


def test_the_yardsticks_of_a_pipeline_count_what_its_stages_take() -> None:
    """At best 25 ms in the first stage and, for half of them, 50 ms in the second, which 2 GPUs do
    from when a model is loaded until 2 s after the last came: for all of the first half, then."""
    found, _, _ = run("inferline", minutes=1, rate=80, most=2)
    web = found.services["web"]
    half, seconds = web["requests"] / 2, 2 * (50 - 5 + 2)
    possible = half + (seconds - 0.025 * half) / 0.075
    assert web["attainment_bound"] == pytest.approx(possible / web["requests"], rel=0.05)
    foreseen = web["clairvoyant"]
    assert web["attainment"] < 0.5 * foreseen["attainment"], "a router without deadlines"
    assert 0.5 * web["attainment_bound"] < foreseen["attainment"] <= web["attainment_bound"]


def test_a_stage_may_run_on_some_types_only_and_then_no_replica_runs_all() -> None:
    found, kernel, _ = run("inferline", A, model("b", small=(0.5, 1.2)), minutes=1)
    jobs = kernel.jobs
    used = {
        (jobs.models[jobs.model[job]], jobs.shapes[jobs.shape[job]].gpu_types)
        for job in range(1, jobs.n)
    }
    assert ("b", ("small",)) in used
    assert ("b", ("gpu",)) not in used
    assert found.services["web"]["answered"] > 0


def test_a_stage_that_runs_nowhere_and_a_router_with_one_queue_are_refused() -> None:
    with pytest.raises(BadInput, match="'b' was not measured on"):
        run("inferline", A, model("b", other=(0.5, 1.2)))
    with pytest.raises(BadInput, match="lanes that serve different models"):
        run("inferline", router="serve.triton")
