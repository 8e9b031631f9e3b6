"""Other people's profiles: what is taken from each, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ganger.cli.main import cli, main
from ganger.core.errors import BadInput
from ganger.core.profiles import Profile
from ganger.core.spec import Locality, NodeSpec
from ganger.workloads.clusters import KNOWN_GPUS, load_cluster
from ganger.workloads.measured.speeds import read_profiles
from workloads.measured import (
    GAVEL,
    POWER,
    TRAIN,
    hiest,
    machines,
    pollux,
    synergy,
    written,
    zeus,
)

ROOT = Path(os.environ.get("GANGER_TRACES", ""))
real = [
    pytest.mark.traces,
    pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="GANGER_TRACES is not set"),
]


# ---------------------------------------------------------------------- what is taken


@pytest.mark.parametrize("name", ["speeds.json", "speeds.json.gz", "speeds", "cluster.toml.bak"])
def test_a_file_is_known_by_what_it_holds(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert read_profiles(written(path, GAVEL)).of("A3C").measured
    assert read_profiles(written(path, synergy())).of("gnmt").sensitivity
    assert read_profiles(written(path, hiest())).of("a (batch size 4)").scaling


def test_a_folder_is_known_by_what_it_holds(tmp_path: Path) -> None:
    assert read_profiles(pollux(tmp_path / "some")).of("toy").goodput
    assert read_profiles(zeus(tmp_path / "other")).of("ds2 (batch size 8)").convergence


def test_gavels_gangs_are_slower_apart_and_fail_where_nothing_was_measured(tmp_path: Path) -> None:
    models = read_profiles(written(tmp_path / "t.json", GAVEL)).models
    lm = models["LM (batch size 5)"]
    assert lm.rate("K80", 1.0, 1, 1, Locality.NODE) == pytest.approx(0.2)
    assert lm.rate("V100", 1.0, 2, 2, Locality.NODE) == 1.0
    assert lm.rate("V100", 1.0, 2, 2, Locality.RACK) == 0.5
    assert not models["A3C"].runs_on("K80", 1)


def test_hiests_sockets_scaling_and_neighbours(tmp_path: Path) -> None:
    """Three GPUs are on both sockets: 3 x 100 / 240, but for sockets 1.5 times as much. The pair
    `a` beside `a` was no slower than alone, 0.03 and 999 beside 40 alone are slips."""
    models = read_profiles(written(tmp_path / "t.json", hiest())).models
    a, b = models["a (batch size 4)"], models["b (batch size 4)"]
    assert a.locality == (1.0, 1.5, 1.5, 1.5)
    assert a.scaling == pytest.approx((1.0, 200 / 120, 1.25 * 1.5))
    assert a.rate("P100", 1.0, 3, 1, Locality.NODE) == pytest.approx(1.25), "as measured"
    assert a.disturbed == {"b (batch size 4)": 2.0}
    assert b == Profile(), "faster apart, and never alone on one GPU"


def test_hiests_profiles_without_neighbours(tmp_path: Path) -> None:
    given = hiest()
    del given["collocation"]
    models = read_profiles(written(tmp_path / "t.json", given)).models
    assert models["a (batch size 4)"].disturbed == {}


def test_zeus_runs_become_a_curve_of_the_best_optimizer(tmp_path: Path) -> None:
    """Of adam's three runs two reach 85 %, at the median in epoch 9; sgd gets less far."""
    bert = read_profiles(zeus(tmp_path)).of("bert on squad (batch size 32)")
    told = bert.convergence
    assert told is not None
    assert (told.metric, told.epochs, told.values) == ("accuracy", (4.0, 9.0), (0.8, 0.85))
    assert (told.target, told.length()) == (0.85, 9)
    assert told.seconds == 100, "of adam, at the highest power limit"
    assert bert.by_type == {"V100": 1.0, "A40": 0.5}
    assert bert.watts == {"V100": 240, "A40": 240}, "of adam, too; sgd takes 200"


def test_zeus_error_rates_fall(tmp_path: Path) -> None:
    told = read_profiles(zeus(tmp_path)).of("ds2 (batch size 8)").convergence
    assert told is not None
    assert (told.metric, told.epochs, told.values) == ("loss", (1.0, 2.0, 6.0), (0.6, 0.5, 0.4))
    assert told.length() == 6


