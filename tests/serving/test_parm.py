"""ParM: what a parity model gives of a sum stands in for the answer that is late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ganger.core.errors import BadInput
from ganger.core.serving.world import Known
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import known_of, outputs_of
from ganger.recipes.registry import make_router
from ganger.workloads.models.reading import read_models
from serving.rig import Asked, Seen, lanes, model, play, table

RNG = np.random.default_rng(7)
INPUTS = RNG.normal(0, 1, (40, 6))
WEIGHTS, ADDED = RNG.normal(0, 1, (6, 4)), RNG.normal(0, 1, 4)
SCORES = INPUTS @ WEIGHTS + ADDED
SAYS = SCORES.argmax(1).tolist()


def sums(k: int) -> Any:
    """The parity model of a linear model is that model, with what it adds for each of k inputs."""
    return lambda inputs: (INPUTS[list(inputs)].sum(0) @ WEIGHTS + k * ADDED).tolist()


def models(k: int) -> list[Known]:
    return [
        model("m", table(10, 12, 14)),
        replace(model("p", table(10, 12, 14)), parity_of="m", parity_k=k),
    ]


def served(
    takes: Sequence[float], *asked: Asked, k: int = 2, count: int = 3, size: int = 1
) -> Seen:
    return play(
        make_router(f"parm(size={size})"),
        models(k),
        lanes(count),
        asked,
        takes=takes,
        says=[SAYS, None],
        scores=[SCORES.tolist(), None],
        sums={1: sums(k)},
    )


def test_the_answer_that_is_late_is_what_the_other_leaves_of_the_sum() -> None:
    """Two lanes run the model, one its parity model. The first lane takes ten times as long."""
    seen = served([100, 10, 12], Asked(0, input=3), Asked(0, input=8))
    assert seen.ended == [12, 10]
    assert seen.by == [0, 0]
    assert seen.said == [SAYS[3], -1]  # the second said so itself
    assert [(each.model, each.began) for each in seen.batches] == [(0, 0), (0, 0), (1, 0)]
    plain = make_router("serve.no-batch")
    asked = [Asked(0, input=3), Asked(0, input=8)]
    assert play(plain, models(2), lanes(3), asked, takes=[100, 10]).ended == [100, 10]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_of_a_linear_model_all_answers_that_are_decoded_are_those_that_were_lost(k: int) -> None:
    """Of each group the same member is late, by more than all others take."""
    decoded = 0
    for late in range(k):
        asked = [Asked(1000.0 * (at // k), input=(7 * at) % 40) for at in range(8 * k)]
        takes = [*(500 if at == late else 10 for at in range(k)), 20] * 8
        seen = served(takes, *asked, k=k, count=k + 1)
        for at, (said, end) in enumerate(zip(seen.said, seen.ended, strict=True)):
            assert end == asked[at].at + (20 if at % k == late else 10)
            assert said == (SAYS[(7 * at) % 40] if at % k == late else -1)
            decoded += said >= 0
    assert decoded == 8 * k


def test_two_that_are_late_are_waited_for() -> None:
    seen = served([100, 90, 10], Asked(0, input=3), Asked(0, input=8))
    assert seen.ended == [90, 90]  # the second came, and then there was one


def test_a_sum_that_nobody_needs_any_more_is_not_asked() -> None:
    """The lane for sums is busy with the first until both others have their answers."""
    asked = [Asked(0, input=1), Asked(0, input=2), Asked(11, input=3), Asked(11, input=4)]
    seen = served([10, 10, 60, 10, 10], *asked)
    assert seen.ended == [10, 10, 21, 21]
    assert [each.model for each in seen.batches].count(1) == 1


def test_requests_of_one_batch_are_in_different_groups() -> None:
    """Both of the first batch are late; each has its partner in the other batch."""
    seen = served([500, 20, 25], *[Asked(0, input=at) for at in range(4)], size=2)
    assert [each.tasks for each in seen.batches if not each.model] == [(0, 1), (2, 3)]
    assert seen.ended == [25, 25, 20, 20]
    assert seen.said == [*SAYS[:2], -1, -1]


def test_what_is_not_one_recorded_input_is_served_as_it_comes() -> None:
    """Of these only the second and the last are encoded, together."""
    asked = [Asked(0), Asked(0, input=2), Asked(20, input=1, items=2), Asked(20, input=3)]
    seen = served([10, 10, 100, 10, 10], *asked)
    assert seen.ended == [10, 10, 120, 30]
    assert seen.said == [-1] * 4


def test_without_a_parity_model_all_lanes_serve() -> None:
    seen = play(make_router("parm"), models(2)[:1], lanes(3), [Asked(0)] * 3)
    assert sorted(each.lane for each in seen.batches) == [0, 1, 2]


FILE = """
format = "ganger.models/1"
devices = [{name = "gpu"}]
[[models]]
name = "m"
predictions = "p.npz"
latency = [{device = "gpu", base = 0.01, each = 0.001, largest = 4}]
[[models]]
name = "p"
predictions = "p.npz"
parity = {of = "m", k = 2}
latency = [{device = "gpu", base = 0.01, each = 0.001, largest = 4}]
"""


def read(folder: Path, text: str = FILE, **more: Any) -> Any:
    """The file, with a hidden layer that gives each value and its negative."""
    arrays = {
        "labels": np.array(SAYS),
        "m": np.array(SAYS),
        "m.scores": SCORES,
        "inputs": INPUTS,
        "p.layer0": np.concatenate((np.hstack((np.eye(6), -np.eye(6))), np.zeros((1, 12)))),
        "p.layer1": np.concatenate((WEIGHTS, -WEIGHTS, 2 * ADDED[None])),
        **more,
    }
    np.savez(folder / "p.npz", **{key: each for key, each in arrays.items() if each is not None})
    (folder / "m.toml").write_text(text)
    return read_models(folder / "m.toml")


def test_a_parity_model_is_computed_from_its_layers(tmp_path: Path) -> None:
    found = read(tmp_path)
    known = [known_of(each, read_fleet("gpu:3")) for each in found.models.values()]
    assert [(each.parity_of, each.parity_k) for each in known] == [("", 0), ("m", 2)]
    parity = found.models["p"].parity
    for pair in ((3, 8), (0, 39), (5, 45)):  # inputs begin again with the first
        assert parity.scores(pair) == pytest.approx(sums(2)([at % 40 for at in pair]))
    asked = [Asked(0, input=3), Asked(0, input=8)]
    seen = play(make_router("parm"), known, lanes(3), asked, takes=[100, 10, 12], says=[SAYS, None],
                scores=[SCORES.tolist(), None], sums={1: parity.scores})  # fmt: skip
    assert seen.said == [SAYS[3], -1]
    assert outputs_of(found) is not None


@pytest.mark.parametrize(
    ("text", "arrays", "words"),
    [
        (FILE.replace('of = "m"', 'of = "x"'), {}, "there is no other model 'x'"),
        (FILE.replace('of = "m"', 'of = "p"'), {}, "there is no other model 'p'"),
        (FILE.replace("k = 2", "k = 1"), {}, "parity"),
        (FILE, {"inputs": None}, "p.npz: p.layer0: it has the shape (7, 12), and 0 numbers go in"),
        (FILE, {"inputs": INPUTS[:9]}, "p.npz: inputs: it has the shape (9, 6)"),
        (FILE, {"p.layer1": WEIGHTS}, "p.npz: p.layer1: it has the shape (6, 4), and 12 numbers"),
        (FILE, {"p.layer1": np.full((13, 4), np.nan)}, "p.npz: p.layer1"),
        (FILE, {"p.layer0": None, "p.layer1": None}, "it is not known what it gives"),
        (FILE, {"m.scores": None}, "its last layer gives 4 numbers, and 'm' has no scores"),
        (FILE, {"m.scores": SCORES[:, [0, 1, 2, 3, 3]]}, "gives 4 numbers, and 'm' has 5 scores"),
    ],
)
def test_a_parity_model_that_is_none_is_refused(
    text: str, arrays: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as error:
        read(tmp_path, text, **arrays)
    assert words in str(error.value)
