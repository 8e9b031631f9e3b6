"""`ganger nodes`, `drain`, `policy`, `whatif`: the cluster as its administrator sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from ganger.cli import completion
from ganger.cli.text import WATCH_SECONDS, clock, print_json, table, watch
from ganger.cli.words import KNOWS, SPAN, with_files_read
from ganger.client.answers import FutureAnswer, NodeAnswer, PolicyAnswer
from ganger.client.connection import Client
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.lab.ahead.whatif import Future

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(epilog="\b\nExamples:\n  ganger nodes\n  ganger nodes --watch")
@click.option("--watch", "-w", "again", is_flag=True, help="Refresh every 2 s.")
@_json
def nodes(again: bool, as_json: bool) -> None:
    """List nodes (as sinfo)."""
    client = Client()

    def show() -> None:
        found = client.call("GET", "/v1/nodes", list[NodeAnswer])
        print_json(found) if as_json else click.echo(_node_table(found))

    watch(show, WATCH_SECONDS) if again else show()


def _node_table(found: list[NodeAnswer]) -> str:
    rows = [
        (
            node.name,
            node.state,
            node.gpu_type or "-",
            str(node.gpus),
            str(node.gpus_free),
            str(node.gpus_withheld) if node.gpus_withheld else "-",
            f"{node.cpus:g}",
            str(node.memory),
            node.sharing.partition(":")[0] or "-",
            ",".join(map(str, node.jobs)),
        )
        for node in found
    ]
    titles = "NODE", "STATE", "TYPE", "GPUS", "FREE", "OTHERS", "CPUS", "MEMORY", "SHARING", "JOBS"
    return table(titles, rows, shrink=(9, 0))


def say_of_nodes(names: tuple[str, ...], verb: str, as_json: bool) -> None:
    """Drain or resume nodes, and print how they are."""
    path = quote(",".join(names), safe=",")
    found = Client().call("POST", f"/v1/nodes/{path}/{verb}", list[NodeAnswer])
    print_json(found) if as_json else click.echo(_node_table(found))


@click.command(epilog="\b\nExamples:\n  ganger drain box-1\n  ganger resume box-1")
@click.argument(
    "names", nargs=-1, required=True, metavar="NODE...", shell_complete=completion.nodes
)
@_json
def drain(names: tuple[str, ...], as_json: bool) -> None:
    """Start nothing new on nodes. Jobs that run there go on."""
    say_of_nodes(names, "drain", as_json)


@click.command("show", epilog="\b\nExamples:\n  ganger policy show\n  ganger policy show --json")
@_json
def policy_show(as_json: bool) -> None:
    """Show the recipe in force."""
    found = Client().call("GET", "/v1/policy", PolicyAnswer)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found.recipe}, which knows {found.knows}")
        for plane, recipe in (("trials", found.inner), ("services", found.serving)):
            if recipe:
                click.echo(f"{recipe}, for {plane}")


@click.command(
    "set",
    epilog="\b\nExamples:\n  ganger policy set tiresias --dry-run\n"
    "  ganger policy set 'fifo(walk=easy)'",
)
@click.argument("recipe", shell_complete=completion.recipes)
@click.option(
    "--knows",
    type=click.Choice(KNOWS),
    default=None,
    help="What the recipe may believe about durations. Default: as before.",
)
@click.option(
    "--inner",
    default=None,
    metavar="RECIPE",
    shell_complete=completion.inner_recipes,
    help="The recipe for trials inside what their search holds; or none.",
)
@click.option(
    "--serving",
    default=None,
    metavar="RECIPE",
    shell_complete=completion.serving_recipes,
    help="The recipe for services; or none.",
)
@click.option("--dry-run", is_flag=True, help="Only print what the first plan would do.")
@_json
def policy_set(
    recipe: str,
    knows: str | None,
    inner: str | None,
    serving: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let RECIPE decide from now on.

    The recipe is first tried on a copy of the present state. A recipe that fails there is refused.
    """
    body = {"recipe": with_files_read(recipe), "knows": knows or "", "dry_run": dry_run}
    body |= {"inner": inner, "serving": serving}
    found = Client().call("PUT", "/v1/policy", PolicyAnswer, body=body)
    if as_json:
        print_json(found)
        return
    would, does = ("would ", "would change") if dry_run else ("", "changes")
    if found.error:
        click.echo(f"{recipe} fails on the present state: {found.error}")
        raise SystemExit(1)
    for verb, jobs in (("start", found.starts), ("stop", found.stops), ("resize", found.resizes)):
        if jobs:
            some = ", ".join(map(str, jobs[:10])) + (" ..." if len(jobs) > 10 else "")
            click.echo(f"{would}{verb}: {some}")
    if not (found.starts or found.stops or found.resizes):
        click.echo(f"{does} nothing at once")
    for what in found.ignored:
        click.echo(f"note: {recipe} may decide more than which job runs where; live, Ganger {what}")
    if not dry_run:
        click.echo(f"recipe in force: {recipe}")