def test_zeus_network_that_gets_nowhere_still_has_speeds(tmp_path: Path) -> None:
    bert = read_profiles(zeus(tmp_path)).of("bert on imdb (batch size 8)")
    assert bert == Profile(by_type={"V100": 1.0, "A40": 0.5}, watts={"V100": 240, "A40": 240})


def test_hiests_machines_are_a_cluster(tmp_path: Path) -> None:
    spec = load_cluster(written(tmp_path / "infra.json", machines()))
    assert spec.nodes == (NodeSpec(2, 4, "P100", 12000, 512 * 1024, island=2),)
    assert spec.gpu_types == (KNOWN_GPUS["P100"],)
    even = load_cluster(written(tmp_path / "infra.json", machines(5, 5, mem_per_gpu=[12, 12])))
    assert [(node.count, node.island, node.gpu_type) for node in even.nodes] == [
        (1, 4, "P100"),
        (1, 4, "P100-12GB"),
    ]
    assert even.gpu_types[1].memory == 12 * 1024


# ---------------------------------------------------------------------- as a user would

JOBS = {
    "gavel": "LM (batch size 5)",
    "synergy": "gnmt",
    "hiest": "a (batch size 4)",
    "zeus": "bert on squad (batch size 32)",
}


def simulated(tmp_path: Path, model: str, where: str, *more: str) -> float:
    """The mean JCT of two jobs of 100 s on two GPUs, the other of a model of HiEST's."""
    rows = "".join(
        f'0,100,{gpus},"{name}"\n' for gpus, name in ((2, model), (2, "b (batch size 4)"))
    )
    (tmp_path / "jobs.csv").write_text("submitted,duration,gpus,model\n" + rows)
    result = CliRunner().invoke(
        cli, ["simulate", str(tmp_path / "jobs.csv"), "--cluster", where, "--json", *more]
    )
    assert result.exit_code == 0, result.output
    jct = json.loads(result.stdout)["runs"][0]["metrics"]["jct_mean_seconds"]
    return float(jct)


@pytest.mark.parametrize(
    ("source", "where", "expected"),
    [
        ("gavel", "4x1xV100", 150.0),  # the LM over two nodes: half as fast
        ("hiest", "1x4xP100", 125.0),  # half as fast beside the other, 100 s long
        ("zeus", "1x4xA40", 150.0),  # half as fast there; the other is not known
    ],
)
def test_a_profile_matters(tmp_path: Path, source: str, where: str, expected: float) -> None:
    path = tmp_path / "profiles"
    given = (
        zeus(path)
        if source == "zeus"
        else written(path, {"gavel": GAVEL, "hiest": hiest()}[source])
    )
    plain = simulated(tmp_path, JOBS[source], where)
    assert plain == pytest.approx(100.0)
    told = simulated(tmp_path, JOBS[source], where, "--profiles", str(given))
    assert told == pytest.approx(expected)


def test_a_sensitivity_matters(tmp_path: Path) -> None:
    """Two cores a GPU where three are needed; the other job needs none."""
    cluster = tmp_path / "c.toml"
    cluster.write_text(
        'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 4\ngpu_type = "V100"\ncpus = 8\n'
        'memory = "500GiB"\n'
    )
    told = written(tmp_path / "t.json", synergy())
    assert simulated(tmp_path, "gnmt", str(cluster), "--profiles", str(told)) == pytest.approx(150)


def test_a_gavel_trace_has_its_durations_from_the_profiles(tmp_path: Path) -> None:
    """180 steps at 18 a second; without profiles that say so it asks for them."""
    trace, table = tmp_path / "t.trace", written(tmp_path / "t.json", GAVEL)
    trace.write_text("LM (batch size 5)\trun\t--steps\t1\t180\t0\t2\n")
    words = ["simulate", str(trace), "--cluster", "1x2xV100", "--json"]
    result = CliRunner().invoke(cli, [*words, "--profiles", str(table)])
    assert json.loads(result.stdout)["runs"][0]["metrics"]["jct_mean_seconds"] == 10.0
    for more in ([], ["--profiles", "published"]):
        result = CliRunner().invoke(cli, [*words, *more])
        assert isinstance(result.exception, BadInput)
        assert "throughputs=FILE" in str(result.exception)


