"""Energy, carbon and money: worked out by hand, and conserved whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from anything import World, paired, worlds
from anything import costs as some_costs
from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.events import (
    Batch,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Refused,
    Released,
    Started,
    Submitted,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import (
    AnyAction,
    Placement,
    Plan,
    Provision,
    Resize,
    Resume,
    Slot,
    Start,
    Stop,
    Suspend,
)
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    JobSpec,
    Kind,
    Needs,
    NodeSpec,
    Offer,
    OnPreempt,
    Role,
    Shape,
)
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.core.view import View
from ganger.lab.billing import meter
from ganger.lab.billing.power import Power, grid_of
from ganger.lab.billing.tariff import tariff_of
from ganger.lab.metrics import aggregate, breakdown, job_columns, to_json
from ganger.lab.report import bills, render
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.lab.tables import bill_table
from ganger.recipes import registry
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.clusters import load_cluster
from worlds import Work, gpus, job, trace_of

from .test_tables import text

GPU = GpuType("V100", watts=300.0, price=2.0, idle_watts=50.0, watts_from="measured")
NODE = NodeSpec(gpus=2, gpu_type="V100", watts=100.0)
"""200 W while it is on: 100 for each of its GPUs; a GPU that computes draws 250 more."""


def spec(*nodes: NodeSpec, gpu: GpuType = GPU, **more: Any) -> ClusterSpec:
    """A cluster of these nodes."""
    return ClusterSpec(nodes or (NODE,), (gpu,), **more)


def hour(name: str, *, at: float = 0, hours: float = 1, size: int = 1, **more: Any) -> Work:
    """A job that takes so many hours."""
    return job(name, 3600 * at, 3600 * hours, size, **more)


def run(
    works: list[Work], on: ClusterSpec | None = None, recipe: str = "fifo", **setup: Any
) -> Run:
    return run_one(trace_of(works), on or spec(), recipe, Setup(**setup))


def energy(works: list[Work], **more: Any) -> list[float]:
    """kWh of all, and of what nobody held."""
    found = run(works, **more).metrics
    return [found["energy_kwh"], found["energy_of_idle_kwh"]]


# ---------------------------------------------------------------------- by hand


def test_a_gpu_that_computes_draws_more_and_the_other_one_is_nobodys() -> None:
    """An hour: 200 W of the node and 250 W of one GPU; half of the 200 W nobody has use for."""
    assert energy([hour("a")]) == pytest.approx([0.450, 0.100])


def test_two_nodes_draw_more_than_one_and_a_node_that_is_off_nothing() -> None:
    """ANDREAS' example: 100 W for a node that is on and 200 W for a GPU that computes; two jobs of
    an hour take 500 Wh on one node, and 600 Wh on two."""
    gpu = GpuType("V100", watts=200.0, idle_watts=0.0)
    two = spec(NodeSpec(gpus=2, gpu_type="V100", watts=100.0), gpu=gpu)
    apart = spec(NodeSpec(count=2, gpus=1, gpu_type="V100", watts=100.0), gpu=gpu)
    jobs = [hour("a"), hour("b")]
    assert energy(jobs, on=two)[0] == pytest.approx(0.5)
    assert energy(jobs, on=apart)[0] == pytest.approx(0.6)
    off = Outage(1, 0, 10 * HOUR)
    assert energy([hour("a")], on=apart, outages=(off,))[0] == pytest.approx(0.3), (
        "b's node is down"
    )


def test_a_job_that_holds_and_does_not_compute_draws_what_idle_gpus_do() -> None:
    """It starts for half an hour, computes for one and saves nothing: 1.5 x 100 + 250 Wh."""
    found = run([hour("a")], costs=Costs(start=HOUR // 2))
    assert found.account is not None
    assert found.account.energy_kwh.tolist() == pytest.approx([0.4])
    assert found.account.idle_energy_kwh == pytest.approx(0.15)


def test_who_waits_for_devices_pays_from_when_they_are_free() -> None:
    """a is stopped after an hour and saves for half an hour, on both GPUs; b waits for one."""
    works = [hour("a", size=2, hours=2, checkpoint=1800), hour("b", at=1, hours=0.5, priority=9)]
    found = run(works, recipe="priority(preempt=yes)")
    account = found.account
    assert account is not None
    a, b = account.energy_kwh.tolist()
    assert b == pytest.approx(0.5 * 0.35)
    assert a == pytest.approx(0.7 + 0.5 * 0.2 + 0.7), "an hour, half an hour of saving, an hour"
    assert account.idle_energy_kwh == pytest.approx(0.5 * 0.1), "beside b"


class Switching:
    """First come, first served; the last node is off until somebody waits."""

    name = "switching"

    def __init__(self) -> None:
        self.queue = registry.make("fifo")

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        plan, memory = self.queue.decide(view, memory)
        node = view.nodes.n - 1
        if view.now == 0:
            plan.actions.append(Provision(node, "off"))
        elif not view.ledger.up[node] and len(view.pending):
            plan.actions.append(Provision(node, "on"))
        return plan, memory


def test_a_node_that_is_off_draws_nothing_and_one_that_boots_does() -> None:
    """The second job, after two hours, wants both nodes; booting takes half an hour."""
    on = spec(NodeSpec(count=2, gpus=2, gpu_type="V100", watts=100.0))
    trace = trace_of([hour("a", size=2), hour("b", at=2, size=4)])
    found = run_one(trace, on, Switching(), Setup(costs=Costs(boot=HOUR // 2)))
    assert found.jobs.finish[1] == pytest.approx(3.5 * 3600)
    assert found.metrics["energy_kwh"] == pytest.approx(0.2 * (3.5 + 1.5) + 0.25 * (2 + 4))
    assert found.metrics["cost"] == pytest.approx(4 * (3.5 + 1.5))


def test_measured_watts_of_a_model_stand_for_those_at_full_load() -> None:
    """Of a model that was measured at 150 W, the other at full load."""
    profiles = Profiles({"bert": Profile(watts={"V100": 150.0, "A40": 999.0})})
    found = run([hour("a", model="bert"), hour("b")], profiles=profiles)
    assert found.account is not None
    assert found.account.energy_kwh.tolist() == pytest.approx([0.2, 0.35])
    told = {each.what: (each.load, each.load_from) for each in found.account.watts}
    assert told["V100, bert"] == (150.0, "measured")
    assert told["V100"] == (300.0, "measured")
    assert told["a node beside its GPUs"] == (100.0, "stated")


def test_parts_of_a_gpu_draw_their_part() -> None:
    shape = Shape((Role(needs=Needs(share=400)),))
    found = run([hour("a", shape=shape), hour("b", shape=shape)], recipe="space-sharing")
    assert found.account is not None
    assert found.account.energy_kwh.tolist() == pytest.approx([0.4 * 0.35] * 2)
    assert found.account.idle_energy_kwh == pytest.approx(0.2 - 0.8 * 0.1)


def test_cpus_of_a_node_without_gpus_are_their_holders_part() -> None:
    shape = Shape((Role(size=2, needs=Needs(gpus=0, cpus=3000)),))
    on = spec(NodeSpec(cpus=8000, watts=100.0))
    assert energy([hour("a", shape=shape)], on=on) == pytest.approx([0.1, 0.1 * 2 / 8])


def test_what_a_grant_holds_is_its_parents() -> None:
    parent = hour("p", hours=9, size=2, kind=Kind.TUNE)
    child = hour("c", parent="p")
    found = run([parent, child])
    assert found.account is not None
    assert found.account.energy_kwh.tolist() == pytest.approx([0.7, 0.0])


def test_the_account_ends_when_the_last_job_lets_go() -> None:
    late = (Outage(0, 5 * HOUR, 9 * HOUR),)
    assert energy([hour("a")], outages=late) == energy([hour("a")])
    assert energy([hour("a", hours=9)], until=HOUR) == energy([hour("a")]), "or when it is cut off"


ONE, OTHER = (Slot(0, 0b01),), (Slot(0, 0b10),)


def metered(*steps: tuple[float, Any], hours: float) -> float:
    """kWh that job a has drawn: what happened or was planned, hour by hour."""
    nodes = Nodes(spec())
    kernel = Kernel(nodes, trace_of([hour("a")]).declared, registry.make("fifo"))
    watch = meter.Meter(kernel.jobs, nodes, Power(nodes, Profiles()), None, boot=HOUR // 4)
    for at, what in steps:
        plan = Plan([what]) if isinstance(what, AnyAction) else None
        events = [] if plan is not None else [what]
        watch.append(0, Batch(round(at * HOUR), events), plan, None)
    watch.append(0, Batch(round(hours * HOUR), [Submitted(0)]), None, None)
    kernel.jobs.phase[0] = Phase.RUNNING
    account = watch.close(round(hours * HOUR), grid_of(spec()))
    return float(account.energy_kwh[0])


def test_who_yields_its_gpu_while_suspended_holds_nothing_until_it_goes_on() -> None:
    begun = (0, Start(0, 1, ONE)), (0, Started(0, 1)), (1, Suspend(0, 1, yields=True))
    assert metered(*begun, hours=3) == pytest.approx(0.35)
    assert metered(*begun, (2, Resume(0, 1)), hours=3) == pytest.approx(0.7)
    assert metered(*begun, (2, Stop(0, 1)), (3, Released(0, 1)), hours=3) == pytest.approx(0.35)
    frozen = *begun[:2], (1, Suspend(0, 1))
    assert metered(*frozen, hours=3) == pytest.approx(0.35 + 2 * 0.1), "on idle GPUs"


def test_a_part_of_a_gpu_that_a_policy_gives_draws_its_part() -> None:
    some = (Slot(0, 0b11, 2, share=400),)
    assert metered((0, Start(0, 1, some)), (0, Started(0, 1)), hours=1) == pytest.approx(0.8 * 0.35)


def test_who_gets_other_gpus_computes_on_the_old_ones_no_more() -> None:
    """An hour computing; then for an hour both are held; then an hour on the other."""
    moved = (1, Resize(0, 2, OTHER)), (2, Released(0, 1)), (2, Started(0, 2))
    assert metered((0, Start(0, 1, ONE)), (0, Started(0, 1)), *moved, hours=3) == pytest.approx(0.9)


def test_no_more_than_the_time_of_booting_is_reckoned_before_a_node_is_there() -> None:
    """It was asked for two hours before it came up; a quarter of an hour of that it booted."""
    nodes = Nodes(spec())
    jobs = Kernel(nodes, trace_of([hour("a")]).declared, registry.make("fifo")).jobs
    for asked, drawn in ((1, 0.25 + 7), (2.9, 0.1 + 7)):
        watch = meter.Meter(jobs, nodes, Power(nodes, Profiles()), None, boot=HOUR // 4)
        watch.append(0, Batch(0, [NodeDown(0)]), None, None)
        watch.append(0, Batch(round(asked * HOUR), []), Plan([Provision(0, "on")]), None)
        watch.append(0, Batch(3 * HOUR, [NodeUp(0)]), None, None)
        watch.append(0, Batch(10 * HOUR, []), Plan([Start(0, 1, ())]), None)
        assert watch.close(10 * HOUR, grid_of(spec())).idle_energy_kwh == pytest.approx(0.2 * drawn)


def test_a_gpu_that_computes_never_draws_less_than_idle_and_a_host_may_draw_nothing() -> None:
    low = Profiles({"bert": Profile(watts={"V100": 1.0})})
    on = spec(NodeSpec(gpus=1, gpu_type="V100", watts=0.0), gpu=GpuType("V100", idle_watts=400.0))
    assert energy([hour("a")], on=on)[0] == pytest.approx(0.3), "assumed at full load"
    assert energy([hour("a", model="bert")], profiles=low)[0] == pytest.approx(0.2)


def test_a_run_in_which_nothing_ran_has_drawn_nothing() -> None:
    found = run([hour("a", at=2)], until=HOUR)
    assert found.metrics["energy_kwh"] == found.metrics["cost"] == 0
    waits = run([hour("a")], outages=(Outage(0, 0, 9 * HOUR),), until=HOUR)
    assert waits.metrics["energy_kwh"] == 0


# ---------------------------------------------------------------------- where figures come from


def test_carbon_is_energy_by_the_grid_that_is_stated() -> None:
    works = [hour("a")]
    world = run(works)
    assert world.metrics["carbon_kg"] == pytest.approx(0.450 * 0.481)
    assert run(works, spec(carbon=100.0)).metrics["carbon_kg"] == pytest.approx(0.045)
    assert run(works, spec(carbon=100.0), carbon=0.0).metrics["carbon_kg"] == 0
    assert "world mean of 2023, Ember" in text(bill_table([world]))


def test_what_nobody_states_is_assumed_and_says_so() -> None:
    """A V100's board draws 300 W as its maker says; of type X nothing is known."""
    on = load_cluster("1x1xV100+1x1xX")
    account = run([hour("a"), hour("b")], on).account
    assert account is not None
    v100, x, host = account.watts
    assert (v100.load, v100.load_from, v100.idle, v100.idle_from) == (300, "card", 45, "assumed")
    assert (x.load, x.load_from) == (300, "assumed")
    assert (host.load, host.load_from) == (200, "assumed")
    assert account.all_energy_kwh == pytest.approx(0.6 + 0.4)


