"""GSLICE: the knee of a model, how devices are divided, and replicas that change their share."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.plan import Start
from ganger.core.serving.answering import BatchTimes
from ganger.core.spec import ClusterSpec, JobSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND, WHOLE
from ganger.lab.log import LogWriter, replay
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.scaling.fleets import Instance
from ganger.mechanisms.scaling.shares import rate_within
from ganger.recipes.serving.sharing.gslice import (
    Step,
    Tenant,
    divided,
    fits,
    knee,
    steps_of,
)
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.requests.merging import merged
from ganger.workloads.requests.processes import Curve, constant, spike
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace
from worlds import Diary

CARD = [Step(100, 100), Step(200, 190), Step(300, 260), Step(400, 290), Step(500, 300)]
"""The shares of the card, in thousandths, and what they answer in a second."""


def tenant(load: float, *, late: bool = False, shares: tuple[int, ...] = ()) -> Tenant:
    return Tenant(CARD, load, late, 1, 4, shares)


def test_the_knee_is_where_the_next_step_adds_less_than_a_tenth() -> None:
    """From 300 to 400 thousandths 11.5 % more, from there to 500 only 3.4 %."""
    assert CARD[knee(CARD, 0.1)].share == 400
    assert CARD[knee(CARD, 0.12)].share == 300
    assert CARD[knee(CARD, 0.03)].share == 500
    assert knee(CARD[:1], 0.1) == 0


def test_a_share_does_what_it_can_in_batches_that_end_within_the_slo() -> None:
    times = BatchTimes((0.05, 0.06, 0.09), (0.06, 0.08, 0.12))
    assert rate_within(times, 0.1) == pytest.approx(2 / 0.06)
    assert rate_within(times, 0.12) == pytest.approx(3 / 0.09)
    assert rate_within(times, 0.05) == 0
    some = [Instance("gpu", 1.0, times, 9, "", share) for share in (500, 250)]
    assert steps_of(some, 0.1) == [Step(250, 2 / 0.06)], "more gains nothing"
    assert steps_of(some, 0.05) == []


def test_everybody_has_as_many_on_the_knee_as_the_load_needs() -> None:
    assert divided([tenant(200), tenant(50)], 1, 0.1) == [[400], [400]]
    assert divided([tenant(300), tenant(50)], 2, 0.1) == [[400, 400], [400]]
    assert divided([tenant(3000)], 9, 0.1) == [[500] * 4], "it may have no more, but larger ones"


def test_those_with_most_to_spare_shrink_and_those_that_are_late_grow() -> None:
    """Three on 400 thousandths are more than a device has: 1,200."""
    assert divided([tenant(250), tenant(80), tenant(90)], 1, 0.1) == [[400], [200], [400]]
    assert divided([tenant(200), tenant(50, late=True)], 1, 0.1) == [[400], [500]]
    assert divided([tenant(200, late=True), tenant(50)], 1, 0.1) == [[500], [400]]
    assert divided([tenant(200)], 1, 0.1, taken=(700,)) == [[300]]
    assert divided([tenant(200), tenant(50)], 1, 0.1, taken=(900,)) == [[100], [100]], "they wait"


def test_nothing_changes_while_everybody_does_with_what_there_is() -> None:
    """Whoever has most to spare differs from window to window."""
    have = [tenant(150, shares=(200,)), tenant(140, shares=(300,))]
    assert divided(have, 1, 0.1) == [[200], [300]]
    assert divided([have[0]._replace(load=200), have[1]], 1, 0.1) == [[400], [400]]
    assert divided([have[0]._replace(late=True), have[1]], 1, 0.1) == [[500], [400]]
    assert divided([have[0]._replace(shares=(200, 200)), have[1]], 1, 0.1) == [[400], [400]]
    assert divided(have, 1, 0.1, taken=(800,)) == [[100], [100]]


@given(
    loads=st.lists(st.tuples(st.floats(0, 2000), st.booleans()), min_size=1, max_size=6),
    devices=st.integers(1, 5),
)
def test_parts_of_devices_are_never_more_than_there_are(
    loads: list[tuple[float, bool]], devices: int
) -> None:
    """And nobody's load that fits on knees is left undone; divided again, nothing changes."""
    tenants = [tenant(load, late=late) for load, late in loads]
    parts = divided(tenants, devices, 0.1)
    assert fits([share for own in parts for share in own], devices)
    assert sum(map(sum, parts)) <= devices * WHOLE
    for each, own in zip(tenants, parts, strict=True):
        assert 1 <= len(own) <= each.most
    if fits([400] * sum(each.needs(3) for each in tenants), devices):
        for each, own in zip(tenants, parts, strict=True):
            assert each.rate(own) >= min(each.load, 4 * 290) - 1e-6
    again = [
        each._replace(shares=own, late=False) for each, own in zip(tenants, parts, strict=True)
    ]
    if all(each.rate(each.shares) >= each.load for each in again):
        assert divided(again, devices, 0.1) == parts


