"""What a server's own settings say of batches, routes and replicas, as recipes; and what they say
that nothing is made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ganger.core.documents import parsed
from ganger.core.errors import BadInput
from ganger.workloads.files import TextFile, open_text, suffix_of

UNKNOWN: Final = "it is not known here"
_DEPTH: Final = 12
_KEYS: Final = 10_000


class Present(NamedTuple):
    """How a service is served now. `recipe`: over requests; `scaling`: for replicas, "" where
    nothing says it; `read`: keys and their values; `ignored`: keys, and why nothing is made of
    them."""

    source: str
    recipe: str
    scaling: str
    read: dict[str, str]
    ignored: dict[str, str]


def read_present(path: Path) -> Present:
    """Of a `config.pbtxt` of Triton, or the YAML of Ray Serve or KServe. Raises BadInput."""
    from ganger.workloads.present.kserve import kserve
    from ganger.workloads.present.ray_serve import ray_serve
    from ganger.workloads.present.triton import triton

    file = open_text(path)
    if suffix_of(file.path) == ".pbtxt":
        return triton(file)
    if suffix_of(file.path) not in (".yaml", ".yml", ".json"):
        raise BadInput(
            "it is not the settings of a server",
            where=file.where,
            mend="give a config.pbtxt of Triton, or the YAML of Ray Serve or KServe",
        )
    document = _document(file)
    if document.get("kind") == "InferenceService":
        return kserve(file.where, document)
    if "applications" in document:
        return ray_serve(file.where, document)
    raise BadInput(
        "it is neither Ray Serve's nor KServe's",
        where=file.where,
        mend="Ray Serve's has `applications`, KServe's the kind InferenceService",
    )


def _document(file: TextFile) -> Mapping[str, Any]:
    try:
        document = parsed(file.text, suffix_of(file.path))
    except ValueError as error:
        raise file.refuse(f"it cannot be parsed: {error}", "fix the syntax") from None
    if not isinstance(document, Mapping):
        raise BadInput("it has no fields", where=file.where, mend="give the whole file")
    return document


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested fields by their path, like `a.b`; of a list, its entries by number.
    Raises BadInput where there are more than anybody writes."""
    fields: dict[str, Any] = {}
    _flatten(value, prefix, fields, 0)
    return fields


def _flatten(value: Any, at: str, fields: dict[str, Any], depth: int) -> None:
    if depth > _DEPTH or len(fields) > _KEYS:
        raise BadInput("it has more fields than settings have", where=at[:80])
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            word = plain(name)
            _flatten(each, f"{at}.{word}" if at else word, fields, depth + 1)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping | list):
        for number, each in enumerate(value):
            _flatten(each, f"{at}[{number}]", fields, depth + 1)
    else:
        fields[at] = value


def number_of(value: Any, where: str, least: float, limit: float) -> float:
    """A number between the two. Raises BadInput."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isinstance(value, bool) or not least <= number <= limit:
        raise BadInput(
            f"{str(value)[:40]!r} is not a number from {least:g} to {limit:g}", where=where
        )
    return number


def whole_of(value: Any, where: str, least: int, limit: int) -> int:
    """A whole number between the two. Raises BadInput."""
    number = number_of(value, where, least, limit)
    if number != int(number):
        raise BadInput(f"{str(value)[:40]!r} is not a whole number", where=where)
    return int(number)


def words_of(number: float) -> str:
    """A number as recipes read it, to a thousandth."""
    return f"{round(number, 3):.15g}"


def plain(name: object) -> str:
    """What a file calls something, as it may be printed: a name is anybody's."""
    text = str(name) if not isinstance(name, int) or name.bit_length() < 200 else "a number"
    return "".join(each if each.isprintable() else "?" for each in text[:80])