@click.command(
    epilog="\b\nExamples:\n  ganger whatif --recipe tiresias,srtf\n"
    "  ganger whatif --slurm --recipe tiresias,srtf\n"
    "  ganger whatif --add 4xA100\n  ganger whatif --recipe las --history 30d\n"
    "  ganger whatif --recipe las --from-sacct last_month.txt"
)
@click.option(
    "--recipe",
    default="",
    help="Recipes to compare, separated by commas.",
    shell_complete=completion.recipes,
)
@click.option(
    "--add",
    default="",
    metavar="CLUSTER",
    help="Add these nodes to the cluster: 4xA100, or 2x4xA100.",
)
@click.option(
    "--history",
    metavar="TIME",
    type=SPAN,
    help="Replay the jobs of the last TIME instead of the present queue.",
)
@click.option(
    "--from-sacct",
    type=click.Path(exists=True, dir_okay=False),
    help="Replay the jobs of this file on this cluster.",
)
@click.option(
    "--slurm",
    is_flag=True,
    help="Look at Slurm's own jobs. This needs no daemon.",
)
@click.option(
    "--partition", default="", help="With --slurm: the partition. Default: the site's default."
)
@_json
def whatif(
    recipe: str,
    add: str,
    history: str | None,
    from_sacct: str | None,
    slurm: bool,
    partition: str,
    as_json: bool,
) -> None:
    """Predict the queue under other recipes, or with more nodes.

    Run times are not known. They are predicted from history, estimates and time limits.
    """
    from ganger.core.units import DAY, parse_duration
    from ganger.recipes.registry import split_specs

    told = {"--slurm": slurm, "--history": history, "--from-sacct": from_sacct}
    whose = [name for name, given in told.items() if given]
    if len(whose) > 1:
        raise BadInput(f"{' and '.join(whose)} name different jobs", mend="give one of them")
    if partition and not slurm:
        raise BadInput("only Slurm has partitions", where="--partition", mend="add --slurm")
    recipes = split_specs(recipe) if recipe else []
    if slurm:
        from ganger.cli.live.site import futures

        _show_futures(futures(recipes or ["backfill"], partition, add), as_json)
        return
    client = Client()
    if from_sacct:
        _simulate(client, from_sacct, recipes, add, as_json)
        return
    days = parse_duration(history, where="--history") / DAY if history else 0.0
    body = {"recipes": recipes, "add": add, "history_days": days}
    found = client.call("POST", "/v1/whatif", list[FutureAnswer], body=body)
    _show_futures(found, as_json, history=bool(history))


def _show_futures(
    found: Sequence[FutureAnswer | Future], as_json: bool, *, history: bool = False
) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.recipe,
            str(one.waiting),
            str(one.unstarted),
            clock(one.wait_mean_seconds),
            clock(one.end_mean_seconds),
            clock(one.last_end_seconds),
            str(one.preemptions),
        )
        for one in found
    ]
    if history:
        if not any(one.waiting for one in found):
            click.echo("no job ended in that time", err=True)
        cells = [(*row[:2], *row[3:]) for row in rows]
        titles = ("RECIPE", "JOBS", "WAIT", "JCT", "MAKESPAN", "PREEMPTED")
        click.echo(table(titles, cells, shrink=(0,)))
        return
    names = ("RECIPE", "WAITING", "UNSTARTED", "WAIT", "TO END", "LAST END", "PREEMPTED")
    click.echo(table(names, rows, shrink=(0,)))


def _simulate(client: Client, path: str, recipes: list[str], add: str, as_json: bool) -> None:
    """Replay a file on the present cluster, as `ganger simulate` does."""
    found = client.call("GET", "/v1/nodes", list[NodeAnswer])
    parts = [f"1x{node.gpus}x{node.gpu_type}" for node in found if node.gpus]
    recipes = recipes or [client.call("GET", "/v1/policy", PolicyAnswer).recipe]
    words = [
        path,
        "--cluster",
        "+".join([*parts, *([add] if add else [])]),
        "--recipe",
        ",".join(recipes),
        *(["--json"] if as_json else []),
    ]
    from ganger.cli.lab.simulate import simulate

    simulate.main(words, standalone_mode=False)
