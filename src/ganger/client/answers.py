"""What the API answers with. Times are Unix seconds, lengths of time seconds; null: not known."""

from __future__ import annotations

import msgspec

from ganger.client.answering.families import FamilyAnswer


class JobAnswer(msgspec.Struct, kw_only=True):
    """A job in a list. `job` is its number, `label` what people call it by (`12`, or `12_3` for a
    task); `state` and `code` are Slurm's; `reason` says why it waits or how it ended. It
    uses the part `share` of each of its `gpus`. `parent`: the search or service whose trial or
    replica it is; `children`: of a search or a service, how many of them are in which state;
    `ended_by`: the limit that ended a search, such as `the deadline`; `best`: where it was asked
    for, the best value that a trial of the search reported last."""

    job: int
    label: str
    name: str
    user: str
    tenant: str
    state: str
    code: str
    reason: str
    gpus: int
    share: float = 1.0
    gpu_types: list[str]
    priority: int
    submitted: float
    started: float | None
    finished: float | None
    ran: float
    time_limit: float | None
    nodes: list[str]
    attempt: int
    preemptions: int
    parent: int | None = None
    children: dict[str, int] = {}
    ended_by: str = ""
    best: float | None = None
    exit_code: int | None = None
    expected_start: float | None = None
    expected_start_low: float | None = None
    expected_start_high: float | None = None


class AttemptAnswer(msgspec.Struct, kw_only=True):
    """One attempt of a job. `note`: what is missing of its output, and why."""

    attempt: int
    started: float | None
    ended: float | None
    outcome: str
    devices: list[str]
    note: str = ""


class JobDetail(JobAnswer, kw_only=True):
    """All about one job. `progress` is what it last reported of itself. Of one that shares GPUs as
    its agent last saw it: `rate`, the part of the time for which it may compute, and `speed`, its
    speed as a part of its speed alone as its steps measured both; `gpu_busy`: for which part of the
    time the busiest GPU of each machine computed, on average over machines, and `cores` in use;
    null where that is not known. `gpu_hours` it has held, whatever it did with them, and what that
    `cost` in the unit of the prices; null for what its search holds for it, or has no price."""

    command: list[str]
    script: bool
    cwd: str
    output: str
    error: str
    cpus: float
    memory: int
    workers: int
    least_gpus: int
    most_gpus: int
    deadline: float | None
    estimate: float | None
    begin: float | None
    after: list[int]
    on_preempt: str
    kind: str
    attained_gpu_seconds: float
    pending: float
    retries: int
    attempts: list[AttemptAnswer]
    progress: dict[str, float]
    params: dict[str, str] = {}
    family: FamilyAnswer | None = None
    rate: float | None = None
    speed: float | None = None
    gpu_busy: float | None = None
    cores: float | None = None
    gpu_hours: float | None = None
    cost: float | None = None


class JobPage(msgspec.Struct, kw_only=True):
    """Jobs from `offset` on; `next` is where the next page begins, null after the last."""

    jobs: list[JobAnswer]
    total: int
    offset: int
    next: int | None


class Submitted(msgspec.Struct, kw_only=True):
    """What became of a submission: the first job, all of them, and the first one's state. `notes`:
    what the submitter should know."""

    job: int
    jobs: list[int]
    state: str
    reason: str
    nodes: list[str]
    expected_start: float | None = None
    notes: list[str] = []


class Changed(msgspec.Struct, kw_only=True):
    """The jobs that an order was carried out on. `waiting`: of jobs that were resumed, those that
    sleep until no other job runs on their GPUs, or until their next turn."""

    jobs: list[int]
    waiting: list[int] = []


class OutputPiece(msgspec.Struct, kw_only=True):
    """A piece of what a job wrote: the bytes from `at` up to `end` (-1: there is no file yet), in
    JSON as base64."""

    at: int
    end: int
    data: bytes


class NodeAnswer(msgspec.Struct, kw_only=True):
    """A node. `memory` in MiB, `cpus` in cores; `state`: up, down or drained; `gpus_withheld`:
    GPUs that are used outside Ganger; `sharing`: by what jobs share a GPU there (MPS, time slices
    and why, core sets), empty where that is not known."""

    name: str
    state: str
    gpu_type: str
    gpus: int
    gpus_free: int
    gpus_withheld: int = 0
    cpus: float
    memory: int
    jobs: list[int]
    sharing: str = ""


class PolicyAnswer(msgspec.Struct, kw_only=True):
    """The recipe in force, or what another one would do at once (`dry_run`). `inner` decides inside
    what searches hold, `serving` over services. `ignored`: what it may order besides, and nothing
    is done about."""

    recipe: str
    knows: str
    inner: str = ""
    serving: str = ""
    dry_run: bool = False
    starts: list[int] = []
    stops: list[int] = []
    resizes: list[int] = []
    ignored: list[str] = []
    error: str = ""


