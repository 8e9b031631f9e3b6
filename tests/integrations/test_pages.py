"""The programs on docs/tuning.md run as they stand there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.commands import blocks
from ganger.client.connection import Client

PROGRAMS = [text for text in blocks("docs/tuning.md", "python") if "ganger.integrations" in text]
SAYS = {"optuna": "6 trials, the best {'rate': ", "sklearn": "'n_estimators': 27} 0.9"}


@pytest.mark.parametrize("library", SAYS)
def test_a_program_does_what_the_page_says(daemon: Client, tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    (program,) = (text for text in PROGRAMS if f"ganger.integrations.{library} " in text)
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert SAYS[library] in done.stdout, done.stderr
