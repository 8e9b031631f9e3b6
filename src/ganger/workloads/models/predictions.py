"""Recorded predictions: which class each model gives each input of a data set, as an npz file.

The file has an array `labels` (the true classes) and one of the same length for each model, called
as the model; all hold whole numbers. Models that err on the same inputs are thereby known to.
`MODEL.scores`, if it is there, has a row for each input: what the model gives for every class.
Of a parity model there are `MODEL.layer0`, `MODEL.layer1`, ... instead, matrices of numbers, and
for all of them `inputs`, a row for each input.
`calibration`, if it is there, says which inputs recipes may know (1) and which are only asked for
(0).
"""

from __future__ import annotations

import lzma
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ganger.core.errors import BadInput

MOST_BYTES: Final = 1 << 32
_DOCS = "see docs/models-file.md"


_SCORES: Final = ".scores"
_LAYER: Final = ".layer"
_CLASSES: Final = 1 << 16
"""No model tells more classes apart."""
_LARGEST: Final = 1e100
_NUMBERS: Final = "numbers within 1e100"
_UNREADABLE: Final = (
    ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error, lzma.LZMAError, tokenize.TokenError,
)  # fmt: skip
"""What zipfile and numpy raise for files that are damaged, encrypted or no such files."""


class Predictions(NamedTuple):
    """`classes`: the array `labels`, and by model the classes that it gives; `scores`: by model,
    what it gives for every class; `calibration`: the inputs that recipes may know, None: all."""

    classes: dict[str, NDArray[np.int64]]
    scores: dict[str, NDArray[np.float64]]
    calibration: NDArray[np.bool_] | None
    layers: dict[str, tuple[NDArray[np.float64], ...]]
    inputs: NDArray[np.float64] | None


def read_predictions(path: Path) -> Predictions:
    """All arrays of the file. Raises BadInput."""
    where = str(path)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise BadInput("it is a pipe or a device, not a file", where=where, mend=_DOCS)
        with zipfile.ZipFile(path) as archive:
            if 8 * sum(_values(archive, each) for each in archive.infolist()) > MOST_BYTES:
                raise BadInput("it holds more than 2^29 numbers", where=where, mend="split it")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}", where=where, mend="check the path"
        ) from None
    except _UNREADABLE:
        raise BadInput("it is not an npz file of plain arrays", where=where, mend=_DOCS) from None
    if "labels" not in arrays:
        raise BadInput("the array 'labels' is missing", where=where, mend=_DOCS)
    length = arrays["labels"].shape
    _check("labels", arrays["labels"], length, where)
    scores = {name: arrays.pop(name) for name in [*arrays] if name.endswith(_SCORES)}
    inputs = arrays.pop("inputs", None)
    if inputs is not None and (inputs.ndim != 2 or inputs.shape[:1] != length):
        raise BadInput(
            f"it has the shape {inputs.shape}, and there are {length[0]} labels",
            where=f"{where}: inputs",
            mend="give a row for each input",
        )
    if inputs is not None and not (inputs.dtype.kind in "fiu" and _bounded(inputs)):
        raise BadInput(f"not all are {_NUMBERS}", where=f"{where}: inputs", mend=_DOCS)
    layers = _layers(arrays, 0 if inputs is None else inputs.shape[1], where)
    for name, array in arrays.items():
        _check(name, array, length, where)
    for name, array in scores.items():
        _check_scores(name, array, length, where)
    calibration = arrays.pop("calibration", None)
    if calibration is not None and not calibration.any():
        raise BadInput(
            "it says of no input that recipes may know it",
            where=f"{where}: calibration",
            mend="leave it out, or say it of some",
        )
    return Predictions(
        {name: array.astype(np.int64) for name, array in arrays.items()},
        {name.removesuffix(_SCORES): array.astype(np.float64) for name, array in scores.items()},
        None if calibration is None else calibration != 0,
        layers,
        None if inputs is None else inputs.astype(np.float64),
    )


def _layers(
    arrays: dict[str, NDArray[Any]], width: int, where: str
) -> dict[str, tuple[NDArray[np.float64], ...]]:
    """The layers of parity models, which are taken out of `arrays`; `width`: numbers of an input.
    Raises BadInput for some that do not fit together."""
    models = [name.removesuffix(_LAYER + "0") for name in arrays if name.endswith(_LAYER + "0")]
    layers_of: dict[str, tuple[NDArray[np.float64], ...]] = {}
    for model in models:
        layers, going = list[NDArray[np.float64]](), width
        while (layer := arrays.pop(f"{model}{_LAYER}{len(layers)}", None)) is not None:
            right = layer.ndim == 2 and layer.dtype.kind in "fiu" and layer.shape[0] == going + 1
            if not right or not _bounded(layer):
                raise BadInput(
                    f"it has the shape {layer.shape}, and {going} numbers go in",
                    where=f"{where}: {model}{_LAYER}{len(layers)}",
                    mend=f"give a row of {_NUMBERS} for each of `inputs`, and one that is added",
                )
            layers.append(layer.astype(np.float64))
            going = layer.shape[1]
        layers_of[model] = tuple(layers)
    return layers_of


def _check_scores(name: str, array: NDArray[Any], length: tuple[int, ...], where: str) -> None:
    place = f"{where}: {name}"
    if array.ndim != 2 or array.dtype.kind != "f" or not 2 <= array.shape[1] <= _CLASSES:
        raise BadInput(
            f"it is {array.ndim}-dimensional, of {array.dtype}",
            where=place,
            mend="give a row of numbers for each input, one for each of two classes or more",
        )
    if array.shape[:1] != length:
        raise BadInput(
            f"{len(array)} inputs where labels have {length[0]}",
            where=place,
            mend="give each input its scores",
        )
    if not _bounded(array):
        raise BadInput(f"not all are {_NUMBERS}", where=place, mend=_DOCS)


def _bounded(array: NDArray[Any]) -> bool:
    """Whether sums and differences of its numbers are numbers, too."""
    return bool(np.isfinite(array).all()) and float(np.abs(array).max(initial=0)) <= _LARGEST


def _values(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """How many numbers a member holds, by its head. Raises ValueError for one that is no plain
    array, or says that it is larger than it is."""
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, kind = read(file)
    count = math.prod(shape)
    if kind.hasobject or count * kind.itemsize > member.file_size:
        raise ValueError(member.filename)
    return count


def _check(name: str, array: NDArray[Any], shape: tuple[int, ...], where: str) -> None:
    place = f"{where}: {name}"
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise BadInput(
            f"it is {array.ndim}-dimensional, of {array.dtype}",
            where=place,
            mend="give a list of whole numbers, one for each input",
        )
    if array.min() < 0 or array.max() > _CLASSES:
        raise BadInput(
            f"it holds values beyond 0 .. {_CLASSES:,}", where=place, mend="number the classes"
        )
    if array.shape != shape:
        raise BadInput(
            f"{len(array)} inputs where labels have {shape[0]}",
            where=place,
            mend="give each input a prediction",
        )