class Share(msgspec.Struct, kw_only=True):
    """What a tenant has used and holds. Shares are parts of all tenants' sums."""

    tenant: str
    running: int
    pending: int
    gpus: float
    gpu_hours: float
    lost_gpu_hours: float
    usage_share: float
    fair_share: float


class Quota(msgspec.Struct, kw_only=True):
    """What a tenant may have. `limit`: the most GPUs that its jobs are let hold, under any recipe;
    `let_in` GPUs of that are in the queue or in use, and `waiting` jobs wait for it. `quota` and
    `weight` are for recipes that know them. With a shared daemon `members` may submit to it, beside
    the user of its name, each up to a priority (null: up to `max_priority`), and its jobs may weigh
    `max_weight` at most. Of its `budget` (USD; null: none) so much is `spent`, also by tenants
    below it; `beyond` says what follows when that is all."""

    tenant: str
    limit: float | None
    let_in: float | None
    waiting: int
    quota: int | None
    weight: float
    members: dict[str, int | None]
    max_priority: int
    max_weight: float
    budget: float | None = None
    spent: float | None = None
    beyond: str = "warn"


class TokenAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token: `id` is what it is called by, `token` its text, which is shown once."""

    id: str
    user: str
    role: str
    made: float
    token: str = ""


class RolesAnswer(msgspec.Struct, kw_only=True):
    """Administrators by name, and the tokens that were given out."""

    admins: list[str]
    tokens: list[TokenAnswer]


class SinkAnswer(msgspec.Struct, kw_only=True):
    """A receiver of messages about jobs. `waiting` messages are not sent yet."""

    name: str
    events: list[str]
    tenants: list[str]
    users: list[str]
    waiting: int
    last_error: str


class AsideAnswer(msgspec.Struct, kw_only=True):
    """A message that can never be sent, made at `made` (Unix seconds)."""

    number: int
    sink: str
    made: float
    about: str
    error: str


class NotifyAnswer(msgspec.Struct, kw_only=True):
    """The receivers of messages, by the file at `path`; `error`: what is wrong with it.
    `set_aside`: messages of the last three days that can never be sent; the others go on without
    them."""

    path: str
    error: str
    sinks: list[SinkAnswer]
    set_aside: list[AsideAnswer] = []


class IdleJob(msgspec.Struct, kw_only=True):
    """A job that holds GPUs and does nothing with them."""

    job: int
    label: str
    name: str
    user: str
    tenant: str
    gpus: int
    idle_seconds: float
    told: bool
    """Whether it has been idle long enough to be reported."""


class IdleAnswer(msgspec.Struct, kw_only=True):
    """When a job is idle and what follows (as `Rule` has it), and which are now."""

    action: str
    after: float
    gpu: float
    cores: float
    jobs: list[IdleJob]


class Usage(msgspec.Struct, kw_only=True):
    """What a tenant's jobs held. GPU-hours are those in which devices were held: useful, lost (done
    and then lost with a preemption or failure), and idle (starting, stopping, suspended, or found
    doing nothing), which are null for a part of the time. `cost` in the unit of the prices, null
    where a type has none. Energy and carbon of what was held, with its part of the node;
    `energy_source`: where the watts and the grid's intensity come from."""

    tenant: str
    jobs: int
    gpu_hours: float
    useful_gpu_hours: float | None = None
    lost_gpu_hours: float | None = None
    idle_gpu_hours: float | None = None
    by_type: dict[str, float] = {}
    cost: float | None = None
    energy_kwh: float | None = None
    carbon_kg: float | None = None
    energy_source: str = ""


class Status(msgspec.Struct, kw_only=True):
    """How the daemon does. `mode`: personal or shared; `trouble`: what people should know."""

    version: str
    mode: str
    engine: str = "local"
    home: str
    pid: int
    listen: str
    recipe: str
    knows: str
    inner: str = ""
    serving: str = ""
    since: float
    now: float
    revision: int
    decisions: int
    last_decision_seconds: float
    slowest_decision_seconds: float
    jobs: dict[str, int]
    nodes: int
    gpus: int
    gpus_free: int
    gpus_out: int = 0
    """GPUs that nothing has, on nodes where nothing starts."""
    journal_bytes: int = 0
    """What the journal takes on the disk: it grows with every job, and is never cut."""
    trouble: list[str]


class Asked(msgspec.Struct, kw_only=True):
    """What a waiting job asks for in all: `cpus` in cores, `memory` in MiB of the host; `share`:
    the part of each GPU; `close`: how close together it must be (node, rack, any)."""

    gpus: int
    share: float = 1.0
    cpus: float = 0.0
    memory: int = 0
    gpu_types: list[str] = []
    close: str = "any"
    pool: str = ""
    labels: list[str] = []


