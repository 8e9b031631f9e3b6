"""What a process of background work runs: bounds first, then the one thing that it was asked for.
`python -m ganger.web.background.child`, the order on its input, lines of JSON on its output."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from typing import Any, Final

import msgspec

from ganger.core.errors import GangerError
from ganger.web.background.pool import MEMORY_MAX, SECONDS_MAX, Heard

_NICENESS: Final = 15
_PR_SET_PDEATHSIG: Final = 1


class Order(msgspec.Struct):
    """A kind of work, and what is asked."""

    kind: str
    asked: msgspec.Raw


def bound() -> None:
    """Take no more than is due, and end with the pages."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> int:
    """Do it; the exit code."""
    bound()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a part prints is no answer

    def tell(**said: Any) -> None:
        output.write(msgspec.json.encode(Heard(**said)) + b"\n")
        output.flush()

    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    from ganger.web.background.tasks import TASKS  # what it needs is bounded, too

    kind, function = TASKS[order.kind]
    try:
        result = function(msgspec.json.decode(order.asked, type=kind), tell)
        tell(result=msgspec.Raw(msgspec.json.encode(result)))
    except GangerError as error:
        what, mend = getattr(error, "what", str(error)), getattr(error, "mend", "")
        tell(why=what, mend=mend)
    except MemoryError:
        tell(why=f"it needs more than {MEMORY_MAX >> 30} GiB of memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
