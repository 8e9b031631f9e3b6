"""The job's side of `Client.submit`: `python -m ganger.client.call FOLDER`."""

from __future__ import annotations

import pickle
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple


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


def run(folder: Path) -> int:
    """Run the call in `folder` and leave its outcome there; the exit code."""
    call: Call = pickle.loads((folder / "call").read_bytes())
    sys.path[:] = call.path
    if call.script:
        module = ModuleType("__main__")
        module.__dict__.update(runpy.run_path(call.script, run_name="__ganger__"))
        sys.modules["__main__"] = module
    try:
        function, args, kwargs = pickle.loads(call.what)
        outcome = Outcome(pickle.dumps(function(*args, **kwargs)), None)
    except Exception as error:
        outcome = Outcome(b"", error)
    try:
        data = pickle.dumps(outcome)
    except Exception:  # an error that does not travel
        data = pickle.dumps(Outcome(b"", RuntimeError(repr(outcome.error))))
    part = folder / "result.part"
    part.write_bytes(data)
    part.rename(folder / "result")
    return int(outcome.error is not None)


if __name__ == "__main__":
    from ganger.client.call import run as run_here  # the classes must not be those of __main__

    sys.exit(run_here(Path(sys.argv[1])))
