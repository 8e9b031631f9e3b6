"""`ganger models`: files that say what models take, checked and shown."""

from __future__ import annotations

import json
import math
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.cli.lab.trace import console, plain_table
from ganger.cli.lazy import Suggesting
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from ganger.workloads.models.profiles import Latency, Model, Models, Utilisation

_SEGMENTS: Final = 12
"""No more are printed."""


@click.group("models", cls=Suggesting)
def models() -> None:
    """Check and show files of models: latency, memory, accuracy, load times."""


@models.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of such files.")
@click.option(
    "--requests",
    metavar="FILE",
    help="Check requests as well: all name something, and can be in time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables.")
def check(file: str | None, as_schema: bool, requests: str | None, as_json: bool) -> None:
    """Check a models file (TOML, YAML or JSON; docs/models-file.md), and summarise it. The first
    thing wrong is named with model and field.

    \b
    Examples:
      ganger models check m.toml
      ganger models check m.toml --json
      ganger models check m.toml --requests r.csv
      ganger models check --schema > models.schema.json
    """
    if as_schema and requests is not None:
        raise BadInput("a schema has no requests", where="--requests", mend="leave one option out")
    if as_schema:
        from ganger.workloads.models.document import schema

        click.echo(json.dumps(schema(), indent=2))
        return
    if file is None:
        raise BadInput("which file?", where="FILE", mend="name a models file, or add --schema")
    from ganger.workloads.models.reading import read_models

    found = read_models(file)
    if requests is not None:
        from ganger.workloads.models.matching import matched
        from ganger.workloads.requests.formats import load_requests

        count = sum(map(len, matched(load_requests(requests), found).chunks()))
        click.echo(f"{count:,} requests: all can be answered in time, each alone", err=True)
    if as_json:
        click.echo(json.dumps(_facts(found), indent=2))
        return
    _print(found)


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of a table.")
def shown_list(as_json: bool) -> None:
    """List the models files that come with Ganger. Their names stand wherever a models file does.

    \b
    Examples:
      ganger models list
      ganger models list --json
    """
    from ganger.workloads.models.reading import read_models
    from ganger.workloads.models.shipped import SHIPPED

    files = {name: read_models(name) for name in SHIPPED}
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": name,
                        "about": each.about,
                        "models": list(each.models),
                        "devices": list(each.devices),
                    }
                    for name, each in files.items()
                ],
                indent=2,
            )
        )
        return
    for name, each in files.items():
        click.echo(f"{name}: {len(each.models)} models on {', '.join(each.devices)}")
        click.echo(textwrap.indent(textwrap.fill(each.about, 76), "    "))


@models.command()
@click.argument("file", metavar="NAME")
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables.")
def show(file: str, model: str | None, as_json: bool) -> None:
    """Show a models file, shipped or your own, or all that it knows of one MODEL: latency and
    memory by batch, with the source of each row.

    \b
    Examples:
      ganger models show papers
      ganger models show papers resnet50
      ganger models show papers resnet50 --json
    """
    from ganger.workloads.models.reading import read_models

    found = read_models(file)
    chosen = list(found.models.values())
    if model is not None:
        if model not in found.models:
            near = get_close_matches(model, found.models, 1)
            mend = f"did you mean {near[0]!r}?" if near else f"see: ganger models show {file}"
            raise BadInput(f"there is no model {model!r}", where=file, mend=mend)
        chosen = [found.models[model]]
    if as_json:
        click.echo(
            json.dumps(
                {"about": found.about, "models": [_whole(each) for each in chosen]}, indent=2
            )
        )
    elif model is None:
        click.echo(textwrap.fill(found.about, 80))
        _print(found)
    else:
        _print_one(chosen[0])


def _whole(model: Model) -> dict[str, Any]:
    """All that a file knows of a model's batches, as plain data."""
    return {
        "name": model.name,
        "family": model.family,
        "source": model.source,
        "accuracy": None if math.isnan(model.accuracy) else model.accuracy,
        "bytes": model.bytes,
        "load_seconds": model.load,
        "latency": [
            {
                "device": each.device,
                "share": each.share,
                "batch": each.batch.tolist(),
                "mean_seconds": each.mean.tolist(),
                "p99_seconds": each.p99.tolist(),
                "memory_bytes": None if each.memory_bytes is None else each.memory_bytes.tolist(),
                "source": each.source or model.source,
            }
            for each in model.latency
        ],
        "segments": []
        if model.operators is None
        else [
            {
                "first": model.operators.names[first],
                "last": model.operators.names[after - 1],
                "time": part,
            }
            for first, after, part in model.operators.segments
        ],
        "utilisation": [
            {
                "device": each.device,
                "share": each.share,
                "every_seconds": each.every_seconds,
                **{name: values.tolist() for name, values in each.series.items()},
                "source": each.source,
            }
            for each in model.utilisation
        ],
    }


