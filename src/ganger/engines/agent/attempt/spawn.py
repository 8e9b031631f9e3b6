"""The environment of a worker, and how it becomes a process. No shell on the way."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ganger.core.units import WHOLE
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.engines.agent.attempt.cgroup import Group
from ganger.engines.agent.attempt.processes import die_with_parent, fork_into
from ganger.engines.agent.protocol import Go, Part, Prepare
from ganger.engines.agent.rights import account
from ganger.engines.launch import Launch
from ganger.sdk.ceiling import CEILING
from ganger.sdk.srun import compressed
from ganger.sdk.steps import SECRET

_KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
JOB_FOLDER: Final = "GANGER_DIR"
"""Set for all processes of a part, to the folder that it alone has on its machine."""
IS_SLURMS: Final = "GANGER_SLURM_JOB"
"""Set for the processes of an attempt that is a Slurm job, to its number; a pilot's are not."""
_OF_SLURM: Final = (
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_QOS",
    "SLURM_JOB_GPUS",
    "SLURM_CLUSTER_NAME",
    "SLURMD_NODENAME",
    "SLURM_CONF",
)
HELD: Final = "held"
"""The folder beside the SDK with what Python runs first in jobs with a ceiling of GPU memory."""
_AT_IMPORT: Final = ("PYTHON", "LD_", "OMP_", "MKL_", "TORCH_", "PATH", "HOME", "VIRTUAL_ENV")
_ZYGOTE_SECONDS: Final = 5.0
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class Places(NamedTuple):
    """Folders of the part on this machine."""

    job: Path
    """Where the SDK's socket and the `leave` file are."""
    cwd: Path
    checkpoints: Path
    script: Path
    """The launch's script, if it has one."""
    sdk: Path
    """What goes on PYTHONPATH; holds the SDK and nothing else."""


class Worker(NamedTuple):
    """One process to start."""

    argv: tuple[str, ...]
    env: dict[str, str]
    rank: int


def workers_of(
    prepare: Prepare,
    go: Go,
    places: Places,
    devices_before: int,
    by_role: Mapping[int, Mapping[str, str]],
) -> list[Worker]:
    """The processes of this part. `devices_before`: GPUs of the agent's earlier seats, by which
    the seat's device numbers are moved; `by_role`: more of the environment of a role's workers."""
    found = []
    for part in prepare.parts:
        local = range(part.workers if prepare.launch.per == "worker" else 1)
        role = prepare.launch.shape.roles[part.role].name
        argv = prepare.launch.commands.get(role, prepare.launch.command)
        if prepare.launch.script:
            argv = (str(places.script), *argv)
        if prepare.launch.listens:
            argv = (str(places.sdk.with_name("bin") / _REPLICA), *argv)
        if prepare.launch.steps and part.nodes > 1:
            srun = str(places.sdk.with_name("bin") / "srun")
            argv = (srun, "--lead", *argv) if part.node_rank == 0 else (srun, "--follow")
        for i in local:
            env = _environment(prepare, part, go, places, devices_before, i, role)
            env |= by_role.get(part.role, {})
            found.append(Worker(argv, env, part.first_rank + i))
    return found


