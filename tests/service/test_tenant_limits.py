"""How many may be let in at once: throttled arrays, tenants' limits; and the other dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.engines.testing.fake import Script
from ganger.service.commands import SetCeiling
from ganger.service.durable.recovery import check_history
from ganger.service.reports.explain import explain
from ganger.service.reports.rows import reason_of
from service.desk import Desk, box, header

pytestmark = pytest.mark.long

Make = Callable[..., Desk]
WHOLE_GPU = 1000


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Desks with 8 GPUs; a job in `failing` ends badly."""
    made: list[Desk] = []

    def desk(*failing: int) -> Desk:
        def script(job: int, attempt: int) -> Script:
            return Script(runs=MINUTE, fails="exit code 1" if job in failing else "")

        root = tmp_path / str(len(made))
        root.mkdir()
        made.append(Desk(root, header("backfill", box(8)), script))
        return made[-1]

    yield desk
    for one in made:
        one.close()


def going(desk: Desk, rows: list[int]) -> list[int]:
    """Those that hold devices."""
    return [row for row in rows if Phase.STARTING <= desk.phase(row) <= Phase.STOPPING]


def limit(desk: Desk, tenant: str, gpus: float | None) -> None:
    """Set a tenant's ceiling."""
    desk.ask(SetCeiling(("tenant", tenant), None if gpus is None else round(gpus * WHOLE_GPU)))


def test_an_array_runs_so_many_tasks_at_once(make: Make) -> None:
    desk = make()
    rows = desk.submit(array="0-9%3")
    most = 0
    for _ in range(200):
        desk.steps(1)
        most = max(most, len(going(desk, rows)))
        if going(desk, rows) == rows[:3]:
            assert reason_of(desk.daemon, rows[3]) == "JobArrayTaskLimit"
    assert most == 3
    assert [desk.phase(row) for row in rows] == [Phase.FINISHED] * 10
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_a_throttle_outlives_the_daemon_and_may_be_changed(make: Make) -> None:
    desk = make()
    rows = desk.submit(array="0-9%2")
    desk.steps(3)
    again = desk.again()
    assert again.daemon.gates.ceilings.most == {("array", str(rows[0])): 2}
    again.steps(2)
    assert len(going(again, rows)) == 2
    again.ask(SetCeiling(("array", str(rows[0])), 5))
    again.steps(1)
    assert len(going(again, rows)) == 5
    again.ask(SetCeiling(("array", str(rows[0])), None))
    again.steps(1)
    assert len(going(again, rows)) == 8
    again.close()


def test_a_tenant_never_holds_more_than_its_limit(make: Make) -> None:
    desk = make()
    limit(desk, "lab", 3)
    rows = [desk.submit(tenant="lab", gpus=gpus)[0] for gpus in (2, 2, 1)]
    other = desk.submit(tenant="else", gpus=4)[0]
    assert going(desk, [*rows, other]) == [rows[0], other]
    assert [reason_of(desk.daemon, row) for row in rows[1:]] == ["AssocGrpGRES"] * 2
    desk.order("priority", rows[2], value=5.0)  # 2 + 1 fit below 3
    desk.steps(1)
    limit(desk, "lab", 3)
    desk.steps(1)
    assert going(desk, rows) == [rows[0], rows[2]]
    desk.until_quiet()
    assert all(desk.phase(row) == Phase.FINISHED for row in [*rows, other])


def test_a_limit_counts_what_waits_and_what_runs_already(make: Make) -> None:
    desk = make()
    rows = [desk.submit(tenant="lab", gpus=4)[0] for _ in range(4)]
    desk.steps(1)
    assert going(desk, rows) == rows[:2]
    limit(desk, "lab", 4)
    assert going(desk, rows) == rows[:2], "who runs goes on"
    assert reason_of(desk.daemon, rows[2]) == "AssocGrpGRES"
    again = desk.again()
    again.until_quiet()
    starts = again.daemon.kernel.jobs.first_start
    assert starts[rows[2]] >= max(again.daemon.kernel.jobs.finished[rows[:2]])
    assert starts[rows[3]] >= again.daemon.kernel.jobs.finished[rows[2]]
    again.close()


