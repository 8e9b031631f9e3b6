"""How fast models run, from a file: `ganger.profiles/1`, described in docs/profiles-file.md."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.profiles import PLAIN_PROFILE, Profile, Profiles
from ganger.workloads.documents import read_document
from ganger.workloads.files import open_text
from ganger.workloads.profiles import load_profiles
from ganger.workloads.published import profiles as published

FORMAT: Final = "ganger.profiles/1"
DOCS: Final = "docs/profiles-file.md"


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    models: dict[str, Profile]
    default: Profile = PLAIN_PROFILE


def read_profiles(text_or_path: str | Path) -> Profiles:
    """The profiles of a file, of a folder as `load_profiles` reads it, or those of
    `workloads.published` for the word `published`. Raises BadInput."""
    if text_or_path == "published":
        return published()
    path = Path(text_or_path)
    if path.is_dir():
        return load_profiles(path)
    if not path.is_file():
        mend = "name a file or folder of profiles, or `published`"
        raise BadInput("no such file", where=str(path), mend=mend)
    file = open_text(path)
    document = read_document(file, FORMAT, _Document, docs=DOCS)
    for name, profile in [*document.models.items(), ("default", document.default)]:
        _check(profile, f"{file.where}: {name}")
    return Profiles(document.models, document.default)


def _check(profile: Profile, where: str) -> None:
    """Raise BadInput unless every number makes sense."""
    steps = profile.steps
    rules: list[tuple[str, Any, float]] = [
        ("by_type", profile.by_type.values(), 0.0),
        ("locality", profile.locality, 1.0),
        ("scaling", profile.scaling, 0.0),
        ("disturbed", profile.disturbed.values(), 1.0),
    ]
    if steps is not None:
        rules += [
            ("steps.compute", [steps.compute], 0.0), ("steps.gradients", [steps.gradients], 0.0),
            ("steps.bandwidth", steps.bandwidth, 0.0), ("steps.servers", [steps.servers], 0.0),
        ]  # fmt: skip
    for field, values, least in rules:
        for value in values:
            above = value > 0 or field in ("steps.servers", "steps.gradients")
            if not (math.isfinite(value) and value >= least and above):
                said = f"at least {least:g}" if least or not value else "a number above 0"
                raise BadInput(f"{value:g}", where=f"{where}.{field}", mend=f"give {said}")
    if steps is not None and (profile.scaling or profile.locality != PLAIN_PROFILE.locality):
        raise BadInput(
            "`steps` beside `scaling` or `locality`", where=where,
            mend="give one of them: steps tell both",
        )  # fmt: skip
