"""`ganger preempt`: one preemption, to see whether a job saves and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from ganger.cli import completion
from ganger.cli.live.jobs import path_of
from ganger.cli.text import print_json
from ganger.client.answers import AttemptAnswer, Changed, JobDetail
from ganger.client.connection import Client
from ganger.client.shown import shown

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(epilog="\b\nExample:\n  ganger preempt --rehearse 12")
@click.argument("job", shell_complete=completion.jobs)
@click.option("--rehearse", is_flag=True, help="Confirm that the job is preempted now. Required.")
@click.option(
    "--timeout", default=120.0, show_default=True, help="Seconds for which the job is watched."
)
@_json
def preempt(job: str, rehearse: bool, timeout: float, as_json: bool) -> None:
    """Preempt a running job once, to see whether it saves and comes back.

    The job is stopped as a policy would stop it and put back in the queue. The command watches it
    until it runs again.
    """
    if not rehearse:
        raise click.UsageError("add --rehearse: the job will be stopped and started again")
    client = Client()
    path = f"/v1/jobs/{path_of([job])}"
    before = client.call("GET", path, list[JobDetail])[0]
    began = time.monotonic()
    client.call("POST", f"{path}/requeue", Changed)

    def last_of(now: JobDetail) -> AttemptAnswer | None:
        return next((one for one in now.attempts if one.attempt == before.attempt), None)

    def has_left(now: JobDetail) -> bool:
        last = last_of(now)
        return last is None or last.ended is not None

    _until(client, path, timeout, has_left)
    gone = time.monotonic() - began
    back = _until(
        client,
        path,
        timeout,
        lambda now: bool(now.finished) or (now.attempt > before.attempt and now.state == "RUNNING"),
    )
    last = last_of(back)
    runs = back.state == "RUNNING"
    found = {
        "job": back.job,
        "left_after_seconds": round(gone, 3),
        "outcome": last.outcome if last else back.reason,
        "state": back.state,
        "back_after_seconds": round(time.monotonic() - began, 3) if runs else None,
        "step_before": before.progress.get("step"),
        "step_after": back.progress.get("step"),
        "note": ""
        if before.progress
        else "the job reports no steps: see its log for whether it "
        "went on where it was or from its beginning",
    }
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        if value not in (None, ""):
            click.echo(f"{key.replace('_', ' ')}: {shown(str(value))}")


def _until(
    client: Client, path: str, timeout: float, true: Callable[[JobDetail], bool]
) -> JobDetail:
    until = time.monotonic() + timeout
    while True:
        now: JobDetail = client.call("GET", path, list[JobDetail])[0]
        if true(now):
            return now
        if time.monotonic() > until:
            raise click.ClickException(f"job {now.label} is still {now.state.lower()}")
        time.sleep(0.05)
