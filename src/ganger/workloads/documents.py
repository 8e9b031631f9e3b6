"""Files of one document (TOML, YAML or JSON by their extension) that say what format they have."""

from __future__ import annotations

import tomllib
from typing import Any, TypeVar

import msgspec

from ganger.core.errors import BadInput
from ganger.workloads.files import TextFile, suffix_of

T = TypeVar("T")


def read_document(file: TextFile, form: str, into: type[T], *, docs: str) -> T:
    """The file as `into`, whose format has to be `form`, like `ganger.cluster/1`; `docs` describes
    it. Raises BadInput, with the field."""
    raw, family = _parse(file), form.partition("/")[0] + "/"
    version = raw.get("format") if isinstance(raw, dict) else None
    if version != form:
        newer = isinstance(version, str) and version.startswith(family)
        said = f"format {version!r} is newer than this Ganger reads" if newer else (
            f"format is {version!r}")  # fmt: skip
        raise file.refuse(said, "upgrade Ganger" if newer else f'write format = "{form}"')
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        place = f"{file.where}: {at.strip('`')}" if at else file.where
        raise BadInput(what, where=place, mend=f"see {docs}") from None


def _parse(file: TextFile) -> Any:
    suffix = suffix_of(file.path)
    try:
        if suffix == ".toml":
            return tomllib.loads(file.text)
        if suffix in (".yaml", ".yml"):
            import yaml

            return yaml.safe_load(file.text)
        if suffix == ".json":
            return msgspec.json.decode(file.text)
    except (ValueError, msgspec.DecodeError) as error:  # TOML's error is a ValueError
        raise file.refuse(f"it cannot be parsed: {error}", "mend the syntax") from None
    except Exception as error:
        if type(error).__module__.split(".")[0] != "yaml":
            raise
        said = " ".join(str(error).split())
        raise file.refuse(f"it cannot be parsed: {said}", "mend the syntax") from None
    raise file.refuse(f"extension {suffix!r}", "use .toml, .yaml or .json")
