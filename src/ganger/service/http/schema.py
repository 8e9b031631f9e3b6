"""What a request may hold, in the words of JSON Schema: as much of `submission` as can be stated
there.

What depends on the cluster, on other jobs, or on arithmetic between fields cannot: whether it fits,
whether a job that is waited for exists, whether GPUs divide evenly among workers, the order of
`min_gpus`, `gpus`, `max_gpus` and of a range of tasks. Times and moments are described as they are
documented; a few more forms are understood.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from ganger.client.grid import NAME as _GRID
from ganger.client.grid import RESERVED, VALUE_LETTERS_MAX
from ganger.client.request import FORMAT
from ganger.core.spec import Kind, Locality, OnPreempt
from ganger.core.tuning.goals import DIRECTIONS, GOALS_MAX
from ganger.core.units import TEXT_MAX
from ganger.engines.launch import PER
from ganger.lab.tuning.own_recipe import LENGTH_MAX
from ganger.service.jobs.families import ASKED, CONFIGURATIONS_MAX, PROPOSED_MAX, SEARCHES
from ganger.service.jobs.submission import (
    HIDDEN,
    LISTED_MAX,
    NAME_MAX,
    PATH_MAX,
    RANGES,
    SCRIPT_MAX,
    WORD_MAX,
)
from ganger.service.notices.notify import EVENTS

_Schema = dict[str, Any]
_SPAN: Final = r"^([0-9]{1,6}(\.[0-9]{1,6})?(us|ms|s|m|h|d))+(?!\n)$"
_CLOCK: Final = r"^([0-9]{1,4}-)?[0-9]{1,3}:[0-5][0-9](:[0-5][0-9])?(?!\n)$"
_DATE: Final = (
    r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?(?!\n)$"
)
_MEMORY: Final = r"^[0-9]{1,9}(\.[0-9]{1,3})? ?([kKmMgGtT]([iI]?[bB])?|[bB])?(?!\n)$"
_TASKS: Final = (
    r"^([0-9]{1,4}(-[0-9]{1,4}(:[1-9][0-9]{0,3})?)?)"
    r"(,[0-9]{1,4}(-[0-9]{1,4}(:[1-9][0-9]{0,3})?)?)*(%[1-9][0-9]{0,4})?(?!\n)$"
)
_END: Final = r"(?!\n)$"
_GRID_NAME: Final = _GRID.removesuffix("$") + _END
_JOB: Final = r"^[1-9][0-9]{0,8}(_[0-9]{1,9})?(?!\n)$"
_ARRAY: Final = _JOB.replace("(_[0-9]{1,9})?", "")
_NO_ZERO: Final[_Schema] = {"not": {"pattern": "\\x00"}}
_NOTHING: Final[_Schema] = {"enum": ["", None]}
_SECONDS: Final = 1e10
_JOBS_MAX: Final = 999_999_999


def _words(enum: type[IntEnum]) -> list[str]:
    return [member.name.lower() for member in enum]


def _span(least: float) -> _Schema:
    """A length of time; 0 is none."""
    number = {"type": "number", "minimum": least, "maximum": _SECONDS}
    texts = [
        {
            "type": "string",
            "maxLength": TEXT_MAX - 1,
            "pattern": one,
            "not": {"pattern": "^[0.:usmhd-]+(?!\\n)$"},
        }
        for one in (_SPAN, _CLOCK)
    ]
    return {"anyOf": [number, *texts, _NOTHING]}


def _moment() -> _Schema:
    number = {"type": "number", "minimum": 0, "maximum": _SECONDS}
    after = _SPAN.replace("^", r"^\+", 1)
    texts = [
        {"type": "string", "maxLength": TEXT_MAX - 1, "pattern": one} for one in (_DATE, after)
    ]
    return {"anyOf": [number, *texts, _NOTHING]}


_MEMORY_SCHEMA: Final[_Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1e9},
        {"type": "string", "pattern": _MEMORY},
    ]
}
_PATH: Final[_Schema] = {"type": "string", "maxLength": PATH_MAX, **_NO_ZERO}
_WORD: Final[_Schema] = {"type": "string", "maxLength": WORD_MAX, **_NO_ZERO}
_NAME: Final[_Schema] = {"maxLength": NAME_MAX, "not": {"pattern": HIDDEN}}
_NAMES: Final[_Schema] = {"items": {"type": "string", **_NAME}}
_NUMBER: Final[_Schema] = {"type": "integer", "minimum": 1, "maximum": _JOBS_MAX}
_JOBS: Final[_Schema] = {"items": {"anyOf": [_NUMBER, {"type": "string", "pattern": _JOB}]}}
_ARRAYS: Final[_Schema] = {"items": {"anyOf": [_NUMBER, {"type": "string", "pattern": _ARRAY}]}}
_BEGUN: Final[_Schema] = {
    "items": {
        "anyOf": [
            *_JOBS["items"]["anyOf"],
            {"type": "string", "pattern": _JOB.removesuffix(_END) + r"\+" + _SPAN[1:]},
        ]
    },
}
_FIELDS: Final[dict[str, _Schema]] = {
    "format": {"const": FORMAT},
    "command": {"items": _WORD},
    "script": {
        "anyOf": [
            {"const": ""},
            {"type": "string", "pattern": "^#!", "maxLength": SCRIPT_MAX, **_NO_ZERO},
        ]
    },
    **dict.fromkeys(("name", "tenant", "model", "pool", "metric"), _NAME),
    "metrics": {
        "maxProperties": GOALS_MAX,
        "propertyNames": {**_NAME, "minLength": 1, "maxLength": 128},
        "additionalProperties": {"enum": list(DIRECTIONS)},
    },
    "search": {"enum": list(SEARCHES)},
    "recipe": {"maxLength": LENGTH_MAX},
    "parent": {
        "anyOf": [
            {"const": ""},
            {"type": "integer", "minimum": 1, "maximum": 10**11},
            {"type": "string", "pattern": "^[1-9][0-9]{0,10}(?!\\n)$"},
        ]
    },
    "configurations": {
        "maxItems": CONFIGURATIONS_MAX,
        "items": {
            "type": "object",
            "propertyNames": {"pattern": _GRID_NAME, "not": {"enum": list(RESERVED)}},
            "additionalProperties": {"type": "string", "maxLength": VALUE_LETTERS_MAX, **_NO_ZERO},
        },
    },
    "searcher": {"enum": ["", *ASKED]},
    "space": {
        "maxProperties": PROPOSED_MAX,
        "propertyNames": {"pattern": _GRID_NAME, "not": {"enum": list(RESERVED)}},
    },
    "earlier": {"maxItems": CONFIGURATIONS_MAX},
    **dict.fromkeys(("labels", "gpu_types", "warm"), _NAMES),
    "locality": {"enum": ["", *_words(Locality)]},
    "per": {"enum": list(PER)},
    "kind": {"enum": _words(Kind)},
    "on_preempt": {"enum": _words(OnPreempt)},
    "mail_on": {"items": {"enum": list(EVENTS)}},
    "mail_to": {"items": {"type": "string", "pattern": "^[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+(?!\\n)$"}},
    "env": {
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*(?!\\n)$"},
        "additionalProperties": _WORD,
    },
    "cwd": {"anyOf": [{"const": ""}, {**_PATH, "pattern": "^/"}]},
    "output": _PATH,
    "error": _PATH,
    "checkpoint_dir": _PATH,
    "array": {"anyOf": [{"const": ""}, {"type": "string", "pattern": _TASKS}]},
    "time_limit": _span(1e-6),
    "estimate": _span(1e-6),
    "grace": _span(0),
    "deadline": _moment(),
    "begin": _moment(),
    "memory": _MEMORY_SCHEMA,
    "gpu_memory": _MEMORY_SCHEMA,
    "params": {
        "propertyNames": {"pattern": _GRID_NAME, "not": {"enum": list(RESERVED)}},
        "additionalProperties": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string", "maxLength": VALUE_LETTERS_MAX, **_NO_ZERO},
        },
    },
    **dict.fromkeys(("after", "after_any", "after_not_ok"), _JOBS),
    "after_each": _ARRAYS,
    "after_begin": _BEGUN,
    **{field: {"minimum": least, "maximum": most} for field, least, most in RANGES},
}
_LISTED: Final[_Schema] = {"minItems": 1}
_STATED: Final[_Schema] = {"minLength": 1}


def _needs(field: str, holds: _Schema, *others: tuple[str, _Schema]) -> _Schema:
    """If `holds` of a field, it must hold of others what is said of them."""
    return {
        "if": {"required": [field], "properties": {field: holds}},
        "then": {"required": [name for name, _ in others], "properties": dict(others)},
    }


def tightened(request: _Schema) -> _Schema:
    """The schema of JobRequest, with what its types do not say."""
    fields = request["properties"]
    for name, most in LISTED_MAX.items():
        fields[name]["maxItems"] = most
    for name, more in _FIELDS.items():
        if "anyOf" in more:
            fields[name] = {key: value for key, value in fields[name].items() if key == "default"}
        fields[name] = {**fields[name], **more}
    relative = {"allOf": [{"minLength": 1}, {"not": {"pattern": "^/"}}]}
    request["anyOf"] = [
        {"required": ["command"], "properties": {"command": _LISTED}},
        {"required": ["script"], "properties": {"script": _STATED}},
    ]
    request["allOf"] = [
        _needs("after_each", _LISTED, ("array", _STATED)),
        *(
            _needs(field, relative, ("cwd", _STATED))
            for field in ("output", "error", "checkpoint_dir")
        ),
        {
            "if": {"required": ["share"], "properties": {"share": {"exclusiveMaximum": 1}}},
            "then": {"properties": {"gpus": {"minimum": 1}}},
        },
    ]
    return request
