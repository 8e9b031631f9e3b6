"""Daemons as processes of their own, for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from forks import Fork
from ganger.client.connection import Client, NoDaemon
from ganger.core.errors import GangerError
from ganger.service import agents

START_SECONDS = 30.0


class Machine:
    """A state folder, and the daemon that serves it now; `fresh`: in a new interpreter, as
    `ganger up` starts it."""

    def __init__(self, root: Path, *, fresh: bool = False, **settings: Any) -> None:
        self.root, self.fresh = root, fresh
        self.settings = {"home": str(root), "gpus": "4", "recipe": "fifo", **settings}
        self.process: subprocess.Popen[bytes] | Fork | None = None
        self.client = Client(root)

    def up(self, **settings: Any) -> Client:
        """Start the daemon and wait until it answers."""
        self.settings |= settings
        with (self.root.parent / f"{self.root.name}.log").open("ab") as log:
            said = msgspec.json.encode(self.settings).decode()
            if self.fresh:
                words = [sys.executable, "-m", "ganger.service", said]
                self.process = subprocess.Popen(words, stdout=log, stderr=log)
            else:
                self.process = Fork("ganger.service.serve", said, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self.process.poll() is None, self.said()
            try:
                self.client.call("GET", "/v1/status")
                return self.client
            except NoDaemon:
                time.sleep(0.01)
        raise AssertionError("the daemon does not answer")

    def said(self) -> str:
        """What the daemon wrote."""
        return (self.root.parent / f"{self.root.name}.log").read_text()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Nothing of it stays: no daemon, no job, no agent."""
        if self.process is not None and self.process.poll() is None:
            try:
                client = self.client
                page = client.call("GET", "/v1/jobs", query={"limit": 1000})
                if page["jobs"]:
                    path = ",".join(str(job["job"]) for job in page["jobs"])
                    client.call("POST", f"/v1/jobs/{path}/cancel")
                    client.call("GET", f"/v1/jobs/{path}/wait", query={"timeout": 10})
                client.call("POST", "/v1/shutdown", body={})
                self.process.wait(10)
            except (GangerError, subprocess.TimeoutExpired):
                self.kill()
        self.client.close()
        agents.stop(self.root / "agent")


def wait_for(client: Client, jobs: list[int], seconds: float = 30.0) -> list[dict[str, Any]]:
    """The jobs' answers, once all of them are over."""
    path = "/v1/jobs/" + ",".join(map(str, jobs))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found: list[dict[str, Any]] = client.call("GET", f"{path}/wait", query={"timeout": 5})[
            "jobs"
        ]
        if all(job["finished"] for job in found):
            return found
    raise AssertionError(f"not over: {[job for job in found if not job['finished']]}")


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
