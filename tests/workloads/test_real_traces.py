"""The published traces, where GANGER_TRACES says they are: counts and GPU-hours as they state."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.workloads.clusters import load_cluster
from ganger.workloads.files import open_text
from ganger.workloads.formats import detect, load_trace
from ganger.workloads.market.availability import read_available
from ganger.workloads.market.prices import read_prices

ROOT = os.environ.get("GANGER_TRACES", "")
pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces"),
]
THROUGHPUTS = "gavel/simulation_throughputs.json.gz"

# Jobs in the file, GPU-hours (None: not stated or not known), rows left out.
EXPECTED: list[tuple[str, str, int, float | None, int]] = [
    ("philly/philly_2017-09_2017-10.csv.gz", "philly", 52_849, 642_409.3, 0),
    ("helios-venus/venus_gpu_jobs_2020-03_2020-08.csv.gz", "helios", 99_707, 1_990_760.5, 0),
    ("pai-2020-sample/pai_gpu_tasks_sample_a.csv.gz", "pai", 40_070, 465_568.3, 0),
    ("alibaba-openb-2023/openb_pod_list_default.csv.gz", "openb", 8_152, None, 1_088 + 861),
    ("alibaba-openb-2023/openb_pod_list_cpu050.csv.gz", "openb", 7_439, None, 375 + 861),
    ("alibaba-openb-2023/openb_pod_list_cpu250.csv.gz", "openb", 9_420, None, 2_356 + 861),
    ("alibaba-openb-2023/openb_pod_list_gpushare60.csv.gz", "openb", 8_152, None, 1_088 + 1_014),
    ("alibaba-openb-2023/openb_pod_list_gpuspec10.csv.gz", "openb", 8_152, None, 1_949),
    ("alibaba-openb-2023/openb_pod_list_gpuspec20.csv.gz", "openb", 8_152, None, 1_949),
    ("alibaba-openb-2023/openb_pod_list_gpuspec33.csv.gz", "openb", 8_152, None, 1_949),
    ("alibaba-openb-2023/openb_pod_list_multigpu20.csv.gz", "openb", 8_324, 0.0, 1_088),
    ("alibaba-openb-2023/openb_pod_list_multigpu40.csv.gz", "openb", 8_746, 0.0, 1_088),
    *((f"itp-2021/{kind}_cluster{number}.csv.gz", "itp", jobs, hours, 0)
      for kind in ("raw", "elasticflow") for number, jobs, hours in (
          ("01", 1_595, 22_740.1), ("03", 3_011, 165_442.5), ("05", 3_629, 14_303.1),
          ("06", 2_396, 123_878.7), ("08", 13_047, 67_100.0), ("10", 260, 4_023.5))),
    ("itp-2021/elasticflow_195job.csv.gz", "itp", 195, 5_489.8, 0),
    *((f"gavel/msr/seed0/{name}.trace.gz", "gavel", jobs, None, 0) for name, jobs in (
        ("0e4a51", 1_181), ("11cb48", 2_000), ("23dbec", 9), ("51b7ef", 18), ("6214e9", 2_000),
        ("795a4c", 3), ("7f04ca", 972), ("925e2b", 4), ("ed69ec", 951), ("ee9e8c", 2_000))),
    *((f"gavel/physical_cluster/{name}.trace.gz", "gavel", jobs, None, 0) for name, jobs in (
        ("artifact_evaluation", 15), ("debug", 14), ("debug_v2", 14), ("highmem_test", 8),
        ("max_min_fairness", 96), ("medium_test", 20), ("minimize_makespan", 100),
        ("small_test", 20))),
    ("tiresias/60_job.csv", "tiresias", 60, 7.4, 0),
    *((f"muri/{name}.csv.gz", "tiresias", jobs, hours, 0) for name, jobs, hours in (
        ("job_type_1", 992, 116_690.1), ("job_type_3", 992, 116_690.1),
        ("trace1", 1_494, 383_326.8), ("trace1_pr", 1_494, 383_326.8),
        ("trace3", 992, 116_690.1), ("trace3_pr", 992, 116_690.1))),
    ("chronus/trace_job_Philly_MIX1.csv.gz", "tiresias", 30_940, 60 * 6_188.80, 184),
    ("chronus/trace_job_Philly_SLO.csv.gz", "tiresias", 30_940, 60 * 6_141.85, 205),
    *((f"pollux-sia/workloads/pollux/workload-{i}.csv.gz", "pollux", 160, None, 0)
      for i in (1, 2, 3, 4)),
    ("pollux-sia/workloads/scale/scale_32x/workload-1.csv.gz", "pollux", 5_120, None, 0),
    ("ricc-2010-swf/RICC-2010-2.swf.gz", "swf", 447_794, None, 0),
]  # fmt: skip


@pytest.mark.parametrize(("path", "format_", "jobs", "hours", "left_out"), EXPECTED)
def test_reads_it_all(
    path: str, format_: str, jobs: int, hours: float | None, left_out: int
) -> None:
    file = Path(ROOT) / path
    options: dict[str, Any] = {}
    if format_ == "gavel":
        options = {"throughputs": Path(ROOT) / THROUGHPUTS}
    assert detect(file).name == format_
    trace = load_trace(file, **options)
    assert trace.jobs == jobs - left_out
    assert len(trace.skipped) <= 2  # one message for each reason to leave rows out
    if hours is not None:
        assert trace.gpu_seconds() / 3600 == pytest.approx(hours, rel=1e-4, abs=0.01)


def test_shockwave() -> None:
    files = sorted((Path(ROOT) / "shockwave").glob("*.trace.gz"))
    assert [load_trace(file).jobs for file in files] == [120, 220]


def test_ricc_has_every_estimate_and_mostly_too_high() -> None:
    trace = load_trace(Path(ROOT) / "ricc-2010-swf/RICC-2010-2.swf.gz", processors="used")
    ratio = trace.duration / trace.declared.estimate[: trace.jobs]
    assert sorted(ratio.tolist())[trace.jobs // 2] == pytest.approx(0.017, abs=0.001)
    assert trace.cluster == "1024x8xCPU"
    assert trace.gpu_seconds() / 3600 == pytest.approx(26_227_300, rel=1e-4)


def test_openb_nodes() -> None:
    folder = Path(ROOT) / "alibaba-openb-2023"
    gpu_nodes = load_cluster(folder / "openb_node_list_gpu_node.csv.gz")
    assert sum(node.count for node in gpu_nodes.nodes) == 1_213
    assert gpu_nodes.gpus == 6_212
    all_nodes = load_cluster(folder / "openb_node_list_all_node.csv.gz")
    assert sum(node.count for node in all_nodes.nodes) == 1_523


def test_every_instance_of_the_published_spot_prices_has_a_series() -> None:
    """Of AWS 64 pairs of instance and zone; of Azure 12 sizes, half of them in one region."""
    folder = Path(ROOT) / "spot-prices-2020"
    aws = folder / "aws_spot_price_us.csv.gz"
    rows = csv.DictReader(io.StringIO(open_text(aws).text))
    pairs = sorted({(row["InstanceType"], row["AvailabilityZone"]) for row in rows})
    assert len(pairs) == 64
    assert min(len(read_prices(aws, *pair)) for pair in pairs[::8]) > 1
    east = read_prices(folder / "azure_us_east.csv.gz", "NC6s v3")
    assert len(east) == 29
    assert east[0] == (0, 0.60313)


def test_published_availability_is_read_where_it_is_of_a_kind_that_is_known() -> None:
    """SkyPilot's 22 and four of Bamboo's; logs of creations and percentages are refused."""
    files = sorted((Path(ROOT) / "spot-availability").rglob("*.gz"))
    assert (
        sum(
            len(read_available(path)) > 0
            for path in files
            if "bamboo_aws" not in path.name and "toad" not in path.name
        )
        == 26
    )
    others = [path for path in files if "bamboo_aws" in path.name or "toad" in path.name]
    for path in others:
        with pytest.raises(BadInput):
            read_available(path)
    assert len(others) == 8
