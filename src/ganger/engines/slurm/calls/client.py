"""Slurm's commands, called with argument vectors. One call, one request to the controller."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.engines.slurm.calls.answers import Away, Job, Node, jobs_of, nodes_of

TIMEOUT_SECONDS: Final = 20.0
_WARN_SECONDS: Final = 60
"""Before the end of a job's time its batch script is told; Slurm may do so a minute early."""
_AWAY: Final = re.compile(
    "Unable to contact|Connection refused|timed out|connect failure|Socket timed|"
    "Zero Bytes|backup controller"
)

_MENDS: Final = {
    "Could not establish a configuration source": "ask on a machine of the cluster, or set "
    "SLURM_CONF to its slurm.conf",
    "Invalid account or account/partition combination specified": "--sbatch-options "
    "'--account=NAME', as sbatch wants it",
}
_FAILURES: Final = ("Batch job submission failed: ", "allocation failure: ")
_PASSES: Final = (
    "Required partition not available",
    "Requested node configuration is not available",
    "Requested nodes are busy",
    "Job violates accounting/QOS policy",
)
"""Why Slurm takes no job now, though it may later."""

_OURS: Final = frozenset(
    {
        "array",
        "chdir",
        "comment",
        "cpus-per-gpu",
        "cpus-per-task",
        "error",
        "exclude",
        "export",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "gres",
        "het-group",
        "hold",
        "job-name",
        "mem",
        "mem-per-cpu",
        "mem-per-gpu",
        "nodelist",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "open-mode",
        "output",
        "parsable",
        "partition",
        "requeue",
        "no-requeue",
        "signal",
        "time",
        "wrap",
        "wait",
    }
)
"""Options of sbatch that are the engine's to give."""


