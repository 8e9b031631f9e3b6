"""Where a page of figures comes from: the command, the day, the commit and the machine."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
NOTES = "## Notes"
"""Where what people wrote begins."""
SAMPLE = "## A sample, which CI makes again"
"""The last section of a page: rows that `samples.py` makes in seconds."""


def made(*private: str) -> str:
    """The command that runs, today, and the commit that it runs; without the options `private` and
    their values, which say where this machine keeps something."""
    script = Path(sys.argv[0]).resolve()
    name = script.parent if script.name == "__main__.py" else script
    shown = name.relative_to(ROOT) if name.is_relative_to(ROOT) else name
    words = sys.argv[1:]
    for option in private:
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    command = shlex.join(["python", str(shown), *words])
    return f"`{command}`, {date.today()}, commit {commit()}"


def commit() -> str:
    """The commit of this checkout, and whether its code was changed since."""
    known = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    return (known or "unknown") + (" with changes" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def without_sample(text: str) -> str:
    """A page without its last section."""
    return text.partition(SAMPLE)[0]


def write(page: Path, text: str) -> None:
    """Write a page; the notes that people wrote below its figures, and the sample, stay."""
    before = page.read_text() if page.exists() else ""
    stays = next((word for word in (NOTES, SAMPLE) if word in before), None)
    kept = f"\n{stays}{before.partition(stays)[2]}" if stays else ""
    page.write_text(text.rstrip() + "\n" + kept)


def machine() -> str:
    """What it ran on, in a line."""
    info = Path("/proc/cpuinfo")
    models = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.is_file() else [])
        if line.startswith("model name")
    ]
    cpu = f"{len(models)} x {models[0]}" if models else platform.processor() or platform.machine()
    return (
        f"{cpu}; {platform.system()} {platform.release()}; {platform.python_implementation()}"
        f" {platform.python_version()}, numpy {np.__version__}; one process, one core"
    )
