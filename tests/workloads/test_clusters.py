"""Clusters from words and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import NodeSpec
from ganger.workloads.clusters import KNOWN_GPUS, load_cluster

TOML = """
format = "ganger.cluster/1"
name = "lab"
[[nodes]]
count = 2
gpus = 8
gpu_type = "A100"
cpus = 63.5
memory = "1TiB"
pool = "research"
nodes_per_rack = 2
island = 4
labels = ["nvlink"]
[[nodes]]
gpus = 4
gpu_type = "Mystery"
[[gpu_types]]
name = "A100"
price = 2.5
speed = 2
[[tenants]]
name = "vision"
quota = 12
weight = 2.0
[[tenants]]
name = "detection"
parent = "vision"
"""


def file_of(folder: Path, text: str, name: str = "c.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_short_form() -> None:
    spec = load_cluster("8x8xV100")
    assert spec.gpus == 64
    assert spec.nodes == (NodeSpec(count=8, gpus=8, gpu_type="V100"),)
    assert spec.gpu_types == (KNOWN_GPUS["V100"],)


def test_short_form_of_several_groups_types_and_pools() -> None:
    spec = load_cluster("36x1xV100+36x1xp100+4x8xA100-80GB@research")
    assert [node.gpu_type for node in spec.nodes] == ["V100", "P100", "A100-80GB"]
    assert spec.nodes[2].pool == "research"
    assert spec.gpus == 36 + 36 + 32


def test_a_part_without_a_number_of_nodes_is_one_node() -> None:
    nodes = load_cluster("4xT4+2x8xV100+1xK80@old").nodes
    assert [(node.count, node.gpus, node.gpu_type) for node in nodes] == [
        (1, 4, "T4"),
        (2, 8, "V100"),
        (1, 1, "K80"),
    ]
    assert nodes[2].pool == "old"


def test_unknown_types_are_allowed_and_plain() -> None:
    assert load_cluster("1x1xCPU").gpu_types[0].memory == 16384


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8x8",
        "8",
        "8x",
        "x8xV100",
        "8x8xV100+",
        "0x8xV100",
        "8x65xV100",
        "2000000x8xV100",
        "8x8xV100@",
        "-1x8xV100",
        "99999999999999x1xV100",
        "none.toml",
        "8x8xV100 + 1x1xT4",
    ],
)
def test_words_that_are_no_cluster(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_cluster(text)
    assert caught.value.mend
    assert "cluster" in str(caught.value)


def test_toml_file(tmp_path: Path) -> None:
    spec = load_cluster(file_of(tmp_path, TOML))
    first = spec.nodes[0]
    assert (first.cpus, first.memory, first.island, first.labels) == (
        63_500,
        1 << 20,
        4,
        ("nvlink",),
    )
    assert {gpu.name: (gpu.memory, gpu.price) for gpu in spec.gpu_types} == {
        "A100": (40960, 2.5),
        "Mystery": (16384, 0.0),
    }
    assert spec.tenants[1].parent == "vision"
    assert (spec.name, spec.gpus) == ("lab", 20)


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    yaml = "format: ganger.cluster/1\nnodes:\n  - {count: 2, gpus: 8, gpu_type: T4}\n"
    json = '{"format": "ganger.cluster/1", "nodes": [{"count": 2, "gpus": 8, "gpu_type": "T4"}]}'
    first = load_cluster(file_of(tmp_path, yaml, "c.yaml"))
    assert load_cluster(file_of(tmp_path, json, "c.json")) == first


def test_openb_node_list(tmp_path: Path) -> None:
    text = (
        "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,64000,262144,2,P100\n"
        "c,32000,262144,0,\n"
    )
    spec = load_cluster(file_of(tmp_path, text, "nodes.csv"))
    assert [(node.count, node.gpus, node.gpu_type) for node in spec.nodes] == [
        (2, 2, "P100"),
        (1, 0, ""),
    ]


BAD = [
    ("c.toml", "format = ", "cannot be parsed"),
    ("c.json", "{", "cannot be parsed"),
    ("c.yaml", "a: [1", "cannot be parsed"),
    ("c.yaml", "- 1", "format is None"),
    ("c.ini", "x", "extension '.ini'"),
    ("c.toml", TOML.replace("cluster/1", "cluster/2"), "newer"),
    ("c.toml", TOML.replace("ganger.cluster/1", "other"), "format is 'other'"),
    ("c.toml", 'format = "ganger.cluster/1"', "missing required field `nodes`"),
    ("c.toml", 'format = "ganger.cluster/1"\nnodes = []', "it has no node"),
    ("c.toml", TOML.replace("count = 2", 'count = "2"'), r"\$\.nodes\[0\]\.count"),
    ("c.toml", TOML.replace("count = 2", "counts = 2"), "unknown field `counts`"),
    ("c.toml", TOML.replace("count = 2", "count = -2"), r"nodes\[0\]: count is negative"),
    ("c.toml", TOML.replace("gpus = 8", "gpus = 65"), r"nodes\[0\]: 65 GPUs"),
    ("c.toml", TOML.replace("63.5", "-1.0"), r"nodes\[0\]: cpus"),
    ("c.toml", TOML.replace("63.5", "nan"), r"nodes\[0\]: cpus"),
    ("c.toml", TOML.replace("1TiB", "lots"), r"nodes\[0\]\.memory"),
    ("c.toml", TOML.replace('gpu_type = "Mystery"', ""), r"nodes\[1\]: gpu_type is missing"),
    ("c.toml", TOML.replace("speed = 2", "speed = 0"), r"gpu_types\[0\]: speed"),
    ("c.toml", TOML.replace("2.5", "-2.5"), r"gpu_types\[0\]: price"),
    ("c.toml", TOML.replace('parent = "vision"', 'parent = "x"'), r"tenants\[1\]: parent 'x'"),
    ("c.csv", "sn,cpu_milli\n", "column 'memory_mib' is missing"),
    ("c.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,-2,P100\n", "line 2: gpu"),
]


@pytest.mark.parametrize(("name", "text", "said"), BAD)
def test_files_that_are_no_cluster(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        load_cluster(file_of(tmp_path, text, name))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('nodes = [{gpus = 2, gpu_type = "A", market = "spots"}]', "did you mean spot? see"),
        (
            'nodes = [{gpus = 2, gpu_type = "A", market = "auction"}]',
            "there are on_demand, reserved, spot; see",
        ),
        ('nodes = [{gpu = 2, gpu_type = "A"}]', "did you mean gpus? see"),
        ('nodes = [{}]\ngpu_types = [{name = "A", xyz = 1}]', "there are name, memory, watts,"),
        ('nodes = [{}]\ngpu_types = [{name = "A", watts = "350W"}]', "a number, without a unit"),
        ('nodes = [{count = "2"}]', "a number, without a unit"),
        ("nodes = [{}]\ntenant = []", "did you mean tenants? see"),
        (
            "nodes = [{labels = 1}]",
            "got `int` (give a list, in square brackets; see docs/cluster-file.md)",
        ),
    ],
)
def test_what_was_probably_meant_is_said(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'format = "ganger.cluster/1"\n{line}\n')
    with pytest.raises(BadInput) as refused:
        load_cluster(str(path))
    assert said in str(refused.value)
