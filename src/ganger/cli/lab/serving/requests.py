"""`ganger requests`: look at requests to models, convert them, make them up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ganger.cli import completion
from ganger.cli.lab.trace import bars, console, plain_table
from ganger.cli.lazy import Suggesting
from ganger.cli.options import key_values, yardsticks_option
from ganger.cli.words import FloatRange
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from ganger.workloads.requests.columns import Requests

F = TypeVar("F", bound=Callable[..., Any])
_WIDTH = 60

_FILE = (
    click.option("--format", "format_", default="auto", metavar="NAME", show_default=True,
                 help="Format of the file; see `ganger requests formats`."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                 help="An option of the format, such as seed=3. Repeatable."),
    click.option("--skip-bad", is_flag=True, help="Leave malformed rows out instead of stopping."),
    click.option("--sort", is_flag=True,
                 help="Accept rows in any order. Needs memory for all of them."),
    click.option("--from", "start", metavar="TIME",
                 help="Leave out requests before TIME, which becomes 0: 2d, 12h, 3600."),
    click.option("--to", "stop", metavar="TIME", help="Leave out requests at TIME or later."),
)  # fmt: skip
_SYNTH = (
    click.option("--rate", type=float, metavar="R", help="Requests per second; the mean of a "
                 "diurnal load, the first rate of a step or a spike."),
    click.option("--duration", metavar="TIME", help="How long requests come: 1h, 2d."),
    click.option("--requests", "most", type=int, metavar="N", help="End after N requests."),
    click.option("--cv", type=float, metavar="X", help="Coefficient of variation of the gaps, "
                 "where the load is level: 1 is Poisson, the default; more is burstier."),
    click.option("--rates", metavar="R,R,...", help="mmpp: the rate in each state."),
    click.option("--stays", metavar="TIME,TIME,...", help="mmpp: the mean stay in each state."),
    click.option("--swing", type=float, metavar="X", help="diurnal: how far the load swings about "
                 "its mean, 0 to 1. Default: 0.8."),
    click.option("--peak", metavar="TIME", help="diurnal: when the load is highest. Default: 14h."),
    click.option("--period", metavar="TIME", help="diurnal: length of a cycle. Default: 24h."),
    click.option("--to", type=float, metavar="R", help="step, spike: the other rate."),
    click.option("--at", metavar="TIME", help="step, spike: when it begins."),
    click.option("--width", metavar="TIME", help="spike: how long it lasts."),
    click.option("--models", default="1", show_default=True, metavar="N|NAMES",
                 help="How many models are asked for, or their names, comma separated."),
    click.option("--zipf", type=float, default=0.0, show_default=True, metavar="S",
                 help="The k-th model is asked for in proportion to 1/k^S; 0: all alike."),
    click.option("--tenants", type=int, default=0, metavar="N", help="How many tenants ask."),
    click.option("--slo", metavar="TIME", help="Deadline of each request after its arrival."),
    click.option("--items", type=int, default=1, metavar="N", help="Inputs a request. Default: 1."),
    click.option("--prompt-tokens", type=float, default=0.0, metavar="N",
                 help="Mean length of prompts, lognormal."),
    click.option("--output-tokens", type=float, default=0.0, metavar="N",
                 help="Mean length of outputs, lognormal."),
    click.option("--tokens-cv", type=float, default=1.0, show_default=True, metavar="X",
                 help="Coefficient of variation of both lengths."),
    click.option("--inputs", type=int, default=0, metavar="N",
                 help="How many different inputs there are, for caches and accuracy."),
    click.option("--inputs-zipf", type=float, default=0.0, metavar="S",
                 help="How skewed their popularity is, as --zipf."),
    click.option("--seed", type=int, default=0, show_default=True,
                 help="Random seed. The same seed gives the same requests."),
)  # fmt: skip


def _with(options: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group("requests", cls=Suggesting)
def requests() -> None:
    """Inspect, convert and generate requests to models."""


@requests.command()
@click.argument("kind")
@_with(_SYNTH)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="The file to write: .csv or .csv.gz, or - for standard output.",
)
def synth(
    kind: str, output: str, duration: str | None, most: int | None, seed: int, **chosen: Any
) -> None:
    """Generate requests. KIND is poisson, gamma, mmpp, diurnal, step or spike.

    A longer run begins with the shorter one of the same seed.

    \b
    Examples:
      ganger requests synth poisson --rate 100 --duration 1h -o r.csv
      ganger requests synth gamma --rate 20 --cv 4 --duration 10m --slo 100ms \\
        --models 50 --zipf 1 -o bursty.csv.gz
      ganger requests synth poisson --rate 300 --duration 5m \\
        --models resnet50,bert --zipf 1 --slo 100ms -o two.csv
      ganger requests synth mmpp --rates 20,400 --stays 5m,20s --duration 1d \\
        -o m.csv
      ganger requests synth spike --rate 10 --to 200 --at 10m --width 30s \\
        --duration 20m --prompt-tokens 500 --output-tokens 120 -o spike.csv
    """
    from ganger.workloads.requests import own
    from ganger.workloads.requests.curves import curve_of
    from ganger.workloads.requests.synthetic import MIXED, Mix, generated

    cv = chosen.pop("cv")
    names = _names(chosen["models"])
    chosen["models"] = len(names) if names else int(chosen["models"])
    mix = Mix(
        names=names,
        slo=_time(chosen.pop("slo"), "--slo"),
        **{name: chosen.pop(name) for name in MIXED},
    )
    curve = curve_of(kind, {**chosen, "cv": cv})
    if kind == "gamma" and cv is None:
        raise BadInput("how bursty?", where="--cv", mend="add --cv, such as --cv 4")
    length = _time(duration, "--duration")
    made = generated(
        curve,
        seed=seed,
        duration=None if length is None else length / SECOND,
        most=most,
        cv=1.0 if cv is None else cv,
        mix=mix,
        name=kind,
        source=f"synthetic: {kind}, seed {seed}",
    )
    _written(own.write(made, Path(output)), output)


def _names(text: str) -> tuple[str, ...]:
    """The models' names; none where only their number is given. Raises BadInput."""
    if text.lstrip("-").isdecimal():
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise BadInput(
            f"{text!r} has an empty name", where="--models", mend="write like 20 or resnet50,bert"
        )
    return names


