"""A replica of a service that answers no requests, but says how busy it would be: as busy as the
file says that is named on its command line. A real one calls `sdk.served` after each request.

    echo 0.9 > load
    ganger submit --kind serve --gpus 3 --min-gpus 1 --max-gpus 5 -- \\
        python examples/planes/replica.py "$PWD/load"
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ganger import sdk


def main() -> None:
    """Serve until it is told to leave."""
    load = Path(sys.argv[1])
    sdk.served()  # from now on it counts
    while not sdk.should_checkpoint():
        time.sleep(0.05)
        busy = float(load.read_text() or 0)
        sdk.served(arrivals=busy * 5, answered=busy * 5, busy=busy, ongoing=busy)
    sdk.leave()


if __name__ == "__main__":
    main()
