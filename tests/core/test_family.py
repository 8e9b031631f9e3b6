"""Parents and children: grants that change while children run, and services whose replicas are
placed in the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench import Bench, on
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import Accepted, Batch, Failed, Finished, Released, Started, Submitted, Woke
from ganger.core.plan import Placement, Plan, Resize, Slot, Start, Stop
from ganger.core.spec import ClusterSpec, Kind, Needs, Role, Shape
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.log import LogWriter, replay
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.trace import Trace
from worlds import Work, cluster, gpus, job, play, trace_of

SEARCH = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=4, least=1, most=8),)))


def needing(size: int = 1, **needs: int) -> Shape:
    """Workers that need more than GPUs, or a part of one."""
    return Shape((Role(size=size, needs=Needs(**needs)),))


def hosted() -> Work:
    """A search of one GPU, 4 CPUs and 8 GiB."""
    return job("hosted", lasts=None, kind=Kind.TUNE, shape=needing(cpus=4000, memory=8192))


def parted() -> Work:
    """A search of a quarter of a GPU and 4,000 MiB of its memory."""
    return job("parted", lasts=None, kind=Kind.TUNE, shape=needing(share=250, gpu_memory=4000))


def search(trials: int = 3, nodes: int = 2, size: int = 4) -> Bench:
    """A search that holds the GPUs of node 0, with a trial on each of the first of them."""
    works = [SEARCH, *(job(f"t{i}", parent="search") for i in range(trials)), job("other", size=4)]
    bench = Bench(*works, on=cluster(nodes, size))
    bench.feed(0, *(Submitted(row) for row in range(bench.jobs.n)), then=[Start(0, 1, on(0b1111))])
    bench.feed(0, Started(0, 1), then=[Start(i + 1, 1, on(1 << i)) for i in range(trials)])
    bench.feed(0, *(Started(i + 1, 1) for i in range(trials)))
    return bench


def phases(bench: Bench) -> list[str]:
    """Of all jobs."""
    return [Phase(phase).name for phase in bench.jobs.phase[: bench.jobs.n]]


def drawn(bench: Bench, draw: Any) -> Plan:
    """What comes of a decision that `draw` makes in the draft."""

    def decide(view: View, memory: None) -> tuple[Plan, None]:
        draw(view)
        return view.draft.plan(), None

    asked, bench.kernel.policy.decide = bench.kernel.policy.decide, decide  # type: ignore[method-assign]
    plan = bench.feed(bench.kernel.now / SECOND + 1, Woke())
    bench.kernel.policy.decide = asked  # type: ignore[method-assign]
    assert plan is not None
    return plan


def test_a_grant_grows_and_its_trials_notice_nothing() -> None:
    bench = search()
    plan = drawn(bench, lambda view: view.draft.resize(0, (*on(0b1111), *on(0b0011, node=1))))
    assert plan.actions == [Resize(0, 2, (*on(0b1111), *on(0b0011, node=1)), (0,))]
    assert phases(bench)[1:4] == ["RUNNING"] * 3
    assert bench.kernel.view.inside(0) is None, "what it gets may not be there yet"
    bench.feed(3, Released(0, 1, 0.0), Started(0, 2))
    inside = bench.kernel.view.inside(0)
    assert inside is not None
    assert inside.ledger.free == 3, "one of node 0 and two of node 1"


def test_a_grant_that_shrinks_stops_those_that_are_outside_and_no_other() -> None:
    bench = search()
    plan = drawn(bench, lambda view: view.draft.resize(0, on(0b0011)))
    assert plan.actions == [Stop(3, 1, "parent"), Resize(0, 2, on(0b0011), (0,))]
    assert phases(bench)[1:4] == ["RUNNING", "RUNNING", "STOPPING"]
    bench.feed(3, Released(0, 1, 0.0), Released(3, 1, 0.0), Started(0, 2))
    assert phases(bench)[3] == "PENDING"
    inside = bench.kernel.view.inside(0)
    assert inside is not None
    assert (inside.ledger.free, bench.kernel.ledger.free) == (0, 6)


def test_a_grant_that_shrinks_over_a_trial_is_refused_where_the_plan_does_not_stop_it() -> None:
    bench = search()
    with pytest.raises(InvariantError, match="is not free"):
        bench.feed(1, Woke(), then=[Resize(0, 2, on(0b0011))])


@pytest.mark.parametrize("by_hand", [True, False])
def test_who_gets_the_gpus_of_a_search_that_is_stopped_waits_for_its_trials(by_hand: bool) -> None:
    bench = search(trials=2)
    if by_hand:
        bench.feed(1, Woke(), then=[Stop(0, 1), Start(3, 1, on(0b1111), (0, 1, 2))])
    else:

        def both(view: View) -> None:
            view.draft.stop(0)
            view.draft.start(3, on(0b1111))

        plan = drawn(bench, both)
        assert plan.actions == [
            Stop(1, 1, "parent"),
            Stop(2, 1, "parent"),
            Stop(0, 1),
            Start(3, 1, on(0b1111), (0, 1, 2)),
        ]
    assert phases(bench) == ["STOPPING", "STOPPING", "STOPPING", "STARTING"]
    bench.feed(3, Released(0, 1, 0.0))
    bench.feed(4, Released(1, 1, 5.0), Released(2, 1, 7.0), Started(3, 1))
    assert phases(bench) == ["PENDING", "PENDING", "PENDING", "RUNNING"]
    assert bench.kernel.ledger.leaving == {}
    assert bench.jobs.work[1:3].tolist() == [5.0, 7.0]


def test_a_search_that_this_draft_stopped_goes_on_with_its_trials() -> None:
    bench = search()

    def hold_up(view: View) -> None:
        view.draft.restore(0, view.draft.stop(0))

    assert drawn(bench, hold_up).actions == []
    assert phases(bench)[:4] == ["RUNNING"] * 4


@pytest.mark.parametrize(
    ("placement", "stopped", "waits"),
    [
        ((*on(0b1111), *on(0b0011, node=1)), [], (0,)),
        (on(0b0011), [3], (0,)),
        (on(0b1111, node=1), [1, 2, 3], ()),
    ],
)
def test_a_search_that_is_stopped_and_started_in_one_draft_keeps_trials_that_it_has_room_for(
    placement: tuple[Slot, ...], stopped: list[int], waits: tuple[int, ...]
) -> None:
    bench = search()

    def stop_and_start(view: View) -> None:
        view.draft.stop(0)
        view.draft.start(0, placement)

    plan = drawn(bench, stop_and_start)
    stops: list[Any] = [Stop(child, 1, "parent") for child in stopped]
    assert plan.actions == [*stops, Resize(0, 2, placement, waits)]
    running = [row for row in (1, 2, 3) if bench.jobs.phase[row] == Phase.RUNNING]
    assert running == [row for row in (1, 2, 3) if row not in stopped]


def test_a_draft_that_is_rolled_back_leaves_the_grant_as_it_was() -> None:
    bench = search()

    def try_and_give_up(view: View) -> None:
        mark = view.draft.mark()
        view.draft.stop(0)
        view.draft.rollback(mark)
        view.draft.resize(0, on(0b0001))
        view.draft.rollback(mark)

    assert drawn(bench, try_and_give_up).actions == []
    assert phases(bench)[:4] == ["RUNNING"] * 4


def test_a_search_that_is_lost_takes_its_trials_along() -> None:
    """Its attempt failed; nobody planned that. Whoever gets its GPUs waits for the trials."""
    bench = search(trials=2)
    bench.policy.next = Plan()
    plan = bench.kernel.step(Batch(2 * SECOND, [Failed(0, 1, 0.0, "NodeFail")]))
    assert plan is not None
    assert plan.actions == [Stop(1, 1, "parent"), Stop(2, 1, "parent")]
    assert phases(bench)[:3] == ["PENDING", "STOPPING", "STOPPING"]
    assert bench.kernel.ledger.waits(on(0b0010)) == (2,)
    bench.feed(3, Released(1, 1, 0.0), Released(2, 1, 0.0))
    assert bench.kernel.ledger.leaving == {}


def test_the_children_of_a_job_that_has_ended_are_cancelled_also_those_that_come_later() -> None:
    works = [
        SEARCH,
        job("running", parent="search"),
        job("waiting", parent="search"),
        job("late", parent="search"),
    ]
    bench = Bench(*works, on=cluster(1, 4))
    bench.feed(0, *map(Submitted, range(3)), then=[Start(0, 1, on(0b0001))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b0001))])
    bench.feed(1, Started(1, 1))
    bench.policy.next = Plan()
    plan = bench.kernel.step(Batch(2 * SECOND, [Finished(0, 1)]))
    assert plan is not None
    assert plan.actions == [Stop(1, 1, "parent")]
    bench.feed(3, Released(1, 1, 0.0), Submitted(3))
    assert phases(bench) == ["FINISHED", "CANCELLED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_kernel_restored_while_a_grant_changes_knows_what_it_knew(at: int) -> None:
    bench = search()
    if at >= 2:
        drawn(bench, lambda view: view.draft.resize(0, on(0b0011)))
    if at >= 3:
        bench.feed(2, Released(0, 1, 0.0))
    kept = msgspec.msgpack.encode(capture(bench.kernel))
    again = restore(
        msgspec.msgpack.decode(kept, type=Snapshot), bench.kernel.nodes, bench.policy, validate=True
    )
    assert msgspec.msgpack.encode(capture(again)) == kept
    for kernel in (bench.kernel, again):
        assert kernel.placements().keys() == ({0, 1, 2} if at >= 2 else {0, 1, 2, 3})
        assert kernel.ledger.waits(on(0b1111)) == bench.kernel.ledger.waits(on(0b1111))


def test_a_snapshot_of_the_version_before_places_children_as_it_did() -> None:
    bench = search()
    kept = capture(bench.kernel)
    before = msgspec.structs.replace(
        kept, columns={name: data for name, data in kept.columns.items() if name != "within"}
    )
    again = restore(before, bench.kernel.nodes, bench.policy)
    assert again.jobs.within[:5].tolist() == [-1, 0, 0, 0, -1]
    assert again.placements() == bench.kernel.placements()


# ---------------------------------------------------------------------- more than GPUs


def test_a_grant_has_the_cpus_of_its_parent_and_no_more() -> None:
    """The search holds 2 GPUs and 6 of the 16 CPUs. A trial needs one GPU and 4 CPUs, so that one
    runs at a time; the job beside has the 10 CPUs that are left."""
    works = [
        job("search", lasts=None, kind=Kind.TUNE, shape=needing(2, cpus=3000)),
        job("t0", 0, 3, shape=needing(cpus=4000), parent="search"),
        job("t1", 0, 3, shape=needing(cpus=4000), parent="search"),
        job("small", 0, 1, shape=needing(cpus=2000), parent="search"),
        job("beside", 0, 9, shape=needing(cpus=10_000)),
    ]
    policy = TwoLevel(registry.make("fifo(walk=skip)"), registry.make("fifo(walk=skip)"))
    run = play(policy, works, cluster(1, 4, cpus=16_000), until=20 * SECOND)
    assert (
        run.text()
        == """\
