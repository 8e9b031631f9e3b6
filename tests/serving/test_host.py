"""Services in the simulator: replicas are lanes, and windows are reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import (
    Accepted,
    Failed,
    Finished,
    Released,
    Served,
    Started,
)
from ganger.core.plan import Placement, Resume, Slot, Start, Stop, Suspend
from ganger.core.serving.memory import restored
from ganger.core.serving.router import RETIRES, Router
from ganger.core.serving.verbs import Do, Ended, Retire
from ganger.core.serving.world import Known, Lane, Latencies, World
from ganger.core.spec import JobSpec, Kind, Needs, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.names import Names
from ganger.core.units import NEVER, SECOND
from ganger.lab.log import Divergence, Log, replay
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic, places_of
from ganger.lab.serving.yardsticks.future import Ahead, Columns
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.registry import make_router
from ganger.sim.physics import Costs
from ganger.sim.requests.host import Requested, Requesting
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.formats import load_requests
from ganger.workloads.requests.processes import constant, spike
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import MS, Seen, table
from serving.test_awkward import Mini
from worlds import job, trace_of

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples/serving"
WEB = job("web", at=0, lasts=None, kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=3),)))
ONE: Placement = (Slot(0, 1, 1),)


class Desk:
    """A host with one service, 100 ms a request, 2 s to load; requests at these seconds."""

    def __init__(
        self,
        *at: float,
        latencies: Latencies | None = None,
        router: Router | None = None,
        validate: bool = False,
        remembers: bool = False,
    ) -> None:
        models = [Known("m", {("gpu", 1.0): latencies or table(100)})]
        self.world = World(models, [Lane(n, "gpu", device=n, down=True) for n in range(3)])
        self.seen = Seen(self.world)
        rows = {"arrival": [round(each * SECOND) for each in at]}
        plane = Plane(
            self.world,
            router or make_router("serve.no-batch"),
            Physics(models),
            iter([rows]),
            [self.seen],
        )
        self.host = Requesting(
            trace_of((WEB,)).declared,
            {"web": Requested(plane, 2 * SECOND)},
            10 * SECOND,
            lambda node: "gpu",
            validate=validate,
            remembers=remembers,
        )

    def starts(self, row: int, at: float) -> None:
        """A replica is accepted, and starts."""
        spec = JobSpec(name=f"r{row}", parent="web")
        self.host.happened(round(at * SECOND), [Accepted(row, spec, spawned=True)])
        self.host.planned(round(at * SECOND), [Start(row, 1, ONE)])
        self.host.happened(round(at * SECOND), [Started(row, 1)])

    def given_back(self, at: float) -> list[tuple[int, ...]]:
        """The replicas that are reported as given back, by window that ends by then."""
        told = []
        while self.host.next_time() <= round(at * SECOND):
            for event in self.host.advance(self.host.next_time()):
                assert isinstance(event, Served)
                marks = event.figures["given_back"]
                told.append(
                    tuple(job for job, mark in zip(event.services, marks, strict=True) if mark)
                )
        return told

    def until(self, at: float) -> list[dict[str, float | None]]:
        """The windows that end by then."""
        told = []
        while self.host.next_time() <= round(at * SECOND):
            for event in self.host.advance(self.host.next_time()):
                assert isinstance(event, Served)
                told.append({name: column[0] for name, column in event.figures.items()})
        return told

    def ended(self) -> list[float]:
        """When each request was over, in seconds."""
        self.host.close(1000 * SECOND)
        return [each / MS for each in self.seen.ended]


def test_a_replica_answers_once_it_has_loaded() -> None:
    desk = Desk(0, 1, 5)
    desk.starts(1, 1)
    (window,) = desk.until(10)
    assert window == {
        "arrivals": 3,
        "answered": 3,
        "late": 0,
        "dropped": 0,
        "queue": 0,
        "replicas": 1,
        "ongoing": pytest.approx((3.1 + 2.2 + 0.1) / 10),
        "busy": pytest.approx(0.3 / 7),
        "batch": 1,
        "p50": pytest.approx(2.2),
        "p99": 3.1,
        **{f"most_in_{each}s": 1 for each in ("0.125", "0.25", "0.5", "1")},
        "most_in_2s": 2,
        "most_in_4s": 2,
        "most_in_8s": 3,
    }
    assert desk.host.next_time() == NEVER
    assert desk.ended() == [3.1, 3.2, 5.1]


def test_the_time_in_which_replicas_were_up_is_added_up() -> None:
    """One from 3 s on and one from 6 s on, until both end at 9 s."""
    desk = Desk(0, 20)
    desk.starts(1, 1)
    desk.until(3.5)
    desk.starts(2, 4)
    desk.until(8)
    desk.host.happened(9 * SECOND, [Released(1, 1), Released(2, 1)])
    desk.until(20)
    assert desk.host.total_up(0) == (6 + 3) * SECOND


def test_a_window_says_why_requests_were_dropped_and_how_many_came_at_once() -> None:
    """Eight in a tenth of a second, of which two fit into the queue beside the one that runs; one
    as the window ends."""
    desk = Desk(
        *[5 + each / 80 for each in range(8)],
        9,
        10,
        router=make_router("serve.triton(size=1,longest=2)"),
    )
    desk.starts(1, 1)
    (window, *_) = desk.until(10)
    assert (window["dropped"], window["dropped:the queue was full"]) == (5, 5)
    assert (window["most_in_0.125s"], window["most_in_4s"], window["most_in_8s"]) == (8, 8, 8)
    (*_, last) = desk.until(30)
    assert "dropped:the queue was full" not in last


def test_arrivals_are_counted_also_of_requests_that_are_forgotten() -> None:
    """More than are kept at once; a window's pieces add up to what came in it."""
    desk = Desk(*[4 + each / 20_000 for each in range(70_000)], 7.999, latencies=table(0.001))
    desk.starts(1, 1)
    (window, *_) = desk.until(10)
    assert desk.world.requests.base > 0
    assert window["arrivals"] == window["most_in_8s"] == 70_001
    assert window["most_in_0.125s"] == 2_500


