"""Where gangs go: the primitive rules of placement, under a plain queue."""

from __future__ import annotations

from ganger.core.books.ledger import Fit
from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.spec import Locality
from ganger.core.units import SECOND
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.delay_scheduling import Patience, Relaxing, SkipPolicy
from ganger.mechanisms.placement.place import AnyType, Place
from ganger.recipes.registry import Count, Duration, Many, Paper, Part, Period, recipe
from ganger.recipes.training.baselines import LECTURE
from ganger.recipes.training.fairness.recipes import GAVEL
from ganger.recipes.training.placement.fragmentation import LeastFragmentation, Ties, read_class
from ganger.recipes.training.placement.harmony import ByReward
from ganger.recipes.training.placement.hived import CellPolicy
from ganger.recipes.training.placement.spin import TimeIndexed
from ganger.recipes.training.placement.topology import ByUtility

DELAY = Paper("Delay Scheduling", "Zaharia et al.", "EuroSys", 2010, "locality, fairness")


@recipe(LECTURE)
def placement(
    fit: Fit = Fit.BEST, within: Locality = Locality.ANY, walk: Walk = Walk.STRICT
) -> Policy:
    """First come, first served, with the placement rule as a parameter.

    `fit`: best packs, worst spreads, first and random look at nothing. `within`: the widest
    spread of a gang (island, node, rack, any): `node` consolidates, and waits for it.
    """
    return QueuePolicy("placement", FIRST_COME, walk, place=Place(fit, within))


