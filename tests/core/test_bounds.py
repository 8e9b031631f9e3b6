"""What the tables cannot hold is refused before it is kept: at each bound, and one beyond it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from bench import running
from ganger.core.errors import BadInput
from ganger.core.events import (
    Accepted,
    AnyEvent,
    Batch,
    Command,
    Evaluated,
    Failed,
    Finished,
    Measured,
    NodeCommand,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Sampled,
    Served,
    Started,
    Submitted,
    Withheld,
    Woke,
)
from ganger.core.spec import (
    ClusterSpec,
    JobSpec,
    Needs,
    NodeSpec,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.state.bounds import refuse_unfit, refuse_unfit_spec, without_unfit
from ganger.core.units import MIB_MAX, NEVER
from worlds import job

INT32 = 2147483647
SPECS: list[tuple[str, Any, Any]] = [
    ("submitted", 0, NEVER), ("deadline", 0, NEVER), ("limit", 0, NEVER), ("estimate", 0, NEVER),
    ("checkpoint", -1, NEVER), ("restore", -1, NEVER), ("priority", -INT32 - 1, INT32),
]  # fmt: skip
ROLES = [("size", 0, INT32), ("least", -1, INT32), ("most", -1, INT32)]
NEEDS = [("gpus", 0, INT32), ("share", 1, 1000), ("cpus", 0, INT32 * 1000),
         ("memory", 0, MIB_MAX), ("gpu_memory", 0, MIB_MAX)]  # fmt: skip


def spec_of(**fields: Any) -> JobSpec:
    """A job with these fields."""
    return JobSpec(name="a", **fields)


def fits(spec: JobSpec) -> bool:
    """Whether the table could hold it."""
    try:
        refuse_unfit_spec(spec)
    except BadInput:
        return False
    return True


def goes(*events: AnyEvent, more: int = 0) -> bool:
    """Whether a kernel with one job on one node would take them."""
    try:
        refuse_unfit(events, running(job("a", size=2)).kernel, more)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize(("field", "least", "most"), SPECS)
def test_each_column_of_a_job_has_its_ends(field: str, least: int, most: int) -> None:
    for value, holds in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        assert fits(spec_of(**{field: value})) == holds, value


@pytest.mark.parametrize("field", ["steps", "weight"])
def test_steps_and_weights_are_finite_and_not_negative(field: str) -> None:
    for value, holds in ((0.0, True), (1e300, True), (-1e-9, False), (1.1e300, False)):
        assert fits(spec_of(**{field: value})) == holds, value
    assert not fits(spec_of(**{field: float("nan")}))


@pytest.mark.parametrize(("field", "least", "most"), ROLES)
def test_each_number_of_a_role_has_its_ends(field: str, least: int, most: int) -> None:
    for value, holds in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        fields: dict[str, Any] = {field: value}
        assert fits(spec_of(shape=Shape((Role(**fields),)))) == holds, value


@pytest.mark.parametrize(("field", "least", "most"), NEEDS)
def test_each_need_of_a_worker_has_its_ends(field: str, least: int, most: int) -> None:
    for value, holds in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        fields: dict[str, Any] = {field: value}
        assert fits(spec_of(shape=Shape((Role(needs=Needs(**fields)),)))) == holds, value


def test_all_the_gpus_of_a_gang_together_have_an_end_too() -> None:
    half = Needs(gpus=1 << 30)
    assert fits(JobSpec(name="a", shape=Shape((Role(needs=half),))))
    assert not fits(JobSpec(name="a", shape=Shape((Role(size=2, needs=half),))))
    assert not fits(JobSpec(name="a", shape=Shape((Role(most=2, needs=half),))))


def test_jobs_are_accepted_in_the_order_of_their_numbers() -> None:
    one, two = (Accepted(row, JobSpec(name=f"n{row}")) for row in (1, 2))
    assert goes(one, two)
    assert not goes(two)
    assert not goes(one, one)
    assert goes(two, more=1)
    refuse_unfit([one], running(job("a", size=2)).kernel)
    with pytest.raises(BadInput):
        refuse_unfit([two], running(job("a", size=2)).kernel)


def test_a_job_follows_and_belongs_to_jobs_that_are_there() -> None:
    cases: list[tuple[str, Any, Any]] = [("after", ("a",), ("a", "no")), ("parent", "a", "no")]
    for field, known, unknown in cases:
        assert goes(Accepted(1, spec_of(**{field: known})))
        assert not goes(Accepted(1, spec_of(**{field: unknown})))


@pytest.mark.parametrize(
    ("verb", "least", "most"),
    [
        ("priority", -INT32 - 1, INT32),
        ("weight", 0, 1e300),
        ("limit", 0, NEVER),
        ("deadline", 0, NEVER),
        ("estimate", 0, NEVER),
        ("size", 1, INT32),
        ("least", -1, INT32),
        ("most", -1, INT32),
    ],
)
def test_what_people_change_has_the_ends_of_what_they_declare(
    verb: str, least: float, most: float
) -> None:
    beyond = most * 2 if most > 1e200 else most + 1
    assert goes(Command(0, verb, least), Command(0, verb, most))
    assert not goes(Command(0, verb, least - 1))
    assert not goes(Command(0, verb, beyond))
    assert goes(Command(0, "hold", -5.0))


OF_JOBS: list[AnyEvent] = [
    Command(0, "hold"), Started(0, 1), Failed(0, 1), Released(0, 1), Progressed(0, 1, 1.0, 1.0),
    Measured(0, 1, 1.0), Evaluated(0, 1, 1.0, 1.0), Finished(0, 1), Refused(0, 1), Submitted(0),
]  # fmt: skip


@pytest.mark.parametrize("event", OF_JOBS, ids=lambda event: type(event).__name__)
def test_events_name_a_job_that_is_there(event: Any) -> None:
    assert goes(event)
    assert not goes(msgspec.structs.replace(event, job=-1))
    assert not goes(msgspec.structs.replace(event, job=1))
    assert goes(msgspec.structs.replace(event, job=1), more=1)


@pytest.mark.parametrize("event", OF_JOBS, ids=lambda event: type(event).__name__)
def test_what_engines_report_is_finite(event: Any) -> None:
    for field, value in msgspec.structs.asdict(event).items():
        if isinstance(value, float) and not isinstance(event, Command):
            for odd in (float("nan"), float("inf"), float("-inf")):
                assert not goes(msgspec.structs.replace(event, **{field: odd})), field


def test_events_name_a_node_that_is_there_and_withhold_no_more_than_a_node_can_have() -> None:
    for event in (NodeCommand(0, "drain"), NodeDown(0), NodeUp(0), Withheld(0, 1)):
        assert goes(event)
        assert not goes(msgspec.structs.replace(event, node=-1))
        assert not goes(msgspec.structs.replace(event, node=1000))
    assert goes(Withheld(0, 0), Withheld(0, 64), Woke())
    assert not goes(Withheld(0, 65))
    assert not goes(Withheld(0, -1))


def test_what_cannot_be_written_is_refused() -> None:
    assert not goes(Accepted(1, JobSpec(name="\ud800")))
    assert not goes(Failed(0, 1, why="\udfff"))


def test_without_a_bad_job_the_next_ones_keep_their_numbers() -> None:
    bad = Accepted(1, JobSpec(name="bad", user="u", tenant="t", priority=1 << 40))
    good, seen = Accepted(2, JobSpec(name="good")), Submitted(0)
    batch = Batch(7, [seen, bad, good])
    kept = without_unfit(batch, [bad], jobs=1)
    empty = JobSpec(name="2", submitted=7, user="u", tenant="t")
    assert kept == Batch(7, [seen, Accepted(1, empty), good, Command(1, "cancel")])
    again = without_unfit(kept, [kept.events[1]], jobs=1)
    assert again == Batch(7, [seen, good, Command(1, "cancel")]), "what stands for it goes, too"


def test_a_bad_job_that_jumped_ahead_leaves_empty_rows_up_to_its_own() -> None:
    bad = Accepted(3, JobSpec(name="bad"))
    kept = without_unfit(Batch(7, [bad]), [bad], jobs=1)
    names = [event.spec.name for event in kept.events if isinstance(event, Accepted)]
    cancelled = [event.job for event in kept.events if isinstance(event, Command)]
    assert (names, cancelled) == (["2", "3", "4"], [1, 2, 3])


NODES: list[tuple[dict[str, Any], bool]] = [
    ({"count": 1_000_000}, True), ({"count": 1_000_001}, False), ({"count": -1}, False),
    ({"gpus": 64}, True), ({"gpus": 65}, False), ({"gpus": -1}, False), ({"gpus": 0}, True),
    ({"gpus": 1, "gpu_type": ""}, False), ({"gpus": 0, "gpu_type": ""}, True),
    ({"cpus": -1}, False), ({"memory": -1}, False), ({"nodes_per_rack": -1}, False),
    ({"island": -1}, False), ({"island": 0, "memory": 0, "cpus": 0}, True),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "holds"), NODES)
def test_what_a_group_of_nodes_can_be(fields: dict[str, Any], holds: bool) -> None:
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="A"), NodeSpec(**{"gpu_type": "A", **fields})))
    if holds:
        assert spec.check() is spec
    else:
        with pytest.raises(BadInput, match=r"nodes\[1\]"):
            spec.check()


def test_a_cluster_has_nodes_and_lists_parents_before_their_children() -> None:
    with pytest.raises(BadInput, match="no node"):
        ClusterSpec((NodeSpec(count=0),)).check()
    lab, ann = TenantSpec("lab"), TenantSpec("ann", parent="lab")
    nodes = (NodeSpec(gpus=2, gpu_type="A"), NodeSpec(count=3, gpus=4, gpu_type="A"))
    assert ClusterSpec(nodes, tenants=(lab, ann)).check().gpus == 14
    with pytest.raises(BadInput, match=r"tenants\[0\]"):
        ClusterSpec(nodes, tenants=(ann, lab)).check()


def test_a_good_job_before_a_bad_one_counts() -> None:
    good, bad = (Accepted(row, JobSpec(name="a", tenant="t")) for row in (1, 2))
    kept = without_unfit(Batch(7, [good, bad]), [bad], jobs=1)
    names = [event.spec.name for event in kept.events if isinstance(event, Accepted)]
    assert names == ["a", "3"]


def test_a_job_that_the_tables_cannot_hold_is_refused_when_it_is_accepted() -> None:
    assert goes(Accepted(1, JobSpec(name="b", priority=INT32)))
    assert not goes(Accepted(1, JobSpec(name="b", priority=INT32 + 1)))


def test_a_report_of_a_trial_has_at_most_16_metrics_beside_its_value() -> None:
    for count, holds in ((0, True), (16, True), (17, False)):
        metrics = {f"m{number}": 1.0 for number in range(count)}
        assert goes(Evaluated(0, 1, 1.0, 0.5, metrics)) == holds


def test_a_report_of_services_has_at_most_64_figures_with_one_entry_a_service() -> None:
    for count, holds in ((0, True), (64, True), (65, False)):
        figures: dict[str, tuple[float | None, ...]] = {
            f"f{number}": (1.0,) for number in range(count)
        }
        assert goes(Served(0, (0,), figures)) == holds
    for column, holds in (((), False), ((None,), True), ((1.0, 1.0), False)):
        assert goes(Served(0, (0,), {"p99": column})) == holds
    for since, holds in ((-1, False), (0, True), (NEVER, True), (NEVER + 1, False)):
        assert goes(Served(since, (0,), {})) == holds
    assert not goes(Served(0, (1,), {"p99": (1.0,)})), "there is no job 2"


@pytest.mark.parametrize("least", [-1.0, 0.0])
def test_a_look_at_a_job_has_a_part_of_a_gpu_and_cores_that_can_be(least: float) -> None:
    assert goes(Sampled(0, 1, least, 0.0), Sampled(0, 1, 1.0, 1e6))
    for gpu, cores in ((-1.1, 0.0), (1.1, 0.0), (least, -0.1), (least, 1e6 + 1), (least, math.nan)):
        assert not goes(Sampled(0, 1, gpu, cores))


def test_jobs_that_cannot_be_accepted_leave_rows_that_are_cancelled_and_no_others() -> None:
    """A kernel with one job; rows 1 to 3 come, of which the second and the third cannot be."""
    good, *bad = (Accepted(row, JobSpec(name=f"j{row}", submitted=9)) for row in (1, 2, 3))
    last = Accepted(4, JobSpec(name="j4", submitted=9))
    kept = without_unfit(Batch(7, [good, *bad, last]), bad, 1).events
    rows = [(type(event).__name__, event.job) for event in kept if hasattr(event, "job")]
    assert rows == [
        ("Accepted", 1),
        ("Accepted", 2),
        ("Accepted", 3),
        ("Accepted", 4),
        ("Command", 2),
        ("Command", 3),
    ]
