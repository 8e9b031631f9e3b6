"""A scenario, read and checked: what is wrong is one sentence that names the service and field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict, replace

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, parse_duration
from ganger.workloads.curves.parametric import Formula, read_formula
from ganger.workloads.curves.reading import read_curves
from ganger.workloads.curves.table import CurveTable
from ganger.workloads.documents import read_document, says_it_is
from ganger.workloads.experiment.reading import Experiment, checked, read_experiment
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.models.names import distinct
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.curves import curve_of
from ganger.workloads.requests.formats import load_requests
from ganger.workloads.requests.merging import asking, merged
from ganger.workloads.requests.synthetic import MIXED, Mix, generated
from ganger.workloads.scenario.document import FORMAT, Document, Entered, Generate, Service

DOCS: Final = "docs/scenario-file.md"
_CURVE: Final = ("rate", "rates", "stays", "swing", "peak", "period", "to", "at", "width", "cv")


@dataclass(frozen=True)
class Scenario:
    """What a file says, with its files found. `files`: all that were named and are there."""

    path: Path
    document: Document
    models: str
    trace: Path | None
    experiments: list[Experiment]
    """Of each entry of `experiments`, with what the scenario says of it."""

    def curves(self, entered: Entered) -> Formula | CurveTable:
        """What the trials of an entry report. Raises BadInput."""
        where = f"{self.path}: experiment {entered.file!r}"
        if entered.curves.partition(":")[0] == "parametric":
            if entered.task:
                raise BadInput("parametric curves have no task", where=where, mend="leave it out")
            return read_formula(entered.curves, f"{where}: curves")
        return read_curves(_found(entered.curves, self.path), entered.task)

    def requests(self) -> Requests:
        """What all services are asked, from the beginning. Raises BadInput, also when read."""
        streams = [_stream(each, self.path) for each in self.document.services]
        if len(streams) == 1:
            return streams[0]
        return merged(streams, name=self.path.name, source=f"scenario {self.path}")

    @property
    def files(self) -> list[str]:
        """Everything that decides the figures."""
        named = [
            _found(each.requests, self.path)
            for each in self.document.services
            if each.requests is not None
        ]
        entries = self.document.experiments
        named += [_found(each.file, self.path) for each in entries]
        tables = (each.curves for each in entries if not each.curves.startswith("parametric"))
        named += [_found(each, self.path) for each in tables]
        return [str(each) for each in (self.path, self.models, self.trace or "", *named)]


def is_scenario(path: Path) -> bool:
    """Whether a file says that it is one."""
    return says_it_is(path, FORMAT)


def read_scenario(path: Path) -> Scenario:
    """The scenario in a TOML, YAML or JSON file. Raises BadInput, with the first thing wrong."""
    file = open_text(path)
    found = read_document(file, FORMAT, Document, docs=DOCS)
    distinct([each.name for each in found.services], f"{file.where}: services")
    for service in found.services:
        _check(service, f"{file.where}: service {service.name!r}")
        _stream(service, path)
    _check_planes(found, file)
    _check_places(found, file)
    beside = path.parent / found.models
    stated = "" if found.training is None else found.training.trace
    trace = _found(stated, path) if stated else None
    models = str(beside) if found.models and beside.is_file() else found.models
    experiments = [_experiment(each, path) for each in found.experiments]
    distinct([each.document.name for each in experiments], f"{file.where}: experiments")
    return Scenario(path, found, models, trace, experiments)


def _experiment(entered: Entered, path: Path) -> Experiment:
    """The experiment of an entry. Raises BadInput."""
    experiment = read_experiment(_found(entered.file, path))
    parse_duration(entered.at, where=f"{path}: experiment {entered.file!r}: at")
    given = {name: getattr(entered, name) for name in ("name", "recipe", "tenant")}
    document = replace(
        experiment.document, **{name: value for name, value in given.items() if value}
    )
    return checked(document, experiment.where)


def _check_planes(document: Document, file: TextFile) -> None:
    """What is asked for needs what decides over it. Raises BadInput."""
    where, training = file.where, document.training
    if not document.services and not document.experiments:
        raise BadInput(
            "it asks for nothing", where=where, mend="add [[services]] or [[experiments]]"
        )
    if document.services:
        for field, given in (("models", document.models), ("routers", document.routers)):
            if not given:
                raise BadInput(
                    "services need it", where=f"{where}: {field}", mend="see docs/scenario-file.md"
                )
        for field in ("trace", "scaling") if training is not None else ():
            if not getattr(training, field):
                raise BadInput(
                    "services beside training need it",
                    where=f"{where}: training: {field}",
                    mend="see docs/scenario-file.md",
                )
    if document.loans is not None and (training is None or not training.sharing):
        raise BadInput(
            "nothing is lent here",
            where=f"{where}: loans",
            mend='name a rule, like sharing = ["aryl"], in [training]',
        )
    if document.experiments and training is None:
        raise BadInput(
            "which recipe divides the cluster?",
            where=f"{where}: training",
            mend='add [training] with recipes = ["fifo"]',
        )


def _check(service: Service, where: str) -> None:
    if (service.requests is None) == (service.generate is None):
        raise BadInput(
            "it needs `requests` or `generate`, and not both",
            where=where,
            mend="name a file of requests, or say how they are made up",
        )
    if service.generate is not None and (service.options or service.format != "auto"):
        raise BadInput(
            "it is made up, and has no file",
            where=f"{where}: format",
            mend="leave `format` and `options` out",
        )


def _check_places(found: Document, file: TextFile) -> None:
    """What fields have to agree on. Raises BadInput."""

    def refuse(what: str, field: str, mend: str) -> BadInput:
        return BadInput(what, where=f"{file.where}: {field}", mend=mend)

    for slo in found.slo:
        _time(slo, f"{file.where}: slo")
    if found.windows is not None:
        _time(found.windows, f"{file.where}: windows")
    if found.training is None:
        if bool(found.fleets) == bool(found.cluster):
            raise refuse(
                "where are requests answered?",
                "fleets",
                "give `fleets`, like T4:4, or `cluster`, like 1x4xT4",
            )
        return
    if found.fleets or not found.cluster:
        raise refuse(
            "what is beside training runs on a cluster",
            "cluster",
            "give `cluster`, like 2x4xT4, and no `fleets`",
        )
    for field, many in (("routers", found.routers), ("slo", found.slo), ("faster", found.faster)):
        if len(many) > 1:
            raise refuse("beside training there is one", field, "keep one of them")
    for field, given in (
        ("faster", found.faster),
        ("latency_noise", found.latency_noise != 1.0),
    ):
        if given:
            raise refuse("it means nothing beside training", field, "leave it out")
    for name, delay in asdict(found.training.costs).items():
        parse_duration(delay, where=f"{file.where}: training: costs: {name}")
    window, windows = found.training.window, found.windows
    each = None if window is None else _time(window, f"{file.where}: training: window")
    if each is not None and windows is not None and each != _time(windows, "windows"):
        raise refuse(
            f"services are run by the windows that they report, and `window` is {window}",
            "windows",
            "write the same, or leave `window` out",
        )


def _time(text: str, where: str) -> int:
    found = parse_duration(text, where=where)
    if not found:
        raise BadInput("nothing is answered in no time", where=where, mend="write like 100ms")
    return found


def _found(name: str, path: Path) -> Path:
    return path.parent / name


def _stream(service: Service, path: Path) -> Requests:
    """The requests of a service. Raises BadInput."""
    where = f"{path}: service {service.name!r}"
    slo = NEVER if service.slo is None else _time(service.slo, f"{where}: slo")
    if service.requests is not None:
        options: dict[str, Any] = dict(service.options)
        stream = load_requests(_found(service.requests, path), service.format, **options)
        return asking(stream, model=service.model, slo=slo)
    assert service.generate is not None, "it was checked that there is one of them"
    with _placed(f"{where}: generate"):
        return asking(_generated(service, service.generate), slo=slo)


def _generated(service: Service, how: Generate) -> Requests:
    chosen: dict[str, Any] = {name: getattr(how, name) for name in _CURVE}
    for name in ("rates", "stays"):
        if chosen[name] is not None:
            chosen[name] = ",".join(map(str, chosen[name]))
    if how.models and service.model:
        raise BadInput("the service names a model", where="models", mend="keep one of the two")
    names = tuple(how.models) or (service.model or service.name,)
    mix = Mix(
        **{name: getattr(how, name) for name in MIXED if name != "models"},
        models=len(names),
        names=names,
    )
    if how.kind == "gamma" and how.cv is None:
        raise BadInput("how bursty?", where="cv", mend="add cv, such as 4")
    length = None if how.duration is None else parse_duration(how.duration, where="duration")
    return generated(
        curve_of(how.kind, chosen),
        seed=how.seed,
        most=how.requests,
        duration=None if length is None else length / SECOND,
        cv=1.0 if how.cv is None else how.cv,
        mix=mix,
        name=service.name,
        source=f"synthetic: {how.kind}, seed {how.seed}",
    )


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """Errors say where in the scenario they are."""
    try:
        yield
    except BadInput as error:
        field = error.where.removeprefix("--").replace("-", "_")
        raise BadInput(
            error.what,
            where=f"{where}: {field}" if field else where,
            mend=error.mend.replace("--", ""),
        ) from None