@recipe(DELAY, reconstructed="every decision is an opportunity, where the paper has heartbeats")
def delay_scheduling(
    node_wait: Duration = 60 * SECOND,
    rack_wait: Duration = 60 * SECOND,
    node_skips: Many | None = None,
    rack_skips: Many = 0,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """Wait a little for a good place, then take a worse one.

    A job insists on one node for `node_wait` (W1), on one rack for `rack_wait` (W2) more, then
    takes any GPUs; meanwhile others pass it. With `node_skips` (D1) it is not time that counts but
    how often it could have started elsewhere and was skipped; `rack_skips` (D2) likewise.
    """
    if node_skips is not None:
        return SkipPolicy("delay-scheduling", Patience(node_skips, rack_skips))
    place = Relaxing(node_wait=node_wait, rack_wait=rack_wait)
    return QueuePolicy("delay-scheduling", FIRST_COME, walk, place=place)


@recipe(GAVEL, wants=("GPU types",))
def heterogeneity_agnostic(chance: bool = False, walk: Walk = Walk.STRICT) -> Policy:
    """First come, first served, blind to GPU types: they are taken in turn, or by chance.

    The baseline that heterogeneity-aware schedulers are measured against: job i looks first at
    type i mod n, or at one drawn at random, and takes the next type where that is full.
    """
    return QueuePolicy("heterogeneity-agnostic", FIRST_COME, walk, place=AnyType(chance=chance))


@recipe(
    Paper(
        "Topology-Aware GPU Scheduling for Learning Workloads in Cloud Environments",
        "Amaral et al.",
        "SC",
        2017,
        "JCT",
    ),
    reconstructed="candidates are listed kind by kind of node where the authors bisect the cluster"
    " recursively; the distances beyond a node",
    wants=("neighbours that disturb",),
)
def topology_aware(threshold: Part = 0.0, walk: Walk = Walk.STRICT) -> Policy:
    """First come, first served, where communication, interference and fragmentation cost least.

    A placement's utility falls with the distance between its GPUs, with how much neighbours and the
    job slow each other down (`disturbed` in their profiles), and with the share of GPUs left over
    in the sockets that it touches. With a `threshold` up to 0.75 a job is postponed while no
    place has that utility; with `walk=skip` others pass it meanwhile.
    """
    if not 0.0 <= threshold <= 0.75:
        mend = "on an idle cluster the best place has 0.75 or more; give 0 to 0.75"
        raise BadInput(f"threshold {threshold}", where="topology-aware", mend=mend)
    return QueuePolicy("topology-aware", FIRST_COME, walk, place=ByUtility(threshold=threshold))


@recipe(
    Paper(
        "Deep Learning-based Job Placement in Distributed Machine Learning Clusters",
        "Bao et al.",
        "INFOCOM",
        2019,
        "JCT",
    ),
    reconstructed="a heuristic stands for the learned placement: what is known of models that"
    " disturb each other instead of a reward model, and the best next node instead of an actor;"
    " jobs are placed as they come, where the authors place all of an interval; workers only",
    wants=("neighbours that disturb",),
)
def harmony(walk: Walk = Walk.STRICT) -> Policy:
    """Harmony: first come, first served, each job where the predicted sum of the speeds of all
    jobs, each over its speed alone, is largest.

    How much jobs on one node slow each other down is as in their profiles (`disturbed`). A gang
    goes to one node, or over nodes one after another where that is predicted to be better, the
    slow-down by distance included. It never waits for a better place. This is the placement half of
    the published system, without its learning.
    """
    return QueuePolicy("harmony", FIRST_COME, walk, place=ByReward())


@recipe(
    Paper(
        "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees",
        "Zhao et al.",
        "OSDI",
        2020,
        "JCT",
    ),
    reconstructed="cells end at the node; a gang larger than its tenant's cells takes several; bad"
    " nodes are avoided, but not made up for",
    wants=("quotas",),
)
def hived(cells: tuple[str, ...] = ()) -> Policy:
    """Virtual clusters that own cells, not GPUs: a tenant that owns two GPUs side by side always
    gets them.

    `cells`, like `ann:2x4;ann:1x1;bob:1x8`, says that ann owns two cells of 4 GPUs and one of 1; by
    default each tenant's quota is cut into the largest cells. Inside a virtual cluster jobs go
    first come, first served; a GPU comes with its part of its node's CPUs and host memory.

    Opportunistic are jobs of tenants without cells, jobs larger than all cells of their tenant,
    jobs of negative priority, jobs that state labels, parts of a GPU or several kinds of workers,
    and jobs that state more than their GPUs' part of a node's CPUs or host memory. They run on what
    is free, are preempted by guaranteed jobs, and keep away from the nodes and cells of those where
    there is another place on as few nodes. Cells that the cluster does not have are refused.
    """
    owned: dict[str, dict[int, int]] = {}
    for text in cells:
        tenant, count, size = _cell(text)
        owned.setdefault(tenant, {})[size] = count
    return CellPolicy("hived", owned)


def _cell(text: str) -> tuple[str, int, int]:
    """Tenant, count and size of `ann:2x4`. Raises BadInput."""
    tenant, _, rest = text.rpartition(":")
    count, _, size = rest.partition("x")
    if not (tenant and count.isdecimal() and size.isdecimal() and int(size)):
        raise BadInput(
            f"{text!r} is not a valid cell", where="hived(cells)", mend="write like ann:2x4"
        )
    return tenant, int(count), int(size)


@recipe(
    Paper(
        "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient"
        " Descent",
        "Weng et al.",
        "USENIX ATC",
        2023,
        "utilization",
    ),
    reconstructed="gangs count as tasks of one node; without a workload the jobs seen so far",
    wants=("parts of GPUs",),
)
def fgd(
    workload: tuple[str, ...] = (),
    ties: Ties = Ties.FULLEST,
    covers: Part = 1.0,
    walk: Walk = Walk.STRICT,
) -> Policy:
    """First come, first served, where the least of the free GPUs becomes useless to the workload.

    What is free on a node is a fragment for a task that cannot run there, or that finds too little
    left on a device. A node's fragmentation is the mean over the tasks of the workload; a job goes
    to the node, and the device, where that grows least.

    `workload`: the tasks and how many there are of each, as count*GPUs, with xTHOUSANDTHS for a
    share of one, @CPUS, /TYPE|TYPE and #POOL: `25*1x300@4;3*8@96/V100|T4`. On the command line
    `workload=@FILE` takes them from a trace. By default it is the jobs submitted so far, of which
    the first 1, 2, 4, 8 and so on count. `covers`: only the most frequent classes of tasks count
    that have this part of all. `ties`: among nodes that are as good, the one with the least free,
    or the lowest.
    """
    tasks = tuple(map(read_class, workload))
    place = LeastFragmentation(workload=tasks, ties=ties, covers=covers)
    return QueuePolicy("fgd", FIRST_COME, walk, place=place)


@recipe(
    Paper(
        "SPIN: BSP Job Scheduling With Placement-Sensitive Execution",
        "Han et al.",
        "INFOCOM",
        2020,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the programme: one node or anywhere as configurations, nodes counted by how many"
    " GPUs are expected to be free; the first jobs of the queue only",
)
def spin(window: Count = 20, slots: Count = 20, slot: Period | None = None) -> Policy:
    """Start now, or later in a better place: a linear programme over time slots, rounded at random.

    Every waiting job gets chances of starting in each slot, on one node or spread, such that the
    weighted sum of completion times is least and no slot holds more than will be free; a draw from
    them says which jobs start now. So a job may deliberately wait for locality. By default a `slot`
    is so long that all that waits would be done in `slots` of them.
    """
    return TimeIndexed("spin", window, slots, slot or 0)