def test_profiles_of_other_models_are_noted(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submitted,duration,gpus,model\n0,100,1,vgg\n0,9,1,\n")
    words = ["simulate", str(tmp_path / "jobs.csv"), "--cluster", "1x2xV100", "--profiles"]
    for given, noted in ((synergy(), True), (synergy() | {"vgg_1": synergy()["gnmt_1"]}, False)):
        result = CliRunner().invoke(cli, [*words, str(written(tmp_path / "t.json", given))])
        assert result.exit_code == 0
        assert ("it has '', 'vgg', ..., the profiles 'gnmt'" in result.stderr) is noted


# ---------------------------------------------------------------------- what is refused

Change = Callable[[Any], Any]


def put(*place: Any) -> Change:
    """Put the last of `place` where the others lead."""

    def change(given: Any) -> Any:
        given, at = deepcopy(given), given
        at = given
        for key in place[:-2]:
            at = at[key]
        at[place[-2]] = place[-1]
        return given

    return change


LM, ONE = "('LM (batch size 5)', 1)", ("solo", "a", "4", "num_gpus", "1")
TWO = ("collocation", "a", "4", "num_gpus", "2", "b", "4", "num_gpus", "2")
TPUT = ("gnmt_1", "cpus_per_gpu_4", "tput")
WRONG: list[tuple[Any, Change, str]] = [
    (GAVEL, put("v100", LM, "null", -1), f"v100: {LM}: -1"),
    (GAVEL, put("v100", LM, "null", "10"), f"v100: {LM}: '10'"),
    (GAVEL, put("v100", LM, "null", 1e300), f"v100: {LM}: 1e+300"),
    (GAVEL, put("v100", LM, {}), f"v100: {LM}: it is empty"),
    (GAVEL, put("k80", {}), "k80: it is empty"),
    (GAVEL, put("k80", [1]), "k80: it is not a JSON object"),
    (GAVEL, put("k80", "LM 5", {"null": 1}), "k80: LM 5: 'LM 5' is not a valid job type"),
    (GAVEL, put("v100", LM, "('A3C', 1)", [1]), "('A3C', 1): not two numbers"),
    (GAVEL, put("k80", "('A3C', 1)", {"null": 3, "('LM (batch size 5)', 1)": None}), "not two"),
    (GAVEL, put("v100", LM, "null", 0), "it runs on 1 GPUs of type K80 and not on those of V100"),
    (GAVEL, put("v100", 3), "it has no 'v100'"),
    (synergy(), put(*TPUT, [[1] * 5]), "tput: no table of 9 rows and 5 columns"),
    (synergy(), put(*TPUT, 3, [1] * 4), "tput: no table of 9 rows and 5 columns"),
    (synergy(), put(*TPUT, 3, 2, "fast"), "tput[3][2]: 'fast'"),
    (synergy(), put(*TPUT, 3, 2, -1), "tput[3][2]: -1"),
    (synergy(), put(*TPUT, 3, 2, 0), "tput[3][2]: 0"),
    (synergy(), put("vae_1", {}), "vae_1: it is empty"),
    (hiest(), put("solo", {}), "solo: it is empty"),
    (hiest(), put("solo", "a", []), "solo: a: it is not a JSON object"),
    (hiest(), put("solo", "a", "4", {"gpus": 3}), "solo: a: 4: num_gpus: it is not a JSON object"),
    (hiest(), put(*ONE, 100.0), "solo: a: 4: 1 GPUs: it is not a JSON object"),
    (hiest(), put(*ONE, {"intra-socket": -5}), "1 GPUs: intra-socket: -5"),
    (hiest(), put(*ONE, {"intra-socket": "12"}), "1 GPUs: intra-socket: '12'"),
    (hiest(), put(*ONE, {"intra-socket": 1e15}), "1 GPUs: intra-socket: 1000000000000000"),
    (hiest(), put(*ONE[:-1], "x", {"intra-socket": 1}), "'x' is not a valid number of GPUs"),
    (hiest(), put(*TWO, "slow"), "2 GPUs: b: 4: 2 GPUs: 'slow'"),
    (hiest(), put(*TWO[:-1], []), "num_gpus: it is not a JSON object"),
]


def refused(given: Path) -> str:
    """What is said of it on the command line: one error that names the file."""
    result = CliRunner().invoke(
        cli, ["simulate", "demo", "--cluster", "8x8xV100", "--profiles", str(given)]
    )
    assert isinstance(result.exception, BadInput), result.exception
    with pytest.raises(BadInput) as caught:
        read_profiles(given)
    assert str(given) in str(caught.value)
    assert str(caught.value) == str(result.exception)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("sample", "change", "said"), WRONG)