def test_a_cluster_file_states_watts_carbon_and_prices(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'format = "ganger.cluster/1"\ncarbon = 20\n[[nodes]]\ngpus = 2\ngpu_type = "V100"\n'
        'watts = 100\n[[gpu_types]]\nname = "V100"\nidle_watts = 50\nprice = 2\n'
    )
    found = run([hour("a")], load_cluster(path))
    assert found.metrics["energy_kwh"] == pytest.approx(0.45)
    assert found.metrics["carbon_kg"] == pytest.approx(0.009)
    assert found.cost == {"jobs": pytest.approx(2), "services": 0, "idle": pytest.approx(2)}
    assert found.account is not None
    assert found.account.watts[0].idle_from == "card"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("carbon = -1", "carbon: -1"),
        ("[[gpu_types]]\nname = 'V100'\nidle_watts = 400", "idle_watts = 400 are more than"),
        ("[[gpu_types]]\nname = 'V100'\nidle_watts = -4", "idle_watts: -4"),
        ("[[gpu_types]]\nname = 'V100'\nwatts_from = 'hearsay'", "watts_from"),
        ("[[nodes]]\nwatts = -5", r"nodes\[0\].watts: -5"),
    ],
)
def test_what_a_cluster_file_cannot_state(line: str, told: str, tmp_path: Path) -> None:
    node = "" if "nodes" in line else "\n[[nodes]]\ngpus = 1\ngpu_type = 'V100'"
    path = tmp_path / "c.toml"
    path.write_text(f"format = 'ganger.cluster/1'\n{line}{node}\n")
    with pytest.raises(BadInput, match=told):
        load_cluster(path)


