"""What the front of a service tells of it: a process of a user that spreads requests over the
replicas, and alone knows of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.client.request import JobRequest
from ganger.core.errors import BadInput
from ganger.core.events import Served
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.protocol import Key, Progress
from ganger.engines.testing.fake import Script
from ganger.service.commands import SetTenant
from ganger.service.durable.recovery import check_history, guard_of
from ganger.service.families import Ends, Scale
from ganger.service.jobs.submission import shape_of
from ganger.service.windows import Front
from service.desk import Desk, header

REACTIVE = "scale.reactive(up_delay=0,down_delay=10s,look_back=10s)"


def begun(root: Path, serving: str = REACTIVE) -> Desk:
    """A daemon over a node of four GPUs, whose jobs run until they are stopped."""
    begins = msgspec.structs.replace(header(), serving=serving)
    return Desk(root, begins, lambda job, attempt: Script(runs=NEVER, stop=SECOND))


def service(desk: Desk, **fields: Any) -> int:
    """A service whose replicas run, or wait where the node is full."""
    (row,) = desk.submit(kind="serve", name="web", **fields)
    desk.steps(4)
    while children(desk, row, Phase.STARTING):
        desk.steps(1)
    return row


def front(desk: Desk, row: int, **figures: float) -> None:
    """Its front has counted so much since its start."""
    desk.daemon.windows.tell(row, figures, desk.daemon.kernel, desk.daemon.now())


def replica(desk: Desk, row: int, **served: float) -> None:
    """A replica has."""
    attempt = int(desk.daemon.kernel.jobs.attempt[row])
    desk.engine.progress[row] = Progress(Key(row, attempt), -1, served=served)


def windows(desk: Desk) -> list[dict[str, float | None]]:
    """The journalled windows of the first job."""
    served = [
        event
        for _, batch, _ in desk.journal.steps(0)
        for event in batch.events
        if isinstance(event, Served)
    ]
    return [{name: column[0] for name, column in event.figures.items()} for event in served]


def window(desk: Desk) -> dict[str, float | None]:
    """The next window of the first job."""
    before = len(windows(desk))
    late = desk.engine.now + 30 * SECOND
    while len(windows(desk)) == before:
        assert desk.engine.now < late, "no window"
        desk.steps(1)
    return windows(desk)[-1]


def children(desk: Desk, row: int, *phases: Phase) -> list[int]:
    """The replicas that are in one of these phases."""
    jobs = desk.daemon.kernel.jobs
    return [
        each
        for each in range(jobs.n)
        if jobs.parent[each] == row and Phase(jobs.phase[each]) in phases
    ]


def test_where_a_front_tells_no_request_counts_twice(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=2, max_gpus=2)
    front(desk, row, arrivals=10, answered=4, ongoing=3, queue=2, p99=0.7)
    front(desk, row, arrivals=16, answered=9, dropped=1, ongoing=5, queue=0)
    replica(desk, row + 1, arrivals=5, answered=5, busy_seconds=4, seconds=10, queue=9, p99=0.1)
    replica(desk, row + 2, arrivals=4, answered=4, busy_seconds=2, seconds=10, p50=0.1)
    assert window(desk) == {
        "arrivals": 16,
        "answered": 9,
        "dropped": 1,
        "ongoing": 5,
        "queue": 0,
        "p99": 0.7,
        "busy": pytest.approx(0.3),
        "replicas": 2,
    }
    replica(desk, row + 1, arrivals=7, answered=7, busy_seconds=5, seconds=20)
    said = window(desk)
    assert (said["arrivals"], said["busy"]) == (2, 0.1), "the front is silent: the replicas count"
    front(desk, row, arrivals=17)
    assert window(desk) == {"arrivals": 1, "replicas": 2}
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_a_front_tells_of_a_service_whose_replicas_wait(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    desk.submit(gpus=4)
    row = service(desk, gpus=1)
    assert children(desk, row, Phase.PENDING)
    front(desk, row, arrivals=3, queue=3)
    began = desk.engine.now
    desk.steps(2)
    assert desk.engine.now >= began + 5 * SECOND, "a replica was asked for: nothing hurries"
    assert windows(desk) == [{"arrivals": 3, "queue": 3, "replicas": 0}]


def test_what_a_front_counted_before_a_restart_of_the_daemon_is_not_counted_again(
    tmp_path: Path,
) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1)
    front(desk, row, arrivals=40, ongoing=2)
    window(desk)
    desk = desk.again()
    front(desk, row, arrivals=50, ongoing=3)
    assert window(desk) == {"ongoing": 3, "replicas": 1}, "how many of the 50 were told is unknown"
    front(desk, row, arrivals=57)
    assert window(desk)["arrivals"] == 7


def test_the_front_of_a_service_that_is_over_is_forgotten(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1, min_gpus=1, max_gpus=2)
    front(desk, row, arrivals=40)
    desk.order("cancel", row)
    before = desk.engine.now
    while desk.engine.now < before + 20 * SECOND:
        desk.submit()
        desk.steps(1)
    assert windows(desk) == []
    assert desk.daemon.windows.next(REACTIVE, desk.daemon.now()) > desk.daemon.now()


COUNTS = st.lists(
    st.one_of(
        st.integers(1, 5).map(lambda more: ("came", more)),
        st.sampled_from([("again", 0), ("told", 0), ("window", 0)]),
    ),
    max_size=40,
)


@given(COUNTS)
@settings(max_examples=200, deadline=None)
def test_every_request_that_was_told_is_in_one_window(steps: list[tuple[str, int]]) -> None:
    """Whatever fronts come after one another, and whenever windows end."""
    one, counted, told, came, windowed = Front(new=True), 0, 0, 0, 0.0
    for step, more in [*steps, ("told", 0), ("window", 0)]:
        if step == "came":
            counted, came = counted + more, came + more
        elif step == "again":
            came -= counted - told  # nobody knows of those that the old one had not told
            one.take({"arrivals": 0})
            counted = told = 0
        elif step == "told":
            one.take({"arrivals": counted})
            told = counted
        else:
            windowed += one.window().get("arrivals", 0.0)
    assert windowed == came


def test_a_front_that_tells_the_most_stops_no_recipe(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1, min_gpus=1, max_gpus=2)
    for figure in (1e15, 0.0, 1e15):
        front(desk, row, **dict.fromkeys(("arrivals", "answered", "ongoing", "queue"), figure))
        window(desk)
        front(desk, row, **dict.fromkeys(("arrivals", "late", "p50", "p99"), figure))
    assert guard_of(desk.daemon.kernel).error == ""
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def scale(desk: Desk, row: int, **ends: int) -> None:
    """People say how many GPUs its replicas may hold."""
    desk.ask(Scale([row], Ends(**ends)))
    desk.steps(3)
    while children(desk, row, Phase.STARTING, Phase.STOPPING):
        desk.steps(1)


def test_people_scale_a_service_and_its_siblings_notice_nothing(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1, max_gpus=2)
    first = children(desk, row, Phase.RUNNING)
    scale(desk, row, least=4, most=4)
    assert len(children(desk, row, Phase.RUNNING)) == 4
    scale(desk, row, size=2, least=1)
    assert children(desk, row, Phase.RUNNING) == [*first, first[0] + 1], "the newest go first"
    jobs = desk.daemon.kernel.jobs
    assert int(jobs.restarts[: jobs.n].sum()) == 0
    desk = desk.again()
    spec = desk.daemon.kernel.jobs.spec(row)
    role = spec.shape.roles[0]
    assert (role.size, role.replicas, spec.shape.gpus) == (2, (1, 4), 2)
    scale(desk, row, least=3)
    assert len(children(desk, row, Phase.RUNNING)) == 3
    scale(desk, row, least=0, most=0)
    assert children(desk, row, Phase.RUNNING) == []
    front(desk, row, queue=1)
    window(desk)
    desk.steps(3)
    assert children(desk, row, Phase.PENDING, Phase.STARTING, Phase.RUNNING) == [], "none is to be"
    assert check_history(desk.journal) == desk.daemon.kernel.revision


@pytest.mark.parametrize(
    "ends",
    [{"size": 5}, {"least": 3, "most": 2}, {"size": 1, "least": 2}, {"most": 1, "size": 2}],
)
def test_sizes_that_contradict_each_other_change_nothing(
    tmp_path: Path, ends: dict[str, int]
) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1, max_gpus=4)
    with pytest.raises(BadInput):
        scale(desk, row, **ends)
    assert desk.daemon.kernel.jobs.spec(row).shape.roles[0].replicas == (1, 4)


def test_only_a_service_that_a_recipe_scales_is_scaled(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    (job,) = desk.submit(gpus=1)
    row = service(desk, gpus=2, max_gpus=2)
    (odd,) = desk.submit(kind="serve", gpus=2)
    desk.steps(4)
    desk.order("cancel", row)
    for each in (job, row, row + 1):
        with pytest.raises(BadInput, match="not a service that runs"):
            scale(desk, each, size=1)
    with pytest.raises(BadInput, match="multiple of 2"):
        scale(desk, odd, size=3)


def test_no_service_grows_beyond_what_its_tenant_may_have(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    desk.ask(SetTenant("ann", 3000, set_limit=True))
    row = service(desk, gpus=1, max_gpus=2)
    with pytest.raises(BadInput, match="may not hold"):
        scale(desk, row, most=4)
    scale(desk, row, most=3)
    (waits,) = desk.submit(gpus=1)
    desk.steps(2)
    assert desk.phase(waits) == Phase.BLOCKED
    with pytest.raises(BadInput, match="may not hold"):
        scale(desk, row, most=4)
    desk = desk.again()
    scale(desk, row, most=2)
    desk.steps(3)
    assert desk.phase(waits) == Phase.RUNNING, "it has the room that the service gave back"
    with pytest.raises(BadInput, match="may not hold"):
        scale(desk, row, most=3)


def test_a_service_rests_without_replicas_and_a_request_that_waits_starts_one_at_once(
    tmp_path: Path,
) -> None:
    desk = begun(tmp_path)
    row = service(desk, gpus=1, min_gpus=0, max_gpus=2)
    front(desk, row, arrivals=4, ongoing=0)
    window(desk)
    desk.steps(1)
    assert children(desk, row, Phase.RUNNING), "requests came"
    for _ in range(3):
        front(desk, row, arrivals=4, ongoing=0, queue=0)
        window(desk)
    while children(desk, row, Phase.STOPPING, Phase.RUNNING):
        desk.steps(1)
    front(desk, row, arrivals=4, ongoing=0)
    assert window(desk)["replicas"] == 0
    began = desk.engine.now
    front(desk, row, arrivals=5, ongoing=1, queue=1)
    desk.engine.post()
    while not children(desk, row, Phase.RUNNING):
        desk.steps(1)
    assert desk.engine.now < began + SECOND // 10
    assert windows(desk)[-1] == {"arrivals": 1, "ongoing": 1, "queue": 1, "replicas": 0}
    front(desk, row, arrivals=5, ongoing=1)
    window(desk)
    assert sum(said.get("arrivals") or 0 for said in windows(desk)) == 5
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_what_cannot_start_closes_no_window_after_another(tmp_path: Path) -> None:
    """A recipe that starts none however long a request waits: the journal must not fill."""
    desk = begun(tmp_path)
    row = service(desk, gpus=1, min_gpus=0, max_gpus=1)
    scale(desk, row, most=0)
    before = len(windows(desk))
    began = desk.engine.now
    while desk.engine.now < began + 5 * SECOND:
        front(desk, row, queue=1)
        desk.engine.now += SECOND // 20
        desk.engine.post()
        desk.steps(1)
    assert len(windows(desk)) - before <= 7


@pytest.mark.parametrize(
    ("asked", "size", "replicas"),
    [
        ({"gpus": 2, "min_gpus": 0}, 2, (0, 2)),
        ({"gpus": 1, "min_gpus": 0, "max_gpus": 3}, 1, (0, 3)),
        ({"gpus": 0, "min_gpus": 0, "max_gpus": 3}, 1, (0, 3)),
        ({"gpus": 1, "max_gpus": 3}, 1, (1, 3)),
        ({"gpus": 2, "min_gpus": 0, "max_gpus": 3, "kind": "train"}, 2, (2, 3)),
    ],
)
def test_only_a_service_that_says_so_may_have_none(
    asked: dict[str, Any], size: int, replicas: tuple[int, int]
) -> None:
    role = shape_of(JobRequest(command=["true"], **{"kind": "serve", **asked})).roles[0]
    assert (role.size, role.replicas) == (size, replicas)
    assert role.range[0] >= 1, "recipes that know nothing of services count with a worker"
