"""Parity models of a models file: whether what is missing can be decoded from what they give."""

from __future__ import annotations

from collections.abc import Mapping

from ganger.core.errors import BadInput
from ganger.workloads.models.profiles import Model


def refuse_useless_parity(models: Mapping[str, Model], file: str) -> None:
    """Raise BadInput for a parity model of whose answers none can be decoded."""
    stands_for = dict[str, str]()
    for model in models.values():
        if model.parity is None:
            continue
        of, gives = models[model.parity.of], model.parity.layers[-1].shape[1]
        where = f"{file}: model {model.name!r}: parity"
        if of.parity is not None:
            mend = "name the model of which both are"
            raise BadInput(f"{of.name!r} is a parity model, too", where=where, mend=mend)
        if of.name in stands_for:
            what = f"{stands_for[of.name]!r} is the parity model of {of.name!r}, too"
            raise BadInput(what, where=where, mend="give each model one")
        if of.scores is None or of.scores.shape[1] != gives:
            has = "no" if of.scores is None else str(of.scores.shape[1])
            what = f"its last layer gives {gives} numbers, and {of.name!r} has {has} scores"
            mend = f"give as many as '{of.name}.scores' has in the predictions"
            raise BadInput(what, where=where, mend=mend)
        stands_for[of.name] = model.name
