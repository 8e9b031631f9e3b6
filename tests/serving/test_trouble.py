"""Devices that fail, come back, and are slow for a while."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ganger.cli.lab.serving.requests import requests
from ganger.core.errors import BadInput
from ganger.core.serving.world import Store, World
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.trouble import Trouble
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import make_router, recipes
from ganger.sim.requests import trouble
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.trouble import DOWN, Change, drive
from serving.rig import CODES, MS, Asked, Seen, affine, columns, lanes, model, placed, speaker
from soaking import examples

PLAIN = [model("a", affine(5, 1, 8)), model("b", affine(9, 2, 8))]
LOADED = [model("a", affine(5, 1, 8), bytes_=40, load=20), model("b", affine(9, 2, 8), bytes_=40)]
FLEET = read_fleet("T4:2+L4:1")


def played(
    recipe: str, changes: Iterable[Change], asked: list[Asked], devices: int, room: int = 0
) -> Seen:
    """Drive a recipe over devices that change; with `room`, models are loaded into that memory."""
    stores = [Store(at, room) for at in range(devices)] if room else []
    models = LOADED if room else PLAIN
    world = World(models, placed(devices) if room else lanes(devices), stores)
    world.future = Future.of(iter([columns(asked)]))
    seen = Seen(world)
    plane = Plane(
        world, make_router(recipe), Physics(models, noise=0), iter([columns(asked)]), [seen]
    )
    drive(plane, changes)
    plane.finish()
    return seen


def failing(device: int, down: float, up: float) -> list[Change]:
    """One outage, in milliseconds."""
    return [Change(round(down * MS), device, False), Change(round(up * MS), device, True)]


def test_devices_that_fail_before_anything_ends_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was drawn had no end, and so had the run."""
    monkeypatch.setattr(trouble, "_FAILURES_MAX", 1000)
    changes = Trouble("mtbf=10us,mttr=10us").changes(read_fleet("T4:1"), 0)
    with pytest.raises(BadInput, match="no request ended in between"):
        played("serve.triton", changes, [Asked(0), Asked(0.5)], 1)


def test_devices_that_change_without_end_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_CHANGES_MAX", 100)
    pace = Trouble(stragglers="every=1ms,for=1ms,times=2").changes(read_fleet("T4:1"), 0)
    with pytest.raises(BadInput, match="change more than 100 times"):
        played("serve.triton", pace, [Asked(10.0 * at) for at in range(100)], 1)


def test_what_a_device_lost_waits_for_another() -> None:
    """The batch that began at 0 would end at 6; its device fails at 3, the other takes it."""
    seen = played("serve.triton", failing(0, 3, 50), [Asked(0), Asked(0.5)], 2)
    assert [(each.lane, each.began, each.ended, each.outcome) for each in seen.batches] == [
        (0, 0, 3, "failed"),
        (1, 0.5, 6.5, "ok"),
        (1, 6.5, 12.5, "ok"),
    ]


def test_a_batch_that_begins_on_a_slow_device_takes_longer_and_keeps_its_pace() -> None:
    slow = [Change(10 * MS, 0, None, 4.0), Change(20 * MS, 0, None, 1.0)]
    seen = played("serve.no-batch", slow, [Asked(9), Asked(9), Asked(9)], 1)
    assert [(each.began, each.ended) for each in seen.batches] == [(9, 15), (15, 39), (39, 45)]


@pytest.mark.parametrize("recipe", ["serve.continuous-batching", "serve.triton"])
def test_steps_of_token_models_are_slow_too(recipe: str) -> None:
    """A prompt of four tokens takes 14 ms, one further token 6; both twice as long."""
    models = [speaker("m")]
    world = World(models, lanes(1))
    seen = Seen(world)
    chunks = iter([columns([Asked(1, prompt=4, output=2)])])
    plane = Plane(world, make_router(recipe), Physics(models, noise=0), chunks, [seen])
    drive(plane, [Change(0, 0, None, 2.0)])
    plane.finish()
    assert seen.ended == [1 + 2 * 14 + 2 * 6]


def test_only_the_device_that_is_named_is_slow() -> None:
    seen = played("serve.triton", [Change(0, 1, None, 3.0)], [Asked(1), Asked(1.5)], 2)
    assert [(each.lane, each.ended) for each in seen.batches] == [(0, 7), (1, 19.5)]


