"""Which recipes are worth trying: by what is wanted, what may be known, and what is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, WHOLE
from ganger.lab.simulating.oracles import told
from ganger.recipes.registry import Recipe, nearest
from ganger.workloads.trace import Trace


@dataclass(frozen=True)
class Objective:
    """What is to be small: a metric of `ganger.lab.metrics`. `words`: what the publications of
    recipes made for it call it; `ratios`: whether figures are compared by ratio, or by
    difference."""

    name: str
    metric: str
    title: str
    kind: str
    words: frozenset[str]
    ratios: bool = True


OBJECTIVES = {
    each.name: each
    for each in (
        Objective(
            "jct",
            "jct_mean_seconds",
            "mean JCT",
            "time",
            frozenset(("jct", "utilisation", "throughput", "locality")),
        ),
        Objective(
            "fairness",
            "finish_time_fairness_p99",
            "99th percentile of rho",
            "number",
            frozenset(("fairness",)),
        ),
        Objective(
            "makespan",
            "makespan_seconds",
            "makespan",
            "time",
            frozenset(("makespan", "utilisation")),
        ),
        Objective(
            "deadline",
            "deadline_missed_fraction",
            "deadlines missed",
            "ratio",
            frozenset(("deadline",)),
            ratios=False,
        ),
    )
}
GENERAL = frozenset(("fifo", "backfill", "sjf", "srtf", "las", "tiresias"))
"""Tried under every objective: what improves the mean often improves the rest."""


def objective_of(name: str) -> Objective:
    """The objective of that name. Raises BadInput."""
    if name not in OBJECTIVES:
        raise BadInput(
            f"no objective {name!r}", where="--objective", mend=nearest(name, list(OBJECTIVES))
        )
    return OBJECTIVES[name]


def offers(trace: Trace, cluster: ClusterSpec) -> frozenset[str]:
    """What workload and cluster have, of the words of `registry.WANTS`."""
    declared, n = trace.declared, trace.jobs
    shapes = [declared.shapes[code] for code in np.unique(declared.shape[:n]).tolist()]
    types = {node.gpu_type for node in cluster.nodes if node.gpus}
    profiles = [trace.profiles.default, *trace.profiles.models.values()]
    found = {
        "elastic jobs": any(shape.least < shape.most for shape in shapes),
        "GPU types": len(types) > 1,
        "deadlines": bool((declared.deadline[:n] < NEVER).any()),
        "tenants": _several(declared, "tenant"),
        "quotas": any(tenant.quota >= 0 for tenant in cluster.tenants),
        "parts of GPUs": any(role.needs.share < WHOLE for s in shapes for role in s.roles),
        "priorities": _several(declared, "priority"),
        "CPUs": any(profile.sensitivity is not None for profile in profiles)
        and any(node.cpus for node in cluster.nodes),
        "revocable nodes": any("spot" in node.labels for node in cluster.nodes),
        "neighbours that disturb": any(profile.disturbed for profile in profiles),
        "models that share GPUs": any(profile.shares for profile in profiles),
        "machines for rent": any(
            node.offer is not None and node.offer.rentable for node in cluster.nodes
        ),
        "GPU clocks": any(kind.clocks or kind.memory_clocks for kind in cluster.gpu_types)
        and any(profile.clocks is not None for profile in profiles),
        "links": cluster.network is not None and any(each.steps for each in profiles),
    }
    return frozenset(word for word, there in found.items() if there)


def _several(declared: Declared, column: str) -> bool:
    values = getattr(declared, column)[: declared.n]
    return bool((values != values[0]).any())


def plausible(
    among: Iterable[Recipe], objective: Objective, there: frozenset[str], knows: str
) -> tuple[list[str], dict[str, str]]:
    """Names of the recipes to try, and for each other one why not."""
    names, left_out = list[str](), dict[str, str]()
    for recipe in among:
        unknown = sorted(recipe.knowledge - told(knows))
        if recipe.name not in GENERAL and objective.words.isdisjoint(recipe.objectives):
            left_out[recipe.name] = f"is made for {', '.join(sorted(recipe.objectives))}"
        elif unknown:
            left_out[recipe.name] = f"must know {' and '.join(unknown)}"
        elif recipe.wants and there.isdisjoint(recipe.wants):
            left_out[recipe.name] = f"finds no {' or '.join(recipe.wants)}"
        else:
            names.append(recipe.name)
    return names, left_out
