"""Searches and services as they are submitted, and what their children get to know."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ganger.client import grid
from ganger.client.request import JobRequest
from ganger.core.errors import BadInput
from ganger.core.profiles import PLAIN_PROFILE
from ganger.core.protocols import Policy
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.tuning.goals import DIRECTIONS, GOALS_MAX, Constraint
from ganger.core.tuning.space import Space, spelled
from ganger.core.units import NEVER
from ganger.lab.tuning.own_recipe import own_recipe
from ganger.lab.tuning.own_searcher import OUTSIDE
from ganger.mechanisms.common.two_level import refuse_hopeless
from ganger.mechanisms.tuning.searching.named import LEARNING
from ganger.mechanisms.tuning.searching.samplers import SAMPLERS, refuse_missing
from ganger.mechanisms.tuning.trials import Mode, portion_of
from ganger.service.jobs.job_facts import Family, JobFacts, Proposals

if TYPE_CHECKING:
    from ganger.service.commands import Turn

ASKED: Final = ("random", *LEARNING, OUTSIDE)
"""The searchers that a daemon asks: those that learn, one where recipes copy trials, and the
program that submitted the search."""
CONFIGURATIONS_MAX: Final = 10_000
PROPOSED_MAX: Final = 100
"""The most parameters of a space that a daemon proposes from, and the most values of a choice."""
VALUE_MAX: Final = 1e300
CHILDREN_MAX: Final = 10_000
"""The most children that one parent ever has."""
SEARCHES: Final = ("grid", "random")


def family_of(request: JobRequest, tasks_max: int) -> Family | None:
    """What the children of the job are; None if it is to have none. Raises BadInput."""
    tune = request.kind == "tune"
    if request.search not in SEARCHES:
        raise BadInput(f"{request.search!r} is not one of {', '.join(SEARCHES)}", where="search")
    if request.parent not in ("", None) and request.kind != "train":
        raise BadInput(
            f"a job of kind {request.kind} has no parent",
            where="parent",
            mend="leave it out, or submit a job of kind train",
        )
    if request.recipe:
        _check_recipe(request)
    _check_metrics(request)
    proposals = _proposals(request)
    if not tune:
        if request.configurations:
            raise BadInput("this is not a search", where="configurations", mend="add kind tune")
        if request.kind != "serve" or request.params or request.array:
            return None
        return Family()
    if request.array:
        raise BadInput(
            "a search is one job",
            where="array",
            mend="state what its trials try by params or configurations",
        )
    if request.gpus < 1 or request.share < 1.0:
        raise BadInput(
            "a search holds whole GPUs for its trials", where="gpus", mend="ask for one at least"
        )
    if request.singleton or request.after_each:
        raise BadInput("a search is one job by itself", where="singleton", mend="leave it out")
    if request.params and request.configurations:
        raise BadInput("it contradicts configurations", where="params", mend="give one of them")
    found = request.configurations or (
        list(grid.combinations(request.params)) if request.params else []
    )
    if len(found) > CONFIGURATIONS_MAX:
        raise BadInput(f"more than {CONFIGURATIONS_MAX:,}", where="configurations")
    for one in request.configurations:
        grid.check({name: [value] for name, value in one.items()}, tasks_max)
    if request.search == "random":
        random.Random(len(found)).shuffle(found)
    return Family(tuple(found), request.metrics, proposals)


def _proposals(request: JobRequest) -> Proposals | None:
    """The searcher of a search that learns from reports; None for none. Raises BadInput."""
    if not request.searcher:
        for field in ("space", "earlier"):
            if getattr(request, field):
                raise BadInput("no searcher is named", where=field, mend="name one that learns")
        return None
    if request.kind != "tune":
        raise BadInput("this is not a search", where="searcher", mend="add kind tune")
    if request.searcher not in ASKED:
        raise BadInput(
            f"{request.searcher[:80]!r} is not one of {', '.join(ASKED)}",
            where="searcher",
            mend="list the configurations of other searchers; a searcher of your own runs in the"
            " program that submits (`ganger tune --searcher FILE.py:Class`)",
        )
    if not request.recipe:
        raise BadInput(
            "a searcher must know which values are good",
            where="recipe",
            mend="state mode in it",
        )
    Space(request.space)
    if len(request.space) > PROPOSED_MAX:
        raise BadInput(f"more than {PROPOSED_MAX} parameters", where="space")
    for name, parameter in request.space.items():
        values = [spelled(value) for value in parameter.values] or ["0"]
        if len(values) > PROPOSED_MAX:
            raise BadInput(f"more than {PROPOSED_MAX} values", where=f"space: {name}")
        grid.check({name: values}, PROPOSED_MAX)
    if request.searcher in SAMPLERS:
        refuse_missing(request.searcher)
    if len(request.earlier) > CONFIGURATIONS_MAX:
        raise BadInput(f"more than {CONFIGURATIONS_MAX:,}", where="earlier")
    for trial in request.earlier:
        grid.check({name: [value] for name, value in trial.params.items()}, 1)
        if not 0 <= trial.step < math.inf or abs(trial.value or 0.0) > VALUE_MAX:
            raise BadInput("its step or value is out of range", where="earlier")
    policy = own_recipe(request.recipe)
    mode = getattr(getattr(policy, "inner", policy), "mode", Mode.MIN)
    return Proposals(
        request.searcher,
        request.space,
        request.seed,
        mode,
        tuple(request.earlier),
        constraints_of(policy),
    )


def _check_recipe(request: JobRequest) -> None:
    """Raise BadInput for a recipe over trials that cannot be."""
    if request.kind != "tune":
        raise BadInput("this is not a search", where="recipe", mend="add kind tune")
    policy = own_recipe(request.recipe)
    gpus = portion_of(getattr(policy, "inner", policy)).gpus
    if gpus > max(request.gpus, request.max_gpus):
        raise BadInput(
            f"a trial takes {gpus} GPUs, and the search has {request.gpus}",
            where="gpus",
            mend="ask for more",
        )
    refuse_hopeless(policy, request.gpus, PLAIN_PROFILE)


def _check_metrics(request: JobRequest) -> None:
    """Raise BadInput for metrics that cannot count for a front."""
    if request.metrics and request.kind != "tune":
        raise BadInput("this is not a search", where="metrics", mend="add kind tune")
    if len(request.metrics) > GOALS_MAX:
        raise BadInput(f"more than {GOALS_MAX}", where="metrics")
    for name, direction in request.metrics.items():
        if not 0 < len(name) <= 128:
            raise BadInput(f"{name[:80]!r} has not 1 to 128 characters", where="metrics")
        if name == request.metric:
            raise BadInput(f"{name[:80]!r} counts already: it is the metric", where="metrics")
        if direction not in DIRECTIONS:
            raise BadInput(
                f"{direction[:80]!r} is not min or max", where=f"metrics: {name}", mend="write one"
            )


def constraints_of(policy: Policy) -> tuple[Constraint, ...]:
    """What trials under this policy must keep to be the best."""
    limits = getattr(policy, "limits", None)
    return limits.constraints if limits is not None else ()


def others_of(request: JobRequest) -> tuple[str, ...]:
    """The metrics that count of a search beside the one that judges. Raises BadInput."""
    if not request.recipe:
        return tuple(request.metrics)
    constraints = constraints_of(own_recipe(request.recipe))
    return tuple(dict.fromkeys([*request.metrics, *(each.metric for each in constraints)]))


def tried_again(request: JobRequest) -> str:
    """What a submitter should know where a recipe starts more trials than there are configurations:
    each is then tried again; "" where that is not so."""
    if request.kind != "tune" or not request.recipe or request.searcher:
        return ""
    policy = own_recipe(request.recipe)
    trials = int(getattr(getattr(policy, "inner", policy), "trials", 0))
    many = len(request.configurations) or math.prod(map(len, request.params.values()))
    if not 0 < many < trials:
        return ""
    each = "the only configuration is" if many == 1 else f"the {many} configurations are"
    return f"{each} tried again and again: the recipe starts {trials} trials"


def refuse_unpriced(spec: JobSpec, nodes: Nodes) -> None:
    """Raise BadInput for a search with a budget of money that might hold GPUs without a price:
    they would cost it nothing."""
    policy = own_recipe(spec.inner) if spec.inner else None
    limits = getattr(policy, "limits", None)
    if limits is None or limits.money >= NEVER:
        return
    codes = set(nodes.gpu_type[: nodes.n][nodes.gpus[: nodes.n] > 0].tolist())
    kinds = [nodes.type_specs[code] for code in sorted(codes)]
    free = [
        kind.name
        for kind in kinds
        if kind.price <= 0 and (not spec.shape.gpu_types or kind.name in spec.shape.gpu_types)
    ]
    if free:
        raise BadInput(
            f"GPUs of type {free[0]} have no price, so that a budget of money would never be used",
            where="recipe: money",
            mend="state their `price` in the cluster file, or limit gpu_hours",
        )


def text_of_trials(request: JobRequest) -> int:
    """How many bytes the configurations of a search have, each written out; 0 if it is none."""
    if request.kind != "tune":
        return 0
    listed = sum(len(name) + len(each[name]) for each in request.configurations for name in each)
    many = math.prod(map(len, request.params.values()))
    listed += sum(
        len(name) + len(each.params[name]) for each in request.earlier for name in each.params
    )
    return listed + sum(
        many * len(name) + many // len(values) * sum(map(len, values))
        for name, values in request.params.items()
    )


def children_of(jobs: Jobs, parent: int) -> list[int]:
    """The rows of a job's children, ascending."""
    return np.flatnonzero(jobs.parent[: jobs.n] == parent).tolist()


