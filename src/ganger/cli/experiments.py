"""An experiment from the words and options of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.workloads.experiment.reading import Experiment

WORDS: Final = "tune"
"""Where an experiment is from that no file states."""


def experiment_of(words: tuple[str, ...], options: dict[str, Any]) -> Experiment:
    """What the file and the options say. Raises BadInput."""
    import msgspec

    from ganger.workloads.documents import bound_in_words
    from ganger.workloads.experiment.document import FORMAT, Document
    from ganger.workloads.experiment.reading import checked, is_experiment, read_experiment
    from ganger.workloads.experiment.words import amounts_of, space_of

    document, where = Document(FORMAT, metric=options["metric"]), WORDS
    if words and Path(words[0]).suffix in (".toml", ".yaml", ".yml", ".json"):
        if not Path(words[0]).exists():
            raise BadInput("no such file", where=words[0], mend="a command comes after --")
        if not Path(words[0]).is_file() or not is_experiment(Path(words[0])):
            raise BadInput(
                f"no file that says format = {FORMAT!r}",
                where=words[0],
                mend="see docs/tuning.md; a command comes after --",
            )
        document, where, words = read_experiment(Path(words[0])).document, words[0], words[1:]
    said = {
        name: options[name]
        for name in (
            "metric",
            "recipe",
            "searcher",
            "trials",
            "epochs",
            "deadline",
            "target",
            "seed",
            "name",
            "tenant",
        )
        if options[name] not in (None, "")
    }
    if options["most"] is not None:
        said["mode"] = "max" if options["most"] else "min"
    if options["also"]:
        said["metrics"] = dict(each.partition("=")[::2] for each in options["also"])
    if options["constraint"]:
        said["constraints"] = list(options["constraint"])
    if options["parallel"] is not None:
        said["parallelism"] = options["parallel"]
    each = {name: options.get(name) for name in ("gpus", "share", "cpus", "memory")}
    if any(value is not None for value in each.values()):
        stated = {name: value for name, value in each.items() if value is not None}
        said["resources"] = msgspec.structs.replace(document.resources, **stated)
    if options["space"]:
        said["space"] = space_of(options["space"])
    if options["budget"]:
        amounts = amounts_of(options["budget"], ("epochs", "gpu_hours", "money"), "--budget")
        said["budget"] = msgspec.structs.replace(document.budget, **amounts)
    if words:
        said["command"] = list(words)
    document = msgspec.structs.replace(document, **said)
    if not document.metric:
        raise BadInput("what are trials judged by?", where="--metric", mend="name it, like loss")
    try:  # what options say has the bounds of the file's fields
        document = msgspec.convert(msgspec.to_builtins(document), Document)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        raise BadInput(bound_in_words(what), where=f"{where}: {at.strip('`')}") from None
    return checked(document, where)
