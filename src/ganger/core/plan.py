"""What should be true now: actions, why others wait, and when to be asked again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from ganger.core.events import ANYTHING
from ganger.core.spec import JobSpec
from ganger.core.units import NEVER


class Slot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Workers of one role on one node; `devices` is the bit mask of the GPUs they occupy.

    `share`: the thousandths of each device that they take where whole devices are shared with
    another job's; 0: what their role needs.
    """

    node: int
    devices: int
    workers: int = 1
    role: int = 0
    share: int = 0


Placement: TypeAlias = tuple[Slot, ...]


class Action(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all actions; each names the attempt that it is about."""


class Start(Action, frozen=True, gc=False):
    """Run a new attempt on `placement`, once the attempts of `waits` have let go of it. A service
    may hold nothing itself, and its replicas what it needs."""

    job: int
    attempt: int
    placement: Placement
    waits: tuple[int, ...] = ()


class Stop(Action, frozen=True, gc=False):
    """End the attempt: checkpoint if the job can, give the devices back, report Released."""

    job: int
    attempt: int
    why: str = "preempted"


class Resize(Action, frozen=True, gc=False):
    """Move a running or suspended job to `placement` as a new attempt: grow, shrink, migrate."""

    job: int
    attempt: int
    placement: Placement
    waits: tuple[int, ...] = ()


class Suspend(Action, frozen=True, gc=False):
    """Freeze the attempt where it is. It keeps its devices; one that `yields` keeps only its
    memory, of devices and host, and others may compute there until it is resumed: so a job is
    suspended that says how much memory it keeps, by people and by `Draft.suspend`. An engine that
    cannot suspend lets the job save and leave: Released."""

    job: int
    attempt: int
    yields: bool = False


class Resume(Action, frozen=True, gc=False):
    """Let a suspended attempt go on."""

    job: int
    attempt: int


WITHDRAWN: Final = -1.0
"""As the knob `request`: the job is on its GPUs on no terms any more."""


LINK_KNOBS = frozenset(("link_weight", "link_priority", "link_rule"))
"""Knobs of how a job's transfers share links between nodes: by weight, priority (higher first), and
beside which others they begin; with such a rule the priority is of those that wait
(`sim.links.grains.Terms`)."""


class Tune(Action, frozen=True, gc=False):
    """Turn knobs of a running attempt: batch size, learning rate, CPU share, clock, and on what
    terms it shares its GPUs (`request` and others). What was turned last stands in `view.knobs`,
    until the job is over."""

    job: int
    attempt: int
    knobs: Mapping[str, float | bool | str]


class Provision(Action, frozen=True, gc=False):
    """Ask for a node to be switched `on` or `off`."""

    node: int
    verb: str


class Spawn(Action, frozen=True, gc=False):
    """Ask the engine for `n` more children of `parent`, each as `spec` says. It answers with one
    Accepted, `spawned`, for each; `spec.name` and the row make the name of a child. How many are
    not there yet stands in `view.spawning`. `copies`: each begins with what that child had saved
    after so many epochs, and with a configuration near its own."""

    parent: int
    spec: JobSpec
    n: int = 1
    copies: tuple[int, float] | None = None


class Retire(Action, frozen=True, gc=False):
    """A waiting job is wanted no more: it is over, as one that finished. A job that is stopping is
    over when it has let go. One that holds devices is retired by a Stop whose `why` is `retired`
    (`Draft.retire` draws what fits)."""

    job: int


class AskAt(Action, frozen=True, gc=False):
    """Evaluations of the job below `epoch` need no decision: they are only recorded. A final one
    always does."""

    job: int
    epoch: float


class Route(Action, frozen=True, gc=False):
    """Divide the requests of a service by `weights` over its replicas (by row). The table stands in
    `view.routes` until the service is over."""

    service: int
    weights: dict[int, float]


class Lend(Action, frozen=True, gc=False):
    """Nodes that are named for some jobs are lent to those of `pool` from now on; "": they are back
    with those that they are named for. Which are lent stands in `view.lent`. It moves no
    job: those that have to leave are stopped in the same plan."""

    nodes: tuple[int, ...]
    pool: str = ""


SPAWNED_MAX = 10_000
"""How many rows a policy may have asked for that are not there yet, per parent."""
RETIRED, PAUSED = "retired", "paused"
"""Why a policy stops a job that then does not wait for devices again: it is over; or it is set
aside, in `view.paused`, until it is started again."""


AnyAction: TypeAlias = (
    Start
    | Stop
    | Resize
    | Suspend
    | Resume
    | Tune
    | Provision
    | Spawn
    | Retire
    | AskAt
    | Route
    | Lend
)


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why pending jobs wait: those of one `shape`, `tenant` and grant (`within`: the parent whose
    grant they wait for); -1: of all shapes, of all tenants, for the cluster.

    `code` is Slurm's word (Resources, Priority, AssocGrpGRES, ...), `by` the class that refused.
    `evidence`: the numbers that only this class knows. The end of a key is its unit (`_gpus`,
    `_jobs`, `_s` for seconds, `_at_s` for a moment in seconds, `_trials`, `_epochs`); `may_pass`
    is 0 or 1. What the tables tell is not in it: `mechanisms/common/waiting` works that out when it
    is asked.
    `until`: kinds of change (bits of `events`). Without any of them no job of this reason
    starts.
    """

    code: str
    by: str
    shape: int = -1
    tenant: int = -1
    evidence: dict[str, float] = {}
    until: int = ANYTHING
    within: int = -1


class Plan(msgspec.Struct):
    """A sparse plan: a job that it does not mention keeps what it has.

    `wake`: be called again by then; `until`: kinds of change (bits of `events`) that could change
    this plan, so that the kernel need not ask after others; `basis`: the revision decided on.
    """

    actions: list[AnyAction] = []
    reasons: list[Reason] = []
    wake: int = NEVER
    until: int = ANYTHING
    basis: int = -1