def test_a_device_that_comes_back_has_to_load_its_models_again() -> None:
    """Loaded at 20 ms and run; gone at 30; the second request waits for the second load."""
    asked = [Asked(0, within=500), Asked(35, within=500), Asked(100, within=500)]
    seen = played("clockwork", failing(0, 30, 40), asked, 1, room=60)
    assert [load[:2] for load in seen.loads] == [(0, 0), (0, 40)]
    assert [each.began for each in seen.batches] == [20, 60, 100]


def test_a_load_that_a_failure_interrupts_is_begun_again_elsewhere() -> None:
    seen = played("clockwork", failing(0, 10, 900), [Asked(0, within=500)], 2, room=60)
    assert seen.batches[-1].lane == 1
    assert seen.outcomes == ["answered"]


def test_what_waits_for_devices_that_never_come_back_is_dropped() -> None:
    seen = played("serve.triton", [Change(10 * MS, 0, False)], [Asked(1), Asked(8), Asked(30)], 1)
    assert seen.outcomes == ["answered", DOWN, DOWN]


def test_a_fleet_whose_work_is_done_is_not_waited_for() -> None:
    """Failures are drawn for ever; the run ends with the last request."""
    endless = (Change(at * 7 * MS, 0, at % 2 == 0) for at in itertools.count(1))
    world = World(PLAIN, lanes(1))
    plane = Plane(
        world,
        make_router("serve.triton"),
        Physics(PLAIN, noise=0),
        iter([columns([Asked(0), Asked(20)])]),
    )
    drive(plane, endless)
    assert not world.open
    assert world.now < 100 * MS


CHANGES = st.lists(
    st.one_of(
        st.builds(
            Change,
            st.integers(0, 90).map(lambda at: at * MS),
            st.integers(0, 1),
            st.booleans(),
            st.just(1.0),
        ),
        st.builds(
            Change,
            st.integers(0, 90).map(lambda at: at * MS),
            st.integers(0, 1),
            st.none(),
            st.sampled_from([0.5, 3.0]),
        ),
    ),
    max_size=12,
)


@pytest.mark.parametrize("recipe", recipes("requests"))
@examples(10)
@given(
    changes=CHANGES,
    asked=st.lists(
        st.builds(
            Asked,
            st.integers(0, 60),
            st.integers(0, 1),
            st.sampled_from([20.0, 5000.0]),
            st.just(1),
            **CODES,
        ),
        min_size=1,
        max_size=20,
    ),
    tight=st.booleans(),
)
def test_every_request_ends_once_whatever_befalls_the_devices(
    recipe: str, changes: Iterable[Change], asked: list[Asked], tight: bool
) -> None:
    room = 60 if tight and make_router(recipe).can.loads else 0
    back = [Change(500 * MS, device, True) for device in range(2)]
    ordered = sorted(changes, key=lambda change: change.at)
    streams = make_router(recipe).can.streams
    if streams == 1:
        seen = played(recipe, [*ordered, *back], asked, 2, room)
        assert len(seen.outcomes) == len(asked)


# ---------------------------------------------------------------------- what people write


def some(trouble: Trouble, count: int, seed: int = 0) -> list[Change]:
    return list(itertools.islice(trouble.changes(FLEET, seed), count))


