"""`ganger profile`: what a model takes on this machine, and what measured pairs say of sharing."""

from __future__ import annotations

from pathlib import Path

import click

from ganger.core.errors import BadInput
from ganger.core.units import SECOND, parse_duration


@click.command()
@click.argument("models", metavar="[MODEL.onnx...]", nargs=-1)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    show_default=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="The models file to write, .toml; - is standard output. With --fit a profiles file.",
)
@click.option(
    "--fit",
    metavar="PAIRS",
    default="",
    help="Train the predictors of slow-downs on PAIRS of models that share GPUs, a table of your"
    " own measurements, instead of measuring models.",
)
@click.option(
    "--signal",
    metavar="FILE",
    default="",
    help="Say how long the steps of a training job take, from a CSV file of its GPU's watts or use:"
    " the columns seconds and --column.",
)
@click.option(
    "--column",
    metavar="NAME",
    default="watts",
    show_default=True,
    help="The column of the signal.",
)
@click.option(
    "--batches",
    default="1,2,4,8,16,32",
    show_default=True,
    metavar="N,N,...",
    help="Batches to measure.",
)
@click.option(
    "--threads",
    default="1",
    show_default=True,
    metavar="N,N,...",
    help="Cores of each profile; its share is that part of the machine.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N",
    help="Length of an open dimension other than the batch. Repeatable.",
)
@click.option(
    "--warm-up",
    type=int,
    default=5,
    show_default=True,
    metavar="N",
    help="Runs of each batch that do not count.",
)
@click.option(
    "--runs",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="Runs of each batch that count.",
)
@click.option(
    "--most",
    default="5s",
    show_default=True,
    metavar="TIME",
    help="Fewer runs, at least ten, where they take longer than TIME.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="NAME",
    help="What this machine is called in the file.",
)
@click.option("--family", default="", metavar="NAME", help="The family of the models.")
def profile(
    models: tuple[str, ...],
    output: str,
    fit: str,
    signal: str,
    column: str,
    batches: str,
    threads: str,
    sizes: tuple[str, ...],
    warm_up: int,
    runs: int,
    most: str,
    device: str,
    family: str,
) -> None:
    """Measure ONNX models on this machine, and write a models file: latency (mean and p99) and
    memory by batch, and load times from disk and from memory. Needs onnxruntime.

    With --fit: read measured pairs of models that share GPUs, and write the profiles file from
    which the predictors of slow-downs train themselves (--profiles); says how wrong they are on
    pairs of a model that they did not see. A CSV file with the columns model, other, alone, beside
    (steps per second), gpu_type, gpus, and use_NAME for each resource of which the model uses a
    share, 0 to 1.

    \b
    Examples:
      ganger profile resnet18.onnx -o m.toml
      ganger profile small.onnx large.onnx --batches 1,4,16,64 --threads 1,2 \\
        --family digits -o digits.toml
      ganger profile bert.onnx --size sequence=128
      ganger profile --fit pairs.csv -o pairs.toml
      ganger profile --signal nvml.csv
    """
    if signal:
        _steps(models, fit, Path(signal), column)
        return
    if fit:
        _fit(models, fit, output)
        return
    if not models:
        raise BadInput("no models", where="ganger profile", mend="name ONNX files, or --fit PAIRS")
    from ganger.lab.profiling import Effort, measure
    from ganger.workloads.models.writing import write_models

    seconds = parse_duration(most, where="--most") / SECOND
    effort = Effort(tuple(_numbers(batches, "--batches")), warm_up, runs, seconds)
    found = measure(
        [Path(each) for each in models],
        effort,
        threads=_numbers(threads, "--threads"),
        device=device,
        family=family,
        sizes=dict(_size(each) for each in sizes),
        progress=lambda text: click.echo(text, err=True),
    )
    folder = Path(output).resolve().parent if output != "-" else Path.cwd()
    notes = list(found.notes)
    for path, model in zip(map(Path, models), found.document.models, strict=True):
        if path.resolve().is_relative_to(folder):
            model.onnx = path.resolve().relative_to(folder).as_posix()
        elif output != "-":
            notes.append(
                f"{path.name} is not below the folder of {output},"
                " where `ganger serve` looks for it"
            )
    write_models(found.document, Path(output))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    many, where = len(found.document.models), "standard output" if output == "-" else output
    click.echo(f"{many} model{'s' * (many != 1)} written to {where}", err=True)


def _steps(models: tuple[str, ...], fit: str, path: Path, column: str) -> None:
    """Say the period of a signal. Raises BadInput where it has none that can be seen."""
    from ganger.estimate.periods import LEAST_CYCLES, period_of
    from ganger.workloads.files import open_text
    from ganger.workloads.rows import Number, read_delimited

    if models or fit:
        mend = "give --signal alone"
        raise BadInput("--signal beside models or --fit", where="ganger profile", mend=mend)
    kinds = {"seconds": Number(0.0, 1e12), column: Number(-1e12, 1e12)}
    table = read_delimited(open_text(path), kinds)
    period = period_of(table["seconds"], table[column])
    if period is None:
        raise BadInput(
            f"no period in {column}",
            where=str(path),
            mend=f"record at least {LEAST_CYCLES} steps, sampled several times each, at moments"
            " that rise; steps that a driver renews its figures less than twice in cannot be seen",
        )
    click.echo(f"{period.seconds:.4g} s a step (clearness {period.clearness:.2f} of 1)")


def _fit(models: tuple[str, ...], pairs: str, output: str) -> None:
    """Write the profiles file of measured pairs, and say how wrong predictors trained on it are."""
    from ganger.estimate.sharing.held_out import errors
    from ganger.estimate.sharing.slowdown import ENOUGH, measured_pairs
    from ganger.workloads.files import write_bytes
    from ganger.workloads.measured.pairs import as_toml, read_pairs

    if models:
        raise BadInput(
            f"{models[0]} beside --fit", where="ganger profile", mend="measure models without --fit"
        )
    profiles = read_pairs(Path(pairs))
    write_bytes(Path(output), as_toml(profiles).encode())
    many = len(measured_pairs(profiles))
    where = "standard output" if output == "-" else output
    click.echo(f"{len(profiles)} models and {many} measured pairs written to {where}", err=True)
    if many < ENOUGH:
        click.echo(
            f"note: below {ENOUGH} pairs the forest is trained on the synthetic generator"
            " `product` too",
            err=True,
        )
    for name, each in errors(profiles).items():
        click.echo(
            f"{name}: off by {each.mean:.1%} of a step's time on average, {each.ninth:.1%} at the"
            f" ninth decile, over {each.pairs} pairs of a model held out",
            err=True,
        )


def _numbers(text: str, where: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise BadInput(
            f"{text!r} is not a list of numbers", where=where, mend="write like 1,2,4"
        ) from None


def _size(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or not number.isdecimal() or not 1 <= int(number[:9]) <= 1 << 24:
        raise BadInput(f"{text!r} is not a size", where="--size", mend="write NAME=N")
    return name, int(number)
