"""Compile all that the tests import, once, before several processes of pytest do it side by side.

    python tests/compiling.py

pytest rewrites the assertions of each file of tests, which takes longer than all else that it does
to collect them, and each of its processes would begin with the same files. What is written here is
the cache that pytest itself keeps.
"""

from __future__ import annotations

import compileall
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _pytest.assertion import AssertionState
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    get_cache_dir,
    try_makedirs,
)
from _pytest.config import get_config

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2
REWRITTEN = re.compile(r"(?:test_.*|conftest)\.py$")
"""Files whose assertions pytest rewrites; all others it imports as they are."""


def rewritten(files: list[Path]) -> int:
    """Keep the files as pytest rewrites them; returns how many."""
    config = get_config()
    state = AssertionState(config, "rewrite")
    for file in files:
        folder = get_cache_dir(file)
        try_makedirs(folder)
        source_hash, code = _rewrite_test(file, config)
        _write_pyc(state, code, source_hash, folder / f"{file.stem}{PYC_TAIL}")
    return len(files)


def main() -> None:
    """Compile all."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    tests = [file for file in files if REWRITTEN.match(file.name)]
    with ProcessPoolExecutor(WORKERS) as processes:
        parts = processes.map(rewritten, [tests[at::WORKERS] for at in range(WORKERS)])
        compileall.compile_dir(str(ROOT / "src"), quiet=1)
        compileall.compile_dir(str(ROOT / "tests"), quiet=1, rx=REWRITTEN)
        print(f"{sum(parts)} files of tests are compiled")


if __name__ == "__main__":
    main()