0: start search on 0:0,1; start beside on 0:2
0: start t0 on 0:0; start small on 0:1
3: start t1 on 0:0"""
    )


def test_trials_share_the_part_of_a_gpu_that_their_search_holds() -> None:
    """The search has half of the GPU and half of its memory, a job beside has the other half. Two
    trials of a quarter fit; the third waits for both memory and compute."""
    works = [
        job("search", lasts=None, kind=Kind.TUNE, shape=needing(share=500, gpu_memory=8000)),
        job("t0", 0, 2, shape=needing(share=250, gpu_memory=4000), parent="search"),
        job("t1", 0, 4, shape=needing(share=250, gpu_memory=3000), parent="search"),
        job("t2", 0, 1, shape=needing(share=100, gpu_memory=4001), parent="search"),
        job("t3", 0, 1, shape=needing(share=250, gpu_memory=4000), parent="search"),
        job("beside", 0, 9, shape=needing(share=500, gpu_memory=8000)),
    ]
    policy = TwoLevel(registry.make("fifo(walk=skip)"), registry.make("fifo(walk=skip)"))
    run = play(policy, works, cluster(1, 1), until=20 * SECOND)
    assert (
        run.text()
        == """\
0: start search on 0:0; start beside on 0:0
0: start t0 on 0:0; start t1 on 0:0
2: start t2 on 0:0
3: start t3 on 0:0"""
    )


def test_of_trials_that_a_smaller_grant_has_no_cpus_for_the_last_goes() -> None:
    """The search gives up a helper with 4 CPUs, and none of its GPUs."""
    shape = Shape(
        (
            Role("gpu", 2, needs=Needs(cpus=1000)),
            Role("helper", 2, least=1, most=2, needs=Needs(gpus=0, cpus=4000)),
        )
    )
    works = [
        job("search", lasts=None, kind=Kind.TUNE, shape=shape),
        *(job(f"t{i}", shape=needing(cpus=5000), parent="search") for i in range(2)),
    ]
    bench = Bench(*works, on=cluster(1, 2, cpus=16_000))

    def held(helpers: int) -> Placement:
        return (Slot(0, 0b11, 2), Slot(0, 0, helpers, 1))

    bench.feed(0, *map(Submitted, range(3)), then=[Start(0, 1, held(2))])
    bench.feed(0, Started(0, 1), then=[Start(i + 1, 1, on(1 << i)) for i in range(2)])
    bench.feed(0, Started(1, 1), Started(2, 1))
    plan = drawn(bench, lambda view: view.draft.resize(0, held(1)))
    assert plan.actions == [Stop(2, 1, "parent"), Resize(0, 2, held(1), (0, 2))]


# ---------------------------------------------------------------------- which families there are


@pytest.mark.parametrize(
    ("works", "complaint"),
    [
        ([job("a", parent="a")], "'a': its parent 'a' has a parent itself"),
        (
            [job("a", parent="b", kind=Kind.TUNE), job("b", parent="a", kind=Kind.TUNE)],
            "'a': its parent 'b' has a parent itself",
        ),
        (
            [
                job("top", kind=Kind.TUNE),
                job("inner", parent="top", kind=Kind.TUNE),
                job("trial", parent="inner"),
            ],
            "'trial': its parent 'inner' has a parent itself",
        ),
        (
            [SEARCH, job("wide", size=9, parent="search")],
            "'wide': it asks for 9 GPUs, and its parent 'search' never holds more than 8",
        ),
        (
            [SEARCH, job("t", shape=needing(cpus=500), parent="search")],
            "'t': it asks for 0.5 CPUs, and its parent 'search' never holds more than 0",
        ),
        (
            [hosted(), job("t", shape=needing(memory=9000), parent="hosted")],
            "'t': it asks for 9000 MiB of host memory, and its parent 'hosted' never holds more"
            " than 8192",
        ),
        (
            [parted(), job("t", shape=needing(share=300), parent="parted")],
            "'t': it asks for 0.3 GPUs, and its parent 'parted' never holds more than 0.25",
        ),
        (
            [parted(), job("t", shape=needing(share=100, gpu_memory=4001), parent="parted")],
            "'t': it asks for 4001 MiB of GPU memory, and its parent 'parted' never holds more"
            " than 4000",
        ),
        (
            [hosted(), job("t", shape=needing(memory=1234567), parent="hosted")],
            "'t': it asks for 1234567 MiB of host memory",
        ),
    ],
)
def test_a_family_that_could_never_run_is_refused(works: list[Work], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        trace_of(works)


def test_a_trial_that_asks_for_all_that_its_parent_may_hold_is_taken() -> None:
    full = needing(cpus=4000, memory=8192)
    assert trace_of([hosted(), job("t", shape=full, parent="hosted")]).jobs == 2
    full = needing(share=250, gpu_memory=4000)
    assert trace_of([parted(), job("t", shape=full, parent="parted")]).jobs == 2
    tenths = Shape(tuple(Role(name=f"r{tenth}", needs=Needs(share=tenth)) for tenth in (100, 200)))
    three = job("p", shape=needing(share=300), kind=Kind.TUNE)
    assert trace_of([three, job("0.1 and 0.2 are 0.3", shape=tenths, parent="p")]).jobs == 2
    part = needing(share=250, gpu_memory=9000)
    assert trace_of([SEARCH, job("part of a whole GPU", shape=part, parent="search")]).jobs == 2


def test_a_trial_as_wide_as_its_parent_may_get_and_a_wide_replica_are_taken() -> None:
    service = job("web", lasts=None, shape=Shape((Role(size=0),)), kind=Kind.SERVE)
    assert trace_of([SEARCH, job("wide", size=8, parent="search")]).jobs == 2
    assert trace_of([service, job("replica", size=8, parent="web")]).jobs == 2


def test_a_job_that_comes_late_may_not_be_a_grandchild() -> None:
    bench = search()
    late = job("late", parent="t0").spec
    with pytest.raises(BadInput, match="its parent 't0' has a parent itself"):
        refuse_unfit([Accepted(bench.jobs.n, late)], bench.kernel)
    wide = job("late", size=9, parent="search").spec
    with pytest.raises(BadInput, match="'search' never holds more than 8"):
        refuse_unfit([Accepted(bench.jobs.n, wide)], bench.kernel)
    refuse_unfit([Accepted(bench.jobs.n, job("late", size=8, parent="search").spec)], bench.kernel)


def test_a_search_that_nothing_would_ever_end_is_refused() -> None:
    alone = job("alone", lasts=None, kind=Kind.TUNE)
    with pytest.raises(BadInput, match=r"'alone' is of kind tune, has no duration, and no job"):
        run_one(trace_of([alone]), cluster(1, 1), "fifo")
    ends = run_one(trace_of([job("for a while", lasts=7, kind=Kind.TUNE)]), cluster(1, 1), "fifo")
    assert ends.jobs.finish.tolist() == [7]


def test_gpu_hours_of_a_grant_are_its_parents_and_are_counted_once() -> None:
    works = [
        job("search", lasts=None, kind=Kind.TUNE, size=2),
        job("trial", lasts=10, size=2, parent="search"),
    ]
    run = run_one(trace_of(works), cluster(1, 2), "fifo")
    assert run.jobs.held_gpu_seconds.tolist() == [20, 0]
    assert run.jobs.active_gpu_seconds.tolist() == [20, 20]


# ---------------------------------------------------------------------- a service


class Scaler:
    """Training in order of arrival; as many replicas of the service as `wanted` says, by second."""

    name = "scaler"

    def __init__(self, wanted: dict[int, int]) -> None:
        self._wanted, self._training = wanted, registry.make("fifo")

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Start and stop replicas, the last first; they are jobs like others."""
        replicas = np.flatnonzero(view.jobs.parent[: view.jobs.n] == 0).tolist()
        want = [count for at, count in self._wanted.items() if at * SECOND <= view.now][-1]
        for row in reversed(replicas[want:]):
            if view.draft.holds(row) is not None:
                view.draft.stop(row)
        waiting = view.pending.tolist()
        others = [row for row in waiting if row not in replicas]
        for row in [each for each in replicas[:want] if each in waiting] + others:
            place = view.ledger.find(view.draft.shape(row))
            if place is not None:
                view.draft.start(row, place)
        coming = [at * SECOND for at in self._wanted if at * SECOND > view.now]
        return view.draft.plan((), min(coming, default=2**62)), None