def _print_one(model: Model) -> None:
    from rich.markup import escape

    screen = console()
    facts = [
        model.name,
        f"family {model.family}" if model.family else "",
        "" if math.isnan(model.accuracy) else f"accuracy {model.accuracy:.1%}",
        _size(model),
        *(f"loads in {_short(time)} from {tier}" for tier, time in model.load.items()),
    ]
    click.echo(", ".join(filter(None, facts)))
    if model.source:
        click.echo(textwrap.fill(model.source, 80))
    for each in model.latency:
        screen.print("\n" + escape(": ".join(filter(None, (_device(each), each.source)))))
        table = plain_table("batch", "mean", "p99", "items/s", "memory", right=(0, 1, 2, 3, 4))
        for at, batch in enumerate(each.batch.tolist()):
            memory = (
                "" if each.memory_bytes is None else f"{each.memory_bytes[at] / 2**20:,.1f} MiB"
            )
            table.add_row(
                f"{batch:,}",
                _short(each.mean[at]),
                _short(each.p99[at]),
                _rate(batch / each.mean[at]),
                memory,
            )
        screen.print(table)

    if model.operators is not None:
        parts = [part for *_, part in model.operators.segments]
        most = ", ".join(f"{part:.1%}" for part in parts[:_SEGMENTS])
        more = ", ..." if len(parts) > _SEGMENTS else ""
        click.echo(
            textwrap.fill(
                f"{len(model.operators.names)} operators; a batch can be cut into"
                f" {len(parts)} segments of {most}{more} of its time",
                80,
            )
        )
    for series in model.utilisation:
        for name, values in series.series.items():
            mean, peak = (
                f"{each:.0%}" if name != "memory_bytes" else f"{each / 2**20:,.1f} MiB"
                for each in (values.mean(), values.max())
            )
            screen.print(
                f"{escape(_device(series))} uses {name.replace('_', ' ')}: mean {mean}, peak {peak}"
            )


def _device(latency: Latency | Utilisation) -> str:
    return latency.device if latency.share == 1 else f"{latency.share:g} {latency.device}"


def _facts(found: Models) -> dict[str, Any]:
    return {
        "source": found.source,
        "devices": found.devices,
        "models": [
            {
                "name": model.name,
                "family": model.family,
                "bytes": model.bytes,
                "accuracy": None if math.isnan(model.accuracy) else model.accuracy,
                "load_seconds": model.load,
                "latency": [
                    {
                        "device": each.device,
                        "share": each.share,
                        "largest_batch": each.largest,
                        "alone_seconds": float(each.mean_seconds(1)),
                        "best_batch": each.best[0],
                        "best_items_per_second": each.best[1],
                    }
                    for each in model.latency
                ],
                "tokens": [
                    {
                        "device": each.device,
                        "devices": each.devices,
                        "prefill_1000_seconds": float(each.prefill_seconds(1000, 1000**2)),
                        "decode_step_seconds": float(each.decode_seconds(1, 1000)),
                    }
                    for each in model.tokens
                ],
            }
            for model in found.models.values()
        ],
        "pipelines": {
            name: [stage for stage, _ in each.stages] for name, each in found.pipelines.items()
        },
    }


def _print(found: Models) -> None:
    from rich.markup import escape

    screen = console()
    table = plain_table(
        "model", "on", "accuracy", "size", "alone", "most", "at batch", right=(2, 3, 4, 5, 6)
    )
    for model in found.models.values():
        known = "" if math.isnan(model.accuracy) else f"{model.accuracy:.1%}"
        first = (escape(model.name), known, _size(model))
        for latency in model.latency:
            batch, rate = latency.best
            most = f"{_rate(rate)}/s"
            alone = _short(latency.mean_seconds(1))
            table.add_row(first[0], escape(_device(latency)), *first[1:], alone, most, str(batch))
            first = ("", "", "")
        for tokens in model.tokens:
            device = tokens.device if tokens.devices == 1 else f"{tokens.devices}x{tokens.device}"
            step = float(tokens.decode_seconds(1, 1000))
            table.add_row(
                first[0],
                escape(device),
                *first[1:],
                _short(tokens.prefill_seconds(1000, 1000**2)),
                f"{1 / step:,.4g} tok/s",
                "1",
            )
            first = ("", "", "")
    screen.print(table)
    if any(model.tokens for model in found.models.values()):
        screen.print("Token models: alone is a prompt of 1,000 tokens, most a request's tokens.")
    for pipeline in found.pipelines.values():
        stages = ", ".join(f"{stage} ({model})" for stage, model in pipeline.stages)
        screen.print(f"pipeline {escape(pipeline.name)}: {escape(stages)}")
    models, devices = len(found.models), len(found.devices)
    said = f"{models:,} model{'s' * (models != 1)} on {devices:,} device{'s' * (devices != 1)}"
    click.echo(f"{said}: no errors", err=True)


def _size(model: Model) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if model.bytes >= unit:
            return f"{model.bytes / unit:,.1f} {name}"
    return f"{model.bytes} B" if model.bytes else ""


def _rate(each_second: float) -> str:
    return f"{each_second:,.0f}" if each_second >= 100 else f"{each_second:.3g}"


def _short(seconds: Any) -> str:
    time = float(seconds)
    if time < 0.000995:
        return f"{time * 1e6:.3g} us"
    if time < 0.0995:
        return f"{time * 1000:.3g} ms"
    return format_duration(time * SECOND)
