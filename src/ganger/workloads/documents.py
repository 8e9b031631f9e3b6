"""Files of one document: TOML, YAML or JSON by their extension where they say what format they
have, and other people's JSON, which does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ganger.core.documents import parsed
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
        said = (
            f"format {version!r} is newer than this Ganger reads"
            if newer
            else (f"format is {version!r}")
        )
        raise file.refuse(said, "upgrade Ganger" if newer else f'write format = "{form}"')
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        place = f"{file.where}: {at.strip('`')}" if at else file.where
        raise BadInput(what, where=place, mend=f"see {docs}") from None


def schema_of(form: str, into: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of documents of that form. What fields have to agree on is only checked when
    a document is read."""
    schema: dict[str, Any] = msgspec.json.schema(into)
    schema["title"] = form
    schema["$defs"][into.__name__]["properties"]["format"] = {"const": form}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def says_it_is(path: Path, form: str) -> bool:
    """Whether a file says that it is a document of that form, whichever version."""
    if suffix_of(path) not in (".toml", ".yaml", ".yml", ".json") or not path.is_file():
        return False
    kind = form.partition("/")[0]
    with path.open("rb") as file:
        return f"{kind}/".encode() in file.read(1 << 16)


def json_object(file: TextFile) -> dict[str, Any] | None:
    """The JSON object that the file holds, whatever it is called; None where it holds none."""
    try:
        found = msgspec.json.decode(file.text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def entries(value: Any, where: str, mend: str) -> Mapping[str, Any]:
    """`value` if it is a JSON object with something in it. Raises BadInput."""
    if not isinstance(value, Mapping) or not value:
        what = "it is empty" if isinstance(value, Mapping) else "it is not a JSON object"
        raise BadInput(what, where=where, mend=mend)
    return value


def figure(value: Any, where: str, mend: str, *, least: float = 0.0, most: float = 1e12) -> float:
    """`value` if it is a number from `least` to `most`. Raises BadInput."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise BadInput(f"{value!r}"[:80], where=where, mend=mend)
    return float(value)


def _parse(file: TextFile) -> Any:
    suffix = suffix_of(file.path)
    try:
        return parsed(file.text, suffix)
    except ValueError as error:
        raise file.refuse(f"it cannot be parsed: {error}", "fix the syntax") from None
    except LookupError:
        raise file.refuse(f"extension {suffix!r}", "use .toml, .yaml or .json") from None