def test_who_could_never_fit_below_the_limit_is_refused(make: Make) -> None:
    desk = make()
    limit(desk, "lab", 1.5)
    with pytest.raises(BadInput, match=r"may hold 1.5 GPUs, and this job 2"):
        desk.submit(tenant="lab", gpus=2)
    with pytest.raises(BadInput, match="this job 8"):
        desk.submit(tenant="lab", gpus=1, max_gpus=8)
    rows = [desk.submit(tenant="lab", share=0.5)[0] for _ in range(4)]
    desk.steps(1)
    assert len(going(desk, rows)) == 3, "three halves"


def test_who_waits_for_others_takes_no_room(make: Make) -> None:
    desk = make()
    limit(desk, "lab", 4)
    first = desk.submit(tenant="lab", gpus=1)[0]
    follower = desk.submit(tenant="lab", gpus=3, after=[first + 1])[0]
    third = desk.submit(tenant="lab", gpus=3)[0]
    assert going(desk, [first, follower, third]) == [first, third]
    desk.until_quiet()
    assert desk.phase(follower) == Phase.FINISHED


def test_a_cancelled_follower_frees_nothing_it_never_had(make: Make) -> None:
    desk = make(0)
    limit(desk, "lab", 2)
    desk.submit(tenant="lab", gpus=1)
    follower = desk.submit(tenant="lab", gpus=2, after=[1])[0]
    third = desk.submit(tenant="lab", gpus=2)[0]
    desk.until_quiet()
    assert (desk.phase(follower), desk.phase(third)) == (Phase.CANCELLED, Phase.FINISHED)
    assert desk.daemon.gates.ceilings.taken(("tenant", "lab")) == 0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_happens_no_ceiling_is_exceeded(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk = Desk(
        tmp_path_factory.mktemp("any"),
        header("las", box(8)),
        lambda job, attempt: Script(runs=HOUR),
    )
    limit(desk, "a", 4)
    throttled: list[int] = []
    for _ in range(data.draw(st.integers(5, 25))):
        what = data.draw(st.sampled_from(["job", "array", "step", "cancel", "hold", "again"]))
        n = desk.daemon.kernel.jobs.n
        if what == "job":
            desk.submit(
                tenant=data.draw(st.sampled_from("ab")),
                gpus=data.draw(st.integers(1, 4)),
                priority=data.draw(st.integers(0, 2)),
            )
        elif what == "array":
            throttled.append(desk.submit(tenant="a", array="0-4%2")[0])
        elif what in ("cancel", "hold") and n:
            row = data.draw(st.integers(0, n - 1))
            if desk.phase(row) < Phase.FINISHED:
                desk.order(what, row)
        elif what == "again":
            desk = desk.again()
        else:
            desk.steps(1)
        jobs = desk.daemon.kernel.jobs
        holding = [row for row in range(jobs.n) if going(desk, [row])]
        mine = [row for row in holding if jobs.tenants[jobs.tenant[row]] == "a"]
        assert sum(int(jobs.size[row]) for row in mine) <= 4
        for head in throttled:
            assert sum(desk.daemon.array_of(row) == head for row in holding) <= 2
    desk.until_quiet()
    jobs = desk.daemon.kernel.jobs
    left = [row for row in range(jobs.n) if desk.phase(row) < Phase.FINISHED]
    assert all(row in desk.daemon.gates.held for row in left), "only people's holds keep jobs"
    desk.close()


# ---------------------------------------------------------------------- dependencies


def test_after_a_job_that_ends_badly(make: Make) -> None:
    desk = make(0)
    desk.submit()
    cleans = desk.submit(after_not_ok=[1])[0]
    good = desk.submit()[0]
    never = desk.submit(after_not_ok=[good + 1])[0]
    assert reason_of(desk.daemon, cleans) == reason_of(desk.daemon, never) == "Dependency"
    desk.until_quiet()
    assert desk.phase(cleans) == Phase.FINISHED
    assert desk.phase(never) == Phase.CANCELLED
    assert reason_of(desk.daemon, never) == "DependencyNeverSatisfied"
    late = desk.submit(after_not_ok=[good + 1])[0]
    desk.until_quiet()
    assert desk.phase(late) == Phase.CANCELLED
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_a_cancelled_job_ended_badly(make: Make) -> None:
    desk = make()
    desk.submit(hold=True)
    cleans = desk.submit(after_not_ok=[1])[0]
    desk.order("cancel", 0)
    desk.until_quiet()
    assert desk.phase(cleans) == Phase.FINISHED


def test_one_bad_task_makes_an_array_end_badly(make: Make) -> None:
    desk = make(1)
    bad, good = desk.submit(array="0-2")[0], desk.submit(array="0-2")[0]
    cleans, never = (desk.submit(after_not_ok=[head + 1])[0] for head in (bad, good))
    desk.until_quiet()
    jobs = desk.daemon.kernel.jobs
    assert jobs.first_start[cleans] >= jobs.finished[bad : bad + 3].max()
    assert reason_of(desk.daemon, never) == "DependencyNeverSatisfied"


def test_after_a_jobs_begin(make: Make) -> None:
    desk = make()
    desk.submit(gpus=8)
    held = desk.submit(gpus=8, hold=True)[0]
    at_once, later, dropped = (
        desk.submit(gpus=0, after_begin=[before])[0] for before in (1, "1+30s", f"{held + 1}+10s")
    )
    assert explain(desk.daemon, dropped).lines == ["It waits for job 2 to have begun 10.0 s ago."]
    assert explain(desk.daemon, later).holders == [1]
    again = desk.again()
    again.steps(3)
    assert explain(again.daemon, later).holders == [], "it has begun"
    assert reason_of(again.daemon, later) == "Dependency"
    again.order("cancel", held)
    again.until_quiet()
    jobs = again.daemon.kernel.jobs
    started = jobs.first_start
    assert started[0] <= started[at_once] < started[0] + 10 * SECOND
    assert started[0] + 30 * SECOND <= started[later] < jobs.finished[0]
    assert started[dropped] >= jobs.finished[held] + 10 * SECOND
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


def test_one_of_several_is_enough(make: Make) -> None:
    desk = make(0)
    desk.submit()
    good, held = desk.submit()[0], desk.submit(hold=True)[0]
    either = desk.submit(after=[1, held + 1], after_any=[good + 1], after_one=True)[0]
    never = desk.submit(after=[1], after_not_ok=[good + 1], after_one=True)[0]
    waits = desk.submit(after=[1, held + 1], after_one=True)[0]
    assert explain(desk.daemon, never).lines == [
        "It waits for one of these: job 1 to finish, or job 2 to end badly."
    ]
    assert explain(desk.daemon, never).holders == [1, 2]
    desk.until_quiet()
    assert desk.phase(either) == Phase.FINISHED
    assert reason_of(desk.daemon, never) == "DependencyNeverSatisfied"
    assert reason_of(desk.daemon, waits) == "Dependency"
    desk.order("release", held)
    desk.until_quiet()
    assert desk.phase(waits) == Phase.FINISHED


def test_one_task_or_another(make: Make) -> None:
    desk = make(1, 3)
    first, second = desk.submit(array="0-1"), desk.submit(array="0-1")
    both = [first[0] + 1, second[0] + 1]
    third = desk.submit(array="0-1", after_each=both, after_one=True)
    desk.until_quiet()
    assert [desk.phase(row) for row in third] == [Phase.FINISHED, Phase.CANCELLED]


def test_singletons_run_one_after_the_other(make: Make) -> None:
    desk = make()
    rows = [desk.submit(name="train", singleton=True)[0] for _ in range(3)]
    other = desk.submit(name="else", singleton=True)[0]
    assert going(desk, [*rows, other]) == [rows[0], other]
    again = desk.again()
    again.until_quiet()
    jobs = again.daemon.kernel.jobs
    assert jobs.first_start[rows[1]] >= jobs.finished[rows[0]]
    assert jobs.first_start[rows[2]] >= jobs.finished[rows[1]]
    again.close()


def test_task_after_task(make: Make) -> None:
    desk = make(1)
    first = desk.submit(array="0-2")
    second = desk.submit(array="0-2", after_each=[first[0] + 1])
    desk.until_quiet()
    assert [desk.phase(row) for row in second] == [Phase.FINISHED, Phase.CANCELLED, Phase.FINISHED]
    with pytest.raises(BadInput, match="no job 1_7"):
        desk.submit(array="7", after_each=[1])