def test_files_of_outages_and_stragglers(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("device,down,up\n2,10s,20s\n0,5s,\n2,20s,21s\n")
    (tmp_path / "slow.csv").write_text("device,from,to,times\n1,1s,2s,4\n")
    trouble = Trouble(str(tmp_path / "out.csv"), str(tmp_path / "slow.csv"))
    second = 1_000_000
    assert some(trouble, 99) == [
        Change(1 * second, 1, None, 4.0),
        Change(2 * second, 1, None, 1.0),
        Change(5 * second, 0, False),
        Change(10 * second, 2, False),
        Change(20 * second, 2, True),
        Change(20 * second, 2, False),
        Change(21 * second, 2, True),
    ]


def test_drawn_ones_have_the_means_that_were_stated() -> None:
    drawn = some(Trouble("mtbf=100s,mttr=10s"), 6000)
    assert drawn == sorted(drawn, key=lambda change: change.at)
    one = [change.at for change in drawn if change.device == 1]
    down = [change.at for change in drawn if change.device == 1 and change.up is False]
    assert one[-1] / len(down) == pytest.approx(110e6, rel=0.1)
    slow = some(Trouble(stragglers="every=50s,for=5s,times=4"), 6000)
    share = sum(change.times == 4.0 for change in slow) / len(slow)
    assert share == pytest.approx(0.5, abs=0.01)
    assert slow[-1].at / 1000 == pytest.approx(55e6, rel=0.1)
    assert some(Trouble("mtbf=100s,mttr=10s"), 50, seed=1) != drawn[:50]
    assert some(Trouble("mtbf=100s,mttr=10s"), 50) == drawn[:50]


@pytest.mark.parametrize(
    ("outages", "stragglers", "says"),
    [
        ("no.csv", "", "no file 'no.csv'"),
        ("mtbf=1h", "", "it needs mtbf and mttr"),
        ("mtbf=1h,mttr=x", "", "'x'"),
        ("mtbf=0s,mttr=1s", "", "longer than 0"),
        ("", "every=1h,for=1s", "'' is not a valid factor"),
        ("", "every=1h,times=4", "every and for"),
        ("", "every=1us,for=998us,times=4", "more often than batches end"),
        ("", "every=1h,for=1s,times=nan", "not a valid factor"),
        ("", "every=1h,for=1s,times=0.1", "'0.1' is not a valid factor"),
        ("", "fast", "no file 'fast'"),
        ("device,down,up\n9,1s,2s", "", "no device '9' in T4:2+L4:1"),
        ("device,down,up\n0,1s,3s\n0,2s,4s", "", "two rows of device 0 overlap"),
        ("device,down\n0,1s", "", "no column 'up'"),
        ("device,down,up\n-1,1s,2s", "", "no device '-1'"),
        ("device,down,up\n0,2s,1s", "", "up before it is down"),
        ("", "device,from,to,times\n0,1s,2s,0", "'0' is not a valid factor"),
    ],
)
def test_what_cannot_be_meant_is_one_error(
    tmp_path: Path, outages: str, stragglers: str, says: str
) -> None:
    texts: list[str] = []
    for at, text in enumerate((outages, stragglers)):
        if "\n" in text:
            (tmp_path / f"{at}.csv").write_text(text)
            text = str(tmp_path / f"{at}.csv")
        texts.append(text)
    with pytest.raises(BadInput) as caught:
        some(Trouble(*texts), 1)
    assert says in str(caught.value)


def test_the_command_makes_devices_fail_and_slow(tmp_path: Path) -> None:
    """Alone a request takes 5 ms; the device is down until 1 s, and slow from 2 s on."""
    (tmp_path / "r.csv").write_text("arrival,model\n0.1,a\n2.5,a\n")
    (tmp_path / "m.toml").write_text(
        'format = "ganger.models/1"\ndevices = [{ name = "T4" }]\n[[models]]\nname = "a"\n'
        'latency = [{ device = "T4", base = 0.004, each = 0.001, largest = 8 }]\n'
    )
    (tmp_path / "out.csv").write_text("device,down,up\n0,0s,1s\n")
    (tmp_path / "slow.csv").write_text("device,from,to,times\n0,2s,,10\n")
    words = [
        "simulate",
        str(tmp_path / "r.csv"),
        "--models",
        str(tmp_path / "m.toml"),
        "--fleet",
        "T4:1",
        "--latency-noise",
        "0",
        "--json",
    ]

    def latencies(*more: str) -> Any:
        out = tmp_path / "each.csv"
        result = CliRunner().invoke(requests, [*words, "--per-request", str(out), *more])
        assert result.exception is None, result.output
        assert json.loads(result.stdout)["runs"][0]["metrics"]["requests"] == 2
        return [float(line.split(",")[3]) for line in out.read_text().splitlines()[1:]]

    assert latencies() == pytest.approx([0.005, 0.005])
    assert latencies("--outages", str(tmp_path / "out.csv")) == pytest.approx([0.905, 0.005])
    assert latencies("--stragglers", str(tmp_path / "slow.csv")) == pytest.approx([0.005, 0.05])
