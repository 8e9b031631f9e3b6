"""A model's operators and what its runs use of a device, read and checked."""

from __future__ import annotations

from typing import Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.workloads.models import document
from ganger.workloads.models.names import distinct, meant
from ganger.workloads.models.profiles import Operators, Utilisation

_SLACK: Final = 1e-3
"""How far the times of operators may be from one together, as they are rounded."""


def operators_of(model: document.Model, where: str) -> Operators | None:
    """The graph of a model; None where none is given. Raises BadInput."""
    given = model.operators
    if not given:
        return None
    names = [each.name for each in given]
    distinct(names, f"{where}: operators")
    number = {name: at for at, name in enumerate(names)}
    shared = [each.id for each in model.parameters]
    inputs = []
    for at, each in enumerate(given):
        place = f"{where}: operator {each.name!r}"
        for name in each.inputs or []:
            if number.get(name, at) >= at:
                what = (
                    "comes after it"
                    if number.get(name, -1) > at
                    else ("is the operator itself" if name == each.name else "is not there")
                )
                raise BadInput(
                    f"its input {name!r} {what}",
                    where=place,
                    mend=meant(name, names[:at], "list operators as they run"),
                )
        above = [at - 1] if at else []
        inputs.append(tuple(above if each.inputs is None else map(number.__getitem__, each.inputs)))
        if each.parameters and each.parameters not in shared:
            raise BadInput(
                f"there are no parameters {each.parameters!r}",
                where=place,
                mend=meant(each.parameters, shared, "add them to the model's"),
            )
    time = np.array([each.time for each in given])
    if abs(time.sum() - 1) > _SLACK:
        raise BadInput(
            f"together they take {time.sum():.4g} of the time",
            where=f"{where}: operators",
            mend="write parts that add up to 1",
        )
    return Operators(
        tuple(names),
        time / time.sum(),
        tuple(inputs),
        np.array([each.output_bytes or 0 for each in given], np.int64),
        tuple(each.parameters for each in given),
        np.array([each.border for each in given]),
    )


def utilisation_of(given: document.Utilisation, model: str) -> Utilisation:
    """One series of a model. Raises BadInput."""
    where = f"{model}: utilisation on {given.device!r}"
    series = {
        "compute": np.array(given.compute, np.float64),
        "bandwidth": np.array(given.bandwidth, np.float64),
        "memory_bytes": np.array(given.memory_bytes, np.float64),
    }
    stated = {name: values for name, values in series.items() if len(values)}
    if not stated:
        raise BadInput(
            "it has no series", where=where, mend="give compute, bandwidth or memory_bytes"
        )
    (first, values), *rest = stated.items()
    for name, other in rest:
        if len(other) != len(values):
            raise BadInput(
                f"{len(values)} values of {first} and {len(other)} of {name}",
                where=where,
                mend="give as many of both",
            )
    return Utilisation(given.device, given.share, given.every, stated, given.source)
