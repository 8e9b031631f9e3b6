"""Rooms are small and keep to themselves: no file uses a private name of another."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter

from tidy.test_tree import FILES, ids, parsed

FILES_A_FOLDER = 15
NOT_OURS = {"_replace", "_asdict", "_make", "_fields", "_exit", "_Highs", "_thread_local"}
"""Named tuples' own methods, `os._exit`, the solver's class, which has no public name, and what
`study.stop` of Optuna asks whether it may be called, which has none either."""


def is_private(name: str) -> bool:
    """Whether a name is private to its file: one underscore before it."""
    return name.startswith("_") and not name.startswith("__") and name not in NOT_OURS


def made(tree: ast.Module) -> set[str]:
    """The names that a file itself gives to functions, classes, attributes and variables."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
    return names


def foreign(tree: ast.Module) -> Iterator[str]:
    """Private names of other files, as they are used: imported, or taken of an object. What a class
    inherits it may use of itself."""
    own = made(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{name.name}" for name in names if is_private(name.name))
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=attr) if is_private(attr) and attr not in own:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_folder_is_a_hall() -> None:
    folders = Counter(path.parent for path in FILES if path.name != "__init__.py")
    halls = {ids(folder): files for folder, files in folders.items() if files > FILES_A_FOLDER}
    assert halls == {}


def test_no_file_uses_a_private_name_of_another() -> None:
    assert [f"{ids(path)}: {name}" for path in FILES for name in foreign(parsed(path))] == []


SAMPLE = """
from ganger.core.kernel import _secret
class Own:
    def __init__(self, other):
        self._kept = other._hidden
        other._kept = row._replace(x=1)._deep
    def go(self):
        return super()._go() + self._inherited
"""


def test_private_names_are_found() -> None:
    assert list(foreign(ast.parse(SAMPLE))) == [
        "ganger.core.kernel._secret",
        "line 5: other._hidden",
        "line 6: row._replace(x=1)._deep",
    ]


def at_once(body: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that a file makes when it is itself imported."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                yield from at_once(otherwise)
            case _:
                yield from at_once(ast.iter_child_nodes(node))


def needs(name: str, tree: ast.Module, known: Iterable[str]) -> set[str]:
    """The modules of ours that a module imports when it is imported, and the packages they are in
    but its own."""
    asked = set[str]()
    for node in at_once(tree.body):
        before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for module in (before + each.name for each in node.names):
            parts = module.split(".")
            asked |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return {each for each in asked & set(known) if not f"{name}.".startswith(f"{each}.")}


def test_no_import_depends_on_what_was_imported_before() -> None:
    """No module needs itself to be imported, by whatever way. So a module that can be imported in
    some process can be in every one, which is why tests may fork one that has imported all."""
    names = {ids(path).removesuffix(".py").replace("/", "."): parsed(path) for path in FILES}
    names = {name.removesuffix(".__init__"): tree for name, tree in names.items()}
    graph = {name: needs(name, tree, names) for name, tree in names.items()}
    assert sum(map(len, graph.values())) > len(graph)
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


CIRCLE = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from ganger.core import plan
class Own:
    from ganger.core.books.fit import fits
try:
    import ganger.solve
except ImportError:
    from ganger.core import spec
def later():
    from ganger.core import events
"""


def test_what_a_module_needs_is_seen() -> None:
    known = {f"ganger.{each}" for each in ("solve", "core.plan", "core.spec", "core.events")}
    known |= {"ganger", "ganger.core", "ganger.core.books", "ganger.core.books.fit"}
    assert needs("ganger.core.kernel", ast.parse(CIRCLE), known) == {
        "ganger.core.books",
        "ganger.core.books.fit",
        "ganger.core.spec",
        "ganger.solve",
    }


def test_what_is_slow_to_import_is_imported_where_it_is_used() -> None:
    """Half a second, and up to a hundred megabytes, that each start of a daemon and each
    simulation would pay. Recipes that solve programmes import scipy; queues do not."""
    code = "import sys, ganger.service.serve, ganger.lab.simulation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"scipy", "pandas", "matplotlib", "sklearn", "pyarrow"}
    assert slow & set(done.stdout.split()) == set()
