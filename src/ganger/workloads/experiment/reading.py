"""An experiment, read and checked: what is wrong is one sentence that names the field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.tuning.goals import Constraint, read_constraint
from ganger.core.tuning.space import Point, Space
from ganger.core.units import NEVER, parse_duration, parse_memory
from ganger.workloads.documents import read_document, says_it_is
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.files import open_text

DOCS: Final = "docs/tuning.md"


@dataclass(frozen=True)
class Experiment:
    """What a file says. `space` is None where it leaves that to the curve table; `deadline` in
    microseconds, NEVER for none."""

    where: str
    document: Document
    space: Space | None
    points: list[Point]
    deadline: int
    constraints: tuple[Constraint, ...] = ()


def is_experiment(path: Path) -> bool:
    """Whether a file says that it is one."""
    return says_it_is(path, FORMAT)


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML, YAML or JSON file. Raises BadInput, with the first thing wrong."""
    file = open_text(path)
    document = read_document(file, FORMAT, Document, docs=DOCS)
    return checked(document, file.where)


def checked(document: Document, where: str) -> Experiment:
    """What the document says, if its fields agree. Raises BadInput."""
    space = Space(document.space, f"{where}: space") if document.space else None
    points = [dict(point) for point in document.points]
    if space is not None:
        points = [space.check(point, f"{where}: points[{at}]") for at, point in enumerate(points)]
    deadline = NEVER
    if document.deadline is not None:
        deadline = parse_duration(document.deadline, where=f"{where}: deadline")
        if not deadline:
            raise BadInput(
                "nothing is trained in no time", where=f"{where}: deadline", mend="write like 2h"
            )
    if document.searcher == "points" and not points:
        raise BadInput(
            "the searcher proposes the points given, and there is none",
            where=f"{where}: points",
            mend="list some, or use another searcher",
        )
    parse_memory(document.resources.memory, where=f"{where}: resources: memory")
    _refuse_share(document, where)
    scaling = document.resources.scaling
    if scaling != sorted(scaling):
        raise BadInput(
            "more GPUs would be slower than fewer",
            where=f"{where}: resources: scaling",
            mend="list how fast a trial is on 1, 2, 3, ... GPUs, ascending",
        )
    if 0 < document.resources.most_gpus < document.resources.gpus:
        raise BadInput(
            f"it is less than the {document.resources.gpus} GPUs that a trial asks for",
            where=f"{where}: resources: most_gpus",
            mend="set it higher, or leave it out",
        )
    return Experiment(where, document, space, points, deadline, _constraints(document, where))


def _refuse_share(document: Document, where: str) -> None:
    """Raise BadInput for a share of more than one GPU, or trials that leave a part of one unused,
    since a search holds whole GPUs."""
    resources, many = document.resources, document.parallelism
    if resources.share == 1.0:
        return
    if resources.gpus > 1 or resources.most_gpus:
        raise BadInput(
            "a share is of one GPU",
            where=f"{where}: resources: share",
            mend="leave gpus and most_gpus out, or share",
        )
    each = resources.per_gpu
    if many % each:
        most = -(-many // each) * each
        fewer = f"{most - each} or " if most > each else ""
        raise BadInput(
            f"a search holds whole GPUs, on each of which {each} trials run at once",
            where=f"{where}: parallelism",
            mend=f"let {fewer}{most} run at once",
        )


def _constraints(document: Document, where: str) -> tuple[Constraint, ...]:
    """What trials must keep. Raises BadInput."""
    if document.metric in document.metrics:
        raise BadInput(
            f"{document.metric} is the one that trials are judged by",
            where=f"{where}: metrics",
            mend="list the others, and state its direction as mode",
        )
    constraints = [read_constraint(each, f"{where}: constraints") for each in document.constraints]
    for each in constraints:
        if each.metric == document.metric:
            raise BadInput(
                f"{each.metric} is the one that trials are judged by",
                where=f"{where}: constraints",
                mend="constrain another metric",
            )
    return tuple(constraints)
