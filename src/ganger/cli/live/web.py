"""`ganger open`: the pages of the cluster and the queue in a browser."""

from __future__ import annotations

import os
import select
import time
import webbrowser
from pathlib import Path

import click

from ganger.cli.live.processes import detached
from ganger.cli.text import print_json
from ganger.client.answers import Status
from ganger.client.connection import Client
from ganger.client.places import home, open_private
from ganger.core.errors import BadInput, GangerError
from ganger.web.links import LOG, SOCKET, Settings, Told, asked_at, folder_of, leading_to

START_SECONDS = 30.0
END_SECONDS = 30.0
_LAST_LINES_BYTES = 4096


@click.command(
    "open",
    epilog="\b\nExamples:\n  ganger open\n  ganger open --no-browser\n"
    "  ganger open --web-host https://gpu.example.org --web-prefix /ganger --web-port 8700",
)
@click.option("--no-browser", is_flag=True, help="Print the link and open nothing.")
@click.option(
    "--read-only",
    is_flag=True,
    help="A link for a screen on the wall: it shows the cluster and the queue, and changes "
    "nothing.",
)
@click.option(
    "--web-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A name under which browsers reach the pages too, with https:// before it if a proxy adds "
    "TLS. May be given several times.",
)
@click.option(
    "--web-prefix", "prefix", default="", metavar="PATH", help="The path below which a proxy has "
    "the pages, like /ganger.",
)  # fmt: skip
@click.option(
    "--web-port",
    "port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port on 127.0.0.1. Default: one that is free.",
)
@click.option("--end", is_flag=True, help="End the pages, and all sessions with them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def open_(
    no_browser: bool,
    read_only: bool,
    hosts: tuple[str, ...],
    prefix: str,
    port: int,
    end: bool,
    as_json: bool,
) -> None:
    """Open pages of the cluster, the queue and every job in a browser.

    They are served on 127.0.0.1 by a process of your own, which goes on until
    `ganger open --end` or until nobody has looked for a day. The link is valid
    once, for one minute.
    """
    root = home()
    if end:
        click.echo("ended" if _end(root) else "no pages are served here")
        return
    Client(root).call("GET", "/v1/status", Status)
    settings = Settings(home=str(root), port=port, hosts=list(hosts), prefix=prefix.rstrip("/"))
    pages = asked_at(root, read_only=read_only)
    if pages is None:
        pages = _start(root, settings, read_only=read_only)
    elif (hosts or prefix or port) and pages.settings != settings:
        raise BadInput(
            f"the pages are served already, otherwise, by process {pages.pid}",
            mend="end them first: ganger open --end",
        )
    link = _link(pages)
    if as_json:
        print_json({"url": _base(pages), "link": link, "pid": pages.pid})
        return
    click.echo(link)
    if not no_browser and not webbrowser.open(leading_to(link, folder_of(root))):
        click.echo("no browser was found here: open the link in one within a minute", err=True)


@click.command(epilog="\b\nExamples:\n  ganger lab\n  ganger lab --no-browser")
@click.option("--no-browser", is_flag=True, help="Print the link and open nothing.")
@click.option("--end", is_flag=True, help="End the lab, and all sessions with it.")
def lab(no_browser: bool, end: bool) -> None:
    """Watch recipes side by side as moving Gantt charts; no daemon is needed.

    The lab is served on 127.0.0.1 by a process of your own. The link is valid
    once, for one minute.
    """
    root = home() / "lab"
    if end:
        click.echo("ended" if _end(root) else "the lab is not open")
        return
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = _link(asked_at(root) or _start(root, Settings(home=str(root), lab=True)))
    click.echo(link)
    if not no_browser and not webbrowser.open(leading_to(link, folder_of(root))):
        click.echo("no browser was found here: open the link in one within a minute", err=True)


def serve_beside(root: Path) -> str:
    """A link to the pages of a home, which are started where there are none, and then end with the
    daemon (`end_beside`). Raises GangerError."""
    settings = Settings(home=str(root), beside=True)
    return _link(asked_at(root) or _start(root, settings))


def end_beside(root: Path) -> None:
    """End the pages that came with the daemon, if there are such."""
    pages = asked_at(root)
    if pages is not None and pages.settings.beside:
        _end(root)


def _end(root: Path) -> bool:
    """End the pages of a home; whether there were any."""
    ended = asked_at(root, end=True)
    if ended is not None:
        _wait_for_end(ended.pid)
    return ended is not None


def _link(pages: Told) -> str:
    return f"{_base(pages)}/enter#token={pages.token}"


def _wait_for_end(pid: int) -> None:
    """Until the process of the pages is over, whose port is free then. Raises GangerError."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([process], [], [], END_SECONDS)[0]:
            raise GangerError(f"the pages end when process {pid} has answered what was asked")
    finally:
        os.close(process)


def _base(pages: Told) -> str:
    """Where a browser finds the pages: under a stated name, else under the home's own."""
    hosts = pages.settings.hosts
    if not hosts:
        return pages.url
    stated = hosts[0] if "//" in hosts[0] else f"http://{hosts[0]}"
    return stated.rstrip("/") + pages.settings.prefix


def _start(root: Path, settings: Settings, *, read_only: bool = False) -> Told:
    """Start the process of the pages, and wait until it gives a link. Raises GangerError."""
    folder = folder_of(root)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_private(folder / LOG) as log:
        begin = log.tell()
        process = detached("ganger.web", settings, log)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            said = (folder / LOG).read_bytes()[begin:][-_LAST_LINES_BYTES:].decode(errors="replace")
            lines = said.strip().splitlines()
            raise GangerError(lines[-1].removeprefix("ganger: ") if lines else "the pages ended")
        if (folder / SOCKET).exists() and (pages := asked_at(root, read_only=read_only)):
            return pages
        time.sleep(0.02)
    process.kill()
    raise GangerError(f"the pages do not answer; see {folder / LOG}")
