"""The page of the Python API, made from docstrings:
`python -m ganger.lab.docs.api_page > docs/api.md`.

A name is on it when `import ganger` has it, or when something that is on it gives it back.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import ganger

GIVEN_BACK: Final = {
    "ganger.lab.result": ("Run", "JobTable", "Timeline", "Segment"),
    "ganger.lab.recommend.race": ("Recommendation", "Entrant", "Gap"),
    "ganger.lab.allocate": ("Allocated", "Parted"),
    "ganger.client.futures": ("JobFuture", "JobFailed"),
    "ganger.client.request": ("JobRequest",),
    "ganger.workloads.trace": ("Trace",),
    "ganger.recipes.registry": ("Recipe",),
    "ganger.core.errors": ("GangerError", "BadInput"),
}
"""By module."""
_WIDE: Final = 88
HEAD: Final = """# The Python API

Everything that `import ganger` offers, then what it gives back. Made from the docstrings by
`python -m ganger.lab.docs.api_page`; a test compares. Names that are not here may change without
notice. Policies of your own have [a page](write-a-policy.md); jobs import
[`ganger.sdk`](live.md#the-sdk).

```python
import ganger

trace = ganger.load_trace("jobs.csv")
for run in ganger.compare(trace, "8x8xV100", ["fifo", "srtf", "tiresias"], seeds=(0, 1)):
    print(run, run.metrics["jct_mean_seconds"])
columns = run.table()  # pandas.DataFrame(columns) takes it
run.report("tiresias.html")
```
An argument that is not valid raises `BadInput`. Its text says what
is wrong, where, and how to fix it.
"""


def page() -> str:
    """The page."""
    parts = [HEAD]
    offered = [name for name in ganger.__all__ if name != "__version__"]
    parts += [_entry(f"ganger.{name}", getattr(ganger, name)) for name in offered]
    parts.append("# What they give back\n")
    for module, names in GIVEN_BACK.items():
        parts += [_entry(name, getattr(import_module(module), name)) for name in names]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        call = _call(name, thing.__init__) if name == "ganger.Client" else ""
        made = f"\n```python\n{call}\n```\n" if call else ""
        return f"## `{name}`{made}\n{_words(thing)}\n{''.join(_members(thing))}"
    return f"## `{name}`\n```python\n{_call(name, thing)}\n```\n{_words(thing)}\n"


def _members(class_: type) -> Iterator[str]:
    fields = list(_fields(class_))
    if fields:
        yield "\n| field | |\n|---|---|\n"
    for name, kind, words in fields:
        kind = kind.replace("|", "\\|")
        yield f"| `{name}` | `{kind}`{'. ' + words if words else ''} |\n"
    for name, member in _own(class_).items():
        if name.startswith("_") or name in (each[0] for each in fields):
            continue
        if isinstance(member, property):
            yield f"\n**`.{name}`** {_words(member)}\n"
        elif inspect.isfunction(member):
            yield f"\n```python\n.{_call(name, member)}\n```\n{_words(member)}\n"


def _own(class_: type) -> dict[str, Any]:
    """What the class has of its own, or of a base that is Ganger's, too."""
    bases = [each for each in class_.__mro__ if each.__module__.startswith("ganger.")]
    return {name: member for each in reversed(bases) for name, member in vars(each).items()}


def _fields(class_: type) -> Iterator[tuple[str, str, str]]:
    """Declared fields: name, type as written, the words below it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(class_))).body
    assert isinstance(tree, ast.ClassDef)
    for at, each in enumerate(tree.body):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        after = tree.body[at + 1] if at + 1 < len(tree.body) else None
        words = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            words = " ".join(str(after.value.value).split())
        if not each.target.id.startswith("_"):
            yield each.target.id, ast.unparse(each.annotation), words


def _call(name: str, function: Any) -> str:
    """The function as it is called, on a line for each parameter where one line is too short."""
    signature = inspect.signature(function)
    kept, keywords = list[str](), False
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            kept.append("*")
        keywords |= each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        default = "" if each.default is each.empty else f" = {each.default!r}"
        stars = "*" * ((each.kind is each.VAR_POSITIONAL) + 2 * (each.kind is each.VAR_KEYWORD))
        kept += [f"{stars}{each.name}: {each.annotation}{default}"] * (each.name != "self")
    result = signature.return_annotation
    arrow = "" if result in ("None", signature.empty) else f" -> {result}"
    line = f"{name}({', '.join(kept)}){arrow}"
    lines = f"{name}(\n" + "".join(f"    {one},\n" for one in kept) + f"){arrow}"
    return line if len(line) <= _WIDE else lines


def _words(thing: Any) -> str:
    """The docstring, its paragraphs on a line each."""
    text = inspect.getdoc(thing) or ""
    if text.startswith(getattr(thing, "__name__", "-") + "("):
        return ""  # dataclass wrote it
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


if __name__ == "__main__":
    print(page(), end="")