def test_a_service_of_three_replicas_is_scaled_without_restarting_a_sibling() -> None:
    works = [
        job("web", lasts=None, shape=Shape((Role(size=0),)), kind=Kind.SERVE),
        *(job(f"web.{i}", lasts=None, parent="web") for i in range(5)),
        job("train 1", 0, 6),
        job("train 2", 1, 6),
    ]
    run = play(Scaler({0: 3, 4: 5, 8: 1}), works, cluster(1, 6), until=20 * SECOND)
    assert (
        run.text()
        == """\
0: start web.0 on 0:0; start web.1 on 0:1; start web.2 on 0:2; start web on 0:; start train 1 on 0:3
1: start train 2 on 0:4
4: start web.3 on 0:5
6: start web.4 on 0:3
8: stop web.4; stop web.3; stop web.2; stop web.1"""
    )
    assert run.jobs.restarts[:8].tolist() == [0] * 8
    assert [run.ended(name) for name in ("train 1", "train 2")] == [6, 7]


# ---------------------------------------------------------------------- any recipe inside


RANDOM = st.lists(
    st.tuples(st.sampled_from(["grow", "shrink", "move", "stop", "leave"]), st.integers(1, 8)),
    min_size=1,
    max_size=12,
)


class Restless:
    """Does something to the grant of job 0 at each decision; in the end it has 4 GPUs or more."""

    name = "restless"

    def __init__(self, orders: list[tuple[str, int]]) -> None:
        self._orders, self._fifo = orders, registry.make("fifo")

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """The next order, as far as there is room."""
        step = memory or 0
        held = view.draft.holds(0)
        last = "grow", 4 - sum(slot.workers for slot in held or ())
        what, gpus = self._orders[step] if step < len(self._orders) else last
        running = view.at.phase[0] == Phase.RUNNING
        if held is not None and running and what == "stop":
            view.draft.stop(0)
        elif held is not None and running and what != "leave":
            mark = view.draft.mark()
            if what == "move":
                with view.ledger.without({slot.node: slot.devices for slot in held}):
                    place = view.ledger.find(view.draft.shape(0), (gpus,))
            else:
                now = sum(slot.workers for slot in held)
                size = min(max(now + (max(gpus, 0) if what == "grow" else -gpus), 1), 8)
                place = _around(view, held, size)
            view.draft.rollback(mark)
            if place is not None and place != held:
                view.draft.resize(0, place)
        plan, _ = self._fifo.decide(view, None)
        if len(view.pending) or len(view.active):  # else all is over
            plan.wake = min(plan.wake, view.now + 3 * SECOND)
        return plan, step + 1


