"""What `ganger simulate scenario.toml` does: what the file says, by way of the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, parse_duration

if TYPE_CHECKING:
    from ganger.lab.serving.hosting import Traffic
    from ganger.lab.tuning.beside import Entry
    from ganger.workloads.scenario.reading import Scenario

_OF_JOBS: Final = ("by", "why", "per_job", "per_trial", "log", "validate")
_OUTPUT: Final = (*_OF_JOBS, "as_json", "report", "workers", "quiet", "trace", "yardsticks")
"""The options that a scenario leaves to the command line."""
_INSTEAD: Final = ("recipe", "serving", "inner", "sharing")
"""Those that take the place of what a scenario with training says."""


def run_scenario(path: Path, options: dict[str, Any]) -> None:
    """Requests on a fleet, or services and experiments beside training on a cluster. Raises
    BadInput."""
    from ganger.workloads.scenario.reading import read_scenario

    context = click.get_current_context()
    found = read_scenario(path)
    beside = found.document.training is not None
    for parameter in context.command.get_params(context):
        name = parameter.name or ""
        if context.get_parameter_source(name) != _GIVEN or (beside and name in _INSTEAD):
            continue
        if name not in _OUTPUT:
            field = 'windows = "10s"' if name == "by_windows" else "it"
            raise BadInput(
                "a scenario says it",
                where=parameter.opts[0],
                mend=f"write {field} into {path.name}",
            )
    if not beside:
        _on_a_fleet(found, options)
    else:
        _beside_training(found, options)


_GIVEN = ParameterSource.COMMANDLINE


def _on_a_fleet(scenario: Scenario, options: dict[str, Any]) -> None:
    from ganger.cli.lab.serving.comparison import compare, fleet_of

    for name in _OF_JOBS:
        if options[name]:
            raise BadInput(
                "it is about jobs, and this scenario has none",
                where=f"--{name.replace('_', '-')}",
                mend="leave it out",
            )
    document = scenario.document
    chosen = {
        "recipe": ",".join(document.routers),
        "fleets": ",".join(document.fleets) or fleet_of(_cluster(scenario)),
        "models": scenario.models,
        "slo": ",".join(document.slo) or None,
        "faster": ",".join(f"{each:g}" for each in document.faster) or "1",
        "seeds": document.seeds,
        "noise": document.latency_noise,
        "windows": document.windows,
        "prices": document.prices,
        "per_request": None,
        **{name: options[name] for name in ("workers", "quiet", "as_json", "report", "yardsticks")},
    }
    compare(str(scenario.path), scenario.requests, chosen, scenario.files)


def _cluster(scenario: Scenario) -> str:
    """The cluster in words, or its file beside the scenario."""
    beside = scenario.path.parent / scenario.document.cluster
    return str(beside) if beside.is_file() else scenario.document.cluster


def _beside_training(scenario: Scenario, options: dict[str, Any]) -> None:
    from ganger.cli.lab.combinations import halves
    from ganger.cli.lab.simulate import simulate_jobs
    from ganger.client.strangers import refuse_others_file
    from ganger.lab.simulating.policies import needs_of
    from ganger.recipes.registry import split_specs

    document, training = scenario.document, scenario.document.training
    assert training is not None, "it was checked that there is training"
    if options["per_trial"] is not None and not document.experiments:
        raise BadInput(
            "it is about trials, and this scenario has none",
            where="--per-trial",
            mend="leave it out",
        )
    if any(needs_of(name) == "own" for name in (*training.recipes, training.scaling) if name):
        refuse_others_file(scenario.path)
    source = click.get_current_context().get_parameter_source
    instead = {name: options[name] for name in _INSTEAD if source(name) == _GIVEN}
    said = {
        "recipe": ",".join(training.recipes),
        "serving": training.scaling,
        "inner": "",
        "sharing": ",".join(training.sharing),
        **instead,
    }
    if said["serving"] != training.scaling and training.scaling:
        said["serving"] = ",".join(
            text if halves(text)[0] else f"{training.scaling}+{text}"
            for text in split_specs(said["serving"])
        )
    given = {
        **said,
        "seeds": document.seeds,
        "knows": training.knows,
        "window": training.window or document.windows or "10s",
        "load": ",".join(f"{each:g}" for each in training.loads) or None,
        "traffic": _traffic(scenario, options) if document.services else None,
        "entries": _entries(scenario),
        "prices": document.prices,
        "loan_rate": document.loans.rate if document.loans is not None else 1.0,
        "files": scenario.files,
        "begin": training.costs.start,
        **{
            name: getattr(training.costs, name)
            for name in ("finish", "checkpoint", "restore", "boot")
        },
    }
    simulate_jobs(scenario.trace, _cluster(scenario), said["recipe"], {**options, **given})


def _entries(scenario: Scenario) -> list[Entry]:
    """The experiments with their curves. Raises BadInput."""
    from ganger.lab.tuning.beside import Entry
    from ganger.workloads.curves.stragglers import read_stragglers

    document = scenario.document
    return [
        Entry(
            experiment,
            scenario.curves(entered),
            experiment.document.recipe,
            parse_duration(entered.at),
            entered.priority,
            read_stragglers(entered.stragglers, f"{scenario.path}: stragglers"),
        )
        for entered, experiment in zip(document.experiments, scenario.experiments, strict=True)
    ]


def _traffic(scenario: Scenario, options: dict[str, Any]) -> Traffic:
    from ganger.lab.serving.hosting import Traffic
    from ganger.recipes.registry import make_router
    from ganger.workloads.models.reading import read_models

    (router,) = scenario.document.routers
    make_router(router)
    slo = next((parse_duration(each, where="slo") for each in scenario.document.slo), NEVER)
    models = read_models(scenario.models)
    return Traffic(
        scenario.requests(),
        models,
        router,
        slo,
        watch=options["report"] is not None,
        yardsticks=options["yardsticks"],
        remembers=options["log"] is not None,
        by_windows=scenario.document.windows is not None,
    )
