"""What a question leaves behind in the process that worked it out."""

from __future__ import annotations

import subprocess
import sys

TRACED_AFTER = """
import asyncio, sys, time
from ganger.service.http import looks
from ganger.service.jobs.submission import Who

def long():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass

async def ask():
    desk = looks.Looks()
    assert await desk.look(Who("ann"), lambda: 7) == 7
    looks.PATIENCE_SECONDS = 0.05
    try:
        await desk.look(Who("ann"), long)
    except looks.TooLong:
        print("ended")

asyncio.run(ask())
sys.settrace(lambda *seen: None)
(lambda: None)()
sys.settrace(None)
print("traced")
"""


def test_a_thread_that_is_traced_goes_on_after_questions() -> None:
    # What is left to be raised in a thread makes CPython 3.11 try for ever where it traces.
    run = subprocess.run(
        [sys.executable, "-c", TRACED_AFTER],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (run.returncode, run.stdout.split()) == (0, ["ended", "traced"]), run.stderr
