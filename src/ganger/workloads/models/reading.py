"""A models file, read and checked: what is wrong is one sentence that names model and field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.documents import parsed
from ganger.core.errors import BadInput
from ganger.core.units import parse_memory
from ganger.workloads.documents import read_document
from ganger.workloads.files import TextFile, open_text, suffix_of
from ganger.workloads.models import document
from ganger.workloads.models.document import FORMAT, TIERS, Document
from ganger.workloads.models.graph import operators_of, utilisation_of
from ganger.workloads.models.names import distinct, meant
from ganger.workloads.models.parity import refuse_useless_parity
from ganger.workloads.models.predictions import Predictions, read_predictions
from ganger.workloads.models.profiles import (
    Latency,
    Model,
    Models,
    Parity,
    Pipeline,
    Tokens,
    Utilisation,
)
from ganger.workloads.models.shipped import resolved

DOCS: Final = "docs/models-file.md"
MIB: Final = 1 << 20


def read_models(path: str | Path) -> Models:
    """The models in a TOML, YAML or JSON file, or in one that the package ships, by its name.
    Raises BadInput, with the first thing wrong."""
    file = open_text(resolved(path))
    try:
        found = read_document(file, FORMAT, Document, docs=DOCS)
    except BadInput as error:
        raise _named(error, file) from None
    return _Reader(file.path, file.where, found).models()


def models_of(held: Document, path: Path) -> Models:
    """The models of a document that no file holds; their own files lie below the folder of `path`.
    Raises BadInput."""
    return _Reader(path, str(path), held).models()


class _Reader:
    """One file on its way from what was written to what can be used."""

    def __init__(self, path: Path, where: str, found: Document) -> None:
        self.path, self.where, self.found = path, where, found
        self.predictions: dict[str, Predictions] = {}
        self.sizes: dict[str, tuple[int, str]] = {}
        self.devices: dict[str, int] = {}

    def models(self) -> Models:
        """All of it. Raises BadInput."""
        found = self.found
        if not found.models:
            raise BadInput("it has no models", where=self.where, mend="add [[models]]")
        distinct([each.name for each in found.devices], f"{self.where}: devices")
        for device in found.devices:
            memory = (
                0
                if device.memory is None
                else parse_memory(
                    device.memory, where=f"{self.where}: device {device.name!r}: memory"
                )
            )
            if memory == 0 and device.memory is not None:
                raise BadInput(
                    "a memory of 0",
                    where=f"{self.where}: device {device.name!r}",
                    mend="leave it out where it is not known",
                )
            self.devices[device.name] = memory
        distinct(
            [*(each.name for each in found.models), *(each.name for each in found.pipelines)],
            f"{self.where}: models and pipelines",
        )
        models = {each.name: self._model(each) for each in found.models}
        refuse_useless_parity(models, self.where)
        pipelines = {each.name: self._pipeline(each) for each in found.pipelines}
        return Models(models, self.devices, pipelines, str(self.path), self.found.about)

    def _model(self, model: document.Model) -> Model:
        where = f"{self.where}: model {model.name!r}"
        if not model.latency and not model.tokens:
            raise BadInput(
                "it has neither latency nor tokens",
                where=where,
                mend="add [[models.latency]] or [[models.tokens]]",
            )
        distinct(
            [f"{each.device} at share {each.share:g}" for each in model.latency],
            f"{where}: latency",
        )
        distinct([f"{each.devices} x {each.device}" for each in model.tokens], f"{where}: tokens")
        accuracy, predicted, labels = self._accuracy(model, where)
        self._parameters(model, where)
        return Model(
            model.name,
            model.family,
            model.source,
            accuracy,
            predicted,
            labels,
            model.bytes or 0,
            tuple((each.id, each.bytes) for each in model.parameters),
            _load(model, where),
            tuple(self._latency(each, where) for each in model.latency),
            tuple(self._tokens(each, where) for each in model.tokens),
            operators_of(model, where),
            self._utilisation(model, where),
            self._onnx(model, where),
            self._scores(model, predicted, where),
            self._calibration(model),
            self._parity(model, where),
        )

    def _parity(self, model: document.Model, where: str) -> Parity | None:
        """What a parity model stands for, and how it is computed. Raises BadInput."""
        stated, stored = model.parity, self.predictions.get(model.predictions or "")
        if stated is None:
            return None
        if stated.of == model.name or stated.of not in {each.name for each in self.found.models}:
            raise BadInput(
                f"there is no other model {stated.of!r}",
                where=f"{where}: parity",
                mend="name the model of which it is the parity model",
            )
        layers = () if stored is None else stored.layers.get(model.name, ())
        if stored is None or stored.inputs is None or not layers:
            raise BadInput(
                "it is not known what it gives",
                where=f"{where}: parity",
                mend=f"name predictions with arrays 'inputs' and '{model.name}.layer0'",
            )
        return Parity(stated.of, stated.k, layers, stored.inputs)

    def _scores(
        self, model: document.Model, predicted: NDArray[np.int64] | None, where: str
    ) -> NDArray[np.float64] | None:
        """What it gives for every class, where that was recorded. Raises BadInput."""
        if model.predictions is None or predicted is None:
            return None
        scores = self.predictions[model.predictions].scores.get(model.name)
        if scores is not None and int(predicted.max()) >= scores.shape[1]:
            raise BadInput(
                f"{model.name}.scores has {scores.shape[1]} classes, and it gives"
                f" {int(predicted.max())}",
                where=f"{where}: predictions",
                mend="give a score for every class",
            )
        return scores

    def _calibration(self, model: document.Model) -> NDArray[np.bool_] | None:
        """Which inputs recipes may know; None: all."""
        return (
            None if model.predictions is None else self.predictions[model.predictions].calibration
        )

    def _onnx(self, model: document.Model, where: str) -> Path | None:
        """Where the model's own file is. Raises BadInput for one outside the folder of this file,
        links followed."""
        if model.onnx is None:
            return None
        folder = self.path.parent.resolve()
        path = (folder / model.onnx).resolve()
        if Path(model.onnx).is_absolute() or not path.is_relative_to(folder):
            raise BadInput(
                f"{model.onnx!r} is outside the folder of the models file",
                where=f"{where}: onnx",
                mend="move or copy it there",
            )
        return path

    def _accuracy(
        self, model: document.Model, where: str
    ) -> tuple[float, NDArray[np.int64] | None, NDArray[np.int64] | None]:
        if model.predictions is None:
            return (float("nan") if model.accuracy is None else model.accuracy), None, None
        if model.accuracy is not None:
            raise BadInput(
                "it has accuracy and predictions",
                where=where,
                mend="leave accuracy out: predictions say it",
            )
        if model.predictions not in self.predictions:
            path = self.path.parent / model.predictions
            self.predictions[model.predictions] = read_predictions(path)
        if model.parity is not None:
            return float("nan"), None, None
        arrays = self.predictions[model.predictions].classes
        if model.name not in arrays or model.name == "labels":
            raise BadInput(
                f"{model.predictions} has no array {model.name!r}",
                where=f"{where}: predictions",
                mend="it has " + ", ".join(sorted(arrays))[:200],
            )
        labels, predicted = arrays["labels"], arrays[model.name]
        return float((labels == predicted).mean()), predicted, labels

    def _parameters(self, model: document.Model, where: str) -> None:
        place = f"{where}: parameters"
        distinct([each.id for each in model.parameters], place)
        total = sum(each.bytes for each in model.parameters)
        if model.bytes is not None and total > model.bytes:
            raise BadInput(
                f"they are {total:,} bytes, the model {model.bytes:,}",
                where=place,
                mend="correct one of them",
            )
        for each in model.parameters:
            size, other = self.sizes.setdefault(each.id, (each.bytes, model.name))
            if size != each.bytes:
                raise BadInput(
                    f"{each.id!r} is {each.bytes:,} bytes, in model {other!r} {size:,}",
                    where=place,
                    mend="rename one, or correct its size",
                )

    def _latency(self, given: document.Latency, model: str) -> Latency:
        where = f"{model}: latency on {given.device!r}"
        self._known(given.device, where)
        table, line = (
            bool(given.batch or given.mean),
            given.base is not None or given.each is not None,
        )
        if table == line:
            what = (
                "a table and base + each" if table else "neither batch and mean nor base and each"
            )
            raise BadInput(f"it has {what}", where=where, mend="give one of them")
        found = _of_table(given, where) if table else _of_line(given, where)
        memory, room = found.memory_bytes, self.devices[given.device]
        if memory is not None and room and int(memory[0]) > room * MIB:
            raise BadInput(
                f"{int(memory[0]):,} bytes do not fit into its {room:,} MiB",
                where=f"{where}: memory_bytes",
                mend="correct one of them",
            )
        if given.beside != sorted(given.beside):
            raise BadInput(
                "it falls with more batches",
                where=f"{where}: beside",
                mend="measure again, or give both the larger value",
            )
        return replace(found, beside=tuple(given.beside))

    def _tokens(self, given: document.Tokens, model: str) -> Tokens:
        where = f"{model}: tokens on {given.device!r}"
        self._known(given.device, where)
        prefill, decode = given.prefill, given.decode
        place = f"{where}: prefill"
        line, table = prefill.base is not None or prefill.token is not None, bool(prefill.tokens)
        _either(table, line, "tokens and seconds", "base and token", place)
        place = f"{where}: decode"
        _either(bool(decode.batch), bool(decode.parts), "batch and seconds", "parts", place)
        if line and not (prefill.base or 0) + (prefill.token or 0) > 0:
            raise BadInput(
                "it takes no time", where=f"{where}: prefill", mend="give base or token above 0"
            )
        return Tokens(
            given.device,
            given.devices,
            (prefill.base or 0.0, prefill.token or 0.0, prefill.token_squared) if line else None,
            _series(prefill.tokens, prefill.seconds, "tokens", "seconds", f"{where}: prefill")
            if table
            else None,
            _parts(decode.parts, place) if decode.parts else None,
            _series(decode.batch, decode.seconds, "batch", "seconds", place)
            if decode.batch
            else None,
            given.cache_bytes_per_token or 0,
        )

    def _utilisation(self, model: document.Model, where: str) -> tuple[Utilisation, ...]:
        distinct(
            [f"{each.device} at share {each.share:g}" for each in model.utilisation],
            f"{where}: utilisation",
        )
        for each in model.utilisation:
            self._known(each.device, f"{where}: utilisation on {each.device!r}")
        return tuple(utilisation_of(each, where) for each in model.utilisation)

    def _known(self, device: str, where: str) -> None:
        if device not in self.devices:
            raise BadInput(
                "the device is not known",
                where=where,
                mend=meant(device, self.devices, "add it to [[devices]]"),
            )

    def _pipeline(self, pipeline: document.Pipeline) -> Pipeline:
        where = f"{self.where}: pipeline {pipeline.name!r}"
        models, stages = [each.name for each in self.found.models], pipeline.stages
        if not stages:
            raise BadInput("it has no stages", where=where, mend="add stages, or remove it")
        names = [each.name for each in stages]
        distinct(names, f"{where}: stages")
        for stage in stages:
            if stage.model not in models:
                raise BadInput(
                    f"there is no model {stage.model!r}",
                    where=f"{where}: stage {stage.name!r}",
                    mend=meant(stage.model, models, "add it to [[models]]"),
                )
        distinct([f"{each.source} to {each.target}" for each in pipeline.edges], f"{where}: edges")
        feeds: dict[str, list[str]] = {name: [] for name in names}
        for edge in pipeline.edges:
            for name in (edge.source, edge.target):
                if name not in feeds:
                    raise BadInput(
                        f"there is no stage {name!r}",
                        where=f"{where}: edges",
                        mend=meant(name, names, "add it to stages"),
                    )
            feeds[edge.target].append(edge.source)
        try:
            order = list(TopologicalSorter(feeds).static_order())
        except CycleError as error:
            cycle = " to ".join(error.args[1])
            raise BadInput(
                f"stages feed each other in a cycle: {cycle}",
                where=f"{where}: edges",
                mend="remove one of these edges",
            ) from None
        model = {stage.name: stage.model for stage in stages}
        edges = tuple((each.source, each.target, each.items) for each in pipeline.edges)
        return Pipeline(pipeline.name, tuple((name, model[name]) for name in order), edges)


def _of_table(given: document.Latency, where: str) -> Latency:
    for name, value in (("largest", given.largest), ("p99_over_mean", given.p99_over_mean)):
        if value is not None:
            raise BadInput(f"a table has no {name}", where=where, mend=f"remove {name}")
    batch, mean = _series(given.batch, given.mean, "batch", "mean", where)
    p99 = mean
    if given.p99:
        p99 = _series(given.batch, given.p99, "batch", "p99", where)[1]
        below = np.flatnonzero(p99 < mean)
        if len(below):
            raise BadInput(
                f"p99 at batch {batch[below[0]]} is below the mean",
                where=where,
                mend="measure again, or exchange them",
            )
    memory: NDArray[np.int64] | None = None
    if given.memory_bytes:
        found = _series(given.batch, given.memory_bytes, "batch", "memory_bytes", where)[1]
        memory = found.astype(np.int64)
    return Latency(given.device, given.share, batch, mean, p99, memory, given.source)


def _of_line(given: document.Latency, where: str) -> Latency:
    base, each = given.base or 0.0, given.each or 0.0
    if not base + each > 0:
        raise BadInput("a batch takes no time", where=where, mend="give base or each above 0")
    for name in ("p99", "memory_bytes"):
        if getattr(given, name):
            raise BadInput(
                f"{name} needs a table of batches",
                where=where,
                mend="give batch and mean, or use p99_over_mean",
            )
    if given.largest is None:
        raise BadInput("largest is missing", where=where, mend="name the largest batch")
    batch = np.unique([1, given.largest]).astype(np.int64)
    mean = (base + each * batch).astype(np.float64)
    p99 = mean * (given.p99_over_mean or 1.0)
    return Latency(given.device, given.share, batch, mean, p99, source=given.source)


def _series(
    at: Sequence[int], values: Sequence[float], by: str, name: str, where: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A table that rises. Raises BadInput."""
    if len(at) != len(values):
        raise BadInput(
            f"{len(at)} values of {by} and {len(values)} of {name}",
            where=where,
            mend="give as many of both",
        )
    x, y = np.array(at, np.int64), np.array(values, np.float64)
    wrong = np.flatnonzero(np.diff(x) <= 0)
    if len(wrong):
        i = int(wrong[0])
        raise BadInput(
            f"{by} {at[i + 1]} comes after {at[i]}",
            where=where,
            mend="sort the table, each number once",
        )
    wrong = np.flatnonzero(np.diff(y) < 0)
    if len(wrong):
        i = int(wrong[0])
        raise BadInput(
            f"{name} falls from {values[i]:g} at {by} {at[i]} to {values[i + 1]:g} at {by}"
            f" {at[i + 1]}",
            where=where,
            mend="measure again, or give both the larger value",
        )
    return x, y


