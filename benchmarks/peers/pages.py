"""The scripts of docs/coming-from-tuners.md: `make peers` runs those of Ray Tune and of Syne Tune,
each in the peer's own environment; tests/integrations/test_pages.py runs the others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "coming-from-tuners.md"
_BLOCK: Final = re.compile(r"^```(\w+)\n(?:# ([\w ]+)\n)?(.*?)^```", re.MULTILINE | re.DOTALL)
PEERS: Final = ("ray", "syne")


def scripts() -> dict[str, str]:
    """The blocks of the page: programs by what their first line calls them, `toml` the file."""
    found = {name or kind: text for kind, name, text in _BLOCK.findall(PAGE.read_text())}
    return {name: text for name, text in found.items() if name != "yaml"}


def run(python: Path, peer: str) -> str:
    """What the peer's script prints last; `best ...` if it found something. Raises
    CalledProcessError."""
    known = scripts()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "program.py").write_text(known[peer])
        if f"{peer} script" in known:
            (here / "script.py").write_text(known[f"{peer} script"])
        done = subprocess.run(
            [python, "program.py"],
            cwd=here,
            env={**os.environ, "HOME": folder},  # peers leave files there
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
    return done.stdout.strip().splitlines()[-1]


def main() -> int:
    """Run those that are installed; 1 if one did not find a best configuration."""
    wrong = 0
    for peer in PEERS:
        said = run(ROOT / ".peers" / peer / "bin" / "python", peer)
        print(f"{peer}: {said}")
        wrong += not said.startswith("best {")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