# ---------------------------------------------------------------------- in what people read


def test_json_tables_and_report_say_it_by_tenant_and_recipe() -> None:
    works = [hour("a", tenant="ann"), hour("b", at=1, hours=2, tenant="bob")]
    found = run(works)
    told = to_json([found])["runs"][0]
    assert told["energy"]["kwh"] == pytest.approx(told["metrics"]["energy_kwh"])
    by = told["energy"]["by_tenant"]
    assert by["ann"] == {
        "energy_kwh": pytest.approx(0.35),
        "carbon_kg": pytest.approx(0.35 * 0.481),
        "cost": pytest.approx(2),
    }
    assert by["bob"]["energy_kwh"] == pytest.approx(0.7)
    assert told["energy"]["idle_kwh"] == pytest.approx(0.3)
    assert told["cost"] == {"jobs": 6, "services": 0, "idle": 6, "all": 12}
    assert [row["cost"] for row in breakdown(found)] == [2, 4]
    assert job_columns(found)["energy_kwh"] == pytest.approx([0.35, 0.7])
    page = render([found])
    assert 'id="bills"' in page
    assert "V100 300 W (measured), idle 50 W (measured)" in page


def test_recipes_that_nobody_beats_are_on_the_frontier() -> None:
    """b takes less energy and c finishes sooner than a; d is beaten by both."""

    def group(name: str, kwh: float, jct: float) -> Any:
        found = run([hour("a")])
        found.recipe = name
        found.metrics = {**found.metrics, "energy_kwh": kwh, "jct_mean_seconds": jct}
        return found

    runs = [group("b", 1, 9), group("c", 3, 2), group("d", 3, 9), group("twin", 1, 9)]
    front = bills.frontier(aggregate(runs), "energy_kwh")
    assert [each.label for each in front] == ["b", "c", "twin"]


