"""A function as a trial, in its job: `python -m ganger.integrations.trial FOLDER`."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from ganger import sdk
from ganger.client.call import Outcome, kept, leave
from ganger.core.tuning.space import Space


def run(folder: Path) -> int:
    """Call the function in `folder` with the configuration of this trial; the exit code. Raises
    what it raises."""
    space: Space
    space, metric = pickle.loads((folder / "space").read_bytes())
    try:
        function, _, _ = kept(folder)
        value = function(space.read(sdk.configuration) or dict(sdk.configuration))
    except Exception as error:
        leave(folder / f"error-{os.environ['GANGER_JOB_ID']}", Outcome(b"", error))
        raise
    if isinstance(value, int | float):
        sdk.report(sdk.reported or 1.0, final=True, **{metric: value})
    return 0


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
