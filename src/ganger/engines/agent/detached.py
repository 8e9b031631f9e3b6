"""Start an agent that outlives the process that starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def start_agent(home: Path, *options: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Run `python -m ganger.engines.agent --home HOME OPTIONS...` in a session of its own, its
    messages in `HOME/agent.log`. `prefix` goes before the command (`ip netns exec NAME`, `srun`).
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "agent.log").open("ab") as log:
        return subprocess.Popen(
            [
                *prefix,
                sys.executable,
                "-P",
                "-m",
                "ganger.engines.agent",
                "--home",
                str(home),
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
