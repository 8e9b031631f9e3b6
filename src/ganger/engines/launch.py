"""What an engine must know to start a job, beyond where: the owner of the engine supplies it."""

from __future__ import annotations

from typing import Final

import msgspec

from ganger.core.spec import OnPreempt, Shape
from ganger.core.units import NEVER, SECOND

MIB: Final = 1 << 20
PER: Final = ("worker", "node", "job")
KILLS: Final = 10
"""So often in a row may the supervisor of a job be killed soon after a start: whoever does that
without end (the job itself, or the kernel where the job takes all memory) keeps devices from
others, and is no failure of a node."""
SUPERVISOR_KILLED: Final = "the supervisor of the job was killed"


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one job is launched. Times in microseconds, no shell anywhere: `command` is an argv.

    `command` is run once per worker, per node, or once (`per`: `worker`, `node`, `job`); a role's
    own command, if `commands` has one by its name, goes before. `env` is added to the agent's own
    small environment, Ganger's variables last. Empty paths mean the agent's: `output`
    is `logs/JOB.ATTEMPT.log`, `error` goes where `output` goes, `cwd` is the job's folder,
    `checkpoint_dir` is `checkpoints/JOB`. `output_limit` (bytes) bounds each output: beyond it only
    the last 64 KiB are kept.

    `limit`: running time after which an attempt is stopped and its job has failed. A preempted
    attempt has `grace` to save and leave, then gets SIGTERM, and SIGKILL `kill_after` later.
    `retries`: how many failed attempts are forgiven *from now on* (asked anew at each failure).
    `kills`: how many times more its supervisor may be killed soon after a start, likewise.
    `step_micros`: time of one step at rate 1; 0: as first measured. `uid` and `gid`: the user and
    group that the job runs as, -1 for the agent's own user. `warm`: modules to have imported before
    the start: the command must then be `[python, script.py, ...]` or `[python, -m, module, ...]`.
    `script`: text of a file that is made beside the attempt and executed, with `command` as its
    arguments. `steps`: of a command that runs once, the other nodes start what its `srun` asks for.
    `hollow`: nothing is run: the attempt holds its devices for the children of its job. `metric`:
    the one that a trial is judged by, of those that it reports; empty: the first. `printed`: what
    the job prints of it is a report, too, until it reports by the SDK; and what it prints of
    `metrics` in the same line belongs to that. `copies`: a job's number or
    a folder: where this job has no checkpoints of its own, it begins with a copy of those.
    `listens`: `{port}` in `command` is a port that is free where it runs (`sdk/replica.py`).
    """

    command: tuple[str, ...]
    commands: dict[str, tuple[str, ...]] = {}
    name: str = ""
    shape: Shape = Shape()
    per: str = "worker"
    env: dict[str, str] = {}
    cwd: str = ""
    output: str = ""
    error: str = ""
    output_limit: int = 64 * MIB
    checkpoint_dir: str = ""
    limit: int = NEVER
    on_preempt: OnPreempt = OnPreempt.CHECKPOINT
    grace: int = 30 * SECOND
    kill_after: int = 5 * SECOND
    retries: int = 0
    kills: int = KILLS
    step_micros: float = 0.0
    uid: int = -1
    gid: int = -1
    warm: tuple[str, ...] = ()
    script: str = ""
    steps: bool = False
    hollow: bool = False
    metric: str = ""
    metrics: tuple[str, ...] = ()
    printed: bool = False
    copies: str = ""
    listens: bool = False
