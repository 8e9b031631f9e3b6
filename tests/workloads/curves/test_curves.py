"""Curve tables: Ganger's own layout, public ones on hand-written samples, and formulas."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Space
from ganger.core.units import SECOND
from ganger.workloads.curves.parametric import Formula, Parametric, read_formula
from ganger.workloads.curves.reading import read_curves

OWN = """configuration,lr,optimizer,epoch,seconds,loss,acc
a,0.1,sgd,1,10,0.9,0.1
a,0.1,sgd,2,20,0.8,0.2
b,0.001,adam,2,5.5,0.7,0.3
b,0.001,adam,4,11,,
"""
_EPOCHS = ",".join(f"{name}_{at}" for name in ("val_accuracy", "time") for at in (1, 2, 3))
LCBENCH = f"""OpenML_task_id,config,batch_size,learning_rate,{_EPOCHS}
7,0,16,0.01,50.5,60,61,2,4,3.5
7,1,32,0.1,40,41,,1,2,3
8,0,16,0.01,10,20,30,1,2,3
"""
TASKSET = """config,learning_rate,l2,valid_loss_0,valid_loss_1,valid_loss_2
0,0.01,1e-5,0.7,0.6,0.5
1,9,1e-7,0.7,,
"""
TABULAR = """config,train_time_0,train_time_1,val_acc_0,val_acc_1,val_f1_0,val_f1_1
01,38.5,40,0.4,0.5,0.6,0.7
10,39,,0.8,,0.9,
"""
SPACES = {"hpobench": {"search_space": {"alpha": [0.1, 1.0], "depth": [2, 3]}}}


def written(folder: Path, text: str, name: str = "curves.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_our_own_table(tmp_path: Path) -> None:
    table = read_curves(written(tmp_path, OWN))
    assert (len(table), table.metrics) == (2, ("loss", "acc"))
    assert table.point(0) == {"lr": 0.1, "optimizer": "sgd"}
    assert table.curve(0) == (
        [1, 2],
        [10 * SECOND, 20 * SECOND],
        {"loss": [0.9, 0.8], "acc": [0.1, 0.2]},
    )
    broken = table.curve(1)
    assert broken.epochs == [2, 4]
    assert broken.values["loss"][0] == 0.7
    assert math.isnan(broken.values["loss"][1]), "an empty cell: it broke down"
    assert table.first(1) == (2.0, 5_500_000)
    space = table.space().parameters
    assert space["lr"] == Parameter(low=0.001, high=0.1, log=True)
    assert space["optimizer"] == Parameter(type="choice", values=("adam", "sgd"))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("b,0.001,adam,4", "a,0.001,adam,4", "rows of configuration 'a' stand apart"),
        ("sgd,2,20", "sgd,1,20", "line 3: epoch is not above the row before"),
        ("sgd,2,20", "sgd,2,9", "line 3: seconds is not above the row before"),
        ("a,0.1,sgd,2", "a,0.2,sgd,2", "lr of configuration 'a' changes"),
        ("0.8,0.2", "0.8,high", "line 3: acc"),
        ("0.8,0.2", "0.8,nan", "line 3: acc"),
        ("sgd,1,10", "sgd,1,-1", "line 2: seconds"),
        ("sgd,1,10", "sgd,0,10", "line 2: epoch"),
        ("seconds,loss,acc", "took,loss,acc", "not a curve table that Ganger reads"),
        ("epoch,seconds", "seconds,epoch", "the order of columns is another"),
        ("lr,optimizer", "lr,lr", "column 'lr' is listed twice"),
    ],
)
def test_a_wrong_cell_is_one_error(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_curves(written(tmp_path, OWN.replace(before, after, 1)))
    assert message in str(refused.value)


def test_a_table_without_metrics_is_refused(tmp_path: Path) -> None:
    text = "configuration,epoch,seconds\na,1,1\n"
    with pytest.raises(BadInput, match="it has no metric"):
        read_curves(written(tmp_path, text))


def test_lcbench_has_several_tasks_and_time_never_falls(tmp_path: Path) -> None:
    path = written(tmp_path, LCBENCH, "lcbench.csv.gz")
    table = read_curves(path, "7")
    assert (len(table), table.metrics) == (2, ("val_accuracy",))
    assert table.point(1) == {"batch_size": 32, "learning_rate": 0.1}
    assert table.curve(0).ends == [2 * SECOND, 4 * SECOND, 4 * SECOND + 1], "not two at one time"
    assert table.curve(0).values["val_accuracy"] == [50.5, 60.0, 61.0]
    assert math.isnan(table.curve(1).values["val_accuracy"][2])
    with pytest.raises(BadInput, match=r"which task\? \(the table has 7, 8\)"):
        read_curves(path)
    with pytest.raises(BadInput, match="there is no task '9'"):
        read_curves(path, "9")


def test_taskset_begins_before_training_and_has_no_times(tmp_path: Path) -> None:
    table = read_curves(written(tmp_path, TASKSET))
    assert table.curve(0) == ([1, 2], [SECOND, 2 * SECOND], {"valid_loss": [0.6, 0.5]})
    assert np.isnan(table.curve(1).values["valid_loss"]).all()
    with pytest.raises(BadInput, match="the table has one task"):
        read_curves(tmp_path / "curves.csv", "7")


def test_final_figures_are_trials_of_one_step(tmp_path: Path) -> None:
    path = written(tmp_path, TABULAR, "hpobench_x.csv")
    (tmp_path / "search_spaces.json").write_text(json.dumps(SPACES))
    table = read_curves(path)
    assert table.metrics == ("val_acc", "val_f1")
    assert [table.point(row) for row in range(2)] == [
        {"alpha": 0.1, "depth": 3},
        {"alpha": 1.0, "depth": 2},
    ]
    assert table.curve(1) == ([1], [39 * SECOND], {"val_acc": [0.8], "val_f1": [0.9]})
    second = read_curves(path, "1")
    assert len(second) == 1, "the other was never trained with this seed"
    assert second.curve(0).values == {"val_acc": [0.5], "val_f1": [0.7]}
    with pytest.raises(BadInput, match="there is no seed '2'"):
        read_curves(path, "2")
    (tmp_path / "search_spaces.json").write_text("{}")
    with pytest.raises(BadInput, match="does not say what the digits of hpobench stand for"):
        read_curves(path)


def test_what_follows_an_epoch_begins_anew(tmp_path: Path) -> None:
    curve = read_curves(written(tmp_path, OWN)).curve(0)
    assert curve.after(1.0) == ([2], [10 * SECOND], {"loss": [0.8], "acc": [0.2]})
    assert curve.after(0.5) == curve
    assert curve.after(2.0).epochs == []


SPACE = Space({"lr": Parameter(low=1e-4, high=1, log=True), "x": Parameter()})


def test_formulas_make_curves_that_fall_to_what_the_point_can_reach() -> None:
    exact = Parametric(Formula(epochs=50, noise=0.0, diverge=0.0), SPACE, 0)
    last = []
    for row in range(40):
        exact.add(SPACE.point(np.random.default_rng(row).random(2).tolist()))
        curve = exact.curve(row)
        loss = curve.values["loss"]
        assert loss == sorted(loss, reverse=True)
        assert 0.0 < loss[-1] < loss[0] < 1.0
        assert np.allclose(np.array(curve.values["accuracy"]), 1.0 - np.array(loss))
        assert curve.ends == sorted(set(curve.ends))
        last.append(loss[-1])
    assert max(last) > 1.5 * min(last), "points differ"


def test_the_same_point_and_seed_have_the_same_curve_whenever_they_come() -> None:
    formula = Formula(epochs=9)
    one, two, other = (Parametric(formula, SPACE, seed) for seed in (1, 1, 2))
    points = [SPACE.point([0.2, 0.4]), SPACE.point([0.9, 0.1])]
    rows = [one.add(point) for point in points]
    back = [two.add(point) for point in reversed(points)]
    assert one.curve(rows[0]) == two.curve(back[1])
    assert one.curve(rows[0]) != one.curve(rows[1])
    assert other.curve(other.add(points[0])) != one.curve(rows[0])


def test_noise_and_divergence_are_as_large_as_is_said() -> None:
    noisy = Parametric(Formula(epochs=40, noise=0.1, diverge=0.25, spread=0.0), SPACE, 0)
    exact = Parametric(Formula(epochs=40, noise=0.0, diverge=0.25, spread=0.0), SPACE, 0)
    rng, off, broke = np.random.default_rng(0), [], 0
    for _ in range(300):
        place = rng.random(2).tolist()
        ours, right = noisy.curve_at(place), exact.curve_at(place)
        loss = np.array(ours.values["loss"])
        broke += bool(np.isnan(loss).any())
        off += (np.log(loss) - np.log(right.values["loss"])).tolist()
        assert ours.ends[0] == 60 * SECOND, "no spread: all epochs take what is said"
    assert 0.18 < broke / 300 < 0.32
    assert float(np.nanstd(off)) == pytest.approx(0.1, rel=0.05)


def test_a_formula_is_read_and_what_it_cannot_be_is_refused() -> None:
    assert read_formula("parametric") == Formula()
    assert read_formula("parametric:epochs=27,noise=0.1") == Formula(epochs=27, noise=0.1)
    for text, message in (
        ("parametric:epoch=27", "'epoch=27' is not a setting"),
        ("parametric:noise", "'noise' is not a setting"),
        ("parametric:noise=much", "'noise=much' is not a setting"),
        ("parametric:epochs=0", "--curves: epochs: 0 is out of range"),
        ("parametric:epochs=1.5", "epochs: it is not a whole number"),
        ("parametric:epochs=nan", "epochs: it is not a whole number"),
        ("parametric:diverge=2", "diverge: 2 is out of range"),
        ("parametric:noise=nan", "noise: nan is out of range"),
    ):
        with pytest.raises(BadInput) as refused:
            read_formula(text)
        assert message in str(refused.value), text


@pytest.mark.traces
@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="GANGER_TRACES is not set")
def test_public_curve_data_is_read_as_its_readme_says() -> None:
    folder = Path(os.environ["GANGER_TRACES"])
    lcbench = read_curves(folder / "lcbench-surrogate" / "lcbench_surrogate_curves.csv.gz", "3945")
    assert (len(lcbench), len(lcbench.curve(0).epochs)) == (250, 52)
    for file in sorted((folder / "taskset-curves").glob("*.csv.gz")):
        taskset = read_curves(file)
        assert (len(taskset), len(taskset.curve(0).epochs)) == (1000, 50)
        broke = "LSTM128_avg" in file.name
        assert not broke or np.isnan(taskset.values["valid_loss"]).any(), "some diverged"
    tabular = read_curves(folder / "hpo-tabular" / "hpobench_car.csv.gz")
    assert (len(tabular), len(tabular.curve(0).epochs)) == (30000, 1)


def test_taskset_without_a_point_after_training_is_no_curve_table(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a curve table"):
        read_curves(written(tmp_path, "config,learning_rate,valid_loss_0\n0,0.01,0.7\n"))


def test_parameters_that_are_no_finite_numbers_are_texts(tmp_path: Path) -> None:
    for odd in ("nan", "inf", "1" + "0" * 400):
        table = read_curves(written(tmp_path, OWN.replace("b,0.001", f"b,{odd}")))
        assert table.parameters["lr"] == ["0.1", odd]
        assert table.space().parameters["lr"].type == "choice"


def test_what_digits_stand_for_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "search_spaces.json").write_text("[" * 100_000)
    with pytest.raises(BadInput, match="it does not say what the digits of hpobench stand for"):
        read_curves(written(tmp_path, TABULAR, "hpobench_x.csv"))
