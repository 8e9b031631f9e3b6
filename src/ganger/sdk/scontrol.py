"""`scontrol show hostnames` inside Ganger's own jobs: the names of the job's nodes, one a line.

The agent puts it on the PATH of the job's processes. Anything else goes to the machine's own
`scontrol`, where there is one. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ganger.sdk.hostlist import expand


def _hostnames(words: list[str]) -> int:
    if len(words) > 1:
        return _refuse("show hostnames takes one list of hosts")
    text = words[0] if words else os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        return _refuse("this job's nodes have no names; give a list of hosts")
    try:
        names = expand(text)
    except ValueError as wrong:
        return _refuse(f"host list: {wrong}")
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"scontrol: {message}\n")
    return 2


def _elsewhere(words: list[str]) -> int:
    """Become the machine's own `scontrol`."""
    ours = Path(sys.argv[0]).resolve().parent
    paths = os.environ.get("PATH", "").split(os.pathsep)
    rest = os.pathsep.join(path for path in paths if Path(path).resolve() != ours)
    found = shutil.which("scontrol", path=rest)
    if found is None:
        return _refuse("inside Ganger's jobs scontrol knows: show hostnames [LIST]")
    return os.execv(found, [found, *words])


def main() -> int:
    """`scontrol WORDS`; the exit code."""
    words = sys.argv[1:]
    if words[:1] == ["show"] and words[1:2] in (["hostnames"], ["hostname"]):
        return _hostnames(words[2:])
    return _elsewhere(words)
