"""Searches with recipes of their own on a daemon over real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.rig import Agents
from ganger.core.errors import BadInput
from ganger.core.state.jobs import Phase
from ganger.core.tuning.space import Parameter
from ganger.mechanisms.tuning.trials import Portion
from ganger.service.commands import Order
from ganger.service.durable.reported import reports_between
from ganger.service.reports.families import family
from ganger.service.searches.births import AddTrials
from service.live_desk import LiveDesk
from service.test_sharing_live import replayed

PRINTS = """
import sys, time
floor = float(sys.argv[1])
for epoch in range(1, 10):
    print(f"epoch {epoch}: loss={floor + 1 / epoch} acc={1 - floor - 1 / epoch}", flush=True)
    time.sleep(.02)
"""
COMMAND = [sys.executable, "-S", "-c", PRINTS, "{floor}"]
FLOORS = [{"floor": str(abs(number - 2) / 10)} for number in range(9)]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[..., LiveDesk]]:
    """A daemon over two nodes."""
    agents = Agents(tmp_path / "agents", ["a", "b"])
    desks: list[LiveDesk] = []

    def begin(*recipes: str) -> LiveDesk:
        desks.append(LiveDesk(tmp_path, agents, *recipes))
        return desks[-1]

    yield begin
    for desk in desks[-1:]:
        desk.close()
    agents.close()


def search(desk: LiveDesk, recipe: str, metric: str = "loss", **fields: Any) -> int:
    """A search over nine configurations, the third of which is the best."""
    (row,) = desk.submit(
        command=COMMAND,
        kind="tune",
        metric=metric,
        printed=True,
        recipe=recipe,
        configurations=FLOORS,
        **fields,
    )
    return row


def over(desk: LiveDesk, *rows: int) -> None:
    desk.until(lambda: all(desk.phase(row) == Phase.FINISHED for row in rows))


def test_two_searches_at_once_each_have_their_own_recipe_over_trials_that_only_print(
    begun: Callable[..., LiveDesk],
) -> None:
    desk = begun("fifo", "fifo")
    halving = search(desk, "tune.asha(trials=9,eta=3,epochs=9)", gpus=4)
    racing = search(desk, "tune.random(trials=5,epochs=9,mode=max)", "acc", gpus=3)
    over(desk, halving, racing)
    told = {row: family(desk.daemon, row) for row in (halving, racing)}
    steps = {
        row: sorted((one.step or 0.0) for one in found.children)
        for row, found in told.items()
        if found is not None
    }
    assert steps[racing] == [9.0] * 5, "every trial trains to its end"
    assert len(steps[halving]) == 9
    assert 1 <= steps[halving].count(9.0) < 9, "most are ended before"
    for found in told.values():
        assert found is not None
        (best,) = (one for one in found.children if one.job == found.best)
        assert best.params == {"floor": "0.0"}
    replayed(desk)


def test_a_search_ends_at_its_limit_and_survives_another_daemon(
    begun: Callable[..., LiveDesk],
) -> None:
    desk = begun("fifo", "fifo")
    row = search(desk, "tune.random(trials=9,epochs=9); epochs=20", gpus=2)
    desk.until(lambda: len(desk.rows(row, Phase.FINISHED)) >= 1)
    desk.close()
    again = begun("fifo", "fifo")
    over(again, row)
    answer = family(again.daemon, row)
    assert answer is not None
    assert answer.ended_by == "the budget of epochs"
    trials = again.rows(row, *Phase)
    trained = sum(
        again.daemon.kernel.facts.trials[one].last
        for one in trials
        if one in again.daemon.kernel.facts.trials
    )
    assert len(trials) < 9
    assert trained <= 20 + 9, "no more than the trials that ran had trained meanwhile"
    replayed(again)


def test_a_search_that_is_paused_stays_so_under_another_daemon_and_keeps_what_was_added(
    begun: Callable[..., LiveDesk],
) -> None:
    desk = begun("fifo", "fifo")
    row = search(desk, "tune.random(trials=4,epochs=9)", gpus=2)
    desk.until(lambda: len(desk.rows(row, Phase.RUNNING)) == 2)
    desk.ask(Order([row], {"hold": 0.0}))
    desk.ask(Order([row], {"requeue": 0.0}))
    (added,) = desk.ask(AddTrials(row, [{"floor": "0.7"}], Portion()))
    desk.until(lambda: desk.phase(row) == Phase.BLOCKED)
    desk.close()
    again = begun("fifo", "fifo")
    again.once()
    assert again.phase(row) == Phase.BLOCKED
    assert not again.rows(row, Phase.RUNNING, Phase.STARTING)
    again.ask(Order([row], {"release": 0.0}))
    over(again, row)
    answer = family(again.daemon, row)
    assert answer is not None
    assert [each.step for each in answer.children] == [9.0] * 5
    (own,) = (each for each in answer.children if each.params == {"floor": "0.7"})
    assert own.job == added + 1
    replayed(again)


def test_a_recipe_that_would_run_a_file_or_is_for_no_search_is_refused(
    begun: Callable[..., LiveDesk], tmp_path: Path
) -> None:
    desk = begun("fifo", "fifo")
    file = tmp_path / "mine.py"
    mark = tmp_path / "it-ran"
    file.write_text(f"open({os.fspath(mark)!r}, 'w')\nMine = None\n")
    with pytest.raises(BadInput):
        search(desk, f"{file}:Mine", gpus=2)
    assert not mark.exists()
    with pytest.raises(BadInput, match="not a search"):
        desk.submit(command=["true"], recipe="tune.sha")
    with pytest.raises(BadInput, match="a trial takes 4 GPUs"):
        search(desk, "tune.sha(gpus=4)", gpus=2)


GROWS = """
import json, os, pathlib, sys, time
saved, score, epoch = pathlib.Path(os.environ["GANGER_CHECKPOINT_DIR"], "state"), 0.0, 0
saved.parent.mkdir(parents=True, exist_ok=True)
if saved.exists():
    epoch, score = json.loads(saved.read_text())
