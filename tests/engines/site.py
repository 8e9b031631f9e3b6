"""A Slurm of the tests' own: a controller and node daemons on this machine's loopback."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from engines import lifeline
from engines.rig import processes_with

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
PATIENCE_SECONDS = 30.0
FREEZER = "/sys/fs/cgroup/freezer"
_JOBS = 10_000
"""More than any site of the tests ever has."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

CONF = """\
ClusterName=ganger
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
KillWait=10
UnkillableStepTimeout=600
FirstJobId={first}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MinJobAge=300
SlurmdTimeout=5
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
"""


def missing() -> str:
    """Why no Slurm can be started here; empty if one can, or if GANGER_REQUIRE_SLURM says that it
    must."""
    if os.environ.get("GANGER_REQUIRE_SLURM"):
        return ""
    absent = [name for name in NEEDED if shutil.which(name, path=_PATH) is None]
    if absent:
        return (
            f"NO SLURM HERE, ITS ENGINE IS NOT TESTED: {', '.join(absent)} not found "
            "(apt-get install slurmctld slurmd slurm-client munge)"
        )
    return "" if os.getuid() == 0 else "NO SLURM HERE, ITS ENGINE IS NOT TESTED: only root can"


def tracking() -> str:
    """How most sites have Slurm hold jobs, if it can be done here: Slurm's signals then reach what
    it started itself. Else, all processes of the job."""
    return "cgroup" if os.access(FREEZER, os.W_OK) else "linuxproc"


class Site:
    """`nodes`: name to (GPU type, GPUs). All state lies in `root`, whose path must be short. Jobs
    in the partition `urgent` make those in `main` leave."""

    def __init__(
        self,
        root: Path,
        nodes: Mapping[str, tuple[str, int]],
        holds_by: str = tracking(),
        more: str = "",
    ) -> None:
        self.root, self.nodes, self._holds_by, self._more = root, nodes, holds_by, more
        self.env = {
            **os.environ,
            "SLURM_CONF": str(root / "slurm.conf"),
            "PATH": _PATH,
            lifeline.OWNER: lifeline.identity(os.getpid()),
        }
        self.env.pop("PYTHONWARNINGS", None)
        self._configure()

    def _program(self, name: str) -> Path:
        """The daemon under its own name: it looks at what it is called."""
        link = self.root / "bin" / name
        if not link.exists():
            found = shutil.which(f"{name}-wlm", path=_PATH) or shutil.which(name, path=_PATH)
            assert found is not None
            link.symlink_to(found)
        return link

    def _configure(self) -> None:
        root = self.root
        for name in ("bin", "state", "spool", "dev"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "munge.key").write_bytes(os.urandom(1024))
        (root / "munge.key").chmod(0o600)
        self._ports = Ports(len(self.nodes) + 1)
        ports = self._ports.numbers
        host = socket.gethostname()
        # Names of cgroups are those of nodes and jobs, whosever they are.
        self.first_job = random.SystemRandom().randrange(1, 60_000_000)
        lines = [
            CONF.format(
                host=host, port=ports[0], root=root, tracking=self._holds_by, first=self.first_job
            )
        ]
        (root / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
        )
        gres = []
        for (name, (kind, count)), port in zip(self.nodes.items(), ports[1:], strict=True):
            (root / "dev" / name).mkdir(exist_ok=True)
            (root / "spool" / name).mkdir(exist_ok=True)
            for i in range(count):
                (root / "dev" / name / f"nvidia{i}").symlink_to("/dev/null")
            devices = f"{root}/dev/{name}/nvidia[0-{count - 1}]"
            gres.append(
                f"NodeName={name} Name=gpu Type={kind} File={devices} Flags=nvidia_gpu_env\n"
            )
            lines.append(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 "
                "Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=16000 "
                f"Gres=gpu:{kind}:{count} State=UNKNOWN\n"
            )
        every = ",".join(self.nodes)
        lines.append(
            f"PartitionName=main Nodes={every} Default=YES MaxTime=INFINITE State=UP GraceTime=8\n"
        )
        lines.append(f"PartitionName=urgent Nodes={every} PriorityTier=9 State=UP\n")
        (root / "slurm.conf").write_text("".join([*lines, self._more]))
        (root / "gres.conf").write_text("".join(gres))

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        root = self.root
        subprocess.run(
            [
                "munged",
                "--force",
                f"--key-file={root}/munge.key",
                f"--socket={root}/munge.sock",
                f"--pid-file={root}/munged.pid",
                f"--log-file={root}/munged.log",
                f"--seed-file={root}/munge.seed",
            ],
            env=self.env,
            check=True,
        )
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self.wait_idle()

    def start_controller(self) -> None:
        """Start the controller and wait until it answers."""
        program = self._program("slurmctld")
        subprocess.run([program, "-f", self.root / "slurm.conf"], env=self.env, check=True)
        late = time.monotonic() + PATIENCE_SECONDS
        while "UP" not in self.ask("scontrol", "ping"):
            assert time.monotonic() < late, (self.root / "slurmctld.log").read_text()
            time.sleep(0.1)

    def start_node(self, name: str) -> None:
        """Start a node daemon."""
        self._program("slurmstepd")
        command = [str(self._program("slurmd")), "-d", str(self.root / "bin" / "slurmstepd")]
        command += ["-N", name, "-f", str(self.root / "slurm.conf")]
        subprocess.run(command, env=self.env, check=True)

    def wait_idle(self) -> None:
        """Wait until no node is anything but idle."""
        late = time.monotonic() + PATIENCE_SECONDS
        while set(self.ask("sinfo", "-h", "-N", "-o", "%t").split()) != {"idle"}:
            assert time.monotonic() < late, self.ask("sinfo", "-N", "-o", "%N %t %E")
            time.sleep(0.1)

    def ask(self, *command: str) -> str:
        """What a Slurm command prints."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout + done.stderr

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal a daemon: `slurmctld`, `slurmd.NODE`, `munged`, and wait until it is gone."""
        try:
            pid = int((self.root / f"{name}.pid").read_text())
            os.kill(pid, number)
        except (OSError, ValueError):
            return
        late = time.monotonic() + PATIENCE_SECONDS
        while _lives(pid):
            if time.monotonic() > late:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def kill_node(self, name: str) -> None:
        """As if the machine lost its power: its daemon goes, and all that ran there, at once."""
        self.kill(f"slurmd.{name}")
        there = set(processes_with(f"SLURMD_NODENAME={name}"))
        there &= set(processes_with(f"SLURM_CONF={self.env['SLURM_CONF']}"))
        keepers = {parent for pid in there if (parent := _parent(pid)) not in there}
        for pid in sorted(keepers - {0, 1}) + sorted(there):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def requests(self) -> dict[str, int]:
        """What the controller was asked since `sdiag --reset`, by kind; without sdiag's own."""
        part = self.ask("sdiag").partition("by message type")[2].partition("by user")[0]
        found = re.findall(r"REQUEST_(\w+) .*?count:(\d+)", part)
        return {kind: int(count) for kind, count in found if kind != "STATS_INFO"}

    def clear(self) -> None:
        """Kill and cancel every job and wait until none is left."""
        late = time.monotonic() + PATIENCE_SECONDS
        while jobs := self.ask("squeue", "-h", "-o", "%A").split():
            assert time.monotonic() < late, jobs
            self.ask("scancel", "--full", "--signal=KILL", *jobs)
            self.ask("scancel", *jobs)
            time.sleep(0.1)

    def stop(self) -> None:
        """End everything."""
        for name in ("slurmctld", *(f"slurmd.{node}" for node in self.nodes), "munged"):
            self.kill(name, signal.SIGKILL)
        for pid in processes_with(f"SLURM_CONF={self.env['SLURM_CONF']}"):
            if pid != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self._clear_cgroups()
        self._ports.release()

    def _clear_cgroups(self) -> None:
        """Remove what is left of this site's jobs. What is empty may be another site's, whose step
        is about to begin there: without its folder, it ends before it ran anything."""
        for folder in glob.glob(f"{FREEZER}/slurm_*/uid_*/job_*"):
            number = folder.rpartition("job_")[2]
            if number.isdecimal() and 0 <= int(number) - self.first_job < _JOBS:
                for inner, _, _ in os.walk(folder, topdown=False):
                    with contextlib.suppress(OSError):  # a process that is ending is in it
                        os.rmdir(inner)


