"""`srun` inside Ganger's own jobs: starts tasks on the nodes of the job.

The agent puts it on the PATH of the job's processes. Standard library only.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import signal
import socket
import sys
import threading
from typing import Any

from ganger.sdk.steps import At, Line, Local, Refused, follow, free_port, lead

# ---------------------------------------------------------------------- what is asked for


class _Parser(argparse.ArgumentParser):
    """Complains in one line and exits with 2."""

    def error(self, message: str) -> Any:
        """Say what is wrong."""
        known = "-n, -N, --ntasks-per-node, -l, -K, -D, -u, --export=ALL"
        sys.stderr.write(f"srun: {message} (inside Ganger's jobs srun knows {known})\n")
        sys.exit(2)


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= 1 << 20:
        raise ValueError(text)
    return number


def parse(words: list[str]) -> argparse.Namespace:
    """The options, and the command as `argv`. Exits with 2 for what is not known."""
    parser = _Parser("srun", allow_abbrev=False, description="Start tasks on the job's nodes.")
    parser.add_argument("-n", "--ntasks", type=_count, help="how many tasks; default: the job's")
    parser.add_argument("-N", "--nodes", type=_count, help="on how many nodes; default: all")
    parser.add_argument("--ntasks-per-node", type=_count, help="how many tasks on each node")
    parser.add_argument("-l", "--label", action="store_true", help="number the lines of output")
    parser.add_argument(
        "-K",
        "--kill-on-bad-exit",
        nargs="?",
        const="1",
        choices=["0", "1"],
        default="0",
        help="end the other tasks when one fails",
    )
    parser.add_argument("-D", "--chdir", default="", help="the tasks' folder")
    parser.add_argument("-u", "--unbuffered", action="store_true", help="as it always is")
    parser.add_argument("--export", choices=["ALL"], default="ALL", help="ALL")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="command")
    asked = parser.parse_args(_split(words))
    if asked.argv[:1] == ["--"]:
        del asked.argv[0]
    if not asked.argv:
        parser.error("no command")
    return asked


def _split(words: list[str]) -> list[str]:
    """The words, with `-n4` as argparse has it and `-K` not taking the command for its value."""
    return [
        "--kill-on-bad-exit=1" if word in ("-K", "--kill-on-bad-exit") else word for word in words
    ]


def spread(asked: argparse.Namespace, slots: list[int]) -> list[int]:
    """How many tasks on each node of the job, the first nodes first. `slots`: the job's own number
    of tasks by node. Raises Refused."""
    nodes = asked.nodes or len(slots)
    if nodes > len(slots):
        raise Refused(f"{nodes} nodes, but the job has {len(slots)}")
    if asked.ntasks_per_node and not asked.ntasks:
        return [asked.ntasks_per_node] * nodes
    total = asked.ntasks or sum(slots[:nodes])
    if asked.nodes and total < nodes:
        raise Refused(f"{total} tasks cannot be spread over {nodes} nodes")
    nodes = min(nodes, total)
    if asked.ntasks_per_node and total > nodes * asked.ntasks_per_node:
        raise Refused(f"{total} tasks are more than {asked.ntasks_per_node} on each of {nodes}")
    counts, left = [1] * nodes, total - nodes
    for node in range(nodes):
        more = min(max(slots[node] - 1, 0), left)
        counts[node], left = counts[node] + more, left - more
    for i in range(left):
        counts[i % nodes] += 1
    return counts


def compressed(counts: list[int]) -> str:
    """As Slurm writes numbers of tasks by node: `2(x3),1`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{many})" if many > 1 else str(count) for count, many in runs)


def tasks(
    counts: list[int], names: list[str], common: dict[str, str]
) -> list[list[dict[str, str]]]:
    """For each node what its tasks' variables are beside those of `srun`'s own environment."""
    found, rank = [], 0
    shared = {
        **common,
        "SLURM_NTASKS": str(sum(counts)),
        "SLURM_NPROCS": str(sum(counts)),
        "SLURM_NNODES": str(len(counts)),
        "SLURM_STEP_NUM_TASKS": str(sum(counts)),
        "SLURM_STEP_NUM_NODES": str(len(counts)),
        "SLURM_STEP_NODELIST": ",".join(names[: len(counts)]),
        "SLURM_STEP_TASKS_PER_NODE": compressed(counts),
        "WORLD_SIZE": str(sum(counts)),
    }
    for node, count in enumerate(counts):
        here = []
        for local in range(count):
            own = {
                "SLURM_PROCID": rank,
                "SLURM_LOCALID": local,
                "SLURM_NODEID": node,
                "RANK": rank,
                "LOCAL_RANK": local,
                "LOCAL_WORLD_SIZE": count,
                "GROUP_RANK": node,
                "NODE_RANK": node,
            }
            here.append({**shared, **{name: str(value) for name, value in own.items()}})
            rank += 1
        found.append(here)
    return found


# ---------------------------------------------------------------------- the command


