"""From the words of a user to the policy of a run, and what it knows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ganger.client.strangers import refuse_others_file
from ganger.core.errors import BadInput, InvariantError
from ganger.core.kernel import Kernel
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, Kind
from ganger.core.units import NEVER, WHOLE
from ganger.lab.simulating.oracles import told
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulating.user_policy import OwnPolicy, load_own
from ganger.lab.tuning.own_recipe import own_recipe
from ganger.mechanisms.common.budgets import Budgets, budgets_spent
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel, searches
from ganger.mechanisms.hybrid.room import ServicesFirst
from ganger.mechanisms.hybrid.silos import Silos
from ganger.recipes import registry
from ganger.recipes.training.placement.fragmentation import (
    CLASSES_MAX,
    class_of,
    counted_classes,
    written,
)
from ganger.workloads.formats import load_trace
from ganger.workloads.trace import Trace


def load_policy(
    spec: str, *, recorded: bool = False, bounded: bool = True, plane: str = "training"
) -> Policy:
    """A recipe by name and parameters, or a user's own class as `FILE.py:Class`. `recorded`: a
    journal or log names it; then no file runs that another user wrote or may change. `bounded`:
    parameters must be within their bounds, which a version that recorded a recipe may not have had.
    `plane`: one of `registry.PLANES`, of which the recipe has to be if it is not for all jobs. A
    `workload` that is `@FILE` is that of a trace, but for what is recorded: see `resolved`. Raises
    BadInput."""
    path, colon, name = spec.partition(":")
    if colon and path.endswith(".py"):
        file = Path(path)
        if recorded and file.is_file():
            file = refuse_others_file(file, above=True)
        return load_own(file, name)
    found, arguments = registry.parse(spec, bounded=bounded)
    if found.plane not in ("training", "requests", plane):
        what, option, instead = OTHER_PLANES[found.plane]
        raise BadInput(
            f"{found.name} decides over {what} only",
            where="recipe",
            mend=f"use it as {option} {found.name}{instead}",
        )
    if not recorded and (workload := _workload_file(arguments)):
        arguments["workload"] = _tasks(workload)
        return cast("Policy", found.make(**arguments))
    return registry.make(spec, bounded=bounded)


def resolved(spec: str) -> str:
    """The recipe of `spec` as journals and logs record it: with the tasks of a file in place of the
    file, which may change or go. Raises BadInput where the file cannot be read."""
    if "@" not in spec or spec.partition(":")[0].endswith(".py"):
        return spec
    file = _workload_file(registry.parse(spec, bounded=False)[1])
    return spec.replace(f"@{file}", ";".join(_tasks(file))) if file else spec


def _workload_file(arguments: dict[str, Any]) -> str:
    """The file whose jobs are the tasks of the workload; empty if the tasks are stated. Raises
    BadInput for an @ alone."""
    workload = arguments.get("workload", ())
    if workload == ("@",):
        raise BadInput("no file after the @", where="fgd(workload)", mend="write @FILE")
    named = len(workload) == 1 and workload[0].startswith("@")
    return workload[0][1:] if named else ""


def _tasks(path: str) -> tuple[str, ...]:
    """The jobs of a trace as classes of tasks, the most frequent first. Raises BadInput."""
    trace = load_trace(Path(path))
    shapes = trace.declared.shapes
    codes, counts = np.unique(trace.declared.shape[: trace.jobs], return_counts=True)
    jobs = zip(codes.tolist(), counts.tolist(), strict=True)
    classes = counted_classes(class_of(shapes[code], count) for code, count in jobs)
    ordered = sorted(classes.items(), key=lambda each: -each[1])
    return tuple(written(kind, count) for kind, count in ordered[:CLASSES_MAX])


OTHER_PLANES = {
    "serving": ("services", "--serving", ""),
    "tuning": ("the trials of a search", "--inner", ", or on an experiment file: docs/tuning.md"),
    "hybrid": ("how two recipes share a cluster", "--sharing", ""),
}
"""What recipes decide over that are not for all jobs, the option of `ganger simulate`, and what
else takes them."""


def families(trace: Trace, inner: str, *, recorded: bool = False) -> bool:
    """Whether some job is to be placed inside what another holds: it names it as its parent, or the
    recipe `inner`, or one of the job's own, asks for it. Raises BadInput."""
    declared, n = trace.declared, trace.jobs
    if not has(trace, Kind.TUNE):
        return False
    if (declared.parent[:n] >= 0).any() or (declared.inner[:n] > 0).any():
        return True
    return searches(load_policy(inner, recorded=recorded, bounded=not recorded, plane="tuning"))


