"""`ganger profile --fit`: a table of measured pairs becomes a profiles file that recipes go by."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.cli.lab.profile import profile
from ganger.core.errors import BadInput
from ganger.workloads.measured.pairs import read_pairs
from ganger.workloads.measured.speeds import read_profiles
from worlds import cluster, job, play

HEADER = "model,other,gpu_type,gpus,alone,beside,use_gpu\n"
ROWS = """\
calm,wild,V100,1,10,2.5,0.1
wild,calm,V100,1,4,1,0.1
calm,calm,V100,1,10,9.9,0.1
tame,,V100,1,7,,0.1
"""


def fit(folder: Path, text: str = HEADER + ROWS) -> tuple[Path, str]:
    """The profiles file, and what the command says."""
    source, output = folder / "pairs.csv", folder / "pairs.toml"
    source.write_text(text)
    run = CliRunner().invoke(profile, ["--fit", str(source), "-o", str(output)])
    if run.exception is not None:
        raise run.exception
    return output, run.stderr


def test_the_file_that_it_writes_says_what_was_measured(tmp_path: Path) -> None:
    output, says = fit(tmp_path)
    read = read_profiles(output).models
    assert read == read_pairs(tmp_path / "pairs.csv")
    assert read["calm"].measured is not None
    assert read["calm"].measured.part("wild", "V100", 1) == 0.25
    assert read["tame"].utilisation == {"gpu": 0.1}
    assert says.startswith("3 models and 3 measured pairs written to")
    assert "no slow-down at all: off by 50.3% of a step's time on average" in says


def test_a_recipe_that_predicts_goes_by_the_pairs_that_were_measured(tmp_path: Path) -> None:
    """Both use a tenth of the GPU, which says 1.01; side by side they took 4 times as long. So
    co-scheml keeps them apart, and lets two of the calm ones share."""
    known = read_profiles(fit(tmp_path)[0])
    for model, starts in (("wild", 10), ("calm", 1)):
        works = [job("first", 0, 10, model="calm"), job("second", 1, 10, model=model)]
        run = play("co-scheml", works, cluster(1, 1), profiles=known)
        assert run.started("second") == starts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "a,b,V100,1,10,5,0.5\n", "a was measured beside b, of which there is no row"),
        (HEADER + "a,a,V100,1,10,,0.5\n", "line 2: no speed `beside`"),
        (HEADER + "a,,V100,1,10,,0.5\na,,V100,1,11,,0.5\n", "line 3: a is stated differently"),
        (HEADER + "a,,V100,1,10,,0.5\na,,V100,2,9,,0.6\n", "line 3: a is stated differently"),
        (HEADER + "a,,V100,1,10,,1.5\n", "use_gpu: '1.5' is out of range"),
        (HEADER + "a,,V100,1,0,,0.5\n", "alone: '0' is out of range"),
        (HEADER + "a,,V100,1,10,,0.5\nb,,K80,1,9,,0.6\n", "not on those of V100"),
        ("model,beside\na,1\n", "alone"),
    ],
)
def test_rows_that_make_no_sense_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fit(tmp_path, text)


def test_models_beside_fit_and_neither_are_refused(tmp_path: Path) -> None:
    for given in (["--fit", "x.csv", "m.onnx"], []):
        with pytest.raises(BadInput, match=r"beside --fit|no models"):
            CliRunner().invoke(profile, given, catch_exceptions=False)
    with pytest.raises(BadInput, match="no such file"):
        read_pairs(tmp_path / "none.csv")


def test_measured_speeds_of_a_profiles_file_must_be_speeds(tmp_path: Path) -> None:
    for steps, message in (
        ("{V100 = {1 = -1.0}}", "measured.steps.V100.1"),
        ("{K80 = {1 = 1.0}}", "not on those of V100"),
    ):
        file = tmp_path / "p.toml"
        measured = f'measured = {{reference = "V100", steps = {steps}}}'
        file.write_text(f'format = "ganger.profiles/1"\n[models.a]\n{measured}\n')
        with pytest.raises(BadInput, match=message):
            read_profiles(file)