class Step:
    """One call of `srun`: tasks here and elsewhere, their output, the worst exit code."""

    def __init__(self, asked: argparse.Namespace, counts: list[int], names: list[str]) -> None:
        self._asked, self._counts, self._names = asked, counts, names
        self._codes: dict[int, int] = {}
        self._total = sum(counts)
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._partial: dict[tuple[int, int], bytes] = {}
        self._elsewhere: Line | None = None
        labels = self._say if asked.label else None
        self._here = Local(labels, self._over)

    def run(self) -> int:
        """Start all, see them through; the exit code."""
        common = {"SLURM_STEP_ID": str(_step_number())}
        env = dict(os.environ)
        env.pop("GANGER_TASKS", None)  # a task of srun starts no tasks of its own
        if os.environ.get("MASTER_PORT") == os.environ.get("GANGER_MASTER_PORT", ""):
            env["MASTER_PORT"] = str(free_port())
        by_node = tasks(self._counts, self._names, common)
        for caught in (signal.SIGTERM, signal.SIGINT):
            signal.signal(caught, lambda number, _: self._signal(number))
        cwd = os.path.abspath(self._asked.chdir) if self._asked.chdir else os.getcwd()
        if len(by_node) > 1:
            self._ask(by_node, env, cwd)
        for own in by_node[0]:
            rank = int(own["SLURM_PROCID"])
            self._here.start(rank, self._asked.argv, {**env, **own}, cwd)
        while not self._done.wait(0.2):
            continue  # a plain wait would hold back signals
        with self._lock:
            for (rank, number), rest in self._partial.items():
                self._write(rank, number, rest + b"\n" if rest else b"")
            return max(code if code >= 0 else 128 - code for code in self._codes.values())

    def _ask(self, by_node: list[list[dict[str, str]]], env: dict[str, str], cwd: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with At(os.environ["GANGER_DIR"]) as path:
                sock.connect(path)
        except (OSError, KeyError):
            raise Refused("the job's other nodes cannot be reached from here") from None
        line = self._elsewhere = Line(sock)
        nodes = {
            str(node): [(int(own["SLURM_PROCID"]), own) for own in parts]
            for node, parts in enumerate(by_node)
            if node
        }
        line.send({"nodes": nodes, "common": {"argv": self._asked.argv, "env": env, "cwd": cwd}})
        threading.Thread(target=self._hear, args=(line, nodes), daemon=True).start()

    def _hear(self, line: Line, nodes: dict[str, list[tuple[int, dict[str, str]]]]) -> None:
        while (message := line.receive()) is not None:
            if "lost" in message:
                self._lose(nodes, [message["lost"]])
            elif "code" in message:
                self._over(message["rank"], message["code"])
            else:
                self._say(message["rank"], message["stream"], base64.b64decode(message["data"]))
        self._lose(nodes, [int(node) for node in nodes])

    def _lose(self, nodes: dict[str, list[tuple[int, dict[str, str]]]], lost: list[int]) -> None:
        for node in lost:
            gone = [rank for rank, _ in nodes.get(str(node), []) if rank not in self._codes]
            if gone:
                sys.stderr.write(f"srun: node {self._names[node]} is gone\n")
            for rank in gone:
                self._over(rank, 1)

    def _say(self, rank: int, number: int, data: bytes) -> None:
        """Write what a task wrote: with labels by whole lines, else as it comes."""
        with self._lock:
            if not self._asked.label:
                _write_all(number, data)
                return
            *lines, rest = (self._partial.get((rank, number), b"") + data).split(b"\n")
            self._partial[rank, number] = rest
            for line in lines:
                self._write(rank, number, line + b"\n")

    def _write(self, rank: int, number: int, line: bytes) -> None:
        if line:
            width = len(str(self._total - 1))
            _write_all(number, f"{rank:{width}}: ".encode() + line)

    def _over(self, rank: int, code: int) -> None:
        with self._lock:
            self._codes[rank] = code
            over = len(self._codes) == self._total
        if code and not over:
            text = f"exit code {code}" if code > 0 else f"signal {-code}"
            sys.stderr.write(f"srun: task {rank}: {text}\n")
        if over:
            self._done.set()
        elif code and self._asked.kill_on_bad_exit == "1":
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        self._here.signal(number)
        if self._elsewhere is not None:
            with contextlib.suppress(OSError):
                self._elsewhere.send({"signal": int(number)})


def _write_all(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


def _step_number() -> int:
    """How many steps of this part there were, counted in its folder."""
    folder, number = os.environ.get("GANGER_DIR", ""), 0
    while folder:
        try:
            os.close(os.open(f"{folder}/step.{number}", os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            number += 1
        except OSError:
            break
    return number


def srun(words: list[str]) -> int:
    """`srun WORDS`; the exit code."""
    asked = parse(words)
    slots = os.environ.get("GANGER_TASKS", "")
    if not slots:
        if "SLURM_STEP_ID" in os.environ:
            raise Refused("this is a task of srun, which starts no tasks of its own")
        raise Refused("this job runs its command in each task already; submit it with --per job")
    names = os.environ.get("SLURM_JOB_NODELIST", "").split(",")
    return Step(asked, spread(asked, [int(one) for one in slots.split(",")]), names).run()


def main() -> int:
    """One of the three, by the first word."""
    try:
        if sys.argv[1:2] == ["--lead"]:
            return lead(sys.argv[2:])
        if sys.argv[1:2] == ["--follow"]:
            return follow()
        return srun(sys.argv[1:])
    except Refused as why:
        sys.stderr.write(f"srun: {why}\n")
        return 2
