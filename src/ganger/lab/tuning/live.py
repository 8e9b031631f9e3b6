"""From an experiment to a search that a daemon runs: its recipe as text, its configurations."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, get_type_hints

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Point, spelled
from ganger.core.units import parse_memory
from ganger.lab.tuning.own_recipe import TRIALS_MAX, own_recipe, written
from ganger.lab.tuning.own_searcher import OUTSIDE, is_own
from ganger.lab.tuning.recipes import Chosen, chosen
from ganger.mechanisms.tuning.searching.named import LEARNING, count_of, searcher_of
from ganger.mechanisms.tuning.searching.samplers import SAMPLERS, refuse_missing
from ganger.recipes import registry
from ganger.recipes.parameters import exact
from ganger.workloads.experiment.reading import Experiment

_NAMES: Final = re.compile(r"\{([A-Za-z_]\w*)\}")


def search_of(experiment: Experiment, recipe: str) -> dict[str, Any]:
    """The fields of a job request for the search. Raises BadInput."""
    document, where = experiment.document, experiment.where
    if not document.command:
        raise BadInput(
            "what does a trial run?",
            where=f"{where}: command",
            mend='write like command = ["python", "train.py", "--lr", "{lr}"]',
        )
    if experiment.space is None and not experiment.points:
        raise BadInput("there is nothing to try", where=f"{where}: space", mend="add a space")
    _refuse_unknown_names(experiment)
    choice = settled(experiment, recipe)
    text = written(recipe_text(choice), limits_in_words(experiment), experiment.constraints)
    own_recipe(text)  # before so many configurations are drawn
    resources, parts = document.resources, document.resources.per_gpu
    return {
        "kind": "tune",
        "command": document.command,
        "name": document.name,
        "gpus": resources.held(document.parallelism),
        "gpu_types": resources.gpu_types,
        "cpus": resources.cpus * parts,
        "memory": resources.memory if parts == 1 else parse_memory(resources.memory) * parts,
        "tenant": document.tenant,
        "metric": document.metric,
        "metrics": document.metrics,
        "printed": True,
        "recipe": text,
        **_tried(experiment, choice),
    }


def _refuse_unknown_names(experiment: Experiment) -> None:
    """Raise BadInput for a `{NAME}` of the command that not every trial has a value for."""
    document, points = experiment.document, experiment.points
    always = {name for name, parameter in document.space.items() if not parameter.when}
    if not document.space:
        always = set(points[0]).intersection(*points[1:])
    for name in _NAMES.findall(" ".join(document.command)):
        if name not in always and (name in document.space or name.lower() in _lower(always)):
            sometimes = name in document.space
            raise BadInput(
                f"{{{name}}} has {'not always' if sometimes else 'never'} a value",
                where=f"{experiment.where}: command",
                mend="read GANGER_CONFIGURATION in the program"
                if sometimes
                else f"write one of {', '.join(sorted(always))}",
            )


def _lower(names: set[str]) -> set[str]:
    return {name.lower() for name in names}


def recipe_text(choice: Chosen) -> str:
    """The recipe with all its arguments, as people write it."""
    hints = get_type_hints(registry.find(choice.recipe).make, include_extras=True)
    arguments = ",".join(
        f"{name}={exact(each, hints[name])}" for name, each in choice.arguments.items()
    )
    return f"{choice.recipe}({arguments})"


def settled(experiment: Experiment, recipe: str) -> Chosen:
    """The recipe that knows how many trials there may be. Raises BadInput."""
    choice = chosen(recipe, experiment)
    if choice.own is not None:
        raise BadInput(
            "a daemon runs recipes of its own only for all searches",
            where="recipe",
            mend="have an administrator say: ganger policy set RECIPE --inner FILE.py:CLASS",
        )
    count = _available(choice, experiment)
    arguments, document = dict(choice.arguments), experiment.document
    known = registry.find(choice.recipe).parameters
    if "epochs" in known and document.epochs is not None:
        arguments.setdefault("epochs", document.epochs)
    if "trials" in known and "trials" not in arguments:
        wanted = document.trials or count or known["trials"]
        arguments["trials"] = min(wanted, count or TRIALS_MAX, TRIALS_MAX)
    return replace(choice, arguments=arguments).within(count)


def _available(choice: Chosen, experiment: Experiment) -> int | None:
    """How many configurations there are; None for as many as are wanted."""
    if experiment.space is None:
        return len(experiment.points)
    return count_of(choice.searcher, experiment.space, experiment.points)


def _tried(experiment: Experiment, choice: Chosen) -> dict[str, Any]:
    """What the trials try: a searcher that learns is asked by the daemon."""
    document, space = experiment.document, experiment.space
    copying = choice.recipe == "tune.pbt"
    if copying and space is None:
        raise BadInput(
            "copies are made with values near those of others",
            where=f"{experiment.where}: space",
            mend="add a space",
        )
    if copying and choice.searcher != "random":
        raise BadInput("tune.pbt begins with random trials", where="searcher", mend="leave it out")
    if is_own(choice.searcher) and space is None:
        raise BadInput(
            "what does its searcher propose from?",
            where=f"{experiment.where}: space",
            mend="add a space",
        )
    if is_own(choice.searcher):
        return {
            "configurations": [words(point) for point in experiment.points],
            "searcher": OUTSIDE,
            "space": document.space,
            "seed": document.seed,
        }
    if (choice.searcher not in LEARNING and not copying) or space is None:
        return {"configurations": _drawn(experiment, choice)}
    if choice.searcher in SAMPLERS:
        refuse_missing(choice.searcher)
    return {
        "configurations": _drawn(experiment, choice)
        if copying
        else [words(point) for point in experiment.points],
        "searcher": choice.searcher,
        "space": document.space,
        "seed": document.seed,
    }


def _drawn(experiment: Experiment, choice: Chosen) -> list[dict[str, str]]:
    """A configuration for each trial that the recipe may ask for."""
    space, points = experiment.space, experiment.points
    many = int(getattr(choice.policy, "trials", 0)) or len(points)
    if space is None:
        return [words(point) for point in points[:many]]
    searcher = searcher_of(choice.searcher, space, points, experiment.document.seed)
    return [words(searcher.ask()) for _ in range(many)]


def words(point: Point) -> dict[str, str]:
    """A configuration as commands and journals have it."""
    return {name: spelled(value) for name, value in point.items()}


def limits_in_words(experiment: Experiment) -> dict[str, str]:
    """Deadline and budget, as `own_recipe` reads them."""
    budget, limits = experiment.document.budget, dict[str, str]()
    if experiment.document.deadline:
        limits["deadline"] = experiment.document.deadline
    if experiment.document.target is not None:
        limits["target"] = exact(experiment.document.target, float)
    for name in ("epochs", "gpu_hours", "money"):
        if (amount := getattr(budget, name)) is not None:
            limits[name] = exact(float(amount), float)
    return limits