def _around(view: View, held: Any, size: int) -> Any:
    """What is held without its last GPUs, or with more beside it."""
    from ganger.core.books.bits import members
    from ganger.core.plan import Slot

    devices = [(slot.node, device) for slot in held for device in members(slot.devices)]
    free = [
        (node, device)
        for node in range(view.nodes.n)
        if view.ledger.up[node]
        for device in members(view.ledger.free_mask[node])
    ]
    chosen = (devices + free)[:size]
    masks: dict[int, int] = {}
    for node, device in chosen:
        masks[node] = masks.get(node, 0) | 1 << device
    return tuple(Slot(node, mask, mask.bit_count()) for node, mask in masks.items())


@settings(max_examples=60, deadline=None)
@given(
    RANDOM,
    st.sampled_from(["fifo", "srtf", "las(quantum=2s)", "backfill", "max-min", "afs"]),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 20)), max_size=2),
    st.sampled_from([Costs(), Costs(SECOND, 2 * SECOND, SECOND)]),
    st.booleans(),
)
@example([("grow", 1)], "las(quantum=2s)", [(0, 4)], Costs(SECOND, 2 * SECOND, SECOND), True)
def test_whatever_happens_to_a_grant_its_children_stay_inside_it_and_all_are_done(
    orders: list[tuple[str, int]],
    inner: str,
    down: list[tuple[int, int]],
    costs: Costs,
    hosts: bool,
) -> None:
    """With `hosts`, CPUs are scarcer than GPUs: a node has 2 for each of its 4 GPUs."""
    top, trials = SEARCH, [gpus(1 + i % 2) for i in range(9)]
    if hosts:
        needs = Needs(cpus=2000, memory=1000)
        top = job(
            "search", lasts=None, kind=Kind.TUNE, shape=Shape((Role("", 4, 1, 8, needs=needs),))
        )
        trials = [needing(cpus=1000 * (1 + i % 3), memory=500 * (i % 4)) for i in range(9)]
    works: list[Work] = [
        top,
        *(job(f"t{i}", i % 3, 2 + i % 4, shape=trials[i], parent="search") for i in range(9)),
        *(job(f"other {i}", i, 4, size=2) for i in range(4)),
    ]
    lost = dict(down)
    outages = tuple(Outage(node, at * SECOND, (at + 4) * SECOND) for node, at in lost.items())
    policy = TwoLevel(Restless(orders), registry.make(inner))
    run = play(
        policy,
        works,
        cluster(2, 4, cpus=8000, memory=4000),
        Setup(costs=costs, outages=outages),
        until=2000 * SECOND,
    )
    done = {work.spec.name: run.phase(work.spec.name) for work in works}
    assert set(done.values()) == {"finished"}, done


