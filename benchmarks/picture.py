"""The picture of a report in the README, `docs/report.png`, by a Chromium that has no window.

    python benchmarks/picture.py [--browser chromium]

The picture carries, as text, how it was made and the mean JCT that `ganger demo --seed 0` gives
for each recipe: a test compares these with what the code gives now.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from provenance import ROOT, made

PAGE = ROOT / "docs" / "report.png"
SIZE = "1165,1990"
HEAD = 8
"""Bytes that every PNG begins with; chunks follow, the first of which is of 25 bytes."""


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def main() -> None:
    """Run the demo, draw its report, write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--browser", default="chromium")
    browser = parser.parse_args().browser
    ganger = [sys.executable, "-m", "ganger.cli", "demo"]
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "demo.html", Path(folder) / "demo.png"
        subprocess.run([*ganger, "--report", str(page)], check=True, stdout=subprocess.DEVNULL)
        first = subprocess.run([*ganger, "--seed", "0", "--json"], check=True, capture_output=True)
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--window-size={SIZE}",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        drawn = picture.read_bytes()
    jct = {
        run["recipe"]: run["metrics"]["jct_mean_seconds"]
        for run in json.loads(first.stdout)["runs"]
    }
    text = chunk(
        b"tEXt", f"Comment\0{json.dumps({'made': made(), 'jct_mean_seconds': jct})}".encode()
    )
    PAGE.write_bytes(drawn[: HEAD + 25] + text + drawn[HEAD + 25 :])


if __name__ == "__main__":
    main()
