"""Scenarios: read, refused in one sentence, merged, and run as the other commands would."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import NEVER
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.merging import asking, merged
from ganger.workloads.scenario.document import schema
from ganger.workloads.scenario.reading import is_scenario, read_scenario
from workloads.models.test_models import WRONG

EXAMPLES = Path(__file__).parents[3] / "examples" / "serving"
GOOD = """format = "ganger.scenario/1"
models = "models.toml"
fleets = ["T4:1"]
routers = ["serve.triton", "clockwork"]
faster = [1, 2]
slo = ["80ms"]
[[services]]
name = "a"
requests = "r.csv"
model = "resnet50"
[[services]]
name = "bert"
slo = "150ms"
generate = { kind = "spike", rate = 9, to = 30, at = "1s", width = "1s", duration = "3s" }
"""
ROWS = "arrival,model\n0,x\n0.5,y\n2.5,x\n"
BESIDE = """format = "ganger.scenario/1"
models = "models.toml"
cluster = "2x4xT4"
routers = ["clipper"]
[[services]]
name = "web"
model = "resnet50"
generate = { kind = "poisson", rate = 9, duration = "20s" }
[training]
trace = "trace.csv"
recipes = ["fifo", "las"]
scaling = "scale.reactive"
"""


def written(folder: Path, text: str, name: str = "s.toml") -> Path:
    for each in ("models.toml", "trace.csv"):
        (folder / each).write_bytes((EXAMPLES / each).read_bytes())
    (folder / "r.csv").write_text(ROWS)
    (folder / name).write_text(text)
    return folder / name


def run(folder: Path, text: str, *words: str) -> Result:
    path = written(folder, text)
    return CliRunner().invoke(simulate, [str(path), *words], env={"COLUMNS": "80"})


def printed(folder: Path, text: str, *words: str) -> Any:
    result = run(folder, text, "--json", *words)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_services_ask_for_their_models_with_their_slo(tmp_path: Path) -> None:
    found = read_scenario(written(tmp_path, GOOD)).requests()
    rows = found.gather()
    assert np.all(np.diff(rows.arrival) >= 0)
    names = [found.models[code] for code in rows.model.tolist()]
    assert set(names) == {"resnet50", "bert"}
    assert names.count("resnet50") == 3
    assert rows.deadline is not None
    slack = {
        name: int(due - at)
        for name, at, due in zip(names, rows.arrival, rows.deadline, strict=True)
        if due < NEVER
    }
    assert slack == {"bert": 150_000}
    assert is_scenario(tmp_path / "s.toml")
    assert not is_scenario(tmp_path / "models.toml")


def test_a_scenario_sweeps_what_it_lists_and_writes_what_it_came_from(tmp_path: Path) -> None:
    found = printed(tmp_path, GOOD, "--report", str(tmp_path / "r.html"))
    told = [(each["recipe"], each["faster"], each["slo_seconds"]) for each in found["runs"]]
    assert told == [
        (recipe, faster, 0.08) for faster in (1, 2) for recipe in ("serve.triton", "clockwork")
    ]
    assert len(found["bounds"]) == 2
    page = (tmp_path / "r.html").read_text()
    for name in ("s.toml", "models.toml", "r.csv"):
        assert f"{name} (SHA-256 " in page
    clustered = GOOD.replace('fleets = ["T4:1"]', 'cluster = "1x2xT4"')
    assert printed(tmp_path, clustered)["runs"][0]["fleet"] == "T4:2"


def test_services_beside_training_run_as_with_the_options(tmp_path: Path) -> None:
    found = printed(tmp_path, BESIDE)["runs"]
    assert [each["recipe"] for each in found] == ["fifo", "las"]
    assert found[0]["services"]["web"]["answered"] > 100
    one = BESIDE.replace(', "las"', "")
    printed(tmp_path, one, "--log", str(tmp_path / "day.log"))
    assert (tmp_path / "day.log").exists()


def test_replicas_that_take_long_to_come_answer_less_in_time(tmp_path: Path) -> None:
    """Nobody answers the first 5 of 20 seconds, in which requests come as evenly as ever."""
    text = BESIDE.replace(', "las"', "").replace("[[services]]", 'slo = ["1s"]\n[[services]]', 1)
    late = text.replace("[training]", '[training]\ncosts = { start = "5s" }')
    figures = [printed(tmp_path, each)["runs"][0]["services"]["web"] for each in (text, late)]
    assert figures[0]["attainment"] > 0.98
    missed = figures[1]["requests"] * (1 - figures[1]["attainment"])
    assert missed == pytest.approx(9 * 4, abs=12)  # who comes in the fifth second may wait


def test_what_a_loan_costs_is_as_the_scenario_says(tmp_path: Path) -> None:
    text = BESIDE.replace(', "las"', "").replace("[training]", '[training]\nsharing = ["aryl"]')
    pools = 'cluster = "1x4xT4@serving+1x4xT4"\nprices = { T4 = 0.5 }\nloans = { rate = 0.25 }'
    text = text.replace('cluster = "2x4xT4"', pools)
    found = printed(tmp_path, text)["runs"][0]["energy"]["reserve"]
    assert found["rate"] == 0.25
    assert 0 < found["held"] < found["cost"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('requests = "r.csv"', "", "service 'a': it needs `requests` or `generate`"),
        ('requests = "r.csv"', 'requests = "none.csv"', "none.csv"),
        ('name = "bert"', 'name = "a"', "services: 'a' is there twice"),
        ("rate = 9", "rte = 9", "generate"),
        ("rate = 9, ", "", "service 'bert': generate: rate: it is needed"),
        ('at = "1s"', 'at = "soon"', "service 'bert': generate: at: 'soon'"),
        ('kind = "spike"', 'kind = "step"', "generate: width: it means nothing for step"),
        ('duration = "3s"', "zipf = 1", "generate"),
        ('slo = "150ms"', 'slo = "0s"', "service 'bert': slo: nothing is answered in no time"),
        ('slo = ["80ms"]', 'slo = ["x"]', "slo: 'x'"),
        ('slo = ["80ms"]', 'slo = "80ms"', "slo: Expected `array`, got `str` (give a list"),
        ('fleets = ["T4:1"]', "", "fleets: where are requests answered?"),
        ('fleets = ["T4:1"]', 'fleets = ["T4"]', "'T4' is not a part of a fleet"),
        ('"serve.triton"', '"fifo"', "fifo decides over jobs"),
        ('"serve.triton", "clockwork"', "", "routers"),
        ("faster = [1, 2]", "faster = [0]", "faster"),
        ('"models.toml"', '"papres"', "papres"),
        ("ganger.scenario/1", "ganger.scenario/2", "newer than this Ganger reads"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    assert old in GOOD
    error = run(tmp_path, GOOD.replace(old, new, 1)).exception
    assert isinstance(error, BadInput), error
    assert says in str(error)
    assert error.mend
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('trace = "trace.csv"', 'window = "soon"\ntrace = "trace.csv"', "training: window"),
        ("[training]", "[training]\ncosts = { start = 'soon' }", "training: costs: start: 'soon'"),
        ('cluster = "2x4xT4"', "", "cluster: what is beside training runs on a cluster"),
        ('["clipper"]', '["clipper", "nanily"]', "routers: beside training there is one"),
        ('["clipper"]', '["clipper"]\nfaster = [2]', "faster: it means nothing beside training"),
        ("[training]", "[loans]\nrate = 0.5\n[training]", "loans: nothing is lent here"),
        ("[training]", "[loans]\nrate = 1.5\n[training]", "loans.rate: it is more than 1"),
        ('trace = "trace.csv"', 'trace = "none.csv"', "none.csv"),
        ('"scale.reactive"', '"scale.reactve"', "no recipe 'scale.reactve'"),
    ],
)
def test_what_is_wrong_beside_training(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in BESIDE
    error = run(tmp_path, BESIDE.replace(old, new, 1)).exception
    assert isinstance(error, BadInput), error
    assert says in str(error)


def test_what_nobody_could_wait_for_is_refused_at_once(tmp_path: Path) -> None:
    fleets = ", ".join(f'"T4:{count}"' for count in range(1, 5002))
    error = run(tmp_path, GOOD.replace('"T4:1"', fleets)).exception
    assert isinstance(error, BadInput)
    assert "2 recipes, 5,001 fleets, 2 loads make 20,004 runs (at most 10,000" in str(error)
    nodes = run(tmp_path, BESIDE.replace("2x4xT4", "50001x1xT4"), "--workers", "1").exception
    assert isinstance(nodes, BadInput)
    assert str(nodes) == "cluster: 50,001 nodes (simulate at most 50,000)"


def test_options_that_the_file_says_are_refused(tmp_path: Path) -> None:
    for words in (["--recipe", "las"], ["--cluster", "1x1xT4"], ["--slo", "1s"]):
        error = run(tmp_path, GOOD, *words).exception
        assert isinstance(error, BadInput)
        assert f"{words[0]}: a scenario says it" in str(error)
    assert "--why: it is about jobs" in str(run(tmp_path, GOOD, "--why").exception)
    assert "TRACE: which file?" in str(CliRunner().invoke(simulate, []).exception)


@pytest.mark.parametrize("name", ["s.toml", "s.json", "s.yaml"])
def test_a_damaged_scenario_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    """A hundred damages to each dress: text is put in somewhere, or a stretch is cut out."""
    plain = tomllib.loads(GOOD)
    text = {"s.toml": GOOD, "s.json": json.dumps(plain), "s.yaml": yaml.safe_dump(plain)}[name]
    rng = np.random.default_rng(len(text))
    refused: list[BadInput] = []
    written(tmp_path, text, name)
    for _ in range(100):
        at, cut = int(rng.integers(0, len(text))), int(rng.integers(0, 6))
        damaged = text[:at] + str(rng.choice(WRONG)) + text[at + cut :]
        (tmp_path / name).write_text(damaged)
        try:
            read_scenario(tmp_path / name)
        except BadInput as error:
            refused.append(error)
    assert len(refused) > 50
    assert all(error.mend and "\n" not in str(error) for error in refused)


def test_the_schema_names_every_field() -> None:
    shown = json.loads(CliRunner().invoke(simulate, ["--schema"]).stdout)
    assert shown == json.loads(json.dumps(schema()))
    assert shown["$defs"]["Document"]["properties"]["format"] == {"const": "ganger.scenario/1"}
    assert {"services", "routers", "training"} <= set(shown["$defs"]["Document"]["properties"])


def stream(arrivals: list[int], model: str) -> Requests:
    rows = Chunk(np.array(sorted(arrivals), np.int64), np.zeros(len(arrivals), np.int32))
    return Requests.of(rows, Names([model]))


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=20), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_merged_streams_are_all_their_requests_in_order(each: list[list[int]], rows: int) -> None:
    whole = merged([stream(some, f"m{at % 2}") for at, some in enumerate(each)])
    found = [
        (int(when), whole.models[code])
        for chunk in whole.chunks(rows)
        for when, code in zip(chunk.arrival, chunk.model.tolist(), strict=True)
    ]
    want = [(when, at, f"m{at % 2}") for at, some in enumerate(each) for when in sorted(some)]
    assert found == [(when, model) for when, _, model in sorted(want)]


def test_an_slo_is_for_those_without_a_deadline() -> None:
    rows = Chunk(np.array([0, 5]), np.zeros(2, np.int32), deadline=np.array([9, NEVER]))
    found = asking(Requests.of(rows, Names(["m"])), model="n", slo=7)
    chunk = found.gather()
    assert chunk.deadline is not None
    assert chunk.deadline.tolist() == [9, 12]
    assert found.models[int(chunk.model[0])] == "n"


def test_the_examples_are_read() -> None:
    for name in ("scenario.toml", "day.toml"):
        assert sum(map(len, read_scenario(EXAMPLES / name).requests().chunks())) > 3000


def test_services_are_run_by_the_windows_that_they_report(tmp_path: Path) -> None:
    text = BESIDE.replace('cluster = "2x4xT4"', 'cluster = "2x4xT4"\nwindows = "1m"')
    error = run(tmp_path, text.replace("[training]", '[training]\nwindow = "10s"')).exception
    assert isinstance(error, BadInput), error
    assert "windows: services are run by the windows that they report" in str(error)
    assert printed(tmp_path, text)["runs"][0]["services"]["web"]["windows"]["seconds"] == 60
