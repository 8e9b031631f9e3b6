"""A command line as a user types it, done in this process: a new one takes up to half a second."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from ganger.cli.main import main


def typed(
    cwd: Path, *words: str, code: int = 0, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `ganger` with these words in `cwd`, 80 columns wide and not on a terminal; its exit code
    must be `code`, and never a traceback."""
    given, out, err = (
        io.TextIOWrapper(io.BytesIO(text), "utf-8", write_through=True)
        for text in (stdin.encode(), b"", b"")
    )
    with (
        chdir(cwd),
        patch.object(sys, "argv", ["ganger", *words]),
        patch.object(sys, "stdin", given),
        patch.dict(os.environ, {"COLUMNS": "80", **(env or os.environ)}, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        ended: str | int | None = None
        try:
            main()
        except SystemExit as end:
            ended = end.code
    texts = []
    for each in (out, err):
        each.seek(0)
        texts.append(each.read())
    assert isinstance(ended, int)
    done = subprocess.CompletedProcess(words, ended, *texts)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert done.returncode == code, done.stderr + done.stdout
    return done
