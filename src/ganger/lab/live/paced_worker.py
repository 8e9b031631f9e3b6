"""A job whose steps are paced by a timer: `python -S -P paced.py STAMPS STEPS MICROS SPEEDS`.

It takes STEPS steps of MICROS microseconds each, or that over the speed that SPEEDS (separated by
commas, from one worker on) gives for the workers that it has. Steps end at fixed times after the
first began, so that what the machine is late with does not add up. It saves and leaves between two
steps when asked to. The file STAMPS/JOB.ATTEMPT gets a line when the attempt begins to compute
and one when it stops: nanoseconds of the machine's monotonic clock, the step, and nanoseconds a
step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ganger import sdk


def main(stamps: str, steps: str, micros: str, speeds: str) -> None:
    """Take the steps."""
    last, speed = int(steps), [float(one) for one in speeds.split(",")]
    workers = int(os.environ.get("GANGER_WORKERS", "1"))
    took = float(micros) * 1e-6 / speed[min(workers, len(speed)) - 1]
    saved = sdk.checkpoint_dir / "step"
    first = step = int(saved.read_text()) if saved.exists() else 0
    sdk.should_checkpoint()  # from now on it is asked to leave, not told
    name = f"{os.environ.get('GANGER_JOB', '0')}.{os.environ.get('GANGER_ATTEMPT', '1')}"
    with Path(stamps, name).open("w", buffering=1) as file:

        def stamp() -> None:
            file.write(f"{time.monotonic_ns()} {step} {round(took * 1e9)}\n")

        stamp()
        began = time.monotonic()
        while step < last:
            step += 1
            time.sleep(max(began + (step - first) * took - time.monotonic(), 0.0))
            sdk.progress(step, last)
            if step < last and sdk.should_checkpoint():
                stamp()
                made = saved.with_name(f"step.{os.getpid()}")  # a killed worker leaves no half
                made.write_text(str(step))
                made.replace(saved)
                sdk.leave(step)
        stamp()


if __name__ == "__main__":
    main(*sys.argv[1:])
