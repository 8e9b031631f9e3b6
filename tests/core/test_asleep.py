"""Suspended jobs that yield their compute and keep their memory."""

from __future__ import annotations

import msgspec
import pytest

from bench import Bench, on
from ganger.core.books.ledger import Ledger
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import (
    Command,
    Finished,
    NodeCommand,
    NodeDown,
    NodeUp,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import Placement, Resize, Resume, Slot, Start, Stop, Suspend
from ganger.core.spec import ClusterSpec, GpuType, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import SECOND
from worlds import cluster, gpus, job

TYPES = (GpuType("A", memory=16_000),)


def needing(mib: int, size: int = 1, **needs: int) -> Shape:
    """Workers of a whole GPU that say how much of its memory they need."""
    return Shape((Role(size=size, needs=Needs(gpu_memory=mib, **needs)),))


def books(count: int = 1, each: int = 2) -> Ledger:
    """GPUs of 16,000 MiB."""
    node = NodeSpec(count=count, gpus=each, gpu_type="A", cpus=8000, memory=8000)
    return Ledger(Nodes(ClusterSpec((node,), TYPES)))


def put(ledger: Ledger, number: int, shape: Shape) -> str:
    """Where a job gets its place, like `0:1`."""
    placement = ledger.find(shape)
    if placement is None:
        return "nowhere"
    ledger.take(number, shape, placement)
    return " ".join(f"{slot.node}:{slot.devices.bit_length() - 1}" for slot in placement)


def test_others_compute_where_a_job_sleeps_as_far_as_there_is_memory() -> None:
    """Jobs 0 and 1 need 6,000 MiB; 10,000 are left beside either when both sleep."""
    ledger = books()
    assert [put(ledger, i, needing(6000)) for i in range(2)] == ["0:0", "0:1"]
    for sleeper in (0, 1):
        ledger.doze(sleeper)
    assert put(ledger, 2, gpus(1)) == "nowhere"  # it may need all the memory that there is
    assert put(ledger, 2, needing(10_001)) == "nowhere"
    assert put(ledger, 2, needing(10_000)) == "0:0"
    assert put(ledger, 3, Shape((Role(needs=Needs(share=300, gpu_memory=10_001)),))) == "nowhere"
    assert put(ledger, 3, Shape((Role(needs=Needs(share=300, gpu_memory=4000)),))) == "0:1"
    assert put(ledger, 4, needing(1000)) == "nowhere"  # nobody has all of GPU 1's compute
    ledger.check()


def test_a_gang_lies_over_sleepers_of_several_nodes() -> None:
    ledger = books(count=3, each=1)
    assert [put(ledger, i, needing(6000)) for i in range(2)] == ["0:0", "1:0"]
    for sleeper in (0, 1):
        ledger.doze(sleeper)
    assert ledger.lacks(needing(9000, 4))
    assert not ledger.lacks(needing(9000, 3))
    assert put(ledger, 2, needing(9000, 2)) == "0:0 1:0"
    assert put(ledger, 3, needing(9000, 2)) == "nowhere"
    assert put(ledger, 3, needing(9000)) == "2:0"


def test_who_sleeps_keeps_host_memory_and_yields_cpus() -> None:
    ledger = books(each=1)
    put(ledger, 0, needing(6000, cpus=8000, memory=5000))
    ledger.doze(0)
    assert (ledger.free_cpus, ledger.free_memory) == ([8000], [3000])
    assert put(ledger, 1, needing(6000, memory=3001)) == "nowhere"
    assert put(ledger, 1, needing(6000, cpus=8000, memory=3000)) == "0:0"
    assert not ledger.wake(0)
    ledger.give(1)
    assert ledger.wake(0)
    assert (ledger.free_cpus, ledger.free_memory) == ([0], [3000])


def test_memory_that_a_sleeper_leaves_beside_who_computes_is_told_to_those_who_wait() -> None:
    ledger = books(each=1)
    put(ledger, 0, needing(6000))
    ledger.doze(0)
    put(ledger, 1, needing(6000))
    (cell,) = ledger.cells
    before = cell.returned
    ledger.free_up(0)
    assert cell.returned == before + 1


def test_who_does_not_say_how_much_memory_it_keeps_yields_nothing() -> None:
    ledger = books()
    put(ledger, 0, gpus(1))
    put(ledger, 1, Shape((Role(needs=Needs(gpus=0, cpus=1000)),)))
    for number in (0, 1):
        with pytest.raises(InvariantError, match="yields no compute"):
            ledger.doze(number)


# ---------------------------------------------------------------------- suspended by people

WORKS = [
    job("a", shape=needing(6000)),
    job("b", 1, shape=needing(8000)),
    job("c", 2, shape=needing(8000)),
]
ONE: Placement = (Slot(0, 1, 1),)


def suspended() -> Bench:
    """On one GPU: a is suspended at 5 s, and b has the compute from then on. c waits."""
    bench = Bench(*WORKS, on=ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), TYPES))
    bench.feed(0, Submitted(0), then=[Start(0, 1, ONE)])
    bench.feed(0, Started(0, 1))
    bench.feed(1, Submitted(1))
    plan = bench.feed(5, Command(0, "suspend"), then=[Start(1, 1, ONE)])
    assert plan is not None
    assert plan.actions == [Suspend(0, 1, yields=True), Start(1, 1, ONE)]
    bench.feed(5, Started(1, 1))
    return bench


