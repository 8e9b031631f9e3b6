"""Searches whose searcher learns from what trials reported, and makes it up again after a crash."""

from __future__ import annotations

import threading
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from ganger.client.request import EarlierTrial
from ganger.core.errors import BadInput
from ganger.core.events import Evaluated, Unable
from ganger.core.state.jobs import Phase
from ganger.core.tuning.space import Parameter, Point
from ganger.core.units import NEVER
from ganger.engines.testing.fake import Script
from ganger.mechanisms.tuning.searching import named
from ganger.mechanisms.tuning.searching.kde import Densities
from ganger.mechanisms.tuning.trials import Portion
from ganger.service.durable.journal import Header
from ganger.service.durable.recovery import check_history
from ganger.service.reports.families import sentences
from ganger.service.searches.births import AddTrials
from ganger.service.searches.proposing import AT_ONCE, Learnt
from service.desk import Desk, box, header

SPACE = {
    "x": Parameter(low=0.0, high=1.0),
    "n": Parameter("integer", 1, 1000, log=True),
    "opt": Parameter("choice", values=("a", "b")),
}
BEST = 0.3
TRIALS = 18


def under() -> Header:
    return msgspec.structs.replace(header(), inner="fifo")


def endless(job: int, attempt: int) -> Script:
    return Script(runs=NEVER)


def search(desk: Desk, searcher: str, **fields: Any) -> int:
    """A search of which two trials run at once, each for an epoch."""
    said = {"recipe": f"tune.random(trials={TRIALS},epochs=1)", "metric": "loss", **fields}
    (row,) = desk.submit(kind="tune", gpus=2, searcher=searcher, space=SPACE, **said)
    return row


def advance(desk: Desk) -> None:
    """A step; what runs and has not reported does."""
    desk.daemon.proposing.settle()
    desk.steps(1)
    jobs, told = desk.daemon.kernel.jobs, desk.daemon.kernel.facts.trials
    for row in range(jobs.n):
        if jobs.parent[row] >= 0 and jobs.phase[row] == Phase.RUNNING and row not in told:
            x = float(desk.journal.facts(row).params["x"])
            event = Evaluated(row, int(jobs.attempt[row]), 1.0, (x - BEST) ** 2)
            desk.engine.post(event)


def run(desk: Desk, trials: int) -> list[dict[str, str]]:
    """Until so many trials are there; what they try."""
    for _ in range(400):
        if desk.daemon.kernel.jobs.n > trials:
            break
        advance(desk)
    assert desk.daemon.kernel.jobs.n > trials
    return tried(desk)


def tried(desk: Desk) -> list[dict[str, str]]:
    return [desk.journal.facts(row).params for row in range(1, desk.daemon.kernel.jobs.n)]


NO_OPTUNA = pytest.mark.skipif(find_spec("optuna") is None, reason="needs Optuna")
SEARCHERS = ["kde", pytest.param("tpe", marks=NO_OPTUNA)]


def test_trials_come_to_where_the_loss_is_low(tmp_path: Path) -> None:
    """At random half of them lie 0.25 away from the best or more."""
    desk = Desk(tmp_path, under(), endless)
    search(desk, "kde", recipe="tune.random(trials=30,epochs=1)")
    found = [abs(float(one["x"]) - BEST) for one in run(desk, 30)]
    assert median(found[-15:]) < 0.15
    assert check_history(desk.journal) == desk.daemon.kernel.revision


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_the_journal_has_all_that_its_searcher_was_told(tmp_path: Path, searcher: str) -> None:
    """Killed twice in the middle, it goes on; asked again as the journal says, a new searcher
    proposes just what each trial tried."""
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, searcher)
    run(desk, 7)
    desk = desk.again()
    run(desk, 13)
    desk.ask(AddTrials(row, [{"x": "0.9", "n": "3", "opt": "a"}, {"x": "7"}], Portion()))
    desk = desk.again()
    run(desk, TRIALS + 2)
    family = desk.journal.facts(row).family
    assert family is not None
    assert family.proposals is not None
    again, before = Learnt.of(family.proposals), list[int]()
    own = 0
    for trial in range(1, desk.daemon.kernel.jobs.n):
        facts = desk.journal.facts(trial)
        again.know(desk.journal, before)
        if facts.heard >= 0:
            again.hear(desk.journal, facts.heard)
            assert again.ask() == facts.params
            own += 1
        before.append(trial)
    assert own == TRIALS, "the two that were added are people's"
    assert any(desk.journal.facts(trial).heard > 5 for trial in before)
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_what_is_listed_comes_first_and_what_is_known_before_counts(tmp_path: Path) -> None:
    listed = [{"x": "0.1", "n": "2", "opt": "b"}] * 3
    earlier = [
        EarlierTrial(
            {"x": f"{at / 20:g}", "n": "5", "opt": "a"}, 1.0, (at / 20 - BEST) ** 2 if at else None
        )
        for at in range(20)
    ]
    desk = Desk(tmp_path, under(), endless)
    search(desk, "kde", configurations=listed, earlier=earlier)
    found = run(desk, 11)
    assert found[:3] == listed
    near = sum(abs(float(one["x"]) - BEST) < 0.2 for one in found[3:])
    assert near >= 5, "two in three are drawn near what was good"
    (tmp_path / "other").mkdir()
    other = Desk(tmp_path / "other", under(), endless)
    search(other, "kde", configurations=listed)
    assert run(other, 11)[3:] != found[3:]


