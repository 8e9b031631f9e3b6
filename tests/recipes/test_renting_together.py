"""Jobs that share rented machines, and clocks of GPUs: the cards' examples by hand, and what the
recipes differ in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ganger.core.clocks import CORE_MHZ, MEMORY_MHZ, Clocks, parts_of
from ganger.core.errors import BadInput
from ganger.core.plan import Tune
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer, Role, Shape
from ganger.core.view import View
from ganger.estimate.clocks import Effect, Setting, cheapest
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.provisioning.together import Guest, Machine, Postponed, Tenant
from ganger.recipes.training.renting.jahani import ByProgramme
from ganger.workloads.clusters import load_cluster
from ganger.workloads.measured.speeds import read_profiles
from recipes.test_renting import hours, kinds, machine, market, run
from worlds import Diary, Work, job, trace_of

# ---------------------------------------------------------------------- Jahani

SMALL_OR_LARGE = market(machine(1.0, 8), machine(3.0, 2, gpus=4))
"""Machines of one GPU for $1 an hour, and of four for $3."""


@pytest.mark.parametrize(("jobs", "dollars"), [(3, 3.0), (4, 3.0), (5, 4.0)])
def test_jahani_rents_the_machines_that_cost_least_together(jobs: int, dollars: float) -> None:
    """The card: three jobs of an hour cost $3 either way; four on the large machine $3, not $4; the
    fifth has a small one beside it."""
    works = [hours(f"j{n}", 1, deadline=1) for n in range(jobs)]
    found = run(works, SMALL_OR_LARGE, "jahani")
    assert found.jobs.finish.tolist() == [3600.0] * jobs
    assert sum(found.cost.values()) == pytest.approx(dollars)


def test_jahani_and_its_neighbour_differ_in_sharing() -> None:
    """cynthia gives each of four jobs the small machine that is cheapest for it alone."""
    works = [hours(f"j{n}", 1, deadline=1) for n in range(4)]
    bills = [sum(run(works, SMALL_OR_LARGE, name).cost.values()) for name in ("cynthia", "jahani")]
    assert bills == [pytest.approx(4.0), pytest.approx(3.0)]


def test_a_job_that_runs_is_resized_where_its_machine_gets_room() -> None:
    """a of up to 4 GPUs has what b and c of one leave it, and all of the machine when they end."""
    on = market(machine(3.0, 1, gpus=4))
    works = [hours("b", 1), hours("c", 1), hours("a", 8, most=4)]
    found = run(works, on, "jahani")
    assert found.jobs.finish[2] == pytest.approx(3600 + (8 - 2) / 4 * 3600)


def test_no_job_waits_beside_machines_on_which_it_would_be_in_time() -> None:
    """The machine that draws less is too slow for a. Lateness costs nothing, but a runs where it is
    in time."""
    types = GpuType("K80", watts=30.0, speed=0.5), GpuType("V100", watts=300.0)
    offer = Offer(price=0.0, rentable=True)
    groups = tuple(NodeSpec(1, 1, kind.name, watts=0.0, offer=offer) for kind in types)
    found = run([hours("a", 1, deadline=1.5)], ClusterSpec(groups, types), "andreas(penalty=0)")
    assert found.jobs.finish.tolist() == [3600.0]


def test_a_job_that_fits_on_no_empty_machine_is_charged_for_one_that_is_on() -> None:
    """a of two GPUs beside another on the large machine costs $3 for the hour that it lasts longer;
    the small one is too small for it. Late by an hour, it costs $5 more."""
    (large, _), (small, _) = kinds(machine(3.0, 1, gpus=4), machine(1.0, 1))
    beside = Guest(Tenant(1, "", Profile(), 9e9, {}), 2, 3600.0)
    machines = [Machine(0, large, 2, on=True, stay=[beside]), Machine(1, small, 1, on=False)]
    cost = ByProgramme(5.0, 1, 0.0, 6).cost(cast(View, SimpleNamespace(now=0)))
    for due, dollars in ((9e9, 3.0), (3600.0, 3.0 + 5.0 + 5.0)):
        tenant = Tenant(0, "", Profile(), due, {large.first: ((2, 7200.0),)})
        assert Postponed(5.0 / 3600, cost).of(tenant, machines) == pytest.approx(dollars)


@pytest.mark.parametrize("recipe", ["jahani", "andreas"])
def test_jobs_of_which_nobody_knows_how_long_they_are_have_machines(recipe: str) -> None:
    """One shares a machine, the other has two of its own."""
    wide = Shape((Role(size=8),))
    works = [hours("a", 1), job("wide", 0, 3600, shape=wide)]
    found = run(works, market(machine(3.0, 4, gpus=4)), recipe, knows="nothing")
    assert found.jobs.finish.tolist() == [3600.0, 3600.0]


# ---------------------------------------------------------------------- ANDREAS


def drawing(count: int = 2, gpus: int = 2, **more: Any) -> ClusterSpec:
    """Nodes that draw 100 W while they are on, and 200 W more for each GPU that computes."""
    kind = GpuType("V100", watts=200.0, idle_watts=0.0, **more)
    group = NodeSpec(count, gpus, "V100", watts=100.0, offer=Offer(price=0.0, rentable=True))
    return ClusterSpec((group,), (kind,))


def energy(found: Run) -> float:
    """kWh."""
    assert found.account is not None
    return found.account.all_energy_kwh


def test_andreas_packs_jobs_on_few_nodes_for_energy() -> None:
    """The card: an hour of two jobs on one node draws 500 Wh, on two nodes 600 Wh."""
    found = run([hours("a", 1), hours("b", 1)], drawing(), "andreas")
    assert energy(found) == pytest.approx(0.5)
    assert energy(run([hours("a", 1), hours("b", 1)], drawing(), "fc2")) == pytest.approx(0.6)


@pytest.mark.parametrize(("due", "kwh"), [(1, 0.6), (2, 0.55)])
def test_andreas_spreads_jobs_that_slow_each_other_down_where_they_would_be_late(
    due: int, kwh: float
) -> None:
    """Beside each other both take 1.1 hours, for 550 Wh on one node."""
    profiles = Profiles({"m": Profile(disturbed={"m": 1.1})})
    works = [hours(name, 1, deadline=due, model="m") for name in "ab"]
    assert energy(run(works, drawing(), "andreas", profiles=profiles)) == pytest.approx(kwh)


def test_andreas_looks_at_jobs_together_at_multiples_of_its_period() -> None:
    """b comes at a minute, and with c, at two, is looked at at ten."""
    works = [hours("b", 1, at=1 / 60), hours("c", 1, at=2 / 60)]
    found = run(works, drawing(), "andreas(every=10m)")
    assert found.jobs.first_start.tolist() == [600.0, 600.0]
    assert energy(found) == pytest.approx(0.5)


# ---------------------------------------------------------------------- GPOEO

CLOCKS = Clocks(time=0.4, watts=0.6)
MHZ = tuple(float(mhz) for mhz in range(800, 1601, 50))


def test_of_clocks_within_the_limit_the_one_of_least_energy_is_taken() -> None:
    """The card: time 1 + 0.4 (1 - f), power 0.4 + 0.6 f^3, at most 5 % slower: f = 0.875, of which
    energy is 0.842."""
    settings = [Setting(mhz / MHZ[-1], 1.0) for mhz in MHZ]
    effects = [Effect(CLOCKS.slowing(*each), CLOCKS.power(*each)) for each in settings]
    best = cheapest(settings, effects, 0.05)
    assert settings[best].core == 0.875
    assert effects[best].energy == pytest.approx(0.842, abs=5e-4)
    assert settings[cheapest(settings, effects, 0.0)].core == 1.0
    assert settings[cheapest(settings, effects, 0.05, scale=2.0)].core == 0.9375


def clocked(clocks: Clocks, use: dict[str, float], recipe: str, **more: Any) -> Run:
    profiles = Profiles({"m": Profile(clocks=clocks, utilisation=use)})
    return run([hours("a", 10, model="m")], _gpus(), recipe, profiles=profiles, **more)


def _gpus() -> ClusterSpec:
    kind = GpuType("V100", watts=300.0, idle_watts=30.0, clocks=MHZ, memory_clocks=(800.0, 1000.0))
    return ClusterSpec((NodeSpec(1, 1, "V100", watts=0.0),), (kind,))


@pytest.mark.parametrize(
    ("clocks", "use"),
    [
        (CLOCKS, {"gpu": 0.4}),
        (Clocks(0.9, 0.6), {"gpu": 0.1, "bandwidth": 0.1}),
        (Clocks(0.05, 0.5, 0.6, 0.2), {"gpu": 0.6, "bandwidth": 0.6}),
    ],
)
def test_gpoeo_keeps_the_limit_whatever_its_predictors_say(
    clocks: Clocks, use: dict[str, float]
) -> None:
    """The measured slow-down corrects the predicted one: the second model is far slower than its
    counters say."""
    plain, found = clocked(clocks, use, "fifo"), clocked(clocks, use, "gpoeo")
    assert found.jobs.finish[0] / plain.jobs.finish[0] <= 1.05 + 1e-6
    assert energy(plain) == pytest.approx(3.0)
    assert energy(found) <= energy(plain)


def test_gpoeo_saves_energy_where_its_neighbour_does_not_and_the_bill_counts_clocks() -> None:
    """One job, so time and power follow from the last clocks that were set; before them it ran no
    moment."""
    diary = Diary()
    profiles = Profiles({"m": Profile(clocks=CLOCKS, utilisation={"gpu": 0.4})})
    works: list[Work] = [hours("a", 10, model="m")]
    setup = Setup(validate=True, profiles=profiles)
    found = run_one(trace_of(works), _gpus(), "gpoeo", setup, journal=lambda _: diary)
    knobs = [
        action.knobs
        for _, plan in diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    ]
    assert knobs, "clocks are set"
    parts = parts_of(_gpus().gpu_types[0], knobs[-1])
    assert parts[0] == float(knobs[-1][CORE_MHZ]) / 1600
    assert parts[1] == float(knobs[-1][MEMORY_MHZ]) / 1000
    assert found.jobs.finish[0] == pytest.approx(36000 * CLOCKS.slowing(*parts))
    kwh = 0.3 * CLOCKS.power(*parts) * 10 * CLOCKS.slowing(*parts)
    assert energy(found) == pytest.approx(kwh)
    assert energy(found) < 0.9 * energy(clocked(CLOCKS, {"gpu": 0.4}, "fifo"))


def test_clocks_that_a_type_does_not_have_change_nothing() -> None:
    kind = GpuType("V100", clocks=(500.0, 1000.0))
    assert parts_of(kind, {}) == (1.0, 1.0)
    assert parts_of(kind, {CORE_MHZ: 10.0, MEMORY_MHZ: 10.0}) == (0.5, 1.0)
    assert parts_of(kind, {CORE_MHZ: 5000.0}) == (1.0, 1.0)


@pytest.mark.parametrize(
    "wrong", ["time = -1", "time = nan", "watts = -0.1", "watts = 0.6\nmemory_watts = 0.6"]
)
def test_clocks_that_cannot_be_are_refused(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f'format = "ganger.profiles/1"\n[models.m.clocks]\n{wrong}\n')
    with pytest.raises(BadInput, match=r"m\.clocks"):
        read_profiles(file)


@pytest.mark.parametrize("mhz", ["[2, 1]", "[0, 1]", "[1, nan]"])
def test_mhz_that_do_not_rise_are_refused(mhz: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    text = 'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 1\ngpu_type = "V100"\n'
    file.write_text(f'{text}[[gpu_types]]\nname = "V100"\nclocks = {mhz}\n')
    with pytest.raises(BadInput, match="clocks"):
        load_cluster(file)


def test_more_clocks_than_a_policy_can_look_at_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    text = 'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 1\ngpu_type = "V100"\n'
    many = f'name = "V100"\nclocks = {[*range(1, 514)]}\nmemory_clocks = [1, 2]\n'
    file.write_text(f"{text}[[gpu_types]]\n{many}")
    with pytest.raises(BadInput, match="513 clocks x 2 memory_clocks"):
        load_cluster(file)