def test_who_is_suspended_holds_no_gpu_time_and_resumes_before_others_when_it_can() -> None:
    bench = suspended()
    bench.feed(6, Submitted(2))
    assert (bench.phase(0), bench.jobs.size[0]) == (Phase.SUSPENDED, 0)
    assert bench.jobs.held[0] == 5 * SECOND
    plan = bench.feed(7, Command(0, "resume"))
    assert plan is None or plan.actions == []  # b computes
    plan = bench.feed(9, Finished(1, 1))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]
    assert (bench.phase(0), bench.jobs.size[0]) == (Phase.RUNNING, 1)
    bench.feed(10, Finished(0, 1), then=[Start(2, 1, ONE)])
    assert bench.jobs.held[0] == 6 * SECOND


def test_who_waits_to_resume_waits_for_who_is_leaving_and_comes_before_who_waits() -> None:
    """At 8 s b is told to go. Nobody else can plan with its compute, which a has at 9 s."""
    bench = suspended()
    bench.feed(6, Submitted(2))
    bench.feed(7, Command(0, "resume"))
    bench.feed(8, Command(1, "requeue"))
    assert (bench.phase(0), bench.phase(1)) == (Phase.SUSPENDED, Phase.STOPPING)
    assert bench.kernel.ledger.find(needing(8000)) is None
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(capture(bench.kernel)), type=Snapshot)
    again = restore(kept, bench.kernel.nodes, bench.kernel.policy)
    assert capture(again) == capture(bench.kernel)
    assert again.ledger.find(needing(8000)) is None
    plan = bench.feed(9, Released(1, 1))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]
    assert bench.jobs.size[0] == 1


def test_who_is_suspended_again_once_it_has_its_compute_yields_it_again() -> None:
    bench = suspended()
    bench.feed(6, Submitted(2))
    bench.feed(7, Command(0, "resume"))
    bench.feed(8, Command(1, "cancel"))
    plan = bench.feed(8.5, Command(0, "suspend"), then=[Start(2, 1, ONE, (1,))])
    assert plan is not None
    assert plan.actions == [Start(2, 1, ONE, (1,))]
    plan = bench.feed(9, Released(1, 1))
    assert plan is None or plan.actions == []
    assert (bench.phase(0), bench.kernel.ledger.asleep) == (Phase.SUSPENDED, {0})


def test_a_larger_grant_restarts_nobody_though_one_computes_where_another_sleeps() -> None:
    """The second trial sleeps, and the first, which came before it, computes over its memory."""
    top = Shape((Role(size=1, least=1, most=2),))
    bench = Bench(
        job("search", lasts=None, shape=top, kind=Kind.TUNE),
        *(job(f"t{i}", shape=needing(6000), parent="search") for i in range(2)),
        on=ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), TYPES),
    )
    bench.feed(0, *map(Submitted, range(3)), then=[Start(0, 1, ONE)])
    bench.feed(0, Started(0, 1), then=[Start(2, 1, ONE)])
    bench.feed(1, Started(2, 1))
    bench.feed(2, Command(2, "suspend"), then=[Start(1, 1, ONE)])
    bench.feed(2, Started(1, 1))
    draft = bench.kernel.view.draft
    both = (Slot(0, 0b11, 2),)
    draft.resize(0, both)
    plan = draft.plan()
    draft.rollback()
    draft.clear()
    assert [type(action) for action in plan.actions] == [Resize]
    bench.feed(3, Command(0, "priority", 1.0), then=[Resize(0, 2, both, (0,))])
    assert (bench.phase(1), bench.phase(2)) == (Phase.RUNNING, Phase.SUSPENDED)
    inner = bench.kernel.grants.inner[0]
    assert (inner.asleep, sorted(inner.holds)) == ({2}, [1, 2])
    inner.check()


def test_who_is_stopped_asleep_and_started_there_in_one_draft_begins_anew() -> None:
    bench = suspended()
    bench.feed(6, Finished(1, 1))
    draft = bench.kernel.view.draft
    draft.stop(0)
    draft.start(0, ONE)
    plan = draft.plan()
    draft.rollback()
    draft.clear()
    assert plan.actions == [Resize(0, 2, ONE, (0,))]
    assert bench.kernel.ledger.asleep == {0}