class BestNode(msgspec.Struct, kw_only=True):
    """The node with the most that a waiting job could use: what is free there, and of what there is
    too little (GPUs, CPUs, memory): for all of the job if that must be in one node, else for one
    worker. `cpus_free` in cores, `memory_free` in MiB."""

    name: str
    gpus_free: int
    cpus_free: float
    memory_free: int
    lacks: list[str] = []


class ReleaseAnswer(msgspec.Struct, kw_only=True):
    """GPUs that a running job gives back: `latest`, when its time limit ends, and `expected`, when
    it is believed to end, in Unix seconds; null where that is not known."""

    job: int
    label: str
    gpus: int
    nodes: list[str]
    latest: float | None = None
    expected: float | None = None


class AlternativeAnswer(msgspec.Struct, kw_only=True):
    """What a waiting job could ask for instead: `options` of `ganger submit`. Cancelled and
    submitted anew with them, it would start at once on so many `nodes`: the recipe says so on a
    copy of the present state."""

    options: str
    nodes: int


class CompanyAnswer(msgspec.Struct, kw_only=True):
    """One of the jobs on the same GPUs. `standing`: guaranteed, opportunistic, `0.4 to 0.5` of a
    GPU, or empty where the recipe gives no terms. `rate`: for which part of the time its agent lets
    it compute; `speed`: its speed as a part of its speed alone, as its steps measured both;
    `believed`: the same as the recipe believes it. Null: not known."""

    job: int
    label: str
    model: str
    standing: str
    rate: float | None = None
    speed: float | None = None
    believed: float | None = None


class Explanation(msgspec.Struct, kw_only=True):
    """Why a job is where it is: Slurm's word, sentences, the jobs that hold what it waits for.

    Of a job that waits: `by`, the class that refused it; `evidence`, the numbers of that class (the
    end of a key is its unit: `_gpus`, `_jobs`, `_s`, and `_at_s` for Unix seconds); `until`, the
    kinds of change without which it does not start; what it `asks` for; the `best` node; the
    `releases` that make room for it; and `alternatives` with which it would start now.
    `recipe_waits`: there is room for it, but the recipe does not start it. `starts_next`: the
    recipe starts it when it decides again. `free_gpus`: on all nodes that it may use. `at`: of a
    log, the time that is explained: seconds since its begin, or Unix seconds for a journal. Of a
    job that computes: `company`, itself and the jobs on its GPUs."""

    job: int
    label: str
    state: str
    reason: str
    lines: list[str]
    position: int | None = None
    ahead: int | None = None
    holders: list[int] = []
    by: str = ""
    evidence: dict[str, float] = {}
    until: list[str] = []
    asks: Asked | None = None
    free_gpus: int | None = None
    best: BestNode | None = None
    releases: list[ReleaseAnswer] = []
    alternatives: list[AlternativeAnswer] = []
    recipe_waits: bool = False
    starts_next: bool = False
    expected_start: float | None = None
    expected_start_low: float | None = None
    expected_start_high: float | None = None
    at: float | None = None
    company: list[CompanyAnswer] = []


class MovedAnswer(msgspec.Struct, kw_only=True):
    """A job whose start an order would move: when it would start without and with the order, Unix
    seconds; null: not within the look."""

    job: int
    label: str
    name: str
    user: str
    gpus: int
    before: float | None
    after: float | None


class EffectAnswer(msgspec.Struct, kw_only=True):
    """What an order about `jobs` would do to the others that wait: how many start earlier, later
    and as without it. Of those that move the 20 that wait longest for it are named, and the 20 that
    gain most. `own`: the jobs of the order that start with it or without it. The look went as far
    as `until` (Unix seconds; null: to the end of the queue). Run times are as believed, and nobody
    else arrives."""

    jobs: list[int]
    earlier: int
    later: int
    same: int
    until: float | None
    moved: list[MovedAnswer]
    own: list[MovedAnswer]


class PastAnswer(msgspec.Struct, kw_only=True):
    """What other recipes could be tried on elsewhere: the `cluster` as plain data, the recipe in
    force and what it knows, and one or more `traces` in JSON Lines (docs/trace-format.md) of so
    many `jobs`; `without` so many that ask for no GPU, or in several roles."""

    recipe: str
    knows: str
    jobs: int
    without: int = 0
    cluster: msgspec.Raw
    traces: list[str]


class FutureAnswer(msgspec.Struct, kw_only=True):
    """What a recipe would make of the queue. Of the `waiting` jobs the mean time from now to their
    start, of all the mean time to their end, and the last end; of history: of all jobs the mean
    queueing delay, the mean JCT, and the makespan."""

    recipe: str
    waiting: int = 0
    unstarted: int = 0
    wait_mean_seconds: float = 0.0
    end_mean_seconds: float = 0.0
    last_end_seconds: float = 0.0
    preemptions: int = 0


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 has it."""

    title: str
    status: int
    detail: str = ""
    where: str = ""
    mend: str = ""
    type: str = "about:blank"