def logged(trace: Trace, on: ClusterSpec, setup: Setup, log: Path) -> Run:
    """A run under fifo, and its log."""
    with ExitStack() as stack:
        return run_one(
            trace,
            on,
            "fifo",
            setup,
            journal=lambda kernel: stack.enter_context(
                LogWriter(log, kernel, trace, on, "fifo", setup)
            ),
        )


def test_the_grants_of_a_trace_are_divided_by_the_recipe_that_was_asked_for(tmp_path: Path) -> None:
    """Three trials on 2 GPUs: in order of arrival, or the shortest first; a log says which."""
    works = [
        job("search", lasts=None, kind=Kind.TUNE, size=2),
        job("long", lasts=60, size=2, parent="search"),
        job("middle", lasts=30, size=2, parent="search"),
        job("short", lasts=10, size=2, parent="search"), job("other", lasts=20, size=2),
    ]  # fmt: skip
    trace, on_ = trace_of(works), cluster(1, 4)
    ends = {}
    for inner in ("fifo", "sjf"):
        setup = Setup(inner=inner, validate=True)
        run = logged(trace, on_, setup, tmp_path / f"{inner}.jsonl")
        ends[inner] = run.jobs.finish.tolist()
        assert run.knows == ("nothing" if inner == "fifo" else "truth")
        assert run.metrics["gpu_allocated_ratio"] == pytest.approx((2 * 100 + 2 * 20) / 400)
        assert replay(tmp_path / f"{inner}.jsonl") > 5
    assert ends == {"fifo": [100, 60, 90, 100, 20], "sjf": [100, 100, 40, 10, 20]}


def test_without_families_the_plans_are_those_of_the_outer_recipe() -> None:
    works = [job(f"j{i}", i, 5 + i % 3, size=1 + i % 2) for i in range(12)]
    alone = play("srtf", works, cluster(1, 3))
    both = play(TwoLevel(registry.make("srtf"), registry.make("fifo")), works, cluster(1, 3))
    assert [plan for _, plan in both.diary.steps] == [plan for _, plan in alone.diary.steps]
