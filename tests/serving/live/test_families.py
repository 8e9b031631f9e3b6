"""Families: a recipe chooses which of its models answers, and learns from what was right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ganger.core.errors import BadInput
from ganger.lab.serving.live import Machine, prepared
from ganger.serving.runtime import Failure
from ganger.serving.tickets import UNKNOWN, Classes
from ganger.serving.truths import SECONDS, Truths
from ganger.workloads.models.reading import read_models
from serving.live.nets import copies, looks_up, models_file, times
from serving.live.room import Room, keys_file, play
from serving.live.server import Answer

X = [3.0, 1.0, 2.0, 0.0]
"""Class 0, as `good` has it; `bad` gives class 3."""
ANN, BOB = "a" * 20, "b" * 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    times(tmp_path / "good.onnx", 1)
    times(tmp_path / "bad.onnx", -1)
    return models_file(tmp_path, ["bad", "good"], family="both", accuracy=0.9)


def ask(**more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": X}], **more}


async def feed_back(room: Room, id_: Any, label: Any, key: str = "", model: str = "both") -> Answer:
    head = {"authorization": f"Bearer {key}"} if key else {}
    body = json.dumps({"id": id_, "label": label}).encode()
    return await room.ask("POST", f"/v2/models/{model}/feedback", body, head)


async def by(room: Room, id_: str) -> str:
    """The model that answers."""
    answer = (await room.infer(ask(id=id_), model="both")).json
    sign = 1 if answer["parameters"]["model"] == "good" else -1
    assert answer["model_name"] == "both"
    assert answer["outputs"][0]["data"] == [sign * each for each in X]
    return str(answer["parameters"]["model"])


def test_one_that_draws_learns_from_feedback_which_model_is_right(file: Path) -> None:
    """Without feedback both answer for ever; with it the one that errs is hardly drawn any more."""

    async def story(room: Room) -> None:
        names = [await by(room, f"before {at}") for at in range(60)]
        assert min(map(names.count, ("good", "bad"))) > 10
        for at in range(60):
            answer = await feed_back(room, f"before {at}", 0)
            expected = {"model_name": "both", "id": f"before {at}", "right": names[at] == "good"}
            assert answer.json == expected
        names = [await by(room, f"after {at}") for at in range(60)]
        assert names.count("good") >= 57
        both = room.figures.models[room.desk.code("both")]
        assert (both.labelled, sum(both.by.values())) == (60, 120)
        good, bad = (room.figures.models[room.desk.code(name)] for name in ("good", "bad"))
        assert good.labelled == good.correct == both.correct > 10
        assert (bad.labelled, bad.correct) == (60 - good.labelled, 0)
        metrics = (await room.ask("GET", "/metrics")).body.decode()
        assert f'ganger_serve_correct_total{{model="both"}} {both.correct}.0' in metrics
        assert 'ganger_serve_family_answers_total{family="both",model="good"}' in metrics

    play(lambda: Room(file, "clipper(rate=0.5)"), story)


def test_of_all_that_vote_the_right_ones_come_to_count(file: Path) -> None:
    """At first the votes are even, and the lower class wins; the truth makes the other's heavier.
    Where neither has enough of the weight, the answer says the class that stands for that."""

    async def story(room: Room) -> None:
        answer = (await room.infer(ask(id="1"), model="both")).json
        assert answer["parameters"] == {"model": "good"}
        for at in range(2, 9):
            assert (await feed_back(room, f"{at - 1}", 3)).status == 200
            answer = (await room.infer(ask(id=f"{at}"), model="both")).json
        assert answer["parameters"] == {"model": "bad"}
        assert [model for model, _ in room.batches()].count(0) == 8

    play(lambda: Room(file, "clipper(selection=exp4,rate=1)"), story)

    async def unsure(room: Room) -> None:
        answer = (await room.infer(ask(id="1"), model="both")).json
        assert answer["parameters"]["class"] == 2
        assert (await feed_back(room, "1", 2)).json["right"] is True

    play(lambda: Room(file, "clipper(selection=exp4,agree=0.9,otherwise=2)"), unsure)


def test_the_truth_is_heard_once_and_of_what_was_answered(file: Path) -> None:
    async def story(room: Room) -> None:
        await by(room, "1")
        for wrong, status in [
            (("2", 0), 404),
            (("1", "cat"), 400),
            (("1", -1), 400),
            (("1", 0.5), 400),
            (("1", True), 400),
            ((1, 1), 400),
            (("1", None), 400),
        ]:
            answer = await feed_back(room, *wrong)
            assert (answer.status, "Traceback" in answer.error) == (status, False), wrong
        assert (await feed_back(room, "1", 0, model="good")).status == 404
        assert (await feed_back(room, "1", 0)).status == 200
        again = await feed_back(room, "1", 0)
        assert (again.status, "without a label" in again.error) == (404, True)
        await room.infer(ask(id="plain"), model="good")
        assert (await feed_back(room, "plain", 0, model="good")).json["right"] is True
        assert (await room.ask("GET", "/v2/models/both/feedback")).status == 405
        assert (await room.ask("POST", "/v2/models/no/feedback")).status == 404
        garbage = await room.ask("POST", "/v2/models/both/feedback", b"\xff[")
        assert garbage.status == 400

    play(lambda: Room(file, "clipper"), story)


def test_nobody_says_what_was_right_of_another_tenants_answer(file: Path) -> None:
    both = {"ann": f'keys = ["{ANN}"]', "bob": f'keys = ["{BOB}"]'}

    async def story(room: Room) -> None:
        await room.infer(ask(id="1"), ANN, "both")
        assert (await feed_back(room, "1", 0)).status == 401
        assert (await feed_back(room, "1", 0, BOB)).status == 404
        assert (await feed_back(room, "1", 0, ANN)).status == 200

    play(lambda: Room(file, "clipper", keys=keys_file(file.parent, **both)), story)


def test_a_recipe_that_switches_serves_a_family(file: Path) -> None:
    async def story(room: Room) -> None:
        assert (await by(room, "1")) in ("good", "bad")
        assert (await room.ask("GET", "/v2/models/both")).json["platform"] == "ganger_family"
        assert (await room.ask("GET", "/v2/models/both/ready")).status == 200

    play(lambda: Room(file, "model-switching"), story)


def test_words_are_classes_too(tmp_path: Path) -> None:
    copies(tmp_path / "a.onnx", TensorProto.STRING)
    copies(tmp_path / "b.onnx", TensorProto.STRING)
    file = models_file(tmp_path, ["a", "b"], family="both")

    async def story(room: Room) -> None:
        row = {"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": ["cat", "dog"]}
        for id_, label, right in (("1", "cat", True), ("2", "cow", False)):
            await room.infer({"inputs": [row], "id": id_}, model="both")
            assert (await feed_back(room, id_, label)).json["right"] is right
        await room.infer({"inputs": [row], "id": "3"}, model="both")
        assert (await feed_back(room, "3", 1)).status == 400

    play(lambda: Room(file, "clipper"), story)


def test_where_one_model_of_a_vote_fails_the_other_answers(tmp_path: Path) -> None:
    looks_up(tmp_path / "a.onnx")
    looks_up(tmp_path / "b.onnx")
    file = models_file(tmp_path, ["a", "b"], family="both")

    async def story(room: Room) -> None:
        row = {"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}
        failed = await room.infer({"inputs": [row]}, model="both")
        assert (failed.status, "failed" in failed.error) == (500, True)
        fine = {**row, "data": [1]}
        assert (await room.infer({"inputs": [fine]}, model="both")).status == 200

    play(lambda: Room(file, "clipper(selection=exp4)"), story)


@pytest.mark.parametrize(
    ("answer", "class_"),
    [
        (np.array([[0.1, 0.7, 0.2], [1, 0, 0]]), 1),
        (np.array([0.1, 0.7, 0.2]), 1),
        (np.array([4, 5]), 4),
        (np.array([True]), 1),
        (np.array([-3]), UNKNOWN),
        (np.array([0.3]), UNKNOWN),
        (np.array([], np.float32), UNKNOWN),
    ],
)
def test_classes(answer: Any, class_: int) -> None:
    assert Classes().of([answer]) == class_


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        (np.array([[1.5, 0.5], [0, 9]], np.float32), [1.5, 0.5]),
        (np.array([1.5, 0.5], np.float32), [1.5, 0.5]),
        (np.array([[3]], np.int64), ()),
        (np.array([7.0], np.float32), ()),
        (np.array([], np.float32), ()),
    ],
)
def test_scores_are_what_the_first_item_was_given_for_every_class(answer: Any, scores: Any) -> None:
    assert Classes().scores([answer]) == scores
    assert Classes().scores(Failure("it did not run")) == ()


def test_a_slow_model_answers_where_a_quick_one_is_not_sure(file: Path, tmp_path: Path) -> None:
    """`bad` is the quick one. As recorded it is right where its class is far above the others."""
    sure, unsure = [0.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    np.savez(
        tmp_path / "p.npz",
        labels=np.array([2] * 400 + [0] * 400),
        bad=np.array([2] * 400 + [3] * 400),
        good=np.array([2] * 400 + [0] * 400),
        **{"bad.scores": np.array([sure] * 400 + [unsure] * 400)},  # type: ignore[arg-type]
    )
    text = file.read_text().replace("accuracy = 0.9", 'predictions = "p.npz"')
    before, name, after = text.partition('name = "good"')
    file.write_text(before + name + after.replace("base = 0.0005", "base = 0.02"))

    async def answered_by(room: Room, values: list[float]) -> str:
        asked = ask()
        asked["inputs"][0]["data"] = values
        answer = (await room.infer(asked, model="both")).json
        return str(answer["parameters"]["model"])

    async def story(room: Room) -> None:
        assert await answered_by(room, X) == "good"  # -3, -1, -2, 0: 3 is above 1 by 1
        assert await answered_by(room, [9, 9, 0, 9]) == "bad"
        figures = room.figures.models[room.desk.code("both")]
        assert sum(figures.by.values()) == 2

    play(lambda: Room(file, "tolerance-tiers(tolerance=0.01,aim=cost)"), story)


def test_what_is_remembered_is_bounded_by_number_and_by_time() -> None:
    now = [0.0]
    truths = Truths(lambda: now[0], 10)
    for at in range(100):
        truths.keep((0, 0, f"{at}"), {0: 1}, 1)
    assert len(truths) == 10
    for at in range(100):
        truths.keep((1, 0, f"{at}"), {0: 1}, 1)
    truths.sweep()
    assert len(truths) == 10
    assert truths.take((0, 0, "99")) is not None
    assert truths.take((0, 0, "99")) is None
    now[0] = SECONDS + 1
    truths.sweep()
    assert len(truths) == 0


def test_models_of_a_family_take_and_give_the_same(tmp_path: Path) -> None:
    times(tmp_path / "a.onnx", 1)
    times(tmp_path / "b.onnx", 1, ("n", 5))
    file = models_file(tmp_path, ["a", "b"], family="both")
    with pytest.raises(BadInput, match="family 'both': models 'a' and 'b' have other inputs"):
        prepared(read_models(file), "clipper", Machine())
    served = prepared(read_models(file), "nexus", Machine())
    assert served.notes == [
        "nexus does not choose among the models of both: each is served by its own name"
    ]


def test_what_a_recipe_misses_of_a_family_is_said_before_it_serves(tmp_path: Path) -> None:
    times(tmp_path / "a.onnx", 1)
    times(tmp_path / "b.onnx", 2)
    file = models_file(tmp_path, ["a", "b"], family="both")
    with pytest.raises(BadInput, match="both: the accuracy of model 'a' is not known"):
        prepared(read_models(file), "model-switching", Machine())
