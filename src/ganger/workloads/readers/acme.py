"""Shanghai AI Laboratory's Acme (Seren and Kalos, 2023): the original job tables.

Columns: `job_id, user, node_num, gpu_num, cpu_num, type, state, submit_time, start_time,
end_time, duration, queue, gpu_time`; dates with a zone, seconds. The tenant is the user, as the
tables name no other owner; the group is the kind of work (`type`: Pretrain, Eval, SFT...).
Jobs that ask for no GPU are left out.
"""

from __future__ import annotations

from pathlib import Path

from ganger.workloads.files import open_text
from ganger.workloads.readers.helios import read_table
from ganger.workloads.trace import Trace

HEADER = ("job_id", "user", "gpu_num", "type", "state", "submit_time", "duration", "gpu_time")


def read(path: Path, *, skip_bad: bool = False, host_resources: bool = False) -> Trace:
    """The GPU jobs of an Acme table. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    return read_table(file, "acme", tenant="user", group="type", host_resources=host_resources)
