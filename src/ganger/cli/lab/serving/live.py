"""`ganger serve`: the models of a file over HTTP; `ganger load`: requests to such a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ganger.cli import completion
from ganger.cli.words import SPAN, FloatRange
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, parse_duration, parse_memory

if TYPE_CHECKING:
    from ganger.serving.server import Settings


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--recipe",
    default="",
    shell_complete=completion.routers,
    help="The recipe that decides which requests run together, when and where. Default: "
    "serve.triton, of a repository with the dynamic batching that it states.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port; 0 is any that is free.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Speak gRPC as well, at this port. Needs the extra `grpc`.",
)
@click.option(
    "--lanes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Batches that run at once, each on cores of its own.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Cores of each lane.",
)
@click.option(
    "--device",
    default="",
    metavar="NAME",
    help="The device of the file whose latencies are this machine's. Default: its only one.",
)
@click.option(
    "--memory",
    default="",
    metavar="SIZE",
    help="Memory for models of each lane, like 512MiB: a recipe loads and evicts where not all "
    "fit. Default: no limit.",
)
@click.option(
    "--slo",
    type=SPAN,
    default=None,
    metavar="TIME",
    help="The deadline that the recipe sees of requests that state none. Late answers are given.",
)
@click.option(
    "--longest",
    type=SPAN,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="After that a request is answered with 504, whatever it states.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Requests that may be under way; the next ones are answered with 503.",
)
@click.option(
    "--body", default="64MiB", show_default=True, metavar="SIZE", help="Largest body of a request."
)
@click.option(
    "--held",
    default="512MiB",
    show_default=True,
    metavar="SIZE",
    help="Memory for bodies of all requests under way.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 100_000),
    default=1024,
    show_default=True,
    help="Connections that may be open.",
)
@click.option(
    "--kept",
    default="32MiB",
    show_default=True,
    metavar="SIZE",
    help="Memory for answers that are kept for a minute, for clients that ask again under the same "
    "id; 0 keeps none.",
)
@click.option(
    "--keys",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Answer only bearers of a key of this FILE, which only you may read: tenants, their keys "
    "and rates. SIGHUP has it read again.",
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Speak TLS, with this certificate (PEM, with what it is signed by).",
)
@click.option("--tls-key", type=click.Path(dir_okay=False), metavar="FILE", help="Its key (PEM).")
@click.option("--access-log", is_flag=True, help="Write a line of JSON for each answer to stderr.")
@click.option(
    "--outlive",
    is_flag=True,
    help="Have a parent hold the port and another server ready: one that dies, however it does, is "
    "followed at once.",
)
@click.option("--inherit", default="", hidden=True, help="Of a parent: two descriptors.")
@click.option("--seed", type=int, default=0, show_default=True, help="For recipes that draw.")
def serve(
    file: str,
    recipe: str,
    lanes: int,
    threads: int,
    device: str,
    memory: str,
    outlive: bool,
    inherit: str,
    seed: int,
    **options: Any,
) -> None:
    """Serve the models of a FILE over HTTP by the Open Inference Protocol v2, batched by a recipe
    (docs/serving-live.md). SIGTERM ends it after what is under way. Each model names its ONNX file:
    `ganger profile` writes such a FILE. FILE may be a model repository of Triton's, whose models
    are measured first. Needs the extra `serving`.

    \b
    Examples:
      ganger profile small.onnx large.onnx -o models.toml
      ganger serve models.toml
      ganger serve models.toml --recipe clockwork --slo 50ms --lanes 2
      ganger serve models.toml --recipe "serve.triton(cache=lru)" --memory 512MiB
      ganger serve models.toml --grpc-port 8001
      ganger serve triton/models
      ganger serve models.toml --outlive
      ganger serve models.toml --host 0.0.0.0 --keys keys.toml --tls-cert c.pem --tls-key k.pem
    """
    from ganger.serving.runtime import runtime

    if outlive:
        raise SystemExit(_outlive(click.get_current_context(), options["host"], options["port"]))
    runtime()
    from ganger.lab.serving.live import Machine, prepared, serve_models
    from ganger.serving.outliving import Began, Inherited
    from ganger.workloads.models.reading import read_models

    machine = Machine(lanes, threads, device, _bytes(memory, "--memory") if memory else 0)
    models, notes = None, list[str]()
    if Path(file).is_dir():
        from ganger.lab.live.repository import measured

        repository = measured(Path(file), threads, lambda line: click.echo(line, err=True))
        models, notes = repository.models, repository.notes
        recipe = recipe or repository.recipe
    recipe = recipe or "serve.triton"
    served = prepared(models or read_models(file), recipe, machine, seed)
    settings = _settings(options)
    notes += [*served.notes, *settings.notes()]
    parent = Inherited.of(inherit) if inherit else None
    if parent is not None and not parent.wait():
        return
    for note in notes if parent is None else ():
        click.echo(f"note: {note}", err=True)

    def began(where: str, number: int, grpc_number: int | None) -> None:
        place = f"[{where}]" if ":" in where else where
        url = f"{'http' if settings.certificate is None else 'https'}://{place}:{number}"
        more = "" if grpc_number is None else f", gRPC at {place}:{grpc_number},"
        line = f"{len(served.models)} models at {url}{more} under {recipe}; Ctrl-C ends it"
        if parent is None:
            click.echo(line)
        else:
            parent.report(Began(line, notes))

    serve_models(served, machine, settings, began, parent)
    click.echo("ended", err=True)


def _settings(given: Mapping[str, Any]) -> Settings:
    """What the options say of the server. Raises BadInput."""
    from ganger.serving.server import Settings

    return Settings(
        host=given["host"],
        port=given["port"],
        grpc_port=given["grpc_port"],
        limit=given["limit"],
        slo=NEVER if given["slo"] is None else _micros(given["slo"], "--slo"),
        longest=_micros(given["longest"], "--longest"),
        body=_bytes(given["body"], "--body"),
        memory=_bytes(given["held"], "--held"),
        kept=0 if given["kept"] == "0" else _bytes(given["kept"], "--kept"),
        connections=given["connections"],
        access_log=given["access_log"],
        keys=_path(given["keys"]),
        certificate=_path(given["tls_cert"]),
        certificate_key=_path(given["tls_key"]),
    )


def _outlive(context: click.Context, host: str, port: int) -> int:
    """Run the same command as children of this process, over a socket of its own: how it ended."""
    from ganger.serving.listening import listen
    from ganger.serving.outliving import Parent, command_of

    words = ["serve"]
    for parameter in context.command.params:
        value, name = context.params.get(parameter.name or ""), parameter.opts[0]
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is True and name != "--outlive":
            words.append(name)
        elif value not in (None, True, False, ""):
            words += [name, str(value)]

    def tell(first: bool, line: str) -> None:
        click.echo(line, err=not first)

    with listen(host, port) as sock:
        sock.set_inheritable(True)
        return Parent(command_of(words), sock, tell).run()


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _bytes(text: str, where: str) -> int:
    """Bytes. Raises BadInput where there are none."""
    amount = parse_memory(text, where=where) << 20
    if not amount:
        raise BadInput(f"{text!r} is less than 1 MiB", where=where, mend="give more")
    return amount


def _micros(text: str, where: str) -> int:
    """Microseconds. Raises BadInput for none, or more than a year."""
    time = parse_duration(text, where=where)
    if not 0 < time <= 366 * 86_400 * SECOND:
        raise BadInput(f"{text!r} is not a valid time", where=where, mend="write like 50ms")
    return time


@click.command()
@click.argument("file", metavar="REQUESTS")
@click.option(
    "--url",
    default="http://127.0.0.1:8000",
    show_default=True,
    help="The server, which speaks the Open Inference Protocol v2.",
)
@click.option("--slo", type=SPAN, metavar="TIME", help="The time that requests have which state "
              "none.")  # fmt: skip
@click.option(
    "--faster",
    type=FloatRange(1e-3, 1e6),
    default=1.0,
    show_default=True,
    help="Requests come so many times as fast.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 10_000),
    default=256,
    show_default=True,
    help="Most connections; a request that finds all busy waits, and that counts.",
)
@click.option(
    "--length",
    type=click.IntRange(1, 1 << 20),
    default=None,
    help="Of lengths of tensors that are open, besides the number of items.",
)
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of a table.")
@click.option(
    "--yes-this-is-mine", "mine", is_flag=True, help="Load a server that is on another machine."
)
def load(
    file: str,
    url: str,
    slo: str | None,
    faster: float,
    connections: int,
    length: int | None,
    as_json: bool,
    mine: bool,
) -> None:
    """Send the REQUESTS of a file to a server at the times that they state, whether answers have
    come or not, and print what a simulation prints. Latency counts from the stated time. Tensors
    are random. Needs the extra `serving`.

    \b
    Examples:
      ganger requests synth poisson --rate 200 --duration 30s \\
        --models small,large --slo 100ms -o r.csv
      ganger load r.csv
      ganger load r.csv --url http://127.0.0.1:8001 --faster 4 --json
    """
    import importlib.util

    if not all(map(importlib.util.find_spec, ("httptools", "uvloop"))):
        raise BadInput("loading a server needs httptools", mend="pip install 'ganger[serving]'")
    from ganger.cli.lab.serving.tables import show_load
    from ganger.cli.text import print_json
    from ganger.lab.serving.loading.driving import load as drive
    from ganger.lab.serving.loading.driving import target_of
    from ganger.workloads.requests.formats import load_requests

    target = target_of(url, mine=mine)
    loaded = drive(
        load_requests(file),
        target,
        slo=NEVER if slo is None else _micros(slo, "--slo"),
        faster=faster,
        connections=connections,
        length=length or 0,
    )
    if as_json:
        print_json(loaded.to_json())
    else:
        show_load(loaded, target.name)