def test_who_is_suspended_again_while_waiting_to_resume_sleeps_on() -> None:
    bench = suspended()
    bench.feed(6, Command(0, "resume"))
    bench.feed(7, Command(0, "suspend"))
    bench.feed(9, Finished(1, 1))
    assert bench.phase(0) == Phase.SUSPENDED
    plan = bench.feed(10, Command(0, "resume"))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]


def test_who_sleeps_on_a_drained_node_resumes_there_or_it_would_never_be_empty() -> None:
    bench = suspended()
    bench.feed(6, Command(0, "resume"), NodeCommand(0, "drain"))
    plan = bench.feed(9, Finished(1, 1))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]
    bench.feed(10, Finished(0, 1), NodeCommand(0, "resume"))
    assert bench.kernel.ledger.free == 1


def test_nobody_resumes_on_a_node_that_is_down() -> None:
    bench = suspended()
    bench.feed(6, Command(0, "resume"), NodeDown(0))
    bench.feed(9, Finished(1, 1))
    assert bench.phase(0) == Phase.SUSPENDED
    plan = bench.feed(10, NodeUp(0))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]


def test_a_suspended_search_keeps_the_compute_on_which_its_trials_run() -> None:
    bench = Bench(
        job("search", shape=needing(8000), kind=Kind.TUNE),
        job("trial", shape=needing(3000), parent="search"),
        on=ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), TYPES),
    )
    bench.feed(0, Submitted(0), then=[Start(0, 1, ONE)])
    bench.feed(0, Started(0, 1), Submitted(1), then=[Start(1, 1, ONE)])
    bench.feed(1, Started(1, 1))
    plan = bench.feed(2, Command(0, "suspend"))
    assert plan is not None
    assert plan.actions == [Suspend(0, 1)]
    assert bench.kernel.ledger.find(needing(4000)) is None


@pytest.mark.parametrize("verb", ["cancel", "requeue"])
def test_who_is_stopped_in_its_sleep_gives_its_memory_back(verb: str) -> None:
    bench = suspended()
    plan = bench.feed(7, Command(0, "resume"), Command(0, verb))
    assert plan is not None
    assert [type(action) for action in plan.actions] == [Stop]
    bench.feed(8, Released(0, 1))
    assert bench.kernel.ledger.shared == [{0: (1000, 8000)}]  # of b
    bench.feed(9, Finished(1, 1))
    assert (bench.kernel.ledger.free, bench.kernel.ledger.asleep) == (1, set())
    assert not bench.kernel._resuming


def test_a_kernel_restored_while_a_job_sleeps_wakes_it_as_before() -> None:
    bench = suspended()
    bench.feed(7, Command(0, "resume"))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(capture(bench.kernel)), type=Snapshot)
    again = restore(kept, bench.kernel.nodes, bench.kernel.policy)
    assert (again.ledger.asleep, again.ledger.shared) == ({0}, [{0: (1000, 14_000)}])
    assert capture(again) == capture(bench.kernel)


def test_who_does_not_say_what_it_keeps_is_suspended_with_its_devices() -> None:
    bench = Bench(job("a"), job("b"), on=cluster(1, 1))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(1))])
    bench.feed(0, Started(0, 1))
    plan = bench.feed(5, Command(0, "suspend"))
    assert plan is not None
    assert plan.actions == [Suspend(0, 1)]
    assert bench.kernel.ledger.free == 0
    plan = bench.feed(6, Command(0, "resume"))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]
    assert bench.jobs.held_since[0] == 0


# ---------------------------------------------------------------------- a search over a sleeper


def search_over_a_sleeper() -> Bench:
    """On one GPU of 16,000 MiB job a sleeps with 10,000, and a search that stated 6,000 has the
    compute."""
    bench = Bench(
        job("a", shape=needing(10_000)),
        job("search", 1, None, shape=needing(6000), kind=Kind.TUNE),
        *(job(f"t{mib}", 1, shape=needing(mib), parent="search") for mib in (6000, 2000)),
        job("silent", 1, shape=gpus(1), parent="search"),
        *(
            job(f"part {mib}", 1, shape=Shape((Role(needs=Needs(1, 300, mib)),)), parent="search")
            for mib in (3000, 3001)
        ),
        on=ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), TYPES),
    )
    bench.feed(0, Submitted(0), then=[Start(0, 1, ONE)])
    bench.feed(0, Started(0, 1))
    come = map(Submitted, range(1, 7))
    bench.feed(5, Command(0, "suspend"), *come, then=[Start(1, 1, ONE)])
    bench.feed(5, Started(1, 1))
    return bench


