"""Files of one document: TOML, YAML or JSON by their extension where they say what format they
have, and other people's JSON, which does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

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
        return msgspec.convert(raw, into, str_keys=True)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        place = f"{file.where}: {at.strip('`')}" if at else file.where
        found = _advice(what, at.strip("`"), into)
        raise BadInput(bound_in_words(what), where=place, mend=f"{found}see {docs}") from None


_BOUND: Final = re.compile(r"Expected `(?:int|float)` (>=|>|<=|<) (\S+)")
_BEYOND: Final = {">=": "less than", ">": "not above", "<=": "more than", "<": "not below"}


def bound_in_words(what: str) -> str:
    """What msgspec says of a number beyond its bounds, in plain words; all else as it is."""
    bound = _BOUND.fullmatch(what)
    return f"it is {_BEYOND[bound[1]]} {float(bound[2]):,g}" if bound else what


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_NOT_AMONG: Final = re.compile(r"Invalid enum value '(.*)'")
_NO_LIST: Final = re.compile(r"Expected `array`, got `(?:str|int|float|bool)`")
_NO_NUMBER: Final = re.compile(r"Expected `(?:float|int)\b.*`, got `str`")


def _advice(what: str, at: str, into: Any) -> str:
    """How to mend what msgspec found wrong: the field or the value that was meant, or all that
    there are; that a number goes without unit and quotes. Else nothing."""
    if _NO_NUMBER.match(what):
        return "give a number, without a unit and quotes; "
    if _NO_LIST.match(what):
        return "give a list, in square brackets; "
    unknown, other = _UNKNOWN.match(what), _NOT_AMONG.match(what)
    words = list[str]()
    for kind in _types_at(into, at):
        if unknown and isinstance(kind, inspect.StructType):
            words += [field.encode_name for field in kind.fields]
        elif other and isinstance(kind, inspect.LiteralType):
            words += [str(value) for value in kind.values]
    said = unknown or other
    if said is None or not words:
        return ""
    near = get_close_matches(said[1], words, 1)
    return f"did you mean {near[0]}? " if near else f"there are {', '.join(words)}; "


def _types_at(into: Any, at: str) -> list[inspect.Type]:
    """The types that a value may have at a place such as `$.nodes[0].market`."""
    kinds = _options(inspect.type_info(into))
    for field, _ in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at):
        inner = list[inspect.Type]()
        for kind in kinds:
            if field and isinstance(kind, inspect.StructType):
                inner += [each.type for each in kind.fields if each.encode_name == field]
            elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
                inner.append(kind.item_type)
            elif isinstance(kind, inspect.DictType):
                inner.append(kind.value_type)
        kinds = [each for kind in inner for each in _options(kind)]
    return kinds


def _options(kind: inspect.Type) -> list[inspect.Type]:
    """The types of a union, or the one."""
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


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