def _parts(parts: Sequence[document.DecodePart], where: str) -> NDArray[np.float64]:
    last = 0
    for i, part in enumerate(parts):
        if not part.base + part.request > 0:
            raise BadInput(f"part {i + 1} takes no time", where=where, mend="give base above 0")
        end = i == len(parts) - 1
        if (part.largest is None) != end:
            what = "the last part has" if end else f"part {i + 1} does not have"
            raise BadInput(
                f"{what} a largest batch", where=where, mend="give it to all parts but the last"
            )
        if part.largest is not None:
            if part.largest <= last:
                raise BadInput(
                    f"part {i + 1} ends at batch {part.largest}, before the one above",
                    where=where,
                    mend="sort the parts",
                )
            last = part.largest
    return np.array(
        [
            [
                np.inf if part.largest is None else part.largest,
                part.base,
                part.request,
                part.context_token,
            ]
            for part in parts
        ]
    )


def _load(model: document.Model, where: str) -> dict[str, float]:
    found = {tier: getattr(model.load, tier) for tier in TIERS}
    stated = {tier: float(time) for tier, time in found.items() if time is not None}
    for far, near in pairwise(stated):
        if stated[near] > stated[far]:
            raise BadInput(
                f"loading takes longer from {near} than from {far}",
                where=f"{where}: load",
                mend="measure both again",
            )
    return stated