def _lives(pid: int) -> bool:
    return _stat(pid)[0] != "Z"


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """State, parent and so on of a process; `Z` and 0 for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z", "0"]


@contextlib.contextmanager
def standing(
    nodes: Mapping[str, tuple[str, int]], holds_by: str = tracking(), more: str = ""
) -> Iterator[Site]:
    """A Slurm that is up, and whose commands this process finds; all of it ends with the block.
    `more`: lines for its slurm.conf."""
    lifeline.clear_leftovers()
    root = Path(tempfile.mkdtemp(prefix="slurm-"))
    before = os.environ.copy()
    site = Site(root, nodes, holds_by, more)
    tied = lifeline.tie(f"SLURM_CONF={site.env['SLURM_CONF']}", root)
    try:
        site.start()
        os.environ.update(SLURM_CONF=site.env["SLURM_CONF"], PATH=site.env["PATH"])
        yield site
    finally:
        os.environ.clear()
        os.environ.update(before)
        site.stop()
        shutil.rmtree(root, ignore_errors=True)
        tied.communicate()


class Ports:
    """Ports that nobody else takes while this object lives: a block of `count` below those that the
    kernel hands out, ours by a lock on a file, and free when it was taken."""

    FIRST, LAST, BLOCK = 10_000, 30_000, 100

    def __init__(self, count: int) -> None:
        assert count <= self.BLOCK
        ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        last = min(self.LAST, int(ephemeral[0]))
        folder = Path(tempfile.gettempdir()) / "ganger-ports"
        folder.mkdir(exist_ok=True)
        for first in range(self.FIRST, last - self.BLOCK, self.BLOCK):
            lock = (folder / str(first)).open("ab")
            self.numbers = list(range(first, first + count))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for port in self.numbers:
                    socket.create_server(("", port)).close()
            except OSError:
                lock.close()
                continue
            self._lock = lock
            return
        raise AssertionError("no ports are free")

    def release(self) -> None:
        """Let others have them."""
        self._lock.close()
