"""Runs that would never end: refused before they begin, or when they stand still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Ledger
from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.profiles import Load
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, Kind, OnPreempt
from ganger.core.state.cluster import Nodes
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.lab.simulating.policies import has, has_services, load_policy, needs_of
from ganger.lab.simulating.setup import Setup
from ganger.mechanisms.common.two_level import searches
from ganger.mechanisms.hybrid.silos import named
from ganger.recipes.registry import make_sharing
from ganger.workloads.trace import Trace
from ganger.workloads.transform import of_shapes

MOST_NODES: Final = 50_000
"""Of a simulated cluster: the books keep a bit for every node with every node."""


def refuse_impossible(trace: Trace, nodes: Nodes, inner: str = "fifo") -> None:
    """Raise BadInput naming the first job that would not fit on the empty cluster, or that nothing
    would ever end with the recipe `inner` for trials; or a cluster that is too large."""
    if nodes.n > MOST_NODES:
        raise BadInput(
            f"{nodes.n:,} nodes", where="cluster", mend=f"simulate at most {MOST_NODES:,}"
        )
    empty = EmptyCluster(nodes)
    declared = trace.declared
    for code, shape in enumerate(declared.shapes):
        for gpu_type in shape.gpu_types:
            if gpu_type not in nodes.types.values:
                known = ", ".join(t for t in nodes.types if t) or "no GPU"
                _refuse(trace, code, f"wants GPU type {gpu_type!r}", f"the cluster has {known}")
        least = tuple(role.range[0] for role in shape.roles)
        if not empty.fits(shape, least):
            top = declared.parent[: declared.n] < 0
            if (top & (declared.shape[: declared.n] == code)).any():
                mend = "use a larger --cluster, or leave such jobs out with --max-gpus"
                needs = shape.roles[0].needs
                if (needs.cpus and not nodes.cpus.any()) or (
                    needs.memory and not nodes.memory.any()
                ):
                    mend = "give nodes CPUs and memory: a file for --cluster, not `8x8xV100`"
                _refuse(trace, code, f"asks for {shape} and can never fit in this cluster", mend)
    if has(trace, Kind.TUNE) and not searches(load_policy(inner, plane="tuning")):
        _refuse_endless(trace)


def could_start(trace: Trace, cluster: ClusterSpec) -> Trace:
    """The jobs that the empty cluster has room for, and all of whose GPU types it has. Raises
    BadInput if there is none."""
    nodes = Nodes(cluster.check())
    empty = EmptyCluster(nodes)
    fits = [
        set(shape.gpu_types) <= set(nodes.types.values)
        and empty.fits(shape, tuple(role.range[0] for role in shape.roles))
        for shape in trace.declared.shapes
    ]
    return trace if all(fits) else of_shapes(trace, fits, "jobs that fit the cluster")


def refuse_unknown_services(trace: Trace, loads: Mapping[str, Load]) -> None:
    """Raise BadInput for requests to a service that is not there."""
    declared, n = trace.declared, trace.jobs
    there = [declared.name(job) for job in np.flatnonzero(declared.kind[:n] == Kind.SERVE).tolist()]
    for name in loads:
        if name not in there:
            raise BadInput(
                f"{name!r} is not a job of kind serve in {trace.name}",
                where="--rates",
                mend=f"there are {', '.join(there[:9]) or 'none'}",
            )


def refuse_deaf(trace: Trace, setup: Setup) -> None:
    """Raise BadInput if the recipe for services plans by latencies, which only requests to models
    give: it would decide nothing."""
    scaled = setup.traffic is None and setup.serving and has_services(trace)
    if scaled and "latencies" in needs_of(setup.serving):
        raise BadInput(
            f"{setup.serving!r} plans by the latencies of models and the deadlines of requests",
            where="--serving",
            mend="give --requests and --models, or another recipe for services",
        )


def refuse_sharing(trace: Trace, nodes: Nodes, setup: Setup, recipe: str | Policy) -> None:
    """Raise BadInput for a rule for sharing with nothing to share, for a cluster that has no nodes
    for one side, for jobs that no node of theirs could ever take, and for jobs that cannot leave a
    node on loan in time."""
    if not setup.sharing:
        return
    rule = make_sharing(setup.sharing)
    if not has_services(trace):
        raise BadInput("no services to share with", where="--sharing", mend="leave it out")
    if not setup.serving:
        what = "services have no recipe of their own, and so nothing to share"
        raise BadInput(what, where="--sharing", mend="add --serving, like scale.threshold")
    if rule.named:
        _refuse_narrow(trace, nodes, rule.named, loans=rule.notice >= 0)
    if rule.notice >= 0:
        _refuse_lasting(trace, setup, recipe, rule.notice)


def _refuse_narrow(trace: Trace, nodes: Nodes, name: str, *, loans: bool) -> None:
    """Raise BadInput for the first job that does not fit on the empty nodes of its side."""
    theirs = named(nodes, name)
    others = [node for node in range(nodes.n) if node not in set(theirs)]
    if not theirs or not others:
        raise BadInput(
            f"{'no' if others else 'every'} node is named {name!r}, so that one side has none",
            where="--sharing",
            mend="name nodes for services by their pool or a label, as in"
            f" --cluster 2x8xV100@{name}+6x8xV100",
        )
    ledger, declared = Ledger(nodes), trace.declared
    kinds = declared.kind[: trace.jobs]
    tops = declared.parent[: trace.jobs] < 0
    for serves, hidden, whose in ((True, others, "services"), (False, theirs, "training")):
        if not serves and loans:
            continue  # it may find room on loan
        rows = np.flatnonzero(tops & ((kinds == Kind.SERVE) == serves))
        with ledger.hidden(hidden):
            for code in np.unique(declared.shape[rows]).tolist():
                shape = declared.shapes[code]
                least = tuple(1 if serves else role.range[0] for role in shape.roles)
                if ledger.find(shape, least) is None:
                    mend = f"give {whose} more nodes, or leave such jobs out"
                    _refuse(trace, code, f"can never fit on the nodes for {whose}", mend)


def _refuse_lasting(trace: Trace, setup: Setup, recipe: str | Policy, notice: int) -> None:
    """Raise BadInput for jobs that are not off a node on loan within the notice."""
    declared, n = trace.declared, trace.jobs
    others = declared.kind[:n] != Kind.SERVE
    stays = others & (declared.on_preempt[:n] == OnPreempt.NEVER)
    keeps = isinstance(recipe, str) and recipe.partition("(")[0].strip().lower() == "aryl"
    for job in np.flatnonzero(stays).tolist() if not keeps else ():
        raise BadInput(
            f"job {declared.name(job)!r} must not be preempted, and nodes on loan go back",
            where="--sharing",
            mend="use --training aryl, which keeps such jobs off them, or leave them out",
        )
    stated = np.where(declared.checkpoint[:n] < 0, setup.costs.checkpoint, declared.checkpoint[:n])
    for job in np.flatnonzero(others & (stated > notice)).tolist():
        raise BadInput(
            f"job {declared.name(job)!r} saves for {format_duration(int(stated[job]))}, and a node"
            f" on loan goes back within {format_duration(notice)}",
            where="--sharing",
            mend=f"give a longer one, like aryl(notice={-(-int(stated[job]) // SECOND)}s)",
        )


def _refuse_endless(trace: Trace) -> None:
    """Raise BadInput for a search that nothing would ever end: it ends with its last child."""
    declared, n = trace.declared, trace.jobs
    endless = (declared.kind[:n] == Kind.TUNE) & (trace.duration[:n] >= NEVER)
    endless &= declared.inner[:n] == 0  # its own recipe ends it
    endless[declared.parent[:n][declared.parent[:n] >= 0]] = False
    for job in np.flatnonzero(endless & (declared.limit[:n] >= NEVER)).tolist():
        raise BadInput(
            f"job {declared.name(job)!r} is of kind tune, has no duration, and no job names it as"
            " its parent: it would never end",
            where=trace.name,
            mend="give it a duration or children, or a recipe that asks for"
            " them, like --inner tune.sha",
        )


def refuse_stranded(trace: Trace, kernel: Kernel, setup: Setup, recipe: str) -> None:
    """Raise BadInput if jobs wait although nothing runs and nothing will happen any more: the
    recipe's own rules let them start nowhere."""
    view = kernel.view
    waiting = view.pending[view.jobs.attempt[view.pending] == 0]  # others did start somewhere
    if len(waiting) == 0 or len(view.active) or setup.until < NEVER or setup.outages:
        return
    offers = [offer for offer in kernel.nodes.offers if offer is not None]
    if any(offer.market == "spot" and not offer.rentable for offer in offers):
        return  # they may be gone for ever
    rented = "a recipe that switches nodes on, " if any(o.rentable for o in offers) else ""
    others = len(waiting) - 1
    more = f"; {others} more wait like it or behind each other" if others else ""
    job = int(waiting[0])
    raise BadInput(
        f"job {trace.declared.name(job)!r} never starts under {recipe}, though nothing runs any"
        f" more: it asks for {trace.declared.shapes[int(trace.declared.shape[job])]}{more}",
        where=trace.name,
        mend=f"use {rented}other parameters of the recipe (how close together, quotas) or a larger"
        " --cluster, or leave such jobs out with --max-gpus",
    )


def _refuse(trace: Trace, code: int, what: str, mend: str) -> None:
    job = int(np.flatnonzero(trace.declared.shape[: trace.jobs] == code)[0])
    raise BadInput(f"job {trace.declared.name(job)!r} {what}", where=trace.name, mend=mend)
