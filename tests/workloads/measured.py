"""Small samples of other people's profiles, written by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GAVEL: dict[str, Any] = {
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 10.0, "('A3C', 1)": [6.0, 2.0]},
        "('LM (batch size 5)', 2)": {"null": 18.0},
        "('A3C', 1)": {"null": 4.0},
    },
    "v100_unconsolidated": {"('LM (batch size 5)', 2)": {"null": 9.0}},
    "k80": {"('LM (batch size 5)', 1)": {"null": 2.0}, "('A3C', 1)": {"null": 0}},
}


def synergy() -> dict[str, Any]:
    """Half speed below three cores a GPU."""
    table = [[0.5 if cores < 3 else 1.0] * 5 for cores in range(1, 10)]
    return {"gnmt_1": {"cpus_per_gpu_4": {"cpus": 3.0, "tput": table}}}


def _times(near: float, far: float = 0) -> dict[str, float]:
    return {"inter-socket": far, "intra-socket": near}


def _beside(one: Any, two: Any) -> dict[str, Any]:
    """Beside the models `a` and `b` with batch size 4, two GPUs each."""
    return {name: {"4": {"num_gpus": {"2": time}}} for name, time in (("a", one), ("b", two))}


def hiest() -> dict[str, Any]:
    """`a` takes 1.5 times as long over two sockets, and double beside `b`; the other entries say
    nothing that can be believed."""
    return {
        "solo": {
            "a": {"4": {"num_gpus": {"1": _times(100), "2": _times(120, 180), "3": _times(240)}}},
            "b": {"4": {"num_gpus": {"1": _times(0), "2": _times(50, 40)}}},
        },
        "collocation": {
            "a": {
                "4": {
                    "num_gpus": {
                        "1": {"b": {"4": {"num_gpus": {"1": 9999, "2": 9999}}}},
                        "2": _beside(171, 360),
                    }
                }
            },
            "b": {"4": {"num_gpus": {"2": _beside(0.03, 999)}}},
        },
    }


TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
squad,bert,32,sgd,1e-1,1,80,2
squad,bert,32,sgd,1e-1,1,85,nan
squad,bert,32,adam,1e-3,1,80,3
squad,bert,32,adam,1e-3,1,85,8
squad,bert,32,adam,1e-3,1,90,nan
squad,bert,32,adam,1e-3,2,80,5
squad,bert,32,adam,1e-3,2,85,9
squad,bert,32,adam,1e-3,2,90,20
squad,bert,32,adam,1e-3,3,80,4
squad,bert,32,adam,1e-3,3,85,nan
squad,bert,32,adam,1e-3,3,90,nan
libri,ds2,8,adamw,1e-4,1,60,1
libri,ds2,8,adamw,1e-4,1,50,2
libri,ds2,8,adamw,1e-4,1,40,6
imdb,bert,8,adamw,1e-7,1,0.9,nan
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
squad,bert,32,sgd,250,70,200
squad,bert,32,adam,100,150,99
squad,bert,32,adam,{limit},{time},240
libri,ds2,8,adamw,250,{time},240
imdb,bert,8,adamw,250,{time},240
"""


def zeus(folder: Path) -> Path:
    """A folder of such summaries, one of them gzipped."""
    folder.mkdir(exist_ok=True)
    (folder / "summary_train.csv").write_text(TRAIN)
    (folder / "summary_power_v100.csv").write_text(POWER.format(limit=250, time=100))
    slow = gzip.compress(POWER.format(limit=300, time=200).encode())
    (folder / "summary_power_a40.csv.gz").write_bytes(slow)
    return folder


PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,50,0.5,0.0
1,100,1.0,0.0
12,50,0.6,0.2
21,50,0.8,0.4
"""
SCALES = """num_nodes,num_replicas,local_bsz,step_time,sync_time
6,24,50,0.9,0.4
"""
RUN = "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.1,1.0,{0}\n40,40,0.2,0.0,{0}\n"


def pollux(folder: Path) -> Path:
    """One small application, `toy`."""
    toy = folder / "toy"
    toy.mkdir(parents=True)
    (toy / "placements.csv").write_text(PLACEMENTS)
    (toy / "scalability.csv.gz").write_bytes(gzip.compress(SCALES.encode()))
    for batch, variance in ((100, 3.0), (400, 5.0)):
        (toy / f"validation-{batch}.csv").write_text(RUN.format(variance))
    return folder


def machines(*distances: float, **fields: Any) -> dict[str, Any]:
    """Two machines of four GPUs in two sockets, `distances` near and far."""
    near, far = distances or (1, 20)
    apart = {
        str(a): {str(b): 0 if a == b else near if a // 2 == b // 2 else far for b in range(4)}
        for a in range(4)
    }
    machine = {
        "sockets": ["00", "01"],
        "core_per_socket": [6, 6],
        "mem_per_socket": [256, 256],
        "gpu_per_socket": [2, 2],
        "mem_per_gpu": [16, 16],
        "gpu_distance": apart,
    }
    return {"machines": {"0": machine, "1": {**machine, **fields}}}


def written(path: Path, given: Any) -> Path:
    """`given` as JSON, through gzip where the name ends so."""
    data = json.dumps(given).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
