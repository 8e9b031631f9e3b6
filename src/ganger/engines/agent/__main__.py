"""`python -m ganger.engines.agent`: run the node agent of this machine."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from math import inf
from pathlib import Path

from ganger.core.errors import GangerError
from ganger.engines.agent.attempt.launch import Home
from ganger.engines.agent.meter import EVERY_SECONDS, Meter, by_nvml
from ganger.engines.agent.server import Agent
from ganger.engines.agent.sharing import Mps, Sharing
from ganger.engines.gpus import core_sets, find_nodes


def main() -> int:
    """Read the arguments, serve until ordered to stop; the exit code."""
    parser = argparse.ArgumentParser(prog="ganger-agent", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="its folder; made if missing")
    parser.add_argument("--name", default=socket.gethostname(), help="its name in the cluster")
    parser.add_argument("--gpus", default="", help="simulate these: 8, or 8xV100+4xK80")
    parser.add_argument(
        "--core-sets",
        action="store_true",
        help="with --gpus: each device is a set of cores, on which alone its jobs run",
    )
    parser.add_argument(
        "--join", action="append", default=[], metavar="HOST:PORT", help="an engine to join"
    )
    parser.add_argument("--token-file", type=Path, help="holds the token of the engines to join")
    parser.add_argument("--no-cgroups", action="store_true", help="hold jobs by process tree only")
    parser.add_argument("--silence", type=float, default=20.0, help="seconds until a peer is gone")
    parser.add_argument(
        "--fence",
        type=float,
        default=inf,
        metavar="SECONDS",
        help="kill all jobs when no joined engine was heard for so long",
    )
    parser.add_argument(
        "--meter", type=float, default=EVERY_SECONDS, help="seconds between looks at what jobs use"
    )
    given = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    try:
        token = given.token_file.read_text().strip() if given.token_file else ""
        joins = tuple(_address(text) for text in given.join)
        if joins and not token:
            parser.error("--join needs --token-file")
        if given.core_sets and not given.gpus:
            parser.error("--core-sets needs --gpus")
        nodes = find_nodes(given.gpus, given.name)
        cores = core_sets(sum(node.gpus for node in nodes)) if given.core_sets else ()
        mps = None if given.gpus else Mps(Home(given.home.resolve()).mps)
        agent = Agent(
            given.home,
            given.name,
            nodes,
            joins=joins,
            token=token,
            silence_seconds=given.silence,
            fence_seconds=given.fence,
            cgroups=not given.no_cgroups,
            meter=Meter(None if given.gpus else by_nvml(), given.meter, cores),
            sharing=Sharing(nodes, cores, mps),
        )
    except (GangerError, OSError) as error:
        print(f"ganger-agent: {error}", file=sys.stderr)
        return 2
    agent.run()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise GangerError(f"--join {text}: write HOST:PORT")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    # Skip finalisers: supervisors share this process's history, and nothing needs them.
    code = main()
    sys.stderr.flush()
    os._exit(code)