def test_the_command_prints_the_bill_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submitted,duration,gpus\n0,3600,1\n")
    words = ["simulate", str(tmp_path / "jobs.csv"), "--cluster", "1x2xV100", "--quiet"]
    plain = CliRunner().invoke(cli, words)
    assert "kWh" not in plain.stdout
    asked = CliRunner().invoke(cli, [*words, "--bill", "--carbon", "0"])
    assert asked.exit_code == 0, asked.output
    assert "Carbon: 0 g for a kWh (stated for the run)" in asked.stdout
    as_json = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert as_json["runs"][0]["energy"]["kwh"] == pytest.approx(0.2 + 0.3 + 0.045)


# ---------------------------------------------------------------------- whatever happens


MEASURED = Profiles({"vgg": Profile(watts={"A": 100.0})})


class Reference:
    """The same by looking at every attempt in every step: what jobs draw and pay, and all nodes."""

    def __init__(self, kernel: Kernel, power: Power, tariff: Any) -> None:
        self.jobs, self.nodes, self.power, self.tariff = kernel.jobs, kernel.nodes, power, tariff
        self.has: dict[tuple[int, int], dict[str, Any]] = {}
        self.up, self.at = [True] * kernel.nodes.n, 0
        self.drawn: dict[int, float] = {}
        self.paid: dict[int, float] = {}
        self.all = self.bill = 0.0
        self.ended = (0.0, 0.0)
        """What all nodes had drawn and cost when somebody let go last."""

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        self.pass_on(batch.at)
        for event in batch.events:
            if isinstance(event, Started):
                self.has[event.job, event.attempt]["computes"] = True
            elif isinstance(event, Finished | Failed | Released | Refused):
                self.has.pop((event.job, event.attempt), None)
                for each in self.has.values():
                    each["waits"].discard(event.job)
                self.ended = self.all, self.bill
            elif isinstance(event, NodeUp) or (isinstance(event, NodeDown) and not event.by):
                self.up[event.node] = isinstance(event, NodeUp)
        for action in plan.actions if plan is not None else ():
            mine = self.has.get((getattr(action, "job", -1), getattr(action, "attempt", -1)), {})
            if isinstance(action, Start | Resize):
                waits = set(action.waits)
                if isinstance(action, Resize):
                    self.has[action.job, action.attempt - 1]["computes"] = False
                self.has[action.job, action.attempt] = {
                    "on": action.placement, "waits": waits, "computes": False, "asleep": False,
                }  # fmt: skip
            elif isinstance(action, Stop | Suspend):
                mine["computes"] = False
                mine["asleep"] |= isinstance(action, Suspend) and action.yields
            elif isinstance(action, Resume):
                mine.update(computes=True, asleep=False)

    def parts(self, job: int, placement: Placement) -> Iterator[tuple[int, float, bool]]:
        roles = self.jobs.shapes[int(self.jobs.shape[job])].roles
        for slot in placement:
            needs, gpus = roles[slot.role].needs, slot.devices.bit_count()
            if slot.share:
                part = gpus * slot.share / 1000
            elif gpus:
                part = slot.workers * needs.share / 1000 if needs.share < 1000 else gpus
            else:
                on_host = not self.nodes.gpus[slot.node] and self.nodes.cpus[slot.node]
                part = slot.workers * needs.cpus / self.nodes.cpus[slot.node] if on_host else 0
            if self.up[slot.node]:
                yield slot.node, part, gpus > 0

    def pass_on(self, now: int) -> None:
        since, self.at = self.at, now
        hours, money = (now - since) / HOUR, self.tariff.until
        span = np.array([since, now])
        paid = [float(np.diff(money(node, span))[0]) for node in range(self.nodes.n)]
        for node in range(self.nodes.n):
            self.all += hours * self.power.base[node] * self.up[node]
            self.bill += paid[node] * (self.up[node] or self.tariff.always(node))
        for (row, _), each in self.has.items():
            if each["waits"] or each["asleep"]:
                continue
            for node, part, on_gpu in self.parts(row, each["on"]):
                watts = part * self.power.each[node]
                model = self.jobs.models[self.jobs.model[row]]
                if each["computes"] and on_gpu:
                    more = part * self.power.above_idle(model, int(self.nodes.gpu_type[node]))
                    watts, self.all = watts + more, self.all + more * hours
                self.drawn[row] = self.drawn.get(row, 0.0) + watts * hours
                gpus = max(int(self.nodes.gpus[node]), 1)
                self.paid[row] = self.paid.get(row, 0.0) + part / gpus * paid[node]


