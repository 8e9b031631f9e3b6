"""Recorded predictions: which class each model gives each input of a data set, as an npz file.

The file has an array `labels` (the true classes) and one of the same length for each model, called
as the model; all hold whole numbers. Models that err on the same inputs are thereby known to.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput

MOST_BYTES: Final = 1 << 32
_DOCS = "see docs/models-file.md"


def read_predictions(path: Path) -> dict[str, NDArray[np.int64]]:
    """All arrays of the file, by name. Raises BadInput."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(each.file_size for each in archive.infolist()) > MOST_BYTES:
                raise BadInput("it holds more than 4 GiB", where=where, mend="split it")
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}", where=where, mend="check the path"
        ) from None
    except (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        raise BadInput("it is not an npz file of plain arrays", where=where, mend=_DOCS) from None
    if "labels" not in arrays:
        raise BadInput("the array 'labels' is missing", where=where, mend=_DOCS)
    length = arrays["labels"].shape
    for name, array in arrays.items():
        _check(name, array, length, where)
    return {name: array.astype(np.int64) for name, array in arrays.items()}


def _check(name: str, array: NDArray[Any], shape: tuple[int, ...], where: str) -> None:
    place = f"{where}: {name}"
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise BadInput(
            f"it is {array.ndim}-dimensional, of {array.dtype}",
            where=place,
            mend="give a list of whole numbers, one for each input",
        )
    if array.shape != shape:
        raise BadInput(
            f"{len(array)} inputs where labels have {shape[0]}",
            where=place,
            mend="give each input a prediction",
        )
