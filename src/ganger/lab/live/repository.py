"""A model repository of Triton's, served as it is: how long its models take is measured first, and
kept for the next time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ganger.core.errors import BadInput
from ganger.lab.profiling import Effort, measure
from ganger.serving.crew import inspect
from ganger.serving.runtime import runtime
from ganger.workloads.models.document import Document
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import models_of
from ganger.workloads.models.repository import Stored, batching, read_repository

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
OPEN_LENGTH: Final = 16
"""Of dimensions without a length, besides the batch, while models are measured."""


@dataclass(frozen=True)
class Repository:
    """What a server makes of a repository: its models, the recipe that batches as it says, and
    what there is to know."""

    models: Models
    recipe: str
    notes: list[str]


def measured(
    folder: Path, threads: int, progress: Callable[[str], None] = lambda _: None
) -> Repository:
    """Read a repository, and measure what was not measured before on this machine on so many
    cores. Raises BadInput."""
    stored = read_repository(folder)
    for model in stored:
        _refuse_other_tensors(model)
    made, devices = [], []
    for model in stored:
        document = _kept(model, threads) or _measured(model, threads, progress)
        made += document.models
        devices = document.devices
    for each, model in zip(made, stored, strict=True):
        each.onnx = str(model.path.relative_to(folder))
    recipe, notes = batching(stored)
    document = Document(document.format, devices, made)
    models = models_of(document, folder / "repository")
    return Repository(models, recipe, [*(note for each in stored for note in each.notes), *notes])


def _refuse_other_tensors(model: Stored) -> None:
    """Raise BadInput where the configuration names tensors that the model does not have."""
    where = str(model.path)
    signature = inspect(model.name, model.path, where).signature
    for what, stated, names in (
        ("input", model.inputs, [each.name for each in signature.inputs]),
        ("output", model.outputs, [each.name for each in signature.outputs]),
    ):
        for name in stated:
            if name not in names:
                raise BadInput(
                    f"it has no {what} {name!r}", where=where, mend=f"it has {', '.join(names)}"
                )


def _measured(model: Stored, threads: int, progress: Callable[[str], None]) -> Document:
    largest = model.largest or BATCHES[-1]
    batches = (*(each for each in BATCHES if each < largest), largest)
    effort = Effort(batches, warm_up=3, runs=20, seconds=0.5, open_length=OPEN_LENGTH)
    progress(f"measuring {model.name}")
    document = measure([model.path], effort, threads=[threads], names=[model.name]).document
    _keep(model, threads, document)
    return document


# ---------------------------------------------------------------------- what is kept


def _place(model: Stored, threads: int) -> Path:
    """The file with what was measured of a model: of these bytes, on so many cores, for batches
    up to the same size."""
    seen = model.path.stat()
    about = (
        str(model.path.resolve()),
        seen.st_size,
        seen.st_mtime_ns,
        model.name,
        model.largest,
        threads,
        os.cpu_count(),
        runtime().__version__,
    )
    digest = hashlib.sha256(repr(about).encode()).hexdigest()[:32]
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "ganger" / "measured" / f"{digest}.json"


def _kept(model: Stored, threads: int) -> Document | None:
    """What was measured before; None where nothing was, or it cannot be read."""
    path = _place(model, threads)
    try:
        if not path.is_file() or path.stat().st_uid != os.geteuid():
            return None
        document = msgspec.json.decode(path.read_bytes(), type=Document)
    except (OSError, msgspec.MsgspecError):
        return None
    return document if [each.name for each in document.models] == [model.name] else None


def _keep(model: Stored, threads: int, document: Document) -> None:
    """Keep it, where the user's folder for such things can be written."""
    path = _place(model, threads)
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with part.open("xb") as file:  # no file that is there, whoever put it there
            file.write(msgspec.json.encode(document))
        part.replace(path)
    except OSError:
        return