def _either(table: bool, line: bool, of_table: str, of_line: str, where: str) -> None:
    if table == line:
        what = f"both {of_table} and {of_line}" if table else f"neither {of_table} nor {of_line}"
        raise BadInput(f"it has {what}", where=where, mend="give one of them")


_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def _named(error: BadInput, file: TextFile) -> BadInput:
    """The same error with names for numbers, `model 'a': latency[0]` for `$.models[3].latency[0]`,
    and with what stands there."""
    place = error.where.removeprefix(file.where).removeprefix(": ")
    if not place.startswith("$"):
        return error
    value: Any = parsed(file.text, suffix_of(file.path))
    words: list[str] = []
    for step in _STEP.finditer(place):
        try:
            value = value[step[1]] if step[1] else value[int(step[2])]
        except (KeyError, IndexError, TypeError):
            return error
        words.append(step[1] or f"[{step[2]}]")
        if len(words) == 2 and isinstance(value, dict) and isinstance(value.get("name"), str):
            words = [f"{words[0].removesuffix('s')} {value['name'][:60]!r}: "]
    said = error.what
    if isinstance(value, int | float | str):
        said += f", got {value!r}"[:60]
    path = "".join(word if word[0] == "[" or ": " in word else f".{word}" for word in words)
    path = path.replace(": .", ": ").removeprefix(".").removesuffix(": ")
    return BadInput(said, where=f"{file.where}: {path}", mend=error.mend)