def test_wrong_json_is_refused_with_its_place(
    tmp_path: Path, sample: Any, change: Change, said: str
) -> None:
    assert said in refused(written(tmp_path / "t.json", change(sample)))


def test_the_command_line_says_it_in_one_line_and_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = zeus(tmp_path / "zeus")
    (folder / "summary_power_a40.csv.gz").write_bytes(gzip.compress(POWER.encode())[:-30])
    monkeypatch.setattr("sys.argv", ["ganger", "recommend", "demo", "--profiles", str(folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "summary_power_a40.csv.gz: the gzip data is cut short" in said


@pytest.mark.parametrize("text", ["[1, 2]", '{"models": {}}', '{"v100": {}}', "{}", "hello", "1,2"])
def test_what_is_none_of_them_hears_what_can_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.txt").write_text(text)
    said = refused(tmp_path / "t.txt")
    assert all(name in said for name in ("ganger.profiles/1", "Gavel", "HiEST", "Pollux", "Zeus"))


def test_json_that_is_cut_short_or_has_no_numbers(tmp_path: Path) -> None:
    path, whole = tmp_path / "t.json.gz", json.dumps(GAVEL).encode()
    path.write_bytes(gzip.compress(whole)[:-20])
    assert "cut short" in refused(path)
    path.write_bytes(gzip.compress(whole[:-20]))
    assert "cannot be parsed" in refused(path)
    path.write_bytes(whole.replace(b"10.0", b"NaN"))
    assert "cannot be parsed" in refused(path)
    path.write_bytes(b"")
    assert "empty" in refused(path)


ROW = "squad,bert,32,adam,1e-3,9,{},{}\n"
TIME = "squad,bert,32,adam,{},{},99\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("summary_train.csv", TRAIN + ROW.format("fine", 3), "line 17: target_metric: 'fine'"),
        ("summary_train.csv", TRAIN + ROW.format("nan", 3), "line 17: target_metric: 'nan'"),
        ("summary_train.csv", TRAIN + ROW.format(0.5, -3), "line 17: target_epoch: '-3'"),
        ("summary_train.csv", TRAIN + ROW.format(0.5, "1e9"), "line 17: target_epoch: '1e9'"),
        ("summary_train.csv", TRAIN + ROW.format(0.5, "soon"), "line 17: target_epoch: 'soon'"),
        ("summary_train.csv", TRAIN.splitlines()[0] + "\n", "it holds no rows"),
        ("summary_train.csv", "a,b\n1,2\n", "column 'dataset' is missing"),
        ("summary_train.csv", TRAIN + "squad,bert\n", "line 17: 2 fields"),
        ("summary_power_v100.csv", POWER + TIME.format(200, "nan"), "time_per_epoch: 'nan'"),
        ("summary_power_v100.csv", POWER + TIME.format(200, -1), "time_per_epoch: '-1'"),
        ("summary_power_v100.csv", POWER + TIME.format(200, "1e20"), "time_per_epoch: '1e20'"),
        ("summary_power_v100.csv", POWER + TIME.format("full", 1), "power_limit: 'full'"),
    ],
)
def test_wrong_summaries_of_zeus(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = zeus(tmp_path / "zeus")
    (folder / name).write_text(text.format(limit=250, time=10))
    answer = refused(folder)
    assert said in answer
    assert name in answer


def test_zeus_without_the_reference(tmp_path: Path) -> None:
    folder = zeus(tmp_path / "zeus")
    (folder / "summary_power_v100.csv").unlink()
    assert "no summary_power_v100.csv" in refused(folder)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,50,fast,0\n", "step_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,50,nan,0\n", "step_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n", "it holds no rows"),
        ("placements.csv", "placement,step_time\n1,2\n", "column 'local_bsz' is missing"),
        ("validation-100.csv", "progress,grad_sqr,grad_var\n-1,1,1\n", "progress: '-1'"),
        (
            "validation-x.csv",
            "progress,grad_sqr,grad_var\n1,1,1\n",
            "'x' is not a valid batch size",
        ),
    ],
)
def test_wrong_applications_of_pollux(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = pollux(tmp_path / "pollux")
    (folder / "toy" / name).write_text(text)
    answer = refused(folder)
    assert said in answer
    assert name in answer


def test_a_folder_with_neither_hears_what_can_be_read(tmp_path: Path) -> None:
    said = refused(tmp_path)
    assert "Zeus" in said
    assert "Pollux" in said


GPU = ("machines", "0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("machines", {}), "machines: it is empty"),
        (put("machines", "0", 3), "machines: 0: it is not a JSON object"),
        (put(*GPU, "gpu_per_socket", []), "gpu_per_socket: not a list of numbers"),
        (put(*GPU, "gpu_per_socket", [0, 0]), "gpu_per_socket: 0 GPUs"),
        (put(*GPU, "gpu_per_socket", [1.5, 2]), "gpu_per_socket: 3.5 GPUs"),
        (put(*GPU, "core_per_socket", [-6, 6]), "core_per_socket[0]: -6"),
        (put(*GPU, "mem_per_socket", ["256GB"]), "mem_per_socket[0]: '256GB'"),
        (put(*GPU, "mem_per_gpu", [16, 12]), "mem_per_gpu: GPUs of several sizes"),
        (put(*GPU, "gpu_distance", {}), "gpu_distance: it is empty"),
        (put(*GPU, "gpu_distance", "0", {"0": 0}), "gpu_distance: 0: 1: None"),
        (put(*GPU, "gpu_distance", "0", "1", "near"), "gpu_distance: 0: 1: 'near'"),
        (put(*GPU, "gpu_distance", "0", "1", 20), "not islands of one size"),
    ],
)
def test_wrong_machines_are_refused(tmp_path: Path, change: Change, said: str) -> None:
    path = written(tmp_path / "infra.json", change(machines()))
    with pytest.raises(BadInput) as caught:
        load_cluster(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


# ---------------------------------------------------------------------- the real files


class TestReal:
    """The published files, as they are."""

    pytestmark = real

    def test_all_of_them(self) -> None:
        counts = {
            name: len(read_profiles(ROOT / name).models)
            for name in (
                "gavel/simulation_throughputs.json.gz",
                "synergy/sensitivity_profiles.json",
                "zeus",
                "hiest-topology/prof_from_experiments_full.json.gz",
                "pollux-sia/profiles",
            )
        }
        assert list(counts.values()) == [26, 12, 66, 8, 6]

    def test_small_batches_need_sockets_and_are_disturbed(self) -> None:
        """Of Amaral et al. (SC 2017, section 3): the smaller the batch, the more it matters."""
        models = read_profiles(ROOT / "hiest-topology/prof_from_experiments_full.json.gz").models
        alexnet = [models[f"bvlc_alexnet (batch size {size})"] for size in (1, 4, 64, 128)]
        apart = [profile.locality[Locality.NODE] for profile in alexnet]
        assert apart == sorted(apart, reverse=True)
        assert apart[0] == pytest.approx(1.249, abs=1e-3)
        scaling = [profile.scaling[1] for profile in alexnet]
        assert scaling == pytest.approx([1.09, 1.44, 2.07, 1.94], abs=0.01)
        beside = [profile.disturbed["bvlc_alexnet (batch size 128)"] for profile in alexnet]
        assert beside == pytest.approx([2.62, 2.27, 1.05, 1.02], abs=0.01)
        factors = [f for profile in models.values() for f in profile.disturbed.values()]
        assert max(factors) < 3, "no slip is taken"

    def test_zeus_says_when_resnet_is_done(self) -> None:
        models = read_profiles(ROOT / "zeus").models
        resnet = models["resnet50 (batch size 256)"]
        assert resnet.convergence is not None
        assert (resnet.convergence.target, resnet.convergence.length()) == (0.65, 21)
        assert resnet.convergence.seconds == pytest.approx(3515, abs=1)
        assert resnet.by_type["A40"] == pytest.approx(0.914, abs=1e-3)
        told = [profile.convergence for profile in models.values() if profile.convergence]
        assert len(told) == 63
        assert {one.metric for one in told} == {"loss", "accuracy"}

    @pytest.mark.parametrize(("name", "count"), [("infra-1m", 1), ("infra-4m", 3)])
    def test_minskys(self, name: str, count: int) -> None:
        spec = load_cluster(ROOT / "hiest-topology" / f"{name}.json")
        assert spec.nodes == (NodeSpec(count, 4, "P100", 12000, 512 * 1024, island=2),)
