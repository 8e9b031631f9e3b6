"""Functions as jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, as_completed
from operator import truediv
from pathlib import Path

import pytest

import ganger
from ganger.client.futures import Client, JobFailed
from service.machines import Machine


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    machine = Machine(tmp_path_factory.mktemp("futures") / "home")
    machine.up()
    with ganger.Client(machine.root) as made:
        yield made
    machine.end()


def test_a_function_returns(client: Client) -> None:
    assert client.submit(divmod, 17, 5).result(20) == (3, 2)
    assert client.submit(int, "ff", kwargs={"base": 16}, gpus=2, name="hex").result(20) == 255


def test_its_error_is_raised_here(client: Client) -> None:
    future = client.submit(truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        future.result(20)
    assert client.call("GET", f"/v1/jobs/{future.job}")[0]["state"] == "FAILED"


def test_many_at_once(client: Client) -> None:
    assert list(client.map(pow, range(5), [2] * 5, gpus=0)) == [0, 1, 4, 9, 16]
    futures = [client.submit(abs, -i) for i in range(4)]
    assert sorted(future.result() for future in as_completed(futures, 30)) == [0, 1, 2, 3]


def test_cancelled_and_killed(client: Client) -> None:
    from time import sleep

    future = client.submit(sleep, 60)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(20)
    late = client.submit(os._exit, 7)
    with pytest.raises(JobFailed, match="exit code 7"):
        late.result(20)
    assert not late.cancel()


def test_a_function_of_a_script(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nimport ganger\n\n"
        "def twice(x):\n    return 2 * x\n\n"
        "if __name__ == '__main__':\n"
        "    with ganger.Client(Path(sys.argv[1])) as client:\n"
        "        print(client.submit(twice, 21).result(20))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(client.places.root)],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.stdout == "42\n", done.stderr
