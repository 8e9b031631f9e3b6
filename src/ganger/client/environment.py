"""What a job gets of its submitter's environment."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ganger.core.errors import BadInput

_KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME", "TORCH_HOME", "WANDB_DIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
)  # fmt: skip
"""What a job gets of its submitter's environment unless `--export` says otherwise."""


def environment(export: str | None) -> dict[str, str]:
    """What the job gets of this environment: our choice, `ALL`, `NONE`, or a list."""
    words = export.split(",") if export else []
    if "ALL" in words:
        found = dict(os.environ)
    elif (export and not any(words)) or "NONE" in words:
        found = {}
    elif words:
        found = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    else:
        found = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith("LC_")
        }
    found |= variables([word for word in words if word not in ("ALL", "NONE", "")])
    return {name: value for name, value in found.items() if name.isidentifier()}


def variables(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words; a bare NAME is taken from here. Raises BadInput."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if name not in os.environ:
                raise BadInput(f"{name!r} is not set here", where="--env", mend="write NAME=VALUE")
            value = os.environ[name]
        found[name] = value
    return found
