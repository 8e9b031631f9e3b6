"""Why a job waited, asked of a log: the daemon's words, at a time that is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ganger.client.why import sentence
from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Kind, Locality, Needs, NodeSpec, Role, Shape
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


# ---------------------------------------------------------------------- who shares with whom

USES = {"p3": 0.3, "p6": 0.6, "p7": 0.7}
SHARING = Setup(profiles=Profiles({m: Profile(utilisation={"gpu": u}) for m, u in USES.items()}))
PAIR = [job("a", 0, 900, model="p6"), job("b", 1, 900, model="p7")]


def company(path: Path, name: str, at: float) -> list[str]:
    """What is said of the others on its GPUs."""
    lines = explain_logged(path, name, round(at * SECOND)).lines
    assert lines[0].startswith("It has held GPUs on node-0 for ")
    return lines[1:]


def test_who_shares_gpus_is_told_with_whom_in_which_class_how_fast_and_why(logged: Logged) -> None:
    path = logged("antman", PAIR, gpus=1, setup=SHARING)
    firm = "as a guaranteed job, at 100.0% of its speed alone as far as is known."
    loose = "as an opportunistic job, at 57.1% of its speed alone as far as is known."
    assert company(path, "a", 60) == [
        f"It shares its GPUs, {firm}",
        f"Job b is there, too, {loose}",
    ]
    assert company(path, "b", 60) == [
        f"It shares its GPUs, {loose}",
        f"Job a is there, too, {firm}",
        "antman lets them be there together: use by others below 0.8, use by others 0.6.",
    ]
    assert company(path, "b", 950) == [
        "It is alone on its GPUs, and holds 0.5 of each: others may join it."
    ]


@pytest.mark.parametrize(
    ("recipe", "models", "part", "why"),
    [
        (
            "horus(limit=1.3)",
            ("p6", "p7"),
            "70.4%",
            "predicted use of a GPU at most 1.3, predicted use of a GPU together 1.3",
        ),
        (
            "lucid(busy=0)",
            ("p3", "p3"),
            "91.7%",
            "sum of sharing scores at most 2, sum of sharing scores together 2",
        ),
        (
            "muri-l(every=5s)",
            ("p6", "p7"),
            "70.4%",
            "together do 1.40845 jobs, use of resources 0.915493",
        ),
        (
            "gandiva(quantum=5s)",
            ("p6", "p7"),
            "70.4%",
            "together must do 1 job, together did 1.40845 jobs",
        ),
    ],
)
def test_a_recipe_says_by_which_numbers_it_put_jobs_together(
    recipe: str, models: tuple[str, str], part: str, why: str, logged: Logged
) -> None:
    works = [job(name, 0, 900, model=model) for name, model in zip("ab", models, strict=True)]
    found = company(logged(recipe, works, gpus=1, setup=SHARING), "a", 300)
    speed = f"at {part} of its speed alone as far as is known."
    assert found == [
        f"It shares its GPUs, {speed}",
        f"Job b is there, too, {speed}",
        f"{recipe} lets them be there together: {why}.",
    ]


def test_tokens_are_told_and_a_job_of_its_own_gpus_is_told_nothing(logged: Logged) -> None:
    part = Shape((Role(needs=Needs(share=400)),))
    works = [job(name, 0, 900, model="x", shape=part) for name in "ab"] + [job("c", 1, 900, 1)]
    path = logged("kubeshare(limit=0.5)", works, gpus=2)
    assert company(path, "a", 60)[0] == (
        "It shares its GPUs, with 0.4 of a GPU for sure and 0.5 at most,"
        " at 100.0% of its speed alone as far as is known."
    )
    assert company(path, "c", 60) == []


def test_what_horus_refused_is_said_in_words(logged: Logged) -> None:
    path = logged("horus(exceed=no)", PAIR, gpus=1, setup=SHARING)
    refused = explain_logged(path, "b", 60 * SECOND).lines
    assert (
        "Refused by the ordered queue (QueuePolicy): asked 1 GPU, predicted use of a GPU at most 1,"
        " predicted use of a GPU beside others at least 1.3."
    ) in refused