def with_inner(policy: Policy, inner: str, *, recorded: bool = False) -> Policy:
    """The policy, and inside each grant the recipe `inner`. Raises BadInput."""
    within = load_policy(inner, recorded=recorded, bounded=not recorded, plane="tuning")
    return TwoLevel(policy, within, partial(own_recipe, bounded=False))


def with_serving(
    policy: Policy, serving: str, sharing: str = "", *, recorded: bool = False
) -> Policy:
    """The policy, and beside it the recipe `serving` for services, which share the cluster by the
    rule `sharing` (one of plane `hybrid`; "": services are asked first). Raises BadInput."""
    services = load_policy(serving, recorded=recorded, bounded=not recorded, plane="serving")
    if not sharing:
        return Planes(services, policy)
    return registry.make_sharing(sharing, bounded=not recorded).join(services, policy)


def with_budgets(policy: Policy, cluster: ClusterSpec) -> Policy:
    """The policy, and around it the budgets of tenants, if the cluster states any."""
    stated = any(tenant.budget >= 0 for tenant in cluster.tenants)
    return Budgets(policy) if stated else policy


def over_budget(kernel: Kernel) -> list[str]:
    """A note on each tenant that has spent its budget."""
    spent = budgets_spent(kernel.view, kernel.memory, kernel.now)
    return [
        f"tenant {each.name} spent {spent[each.name]:.2f} of {each.budget:g} USD ({each.beyond})"
        for each in kernel.nodes.spec.tenants
        if each.name in spent and spent[each.name] >= each.budget - 1e-9
    ]


def composed(
    policy: Policy,
    trace: Trace,
    inner: str,
    serving: str,
    sharing: str = "",
    *,
    recorded: bool = False,
) -> Policy:
    """The policy, with `inner` inside grants if the trace has any, and beside it `serving` for
    services if there are any, which share the cluster by `sharing`. Raises BadInput."""
    if families(trace, inner, recorded=recorded):
        policy = with_inner(policy, inner, recorded=recorded)
    if serving and has_services(trace):
        policy = with_serving(policy, serving, sharing, recorded=recorded)
    return policy


def has(trace: Trace, kind: Kind) -> bool:
    """Whether there are jobs of that kind."""
    return bool((trace.declared.kind[: trace.declared.n] == kind).any())


def has_services(trace: Trace) -> bool:
    """Whether there are jobs of kind `serve`."""
    return has(trace, Kind.SERVE)


def needs_of(spec: str) -> str:
    """What the recipe of `spec` must know; "own" for a user's file."""
    if spec.partition(":")[0].endswith(".py"):
        return "own"
    recipe, arguments = registry.parse(spec, bounded=False)
    return recipe.needs_with(arguments)


def known(recipe: str | Policy, setup: Setup, trace: Trace) -> str:
    """Of durations, what the policy knew: as `setup` says. "speeds" or "noisy speeds" if recipes
    need these only; nothing, if they need nothing that the oracle has."""
    if not isinstance(recipe, str):
        return setup.knows
    recipes = [recipe]
    if families(trace, setup.inner):
        recipes.append(setup.inner)
    if setup.serving and has_services(trace):
        recipes.append(setup.serving)
    needs = ", ".join(map(needs_of, recipes))
    if "durations" in needs or "own" in needs:
        return setup.knows
    if "throughputs" in needs and "throughputs" in told(setup.knows):
        return "noisy speeds" if setup.knows == "noisy" else "speeds"
    return "nothing"