def _environment(
    prepare: Prepare, part: Part, go: Go, places: Places, devices_before: int, i: int, role: str
) -> dict[str, str]:
    launch, key = prepare.launch, prepare.key
    per_worker = launch.per == "worker"
    devices = ",".join(str(devices_before + device) for device in part.devices)
    needs = launch.shape.roles[part.role].needs
    cpus = needs.cpus
    ours: dict[str, object] = {
        "RANK": part.first_rank + i if per_worker else part.node_rank,
        "WORLD_SIZE": part.world_size if per_worker else part.nodes,
        "LOCAL_RANK": i,
        "LOCAL_WORLD_SIZE": part.workers if per_worker else 1,
        "GROUP_RANK": part.node_rank,
        "NODE_RANK": part.node_rank,
        "ROLE_RANK": part.role_rank + i,
        "ROLE_WORLD_SIZE": part.role_size,
        "MASTER_ADDR": go.master_address,
        "MASTER_PORT": go.master_port,
        "TORCHELASTIC_RUN_ID": f"ganger-{key.job}",
        "TORCHELASTIC_RESTART_COUNT": key.attempt - 1,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": devices,
        "GANGER_JOB": key.job,
        "GANGER_ATTEMPT": key.attempt,
        "GANGER_JOB_NAME": launch.name,
        "GANGER_NODES": part.nodes,
        "GANGER_NODE_RANK": part.node_rank,
        "GANGER_WORKERS": part.workers,
        "GANGER_ROLE": role,
        JOB_FOLDER: places.job,
        "GANGER_CHECKPOINT_DIR": places.checkpoints,
    }
    env = _base(launch.uid)
    env["OMP_NUM_THREADS"] = str(max(cpus // WHOLE, 1))
    env |= launch.env
    ours |= _slurms(launch, part, i, cpus // WHOLE)
    if IS_SLURMS not in os.environ and "GANGER_JOB_ID" in launch.env:
        ours |= _for_srun(launch, part, go)
        env["PATH"] = f"{places.sdk.with_name('bin')}:{env['PATH']}"
    if needs.gpu_memory and part.devices:
        ours[CEILING] = needs.gpu_memory
        env["PYTHONPATH"] = ":".join(
            filter(None, (str(places.sdk.with_name(HELD)), env.get("PYTHONPATH")))
        )
    return _with_sdk(env, places.sdk) | {name: str(value) for name, value in ours.items()}


def _for_srun(launch: Launch, part: Part, go: Go) -> dict[str, object]:
    """What scripts and our own `srun` read of the job's nodes. Only a command that runs once has
    tasks to start."""
    if not go.hosts or not all(go.hosts):
        return {}
    found: dict[str, object] = {
        "SLURM_JOB_NODELIST": ",".join(go.hosts),
        "SLURMD_NODENAME": go.hosts[part.node_rank],
        "SLURM_TASKS_PER_NODE": compressed(list(go.tasks)),
    }
    if part.devices:
        found["SLURM_GPUS_ON_NODE"] = len(part.devices)
    if launch.per == "job" or part.world_size == 1:
        found |= {
            "GANGER_TASKS": ",".join(map(str, go.tasks)),
            "GANGER_MASTER_PORT": go.master_port,
        }
    if launch.steps and part.nodes > 1:
        found[SECRET] = go.secret
    return found


def _slurms(launch: Launch, part: Part, i: int, cores: int) -> dict[str, object]:
    """What sbatch's batch script (`per` job) or srun's tasks would find in Slurm's variables. Where
    the attempt is a Slurm job, its number and what else Slurm alone can say are Slurm's.

    SLURM_JOBID and SLURM_NODELIST are never set, by which MPI starters look for Slurm's daemons.
    """
    job, task = launch.env.get("GANGER_JOB_ID"), launch.env.get("GANGER_ARRAY_INDEX")
    if job is None:
        return {}
    found: dict[str, object] = {}
    if IS_SLURMS in os.environ:
        job = os.environ[IS_SLURMS]
        found |= {name: os.environ[name] for name in _OF_SLURM if name in os.environ}
    if task is not None:
        found["SLURM_ARRAY_TASK_ID"] = task
        found["SLURM_ARRAY_JOB_ID"] = launch.env["GANGER_ARRAY_ID"]
    if cores:
        found["SLURM_CPUS_PER_TASK"] = cores
    return found | {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NAME": launch.name,
        "SLURM_NNODES": part.nodes,
        "SLURM_JOB_NUM_NODES": part.nodes,
        "SLURM_NODEID": part.node_rank,
        "SLURM_LOCALID": i,
        "SLURM_NTASKS": part.nodes if launch.per == "node" else part.world_size,
        "SLURM_PROCID": part.first_rank + i if launch.per == "worker" else part.node_rank,
    }


_REPLICA: Final = "ganger-replica"
PROGRAMS: Final = {"srun": "srun", "scontrol": "scontrol", _REPLICA: "replica"}
"""Programs that jobs find on their PATH, each with its module of the SDK: Slurm's as ours, and what
the commands of replicas are started with."""


def starter(path: Path, sdk: Path) -> str:
    """The text of an executable at `path` that starts one of `PROGRAMS` by this agent's Python, or
    by the machine's where the job's user may not run that one."""
    start = (
        f"import sys; sys.path.insert(0, {str(sdk)!r}); sys.argv[0] = {str(path)!r}; "
        f"from ganger.sdk.{PROGRAMS[path.name]} import main; sys.exit(main())"
    )
    python, code = shlex.quote(sys.executable), shlex.quote(start)
    return (
        f'#!/bin/sh\n[ -x {python} ] && exec {python} -I -c {code} "$@"\n'
        f'exec python3 -I -c {code} "$@"\n'
    )


def imports_environment(launch: Launch, sdk: Path) -> dict[str, str]:
    """What of a job's environment matters to what it imports."""
    env = _base(-1)
    env["OMP_NUM_THREADS"] = str(max(launch.shape.roles[0].needs.cpus // WHOLE, 1))
    env |= {name: value for name, value in launch.env.items() if name.startswith(_AT_IMPORT)}
    return _with_sdk(env, sdk)


def _with_sdk(env: dict[str, str], sdk: Path) -> dict[str, str]:
    path = env.get("PYTHONPATH")
    return env | {"PYTHONPATH": f"{path}:{sdk}" if path else str(sdk)}


def _base(uid: int) -> dict[str, str]:
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env.setdefault("PATH", _PATH)
    if uid >= 0 and uid != os.getuid():
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(uid)
            env |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    return env


def become(launch: Launch) -> None:
    """Turn this process into its user for good."""
    if launch.uid < 0 or (launch.uid == os.getuid() and launch.gid in (-1, os.getgid())):
        return
    gid, groups = account(launch.uid, launch.gid)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(launch.uid, launch.uid, launch.uid)


class Stage(NamedTuple):
    """What the workers of a part have in common. `output`, `error`: descriptors; `cores`: those
    that they run on, none: on all."""

    launch: Launch
    group: Group
    cwd: str
    output: int
    error: int
    umask: int
    cores: frozenset[int] = frozenset()


def ask(zygote: str, worker: Worker, stage: Stage) -> tuple[int, socket.socket] | None:
    """Have the zygote at this socket fork the worker: its process number, and where its wait status
    will be written. None if nobody answers."""
    request = {
        "argv": worker.argv[1:],
        "env": worker.env,
        "cwd": stage.cwd,
        "umask": stage.umask,
        "groups": list(stage.group.paths.values()),
        "cores": sorted(stage.cores),
    }
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(_ZYGOTE_SECONDS)
    try:
        with short_path(Path(zygote).parent, Path(zygote).name) as path:
            sock.connect(path)
        first, rest = (data := msgspec.json.encode(request) + b"\n")[:1024], data[1024:]
        socket.send_fds(sock, [first], [stage.output, stage.error])
        sock.sendall(rest)
        line = b""
        while not line.endswith(b"\n") and (byte := sock.recv(1)):  # the status may follow at once
            line += byte
        return int(line), sock
    except (OSError, ValueError):
        sock.close()
        return None


def spawn(worker: Worker, stage: Stage) -> int:
    """Start a worker in a session of its own and return its process number. Raises OSError."""
    parent = os.getpid()
    told, tell = os.pipe2(os.O_CLOEXEC)
    pid, inside = fork_into(stage.group.paths.get("v2"))
    if not pid:
        try:
            os.setsid()
            stage.group.enter(inside)
            if stage.cores:
                os.sched_setaffinity(0, stage.cores)
            become(stage.launch)
            die_with_parent(parent)
            for one in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(one, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.umask(stage.umask)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stage.output, 1)
            os.dup2(stage.error, 2)
            os.chdir(stage.cwd)
            os.execvpe(worker.argv[0], worker.argv, worker.env)
        except BaseException as why:
            errno, text = (why.errno, why.strerror) if isinstance(why, OSError) else (0, str(why))
            os.write(tell, f"{errno} {text}".encode())
        finally:
            os._exit(127)
    os.close(tell)
    with open(told, "rb") as pipe:
        problem = pipe.read().decode(errors="replace")
    if problem:
        os.waitpid(pid, 0)
        number, _, reason = problem.partition(" ")
        raise OSError(int(number), reason)
    return pid
