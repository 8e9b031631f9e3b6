"""Functions that run in jobs. The program that submits writes one to a folder, and the job reads
it. A job whose result is wanted is `python -m ganger.client.call FOLDER`."""

from __future__ import annotations

import os
import pickle
import runpy
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ganger.core.errors import BadInput


class Call(NamedTuple):
    """What to run: pickled function, arguments and keywords; the script that they stand in, or "";
    where modules are found."""

    what: bytes
    script: str
    path: list[str]


class Outcome(NamedTuple):
    """What came of it: the pickled result, or the error."""

    value: bytes
    error: BaseException | None


def keep(
    root: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Path:
    """Write a call to a new folder in the state folder `root`, and return the folder. Raises
    BadInput where nothing can be written there, and for what cannot travel."""
    if _Loading.now:
        raise BadInput(
            "the script asks for jobs when a job of its own reads it",
            where=str(getattr(function, "__name__", function)),
            mend='put that under `if __name__ == "__main__":`',
        )
    main = sys.modules["__main__"]
    own = getattr(function, "__module__", "") == "__main__"
    script = getattr(main, "__file__", None) if own else None
    what = _carried((function, args, kwargs), by_value=own and script is None)
    call = Call(what, script or "", list(sys.path))
    folder = _folder(root)
    (folder / "call").write_bytes(pickle.dumps(call))
    return folder


def _folder(root: Path) -> Path:
    """A new folder for a call: in the state folder, or in the user's own where that is another
    user's. Raises BadInput."""
    own = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ganger"
    for parent in (root, own):
        folder = parent / "calls" / secrets.token_hex(12)
        try:
            folder.mkdir(mode=0o700, parents=True)
        except PermissionError:
            continue
        return folder
    raise BadInput("functions need a folder of your own", where=str(own))


def _carried(what: object, *, by_value: bool) -> bytes:
    """As bytes: by name where others can import it, else (`by_value`, and what pickle cannot carry)
    by cloudpickle, where that is installed. Raises BadInput."""
    why: Exception | None = None
    if not by_value:
        try:
            return pickle.dumps(what)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            why = error
    try:
        import cloudpickle

        return bytes(cloudpickle.dumps(what))
    except ImportError:
        said = f": {why}" if why else ""
        raise BadInput(
            f"the function or its arguments cannot travel to a job{said}",
            mend="define it at the top of a file, or install cloudpickle",
        ) from None


class _Loading:
    """Whether a script is read for the function that stands in it."""

    now = False


def kept(folder: Path) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The call in `folder`. Where modules are found is set for this process as for the one that
    wrote it."""
    call: Call = pickle.loads((folder / "call").read_bytes())
    sys.path[:] = call.path
    if call.script:
        module = ModuleType("__main__")
        _Loading.now = True
        module.__dict__.update(runpy.run_path(call.script, run_name="__ganger__"))
        _Loading.now = False
        sys.modules["__main__"] = module
    what: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] = pickle.loads(call.what)
    return what


def run(folder: Path) -> int:
    """Run the call in `folder` and leave its outcome there; the exit code."""
    try:
        function, args, kwargs = kept(folder)
        outcome = Outcome(pickle.dumps(function(*args, **kwargs)), None)
    except Exception as error:
        outcome = Outcome(b"", error)
    leave(folder / "result", outcome)
    return int(outcome.error is not None)


def leave(path: Path, outcome: Outcome) -> None:
    """Write an outcome, whole or not at all."""
    try:
        data = pickle.dumps(outcome)
    except Exception:  # an error that does not travel
        data = pickle.dumps(Outcome(b"", RuntimeError(repr(outcome.error))))
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)


if __name__ == "__main__":
    from ganger.client.call import run as run_here  # the classes must not be those of __main__

    sys.exit(run_here(Path(sys.argv[1])))
