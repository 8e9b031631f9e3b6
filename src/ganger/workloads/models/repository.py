"""A model repository as Triton has it: a folder for each model, with `config.pbtxt` and a folder
for each version. What is not served is refused with file and line.

Read are models of onnxruntime: name, maximum batch, dynamic batching, versions, the file's name.
(Triton Inference Server, `docs/user_guide/model_repository.md` and `model_configuration.md`, 2025.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from ganger.core.errors import BadInput
from ganger.core.units import parse_duration
from ganger.workloads.models.text_format import BYTES_MAX, Message, Value, Word, parse_text

T = TypeVar("T", str, int)
CONFIG: Final = "config.pbtxt"
MODELS_MAX: Final = 1000
BATCH_MAX: Final = 1 << 16
_PLATFORMS: Final = ("onnxruntime_onnx", "")
_BACKENDS: Final = ("onnxruntime", "")
_PASSED_OVER: Final = {
    "optimization": "settings of onnxruntime are Ganger's",
    "parameters": "settings of onnxruntime are Ganger's",
    "model_warmup": "every model is run once before it is served",
    "response_cache": "answers are kept by --kept",
    "instance_group": "batches at once are the server's: --lanes",
    "metric_tags": "metrics have the names of models",
    "runtime": "onnxruntime is the only one",
}
_REFUSED: Final = {
    "sequence_batching": "sequences of requests are not served",
    "ensemble_scheduling": "ensembles are not served",
    "model_transaction_policy": "decoupled answers are not served",
    "model_repository_agents": "agents of repositories are not run",
    "model_operations": "libraries of operators are not loaded",
    "batch_input": "inputs that count batches are not made",
    "batch_output": "outputs are not cut by what batches count",
}
_READ: Final = (
    "name",
    "platform",
    "backend",
    "max_batch_size",
    "input",
    "output",
    "version_policy",
    "dynamic_batching",
    "default_model_filename",
)
_TENSOR: Final = ("name", "data_type", "dims", "format", "label_filename")
_BATCHING: Final = ("preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering")


@dataclass(frozen=True)
class Stored:
    """A model of a repository. `largest`: items of the largest batch, 0 where none is stated;
    `delay` (microseconds) and `preferred` are those of its dynamic batching, None without it."""

    name: str
    path: Path
    largest: int
    delay: int | None
    preferred: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...]


def read_repository(folder: Path) -> list[Stored]:
    """The models of a repository, by name. Raises BadInput."""
    folders = sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
    if not folders:
        mend = "a repository has a folder for each model"
        raise BadInput("there is no model", where=str(folder), mend=mend)
    if len(folders) > MODELS_MAX:
        raise BadInput(f"more than {MODELS_MAX:,} models", where=str(folder))
    return [_model(each) for each in folders]


def batching(models: list[Stored]) -> tuple[str, list[str]]:
    """The recipe that batches as the repository says, and what it leaves out."""
    stated = [each for each in models if each.delay is not None]
    if not stated:
        return "serve.triton", []
    delay = min(each.delay or 0 for each in stated)
    preferred = sorted(set.intersection(*(set(each.preferred) for each in stated)))
    notes = []
    if any((each.delay, set(each.preferred)) != (delay, set(preferred)) for each in stated):
        notes.append("models differ in dynamic batching: the shortest delay is every model's")
    if len(stated) < len(models):
        notes.append("models without dynamic batching are batched like the others")
    sizes = f", preferred={';'.join(map(str, preferred))}" if preferred else ""
    return f"serve.triton(delay={delay}us{sizes})", notes


def _model(folder: Path) -> Stored:
    config = folder / CONFIG
    try:
        text = _config(config)
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput(f"it cannot be read: {fault}", where=str(config)) from None
    where = str(config)
    known = parse_text(text, where)
    notes = _refuse(known, where)
    name = _single(known, "name", str, where) or folder.name
    if name != folder.name:
        mend = f"write {folder.name!r}, or leave it out"
        raise BadInput(
            f"{name!r} is not the name of its folder", where=_at(known, "name", where), mend=mend
        )
    for what, allowed in (("platform", _PLATFORMS), ("backend", _BACKENDS)):
        stated = _single(known, what, str, where) or ""
        if stated not in allowed:
            raise BadInput(
                f"{what} {stated!r} is not served",
                where=_at(known, what, where),
                mend=f"serve models with {what} {allowed[0]!r}",
            )
    largest = _single(known, "max_batch_size", int, where)
    if largest is not None and not 0 <= largest <= BATCH_MAX:
        raise BadInput(f"{largest} is not a valid batch", where=_at(known, "max_batch_size", where))
    delay, preferred = _batching(known, where)
    return Stored(
        name,
        _file(folder, known, where),
        # In Triton 0 says that there is no axis for batches: then requests run one by one.
        1 if largest == 0 else largest or 0,
        delay,
        preferred,
        _tensors(known, "input", where),
        _tensors(known, "output", where),
        tuple(f"{name}: {note}" for note in notes),
    )


def _config(path: Path) -> str:
    """The text of a configuration, "" where there is none, and no more than is read of one: it may
    be a pipe, or without an end. Raises OSError, UnicodeDecodeError."""
    if not path.exists():
        return ""
    if not path.is_file():
        raise OSError("it is not a file")
    with path.open("rb") as file:
        return file.read(4 * BYTES_MAX + 4).decode()


def _refuse(known: Message, where: str) -> list[str]:
    """What is passed over. Raises BadInput for what is not served, and for what nobody knows."""
    notes = []
    for name, value, line in known.fields:
        if name in _REFUSED and not _is_empty(name, value):
            raise BadInput(_REFUSED[name], where=f"{where}: line {line}: {name}")
        if name in _PASSED_OVER:
            notes.append(f"{name} is passed over: {_PASSED_OVER[name]}")
        elif name not in _READ and name not in _REFUSED:
            raise BadInput(f"{name!r} is not known", where=f"{where}: line {line}")
    return list(dict.fromkeys(notes))


def _is_empty(name: str, value: Value) -> bool:
    """Whether a field that is not served asks for nothing."""
    if name != "model_transaction_policy" or not isinstance(value, Message):
        return False
    return all(each == Word("false") for each, _ in value.all("decoupled"))


def _batching(known: Message, where: str) -> tuple[int | None, tuple[int, ...]]:
    for value, line in known.all("dynamic_batching"):
        at = f"{where}: line {line}: dynamic_batching"
        if not isinstance(value, Message):
            raise BadInput("it is not a message", where=at, mend="write dynamic_batching { }")
        for name, _, at_line in value.fields:
            if name not in _BATCHING:
                what = f"{name!r} is not served"
                raise BadInput(what, where=f"{where}: line {at_line}: dynamic_batching")
        delay = _single(value, "max_queue_delay_microseconds", int, where) or 0
        sizes = [each for each, _ in value.all("preferred_batch_size")]
        if not 0 <= delay <= parse_duration("1h"):
            raise BadInput(f"{delay} us is not a valid delay", where=at)
        preferred = [size for size in sizes if isinstance(size, int) and 1 <= size <= BATCH_MAX]
        if len(preferred) < len(sizes):
            raise BadInput("a preferred batch is not a valid number", where=at)
        return delay, tuple(preferred)
    return None, ()


def _tensors(known: Message, what: str, where: str) -> tuple[str, ...]:
    names = []
    for value, line in known.all(what):
        at = f"{where}: line {line}: {what}"
        if not isinstance(value, Message):
            raise BadInput("it is not a message", where=at, mend=f"write {what} [ {{ }} ]")
        for field, _, at_line in value.fields:
            if field not in _TENSOR:
                raise BadInput(f"{field!r} is not served", where=f"{where}: line {at_line}: {what}")
        name = _single(value, "name", str, where)
        if not name:
            raise BadInput("it has no name", where=at)
        names.append(name)
    return tuple(names)


def _file(folder: Path, known: Message, where: str) -> Path:
    """The file of the version that is served."""
    numbers = sorted(
        int(each.name)
        for each in folder.iterdir()
        if each.is_dir() and each.name.isascii() and each.name.isdigit() and each.name[0] != "0"
    )
    wanted = numbers[-1:]
    for policy, line in known.all("version_policy"):
        at = f"{where}: line {line}: version_policy"
        if not isinstance(policy, Message) or len(policy.fields) != 1:
            raise BadInput("it is not a version policy", where=at)
        ((how, choice, _),) = policy.fields
        if how == "specific" and isinstance(choice, Message):
            wanted = [each for each, _ in choice.all("versions") if isinstance(each, int)]
        elif how == "all":
            wanted = numbers
        elif how == "latest" and isinstance(choice, Message):
            count = _single(choice, "num_versions", int, where) or 1
            wanted = numbers[-count:] if count > 0 else []
        if len(wanted) != 1:
            mend = "name one: version_policy { specific { versions: [1] } }"
            raise BadInput(f"{len(wanted)} versions", where=at, mend=mend)
    if not wanted or wanted[0] not in numbers:
        mend = "put the model into a folder called 1"
        raise BadInput("it has no such version", where=str(folder), mend=mend)
    name = _single(known, "default_model_filename", str, where) or "model.onnx"
    path = folder / str(wanted[0]) / name
    if Path(name).name != name or not path.resolve().is_relative_to(folder.parent.resolve()):
        raise BadInput("it is outside the repository", where=str(path))
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path), mend="serve models in ONNX")
    return path


def _at(known: Message, name: str, where: str) -> str:
    return next((f"{where}: line {line}: {name}" for _, line in known.all(name)), where)


def _single(known: Message, name: str, kind: type[T], where: str) -> T | None:
    """The value of a field that stands once at most, None where it does not. Raises BadInput."""
    values = [*known.all(name)]
    if not values:
        return None
    value, line = values[-1]
    if len(values) > 1 or not isinstance(value, kind):
        raise BadInput(f"{name} is not a valid value", where=f"{where}: line {line}")
    return value