def options_of(text: str, where: str = "--sbatch-options") -> tuple[str, ...]:
    """The options of sbatch in `text`: long ones, like `--account=a --qos=b`. Raises BadInput."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{text!r}: {error}", where=where) from None
    for word in words:
        match = re.fullmatch(r"--([a-z][a-z-]*)(=.*)?", word)
        if match is None:
            raise BadInput(
                f"{word!r} is not a long option", where=where, mend="write --account=NAME"
            )
        if match[2] == "=":
            raise BadInput(f"--{match[1]} has no value", where=where, mend="write --account=NAME")
        if match[1] in _OURS:
            raise BadInput(f"--{match[1]} is for Ganger to give", where=where, mend="leave it out")
    return tuple(words)


class Component(NamedTuple):
    """Like nodes of a job: on each, `gpus` of `gpu_type`, whole `cpus`, MiB of `memory`."""

    nodes: tuple[str, ...]
    gpu_type: str
    gpus: int
    cpus: int
    memory: int


def _gres(gpu_type: str, gpus: int) -> str:
    kind = f":{gpu_type}" if gpu_type not in ("", "gpu") else ""
    return f"--gres=gpu{kind}:{gpus}"


class Client:
    """The commands, for jobs of `partition` (empty: the site's default) that are submitted with
    further `options` of sbatch, such as `--account=vision`."""

    def __init__(
        self,
        partition: str = "",
        options: Sequence[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.partition, self._options = partition, tuple(options)
        self._timeout = timeout_seconds
        self._default = ""
        self._release: tuple[int, int] | None = None

    def _run(self, command: Sequence[str], given: str = "") -> str:
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                text=True,
                timeout=self._timeout,
                check=False,
                cwd="/",
            )
        except FileNotFoundError:
            raise BadInput(
                f"{command[0]} is not here", where="Slurm", mend="install Slurm's client commands"
            ) from None
        except subprocess.TimeoutExpired:
            raise Away(f"{command[0]} timed out") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line and line[:4] != "Try "]
            why = said[-1] if said else f"exit code {done.returncode}"
            for word in (f"{command[0]}: ", "fatal: ", "error: ", *_FAILURES):
                why = why.removeprefix(word)
            if _AWAY.search(done.stderr):
                raise Away(why)
            mend = _MENDS.get(why, "")
            raise BadInput(why, where=command[0], mend=mend)
        return done.stdout

    @property
    def release(self) -> tuple[int, int]:
        """Slurm's version: (22, 5). Raises BadInput."""
        if self._release is None:
            said = self._run(["sinfo", "--version"])
            match = re.search(r"(\d+)\.(\d+)", said)
            if match is None:
                raise BadInput(f"no version in {said!r}", where="sinfo --version")
            self._release = int(match[1]), int(match[2])
        return self._release

    def nodes(self) -> list[Node]:
        """All nodes of the partition. Raises BadInput, Away."""
        command = ["scontrol", "show", "nodes", "--json"]
        if self.release < (23, 2):
            command = ["sinfo", "--json"]
        found = nodes_of(self._run(command), " ".join(command))
        if not self._default:
            self._default = self.partition or self._default_partition()
        wanted = self._default
        found = [node for node in found if wanted in node.partitions]
        if not found:
            raise BadInput(f"no node is in partition {wanted!r}", where="--partition")
        return found

    def _default_partition(self) -> str:
        for line in self._run(["scontrol", "-o", "show", "partitions"]).splitlines():
            fields = dict(word.partition("=")[::2] for word in line.split())
            if fields.get("Default") == "YES":
                return fields["PartitionName"]
        raise BadInput(
            "Slurm has no default partition", where="--partition", mend="name a partition"
        )

    def jobs(self) -> list[Job]:
        """All jobs that the controller remembers. Raises BadInput, Away."""
        return jobs_of(self.listing())

    def listing(self) -> str:
        """What the controller says of all jobs that it remembers. Raises BadInput, Away."""
        return self._run(["squeue", "--json", "--states=all"])

    def sacct(self, columns: Sequence[str], since_days: float) -> str:
        """What the accounting says of all users' jobs of the last days. Raises BadInput, Away."""
        since = f"--starttime=now-{max(round(since_days * 1440), 1)}minutes"
        return self._run(
            [
                "sacct",
                "--allusers",
                "--allocations",
                "--parsable2",
                since,
                f"--format={','.join(columns)}",
            ]
        )

    def check(self, gpu_type: str) -> None:
        """Have Slurm say whether it takes the options, for a job of one such GPU that is not
        submitted. That no job can start now does not count as a fault. Raises BadInput, Away."""
        given = [option for option in self._options if "=" in option]
        bare = [option for option in self._options if "=" not in option]
        command = ["sbatch", "--test-only", "--export=NIL", "--nodes=1", _gres(gpu_type, 1)]
        if self.partition:
            command.append(f"--partition={self.partition}")
        for last in bare or [
            ""
        ]:  # where its value is missing, it would take the next option for it
            try:
                self._run([*command, *given, *filter(None, [last])], "#!/bin/sh\n")
            except BadInput as error:
                if not error.what.startswith(_PASSES):
                    mend = error.mend or "give options as sbatch wants them"
                    raise BadInput(error.what, where="--sbatch-options", mend=mend) from None

    def submit(
        self,
        components: Sequence[Component],
        argv: Sequence[str],
        *,
        name: str,
        comment: str,
        output: str,
        minutes: int = 0,
    ) -> int:
        """Submit a job that runs `argv` on its first node, which gets SIGUSR1 before its time is
        over; its number. Raises BadInput, Away."""
        command = ["sbatch", "--parsable"]
        for i, one in enumerate(components):
            command += [":"] * bool(i)
            command += [
                f"--job-name={name}",
                f"--comment={comment}",
                "--no-requeue",
                f"--nodelist={','.join(one.nodes)}",
                f"--nodes={len(one.nodes)}",
                "--ntasks-per-node=1",
                f"--cpus-per-task={max(one.cpus, 1)}",
            ]
            if one.memory:
                command.append(f"--mem={one.memory}M")
            if one.gpus:
                command.append(_gres(one.gpu_type, one.gpus))
            command += self._options
            if self.partition:
                command.append(f"--partition={self.partition}")
            if minutes:
                command.append(f"--time={minutes}")
            if not i:
                command += [
                    "--export=NIL",
                    "--open-mode=append",
                    f"--output={output}",
                    f"--signal=B:USR1@{_WARN_SECONDS}",
                ]
        return self._sbatch(command, argv)

    def hold(
        self,
        gpu_type: str,
        gpus: int,
        argv: Sequence[str],
        *,
        name: str,
        comment: str,
        output: str,
        minutes: int,
        grace_seconds: int,
    ) -> int:
        """Submit a job that holds a whole node of this kind and runs `argv` there, which gets
        SIGUSR1 `grace_seconds` before its time is over; its number. Raises BadInput, Away."""
        command = [
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--comment={comment}",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            "--exclusive",
            "--mem=0",
            "--export=NIL",
            f"--output={output}",
            f"--signal=B:USR1@{grace_seconds}",
            *self._options,
        ]
        if gpus:
            command.append(_gres(gpu_type, gpus))
        if self.partition:
            command.append(f"--partition={self.partition}")
        if minutes:
            command.append(f"--time={minutes}")
        return self._sbatch(command, argv)

    def _sbatch(self, command: Sequence[str], argv: Sequence[str]) -> int:
        script = f"#!/bin/sh\nexec {shlex.join(argv)}\n"
        said = self._run(command, script).strip().partition(";")[0]
        if not said.isdecimal():
            raise BadInput(f"no job number in {said!r}", where="sbatch --parsable")
        return int(said)

    def signal(self, job: int, number: str) -> None:
        """Send a signal to the job's batch script alone. Raises BadInput, Away."""
        self._run(["scancel", "--batch", f"--signal={number}", str(job)])

    def cancel(self, job: int) -> None:
        """End the job. Raises BadInput, Away."""
        self._run(["scancel", str(job)])