def unused_types(cluster: ClusterSpec) -> list[str]:
    """A note on GPU types that the cluster describes, and none of its nodes has."""
    types = {node.gpu_type for node in cluster.nodes}
    lacks = [kind.name for kind in cluster.gpu_types if kind.name not in types]
    return [f"no node has GPUs of type {' or '.join(lacks)}, which the cluster describes"] * any(
        lacks
    )


def doubts(recipe: str | Policy, trace: Trace, setup: Setup) -> list[str]:
    """What the recipe must know and does not, and what it wants of models and none has."""
    if not isinstance(recipe, str):
        return []
    if needs_of(recipe) == "own":
        return []
    return [
        *_unknown_durations(recipe, trace, setup),
        *_unknown_speeds(recipe, trace, setup),
        *_without_parts(recipe, trace),
    ]


def _unknown_speeds(recipe: str, trace: Trace, setup: Setup) -> list[str]:
    """Said where the recipe must know speeds and is told none, or jobs could share GPUs, and of no
    model of theirs it is known how fast it does."""
    named, declared = registry.parse(recipe, bounded=False)[0], trace.declared
    shares = "models that share GPUs" in named.wants
    if "throughputs" in needs_of(recipe) and "throughputs" not in told(setup.knows):
        so = "no job shares GPUs" if shares else "speeds are taken to be in proportion to GPUs"
        return [f"it needs speeds and has none (--knows {setup.knows}): {so}; try --knows truth"]
    codes = np.unique(declared.model[: trace.jobs]).tolist() if shares else []
    known = [code for code in codes if setup.profiles.of(declared.models[code]).shares]
    if known and named.shares_plain:
        shapes = np.unique(
            declared.shape[: trace.jobs][np.isin(declared.model[: trace.jobs], known)]
        )
        if not any(declared.shapes[code].is_plain for code in shapes.tolist()):
            return [
                "no job shares GPUs: each asks for more than whole GPUs, such as CPUs or memory,"
                " or is of a model of which it is not known how fast it runs beside others"
            ]
    if known or not shares:
        return []
    return [
        "no job shares GPUs: no model of the trace has stages, utilisation or measured pairs"
        " (--profiles, docs/profiles-file.md)"
    ]


def _without_parts(recipe: str, trace: Trace) -> list[str]:
    """Said where the recipe places parts of GPUs, and no job asks for one."""
    declared = trace.declared
    wants = registry.parse(recipe, bounded=False)[0].wants
    shapes = [declared.shapes[code] for code in np.unique(declared.shape[: trace.jobs]).tolist()]
    parts = any(role.needs.share < WHOLE for shape in shapes for role in shape.roles)
    return [] if parts or wants != ("parts of GPUs",) else ["no job asks for a part of a GPU"]


def _unknown_durations(recipe: str, trace: Trace, setup: Setup) -> list[str]:
    if "durations" not in needs_of(recipe):
        return []
    if setup.knows == "nothing":
        return [
            "it needs durations and has none (--knows nothing): it uses estimates and limits if"
            " it can, else arrivals; try --knows estimate, rolling or history"
        ]
    if setup.knows == "estimate":
        declared, n = trace.declared, trace.jobs
        silent = int(((declared.estimate[:n] >= NEVER) & (declared.limit[:n] >= NEVER)).sum())
        if silent:
            return [
                f"{silent:,} of {n:,} jobs state neither estimate nor time limit (--knows estimate)"
            ]
    return []


def blame(policy: Policy, error: InvariantError) -> Exception:
    """The error as one of the user's own policy, if there is one."""
    parts: list[Policy] = [policy]
    while parts:
        part = parts.pop(0)
        if isinstance(part, OwnPolicy):
            return part.wrong(str(error))
        if isinstance(part, Planes | Silos | ServicesFirst):
            parts += [part.serving, part.training]
        elif isinstance(part, Budgets):
            parts.append(part.inner)
        elif isinstance(part, TwoLevel):
            parts += [part.outer, part.inner]
    return error
