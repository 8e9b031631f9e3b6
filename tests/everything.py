"""All checks of `make test`, on two cores: what computes runs beside what waits.

    python tests/everything.py --live tests/service tests/web ...

The tests of `--live` start daemons, jobs and servers, and wait more than they compute. They have
the processor first. Beside them, at the lowest priority, mypy runs, and then all other tests, whose
output is shown once it is complete. A few tests of real processes that failed beside the others
run once more by themselves: what passes then is named, and does not count as failed. The end of
what failed is shown again last, where a log that is cut still has it. Exits with 1 if anything
failed.

With `--ready FILE` the tests of `--live` wait until that is there. Its lines, like NAME=VALUE, say
what has been installed meanwhile, and become environment variables.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = "tests of real processes"
COMPUTING, WAITING = 2, 3
"""How many processes run tests of each kind."""
AGAIN = 3
"""How many tests that failed beside others may run by themselves again. More have one cause."""
SHOWN_AGAIN = 120
"""Lines."""
INSTALLING_SECONDS = 1800


def pytest(workers: int, *words: str) -> list[str]:
    """The command that runs tests."""
    return [
        sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal",
        "--durations=10", *words,
    ]  # fmt: skip


def beside(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start it at the lowest priority, with temporary folders of its own: pytest closes the folder
    above those of other users' and other runs'."""
    folder = output.with_suffix("")
    folder.mkdir()
    env = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder)}
    with output.open("wb") as file:
        return subprocess.Popen(
            ["nice", "-n", "19", *command], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=env
        )


def before(command: list[str]) -> tuple[int, str]:
    """Run it and show what it prints as it comes: its exit code, and all that it printed."""
    printed = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    return process.returncode, "".join(printed)


def await_installed(file: Path) -> None:
    """Wait until it is there, and take the variables that it sets."""
    end = time.monotonic() + INSTALLING_SECONDS
    while not file.exists():
        if time.monotonic() > end:
            sys.exit(f"everything.py: {file} did not come within {INSTALLING_SECONDS} s")
        time.sleep(0.5)
    for line in file.read_text().splitlines():
        name, _, value = line.partition("=")
        os.environ[name] = value


def main() -> int:
    """Run everything; 0 if all is well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--live", nargs="+", required=True, help="folders and files of tests")
    parser.add_argument("--ready", type=Path, metavar="FILE", help="what the live tests wait for")
    parser.add_argument("--long", action="store_true", help="also the tests that are marked long")
    asked = parser.parse_args()
    live, some = asked.live, [] if asked.long else ["-m", "not long"]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ganger-tests-", ignore_cleanup_errors=True) as folder:
        types = beside([sys.executable, "-m", "mypy"], Path(folder) / "types.txt")
        ignored = [f"--ignore={each}" for each in live]
        others = beside(
            pytest(COMPUTING, "--timeout=900", *some, "tests", *ignored),
            Path(folder) / "others.txt",
        )
        if asked.ready is not None:
            await_installed(asked.ready)
        said = {PROCESSES: before(pytest(WAITING, *some, *live))}
        for name, process, file in (
            ("types", types, "types.txt"),
            ("other tests", others, "others.txt"),
        ):
            code = process.wait()
            said[name] = code, (Path(folder) / file).read_text(errors="replace")
            print(f"\n{name}, which ran beside:\n{said[name][1]}")
    code, printed = said[PROCESSES]
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.MULTILINE)
    if code == 1 and len(failed) <= AGAIN:
        print(f"\nby themselves again: {', '.join(failed)}")
        if before(pytest(0, *failed))[0] == 0:
            print(f"\nfailed beside others, and passed by themselves: {', '.join(failed)}")
            print("\n".join(printed.splitlines()[-SHOWN_AGAIN:]))
            said[PROCESSES] = 0, ""
    for name, (code, printed) in said.items():
        if code:
            print(f"\nagain, the end of {name}:")
            print("\n".join(printed.splitlines()[-SHOWN_AGAIN:]))
    if some:
        print("\nlong tests are left out: make test LONG=1 has them, as CI does")
    print(
        f"{time.monotonic() - begun:.0f} s;",
        ", ".join(
            f"{name}: {'passed' if code == 0 else f'failed ({code})'}"
            for name, (code, _) in said.items()
        ),
    )
    return int(any(code for code, _ in said.values()))


if __name__ == "__main__":
    sys.exit(main())
