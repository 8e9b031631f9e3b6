"""The table of windows is kept between runs: a run goes on from what the ones before have found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.serving.requests import requests
from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import ServingRun, Setup, serve
from ganger.lab.serving.windows.stored import StoredTable
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.test_windows import SHORTLY, TEXT

pytestmark = pytest.mark.long

SLO = SECOND // 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    path = tmp_path_factory.mktemp("kept") / "m.toml"
    path.write_text(TEXT)
    return read_models(str(path))


def log(names: tuple[str, str] = ("one", "two"), seed: int = 5, windows: int = 7) -> Requests:
    """Two models that are asked for alike, by two tenants; 4,800 requests a window."""
    mix = Mix(models=2, names=names, tenants=2, slo=SLO)
    return generated(constant(800), seed=seed, duration=6.0 * windows, mix=mix)


def run(
    models: Models, folder: Path, made: Requests, recipe: str = "serve.triton", **more: Any
) -> tuple[ServingRun, dict[str, Any]]:
    """By windows of six seconds, with the table in a folder."""
    setup = replace(Setup(windows=6 * SECOND, table=str(folder)), **more)
    found = serve(made, models, read_fleet("T4:4"), recipe, setup)
    assert found.windows is not None
    return found, found.windows


@pytest.fixture(scope="module")
def once(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run of two windows has left its table."""
    folder = tmp_path_factory.mktemp("once")
    run(models, folder, log(windows=2))
    return folder


@pytest.fixture
def kept(once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(once, tmp_path / "kept")


def test_the_next_run_reads_what_the_first_has_measured(models: Models, tmp_path: Path) -> None:
    """All but the first window; its figures are those of the table."""
    first, measured = run(models, tmp_path, log())
    again, known = run(models, tmp_path, log())
    assert measured["run"]["measured"] > 0
    assert known["run"] == {"after a change": 1}
    (before,), (after,) = measured["table"], known["table"]
    assert after["requests_known"] == before["requests_run"] > 0
    assert (before["requests_known"], after["requests_run"]) == (0, 0)
    for name in ("attainment", "latency_p50_seconds", "latency_p99_seconds_half_width"):
        assert after[name] == before[name], name
    for name, value in first.metrics.items():
        if value is not None:
            assert again.metrics[name] == pytest.approx(value, rel=0.02), name
    assert [row["tenant"] for row in again.classes] == [row["tenant"] for row in first.classes]
    assert [row["requests"] for row in again.classes] == pytest.approx(
        [row["requests"] for row in first.classes], rel=0.03
    )


def test_what_is_written_is_what_was_read(models: Models, tmp_path: Path) -> None:
    """A run that measures nothing new leaves the file as it is."""
    run(models, tmp_path, log())
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    run(models, tmp_path, log())
    assert path.read_bytes() == before


def test_names_count_and_not_the_order_in_which_a_log_has_them(
    models: Models, tmp_path: Path
) -> None:
    """In the other log the second model is the first that comes."""
    run(models, tmp_path, log())
    other, known = run(models, tmp_path, log(("two", "one"), seed=6), like=True)
    assert known["run"] == {"after a change": 1}
    whole = serve(log(("two", "one"), seed=6), models, read_fleet("T4:4"), "serve.triton", Setup())
    assert {row["model"]: row["requests"] for row in other.models} == pytest.approx(
        {row["model"]: row["requests"] for row in whole.models}, rel=0.03
    )
    assert other.metrics["latency_p50_seconds"] == pytest.approx(
        whole.metrics["latency_p50_seconds"], rel=0.05
    )


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("serve.triton(size=8)", {}),
        ("serve.triton", {"noise": 0.5}),
        ("serve.triton", {"seed": 1}),
        ("serve.triton", {"slo": 2 * SLO}),
        ("serve.triton", {"windows": 5 * SECOND}),
    ],
)
def test_what_holds_for_other_runs_is_not_read(
    models: Models, kept: Path, recipe: str, more: dict[str, Any]
) -> None:
    _, windows = run(models, kept, log(windows=2), recipe, **more)
    assert windows["run"]["measured"] > 0
    assert len([*kept.iterdir()]) == 2


