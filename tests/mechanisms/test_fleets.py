"""Services on several types of device: forecasts, envelopes, plans by cost, and how plans are
carried out without a gap."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.plan import Start, Stop
from ganger.core.serving.answering import Answering, BatchTimes
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, Kind, NodeSpec, Offer, Role, Shape
from ganger.core.state.facts import Window
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.estimate.forecast import Forecaster, Holt, Linear, Naive, Seasonal
from ganger.lab.log import LogWriter, replay
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.scaling.fleets import Course, Instance, Outlook, prices_of
from ganger.mechanisms.scaling.traffic import envelope, mean_rate, peak_rate, tightest
from ganger.recipes.registry import make
from ganger.recipes.serving.planning.barista import Barista, cheapest
from ganger.recipes.serving.planning.mark import Mark, capacity, covered, released
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.requests.processes import constant, spike
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace
from worlds import Diary

RATES, PRICES = {"gpu": 200.0, "small": 20.0}, {"gpu": 0.9, "small": 0.1}
PLENTY = {"gpu": 9, "small": 99}


def steady(seconds: float) -> BatchTimes:
    """One request at a time, which always takes so long."""
    return BatchTimes((seconds,), (seconds,))


# ---------------------------------------------------------------------- forecasts and envelopes


@pytest.mark.parametrize(
    ("forecaster", "series", "expected"),
    [
        (Naive(), [5, 9], [9, 9]),
        (Linear(), [7, 100, 110, 120, 130], [140, 150]),
        (Linear(), [30, 20, 10, 0], [0, 0]),  # not below nothing
        (Seasonal(3), [4, 5, 6, 4, 5, 6, 4, 5, 6], [4, 5]),
        (Seasonal(3), [4, 5, 6, 4, 5, 6, 10, 11, 12], [10 + 3, 11 + 3]),  # 3 more on average
        (Holt(), [8, 8, 8], [8, 8]),
        (Holt(1.0, 1.0, 1.0), [10, 20, 30], [40, 50]),
        (Holt(1.0, 1.0, 0.5), [10, 20], [25, 27.5]),  # half of the trend, then a quarter
        (Holt(0.5, 0.5, 1.0), [0, 8], [4 + 2, 4 + 4]),
    ],
)
def test_a_series_goes_on(
    forecaster: Forecaster, series: list[float], expected: list[float]
) -> None:
    assert forecaster.ahead(series, 2).tolist() == pytest.approx(expected)


def test_an_envelope_is_the_most_that_came_in_pieces_of_each_length() -> None:
    some = [
        Window(0, 10 * SECOND, {"arrivals": 40, "most_in_1s": 9, "most_in_4s": 20, "slo": 0.3}),
        Window(10 * SECOND, 20 * SECOND, {"arrivals": 50, "most_in_1s": 7, "most_in_4s": 24}),
        Window(20 * SECOND, 30 * SECOND, {"slo": 0.2}),
    ]
    assert envelope(some) == {1.0: 9, 4.0: 24, 10.0: 50}
    assert peak_rate(some[0], 5) == 5.0
    assert peak_rate(some[0], 0.5) == 4.0, "no piece is so short: the whole window"
    assert mean_rate(some[1]) == 5.0
    assert mean_rate(some[2]) is peak_rate(some[2], 5) is None
    assert tightest(some) == 0.2
    assert tightest(some[1:2]) is None


# ---------------------------------------------------------------------- the cards' checks by hand


@pytest.mark.parametrize(
    ("demand", "plan", "dollars"),
    [(230, {"gpu": 1, "small": 2}, 1.1), (30, {"small": 2}, 0.2)],
)
def test_mark_covers_a_demand_at_the_least_cost_a_request(
    demand: float, plan: dict[str, int], dollars: float
) -> None:
    found = covered(demand, RATES, PRICES, PLENTY, {}, 180, 600)
    assert found == plan
    assert sum(PRICES[each] * count for each, count in found.items()) == pytest.approx(dollars)


def test_mark_adds_to_what_there_is_as_far_as_there_are_places() -> None:
    assert covered(230, RATES, PRICES, PLENTY, {"small": 1}, 180, 600) == {"small": 2, "gpu": 1}
    few = {"gpu": 1, "small": 1}
    assert covered(900, RATES, PRICES, few, {}, 180, 600) == few


def test_mark_releases_what_is_dearest_and_can_be_spared() -> None:
    """A request a second costs 0.5 cents an hour on the small ones, and on the large one 0.45 if
    there are enough."""
    assert released(230, RATES, PRICES, {"gpu": 1, "small": 5}) == {"gpu": 1, "small": 2}
    assert released(150, RATES, PRICES, {"gpu": 1, "small": 5}) == {"gpu": 1}
    assert released(90, RATES, PRICES, {"gpu": 1, "small": 5}) == {"small": 5}
    assert released(30, RATES, PRICES, {"gpu": 1, "small": 2}) == {"small": 2}


@pytest.mark.parametrize(
    ("slo", "size"), [(0.178, 4), (0.177, 2), (0.055, 1), (0.025, 0), (9.0, 4)]
)  # fmt: skip
def test_marks_batch_fills_and_runs_within_the_slo(slo: float, size: int) -> None:
    """3 of 4 x 0.09 s to fill, and 0.11 s to run, is 0.1775 s."""
    times = BatchTimes((0.03, 0.05, 0.08, 0.09), (0.04, 0.06, 0.09, 0.11))
    assert capacity(times, slo) == (
        size,
        pytest.approx(size / (0, 0.03, 0.05, 0.08, 0.09)[size]) if size else 0.0,
    )


def test_barista_takes_the_type_of_which_enough_cost_least() -> None:
    """2 s: a small one serves 1 of 12 in 1.5 s, a big one 4 in 0.45 s each."""
    small = Instance("small", 0.1, steady(1.5), 99)
    big = Instance("big", 0.3, steady(0.45), 99)
    assert cheapest(12, 2, [small]) == ("small", 12)
    assert cheapest(12, 2, [small, big]) == ("big", 3)
    assert cheapest(2, 2, [small, big]) == ("small", 2)
    assert cheapest(12, 2, [small, big._replace(places=2)]) == ("small", 12), "no place for three"
    assert cheapest(12, 1.4, [small]) is None


def test_of_a_lognormal_time_95_in_100_are_below_what_barista_reckons_with() -> None:
    draws = np.random.default_rng(0).lognormal(-1.0, 0.4, 400_000)
    times = BatchTimes((float(draws.mean()),), (float(np.quantile(draws, 0.99)),))
    assert times.p95_alone == pytest.approx(float(np.quantile(draws, 0.95)), rel=0.01)


# ---------------------------------------------------------------------- planners over time

TWO = [Instance("gpu", 0.9, steady(1 / 200), 9), Instance("small", 0.1, steady(1 / 20), 99)]


def look(rates: list[float], minute: int, load: float = 0.0, slo: float = 1.0) -> Outlook:
    return Outlook(minute * MINUTE, rates, slo, TWO, load, ())


def test_mark_goes_down_only_to_the_most_of_its_last_plans() -> None:
    planner, course = Mark(Naive(), MINUTE, 3, 1.0, 180 * SECOND, 0, 2, 1), Course({})
    counts = list[dict[str, int]]()
    for minute, rate in enumerate((230.0, 30.0, 30.0, 30.0), 1):
        course.wanted = dict(planner.plan(look([rate], minute), course))
        counts.append({each: count for each, count in course.wanted.items() if count})
    assert counts == [{"gpu": 1, "small": 2}, {"gpu": 1, "small": 2}, {"small": 2}, {"small": 2}]


def test_mark_launches_nothing_for_a_while_unless_what_there_is_falls_short() -> None:
    """A rise that is only forecast waits for the end of the cool-down; one that is there does
    not."""
    planner = Mark(Linear(), MINUTE, 3, 1.0, 180 * SECOND, 5, 1, 2)
    course = Course({"small": 3}, changed=10 * MINUTE)
    rising = [20.0, 30.0, 40.0, 50.0]
    assert planner.plan(look(rising, 12), course) == {"small": 3}
    assert planner.plan(look(rising, 15), course)["small"] > 3
    assert planner.plan(look([*rising, 70.0], 12), course)["small"] > 3


def test_barista_asks_for_replicas_one_set_up_time_ahead_and_learns_from_its_errors() -> None:
    """The line says 20 a minute hence, 40 after two; a replica of 90 s has to be asked for now."""
    planner, course = Barista(Linear(2), MINUTE, 0, 3), Course({})
    assert planner.plan(look([0.0, 20.0], 2, load=0.0), course) == {"small": 2}
    course.guesses = []
    assert planner.plan(look([0.0, 20.0], 2, load=90.0), course) == {"small": 4}
    course.guesses = [20.0, 20.0]
    assert planner.plan(look([40.0, 40.0], 2), course) == {"small": 4}, "twice what was forecast"
    course.guesses = [10.0]
    assert planner.plan(look([20.0], 2), course) == {"small": 2}


# ---------------------------------------------------------------------- carried out

GPU = Latency("gpu", 1.0, np.array([1, 8]), np.array([0.05, 0.12]), np.array([0.055, 0.132]))
SMALL = Latency("small", 1.0, np.array([1]), np.array([0.2]), np.array([0.22]))
MODELS = Models(
    {"m": Model("m", bytes=1, load={"host": 15.0}, latency=(GPU, SMALL))}, {"gpu": 0, "small": 0}
)


def run(
    serving: str, rate: Any = None, minutes: int = 8, slo: float = 1.0, path: Path | None = None
) -> tuple[Run, list[tuple[int, str, str]]]:
    """A service of 2 to 12 replicas; when replicas of which type start (+) and stop (-)."""
    shape = Shape((Role(size=2, least=1, most=12),))
    web = JobSpec(name="web", kind=Kind.SERVE, model="m", shape=shape)
    trace = Trace(declare([web]), np.array([minutes * MINUTE]), name="web")
    types = (GpuType("gpu", price=0.9), GpuType("small", price=0.1))
    where = ClusterSpec(
        (NodeSpec(gpus=4, gpu_type="gpu"), NodeSpec(gpus=12, gpu_type="small")), types
    )
    mix = Mix(names=("m",), slo=round(slo * SECOND))
    asked = generated(rate or constant(8.0), seed=1, duration=60.0 * minutes - 20, mix=mix)
    setup = Setup(serving=serving, traffic=Traffic(asked, MODELS, "nanily"), validate=True)
    diary, kernels = Diary(), list[Any]()

    with ExitStack() as stack:

        def journal(kernel: Any) -> Any:
            kernels.append(kernel)
            if path is None:
                return diary
            return stack.enter_context(LogWriter(path, kernel, trace, where, "fifo", setup))

        found = run_one(trace, where, "fifo", setup, journal=journal)
    jobs, changes = kernels[0].jobs, list[tuple[int, str, str]]()
    for batch, plan in diary.steps:
        for action in plan.actions if plan else ():
            if isinstance(action, Start | Stop) and action.job:
                type_ = jobs.shapes[jobs.shape[action.job]].gpu_types[0]
                sign = "+" if isinstance(action, Start) else "-"
                changes.append((batch.at // SECOND, sign, type_))
    return found, changes


def test_the_dear_replicas_go_once_the_cheap_ones_answer() -> None:
    """8 a second, which two or three small ones answer for a third of what the GPUs cost; there are
    always enough of either that answer."""
    found, changes = run("barista(interval=60s,season=3m)")
    assert [(sign, type_) for _, sign, type_ in changes[:2]] == [("+", "gpu")] * 2
    began = max(at for at, sign, type_ in changes if (sign, type_) == ("+", "small"))
    went = [at for at, sign, type_ in changes if (sign, type_) == ("-", "gpu")]
    assert went
    assert min(went) >= min(at for at, sign, type_ in changes if type_ == "small") + 15
    assert began < 8 * 60
    assert found.services["web"]["attainment"] > 0.9
    late = found.services["web"]["dropped_by_reason"]
    assert set(late) <= {"it could not be answered in time", "the service ended"}
    assert found.account is not None
    assert found.account.costs["services"] < 0.75 * 2 * 0.9 * 8 / 60


def test_mark_releases_a_gpu_that_is_not_needed_and_adds_small_ones_in_a_burst() -> None:
    """66 a second is what a GPU can do within the SLO, 5 a small one."""
    found, changes = run("mark(calm=1,cool=1,steps=3)", spike(8.0, 65.0, 240, 120))
    assert [(sign, type_) for _, sign, type_ in changes[:3]] == [
        ("+", "gpu"),
        ("+", "gpu"),
        ("-", "gpu"),
    ]
    in_burst = [(sign, type_) for at, sign, type_ in changes if at > 240]
    assert ("+", "small") in in_burst
    assert ("-", "small") in in_burst
    assert found.services["web"]["attainment"] > 0.9


def test_a_service_keeps_what_it_has_where_nothing_is_known_or_nothing_is_due() -> None:
    slack = generated(constant(8.0), seed=1, duration=200.0, mix=Mix(names=("m",)))
    shape = Shape((Role(size=2, least=1, most=12),), ("gpu",))
    web = JobSpec(name="web", kind=Kind.SERVE, model="m", shape=shape)
    trace = Trace(declare([web]), np.array([4 * MINUTE]), name="web")
    where = ClusterSpec((NodeSpec(gpus=4, gpu_type="gpu"),))
    for traffic, knows in (
        (Traffic(slack, MODELS, "serve.no-batch"), "truth"),
        (Traffic(slack, MODELS, "serve.no-batch", slo=SECOND), "nothing"),
    ):
        found = run_one(trace, where, "fifo", Setup(serving="mark", traffic=traffic, knows=knows))
        assert set(found.service_windows["web"]["replicas"][2:]) == {2}


def test_a_log_holds_what_was_known_of_models_and_decides_the_same_again(tmp_path: Path) -> None:
    run("mark(calm=1,cool=1)", spike(8.0, 40.0, 60, 60), minutes=4, path=tmp_path / "a.log")
    assert replay(tmp_path / "a.log") > 10


def test_a_price_is_that_of_the_offer_else_of_the_type_else_all_are_alike() -> None:
    class Seen:
        """A view of some nodes."""

        def __init__(self, *nodes: NodeSpec, types: tuple[GpuType, ...] = ()) -> None:
            from ganger.core.state.cluster import Nodes

            self.nodes = Nodes(ClusterSpec(nodes, types))

    one = NodeSpec(gpus=2, gpu_type="a"), NodeSpec(gpus=1, gpu_type="b")
    dear = NodeSpec(gpus=4, gpu_type="c", offer=Offer(price=6.0))
    types = (GpuType("a", price=0.5),)
    assert prices_of(Seen(*one, dear, types=types)) == {"a": 0.5, "c": 1.5}  # type: ignore[arg-type]
    assert prices_of(Seen(*one)) == {"a": 1.0, "b": 1.0}  # type: ignore[arg-type]


def test_times_are_found_by_type_and_share() -> None:
    half = BatchTimes((0.2,), (0.3,), 0.5)
    known = Answering({"a": (steady(0.1), half)})
    assert known.on("a", 0.5) is half
    assert known.on("a") == steady(0.1)
    assert known.on("a", 0.25) is known.on("b") is None
    assert BatchTimes((0.1, 0.16), (0.1, 0.2)).rates == [10.0, 12.5]


# ---------------------------------------------------------------------- a load that stays


def poisson(rate: float, seed: int, count: int) -> list[Window]:
    """Windows of 10 s with the most that came in an eighth of a second, a quarter, ..."""
    pieces = np.random.default_rng(seed).poisson(rate / 8, (count, 80))
    lengths = [1 << power for power in range(7)]
    sums = {
        each: np.add.reduceat(pieces, range(0, 80, each), axis=1).max(axis=1) for each in lengths
    }
    return [
        Window(
            at * 10 * SECOND,
            (at + 1) * 10 * SECOND,
            {
                "arrivals": float(pieces[at].sum()),
                "slo": 2.0,
                **{f"most_in_{each / 8:g}s": float(sums[each][at]) for each in lengths},
            },
        )
        for at in range(count)
    ]


def changes(recipe: str, windows: list[Window]) -> list[dict[str, int]]:
    """What a planner wants after ten windows, whenever that is something else than before."""
    policy: Any = make(recipe)
    planner = policy.planner
    instances = [
        Instance("gpu", 0.9, affine(0.1, 0.04, 32), 16),
        Instance("small", 0.1, affine(0.4, 0.2, 8), 40),
    ]
    course, until, rates = Course({"gpu": 2}), planner.interval, list[float]()
    found = list[dict[str, int]]()
    for at, window in enumerate(windows, 1):
        rate = peak_rate(window, planner.piece) if planner.piece else mean_rate(window)
        rates.append(rate or 0.0)
        if window.until < until:
            continue
        until = window.until + planner.interval
        whole = max(rates) if planner.piece and planner.interval else sum(rates) / len(rates)
        course.rates, rates = [*course.rates, whole], []
        seen = windows[max(at - 64, 0) : at]
        outlook = Outlook(window.until, course.rates, 2.0, instances, 10.0, seen)
        wanted = {key: count for key, count in planner.plan(outlook, course).items() if count}
        if wanted != course.wanted:
            course.wanted, course.changed = wanted, window.until
            if at > 10:
                found.append(wanted)
    return found


def affine(base: float, each: float, largest: int) -> BatchTimes:
    """Batches of n take base + n x each seconds, a tenth more at worst."""
    mean = tuple(base + each * size for size in range(1, largest + 1))
    return BatchTimes(mean, tuple(1.1 * took for took in mean))


@pytest.mark.parametrize(
    ("recipe", "seeds", "an_hour"), [("mark", 20, 1), ("barista", 20, 3), ("inferline", 3, 12)]
)
def test_on_a_constant_load_plans_stay(recipe: str, seeds: int, an_hour: int) -> None:
    """Two are exceptions. Barista's mean of some intervals may cross the border between two whole
    numbers of replicas and come back. InferLine's tuner answers every window that is fuller than
    the sample, and takes back after 15 s what it added."""
    for seed in range(seeds):
        plans = changes(recipe, poisson(20.0, seed, 370))
        assert len(plans) <= an_hour, seed
