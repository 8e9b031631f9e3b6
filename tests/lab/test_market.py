"""Nodes that are rented: prices over time, revocations with their notice, what is paid."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.events import Batch, NodeDown, NodeUp
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Provision
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer, OnPreempt
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.cluster import Nodes
from ganger.core.state.snapshot import capture, restore
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.lab.billing.tariff import Tariff
from ganger.lab.outages import with_revocations
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.sim.rows import Outage
from ganger.workloads.clusters import load_cluster
from ganger.workloads.market.availability import read_available
from ganger.workloads.market.prices import read_prices
from worlds import Diary, Work, job, trace_of

DEAR = ((0, 1.0), (2 * HOUR, 5.0), (3 * HOUR, 2.0))
"""A dollar an hour; five from the third hour to its end; then two."""


def nodes(*offers: Offer | None, count: int = 1, gpus: int = 1) -> ClusterSpec:
    groups = tuple(
        NodeSpec(count, gpus, "V100", labels=("spot",) * bool(o and o.market == "spot"), offer=o)
        for o in offers
    )
    return ClusterSpec(groups, (GpuType("V100", price=4.0),))


def hours(name: str, lasts: float, at: float = 0, **more: object) -> Work:
    return job(name, 3600 * at, 3600 * lasts, **more)  # type: ignore[arg-type]


def run(works: list[Work], on: ClusterSpec, recipe: str = "spot", **setup: object) -> Run:
    given = Setup(validate=True, **setup)  # type: ignore[arg-type]
    return run_one(trace_of(works), on, recipe, given)


# ---------------------------------------------------------------------- revocations


def test_a_node_goes_while_its_price_is_above_the_bid() -> None:
    spot = Offer("spot", prices=DEAR, bid=2.0, notice=2 * MINUTE)
    assert with_revocations((), Nodes(nodes(None, spot))) == (
        Outage(1, 2 * HOUR, 3 * HOUR, 2 * MINUTE),
    )
    always = Offer("spot", prices=DEAR, bid=1.5)
    assert with_revocations((), Nodes(nodes(always))) == (Outage(0, 2 * HOUR, NEVER),)
    for others in (Offer("spot", prices=DEAR), Offer(prices=DEAR, bid=1.0)):
        assert with_revocations((), Nodes(nodes(others))) == (), "no bid, or another market"


def test_the_last_nodes_of_a_group_go_first_when_there_are_too_few() -> None:
    offer = Offer("spot", available=((0, 1), (60 * SECOND, 3), (90 * SECOND, 0), (99 * SECOND, 2)))
    assert with_revocations((), Nodes(nodes(None, offer, count=2))) == (
        Outage(2, 90 * SECOND, 99 * SECOND),
        Outage(3, 0, 60 * SECOND),
        Outage(3, 90 * SECOND, 99 * SECOND),
    )


def test_outages_that_overlap_are_one_and_nobody_gives_notice_of_what_is_gone() -> None:
    spot = Offer("spot", prices=((0, 1), (100, 5), (200, 1), (210, 5), (300, 1)), bid=2, notice=50)
    found = with_revocations((Outage(0, 150, 180), Outage(0, 290, 400)), Nodes(nodes(spot)))
    assert found == (Outage(0, 100, 200, 50), Outage(0, 210, 400, 9))


def test_with_notice_a_job_saves_and_goes_elsewhere_and_loses_nothing() -> None:
    """a is on the spot node, saves for 30 s when told two minutes before, and goes on on the other
    node; without notice it loses what it did since its last checkpoint, half an hour."""
    costs = Costs(checkpoint=30 * SECOND, restore=60 * SECOND, checkpoint_every=90 * MINUTE)
    told = nodes(None, Offer("spot", prices=DEAR, bid=2.0, notice=2 * MINUTE))
    found = run([hours("a", 4)], told, costs=costs)
    assert found.jobs.finish[0] == pytest.approx(4 * 3600 + 30 + 60)
    assert found.metrics["lost_work_gpu_seconds"] == 0
    line = found.timeline
    assert line.gpus_up[line.seconds < 2 * 3600].tolist() == [2] * int((line.seconds < 7200).sum())
    assert found.cost["idle"] + found.cost["jobs"] == pytest.approx(
        4 * (4 + 90 / 3600) + 2 * 1 + 2 * (1 + 90 / 3600)
    ), "the spot node was on for two hours, and again from the third on"
    silent = nodes(None, Offer("spot", prices=DEAR, bid=2.0))
    lost = run([hours("a", 4)], silent, costs=costs)
    assert lost.metrics["lost_work_gpu_seconds"] == pytest.approx(1800)
    assert lost.jobs.finish[0] == pytest.approx(4.5 * 3600 + 60)


def test_who_takes_longer_to_save_than_the_notice_pays_until_the_node_is_gone() -> None:
    """Two hours at one dollar; then 60 s of restoring, and 2 h 2 min at four dollars elsewhere."""
    on = nodes(None, Offer("spot", prices=DEAR, bid=2.0, notice=2 * MINUTE))
    costs = Costs(checkpoint=5 * MINUTE, restore=MINUTE)
    found = run([hours("a", 4)], on, costs=costs)
    assert found.cost["jobs"] == pytest.approx(2 + 4 * (2 + 3 / 60))
    assert found.account is not None
    idle = (4.1 - 2.05) + (3.1 - 2)
    assert found.account.idle_energy_kwh == pytest.approx(0.245 * idle), "of either node, 4.1 h"


def test_a_series_holds_before_its_first_moment() -> None:
    spot = Offer("spot", prices=((HOUR, 5.0), (2 * HOUR, 1.0)), bid=2.0)
    assert with_revocations((), Nodes(nodes(spot))) == (Outage(0, 0, 2 * HOUR),)


def test_who_cannot_save_is_left_alone_by_the_recipe_too() -> None:
    spot = Offer("spot", prices=DEAR, bid=2.0, notice=HOUR)
    on = ClusterSpec((NodeSpec(1, 1, "V100", offer=spot),))
    stays = run([hours("a", 2, on_preempt=OnPreempt.NEVER)], on)
    assert stays.jobs.finish.tolist() == [2 * 3600]
    leaves = run([hours("a", 2)], on)
    assert leaves.jobs.finish.tolist() == [4 * 3600], "it saved after an hour, and waited for two"


def test_what_will_be_gone_is_known_and_kept_until_it_is_or_is_not() -> None:
    on = Nodes(nodes(None, None))
    kernel = Kernel(on, trace_of([job("a")]).declared, registry.make("spot"))
    kernel.step(Batch(0, [NodeDown(0, by=9), NodeDown(1, by=8)]))
    assert kernel.ledger.going == {0: 9, 1: 8}
    assert kernel.ledger.up == [False, False]
    again = restore(capture(kernel), on, registry.make("spot"))
    assert again.ledger.going == {0: 9, 1: 8}
    kernel.step(Batch(8, [NodeDown(1)]))
    assert kernel.ledger.going == {0: 9}
    kernel.step(Batch(8, [NodeUp(0)]))
    assert kernel.ledger.going == {}
    assert kernel.ledger.up == [True, False]
    with pytest.raises(BadInput, match="by"):
        refuse_unfit([NodeDown(0, by=-1)], kernel)


def test_nothing_starts_on_a_node_that_will_go_and_others_stay_until_it_does() -> None:
    """b comes a minute before the revocation; c, which cannot save, stays and fails."""
    spot = Offer("spot", prices=DEAR, bid=2.0, notice=2 * MINUTE)
    diary = Diary()
    works = [
        hours("c", 2.5, on_preempt=OnPreempt.NEVER),
        hours("b", 1, at=2 - 1 / 60),
    ]
    on = nodes(spot, count=2)
    found = run_one(trace_of(works), on, "fifo", Setup(validate=True), journal=lambda _: diary)
    events = [(batch.at, e) for batch, _ in diary.steps for e in batch.events]
    told = [(at, e.node, e.by) for at, e in events if isinstance(e, NodeDown)]
    assert told == [
        (2 * HOUR - 2 * MINUTE, 0, 2 * HOUR),
        (2 * HOUR - 2 * MINUTE, 1, 2 * HOUR),
        (2 * HOUR, 0, 0),
        (2 * HOUR, 1, 0),
    ]
    assert [at for at, e in events if isinstance(e, NodeUp)] == [3 * HOUR] * 2
    assert found.jobs.first_start[1] == 3 * 3600, "b waits until the nodes are there again"
    assert found.jobs.restarts[0] == 1
    assert found.jobs.finish[0] == pytest.approx((3 + 2.5) * 3600)


# ---------------------------------------------------------------------- for rent


def test_nodes_for_rent_are_off_until_they_are_switched_on() -> None:
    """helios-ces wakes the rented node when somebody waits; b then has booted for a minute."""
    on = nodes(None, Offer(price=3.0, rentable=True))
    works = [hours("a", 1), hours("b", 1)]
    found = run(works, on, "helios-ces(buffer=0)", costs=Costs(boot=MINUTE))
    assert found.jobs.first_start.tolist() == [0, 60]
    assert found.cost["jobs"] == pytest.approx(4 + 3)
    assert found.cost["idle"] == pytest.approx(4 / 60 + 3 / 60), "while b booted, and after a"
    with pytest.raises(BadInput, match=r"never starts .*a recipe that switches nodes on"):
        run([job("a", size=1), job("b", size=2)], nodes(Offer(rentable=True), gpus=2), "fifo")


def test_a_node_for_rent_that_cannot_be_had_comes_up_when_it_can() -> None:
    """It is asked for when it is too dear, and again goes while it boots."""
    prices = ((0, 9.0), (HOUR, 1.0), (2 * HOUR, 9.0), (3 * HOUR, 1.0))
    on = nodes(None, Offer("spot", prices=prices, bid=2.0, rentable=True))
    works = [hours("a", 2), hours("b", 9)]
    found = run(works, on, "helios-ces(buffer=0)")
    assert found.jobs.first_start[1] == 3600
    late = [hours("a", 9), hours("b", 0.5, at=1.75)]
    found = run(late, on, "helios-ces(buffer=0)", costs=Costs(boot=HOUR // 2))
    assert found.jobs.first_start[1] == 3 * 3600

    found = run(works, on, "helios-ces(buffer=0)", costs=Costs(boot=90 * MINUTE))
    assert found.jobs.first_start[1] == 3600
    assert found.timeline.gpus_up.max() == 2, "it comes up once"


def test_a_node_for_rent_that_nobody_wants_stays_off_whatever_its_price_does() -> None:
    on = nodes(None, Offer("spot", prices=DEAR, bid=2.0, rentable=True, notice=MINUTE))
    found = run([hours("a", 5)], on, "fifo")
    assert set(found.timeline.gpus_up.tolist()) <= {1, 2}
    assert found.timeline.gpus_up[-1] == 1
    assert found.cost == {"jobs": pytest.approx(20), "services": 0, "idle": 0}


def test_a_simulation_that_goes_on_from_a_state_takes_nodes_for_rent_as_they_are() -> None:
    on = Nodes(nodes(Offer(rentable=True)))
    trace = trace_of([job("a")])
    kernel = Kernel(on, trace.declared, registry.make("fifo"))
    engine = Simulator(trace.declared, trace.duration, Physics(on))
    assert engine.poll(0) == Batch(0, [NodeDown(0)])
    engine = Simulator(trace.declared, trace.duration, Physics(on))
    engine.adopt(kernel.jobs, {}, [], 5)
    assert engine.poll(NEVER) is None
    engine.apply(Plan([Provision(0, "on")]), 5)
    assert engine.poll(NEVER) == Batch(5, [NodeUp(0)])


def test_who_waits_for_a_spot_node_that_never_comes_is_left_waiting() -> None:
    never = Offer("spot", prices=((0, 9.0),), bid=1.0)
    assert run([hours("a", 1)], nodes(never)).jobs.state == ["pending"]


# ---------------------------------------------------------------------- what is paid


def test_a_price_that_changes_is_paid_as_it_is() -> None:
    """a holds one of two GPUs from 1.5 h to 3.5 h: half of 0.5 x 1 + 1 x 5 + 0.5 x 2."""
    on = nodes(Offer(prices=DEAR), gpus=2)
    found = run([hours("a", 2, at=1.5)], on, "fifo")
    assert found.cost["jobs"] == pytest.approx(6.5 / 2)
    assert found.cost["idle"] == pytest.approx(2 + 5 + 1 - 6.5 / 2)


def test_nodes_are_paid_in_whole_hours_and_reserved_ones_always() -> None:
    spec = nodes(Offer(price=6.0, per=HOUR), Offer("reserved", price=1.0))
    found = run([hours("a", 0.75)], spec, "fifo", outages=(Outage(1, HOUR // 2, 9 * HOUR),))
    assert found.cost["jobs"] == pytest.approx(0.75 * 6)
    assert found.cost["idle"] == pytest.approx(0.25 * 6 + 0.75 * 1)
    tariff = Tariff(Nodes(spec), {"V100": 4.0})
    assert tariff.cost(0, 0, HOUR + 1) == pytest.approx(12)
    assert tariff.cost(1, 0, MINUTE) == pytest.approx(1 / 60)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_what_a_node_costs_is_the_sum_over_every_second(
    steps: list[tuple[int, int]], since: int, more: int
) -> None:
    times = [0]
    for step, _ in steps[1:]:
        times.append(times[-1] + step)
    series = tuple((at * SECOND, float(price)) for at, (_, price) in zip(times, steps, strict=True))
    tariff = Tariff(Nodes(nodes(Offer(prices=series))), {"V100": 4.0})
    each = [
        next(price for at, price in reversed(series) if at <= second * SECOND)
        for second in range(since, since + more)
    ]
    found = tariff.cost(0, since * SECOND, (since + more) * SECOND)
    assert found == pytest.approx(sum(each) / 3600)


# ---------------------------------------------------------------------- files

AWS = """Timestamp,AvailabilityZone,InstanceType,ProductDescription,SpotPrice
2020-01-01T01:00:00.000Z,us-east-1a,p3.2xlarge,Linux/UNIX,0.9
2020-01-01T00:00:00.000Z,us-east-1b,p3.2xlarge,Linux/UNIX,1.5
2020-01-01T03:00:00.000Z,us-east-1a,p3.2xlarge,Linux/UNIX,2.5
2020-01-01T02:00:00.000Z,us-east-1a,p3.2xlarge,Windows,9.9
2020-01-01T02:00:00.000Z,us-east-1a,p2.xlarge,Linux/UNIX,0.3
"""
AZURE = "Date,NC6,NC12s v3\n2/28/2020,$0.1,\n2/29/2020,$0.2,$1.5\n3/1/2020,$0.1,$1.7\n"


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_price_series_of_clouds(tmp_path: Path) -> None:
    """Times count from the first row of the file, whosever it is."""
    aws = written(tmp_path, "aws.csv", AWS)
    assert read_prices(aws, "p3.2xlarge", "us-east-1a") == ((HOUR, 0.9), (3 * HOUR, 2.5))
    azure = written(tmp_path, "azure.csv", AZURE)
    assert read_prices(azure, "NC12s v3") == ((24 * HOUR, 1.5), (48 * HOUR, 1.7))
    own = written(tmp_path, "own.csv", "time,price\n60,2\n0,1\n")
    assert read_prices(own) == ((0, 1.0), (MINUTE, 2.0))


def test_availability_series(tmp_path: Path) -> None:
    sky = written(tmp_path, "a.json", '{"metadata":{"gap_seconds":300},"data":[4,4,2,2,3]}')
    assert read_available(sky) == ((0, 4), (600 * SECOND, 2), (1200 * SECOND, 3))
    text = "480000,add,node1\n480000,add,node2\n540000,remove,node1\n600000,remove,node2\n"
    bamboo = written(tmp_path, "b.csv", text)
    assert read_available(bamboo) == ((0, 2), (MINUTE, 1), (2 * MINUTE, 0))
    gcp = written(tmp_path, "c.txt", "2021-12-11, 11:11:30, 55\n2021-12-11, 11:12:30, 54\n")
    assert read_available(gcp) == ((0, 55), (MINUTE, 54))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (AWS.replace("0.9", "dear"), ":2: 'dear' is not a valid number"),
        (AWS.replace("us-east-1a", "x"), "zone: one of us-east-1b, x"),
        (AWS.replace("p3.2xlarge", "x"), "instance: one of p2.xlarge, x"),
        (AWS.replace("2020-01-01T01", "soon"), "not a valid date"),
        ("Date,NC6\n1/1/2020,1\n", "instance: one of NC6"),
        ("Date,p3.2xlarge\nsoon,1\n", ":2: 'soon' is not a date"),
        ("Date,p3.2xlarge\n1/1/2020,\n", "no prices"),
        ("when,much\n", "its columns are when, much"),
        ("\ntime,price\n0,1\n", "its columns are "),
        ("time,price\n0," + "1" * 200_000, "field larger"),
        (AWS.partition("\n")[0], "no prices"),
        ("", "empty"),
    ],
)
def test_prices_that_cannot_be_read(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=told):
        read_prices(written(tmp_path, "p.csv", text), "p3.2xlarge", "us-east-1a")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", '{"data":[1]}', "no `metadata`"),
        ("a.json", '{"metadata":{"gap_seconds":1},"data":["x"]}', r"data\[0\]"),
        ("a.csv", "0,add,n\n1,sub,n\n", ":2: '1,sub,n'"),
        ("a.txt", "2021-12-11, 11:11:30, many\n", ":1: "),
        ("a.txt", "2021-99-11, 11:11:30, 4\n", "not a valid date"),
        ("a.out", "[2020] Created instance\n", "does not say"),
        ("a.json", '{"metadata":{"gap_seconds":0},"data":[1,2]}', "gap_seconds: 0"),
        ("a.json", '{"metadata":{"gap_seconds":1e11},"data":[1,2]}', "gap_seconds: "),
        ("a.csv", "5,add,n\n1,add,m\n", ":2: 1 ms is before line 1"),
        ("a.csv", "0,add,n\n" + "9" * 5000 + ",add,m\n", ":2: "),
        ("a.txt", "2021-12-11, 11:11:30, " + "9" * 5000, ":1: "),
        ("a.csv", '"' + "a" * 200_000 + '"', "field larger"),
    ],
)
def test_availability_that_cannot_be_read(name: str, text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=told):
        read_available(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("path", "told"), [("a\0b", "leave out the null"), ("a" * 5000, "too long")]
)
def test_a_path_that_cannot_be_is_one_error(path: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=told):
        read_prices(tmp_path / path)


FILE = """format = "ganger.cluster/1"
[[nodes]]
count = 2
gpus = 1
gpu_type = "V100"
market = "spot"
zone = "us-east-1a"
instance = "p3.2xlarge"
prices = "aws.csv"
bid = 2.0
available = "a.json"
notice = "2m"
billed = "hour"
rentable = true
"""


def test_a_cluster_file_states_the_terms(tmp_path: Path) -> None:
    written(tmp_path, "aws.csv", AWS)
    written(tmp_path, "a.json", '{"metadata":{"gap_seconds":300},"data":[2,1]}')
    group = load_cluster(written(tmp_path, "c.toml", FILE)).nodes[0]
    assert group.offer == Offer(
        "spot",
        "us-east-1a",
        -1.0,
        ((HOUR, 0.9), (3 * HOUR, 2.5)),
        2.0,
        ((0, 2), (300 * SECOND, 1)),
        2 * MINUTE,
        HOUR,
        True,
        "p3.2xlarge",
    )
    assert group.labels == ("spot",), "the recipe of that name knows them"
    plain = 'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 1\ngpu_type = "V100"\n'
    assert load_cluster(written(tmp_path, "d.toml", plain)).nodes[0].offer is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('market = "spot"', "market is on_demand"),
        ("bid = 2.0", "bid: -1"),
        ('notice = "2m"', "notice"),
        ('billed = "hour"', "billed"),
        ("rentable = true", "price beside prices"),
    ],
)
def test_terms_that_cannot_be(line: str, told: str, tmp_path: Path) -> None:
    instead = {
        'market = "spot"': "", "bid = 2.0": "bid = -1", 'notice = "2m"': 'notice = "soon"',
        'billed = "hour"': 'billed = "moon"', "rentable = true": "price = 3",
    }  # fmt: skip
    written(tmp_path, "aws.csv", AWS)
    written(tmp_path, "a.json", '{"metadata":{"gap_seconds":300},"data":[2,1]}')
    with pytest.raises(BadInput, match=told):
        load_cluster(written(tmp_path, "c.toml", FILE.replace(line, instead[line])))