while epoch < 12:
    epoch, score = epoch + 1, score + float(sys.argv[1])
    part = saved.with_suffix(".part")
    part.write_text(json.dumps([epoch, score]))
    part.replace(saved)
    print(json.dumps({"epoch": epoch, "score": score}), flush=True)
    time.sleep(.1 if float(sys.argv[1]) > .01 else .3)
"""


@pytest.mark.parametrize("folder", [False, True], ids=["agents", "users"])
def test_copies_of_the_best_take_the_places_of_the_worst(
    begun: Callable[..., LiveDesk], tmp_path: Path, folder: bool
) -> None:
    """Four trials add what they try to a score that they save. One of them adds next to nothing:
    it ends early, and what takes its place goes on from the score of another one. It is slow, too:
    the first trial at an epoch is compared with no other."""
    desk = begun("fifo", "fifo")
    rates = [{"rate": rate} for rate in ("0.9", "0.8", "0.7", "0.001")]
    (row,) = desk.submit(
        command=[sys.executable, "-S", "-c", GROWS, "{rate}"],
        kind="tune",
        metric="score",
        printed=True,
        recipe="tune.pbt(trials=4,every=2,part=0.25,epochs=12,mode=max)",
        gpus=4,
        configurations=rates,
        searcher="random",
        space={"rate": Parameter(low=0.0, high=1.0)},
        checkpoint_dir=str(tmp_path / "kept") if folder else "",
    )
    over(desk, row)
    trials = desk.rows(row, *Phase)
    reports = {one: list(reports_between(desk.journal, [one])) for one in trials}
    worst, copy = trials[3], trials[4]
    assert reports[worst][-1].epoch < 12, "it did not train to its end"
    first = reports[copy][0]
    assert first.epoch > 1, "it went on from what another one had saved"
    assert first.value is not None
    rate = float(desk.journal.facts(copy).params["rate"])
    assert first.value - rate >= 0.7 * (first.epoch - 1) - 1e-5, "which was a good one"
    answer = family(desk.daemon, row)
    assert answer is not None
    assert answer.children[4].copied in [trial + 1 for trial in trials[:3]]
    source = desk.journal.facts(copy).launch.copies
    places = [str(tmp_path / "kept" / str(at)) for at in range(3)] if folder else trials[:3]
    assert source in [str(place) for place in places]
    replayed(desk)