def test_what_a_model_says_is_compared_with_the_labels_of_its_requests() -> None:
    """It gives every input the class that it was recorded to give; one request has no label."""
    sizes = np.arange(1, 3)
    took = Latency("T4", 1.0, sizes, sizes / 100, sizes / 100)
    says = np.array([3, 1, 2])
    model = Model("m", bytes=1, latency=(took,), predicted=says, labels=np.array([3, 0, 2]))
    rows = Chunk(
        np.array([2, 3, 4, 5]) * SECOND,
        np.zeros(4, np.int32),
        input=np.array([0, 1, 5, 2]),
        label=np.array([3, 0, 2, -1]),
    )
    web = job("web", at=0, lasts=60, kind=Kind.SERVE, model="m", shape=WEB.spec.shape)
    models = Models({"m": model}, {"T4": 0})
    setup = Setup(traffic=Traffic(Requests.of(rows, Names(["m"])), models, "serve.no-batch"))
    heard = list[Any]()

    class Keeps:
        """A journal of windows."""

        def append(self, revision: int, batch: Any, plan: Any, memory: Any) -> None:
            heard.extend(each for each in batch.events if isinstance(each, Served))

    run_one(trace_of((web,)), load_cluster("1x3xT4"), "fifo", setup, journal=lambda kernel: Keeps())
    assert [heard[0].figures[name][0] for name in ("labelled", "correct")] == [3, 2]


def test_each_replica_says_how_busy_it_was_while_it_was_up() -> None:
    """The first from 3 s on with a second's work; the second from 8 s on, with none."""
    desk = Desk(4, 5, 9.75, latencies=table(500))
    desk.starts(1, 1)
    desk.until(5)
    desk.starts(2, 6)
    desk.until(9.9)
    (event,) = desk.host.advance(10 * SECOND)
    assert isinstance(event, Served)
    assert event.services == (0, 1, 2)
    assert event.figures["busy"][1:] == pytest.approx([1.25 / 7, 0])