PRICES = {"A": 2.0, "B": 0.5}
RECIPES = [
    "srtf", "priority(preempt=yes)", "space-sharing", "helios-ces(buffer=0)", "afs", "tiresias",
    "gandiva-fair", "gavel(space_sharing=yes)", "gandiva",
]  # fmt: skip
CHANGING = tuple((at * SECOND, price) for at, price in ((0, 1.0), (9, 5.0), (15, 2.0), (31, 7.0)))
OFFERS = [
    None,
    Offer("spot", prices=CHANGING, bid=4.0, notice=4 * SECOND),
    Offer("spot", price=3.0, available=((0, 1), (12 * SECOND, 0), (20 * SECOND, 1))),
    Offer(prices=CHANGING, rentable=True),
    Offer("reserved", price=1.0),
]
half = Shape((Role(needs=Needs(share=500)),))
full = st.builds(
    JobSpec,
    name=st.just(""),
    submitted=st.integers(0, 20).map(lambda n: n * SECOND),
    shape=st.sampled_from([gpus(1), gpus(2), gpus(1), half, Shape((Role(size=2, least=1),))]),
    priority=st.integers(0, 3),
    checkpoint=st.sampled_from([-1, 0, 3 * SECOND]),
    tenant=st.sampled_from(["ann", "bob"]),
    model=st.sampled_from(["vgg", "bert"]),
    on_preempt=st.sampled_from([OnPreempt.CHECKPOINT, OnPreempt.CHECKPOINT, OnPreempt.SUSPEND]),
)


