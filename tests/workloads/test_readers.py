"""Every format, read from a few rows written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger import simulate
from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Stages
from ganger.core.spec import JobSpec, Kind, Locality, Needs, OnPreempt, Role
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.workloads.formats import FORMATS, detect, load_trace
from ganger.workloads.trace import Trace
from workloads.samples import PHILLY_LOG, SAMPLES, THROUGHPUTS, gzipped, options_of


def read(name: str, folder: Path, **options: object) -> Trace:
    return load_trace(SAMPLES[name].write(folder), **{**options_of(name), **options})


def jobs(trace: Trace) -> list[tuple[JobSpec, float]]:
    """Specs and durations in seconds."""
    return [(trace.declared.spec(i), int(trace.duration[i]) / SECOND) for i in range(trace.jobs)]


@pytest.mark.parametrize("name", SAMPLES)
def test_sniffing_knows_each_format(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name].write(tmp_path)
    assert detect(path).name == SAMPLES[name].format
    assert detect(gzipped(path)).name == SAMPLES[name].format


@pytest.mark.parametrize("name", SAMPLES)
def test_reads_two_jobs_sorted_from_zero_plain_or_gzipped(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name].write(tmp_path)
    trace = load_trace(path, **options_of(name))
    assert trace.jobs == 2
    assert trace.declared.submitted[0] == 0
    assert trace.declared.submitted[1] > 0
    again = load_trace(gzipped(path), SAMPLES[name].format, **options_of(name))
    assert jobs(again) == jobs(trace)


def test_own_columns_all_arrive(tmp_path: Path) -> None:
    (first, _), (second, duration) = jobs(read("own", tmp_path))
    assert first == JobSpec(name="a", shape=first.shape)
    assert first.shape.is_plain
    assert first.shape.gpus == 4
    assert duration == 30
    role = Role(size=2, least=1, most=4, needs=Needs(4, cpus=4000, memory=1024))
    assert second.shape.roles == (role,)
    assert second.shape.locality is Locality.RACK
    assert (second.submitted, second.deadline) == (10 * SECOND, 490 * SECOND)
    assert (second.limit, second.estimate) == (100 * SECOND, 50 * SECOND)
    assert (second.priority, second.weight, second.steps) == (1, 2.5, 1000.0)
    assert (second.on_preempt, second.after) == (OnPreempt.KILL, ("a",))
    assert (second.checkpoint, second.restore) == (5 * SECOND, 7 * SECOND)


def test_philly_sorts_its_unsorted_rows(tmp_path: Path) -> None:
    trace = read("philly", tmp_path)
    assert [spec.tenant for spec, _ in jobs(trace)] == ["6214e9", "11cb48"]
    assert "2017-10-09T06:13:03Z" in trace.source


def test_philly_log_sums_attempts_and_leaves_out_what_never_ran(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(PHILLY_LOG)
    trace = load_trace(path)
    ((spec, duration),) = jobs(trace)
    assert (spec.name, spec.tenant, spec.user) == ("application_1", "6214e9", "u1")
    assert (duration, spec.shape.gpus) == (90, 3)
    assert trace.skipped == ["2 rows left out: no attempt on a GPU finished"]


def test_helios_original_keeps_cores_only_when_asked(tmp_path: Path) -> None:
    plain = jobs(read("helios", tmp_path))
    assert [spec.tenant for spec, _ in plain] == ["vcY", "vcX"]
    assert plain[1][0].shape.is_plain
    cored = jobs(read("helios", tmp_path, host_resources=True))
    assert cored[1][0].shape.roles[0].needs.cpus == 8000


def test_helios_leaves_out_cpu_jobs(tmp_path: Path) -> None:
    path = SAMPLES["helios"].write(tmp_path, SAMPLES["helios"].with_cell(3, "0"))
    trace = load_trace(path)
    assert trace.jobs == 1
    assert trace.skipped == ["1 rows left out: the jobs ask for no GPU"]


def test_acme_groups_by_kind_of_work(tmp_path: Path) -> None:
    (first, duration), (second, _) = jobs(read("acme", tmp_path))
    assert (first.group, first.user, first.shape.gpus, duration) == ("Pretrain", "u1", 32, 3600)
    assert second.submitted == 30 * SECOND


def test_pai_tasks_become_gangs_with_shares(tmp_path: Path) -> None:
    (first, duration), (second, _) = jobs(read("pai_tasks", tmp_path))
    assert (first.name, first.array, first.group) == ("j1/worker", "j1", "worker")
    assert first.shape.roles[0] == Role(size=4, needs=Needs(share=500))
    assert first.shape.gpu_types == ("T4",)
    assert second.shape.roles[0] == Role(size=2, needs=Needs(gpus=2))
    assert duration == 100


def test_pai_options(tmp_path: Path) -> None:
    ((first, _), _) = jobs(read("pai_tasks", tmp_path, gpu_types=False, host_resources=True))
    assert first.shape.gpu_types == ()
    assert first.shape.roles[0].needs.cpus == 6000
    assert first.shape.roles[0].needs.memory == 27943  # 29.3 GB in MiB


def test_openb_pods_are_one_worker_each(tmp_path: Path) -> None:
    (first, duration), (second, _) = jobs(read("openb", tmp_path))
    assert first.shape.gpu_types == ("V100M16", "V100M32")
    assert first.shape.roles[0].needs == Needs(share=460, cpus=6000, memory=12288)
    assert duration == 90  # from being scheduled to being deleted
    assert second.shape.roles[0] == Role(needs=Needs(gpus=2, cpus=12000, memory=16384))
    assert second.group == "BE"


def test_openb_bag_runs_until_stopped(tmp_path: Path) -> None:
    path = tmp_path / "bag.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\nb,1,1,0,0\n")
    trace = load_trace(path)
    assert trace.jobs == 1
    assert Kind(trace.declared.kind[0]) is Kind.SERVE
    assert trace.duration[0] == NEVER
    assert trace.gpu_seconds() == 0


def test_itp_deadlines_move_with_the_origin(tmp_path: Path) -> None:
    (first, _), (second, _) = jobs(read("itp", tmp_path))
    assert (first.deadline, second.deadline) == (700 * SECOND, 800 * SECOND)
    assert (first.model, first.steps, first.group) == ("bert", 3249, "batch size 32")


def test_gavel_durations_come_from_throughputs(tmp_path: Path) -> None:
    (first, one), (second, two) = jobs(read("gavel", tmp_path))
    assert (one, two) == (100, 200)
    assert (second.shape.gpus, second.steps) == (2, 4000)
    assert first.model == "ResNet-18 (batch size 16)"


def test_gavel_weights_and_slos(tmp_path: Path) -> None:
    (first, _), (second, _) = jobs(read("gavel10", tmp_path))
    assert (first.weight, first.deadline) == (1, NEVER)
    assert (second.weight, second.deadline) == (5, (60 + 2 * 200) * SECOND)


def test_gavel_without_throughputs_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="throughputs=FILE"):
        load_trace(SAMPLES["gavel"].write(tmp_path))


def test_gavel_falls_back_to_a_smaller_measured_size(tmp_path: Path) -> None:
    path = SAMPLES["gavel"].write(tmp_path, SAMPLES["gavel"].with_cell(6, "8"))
    assert jobs(load_trace(path, throughputs=THROUGHPUTS))[1][1] == 200


def test_gavel_asks_of_the_table_only_what_its_jobs_run(tmp_path: Path) -> None:
    table = {**THROUGHPUTS, "k80": {"('A3C', 1)": {"null": 3.0}}}  # which it has no V100 for
    path = SAMPLES["gavel"].write(tmp_path)
    assert [duration for _, duration in jobs(load_trace(path, throughputs=table))] == [100, 200]
    table["k80"] = {"('ResNet-18 (batch size 16)', 4)": {"null": 3.0}}
    table["v100"] = {**THROUGHPUTS["v100"], "('ResNet-18 (batch size 16)', 4)": {"null": 0.0}}
    with pytest.raises(BadInput, match=r"ResNet-18.*4 GPUs of type K80"):
        load_trace(path, throughputs=table)


@pytest.mark.parametrize("text", ["[]", "{", '{"k80": {}}'])
def test_gavel_refuses_what_is_no_throughput_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(BadInput, match=r"t\.json"):
        load_trace(SAMPLES["gavel"].write(tmp_path), throughputs=str(tmp_path / "t.json"))


def test_shockwave_states_durations_and_modes(tmp_path: Path) -> None:
    (first, duration), (second, _) = jobs(read("shockwave", tmp_path))
    assert (first.group, duration, first.deadline) == ("gns", 1418, NEVER)
    assert second.deadline == (55 + 1.5 * 3338) * SECOND


def test_tiresias_counts_seconds_muri_milliseconds_chronus_minutes(tmp_path: Path) -> None:
    assert jobs(read("tiresias", tmp_path))[0][1] == 164
    assert jobs(read("muri", tmp_path))[1][0].submitted == 1456 * SECOND
    assert jobs(read("chronus", tmp_path))[0][1] == 300
    assert jobs(read("chronus", tmp_path, unit=1))[0][1] == 5


def test_muris_stages_are_profiles_in_seconds_by_model_and_number_of_gpus(tmp_path: Path) -> None:
    header, *_ = SAMPLES["muri"].text.splitlines()
    rows = ["0,4,0,1,bert,4,1000,0,190,1,163,18,0", "1,4,1,1,bert,4,1000,0,192,1,165,18,0"]
    rows += ["2,1,2,1,bert,4,1000,0,178,1,160,0,0", "3,1,3,1,idle,4,1000,0,9,0,0,0,0"]
    path = tmp_path / "muri.csv"
    path.write_text("\n".join([header, *rows, "4,0,4,1,bert,4,1000,0,7,7,7,7,0"]))
    assert load_trace(path, skip_bad=True).profiles.models == {
        "bert": Profile(
            stages=(
                Stages((0.001, 0.16, 0.0), 0.178, 1),
                Stages((0.001, 0.164, 0.018), 0.191, 4),
            )
        )
    }, "without the row of no GPU, and the model that uses nothing"
    assert not read("tiresias", tmp_path).profiles


def test_chronus_deadlines_are_of_those_that_are_not_best_effort(tmp_path: Path) -> None:
    (first, _), (second, _) = jobs(read("chronus", tmp_path))
    assert (first.deadline, second.deadline) == (8 * MINUTE, NEVER)
    assert (first.tenant, second.group) == ("vc_a", "best")


def test_pollux_durations_are_assumed_and_said_so(tmp_path: Path) -> None:
    trace = read("pollux", tmp_path)
    (first, duration), _ = jobs(trace)
    assert duration == pytest.approx(10**-0.5 * 3600 / 2)
    assert (first.model, first.group, first.steps) == ("cifar10", "batch size 2048", 0)
    assert "assumed" in trace.source
    given = jobs(read("pollux", tmp_path, gpu_hours={"bert": 2.0}))
    assert given[1][1] == 2 * HOUR / SECOND


def test_swf_reads_processors_estimates_and_the_machine(tmp_path: Path) -> None:
    trace = read("swf", tmp_path)
    (first, duration), (second, _) = jobs(trace)
    assert (first.shape.gpus, duration, first.estimate) == (64, 222, 4 * HOUR)
    assert (second.shape.gpus, second.estimate, second.after) == (8, NEVER, ("1",))
    assert (first.user, first.tenant, first.group, first.model) == ("7", "2", "1", "")
    assert trace.cluster == "4x8xCPU"
    assert jobs(read("swf", tmp_path, processors="used"))[0][0].shape.gpus == 80


def test_sacct_reads_gpus_limits_and_arrays(tmp_path: Path) -> None:
    (first, duration), (second, _) = jobs(read("sacct", tmp_path))
    assert (first.shape.gpus, first.shape.gpu_types, duration) == (4, ("A100",), 3600)
    assert (first.limit, first.estimate) == (2 * HOUR, 2 * HOUR)
    assert (first.tenant, first.user, first.group, first.priority) == ("bio", "ann", "gpu", 1000)
    assert (second.array, second.shape.gpu_types, second.shape.pool) == ("101", (), "")
    assert jobs(read("sacct", tmp_path, pools=True))[0][0].shape.pool == "gpu"


def test_what_sacct_really_wrote_is_read() -> None:
    """Recorded from sacct 22.05.8 over slurmdbd with MariaDB 10.11, with the columns of
    `import-slurm`: jobs that ended well and badly, of two types at once, an array, without GPUs,
    cancelled before they began."""
    path = Path(__file__).parents[1] / "engines" / "answers" / "sacct-22.05.txt"
    trace = load_trace(path, "sacct")
    found = {one.name: (one, duration) for one, duration in jobs(trace)}
    assert len(found) == trace.jobs == 6
    first, duration = found["21029604"]
    assert (first.shape.gpus, first.shape.gpu_types, duration) == (2, ("V100",), 2)
    assert (first.limit, first.tenant, first.user) == (5 * MINUTE, "root", "root")
    assert found["21029605"][0].shape.gpu_types == ("K80",)
    assert (found["21029606"][0].shape.gpus, found["21029606"][0].shape.gpu_types) == (2, ())
    tasks = [one for one, _ in found.values() if one.array == "21029607"]
    assert len(tasks) == 3
    assert [message.split(": ")[1] for message in trace.skipped] == [
        "the jobs never started",
        "the jobs have no GPU",
    ]


def test_sacct_counts_what_it_leaves_out(tmp_path: Path) -> None:
    base = SAMPLES["sacct"]
    extra = [
        "100.batch||2024-05-01T10:00:00|2024-05-01T10:05:00||3600||gres/gpu=4|||||||",
        "102|CANCELLED by 7|2024-05-01T10:00:00|Unknown|Unknown|0|10||gres/gpu=1|a|b|c|d|1",
        "103|RUNNING|2024-05-01T10:00:00|2024-05-01T10:00:00|Unknown|99|10|gres/gpu=1|x|a|b|c|d|1",
        "104|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:00:00|x|99|10|cpu=1|cpu=1|a|b|c|d|1",
    ]
    lines = base.text.splitlines()
    width = lines[0].count("|")
    fitted = [line + "|" * (width - line.count("|")) for line in extra]
    fitted = ["|".join(line.split("|")[: width + 1]) for line in fitted]
    trace = load_trace(base.write(tmp_path, "\n".join([*lines, *fitted]) + "\n"))
    assert trace.jobs == 2
    assert [message.split(": ")[1] for message in trace.skipped] == [
        "they are steps of other jobs",
        "the jobs never started",
        "the jobs had not ended yet",
        "the jobs have no GPU",
    ]


ENDS = """JobIDRaw|Submit|Start|ElapsedRaw|TimelimitRaw|ReqTRES|State
1|2024-05-01T10:00:00|2024-05-01T10:00:00|627|10|gres/gpu=1|TIMEOUT
2|2024-05-01T10:00:00|2024-05-01T10:00:00|660|10|gres/gpu=1|COMPLETED
3|2024-05-01T10:00:00|2024-05-01T10:00:00|300|10|gres/gpu=1|CANCELLED by 1007
4|2024-05-01T10:00:00|2024-05-01T10:00:00|0|10|gres/gpu=1|CANCELLED by 1007
5|2024-05-01T10:00:00|2024-05-01T10:00:00|40|10|gres/gpu=1|FAILED
6|2024-05-01T10:00:00|2024-05-01T10:00:00|50|10|gres/gpu=1|OUT_OF_MEMORY
7|2024-05-01T10:00:00|2024-05-01T10:00:00|60|10|gres/gpu=1|NODE_FAIL
8|2024-05-01T10:00:00|2024-05-01T10:00:00|9|10|gres/gpu=1|BOOT_FAIL
9|2024-05-01T10:00:00|2024-05-01T10:00:00|620|UNLIMITED|gres/gpu=1|TIMEOUT
"""


def test_sacct_jobs_end_in_a_replay_when_they_did_whatever_their_state(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text(ENDS)
    trace = load_trace(path)
    found = {one.name: (duration, one.limit, one.estimate) for one, duration in jobs(trace)}
    assert found == {
        "1": (600, 10 * MINUTE, 10 * MINUTE),  # Slurm's grace is cut off
        "2": (660, 660 * SECOND, 10 * MINUTE),  # it was let run on
        "3": (300, 10 * MINUTE, 10 * MINUTE),
        "5": (40, 10 * MINUTE, 10 * MINUTE),
        "6": (50, 10 * MINUTE, 10 * MINUTE),
        "7": (60, 10 * MINUTE, 10 * MINUTE),
        "9": (620, NEVER, NEVER),
    }
    assert trace.left_out == {"the jobs never started": 2}
    assert trace.rows == 9
    assert trace.notes == [
        "jobs that ended in TIMEOUT are simulated with the time that they ran, at most "
        "their limit, and finish: 2",
        "jobs that ran past their limit and were not stopped get the time that they ran as "
        "their limit: 1",
        "jobs that ended badly are simulated with the time that they ran, and finish: 1 "
        "FAILED, 1 CANCELLED,"
        " 1 OUT_OF_MEMORY, 1 NODE_FAIL",
    ]
    run = simulate(trace, "1x1xV100", "fifo")
    assert run.metrics["jobs_finished"] == 7, "no limit kills what Slurm let end"
    assert (run.rows, run.left_out) == (9, {"the jobs never started": 2})
    assert run.notes == trace.notes


def test_sacct_writes_local_times_which_are_not_called_utc(tmp_path: Path) -> None:
    source = read("sacct", tmp_path).source
    assert source.endswith("the first submission was at 2024-05-01T10:00:00 of its own clock")


def test_rows_that_are_skipped_are_counted_by_reason(tmp_path: Path) -> None:
    """Two bad cells in one row are one row; a row that is too short counts, too."""
    lines = [*ENDS.splitlines(), "10|x|2024-05-01T10:00:00|y|10|gres/gpu=1|FAILED", "11|2024"]
    path = tmp_path / "s.txt"
    path.write_text("\n".join(lines))
    trace = load_trace(path, skip_bad=True)
    assert trace.left_out == {"the jobs never started": 2, "they are malformed": 2}
    assert trace.rows == trace.jobs + 4 == 11


@pytest.mark.parametrize(
    ("columns", "cells"),
    [
        ("Start|End", "2024-05-01T10:00:00|2024-05-01T10:10:00"),
        ("Start|Elapsed", "2024-05-01T10:00:00|00:10:00"),
    ],
)
def test_sacct_takes_any_statement_of_the_run_time(
    columns: str, cells: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.txt"
    path.write_text(
        f"JobIDRaw|Submit|{columns}|ReqTRES|Timelimit\n"
        f"7|2024-05-01T10:00:00|{cells}|gres/gpu:h100=2|1-00:00:00\n"
        f"8|2024-05-01T10:00:00|{cells}|gres/gpu=2|UNLIMITED\n"
    )
    (first, duration), (second, _) = jobs(load_trace(path))
    assert (duration, first.limit, first.shape.gpus) == (600, 24 * HOUR, 2)
    assert second.limit == NEVER


def test_the_registry_is_complete_and_described() -> None:
    assert {sample.format for sample in SAMPLES.values()} == set(FORMATS)
    assert [name for name, each in FORMATS.items() if each.write] == ["ganger", "swf"]
    assert FORMATS["gavel"].options == ("throughputs", "placement")
