"""What commands say of a Slurm cluster's own jobs; no daemon is asked."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ganger.cli.text import print_json
from ganger.core.errors import BadInput
from ganger.core.units import DAY, NEVER, parse_duration
from ganger.engines.slurm.calls.answers import Node
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.site import Listed, called, explained, listed_of
from ganger.engines.slurm.site import accounting as accounted
from ganger.lab.ahead.slurm_mirror import SlurmMirror, advice, counts, mirror
from ganger.lab.ahead.whatif import Future, future
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.trace import Trace

LOOK_SECONDS: Final = 5.0


def _now() -> int:
    return time.time_ns() // 1000


def _listed(client: Client) -> list[Listed]:
    return listed_of(client.listing())


def _mirrored(client: Client, recipe: str, knows: str) -> SlurmMirror:
    return mirror(client.nodes(), _listed(client), client.partition, _now(), recipe, knows)


def advise(partition: str, recipe: str, knows: str, *, again: bool, as_json: bool) -> None:
    """Print what a recipe would do with Slurm's jobs; with `again` whenever that changes, until
    somebody interrupts. Raises BadInput, Away."""
    client = Client(partition)
    before: list[str] | None = None
    while True:
        made = _mirrored(client, recipe, knows)
        lines = advice(made)
        if lines != before:
            _say_advice(made, recipe, lines, as_json)
        if not again:
            return
        before = lines
        time.sleep(LOOK_SECONDS)


def _say_advice(made: SlurmMirror, recipe: str, lines: Sequence[str], as_json: bool) -> None:
    runs, waits = counts(made)
    if as_json:
        print_json(
            {
                "recipe": recipe,
                "running": runs,
                "waiting": waits,
                "would": lines,
                "left_out": made.left_out,
            }
        )
        return
    click.echo(f"{runs} jobs run and {waits} wait; {recipe} would {'' if lines else 'do nothing'}")
    for line in lines:
        click.echo(f"  {line}")
    for line in made.left_out:
        click.echo(f"note: left out: {line}", err=True)


def explain(number: str, as_json: bool) -> None:
    """Print why one of Slurm's jobs waits. Raises BadInput, Away."""
    client = Client()
    jobs = _listed(client)
    asked = called(number, jobs)
    client = Client(asked.partition.split(",")[0] if asked is not None else "")
    one, lines = explained(number, jobs, client.nodes(), _now())
    if as_json:
        print_json(
            {
                "job": one.label,
                "states": sorted(one.job.states),
                "reason": one.job.reason,
                "lines": lines,
            }
        )
        return
    reason = f" ({one.job.reason})" if one.job.is_pending else ""
    click.echo(f"job {one.label}: {', '.join(sorted(one.job.states))}{reason}")
    for line in lines:
        click.echo(f"  {line}")


def futures(recipes: Sequence[str], partition: str = "", add: str = "") -> list[Future]:
    """What recipes would make of Slurm's present queue, without and with the nodes to add. Raises
    BadInput, Away."""
    client = Client(partition)
    nodes, jobs, now = client.nodes(), _listed(client), _now()
    more = _added(add, client.partition) if add else []
    free = sum(one.limit >= NEVER and not one.job.is_over for one in jobs)
    if free:
        click.echo(f"note: {free} jobs have no time limit; their run times are guesses", err=True)
    return [
        future(
            mirror([*nodes, *new], jobs, client.partition, now, recipe).copy(),
            recipe + (" on more" if new else ""),
        )
        for new in ([[], more] if more else [[]])
        for recipe in recipes
    ]


def _added(add: str, partition: str) -> list[Node]:
    """Idle nodes of the partition, as Slurm would tell of them."""
    specs = [spec for spec in load_cluster(add).nodes for _ in range(spec.count)]
    return [
        Node(
            f"added-{i}",
            "",
            {spec.gpu_type: spec.gpus},
            spec.cpus,
            spec.memory,
            (partition,),
            frozenset({"IDLE"}),
        )
        for i, spec in enumerate(specs)
    ]


def accounting(since: str, skip_bad: bool) -> Trace:
    """The finished GPU jobs of the cluster. Raises BadInput, Away."""
    text, source = accounted(Client(), parse_duration(since, where="--since") / DAY)
    click.echo(f"note: from {source}", err=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        path.write_text(text)
        try:
            return load_trace(path, "sacct", skip_bad=skip_bad)
        except BadInput as error:
            raise BadInput(error.what, where="Slurm", mend=error.mend) from None