def test_trials_of_a_search_over_a_sleeper_have_the_memory_that_the_search_stated() -> None:
    bench = search_over_a_sleeper()
    inside = bench.kernel.view.inside(1)
    assert inside is not None
    books, shape = inside.ledger, bench.kernel.view.draft.shape
    assert books.device_memory(0) == 6000
    assert (books.free, books.total) == (1, 1)
    assert books.find(shape(2)) == ONE
    assert books.find(shape(4)) == ONE  # it is covered by what the search stated
    assert books.find(needing(6001)) is None
    with pytest.raises(InvariantError, match="not free"):
        books.take(7, needing(6001), ONE)
    first, second = shape(5), shape(6)
    found = books.find(first)
    assert found is not None
    books.take(5, first, found)
    assert books.find(second) is None  # 6,001 MiB together
    with pytest.raises(InvariantError, match="not free"):
        books.take(6, second, found)
    assert books.find(first) is not None


def test_a_suspended_trial_leaves_the_next_one_what_the_search_stated_and_it_does_not_keep() -> (
    None
):
    bench = search_over_a_sleeper()
    bench.feed(6, Command(0, "resume"), then=[Start(3, 1, ONE)])
    bench.feed(6, Started(3, 1))
    bench.feed(7, Command(3, "suspend"))
    inside = bench.kernel.view.inside(1)
    assert inside is not None
    assert inside.ledger.find(needing(4000)) == ONE
    assert inside.ledger.find(needing(4001)) is None


def test_a_kernel_restored_while_a_trial_of_the_first_job_sleeps_has_its_grant_first() -> None:
    bench = Bench(
        job("search", lasts=None, shape=needing(6000), kind=Kind.TUNE),
        job("trial", shape=needing(2000), parent="search"),
        on=ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), TYPES),
    )
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, ONE)])
    bench.feed(0, Started(0, 1))
    bench.feed(1, Woke(), then=[Start(1, 1, ONE)])
    bench.feed(1, Started(1, 1))
    bench.feed(2, Command(1, "suspend"))
    inside = bench.kernel.view.inside(0)
    assert inside is not None
    assert inside.ledger.asleep == {1}
    again = restore(capture(bench.kernel), bench.kernel.nodes, bench.kernel.policy)
    assert capture(again) == capture(bench.kernel)


def test_a_trial_that_needs_more_memory_of_a_gpu_than_its_search_states_is_refused() -> None:
    with pytest.raises(BadInput, match="asks for 6001 MiB of GPU memory on one GPU"):
        Bench(
            job("search", lasts=None, shape=needing(6000, 2), kind=Kind.TUNE),
            job("large", shape=needing(6001), parent="search"),
            on=ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), TYPES),
        )


def test_who_lies_over_a_sleeper_is_put_back_there_though_both_had_left() -> None:
    """A draft that stops the sleeper first, then the one above it, and is undone."""
    ledger = books(1, 1)
    for number in range(2):
        put(ledger, number, needing(4000))
        if number == 0:
            ledger.doze(0)
    mark = ledger.mark()
    ledger.give(0, leaving=True)
    ledger.give(1, leaving=True)
    ledger.rollback(mark)
    ledger.check()
    assert put(ledger, 2, needing(4000)) == "nowhere"
    ledger.give(1)
    assert ledger.find(needing(13_000)) is None  # the sleeper keeps 4,000
    ledger.give(0)
    assert ledger.free == 1
    ledger.check()


@pytest.mark.parametrize("last", ["take", "doze", "give"])
def test_every_step_since_a_mark_is_undone_whatever_the_last_one_was(last: str) -> None:
    ledger = books(1, 3)
    for number in range(3):
        put(ledger, number, needing(4000))
    ledger.doze(2)
    ledger.give(0)
    before = {job: held[1] for job, held in ledger.holds.items()}
    mark = ledger.mark()
    ledger.give(1)
    if last == "take":
        put(ledger, 3, needing(4000))
    elif last == "doze":
        put(ledger, 3, needing(4000))
        ledger.doze(3)
    else:
        ledger.give(2)
    ledger.rollback(mark)
    assert ({job: held[1] for job, held in ledger.holds.items()}, ledger.asleep) == (before, {2})
    ledger.check()


def test_nobody_sleeps_on_below_a_job_that_does_not_say_what_memory_it_takes() -> None:
    ledger = books(1, 1)
    put(ledger, 0, needing(4000))
    ledger.doze(0)
    placement = ledger.give(0, leaving=True)
    put(ledger, 1, gpus(1))
    with pytest.raises(InvariantError, match="device 0 of node 0 is taken"):
        ledger.regain(0, needing(4000), placement, asleep=True)
    assert ledger.asleep == set()