def _time(word: str | None, where: str) -> int | None:
    return None if word is None else parse_duration(word, where=where)


@requests.command()
@click.argument("file", metavar="FILE")
@_with(_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables.")
def stats(file: str, as_json: bool, **chosen: Any) -> None:
    """Summarise requests: load over time, burstiness, models, sizes.

    \b
    Examples:
      ganger requests stats AzureLLMInferenceTrace_code.csv
      ganger requests stats r.csv.gz --json
      ganger requests stats invocations_per_minute.csv --option seed=3
    """
    from ganger.workloads.requests.statistics import describe

    loaded = _load(file, chosen)
    facts = describe(loaded)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    _print_facts(facts)
    _print_remarks(loaded)


@requests.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, allow_dash=True))
@_with(_FILE)
def convert(source: str, target: str, **chosen: Any) -> None:
    """Read requests in any known format, and write our own CSV (.csv or .csv.gz).
    OUT `-` is standard output.

    \b
    Examples:
      ganger requests convert conversation_trace.jsonl kimi.csv.gz
      ganger requests convert twitter_rps.csv.gz day.csv --to 1d
      ganger requests convert mine.csv sorted.csv --sort
    """
    from ganger.workloads.requests import own

    if target != "-" and Path(target).exists() and Path(target).samefile(source):
        raise BadInput("it is the file that is read", where=target, mend="name another file")
    loaded = _load(source, chosen)
    count = own.write(loaded, Path(target))
    _print_remarks(loaded)
    _written(count, target)