def test_a_searcher_that_fails_ends_its_search_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, space: object, seed: int) -> None:
            raise ZeroDivisionError("in somebody's code")

    monkeypatch.setitem(named._ENDLESS, "kde", Broken)
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, "kde")
    for _ in range(6):
        advance(desk)
    events = [one for _, batch, _ in desk.journal.steps(0) for one in batch.events]
    (unable,) = [one for one in events if isinstance(one, Unable)]
    assert unable.why == "its searcher failed: ZeroDivisionError: in somebody's code"
    assert desk.submit() == [row + 1]


def test_a_file_that_is_named_as_a_searcher_does_not_run(tmp_path: Path) -> None:
    """The daemon would run it, as its own user."""
    desk, mark, file = Desk(tmp_path, under(), endless), tmp_path / "it-ran", tmp_path / "mine.py"
    file.write_text(f"open({str(mark)!r}, 'w')\nclass Mine: pass\n")
    for name in (f"{file}:Mine", f"file:{file}:Mine", "os:getcwd", "client:Mine"):
        with pytest.raises(BadInput, match="is not one of"):
            search(desk, name)
    assert not mark.exists()
    assert desk.submit() == [0]


def test_a_program_outside_proposes_and_another_daemon_waits_for_it(tmp_path: Path) -> None:
    """Nothing runs that it did not propose, and what it did stands in the journal."""
    desk = Desk(tmp_path, under(), endless)
    row = search(desk, "client")
    for _ in range(3):
        advance(desk)
    proposing = desk.daemon.proposing
    assert (proposing.wanted(row), tried(desk)) == (2, [])
    assert any("It waits for 2 configurations" in each for each in sentences(desk.daemon, row))
    one, other, third = ({"x": str(x), "n": "5", "opt": "a"} for x in (0.25, 0.5, 0.75))
    with pytest.raises(BadInput, match="3 are proposed, and 2 wanted"):
        proposing.give(row, [one, other, third])
    assert proposing.give(row, [one]) == 1
    desk = desk.again()
    desk.engine.post()  # as agents do that are found again
    advance(desk)
    proposing = desk.daemon.proposing
    assert (proposing.wanted(row), tried(desk)) == (2, []), "one alone was not written yet"
    proposing.give(row, [one, other])
    for _ in range(6):
        advance(desk)
    assert tried(desk)[:2] == [one, other]
    assert proposing.wanted(row) == 2, "both have ended, and two more may begin"
    desk.order("cancel", row)
    advance(desk)
    proposing.give(row, [third])
    advance(desk)
    assert tried(desk) == [one, other], "a search that is over gets no more trials"
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_however_many_search_two_searchers_work_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant with hundreds of searches that learn may not take all processors."""
    lock, count, most = threading.Lock(), 0, 0

    class Slow(Densities):
        def ask(self) -> Point:
            nonlocal count, most
            with lock:
                count += 1
                most = max(most, count)
            time.sleep(0.01)
            with lock:
                count -= 1
            return super().ask()

    monkeypatch.setitem(named._ENDLESS, "kde", Slow)
    wide = msgspec.structs.replace(header("fifo", box(10)), inner="fifo")
    desk = Desk(tmp_path, wide, endless)
    rows = [search(desk, "kde") for _ in range(5)]
    for _ in range(4):
        advance(desk)
    jobs = desk.daemon.kernel.jobs
    assert {int(jobs.parent[row]) for row in range(jobs.n)} == {-1, *rows}
    assert most == AT_ONCE


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"searcher": "clever"}, "is not one of random, kde, tpe, gp, cma-es, client"),
        ({"searcher": "grid"}, "is not one of random"),
        ({"searcher": "mine.py:Mine"}, "runs in the program that submits"),
        ({"recipe": ""}, "must know which values are good"),
        ({"space": {}}, "it has no parameter"),
        ({"space": {"job": Parameter()}}, "cannot name a parameter"),
        ({"space": {"x": Parameter(low=1.0, high=0.0)}}, "let low be below high"),
        ({"space": {"x": Parameter("choice", values=tuple(range(101)))}}, "more than 100 values"),
        ({"space": {f"x{at}": Parameter() for at in range(101)}}, "more than 100 parameters"),
        ({"searcher": ""}, "no searcher is named"),
        ({"earlier": [EarlierTrial({"x": "1"}, -1.0, 0.0)]}, "out of range"),
        ({"kind": "train"}, "not a search"),
    ],
)
def test_what_no_searcher_can_search_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    desk = Desk(tmp_path, under(), endless)
    said = {
        "kind": "tune", "gpus": 2, "searcher": "kde", "space": SPACE, "recipe": "tune.random",
        **fields,
    }  # fmt: skip
    with pytest.raises(BadInput, match=words):
        desk.submit(**said)
