"""Recipes that rent the machines that their jobs run on, from the nodes for rent of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

from ganger.core.protocols import Policy
from ganger.core.units import DAY, MINUTE, NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.provisioning.joint import JointRenting, Planner, Ranked
from ganger.mechanisms.provisioning.notice import Heeding
from ganger.mechanisms.provisioning.rentals import (
    Chooser,
    Demand,
    Free,
    Goal,
    Rental,
    Valued,
    decide,
)
from ganger.mechanisms.provisioning.renting import Market, RentingPolicy
from ganger.mechanisms.provisioning.servers import Sync
from ganger.recipes.registry import (
    Amount,
    Count,
    Duration,
    Many,
    Paper,
    Part,
    Period,
    Positive,
    Within,
    recipe,
)
from ganger.recipes.training.renting.andreas import ByEnergy
from ganger.recipes.training.renting.cynthia import ByModel
from ganger.recipes.training.renting.fc2 import ByMeasurement
from ganger.recipes.training.renting.gpoeo import Clocked
from ganger.recipes.training.renting.jahani import ByProgramme
from ganger.recipes.training.renting.mlcloudprice import Cheapest


@dataclass(frozen=True)
class PerJob:
    """The cheapest machines with which a job is done by its deadline within `budget` USD, at the
    prices of the moment; where there are none, what comes nearest. `chooser` says among which, by
    the goal."""

    chooser: Callable[[Goal], Chooser]
    budget: float
    every: int = 0

    def ranked(
        self, view: View, job: int, free: Sequence[Free], demand: Demand
    ) -> Iterator[Rental]:
        """The one that `decide` takes, then the others by money."""
        deadline = int(view.jobs.deadline[job])
        seconds = max(deadline - view.now, 1) / SECOND if deadline < NEVER else inf
        goal = Goal(seconds, self.budget)
        every = [
            Valued(each, each.seconds, each.expected(view.now))
            for each in self.chooser(goal)(free, demand)
        ]
        best = decide(every, goal).nearest
        if best is not None:
            yield best.rental
        for each in sorted(every, key=lambda each: each.dollars):
            if each.dollars < inf:
                yield each.rental

    def better(
        self, view: View, jobs: Sequence[int], market: Market
    ) -> Iterable[tuple[int, Rental]]:
        """None: a job stays where it began."""
        return ()


def renting(name: str, chooser: Callable[[Goal], Chooser], budget: float | None) -> Policy:
    """Machines for each job by itself; jobs that checkpoint leave those that are going away."""
    return Heeding(RentingPolicy(name, PerJob(chooser, inf if budget is None else budget)))


@recipe(
    Paper(
        "Cynthia: Cost-Efficient Cloud Resource Provisioning for Predictable Distributed Deep"
        " Neural Network Training",
        "Zheng et al.",
        "ICPP",
        2019,
        "cost",
    ),
    needs="durations, throughputs",
    reconstructed="a job's deadline is its goal; its length is what the oracle believes, so that"
    " the model of the loss counts with `--knows losses` and in `ganger recommend` only; in a"
    " simulation a job has as many servers as its profile states, on machines of their own; a GPU"
    " is a worker; a job whose model states no servers is chosen for by its speeds",
    wants=("machines for rent",),
)
def cynthia(
    sync: Sync = Sync.BSP, server_core: Amount = 0.0, budget: Positive | None = None
) -> Policy:
    """The cheapest machines on which a job is done by its deadline, by a model of its steps.

    A step of workers that wait for each other (`bsp`) takes as long as the longer of computing and
    communication, else (`asp`) their sum. Of each kind of machine so many workers are looked at as
    could be in time if they only computed, up to where the parameter servers are the bottleneck.
    The job starts when its machines are there, and they are given back when it is done. Where
    nothing is done in time within `budget` USD, it has what comes nearest. `server_core`: GB/s of
    gradients that a core of a server adds up, if that limits.
    """
    return renting(
        "cynthia", lambda goal: ByModel(sync, server_core, goal.seconds, stated=True), budget
    )


@recipe(
    Paper(
        "FC2: Cloud-Based Cluster Provisioning for Distributed Machine Learning",
        "Ta",
        "Cluster Computing",
        2019,
        "cost",
    ),
    needs="throughputs",
    reconstructed="the rule of Scala-Opt is that of a threshold on what one more worker adds; a"
    " job's deadline says which throughput is wanted; speeds that the oracle knows stand for short"
    " runs; in a simulation a job has as many servers as its profile states",
    wants=("machines for rent",),
)
def fc2(threshold: Part = 0.5, budget: Positive | None = None) -> Policy:
    """Parameter servers on the machine with the widest link that the budget allows, workers on as
    many machines as still speed the job up, at the least cost.

    Of each kind of machine the number of workers grows while one more adds at least `threshold` of
    what the mean worker does. Among those that are done by the deadline the cheapest is taken;
    where there is none, what comes nearest. Nothing of the code or the data is looked at.
    """

    def chooser(goal: Goal) -> Chooser:
        hours = goal.seconds / 3600 if goal.seconds < inf else 1.0
        return ByMeasurement(threshold, hourly=goal.dollars / hours, stated=True)

    return renting("fc2", chooser, budget)


@recipe(
    Paper(
        "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML Training",
        "Narayanan et al.",
        "DISPA",
        2020,
        "cost, JCT",
    ),
    needs="durations, throughputs",
    reconstructed="savings are reckoned for a `stay` at the prices of the moment; jobs move to"
    " machines that are free, by a linear programme rounded; where a job does not say what a move"
    " takes, `move` is assumed",
    wants=("machines for rent",),
)
def mlcloudprice(every: Period = DAY, stay: Period = DAY, move: Duration = 5 * MINUTE) -> Policy:
    """Each job runs on the kind of machine, in the zone and the market, in which its work is
    cheapest now, and moves when prices have changed enough.

    A job begins where price over throughput is least, on machines that are in time for its deadline
    if there are such. Every `every` those that run are looked at together: a programme says which
    move where, so that what they save in the next `stay` is most. A job moves only if that is more
    than the move costs. When its machines are taken away, it goes to the cheapest that are left.
    """
    return Heeding(RentingPolicy("mlcloudprice", Cheapest(every, stay, move)))


def together(name: str, planner: Planner) -> Policy:
    """Machines for several jobs at once; jobs that checkpoint leave those that are going away."""
    return Heeding(JointRenting(name, Ranked(planner), planner))


@recipe(
    Paper(
        "Optimizing on-demand GPUs in the Cloud for Deep Learning Applications Training",
        "Jahani et al.",
        "ICCCS",
        2019,
        "cost, deadlines",
    ),
    needs="durations, throughputs",
    reconstructed="a job without a deadline is due as if it had begun when it was submitted; a job"
    " that waits is charged what it costs where it would be put alone, and its lateness at worst;"
    " the programme is solved at arrivals and ends, not when machines come up; it is over the"
    " `window` most pressing jobs, those that wait before those that run, and what runs moves to"
    " machines that are on; a machine on which others stay is charged for what a job lasts longer"
    " than these; the limit of its search is a number of nodes, not a time; jobs that need more"
    " than one machine have machines of their own",
    wants=("machines for rent",),
)
def jahani(
    penalty: Amount = 10.0,
    window: Annotated[int, Within(1, 32)] = 6,
    nodes: Count = 200,
    gap: Part = 0.01,
) -> Policy:
    """At each arrival and end a mixed-integer programme says which jobs run on how many GPUs of
    which machines, and which kinds of machines are rented for that.

    It minimises what machines cost until the first job on each ends, when it is solved again, and
    `penalty` USD for each hour by which jobs are late, those that wait at worst. Jobs share
    machines; one that can save may be paused, moved or resized. The search ends after
    `nodes` nodes, or where the answer is proved to be within `gap` of the best.
    """
    return together("jahani", ByProgramme(penalty, nodes, gap, window))


@recipe(
    Paper(
        "ANDREAS: Artificial intelligence traiNing scheDuler foR accElerAted resource clusterS",
        "Filippini et al.",
        "FiCloud",
        2021,
        "energy cost, deadlines",
    ),
    needs="durations, throughputs",
    reconstructed="a job without a deadline is due as if it had begun when it was submitted; a job"
    " that waits is charged what it costs where it would be put alone, and its lateness at worst;"
    " noise is Gaussian, of 0.3 times the largest pressure; at most `window` jobs are placed at"
    " once, what runs moves to machines that are on; jobs that need more than one machine have"
    " machines of their own",
    wants=("machines for rent",),
)
def andreas(
    every: Period = MINUTE,
    price: Amount = 0.15,
    penalty: Amount = 1.0,
    tries: Annotated[int, Within(1, 1000)] = 8,
    window: Annotated[int, Within(1, 256)] = 16,
    seed: Many = 0,
) -> Policy:
    """Nodes are switched on for jobs so that their energy and the lateness of jobs cost least.

    Every `every` the jobs that wait, and those that run on nodes with room, are put in order of
    pressure: how late they are at least. One after the other takes the node and the GPUs that add
    least to the cost and keep its deadline, else those on which it ends first. That is done `tries`
    times with noise in the order, and the best is kept. A kWh costs `price` USD, an hour of
    lateness `penalty`. Jobs share nodes; a node is off while nobody is on it.
    """
    return together("andreas", ByEnergy(price, penalty, tries, window, every, seed))


@recipe(
    Paper(
        "Dynamic GPU Energy Optimization for Machine Learning Training Workloads",
        "Wang et al.",
        "arXiv 2201.01684",
        2022,
        "energy, slow-down",
    ),
    needs="nothing",
    reconstructed="the predictors are trained on a synthetic generator of models"
    " (`ganger.estimate.clocks.drawn`), not on measured ones; counters are the `utilisation` and"
    " the `watts` of a job's profile, not read over one period; the search corrects predicted"
    " slow-downs by measured ones, while energy stays predicted; where a speed changes by itself,"
    " that at full clocks is taken to change as much, and the search is not run again; the queue"
    " is first come, first served",
    wants=("GPU clocks",),
)
def gpoeo(limit: Part = 0.05) -> Policy:
    """First come, first served, and each job's GPUs run at the clocks at which a step takes least
    energy, of those that slow it down by at most `limit`.

    Time and power at each clock of the multiprocessors and of memory are predicted by boosted trees
    from what the job uses of a GPU at full clocks. The speed at the clocks that are chosen is
    measured; where the job is slower than predicted, or faster, the clocks are chosen again. Which
    clocks a type has is stated in the cluster file. Engines of real machines refuse to set clocks.
    """
    return Clocked(QueuePolicy("gpoeo", FIRST_COME, Walk.STRICT), limit)