@requests.command()
def formats() -> None:
    """List the formats of requests that can be read.

    \b
    Example:
      ganger requests formats
    """
    from ganger.workloads.requests.formats import FORMATS

    table = plain_table("format", "what it is", "options")
    for name, format_ in FORMATS.items():
        table.add_row(name, format_.description, ", ".join(format_.options))
    console().print(table)


def _load(file: str, chosen: dict[str, Any]) -> Requests:
    from ganger.workloads.requests.formats import load_requests

    found = load_requests(
        file,
        chosen["format_"],
        skip_bad=chosen["skip_bad"],
        sort=chosen["sort"],
        **key_values(chosen["options"]),
    )
    begin, end = _time(chosen["start"], "--from"), _time(chosen["stop"], "--to")
    if begin is None and end is None:
        return found
    return found.between(begin or 0, NEVER if end is None else end)


def _written(count: int, target: str) -> None:
    where = "standard output" if target == "-" else target
    click.echo(f"{count:,} requests written to {where}", err=True)


def _print_facts(facts: dict[str, Any]) -> None:
    from rich.markup import escape

    screen = console()
    screen.print(f"[bold]{escape(facts['name'])}[/bold]  {escape(facts['source'])}")
    table = plain_table("", "", right=(1,))
    for label, value in _summary(facts):
        table.add_row(label, value)
    screen.print(table)
    sizes = plain_table("size", "mean", "median", "90 %", "99 %", "largest", right=(1, 2, 3, 4, 5))
    for name in ("items", "prompt_tokens", "output_tokens"):
        if facts[name]:
            values = (facts[name][key] for key in ("mean", "p50", "p90", "p99", "max"))
            sizes.add_row(name.replace("_", " "), *(f"{value:,.1f}" for value in values))
    if sizes.row_count:
        screen.print(sizes)
    if facts["model_count"] > 1:
        models = plain_table("model", "requests", "", right=(1,))
        for row in facts["models"][:10]:
            models.add_row(
                escape(_short(row["name"])), f"{row['requests']:,}", f"{row['fraction']:6.1%}"
            )
        screen.print(models)
    counts = facts["requests_by_window"]
    shown = _fewer(counts, _WIDTH)
    each = format_duration(facts["window_seconds"] * -(-len(counts) // _WIDTH) * SECOND)
    screen.print(f"[bold]load over time[/bold] (each bar {each})")
    screen.print("  " + bars(shown))


def _summary(facts: dict[str, Any]) -> list[tuple[str, str]]:
    rate, cv = facts["requests_per_second"], facts["gap_cv"]
    window = format_duration(facts["window_seconds"] * SECOND)
    rows = [
        ("requests", f"{facts['requests']:,}"),
        ("span", format_duration(facts["span_seconds"] * SECOND)),
        ("load", "all at once" if rate is None else f"{rate:,.2f} requests/s"),
        (f"peak, over {window}", f"{facts['peak_requests_per_second']:,.2f} requests/s"),
        ("CV of the gaps", "" if cv is None else f"{cv:.2f}"),
        ("models", f"{facts['model_count']:,}"),
    ]
    if facts["tenant_count"]:
        rows.append(("tenants", f"{facts['tenant_count']:,}"))
    if facts["with_deadline"]:
        median = format_duration(facts["slo_seconds"]["p50"] * SECOND)
        rows.append(("with a deadline", f"{facts['with_deadline']:,}"))
        rows.append(("median time to it", median))
    return rows


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."


def _fewer(counts: list[int], most: int) -> list[int]:
    size = -(-len(counts) // most) or 1
    return [sum(counts[begin : begin + size]) for begin in range(0, len(counts), size)]


def _print_remarks(loaded: Requests) -> None:
    for line in loaded.remarks.lines:
        click.echo(f"note: {line}", err=True)


_SIMULATE = (
    click.option("--models", required=True, metavar="FILE",
                 help="What the models take (docs/models-file.md)."),
    click.option("--fleet", "fleets", required=True, metavar="FLEETS",
                 help="Devices, like T4:4 or T4:4+L4:2. Several fleets, comma separated, are "
                 "compared."),
    click.option("--recipe", "-r", default="serve.triton", show_default=True,
                 shell_complete=completion.routers,
                 help="Recipes, comma separated; parameters in parentheses. See `ganger recipes "
                 "--plane requests`."),
    click.option("--present", type=click.Path(path_type=Path), metavar="FILE",
                 help="How the requests are served now, to compare with: a config.pbtxt of "
                 "Triton, or the YAML of Ray Serve or KServe."),
    click.option("--slo", metavar="TIME,TIME,...",
                 help="The deadline after arrival of requests that state none. Several are "
                 "compared."),
    click.option("--slo-ttft", metavar="TIME",
                 help="Answers of token models in time begin by then after arrival."),
    click.option("--slo-tpot", metavar="TIME",
                 help="The same: the mean time for each token after the first."),
    click.option("--by-class", is_flag=True,
                 help="Also a row for each model, tenant and SLO of the requests."),
    click.option("--faster", default="1", show_default=True, metavar="X,X,...",
                 help="Requests come so many times as fast: a sweep over load."),
    click.option("--seed", "seeds", default="0", show_default=True,
                 help="Seeds of the spread of latencies, like 0 or 0,1,7 or 0-4."),
    click.option("--latency-noise", "noise", type=FloatRange(0, 10), default=1.0,
                 show_default=True,
                 help="How much of the measured spread of latencies there is; 0: none."),
    click.option("--outages", default="", metavar="FILE|mtbf=..,mttr=..",
                 help="Failures of devices: a CSV file (device,down,up), or random ones, like "
                 "mtbf=2h,mttr=1m. What runs there is lost, and models must be loaded again."),
    click.option("--stragglers", default="", metavar="FILE|every=..,for=..,times=..",
                 help="Devices that are slow for a while: a CSV file (device,from,to,times), or "
                 "random ones, like every=10m,for=5s,times=4."),
    click.option("--windows", metavar="TIME",
                 help="Run a long log by windows of this length; those that are like others that "
                 "were run are read from a table (docs/serving.md)."),
    click.option("--windows-table", "table", default="", metavar="FOLDER",
                 type=click.Path(file_okay=False),
                 help="Keep that table here, for the next run of this log."),
    click.option("--windows-like", "like", is_flag=True,
                 help="The table may be of another log that was like this one."),
    click.option("--per-request", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                 help="Write what became of each request here, as CSV. Only for a single run."),
    yardsticks_option,
    click.option("--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                 help="Write an HTML report here."),
    click.option("--workers", type=click.IntRange(1), help="Processes (default: all cores)."),
    click.option("--quiet", is_flag=True, help="No progress bar."),
    click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables."),
)  # fmt: skip


@requests.command()
@click.argument("file", metavar="FILE")
@_with(_SIMULATE)
@_with(_FILE)
def simulate(file: str, **chosen: Any) -> None:
    """Serve the requests of FILE under one or more recipes, simulated, and compare them.

    Several recipes, fleets, loads and seeds run in parallel processes. A request is in time if it
    is answered by its deadline; attainment is the share of all requests that were.

    \b
    Examples:
      ganger requests simulate r.csv --models m.toml --fleet T4:4 --slo 100ms \\
        --recipe serve.triton,clipper,clockwork
      ganger requests simulate r.csv --models m.toml --fleet T4:2,T4:4,T4:8 \\
        --slo 100ms -r clockwork --json
      ganger requests simulate r.csv --models m.toml --fleet T4:4 \\
        -r 'serve.fixed-batch(size=16,timeout=5ms)' --faster 0.5,1,2
      ganger requests simulate day.csv.gz --models m.toml --fleet T4:4 \\
        --slo 100ms -r serve.triton,clipper --windows 1m
      ganger requests simulate r.csv --models m.toml --fleet T4:4 \\
        --present config.pbtxt -r clipper,clockwork
    """
    from ganger.cli.lab.serving.comparison import compare

    compare(file, lambda: _load(file, chosen), chosen)
