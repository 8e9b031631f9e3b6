"""A daemon that lives as long as the program that started it: `python -m
ganger.integrations.embedded SETTINGS`. When its standard input ends it stops its jobs, goes, and
removes its state folder."""

from __future__ import annotations

import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from ganger.client.connection import Client
from ganger.core.errors import GangerError


def _go_with(root: Path) -> None:
    """Stop when the program is over, however it ended."""
    sys.stdin.buffer.read()
    with suppress(GangerError):  # it goes down already
        Client(root).call("POST", "/v1/shutdown", body={"jobs": True})


def main(argument: str) -> int:
    """Serve; `argument` is what `ganger.service` gets. The exit code."""
    from ganger.service.serve import main as serve

    root = Path(msgspec.json.decode(argument)["home"])
    threading.Thread(target=_go_with, args=(root,), daemon=True).start()
    code = serve(argument)
    shutil.rmtree(root, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