def test_a_window_without_replicas_has_no_share_that_was_busy() -> None:
    desk = Desk(3, 30)
    (first, *_) = desk.until(20)
    assert (first["busy"], first["p99"], first["queue"], first["answered"]) == (None, None, 1, 0)


def test_one_that_is_told_to_go_ends_what_it_began_and_one_that_is_lost_does_not() -> None:
    for event, ends in ((Stop(1, 1), [3.1, 3.2]), (None, [3.15, 3.25])):
        desk = Desk(0, 0.5)
        desk.starts(1, 1)
        desk.starts(2, 1.05)
        desk.until(3.04)  # the first runs request 0
        if event is not None:
            desk.host.planned(round(3.04 * SECOND), [event])
            desk.host.happened(round(3.04 * SECOND), [Released(1, 1)])
        else:
            desk.host.happened(round(3.04 * SECOND), [Failed(1, 1, 0.0, "NodeFail")])
        desk.until(20)
        assert desk.ended() == (ends if event is None else [3.1, 3.15])


def test_a_replica_that_is_frozen_comes_back() -> None:
    desk = Desk(0, 4, 9)
    desk.starts(1, 0)
    desk.until(3)
    desk.host.planned(3 * SECOND, [Suspend(1, 1)])
    desk.until(8)
    desk.host.planned(8 * SECOND, [Resume(1, 1)])
    desk.until(30)
    assert desk.ended() == [2.1, 10.1, 10.2]


def test_what_waits_when_the_service_ends_is_dropped() -> None:
    desk = Desk(0, 1)
    desk.host.happened(5 * SECOND, [Finished(0, 1)])
    desk.host.close(7 * SECOND)
    assert desk.seen.outcomes == ["the service ended"] * 2
    assert desk.seen.ended == [5000, 5000]


def test_of_a_service_that_is_over_it_is_reported_what_came_since_its_last_window() -> None:
    """With what its router remembers; not where the window ends at that very moment."""
    desk = Desk(1, 11, 12, 13, remembers=True)
    desk.starts(1, 0)
    desk.until(10)
    (last,) = desk.host.happened(round(12.05 * SECOND), [Finished(0, 1)])
    assert isinstance(last, Served)
    assert (last.since, last.services[0]) == (10 * SECOND, 0)
    figures = {name: column[0] for name, column in last.figures.items()}
    assert (figures["arrivals"], figures["answered"], figures["queue"]) == (2, 1, 1)
    assert figures["busy"] == pytest.approx(0.15 / 2.05)
    assert restored(last.routers[0]).queues
    assert desk.host.happened(13 * SECOND, [Finished(0, 1)]) == []
    desk = Desk(1, 11)
    desk.starts(1, 0)
    desk.until(10)
    assert desk.host.happened(10 * SECOND, [Finished(0, 1)]) == []


def test_lanes_that_are_left_are_taken_again() -> None:
    desk = Desk(*[each / 10 for each in range(40)])
    for row in range(1, 10):
        desk.starts(row, 10.0 * row)
        desk.until(10.0 * row + 5)
        desk.host.happened(round((10.0 * row + 5) * SECOND), [Released(row, 1)])
    assert len(desk.ended()) == 40