def next_child(turn: Turn, parent: int) -> int:
    """The number of the next child of a job. Raises BadInput where it may have no more."""
    number = turn.born.get(parent)
    if number is None:
        number = len(children_of(turn.kernel.jobs, parent))
    kind = turn.kernel.jobs.kind[parent]  # a service had many replicas, and has few
    if number >= CHILDREN_MAX and kind == Kind.TUNE:
        raise BadInput(
            f"job {parent + 1} has {number:,} children, and may have no more", where="parent"
        )
    turn.born[parent] = number + 1
    return number


def joined(spec: JobSpec, facts: JobFacts, turn: Turn, parent: JobFacts) -> JobFacts:
    """The facts of a trial that people submit, with its number. Raises BadInput where its parent
    can have no more, or is over."""
    row = int(spec.parent) - 1
    jobs = turn.kernel.jobs
    if jobs.kind[row] != Kind.TUNE or parent.family is None:
        raise BadInput(
            f"job {row + 1} is not a search", where="parent", mend="name a job of kind tune"
        )
    if jobs.phase[row] >= Phase.FINISHED:
        raise BadInput(f"job {row + 1} is over", where="parent", mend="submit another search")
    metric = facts.launch.metric or parent.launch.metric
    launch = msgspec.structs.replace(facts.launch, metric=metric)
    return msgspec.structs.replace(facts, launch=launch, child=next_child(turn, row))


def born(
    spec: JobSpec,
    parent: JobFacts,
    kind: Kind,
    number: int,
    values: dict[str, str] | None = None,
    heard: int = -1,
    copied: int = -1,
    copies: str = "",
) -> JobFacts:
    """The facts of child `number` of a job of this kind, called after its row in `spec`, which a
    policy asked for, or people with these `values` of parameters; `heard` and `copied` as in
    `JobFacts`, `copies` as in `Launch`."""
    assert parent.family is not None
    if values is None:
        given = parent.family.configurations
        values = given[number % len(given)] if given else {}
    what = grid.spoken(values) or f"{'trial' if kind is Kind.TUNE else 'replica'} {number}"
    name = f"{parent.name} {what}"[:200]
    folder = parent.launch.checkpoint_dir
    launch = msgspec.structs.replace(
        parent.launch,
        shape=spec.shape,
        checkpoint_dir=f"{folder}/{spec.name}" if folder else "",  # others may save there, too
        copies=copies,
    )
    return JobFacts(
        name="".join(letter if letter.isprintable() else "?" for letter in name),
        launch=launch,
        user=parent.user,
        params=values,
        script=parent.script,
        child=number,
        heard=heard,
        copied=copied,
    )