def test_the_table_of_another_log_is_refused_unless_it_may_be_alike(
    models: Models, tmp_path: Path
) -> None:
    """A log that has gone on is the same log."""
    run(models, tmp_path, log(windows=3))
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="it is a table of another log") as refused:
        run(models, tmp_path, log(seed=6, windows=3))
    assert "--windows-like" in str(refused.value)
    assert path.read_bytes() == before
    _, longer = run(models, tmp_path, log(windows=4))
    assert longer["table"][0]["requests_known"] > 0
    _, alike = run(models, tmp_path, log(seed=6, windows=3), like=True)
    assert alike["table"][0]["requests_known"] > 0


def test_nor_is_what_holds_for_other_models(models: Models, kept: Path) -> None:
    one = models.models["one"]
    (latency,) = one.latency
    slower = replace(one, latency=(replace(latency, mean=latency.mean * 1.001),))
    changed = replace(models, models={**models.models, "one": slower})
    assert run(changed, kept, log(windows=2))[1]["run"]["measured"] > 0


def test_an_entry_that_has_not_converged_is_measured_on(models: Models, tmp_path: Path) -> None:
    """It needs 20,000 requests: the first log has 9,600 for it."""
    _, measured = run(models, tmp_path, log(windows=3))
    assert measured["read"] == 0
    _, windows = run(models, tmp_path, log(seed=7), like=True)
    (entry,) = windows["table"]
    assert entry["converged"]
    assert entry["requests_known"] == measured["table"][0]["requests_run"]
    assert entry["requests_run"] > 0
    assert windows["read"] > 0


def damaged(data: bytes, how: str) -> bytes:
    """A file that somebody broke."""
    if how == "text":
        return b"arrival,model\n0,one\n"
    if how == "short":
        return data[: len(data) // 2]
    table = msgspec.msgpack.decode(data, type=StoredTable)
    counts = table.entries[0].counts
    if how == "lanes":
        counts.busy = counts.busy[:-1]
    elif how == "models":
        counts.by_model = [row[:1] for row in counts.by_model]
    elif how == "bins":
        counts.latencies.bins = [-1, *counts.latencies.bins[1:]]
    elif how == "version":
        table.holds_for = "other"
    else:
        table.format = "ganger.windows/9"
    return msgspec.msgpack.encode(table)


@pytest.mark.parametrize(
    "how", ["text", "short", "lanes", "models", "bins", "version", "format"]
)  # fmt: skip
def test_a_damaged_table_is_one_error(models: Models, kept: Path, how: str) -> None:
    (path,) = kept.iterdir()
    path.write_bytes(damaged(path.read_bytes(), how))
    broken = path.read_bytes()
    with pytest.raises(BadInput) as refused:
        run(models, kept, log(windows=2))
    assert str(path) in str(refused.value)
    assert "delete it" in refused.value.mend
    assert path.read_bytes() == broken


def called(folder: Path, *words: str) -> Result:
    (folder / "m.toml").write_text(TEXT)
    rows = "".join(f"{at / 800:.5f},one\n" for at in range(24_500))
    (folder / "r.csv").write_text("arrival,model\n" + rows)
    given = ["simulate", str(folder / "r.csv"), "--models", str(folder / "m.toml"), *SHORTLY]
    return CliRunner().invoke(requests, [*given, "--fleet", "T4:4,T4:5", *words])


def test_the_command_keeps_a_table_for_each_run(tmp_path: Path) -> None:
    """In processes of their own; the output says what was known before."""
    words = ["--windows", "4s", "--windows-table", str(tmp_path / "new" / "tables")]
    for known in (0, 2):
        result = called(tmp_path, *words)
        assert result.exit_code == 0, result.output
        said = " ".join(result.output.split())
        assert said.count("requests of the table were run before") == known
    assert len([*(tmp_path / "new" / "tables").iterdir()]) == 2


def test_a_table_needs_windows_and_a_folder(tmp_path: Path) -> None:
    refused = called(tmp_path, "--windows-table", str(tmp_path / "tables")).exception
    assert isinstance(refused, BadInput)
    assert "there are no windows" in str(refused)
    (tmp_path / "file").write_text("x")
    result = called(tmp_path, "--windows", "4s", "--windows-table", str(tmp_path / "file" / "in"))
    assert isinstance(result.exception, BadInput)
    assert "cannot be made" in str(result.exception)
