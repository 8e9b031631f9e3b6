"""Why a job waited, asked of a log: the daemon's words, at a time that is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ganger.client.why import sentence
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, Kind, Locality, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.lab.ahead.logged import explain_logged
from ganger.lab.log import LogWriter
from ganger.lab.simulation import Setup, run_one
from worlds import Work, job, trace_of

Logged = Callable[..., Path]


@pytest.fixture
def logged(tmp_path: Path) -> Logged:
    """Writes the log of a run."""

    def write(
        recipe: str, works: list[Work], nodes: int = 1, gpus: int = 4, setup: Setup | None = None
    ) -> Path:
        path = tmp_path / "run.log"
        spec = NodeSpec(gpus=gpus, gpu_type="V100", cpus=8000)
        cluster = ClusterSpec((spec,) * nodes).check()
        trace, said = trace_of(works), setup or Setup()
        writers = list[LogWriter]()

        def journal(kernel):  # type: ignore[no-untyped-def]
            writers.append(LogWriter(path, kernel, trace, cluster, recipe, said))
            return writers[0]

        run_one(trace, cluster, recipe, said, journal=journal)
        writers[0].__exit__(None, None, None)
        return path

    return write


def said(path: Path, name: str, at: float | None = None) -> str:
    """The sentence, with times in seconds of the log."""
    found = explain_logged(path, name, None if at is None else round(at * SECOND))
    return sentence(found, lambda time: f"second {time:g}")


TWO_NODES = [
    job("first", 0, 600, 4, limit=1200),
    job("second", 1, 300, 2),
    job("wide", 2, 60, 4, shape=Shape((Role(size=4),), locality=Locality.NODE)),
]


def test_a_job_of_a_log_gets_the_sentence_that_the_daemon_would_say(logged: Logged) -> None:
    path = logged("fifo", TWO_NODES, nodes=2)
    assert said(path, "wide", 10) == (
        "waits for 4 GPUs in one node; 2 are free on node-1; job second is expected to release 2 at"
        " second 301; or: --gpus 2, starts now"
    )
    found = explain_logged(path, "wide", 10 * SECOND)
    assert (found.reason, found.by, found.at) == ("Resources", "QueuePolicy", 10)
    assert found.lines[-1] == "In the log it is started 4m 51s later."


def test_without_a_time_the_last_wait_is_explained(logged: Logged) -> None:
    path = logged("fifo", [job("a", 0, 30), job("b", 5, 30), job("c", 6, 30)], gpus=1)
    found = explain_logged(path, "c")
    assert (found.at, found.state) == (30, "PENDING")
    assert said(path, "c") == (
        "waits for 1 GPU; none is free on node-0; job b is expected to release 1 at second 60"
    )


def test_who_never_waited_holds_gpus_at_the_time_that_is_explained(logged: Logged) -> None:
    found = explain_logged(logged("fifo", [job("a", 0, 30)]), "a")
    assert (found.state, found.lines) == ("CONFIGURING", ["It has held GPUs on node-0 for 0 s."])


def test_before_in_and_after_its_life_a_job_has_other_words(logged: Logged) -> None:
    works = [job("a", 0, 30), job("b", 5, 30, after=("a",)), job("c", 50, 30)]
    path = logged("fifo", works, gpus=1)
    assert explain_logged(path, "b", 2 * SECOND).lines[0] == "It has not been submitted yet."
    blocked = explain_logged(path, "b", 6 * SECOND)
    assert (blocked.reason, blocked.holders) == ("Dependency", [1])
    assert blocked.lines == ["It waits until job a ends.", "In the log it is started 24.0 s later."]
    assert explain_logged(path, "b", 40 * SECOND).lines == [
        "It has held GPUs on node-0 for 10.0 s."
    ]
    assert explain_logged(path, "a", 40 * SECOND).lines == ["It is over: completed."]


def test_a_job_may_be_named_by_its_number(logged: Logged) -> None:
    path = logged("fifo", [job("job-7", 0, 30), job("job-8", 1, 30)], gpus=1)
    assert explain_logged(path, "8").label == "8"
    assert said(path, "job-8", 5).endswith("; job 7 is expected to release 1 at second 30")


@pytest.mark.parametrize("knows", ["truth", "noisy", "history", "nothing"])
@pytest.mark.parametrize("recipe", ["fifo", "srtf", "backfill", "las", "gavel", "pollux"])
def test_whatever_a_recipe_knows_it_can_be_asked_on_copies(
    logged: Logged, recipe: str, knows: str
) -> None:
    works = [job(f"{i}", i, 100 + i, 1 + i % 3, limit=1000) for i in range(8)]
    path = logged(recipe, works, setup=Setup(3, knows, noise=0.5))
    for name in "0123456":
        found = explain_logged(path, name, 7 * SECOND)
        assert found.lines
        assert (found.asks is not None) == (found.state == "PENDING")


def test_trials_in_a_grant_are_told_of_their_parent(logged: Logged) -> None:
    works = [
        job("search", 0, None, 2, kind=Kind.TUNE),
        *(job(f"trial{i}", 1 + i, 20, parent="search") for i in range(4)),
    ]
    path = logged("fifo", works, setup=Setup(until=300 * SECOND))
    found = explain_logged(path, "trial3", 10 * SECOND)
    assert "of 2 that job search holds for its children are free." in found.lines[0]
    assert found.asks is not None
    assert [one.label for one in found.releases] == ["trial0"]


def test_a_time_outside_of_the_log_and_a_job_that_it_lacks_are_one_clear_error(
    logged: Logged,
) -> None:
    path = logged("fifo", [job("a", 0, 30)])
    with pytest.raises(BadInput, match=r"is outside of the log .*from 0 s to 30\.0 s"):
        explain_logged(path, "a", 31 * SECOND)
    with pytest.raises(BadInput, match=r"no job 'b' .*name one of its 1 job: a"):
        explain_logged(path, "b")


def test_a_log_that_is_decided_otherwise_now_is_not_explained(logged: Logged) -> None:
    path = logged("fifo", [job("a", 0, 30), job("b", 1, 30)], gpus=1)
    events, actions = path.read_text().split('"type":"Start"', 1)
    path.write_text(events + '"type":"Start"' + actions.replace('"job":0', '"job":1', 1))
    with pytest.raises(BadInput, match="its recipe now decides otherwise"):
        explain_logged(path, "b")
