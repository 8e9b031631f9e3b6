"""Tenants, their keys and rates; what is kept for clients that ask again."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import NEVER
from ganger.serving.calls import CallIds, trace_of
from ganger.serving.desk import Inference, Outcome, Terms
from ganger.serving.http.limits import Limits
from ganger.serving.kept import SECONDS, Case, Kept
from ganger.serving.tenants import Tenants
from serving.live.nets import busy, models_file, times
from serving.live.room import ASK, ROW, Room, keys_file, play
from serving.live.server import request

ANN, BOB = "a" * 20, "b" * 20
BOTH = {"ann": f'keys = ["{ANN}"]', "bob": f'keys = ["{BOB}"]'}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    times(tmp_path / "double.onnx", 2)
    busy(tmp_path / "busy.onnx", 300)
    return models_file(tmp_path, ["double", "busy"])


def slow(**more: Any) -> dict[str, Any]:
    row = {"name": "x", "shape": [8, 256], "datatype": "FP32", "data": [0.5] * 2048}
    return {"inputs": [row], **more}


# ---------------------------------------------------------------------- keys and rates


def test_a_rate_is_a_tenants_own_and_says_when_to_ask_again(file: Path) -> None:
    terms = {**BOTH, "ann": f'keys = ["{ANN}"]\nrate = 0.5\nburst = 3'}
    keys = keys_file(file.parent, **terms)

    async def story(room: Room) -> None:
        answers = [await room.infer(ASK, ANN) for _ in range(5)]
        assert [each.status for each in answers] == [200, 200, 200, 429, 429]
        assert answers[3].error == "tenant 'ann' asks more than 0.5 times a second"
        assert answers[3].headers["retry-after"] == "2"
        assert answers[3].headers["ganger-reason"] == "rate"
        assert (await room.infer(ASK, BOB)).status == 200
        # what is not an inference is not counted
        head = {"authorization": f"Bearer {ANN}"}
        assert (await room.ask("GET", "/v2/models/double", headers=head)).status == 200

    play(lambda: Room(file, keys=keys), story)


def test_an_hour_s_pause_gives_no_more_than_the_burst(file: Path) -> None:
    keys = keys_file(file.parent, ann=f'keys = ["{ANN}"]\nrate = 10')
    (tenant,) = Tenants(keys).all
    assert [tenant.take(3600.0) for _ in range(10)] == [0.0] * 10
    assert tenant.take(3600.0) == pytest.approx(0.1)
    assert tenant.take(3600.05) == pytest.approx(0.05)
    assert tenant.take(3600.101) == 0.0


def test_a_tenant_takes_half_of_the_places_and_no_more(file: Path) -> None:
    keys = keys_file(file.parent, **BOTH)

    async def story(room: Room) -> None:
        asked = [asyncio.create_task(room.infer(slow(), ANN, "busy")) for _ in range(3)]
        answers = await asyncio.gather(*asked, room.infer(slow(), BOB, "busy"))
        assert sorted(each.status for each in answers[:3]) == [200, 200, 429]
        refused = next(each for each in answers if each.status == 429)
        assert refused.error == "2 requests of tenant 'ann' are under way"
        assert answers[3].status == 200

    play(lambda: Room(file, keys=keys, limit=4), story)


def test_bodies_of_a_tenant_leave_room_for_others(file: Path) -> None:
    keys = keys_file(file.parent, **BOTH)
    body = json.dumps(slow()).encode()
    limits = Limits(memory=3 * len(body), each_memory=len(body) + 10)

    async def story(room: Room) -> None:
        first = asyncio.create_task(room.infer(slow(), ANN, "busy"))
        while not room.door.held_of.get(0):
            await asyncio.sleep(0.001)
        second = await room.infer(slow(), ANN, "busy")
        assert (second.status, second.error) == (503, "too many bytes of requests are held")
        assert (await room.infer(slow(), BOB, "busy")).status == 200
        assert (await first).status == 200

    play(lambda: Room(file, keys=keys, limits=limits), story)


def test_keys_are_read_again_and_what_is_not_valid_changes_nothing(file: Path) -> None:
    keys = keys_file(file.parent, **BOTH)
    tenants = Tenants(keys)

    def owner(key: str) -> str:
        tenant = tenants.of(b"Bearer " + key.encode())
        return "" if tenant is None else tenant.name

    assert (owner(ANN), owner(BOB), owner("c" * 20)) == ("ann", "bob", "")
    keys_file(file.parent, cid=f'keys = ["{"c" * 20}"]', bob=f'keys = ["{ANN}"]')
    tenants.read()
    assert (owner(ANN), owner(BOB), owner("c" * 20)) == ("bob", "", "cid")
    assert tenants.names == ["ann", "bob", "cid"]
    keys.write_text("format = ")
    with pytest.raises(BadInput):
        tenants.read()
    assert owner(ANN) == "bob"


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"ann": 'keys = ["short"]'}, "key 1 is not 16 to 256 printable letters without spaces"),
        ({"ann": f'keys = ["{"x y" * 9}"]'}, "key 1 is not"),
        ({**BOTH, "bob": f'keys = ["{BOB}", "{ANN}"]'}, "key 2 is also one of 'ann'"),
        ({"ann": "keys = []"}, "it has no keys"),
        ({"ann": f'keys = ["{ANN}"]\nrate = -1'}, "its rate is -1"),
        ({"ann": f'keys = ["{ANN}"]\nrate = nan'}, "its rate is nan"),
        ({"ann": f'keys = ["{ANN}"]\nopen = -1'}, "its open is -1"),
        ({"ann": f'keys = ["{ANN}"]\nrates = 1'}, "unknown field `rates`"),
        ({'"a b"': f'keys = ["{ANN}"]'}, "its name is not a word"),
        ({}, "missing required field `tenants`"),
        ({"ann": f'keys = "{ANN}"'}, "Expected `array`"),
        ({"ann": f"keys = [{ANN}]"}, "it is not valid TOML"),
    ],
)
def test_a_file_of_keys_that_is_not_valid_is_named_and_no_key_is(
    tmp_path: Path, terms: dict[str, str], why: str
) -> None:
    path = keys_file(tmp_path, **terms)
    with pytest.raises(BadInput) as refusal:
        Tenants(path)
    assert str(path) in str(refusal.value)
    assert why in str(refusal.value)
    assert ANN not in str(refusal.value)


# ---------------------------------------------------------------------- asking again


def test_a_client_that_asks_again_gets_the_same_answer_and_nothing_runs_twice(file: Path) -> None:
    async def story(room: Room) -> None:
        same = {**ASK, "id": "one"}
        first, again = await room.infer(same), await room.infer(same)
        assert first.body == again.body
        assert len(room.batches()) == 1
        other = {"inputs": [{**ROW, "data": [9, 9, 9, 9]}], "id": "one"}
        assert (await room.infer(other)).json["outputs"][0]["data"] == [18.0] * 4
        await room.infer(ASK)
        await room.infer(ASK)
        assert len(room.batches()) == 4

    play(lambda: Room(file), story)


def test_one_that_asks_again_meanwhile_waits_for_the_same_answer(file: Path) -> None:
    """Also where the first connection is gone by then: the request goes on for the second."""

    async def story(room: Room) -> None:
        body = json.dumps(slow(id="late")).encode()
        _, gone = await asyncio.open_connection("127.0.0.1", room.port)
        gone.write(request("POST", "/v2/models/busy/infer", body))
        while not room.bench.plane.waiting:
            await asyncio.sleep(0.001)
        again = [asyncio.create_task(room.infer(slow(id="late"), model="busy")) for _ in "ab"]
        await asyncio.sleep(0.01)
        gone.close()
        a, b = await asyncio.gather(*again)
        assert (a.status, a.body) == (200, b.body)
        assert room.batches() == [(1, 1)]

    play(lambda: Room(file), story)


def test_after_the_last_client_is_gone_it_is_given_up(file: Path) -> None:
    busy(file.parent / "busy.onnx", 3000)  # it runs for longer than it takes to hear of that

    async def story(room: Room) -> None:
        head = request("POST", "/v2/models/busy/infer", json.dumps(slow(id="x")).encode())
        writers = [(await asyncio.open_connection("127.0.0.1", room.port))[1] for _ in "ab"]
        for writer in writers:
            writer.write(head)
        while not room.bench.plane.waiting:
            await asyncio.sleep(0.001)
        for writer in writers:
            writer.close()
        while room.bench.plane.waiting:
            await asyncio.sleep(0.001)
        assert [ticket.outputs for ticket in room.bench.seen.over] == [None]

    play(lambda: Room(file), story)


def test_each_that_waits_has_its_own_deadline(file: Path) -> None:
    async def story(room: Room) -> None:
        desk, model = room.desk, room.desk.code("busy")
        x = np.full((8, 256), 0.5, np.float32)
        given = Inference("d", {}, {"x": x}, [])
        outcomes: dict[str, Outcome] = {}

        def take(name: str, within: int) -> None:
            asked = desk.asked(model, given, room.tenants.all[0], lambda: b"same", within)
            desk.take(asked, partial(outcomes.__setitem__, name))

        take("patient", NEVER)
        take("hurried", 1)
        while "patient" not in outcomes:
            await asyncio.sleep(0.001)
        assert list(outcomes) == ["hurried", "patient"]
        assert str(outcomes["hurried"].refusal) == "the deadline has passed"
        assert outcomes["patient"].outputs is not None
        assert room.batches() == [(1, 1)]

    play(lambda: Room(file), story)


def test_what_is_refused_is_asked_anew(file: Path) -> None:
    async def story(room: Room) -> None:
        room.desk.ready = False
        assert (await room.infer({**ASK, "id": "one"})).status == 503
        room.desk.ready = True
        assert (await room.infer({**ASK, "id": "one"})).status == 200

    play(lambda: Room(file), story)


def test_nothing_is_kept_where_nothing_shall_be(file: Path) -> None:
    async def story(room: Room) -> None:
        for _ in range(2):
            await room.infer({**ASK, "id": "one"})
        assert len(room.batches()) == 2

    play(lambda: Room(file, terms=Terms(kept=0)), story)


def test_what_is_kept_is_bounded_by_bytes_and_by_time() -> None:
    now = [0.0]
    kept = Kept(100_000, lambda: now[0])

    def keep(tenant: int, name: str, values: int) -> None:
        whole = np.zeros(1_000_000, np.float32)
        case = Case()
        kept.begin((tenant, 0, name), b"d", case)
        case.outcome = Outcome([whole[:values]])
        kept.end((tenant, 0, name), case)

    def has(tenant: int, name: str) -> bool:
        case = kept.of((tenant, 0, name), b"d")
        if case is not None:  # the part of a batch does not hold the batch
            assert case.outcome.outputs[0].base is None
        return case is not None

    for at in range(100):
        keep(0, f"{at}", 1000)
        assert kept.size <= 100_000
    assert (has(0, "99"), has(0, "80"), has(0, "10")) == (True, True, False)
    keep(0, "large", 30_000)
    assert not has(0, "large")
    for at in range(100):  # another tenant drives out what is beyond the first one's part, no more
        keep(1, f"{at}", 1000)
    kept.sweep()
    assert kept.size <= 100_000
    assert (has(0, "99"), has(0, "90"), has(1, "99"), has(1, "80")) == (True, True, True, False)
    now[0] = SECONDS
    keep(1, "new", 1)
    kept.sweep()
    assert (has(0, "99"), has(1, "99"), has(1, "new")) == (False, False, True)
    now[0] = 3 * SECONDS
    kept.sweep()
    assert kept.size == 0


# ---------------------------------------------------------------------- traces


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    ],
)
def test_a_trace_that_is_not_valid_is_none(given: bytes) -> None:
    assert trace_of(given) is None


def test_a_trace_goes_on_with_a_span_of_its_own() -> None:
    for version in (b"00", b"cc"):
        more = b"" if version == b"00" else b"-what is to come"
        given = version + b"-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" + more
        first, second = trace_of(given), trace_of(given)
        assert first is not None
        assert second is not None
        assert first[:2] == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        assert len({first.span, second.span, first.parent}) == 3


def test_ids_of_calls_are_the_clients_or_made_up() -> None:
    ids = CallIds()
    assert ids.of(b"mine") == "mine"
    made = [ids.of(given) for given in (b"", b"x" * 129, b"a\x7fb", "é".encode())]
    assert len(set(made)) == 4
    assert all(each.startswith(made[0][:12]) for each in made)
