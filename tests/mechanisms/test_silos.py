"""Services and other jobs on nodes of their own, and nodes on loan between them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import Bench, on
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import NodeDown, Started, Submitted
from ganger.core.plan import Lend, Plan, Resize, Stop
from ganger.core.profiles import Load
from ganger.core.spec import ClusterSpec, Kind, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.snapshot import capture
from ganger.core.units import MINUTE, SECOND
from ganger.core.view import View
from ganger.lab.log import LogWriter, replay
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.two_level import regrant
from ganger.mechanisms.hybrid import reclaim
from ganger.mechanisms.hybrid.silos import Lending
from ganger.sim.physics import Costs
from mechanisms.shared_days import POOLS, SCALING, day, shared, web
from soaking import first, many
from worlds import Work, cluster, job, play, trace_of

RECIPES = ("fifo", "aryl", "las(quantum=60s)", "sia", "gavel", "tiresias", "afs", "backfill")


class Said:
    """A forecast that says what it is told to."""

    def __init__(self, *values: float) -> None:
        self._values = values

    def ahead(self, series: object, steps: int) -> NDArray[np.float64]:
        """The first of the values."""
        return np.array(self._values[:steps])


@pytest.mark.parametrize(
    ("headroom", "told", "series", "needed"),
    [
        (0.0, (2, 3, 9), [4], 4),  # never fewer than now
        (0.0, (2, 5, 9), [4], 5),  # two counts ahead: one, and the notice
        (0.25, (2, 4, 9), [4], 5),
        (0.2, (1, 1), [5], 6),
        (0.0, (1, 1), [1, 1, 4, 4], 7),  # three more came within two counts
        (0.0, (1, 1), [1, 2, 3, 4], 6),
        (0.0, (1, 1), [9, 4, 1], 1),
        (0.0, (0, 0), [0], 0),
    ],
)
def test_services_keep_what_is_foreseen_and_as_steep_a_rise_as_there_was(
    headroom: float, told: tuple[float, ...], series: list[int], needed: int
) -> None:
    lending = Lending(5 * MINUTE, 2 * MINUTE, headroom, Said(*told), reclaim.greedy)
    assert lending.needed(series) == needed


def test_between_silos_nothing_moves() -> None:
    run, watch = shared("separate", "fifo")
    assert not watch.lends
    assert run.loans is None


@pytest.mark.parametrize("training", first(2, RECIPES))
def test_nobody_is_where_he_must_not_be_and_nodes_are_back_in_time(training: str) -> None:
    """With every invariant of the books checked: no GPU has two holders."""
    run, watch = shared("aryl", training, seed=3, saves=90)
    assert run.loans is not None
    assert run.loans.loans > 0 < run.loans.returns
    assert 0 < run.loans.longest_return_seconds <= 90
    assert watch.lends[0][1].pool == "training"


@pytest.mark.parametrize("seed", first(1, range(many(60))))
def test_services_do_as_well_as_without_loans_and_jobs_are_done_sooner(seed: int) -> None:
    """Where saving takes no time, a node comes back at once, and services notice nothing."""
    apart, silos = shared("separate", "fifo", seed, validate=False)
    lent, loans = shared("aryl", "fifo", seed, validate=False)
    told = [[event.figures["queue"] for event in each.told] for each in (silos, loans)]
    one, other = (np.array(each, float) for each in told)
    assert np.allclose(one, other, atol=0.02)
    assert len(told[0]) > 50
    assert lent.loans is not None
    assert lent.metrics["jct_mean_seconds"] <= apart.metrics["jct_mean_seconds"]


def test_the_same_day_is_decided_alike_twice_and_replays_from_its_log(tmp_path: Path) -> None:
    trace, loads = day(5)
    rule = "aryl(reclaim=exact)"
    setup = Setup(serving=SCALING, sharing=rule, loads=loads, seed=5, window=MINUTE)
    texts = []
    for name in ("one", "two"):
        path = tmp_path / name
        with ExitStack() as stack:
            run_one(
                trace,
                POOLS,
                "aryl",
                setup,
                journal=lambda kernel, path=path: stack.enter_context(  # type: ignore[misc]
                    LogWriter(path, kernel, trace, POOLS, "aryl", setup)
                ),
            )
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert '"type":"Lend"' in texts[0]
    assert replay(tmp_path / "one") > 100
    changed = tmp_path / "changed"
    changed.write_text(texts[0].replace('"sharing":"aryl(reclaim=exact)"', '"sharing":"separate"'))
    with pytest.raises(Exception, match="revision"):
        replay(changed)


def calm(*works: Work, rate: float = 4.0, later: float = 60.0) -> tuple[str, list[str]]:
    """What is decided of training, second by second, where the load of a service is `rate` for an
    hour and `later` after that; and of which nodes when."""
    trace = trace_of([web(), *works])  # the service is job 0, replicas come after all others
    load = Load((0.0, 3600.0, 7200.0), (rate, later, 0.0), 10.0)
    setup = Setup(serving=SCALING, sharing="aryl", loads={"web": load}, window=MINUTE)
    told: list[str] = []
    lends: list[str] = []

    class Note:
        def append(self, revision: int, batch: object, plan: Plan | None, memory: object) -> None:
            at = round(batch.at / SECOND)  # type: ignore[attr-defined]
            for action in plan.actions if plan is not None else ():
                if isinstance(action, Lend):
                    lends.append(f"{at}: {action.pool or 'back'} {action.nodes}")
                elif isinstance(action, Stop | Resize) and 0 < action.job < trace.jobs:
                    told.append(f"{at}: {type(action).__name__} {action.job}")

    run_one(trace, POOLS, "aryl", setup, journal=lambda kernel: Note())
    return "; ".join(told), lends


def test_who_can_do_without_shrinks_and_is_not_preempted() -> None:
    """An elastic job has more than it needs while nodes are on loan, and goes on when they go."""
    shape = Shape((Role(size=2, least=2, most=8),))
    told, lends = calm(job("stiff", 1, 9000, size=6), job("wide", 1, 9000, shape=shape))
    assert lends[0] == "1: training (3, 4)"
    assert any("back" in each for each in lends)
    assert "Stop" not in told
    assert "Resize" in told
    stiff, _ = calm(*(job(f"stiff{i}", 1, 9000, size=4) for i in range(4)))
    assert "Stop" in stiff


def test_nodes_go_back_when_nothing_else_is_to_be_done() -> None:
    _, lends = calm(job("short", 10, 100, size=1))
    assert lends == ["10: training (3, 4)", "110: back (3, 4)"]


def test_a_job_that_must_stay_is_never_on_loan() -> None:
    stays = [job(f"stays{i}", 1, 4000, size=4, on_preempt=OnPreempt.NEVER) for i in range(3)]
    told, lends = calm(*stays, job("moves", 2, 9000, size=4))
    assert "Stop 1" not in told
    assert "Stop 2" not in told
    assert "Stop 3" not in told
    assert lends, "the other job is on loan"
    trace = trace_of([web(), *stays])
    with pytest.raises(BadInput, match="'stays0' must not be preempted, and nodes on loan go back"):
        run_one(trace, POOLS, "fifo", Setup(serving=SCALING, sharing="aryl"))


def test_what_cannot_be_shared_is_refused_in_a_line() -> None:
    works = [web(), job("a", 0, 10)]
    both, setup = trace_of(works), Setup(serving=SCALING, sharing="separate")
    plain = ClusterSpec((NodeSpec(count=2, gpus=4, gpu_type="V100"),))
    with pytest.raises(BadInput, match="no node is named 'serving'"):
        run_one(both, plain, "fifo", setup)
    with pytest.raises(BadInput, match="every node is named 'serving'"):
        run_one(both, cluster(2, 4, pool="serving"), "fifo", setup)
    with pytest.raises(BadInput, match="no services to share with"):
        run_one(trace_of(works[1:]), POOLS, "fifo", setup)
    with pytest.raises(BadInput, match="services have no recipe of their own"):
        run_one(both, POOLS, "fifo", Setup(sharing="separate"))
    wide = trace_of([*works, job("wide", 0, 10, size=9)])
    with pytest.raises(BadInput, match="'wide' can never fit on the nodes for training"):
        run_one(wide, POOLS, "fifo", setup)
    slow = Setup(serving=SCALING, sharing="aryl", costs=Costs(checkpoint=121 * SECOND))
    with pytest.raises(BadInput, match=r"'a' saves for 2m 01s, .* within 2m 00s .*notice=121s"):
        run_one(both, POOLS, "fifo", slow)
    with pytest.raises(BadInput, match="fifo does not say how services and other jobs share"):
        run_one(both, POOLS, "fifo", Setup(serving=SCALING, sharing="fifo"))


def test_labels_name_nodes_as_pools_do() -> None:
    on = ClusterSpec(
        (
            NodeSpec(count=2, gpus=4, gpu_type="V100"),
            NodeSpec(count=3, gpus=4, gpu_type="V100", labels=("serving", "fast")),
        )
    )
    trace, loads = day(0)
    setup = Setup(serving=SCALING, sharing="separate", loads=loads, window=MINUTE)
    pooled, labelled = (run_one(trace, each, "fifo", setup) for each in (POOLS, on))
    assert pooled.jobs.finish.tolist() == pytest.approx(labelled.jobs.finish.tolist(), nan_ok=True)


def test_where_there_are_no_services_the_recipe_decides_as_if_it_were_alone() -> None:
    from ganger.recipes import registry

    works = [job(f"j{i}", i // 2, 3 + 7 * i % 11, size=1 + i % 3) for i in range(20)]
    alone = play("fifo", works, ClusterSpec(POOLS.nodes[:1]))
    joined = registry.make_sharing("separate").join(registry.make("fifo"), registry.make("fifo"))
    assert play(joined, works, POOLS).text() == alone.text()


def test_what_is_on_loan_stands_in_the_tables_and_in_a_snapshot() -> None:
    bench = Bench(*(job(name, size=1) for name in "abc"), on=cluster(3, 4))
    bench.feed(0, Submitted(0), then=[Lend((0, 2), "training"), Lend((1,), "others")])
    assert bench.kernel.view.lent == {0: "training", 2: "training", 1: "others"}
    bench.feed(1, Submitted(1), then=[Lend((0, 1))])
    assert capture(bench.kernel).settings.lent == bench.kernel.view.lent == {2: "training"}
    with pytest.raises(InvariantError, match="no node 3"):
        bench.feed(2, Submitted(2), then=[Lend((3,), "training")])


class Growing:
    """Gives the first job, a search, two GPUs, and four when node 1 is down."""

    name = "growing"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Start it, then give it another grant."""
        inside = view.inside(0)
        if inside is not None and not view.ledger.up[1]:
            regrant(view, inside, 0, 4)
        elif 0 in view.pending.tolist():
            view.draft.start(0, on(0b11))
        return view.draft.plan(), None


def test_a_search_does_not_grow_onto_a_node_that_takes_nobody() -> None:
    """A node that is down, as nodes of services are for a search beside them."""
    shape = Shape((Role(size=2, least=1, most=4),))
    search = job("search", 0, None, kind=Kind.TUNE, shape=shape)
    child = job("trial", 0, 9, size=1, parent="search")
    bench = Bench(search, child, on=cluster(2, 2), policy=Growing())
    bench.feed(0, Submitted(0))
    bench.feed(1, Started(0, 1))
    plan = bench.feed(2, Submitted(1), NodeDown(1))
    assert plan is not None
    assert plan.actions == [], "there is no more than it has"