# ---------------------------------------------------------------------- services

SHARES = (0.2, 0.4, 0.6, 1.0)


def model(name: str, useful: float) -> Model:
    """A batch of one takes 10 ms on so much of a device as is `useful`, and in proportion longer on
    less; one of two a tenth more."""
    sizes = np.array([1, 2])
    took = []
    for share in SHARES:
        times = 0.01 * max(useful / share, 1.0) * (0.9 + 0.1 * sizes)
        took.append(Latency("gpu", share, sizes, times, 1.2 * times))
    return Model(name, bytes=1, load={"host": 4.0}, latency=tuple(took))


def run(
    serving: str = "gslice",
    *,
    useful: float = 0.4,
    gpus: int = 1,
    busy: float = 20.0,
    share: int = WHOLE,
    most: int = 3,
    yardsticks: bool = False,
    by_windows: bool = False,
    others: tuple[JobSpec, ...] = (),
    log: Path | None = None,
) -> tuple[Run, Any, Diary]:
    """Two services on `gpus`, each first with one replica, are asked 20 times a second for 80
    seconds; for 20 of them, from 30 on, the first is asked `busy` times."""
    shape = Shape((Role(least=1, most=most, needs=Needs(share=share)),))
    jobs = [JobSpec(name=name, kind=Kind.SERVE, model=name, shape=shape) for name in "ab"]
    jobs += others
    trace = Trace(declare(jobs), np.array([90 * SECOND] * len(jobs)), name="services")
    where = ClusterSpec((NodeSpec(gpus=gpus, gpu_type="gpu"),))
    curves: list[Curve] = [spike(20, busy, 30, 20), constant(20)]
    asked = merged(
        [
            generated(each, seed=seed, duration=80.0, mix=Mix(names=(name,), slo=SECOND // 5))
            for seed, (name, each) in enumerate(zip("ab", curves, strict=True))
        ]
    )
    models = {name: model(name, useful) for name in "ab"}
    known = Models(models, {"gpu": 0})
    traffic = Traffic(asked, known, "nanily", yardsticks=yardsticks, by_windows=by_windows)
    setup = Setup(serving=serving, traffic=traffic, window=5 * SECOND, validate=True)
    diary, kernels = Diary(), list[Any]()

    with ExitStack() as stack:

        def journal(kernel: Any) -> Any:
            kernels.append(kernel)
            if log is None:
                return diary
            return stack.enter_context(LogWriter(log, kernel, trace, where, "fifo", setup))

        return run_one(trace, where, "fifo", setup, journal=journal), kernels[0], diary


def begun(kernel: Any, diary: Diary) -> list[tuple[float, int, int]]:
    """When replicas started: the second, whose they are, and the share."""
    jobs = kernel.jobs
    return [
        (
            batch.at / SECOND,
            int(jobs.parent[action.job]),
            jobs.shapes[jobs.shape[action.job]].roles[0].needs.share,
        )
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Start) and jobs.parent[action.job] >= 0
    ]


def test_two_models_share_a_device_each_on_its_knee() -> None:
    """As one that would always have been cut so; with whole ones there is none for the second."""
    found, kernel, diary = run(yardsticks=True)
    assert begun(kernel, diary) == [(0, 0, 400), (0, 1, 400)]
    cut, _, _ = run("scale.static-peak(replicas=1)", share=400)
    whole, _, _ = run("scale.static-peak(replicas=1)")
    for name, figures in found.services.items():
        assert figures["attainment"] == cut.services[name]["attainment"] > 0.94
        assert figures["attainment"] <= figures["clairvoyant"]["attainment"]
        assert figures["clairvoyant"]["attainment"] <= figures["attainment_bound"] + 1e-9
    assert whole.services["a"]["attainment"] > 0.94
    assert whole.services["b"]["answered"] == 0


def test_who_needs_more_gets_it_from_who_has_some_to_spare() -> None:
    """Whole devices are useful to both; 330 a second need one and 600 thousandths of another. A
    quarter of a minute after the peak both have whole ones again."""
    found, kernel, diary = run(useful=1.0, gpus=2, busy=300, yardsticks=True)
    assert begun(kernel, diary) == [
        (0, 0, 1000),
        (0, 1, 1000),
        (35, 0, 600),
        (35, 1, 200),
        (65, 1, 1000),
    ]
    fixed, _, _ = run("scale.static-peak(replicas=1)", useful=1.0, gpus=2, busy=300)
    gain = found.services["a"]["answered"] - fixed.services["a"]["answered"]
    loss = fixed.services["b"]["answered"] - found.services["b"]["answered"]
    assert gain > 500
    assert loss == pytest.approx(2 * 4 * 20, rel=0.2), "twice there was no room for a stand-by"
    for name, figures in found.services.items():
        assert figures["attainment"] <= figures["attainment_bound"], name


def test_a_stand_by_takes_over_without_a_gap_and_else_the_gap_is_a_load() -> None:
    """72 a second on 400 thousandths are too few for 66 and a fifth: it gets 600 on the second
    device. A load takes 4 s."""
    lost = []
    for standby in ("yes", "no"):
        serving = f"gslice(gain=0.8,spare=0.2,standby={standby})"
        found, kernel, diary = run(serving, useful=1.0, gpus=2, busy=66, most=1)
        assert begun(kernel, diary) == [(0, 0, 400), (0, 1, 400), (35, 0, 600)]
        series = found.service_windows["a"]
        after = [at for at, since in enumerate(series["since"]) if since and since >= 35]
        lost.append(sum(series["dropped"][at] or 0.0 for at in after))
    assert lost[0] <= 10, "a few while it was still on 400"
    assert lost[1] - lost[0] == pytest.approx(4 * 66, rel=0.1)


def test_shares_that_change_replay_from_the_log(tmp_path: Path) -> None:
    run("gslice(gain=0.8)", useful=1.0, gpus=2, busy=66, most=1, log=tmp_path / "a.log")
    assert replay(tmp_path / "a.log") > 20


def test_a_service_that_nobody_measured_keeps_what_it_says() -> None:
    """Two whole devices; the others share the third."""
    shape = Shape((Role(size=2, least=1, most=3),))
    other = JobSpec(name="c", kind=Kind.SERVE, model="other", shape=shape)
    _, kernel, diary = run(gpus=3, others=(other,))
    assert sorted(begun(kernel, diary)) == [(0, 0, 400), (0, 1, 400), (0, 2, 1000), (0, 2, 1000)]


def test_by_windows_all_replicas_have_the_share_that_the_service_says() -> None:
    with pytest.raises(BadInput, match=r"a replica on 0\.4 of a gpu answers nothing") as refused:
        run(by_windows=True)
    assert refused.value.where == "--by-windows"