def traffic(seed: int, router: str = "serve.triton") -> Traffic:
    mix = Mix(models=2, names=("resnet50", "bert"), zipf=2, slo=SECOND // 10)
    curve = spike(100, 2500, 60.0, 30.0) if seed else constant(200)
    return Traffic(
        generated(curve, seed=seed, duration=200.0, mix=mix),
        read_models(EXAMPLES / "models.toml"),
        router,
    )


@pytest.mark.parametrize("serving", ["scale.threshold(up=0.5,cooldown=20s)", ""])
def test_services_share_a_cluster_with_training_and_the_log_needs_no_requests(
    tmp_path: Path, serving: str
) -> None:
    """Replicas, if the recipe for services makes any; else each service as one gang."""
    from ganger.lab.log import LogWriter

    trace, cluster = load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4")
    setup = Setup(
        traffic=replace(traffic(1), remembers=True), serving=serving, validate=bool(serving)
    )
    log = tmp_path / "all.log"
    writers: list[LogWriter] = []

    def journal(kernel: object) -> LogWriter:
        writers.append(LogWriter(log, kernel, trace, cluster, "fifo", setup).__enter__())  # type: ignore[arg-type]
        return writers[0]

    run = run_one(trace, cluster, "fifo", setup, journal=journal)
    writers[0].__exit__(None, None, None)
    assert set(run.services) == {"web", "bert"}
    total = sum(found["requests"] for found in run.services.values())
    assert total == len(traffic(1).requests.gather())
    took = run.simulation
    assert took["requests_per_cpu_second"] == total / took["cpu_seconds"]
    for found in run.services.values():
        assert found["answered"] + found["dropped"] == found["requests"]
    assert run.metrics["jobs_finished"] == 2  # services are counted apart
    assert replay(log) > 10
    windows = [
        event for step in Log(log).steps() for event in step.events if isinstance(event, Served)
    ]
    assert all(event.routers.keys() == {0, 1} & set(event.services) for event in windows)
    assert any(restored(event.routers[0]).queues for event in windows if 0 in event.routers)
    over = [
        (event.job, [each for each in step.events if isinstance(each, Served)])
        for step in Log(log).steps()
        for event in step.events
        if isinstance(event, Finished) and event.job in {0, 1}
    ]
    assert {job for job, _ in over} == {0, 1}
    assert all(any(job in each.routers for each in told) for job, told in over)
    whole = log.read_text()
    log.write_text(whole.replace('"routers":{"0":"k', '"routers":{"0":"x', 1))
    with pytest.raises(Divergence, match="router of service 0 remembered cannot be taken up again"):
        replay(log)


@pytest.mark.parametrize("router", ["nexus", "serve.bentoml", "swayam"])
def test_a_router_goes_on_from_what_it_remembers_after_each_window(router: str) -> None:
    """With `validate`, by way of bytes."""
    trace, cluster = load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4")
    few = generated(constant(60), seed=1, duration=90.0, mix=Mix(names=("bert",), slo=SECOND // 10))
    once, again = (
        run_one(
            trace,
            cluster,
            "fifo",
            Setup(
                traffic=Traffic(few, traffic(0).models, router),
                serving="scale.reactive",
                validate=validate,
            ),
        )
        for validate in (False, True)
    )
    assert once.services == again.services


def test_a_router_that_remembers_what_cannot_be_stored_is_found() -> None:
    desk = Desk(0, router=Odd(), validate=True)
    with pytest.raises(InvariantError, match="not plain"):
        desk.until(30)
    assert Desk(0, router=Odd()).until(30)


class Odd(Mini):
    """Remembers a function."""

    def begin(self, world: World) -> Any:
        return {**super().begin(world), "odd": lambda: None}


def test_more_replicas_answer_more_in_time() -> None:
    trace, cluster = load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4")
    same, more = (
        run_one(trace, cluster, "fifo", Setup(traffic=traffic(1), serving=serving)).services["web"]
        for serving in (
            "scale.threshold(up=1,down=0)",
            "scale.threshold(up=0.5,down=0,cooldown=10s)",
        )
    )
    assert same["attainment"] < more["attainment"]


def test_a_replica_is_provisioned_then_loads_then_answers(tmp_path: Path) -> None:
    """60 s until a container is there, 12 ms to load the model, 5.3 ms to answer."""
    (tmp_path / "r.csv").write_text("arrival,model\n0,resnet50\n")
    models = read_models(EXAMPLES / "models.toml")
    requests = load_requests(tmp_path / "r.csv")
    asked = Traffic(requests, models, "serve.no-batch", noise=0.0)
    waits = [
        run_one(
            load_trace(EXAMPLES / "trace.csv"),
            load_cluster("2x4xT4"),
            "fifo",
            Setup(traffic=asked, serving="scale.reactive", costs=Costs(start=start * SECOND)),
        ).services["web"]["latency_mean_seconds"]
        for start in (0, 60)
    ]
    assert waits == pytest.approx([0.0173, 60.0173])


def test_a_router_that_foresees_is_told_all_that_its_service_will_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    handed = Ahead.handed

    def keep(self: Ahead) -> Iterator[Columns]:
        counts.append(0)
        for chunk in handed(self):
            counts[-1] = len(self.coming(0).rows)
            yield chunk

    monkeypatch.setattr(Ahead, "handed", keep)
    few = generated(constant(2), seed=1, duration=200.0, mix=Mix(names=("bert",), slo=SECOND))
    run = run_one(
        load_trace(EXAMPLES / "trace.csv"),
        load_cluster("2x4xT4"),
        "fifo",
        Setup(traffic=Traffic(few, traffic(0).models, "serve.clairvoyant")),
    )
    asked = {run.services[name]["requests"] for name in ("web", "bert")}
    assert {*counts} == asked
    assert max(asked) > 300


def test_models_that_no_service_has_are_one_error() -> None:
    trace = trace_of((WEB,))
    with pytest.raises(BadInput, match="no job of kind serve names a model"):
        run_one(trace, load_cluster("1x4xT4"), "fifo", Setup(traffic=traffic(0)))
    with pytest.raises(BadInput, match="was not measured on V100"):
        run_one(
            load_trace(EXAMPLES / "trace.csv"),
            load_cluster("1x8xV100"),
            "fifo",
            Setup(traffic=traffic(0)),
        )


def test_a_lane_that_drains_is_not_given_a_second_batch_when_it_is_taken_again() -> None:
    desk = Desk(0, 0.01, 2.5, latencies=table(9000))
    desk.starts(1, 0)
    desk.until(5)  # request 0 runs until 11 s
    desk.host.planned(5 * SECOND, [Stop(1, 1)])
    desk.host.happened(5 * SECOND, [Released(1, 1)])
    desk.starts(2, 6)  # on the same lane, which is up at 8 s
    desk.until(60)
    assert desk.ended() == [11, 20, 29]


def test_what_runs_when_the_service_ends_is_dropped_and_so_is_what_comes_later() -> None:
    desk = Desk(0, 2.05, 400)
    desk.starts(1, 0)
    desk.until(2.12)  # request 1 runs from 2.1 s on
    desk.host.happened(round(2.15 * SECOND), [Finished(0, 1)])
    desk.starts(2, 3)  # too late
    desk.until(500)
    assert desk.host.next_time() == NEVER
    assert desk.ended() == [2.1, 2.15, 400]
    assert desk.seen.outcomes == ["answered", "the service ended", "the service ended"]


def test_requests_that_outlast_the_trace_are_dropped() -> None:
    short = traffic(0)
    longer = Traffic(
        generated(constant(20), seed=1, duration=1500.0, mix=Mix(names=("resnet50",), slo=SECOND)),
        short.models,
        short.router,
    )
    run = run_one(
        load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4"), "fifo", Setup(traffic=longer)
    )
    found = run.services["web"]
    assert set(found["dropped_by_reason"]) == {"the service ended"}
    assert 0.55 < found["dropped"] / found["requests"] < 0.65  # it runs for 10 of 25 minutes
    assert run.services["bert"]["requests"] == 0


class Gives(Mini):
    """Gives its lane back after the batches with these numbers, and uses it again all the same."""

    can = RETIRES

    def __init__(self, *after: int) -> None:
        self.after, self.ended_ = after, 0

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        super().ended(world, done)
        self.ended_ += 1
        return [Retire(done.order.lane)] if self.ended_ in self.after else []


def test_a_replica_is_reported_as_given_back_until_it_is_used_again() -> None:
    """The second request comes after the first was answered; it runs at the end of a window."""
    desk = Desk(3, 9.95, 30, router=Gives(1))
    desk.starts(1, 0)
    assert desk.given_back(45) == [(), (), (), ()]  # it was used again before it was reported
    desk = Desk(3, 15, 31, router=Gives(1, 2))
    desk.starts(1, 0)
    assert desk.given_back(45) == [(1,), (1,), (1,), ()]


def test_a_service_that_runs_whole_has_no_replicas_to_give_back() -> None:
    desk = Desk(3, router=Gives(1))
    desk.host.planned(0, [Start(0, 1, ONE)])
    desk.host.happened(0, [Started(0, 1)])
    assert desk.given_back(15) == [()]


def half(router: str, *, measured: bool = True) -> Run:
    """A service whose replicas have half of a GPU: there a batch takes three times as long."""
    sizes = np.arange(1, 5)
    took = tuple(
        Latency("T4", share, sizes, times * sizes / 100, times * sizes / 100)
        for share, times in ((1.0, 1), (0.5, 3))
        if measured or share == 1
    )
    model = Model("m", bytes=1, load={"host": 1.0}, latency=took)
    role = Role(size=1, least=1, most=2, needs=Needs(share=500, gpu_memory=1))
    web = job("web", at=0, lasts=60, kind=Kind.SERVE, model="m", shape=Shape((role,)))
    few = generated(constant(5), seed=1, duration=50.0, mix=Mix(names=("m",), slo=SECOND))
    setup = Setup(traffic=Traffic(few, Models({"m": model}, {"T4": 0}), router, noise=0))
    return run_one(trace_of((web,)), load_cluster("1x2xT4"), "fifo", setup)


@pytest.mark.parametrize("router", ["serve.no-batch", "clockwork", "nexus"])
def test_a_replica_on_half_of_a_device_takes_what_was_measured_on_half_of_one(router: str) -> None:
    assert half(router).services["web"]["latency_p50_seconds"] == pytest.approx(0.03, abs=1e-4)


def test_a_share_on_which_a_model_was_not_measured_is_one_error() -> None:
    """Not the latency of the whole device."""
    with pytest.raises(BadInput, match=r"not measured on 0\.5 of a T4") as refused:
        half("serve.no-batch", measured=False)
    assert "share = 0.5" in refused.value.mend


def test_beside_a_service_stand_its_bound_and_what_the_future_would_be_worth() -> None:
    """The same replicas at the same times under a router that knows what comes."""
    few = replace(traffic(4), yardsticks=True)
    plain, both = (
        run_one(
            load_trace(EXAMPLES / "trace.csv"),
            load_cluster("2x4xT4"),
            "fifo",
            Setup(traffic=replace(few, yardsticks=given)),
        )
        for given in (False, True)
    )
    assert "clairvoyant" not in plain.services["web"]
    for name, figures in both.services.items():
        for metric, value in plain.services[name].items():
            if metric != "classes":
                assert figures[metric] == value, "what is beside it changes nothing"
        foreseen = figures["clairvoyant"]
        assert foreseen["requests"] == figures["requests"]
        assert foreseen["needs"] == "future"
        assert foreseen["attainment"] <= figures["attainment_bound"] + 0.01
        assert 0 < foreseen["utilisation"] <= 1
        most = max(row["attainment_bound"] for row in figures["classes"])
        assert most == figures["attainment_bound"]


def test_the_row_of_who_knows_the_future_is_never_below_the_router(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were its plan a bad one, it would do what the router does."""
    monkeypatch.setattr("ganger.lab.serving.hosting.ORACLE", "serve.fixed-batch(timeout=1s)")
    setup = Setup(traffic=replace(traffic(4), yardsticks=True))
    run = run_one(load_trace(EXAMPLES / "trace.csv"), load_cluster("2x4xT4"), "fifo", setup)
    for figures in run.services.values():
        for metric in ("attainment", "latency_p99_seconds", "batch_mean", "utilisation"):
            assert figures["clairvoyant"][metric] == figures[metric]


@pytest.mark.parametrize(
    ("shape", "places"),
    [
        (Shape(), {"T4": 8, "V100": 3}),
        (Shape((Role(needs=Needs(gpus=2)),)), {"T4": 4, "V100": 1}),
        (Shape((Role(needs=Needs(share=300)),)), {"T4": 24, "V100": 9}),
        (Shape(gpu_types=("V100",)), {"V100": 3}),
        (Shape(pool="far"), {}),
    ],
)
def test_a_service_can_hold_what_its_shape_allows(shape: Shape, places: dict[str, int]) -> None:
    assert places_of(shape, Nodes(load_cluster("2x4xT4+1x3xV100"))) == places