@st.composite
def crowded(draw: st.DrawFn) -> World:
    """More jobs than one or two nodes can run at once; some fail, some take their time to go."""
    kinds = draw(st.lists(st.sampled_from("AB"), min_size=1, max_size=2))
    nodes = [NodeSpec(gpus=2, gpu_type=kind, watts=100.0) for kind in kinds]
    nodes[0] = msgspec.structs.replace(nodes[0], watts=-1.0)
    nodes[-1] = msgspec.structs.replace(nodes[-1], offer=draw(st.sampled_from(OFFERS)))
    specs = sorted(draw(st.lists(full, min_size=4, max_size=9)), key=lambda spec: spec.submitted)
    works = [
        Work(msgspec.structs.replace(spec, name=f"job {i}"), draw(st.integers(1, 20)) * SECOND)
        for i, spec in enumerate(specs)
    ]
    down = draw(st.lists(st.integers(1, 40), max_size=1))
    setup = Setup(
        costs=draw(some_costs),
        outages=tuple(Outage(0, at * SECOND, (at + 9) * SECOND) for at in down),
        profiles=draw(st.sampled_from([Profiles(), paired, MEASURED])),
        until=3600 * SECOND,
    )
    return World(ClusterSpec((*nodes,), (GpuType("A", watts=250.0),)), works, setup)


@given(
    st.sampled_from(RECIPES),
    st.one_of(crowded(), crowded(), worlds(jobs=8)),
    st.sampled_from([8, meter.MANY]),
)
def test_energy_and_money_are_conserved_and_are_as_counted_step_by_step(
    recipe: str, world: World, many: int
) -> None:
    power = Power(nodes := Nodes(world.cluster), world.setup.profiles)
    tariff = tariff_of(nodes, PRICES)
    kept: list[Reference] = []

    def journal(kernel: Kernel) -> Reference:
        kept.append(Reference(kernel, power, tariff))
        return kept[0]

    setup = replace(world.setup, prices=PRICES)
    try:
        with mock.patch.object(meter, "MANY", many):
            found = run_one(world.trace, world.cluster, recipe, setup, journal=journal)
    except BadInput:
        return  # a recipe that cannot run this world says so
    reference, account = kept[0], found.account
    assert account is not None
    rows = range(len(account.tenants))
    drawn = [reference.drawn.get(job, 0.0) / 1000 for job in rows]
    assert account.energy_kwh.tolist() == pytest.approx(drawn, abs=1e-12)
    assert account.cost is not None
    assert account.cost.tolist() == pytest.approx([reference.paid.get(j, 0.0) for j in rows])
    whole, bill = reference.ended if not reference.has else (reference.all, reference.bill)
    assert account.all_energy_kwh == pytest.approx(whole / 1000, abs=1e-12)
    assert sum(account.costs.values()) == pytest.approx(bill)
    assert account.idle_energy_kwh >= 0
    assert account.idle_cost is not None
    assert account.idle_cost >= 0
    by_tenant = sum(each["energy_kwh"] for each in account.by_tenant().values())
    assert by_tenant + account.idle_energy_kwh == pytest.approx(account.all_energy_kwh)


def test_carbon_that_is_no_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,submitted,duration,gpus\na,0,60,1\n")
    words = ["simulate", str(tmp_path / "t.csv"), "--cluster", "1xT4", "--carbon", "nan"]
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, BadInput)
    assert "--carbon: nan is not a number" in str(refused)
