"""How a page of figures says where it comes from."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path


def commit() -> str:
    """The commit of the code, and the day."""
    where = Path(__file__).parent
    told = [
        subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True,
                       check=False).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "-uno", "../src"))
    ]  # fmt: skip
    changed = " with changes" if told[1] else ""
    return f"{told[0] or 'unknown'}{changed}, {datetime.now(UTC):%Y-%m-%d}"


def made(command: str) -> str:
    """The sentence that names the command, the commit of the code, and the day."""
    return f"Made by `{command}`, commit {commit()}."
