"""Which mechanisms a recipe is made of: what its function names, followed through its module."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final, get_type_hints

MECHANISMS: Final = "ganger.mechanisms."
RECIPES: Final = "ganger.recipes."


def mechanisms_of(
    make: Callable[..., Any], modules: Collection[str], makes: Callable[[str], bool]
) -> dict[str, list[str]]:
    """By module, as `ordering/queue` in `mechanisms` or as `training/placement/hived` beside the
    recipe in `recipes`: the classes and functions that a recipe's function names, also by way of
    constants and helpers of its module, and of other recipes that it is made of.

    `modules`: those that hold recipes; `makes`: whether a function of that name makes a recipe."""
    parts: dict[str, set[str]] = {}
    for part in _parts(make, modules, makes):
        module = part.__module__.removeprefix(MECHANISMS).removeprefix(RECIPES)
        parts.setdefault(module.replace(".", "/"), set()).add(part.__qualname__)
    return {module: sorted(names) for module, names in sorted(parts.items())}


def _is_mechanism(part: Any, modules: Collection[str]) -> bool:
    """Whether it is defined in a mechanism: a shared one, or one that lives beside its recipe."""
    module = str(getattr(part, "__module__", ""))
    beside = module.startswith((f"{RECIPES}training.", f"{RECIPES}serving."))
    return module.startswith(MECHANISMS) or (beside and module not in modules)


def _parts(
    make: Callable[..., Any], modules: Collection[str], makes: Callable[[str], bool]
) -> list[Any]:
    parts: dict[int, Any] = {}
    seen: set[int] = set()
    hints = get_type_hints(make, include_extras=True)
    todo = [make, *(hint for hint in hints.values() if isinstance(hint, type))]
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, partial):
            todo += [each.func, *each.args]
        elif isinstance(each, dict | tuple | list):
            todo += each.values() if isinstance(each, dict) else each
        elif _is_mechanism(each, modules):
            part = each if hasattr(each, "__qualname__") else type(each)
            parts[id(part)] = part
        elif isinstance(each, FunctionType) and (
            each.__module__ == make.__module__ or makes(each.__name__)
        ):
            todo += [
                each.__globals__[name] for name in _names(each.__code__) if name in each.__globals__
            ]
    return list(parts.values())


def _names(code: CodeType) -> list[str]:
    """Every global name that some code, or code inside it, speaks of."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return [*code.co_names, *(name for part in inner for name in _names(part))]
